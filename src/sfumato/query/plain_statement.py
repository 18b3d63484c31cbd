"""Statements and conditions of plain words, read without the parser of SQL, which takes longer to load than to answer.

What is read here is a part of :mod:`sfumato.query.select_statement` and means the same: aggregates of attributes, WHERE
with comparisons, IN, BETWEEN, IS NULL, AND, OR and NOT, GROUP BY attributes.  Everything else, such as levels of
hierarchies, periods of dates, comments and words that mean something in SQL, is left to the parser, and so is every
refusal: nothing is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, NoReturn, TypeVar

from sfumato.domain import Domain
from sfumato.domain.domain import numeric
from sfumato.domain.predicate import Predicate
from sfumato.errors import SfumatoError
from sfumato.privacy.loss import exact
from sfumato.query.aggregate import Aggregate, Average, Count, Distinct, Total, Variance
from sfumato.query.hierarchical_histogram import Extreme, Quantile
from sfumato.query.three_valued import Comparison, Condition, Literal, among, compare, either, every, missing

LONGEST = 1_000_000  # characters
_Found = TypeVar("_Found")
_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:
        (?P<word>[A-Za-z_][A-Za-z_0-9]*)
      | (?P<number>[0-9]+(?:\.[0-9]+)?)(?![A-Za-z_0-9.])
      | '(?P<text>(?:[^'\\\r\n]|'')*)'
      | "(?P<quoted>[^"\\\r\n]+)"
      | (?P<sign><=|>=|<>|!=|[=<>(),*]|-(?!-))
      | (?P<end>\Z))""",
    re.VERBOSE,
)
_SIGNS = {"!=": Comparison.UNEQUAL} | {each.value: each for each in Comparison}
_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_NUMERIC: dict[str, Callable[[str], Aggregate]] = {
    "SUM": Total,
    "AVG": Average,
    "VAR_POP": Variance,
    "STDDEV_POP": lambda name: Variance(name, root=True),
    "MEDIAN": lambda name: Quantile(name, exact("0.5")),
    "MIN": lambda name: Extreme(name, largest=False),
    "MAX": lambda name: Extreme(name, largest=True),
}
_SPECIAL = frozenset(
    """
    ALL ALTER AND ANY AS BETWEEN BY CASE CONNECT_BY_ROOT CREATE CROSS CUBE CURRENT_CATALOG CURRENT_DATE
    CURRENT_TIME CURRENT_TIMESTAMP CURRENT_USER DESCRIBE DISTINCT DROP ELSE EXCEPT FALSE FETCH FOR FORCE FROM GLOB
    GRANT GROUP HAVING IF ILIKE IN INNER INSERT INSTALL INTERSECT INTERVAL INTO IS JOIN LATERAL LIKE LIMIT
    LOCALTIME LOCALTIMESTAMP LOCK MAP NOT NOTNULL NULL OFFSET ON ONLY OR OUTER PARTITIONED_BY POSITIONAL QUALIFY
    REGEXP RETURNING REVOKE RLIKE ROLLBACK ROLLUP SELECT SESSION_USER SUMMARIZE TABLE TABLESAMPLE THEN TRUE UNCACHE
    UNION USING VALUES WHEN WHERE WINDOW WITH XOR
    """.split()  # noqa: SIM905 - a list of words is easier to read so
)
"""Words that name nothing in some place of a statement, or mean more there; a test tries all that the parser knows."""
_SPOKEN = ("word", "sign")  # kinds of tokens that keywords and signs are among


class _NotPlainError(Exception):
    """The parser of SQL has to say."""


class PlainStatement(NamedTuple):
    """What a statement asks: the parts of a :class:`sfumato.query.Query`."""

    aggregates: tuple[Aggregate, ...]
    by: tuple[str, ...]
    where: Predicate | None
    names: tuple[str, ...]


def plain_statement(text: str, domain: Domain) -> PlainStatement | None:
    """What a statement asks, where it is plain.

    >>> from sfumato.domain import Integer, Unknown
    >>> ages = Domain((Integer(name="age", minimum=0, maximum=3, unknown=Unknown.CLAMP),))
    >>> plain_statement("SELECT COUNT(*) FROM t WHERE age >= 2", ages).aggregates
    (Count(of=None),)
    >>> plain_statement("SELECT COUNT(*) FROM t HAVING age >= 2", ages) is None
    True
    """
    return _read(text, domain, _PlainReader.statement)


def plain_condition(text: str, domain: Domain) -> Predicate | None:
    """Where a condition is true, where it is plain."""
    found = _read(text, domain, _PlainReader.condition)
    return None if found is None else found.true


def _read(text: str, domain: Domain, part: Callable[[_PlainReader], _Found]) -> _Found | None:
    try:
        reader = _PlainReader(text, domain)
        found = part(reader)
        reader.end()
    except (_NotPlainError, SfumatoError, RecursionError):
        return None
    return found


class _PlainReader:
    """Goes through the words of one text from left to right."""

    def __init__(self, text: str, domain: Domain) -> None:
        self._domain = domain
        self._tokens: list[tuple[str, str]] = []  # kind, and what stands there
        self._at = 0
        if len(text) > LONGEST:
            _leave()
        place, kind = 0, ""
        while kind != "end":
            found = _TOKEN.match(text, place)
            if found is None:
                _leave()
            place, kind = found.end(), str(found.lastgroup)
            self._tokens.append((kind, found[kind]))
        self._tokens.append(("end", ""))  # two ends, as two tokens are looked at together
        self._words = [found.upper() if kind in _SPOKEN else "" for kind, found in self._tokens]

    def statement(self) -> PlainStatement:
        self._need("SELECT")
        columns = [self._column()]
        while self._has(","):
            columns.append(self._column())
        self._need("FROM")
        self._name()
        condition = self.condition() if self._has("WHERE") else None
        by: list[str] = []
        if self._has("GROUP"):
            self._need("BY")
            by.append(self._attribute())
            while self._has(","):
                by.append(self._attribute())
        aggregates = [(found, name) for found, name in columns if not isinstance(found, str)]
        names = [name or str(found) for found, name in aggregates]
        plain = {found for found, _ in columns if isinstance(found, str)}
        if not aggregates or not plain.issubset(by) or len(set(by)) < len(by) or len(set(names)) < len(names):
            _leave()
        where = None if condition is None else condition.true
        return PlainStatement(tuple(found for found, _ in aggregates), tuple(by), where, tuple(names))

    def condition(self) -> Condition:
        parts = [self._conjunction()]
        while self._has("OR"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else either(parts)

    def end(self) -> None:
        if self._tokens[self._at][0] != "end":
            _leave()

    def _conjunction(self) -> Condition:
        parts = [self._negation()]
        while self._has("AND"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else every(parts)

    def _negation(self) -> Condition:
        return ~self._negation() if self._has("NOT") else self._comparison()

    def _comparison(self) -> Condition:
        if self._has("("):
            inner = self.condition()
            self._need(")")
            return inner
        value = self._literal()
        if value is not None:
            sign = self._sign()
            return self._compared(self._attribute(), _SIGNS[_MIRRORED.get(sign, sign)], value)
        name = self._attribute()
        if self._has("IS"):
            negated = self._has("NOT")
            self._need("NULL")
            found = missing(self._domain, name)
            return ~found if negated else found
        negated = self._has("NOT")
        if self._has("IN"):
            self._need("(")
            listed = [self._value()]
            while self._has(","):
                listed.append(self._value())
            self._need(")")
            found = among(self._domain, name, listed)
            return ~found if negated else found
        if self._has("BETWEEN"):
            low = self._compared(name, Comparison.AT_LEAST, self._value())
            self._need("AND")
            high = self._compared(name, Comparison.AT_MOST, self._value())
            found = low & high
            return ~found if negated else found
        if negated:
            _leave()
        if self._tokens[self._at][1] in _SIGNS:
            return self._compared(name, _SIGNS[self._sign()], self._value())
        return self._compared(name, Comparison.EQUAL, value=True)

    def _column(self) -> tuple[Aggregate | str, str | None]:
        """An aggregate or the name of an attribute, and the name that it is given."""
        (kind, word), (_, following) = self._tokens[self._at : self._at + 2]
        if kind == "word" and following == "(":
            self._at += 2
            found = self._aggregate(word.upper())
            self._need(")")
            return found, self._name() if self._has("AS") else None
        name = self._attribute()
        if self._has("AS"):
            self._name()
        return name, None

    def _aggregate(self, word: str) -> Aggregate:
        if word == "COUNT":
            if self._has("*"):
                return Count()
            if self._has("DISTINCT"):
                unit = self._domain.unit.column
                if unit is None or self._name(unit) != unit:
                    _leave()
                return Distinct()
            return Count(self._attribute())
        name = self._attribute()
        numeric(self._domain, name)
        if word == "QUANTILE":
            self._need(",")
            share = self._value()
            if isinstance(share, bool | str):
                _leave()
            return Quantile(name, share)
        if word not in _NUMERIC:
            _leave()
        return _NUMERIC[word](name)

    def _compared(self, name: str, how: Comparison, value: Literal) -> Condition:
        return compare(self._domain, name, how, value)

    def _value(self) -> Literal:
        found = self._literal()
        if found is None:
            _leave()
        return found

    def _literal(self) -> Literal | None:
        kind, found = self._tokens[self._at]
        negative = (kind, found) == ("sign", "-")
        if negative:
            self._at += 1
            kind, found = self._tokens[self._at]
            if kind != "number":
                _leave()
        truth = {"TRUE": True, "FALSE": False}.get(found.upper()) if kind == "word" else None
        if kind not in ("number", "text") and truth is None:
            return None
        self._at += 1
        if kind == "number":
            return -exact(found) if negative else exact(found)
        return found.replace("''", "'") if kind == "text" else truth

    def _attribute(self) -> str:
        name = self._name(*self._domain.names)
        if name not in self._domain.names:
            _leave()
        return name

    def _name(self, *known: str) -> str:
        """A name as it is written, or the known one that differs from it in case only."""
        kind, found = self._tokens[self._at]
        if kind not in ("word", "quoted") or (kind == "word" and found.upper() in _SPECIAL):
            _leave()
        self._at += 1
        if kind == "quoted" or found in known:
            return found
        alike = [each for each in known if each.casefold() == found.casefold()]
        return alike[0] if len(alike) == 1 else found

    def _sign(self) -> str:
        kind, found = self._tokens[self._at]
        if kind != "sign" or found not in _SIGNS:
            _leave()
        self._at += 1
        return found

    def _has(self, expected: str) -> bool:
        """Whether a keyword or sign comes next, which is then passed over."""
        has = self._words[self._at] == expected
        self._at += has
        return has

    def _need(self, expected: str) -> None:
        if not self._has(expected):
            _leave()


def _leave() -> NoReturn:
    raise _NotPlainError
