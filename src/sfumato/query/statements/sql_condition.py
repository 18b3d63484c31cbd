"""Conditions as text: comparisons of attributes with literals, their combinations, and the places of refusals."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from sfumato.domain import Categorical, Date, Domain, Timestamp, Unknown
from sfumato.domain.calendar import known_part, known_period
from sfumato.domain.predicate import Predicate
from sfumato.errors import LossError, QueryError, SfumatoError
from sfumato.privacy.loss import exact
from sfumato.query.statements.cut_cells import CutCellError
from sfumato.query.statements.declared_values import matching
from sfumato.query.statements.three_valued_logic import (
    Comparison,
    Condition,
    Literal,
    among,
    compare,
    either,
    every,
    missing,
)

LONGEST = 1_000_000  # characters of a statement, or of a condition
_QUOTED = re.compile(
    r"""'(?:[^']|'')*+' | "(?:[^"]|"")*+" | --[^\n]* | /\*.*?\*/ | \$(\w*)\$.*?\$\1\$ | (?P<open>['"]|/\*|\$\w*\$)""",
    re.DOTALL | re.VERBOSE,
)
_TOP = re.compile(r"(\bSELECT\s+(?:DISTINCT\s+)?)(TOP\s*(?:\(\s*(?=\d+\s*\)))?(\d+)(?:\s*\))?)(?=\s)", re.IGNORECASE)
_KEYWORDS = {"joins": "JOIN", "order": "ORDER BY", "windows": "WINDOW", "locks": "FOR", "sample": "USING SAMPLE"}
_WORDS_TRIED = 3  # words before an unreadable place, tried in quotes
_DATES = ("date", "timestamp", "timestamp_ntz", "datetime")
MIRRORED = {
    Comparison.LESS: Comparison.GREATER,
    Comparison.AT_MOST: Comparison.AT_LEAST,
    Comparison.GREATER: Comparison.LESS,
    Comparison.AT_LEAST: Comparison.AT_MOST,
}


@dataclass(frozen=True, order=True)
class Place:
    """The line and column of a statement, both from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


def refuse(text: str, node: Any, reason: str, *statements: str) -> QueryError:  # noqa: ANN401  (sqlglot's own)
    """Return the error to raise about a node of the parsed statement, with alternative statements."""
    place = place_of(text, node)
    return QueryError(f"{place}: {reason}{instead(statements)}", culprit=place, statements=statements)


def instead(statements: Sequence[str]) -> str:
    """Return the end of a refusal, which shows alternative statements."""
    return f"; ask {'; or ask '.join(statements)}" if statements else ""


def refuse_clause(text: str, clause: str, node: Any) -> QueryError:  # noqa: ANN401
    """Return the error to raise about a clause, by the parser's name for it; it points at the clause's keyword."""
    from sqlglot import tokenize

    keyword = _KEYWORDS.get(clause, clause.rstrip("_").upper())
    at = _start(node)
    words = [token.start for token in tokenize(text, read="duckdb") if token.text.upper() == keyword]
    place = place_at(text, max((start for start in words if start <= at), default=at))
    reason = "ask one table, without JOIN" if clause == "joins" else f"{keyword} is no part of what can be asked"
    return QueryError(f"{place}: {reason}", culprit=place)


def written_arguments(text: str, node: Any) -> int:  # noqa: ANN401
    """Count the written arguments of a call, from its first column on: the parser drops some of them."""
    from sqlglot import TokenType, tokenize

    start, depth, arguments = _start(node), 0, 1
    for token in tokenize(text, read="duckdb"):
        if token.start >= start and depth >= 0:
            depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
            arguments += depth == 0 and token.token_type is TokenType.COMMA
    return arguments


def _word_to_quote(text: str, place: Place) -> str | None:
    """Return the SQL keyword at or before a place that makes the text readable if quoted; None if there is none."""
    import sqlglot

    tokens = [token for token in sqlglot.tokenize(text, read="duckdb") if place_at(text, token.start) <= place]
    for token in reversed(tokens[-_WORDS_TRIED:]):
        quoted = f'{text[: token.start]}"{token.text}"{text[token.end + 1 :]}'
        with suppress(sqlglot.errors.SqlglotError):
            if token.text.isidentifier() and sqlglot.parse(quoted, read="duckdb"):
                return str(token.text)
    return None


def unclosed(text: str) -> Place:
    """Return the place of the first unclosed quote or comment; the start if all are closed."""
    opened = (match.start() for match in _QUOTED.finditer(text) if match["open"])
    return place_at(text, next(opened, 0))


def unreadable(error: Any) -> Place:  # noqa: ANN401
    """Return the place of the first character of the word where the parser failed; its error has the last character."""
    first = error.errors[0] if error.errors else {}
    return Place(first.get("line") or 1, max((first.get("col") or 1) - len(first.get("highlight") or " ") + 1, 1))


def place_of(text: str, node: Any) -> Place:  # noqa: ANN401
    """Return the place where a node of a parsed statement begins."""
    return place_at(text, _start(node))


def _start(node: Any) -> int:  # noqa: ANN401
    """Return the first known character of a node, of anything in it, or of its parent."""
    while isinstance(node, list):
        node = node[0] if node else None
    while node is not None and not isinstance(node, bool | str):
        starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
        if starts:
            return int(min(starts))
        node = node.parent
    return 0


def place_at(text: str, start: int) -> Place:
    """Return the place of a character."""
    before = text[:start]
    return Place(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


def name_of(column: Any, known: Iterable[str]) -> str | None:  # noqa: ANN401  (sqlglot's own)
    """Return the name of a plain column; None if it is an expression, or names its table.

    Unquoted names ignore case, as in SQL.  A written name that is not in ``known`` matches the one known name that
    differs from it in case only, if there is exactly one.  A quoted name is taken literally.
    """
    from sqlglot import exp

    plain = isinstance(column, exp.Column) and isinstance(column.this, exp.Identifier)
    if not plain or any(column.args.get(part) for part in ("table", "db", "catalog")):
        return None
    written, names = str(column.this.this), tuple(known)
    if column.this.quoted or written in names:
        return written
    alike = [each for each in names if each.casefold() == written.casefold()]
    return alike[0] if len(alike) == 1 else written


def level_of(text: str, node: Any, domain: Domain) -> str | None:  # noqa: ANN401  (sqlglot's own)
    """Return the level of a hierarchy that ``level(attribute)`` names, or the calendar map of a date.

    Functions that SQL knows are read in the same way, because nothing is ever computed.

    Returns:
        None if the node is no function of such an attribute.

    Raises:
        QueryError: the attribute has a hierarchy without such a level, or no hierarchy, and SQL has no such function.
    """
    from sqlglot import exp

    if not isinstance(node, exp.Func) or isinstance(node, exp.AggFunc):
        return None
    if isinstance(node, exp.Extract | exp.TimestampTrunc | exp.DateTrunc):
        return _map_of(text, node, domain)
    given = [part for value in node.args.values() for part in (value if isinstance(value, list) else [value])]
    columns = [part for part in given if isinstance(part, exp.Expression)]
    of = name_of(columns[0], domain.names) if len(columns) == 1 else None
    if of is None:
        return None
    dated = of in domain and isinstance(domain[of], Date | Timestamp)
    known = dated or any(hierarchy.attribute == of for hierarchy in domain.hierarchies)
    if not isinstance(node, exp.Anonymous) and not known:
        return None
    name = node.name if isinstance(node, exp.Anonymous) else node.sql_name()
    try:
        return domain.grouping(f"{name}({of})").name
    except SfumatoError as error:
        raise refuse(text, node, str(error)) from None


def _map_of(text: str, node: Any, domain: Domain) -> str:  # noqa: ANN401  (sqlglot's own)
    """Return the calendar map for ``DATE_TRUNC('month', date)`` or ``EXTRACT(MONTH FROM date)``.

    Raises:
        QueryError: there is no such map.
    """
    from sqlglot import exp

    extracts = isinstance(node, exp.Extract)
    part, of = (node.this, node.expression) if extracts else (node.args["unit"], node.this)
    name = name_of(of, domain.names)
    if name is None or name not in domain:
        raise refuse(text, of, "name an attribute or one of its levels; expressions are not allowed here")
    attribute = domain[name]
    if not isinstance(attribute, Date | Timestamp):
        raise refuse(text, of, f"{name!r} is no date; only dates have parts and periods")
    if node.args.get("zone"):
        raise refuse(text, node, "the domain declares the time zone; leave AT TIME ZONE out")
    try:
        part_name = part.name.lower()
        return domain.grouping(
            f"{known_part(attribute.by, part_name) if extracts else known_period(part_name)}({name})"
        ).name
    except SfumatoError as error:
        raise refuse(text, node, str(error)) from None


def read_condition(text: str, domain: Domain) -> Predicate:
    """Return the predicate for the rows that meet the condition of a WHERE clause.

    >>> from sfumato.domain import Integer, Unknown
    >>> ages = Domain((Integer(name="age", minimum=0, maximum=3, unknown=Unknown.CLAMP),))
    >>> read_condition("age >= 2", ages)
    Among(attribute='age', codes=CodeRanges(2..3))

    Raises:
        QueryError: anything outside the subset, with its place.
    """
    tree = parsed(text, "condition, such as age >= 18")
    if type(tree).__name__ in ("Select", "Union", "Alias", "Command"):
        raise refuse(text, tree, "this must be a condition, such as age >= 18")
    try:
        return condition(text, tree, domain).true
    except RecursionError:
        raise QueryError(f"{Place(1, 1)}: this is nested too deeply", culprit=Place(1, 1)) from None


def selected_at(text: str, select: Any, place: Any) -> Any:  # noqa: ANN401
    """Return the selected expression that a number refers to, such as in GROUP BY 1.

    Raises:
        QueryError: the number refers to no column.
    """
    items, ordinal = select.expressions, number(text, place)
    if ordinal not in range(1, len(items) + 1):
        raise refuse(
            text, place, f"{len(items)} columns are selected; a place is a whole number from 1 to {len(items)}"
        )
    return items[int(ordinal) - 1]


def parsed(text: str, kind: str = "SELECT statement") -> Any:  # noqa: ANN401  (sqlglot's own)
    """Return the only syntax tree of a statement or condition.

    Raises:
        QueryError: the text is too long, cannot be parsed, or is not a single tree.
    """
    import sqlglot

    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # its warnings repeat the statement
    if len(text) > LONGEST:
        raise QueryError(f"a statement has at most {LONGEST:,} characters", culprit=Place(1, 1))
    top = next((each for each in _TOP.finditer(text) if _is_outside(text[: each.start()])), None)
    read = text if top is None else text[: top.start(2)] + " " * len(top[2]) + text[top.end(2) :]
    try:
        trees = sqlglot.parse(read, read="duckdb")
    except sqlglot.errors.ParseError as error:
        place = unreadable(error)
        word = _word_to_quote(read, place)
        two = re.search(r"\bdate_?diff\s*\(\s*[^,()]+,[^,()]+\)", text, re.IGNORECASE)
        remedy = "; write DATEDIFF('day', a, b) for the days from a to b" if two else ""
        if word is not None:
            remedy = f'; if {word} is a column, write it in double quotes, as it is a word of SQL: "{word}"'
        raise QueryError(f"{place}: this is not SQL that can be read{remedy}", culprit=place) from None
    except sqlglot.errors.TokenError:
        place = unclosed(text)
        raise QueryError(f"{place}: a quote or comment is not closed", culprit=place) from None
    except RecursionError:
        raise QueryError(f"{Place(1, 1)}: this is nested too deeply", culprit=Place(1, 1)) from None
    statements = [each for each in trees if each is not None and not isinstance(each, sqlglot.exp.Semicolon)]
    if len(statements) != 1:
        raise QueryError(f"{Place(1, 1)}: write one {kind}", culprit=Place(1, 1))
    tree: Any = statements[0]
    if top is not None:
        if tree.args.get("limit"):
            raise refuse(text, tree.args["limit"], "write TOP or LIMIT, and not both")
        tree = tree.limit(int(top[3]), copy=False)
    return tree


def _is_outside(before: str) -> bool:
    """Return whether a position is outside parentheses and texts, given the statement before it."""
    rest = _QUOTED.sub(" ", before)
    return rest.count("(") == rest.count(")") and not re.search(r"['\"]", rest)


def condition(text: str, node: Any, domain: Domain) -> Condition:  # noqa: ANN401, C901 - one case a kind
    """Return a parsed condition as predicates for the rows that make it true and the rows that make it false.

    Raises:
        QueryError: anything outside the subset, with its place.
    """
    from sqlglot import exp

    match node:
        case exp.Paren(this=inner):
            return condition(text, inner, domain)
        case exp.And():
            return every([condition(text, part, domain) for part in chain(node)])
        case exp.Or():
            return either([condition(text, part, domain) for part in chain(node)])
        case exp.Not(this=inner):
            return ~condition(text, inner, domain)
        case exp.Between(this=column) if not node.args.get("symmetric"):
            low, high = node.args["low"], node.args["high"]
            return _compared(text, column, Comparison.AT_LEAST, low, domain) & _compared(
                text, column, Comparison.AT_MOST, high, domain
            )
        case exp.In(this=column, expressions=[_, *_] as listed) if not node.args.get("query"):
            return _among(text, column, listed, domain)
        case exp.Is(this=column, expression=exp.Null()):
            return _checked(text, column, lambda: missing(domain, _column(text, column, domain)))
        case exp.Is(this=inner, expression=exp.Boolean(this=truth)):
            met = condition(text, inner, domain)
            return (met if truth else ~met).known
        case exp.Column():
            return _compared(text, node, Comparison.EQUAL, exp.true(), domain)
        case exp.Boolean():
            raise refuse(text, node, "this condition is the same for all rows; leave it out")
        case exp.Like() | exp.ILike() | exp.SimilarTo() | exp.RegexpLike():
            met = _alike(text, node, domain)
            return ~met if node.args.get("negate") else met
        case _:
            return _comparison(text, node, domain)


def number(text: str, node: Any) -> Fraction:  # noqa: ANN401
    """Return a numeric literal, exactly.

    Raises:
        QueryError: the node is something else.
    """
    value = literal(text, node)
    if isinstance(value, bool) or not isinstance(value, Fraction):
        raise refuse(text, node, "this must be a number")
    return value


def literal(text: str, node: Any) -> Literal:  # noqa: ANN401
    """Return a number, text or truth value.

    Raises:
        QueryError: NULL, which no comparison accepts, or an expression.
    """
    from sqlglot import exp

    match node:
        case exp.Literal(this=value) if node.is_string:
            return str(value)
        case exp.Literal(this=value):
            try:
                return exact(str(value))
            except LossError:
                raise refuse(text, node, "this is no number that can be compared with") from None
        case exp.Neg(this=exp.Literal() as inner) if not inner.is_string:
            return -number(text, inner)
        case exp.Boolean(this=value):
            return bool(value)
        case exp.Cast(this=exp.Literal() as inner) if inner.is_string and node.is_type(*_DATES):
            return str(inner.this)
        case exp.Null():
            raise refuse(text, node, "nothing compares with NULL; write IS NULL")
        case exp.Column():
            raise refuse(
                text, node, "compare an attribute with a literal, not with another attribute; quote text in ''"
            )
        case _:
            raise refuse(text, node, "compare with a literal, such as 65, 'text' or DATE '2024-01-31'")


def chain(node: Any) -> list[Any]:  # noqa: ANN401
    """Return the parts that one operator joins, from left to right; the parser nests them."""
    parts, waiting = [], [node]
    while waiting:
        part = waiting.pop()
        if type(part) is type(node):
            waiting += [part.expression, part.this]
        else:
            parts.append(part)
    return parts


def _comparison(text: str, node: Any, domain: Domain) -> Condition:  # noqa: ANN401
    from sqlglot import exp

    kinds = {
        exp.EQ: Comparison.EQUAL,
        exp.NEQ: Comparison.UNEQUAL,
        exp.LT: Comparison.LESS,
        exp.LTE: Comparison.AT_MOST,
        exp.GT: Comparison.GREATER,
        exp.GTE: Comparison.AT_LEAST,
    }
    how = kinds.get(type(node))
    if how is None:
        raise refuse(text, node, "a condition compares attributes with =, <>, <, <=, >, >=, IN, BETWEEN or IS NULL")
    left, right = node.this, node.expression
    if not _is_named(text, left, domain) and _is_named(text, right, domain):
        left, right, how = right, left, MIRRORED.get(how, how)
    return _compared(text, left, how, right, domain)


def _compared(text: str, column: Any, how: Comparison, value: Any, domain: Domain) -> Condition:  # noqa: ANN401
    name = _column(text, column, domain)
    constant = literal(text, value)
    at = column if name not in domain and level_of(text, column, domain) is None else value
    return _checked(text, at, lambda: compare(domain, name, how, constant))


def _among(text: str, column: Any, listed: Sequence[Any], domain: Domain) -> Condition:  # noqa: ANN401
    name, values = _column(text, column, domain), [literal(text, item) for item in listed]
    try:
        return among(domain, name, values)
    except SfumatoError:  # name the value that cannot be compared
        known = name in domain or level_of(text, column, domain) is not None
        for item, value in zip(listed, values, strict=True):
            _checked(text, item if known else column, partial(compare, domain, name, Comparison.EQUAL, value))
        raise


def _alike(text: str, node: Any, domain: Domain) -> Condition:  # noqa: ANN401
    """Return the condition that a text matches a pattern, decided by the declared values."""
    column, pattern = node.this, node.expression
    name, written = _column(text, column, domain), literal(text, pattern)
    attribute = next((each for each in domain if each.name == name), None)
    values = attribute.values if isinstance(attribute, Categorical) else ()
    texts = [each for each in values if isinstance(each, str)]
    if not isinstance(attribute, Categorical) or not isinstance(written, str) or not texts:
        raise refuse(text, column, "LIKE compares an attribute of declared text with a pattern such as 'PROMO%'")
    if attribute.unknown is Unknown.CATEGORY:
        raise refuse(text, column, f"{name!r} has a cell for texts that are not declared; name values with = or IN")
    try:
        met = texts_alike(node, written, texts)
    except QueryError as error:
        raise refuse(text, pattern, str(error)) from None
    if met:
        return among(domain, name, met)
    present = compare(domain, name, Comparison.EQUAL, texts[0])
    return present & ~present  # false, or unknown if the text is missing


def texts_alike(node: Any, pattern: str, texts: Sequence[str]) -> list[str]:  # noqa: ANN401
    """Return the texts that match the pattern of LIKE, ILIKE, SIMILAR TO or REGEXP_MATCHES.

    Raises:
        QueryError: the pattern is no valid regular expression.
    """
    from sqlglot import exp

    if isinstance(node, exp.SimilarTo | exp.RegexpLike):
        return matching(texts, f"^(?:{pattern})$" if isinstance(node, exp.SimilarTo) else pattern)
    wildcards = {"%": ".*", "_": "."}
    expression = "".join(wildcards.get(letter) or re.escape(letter) for letter in pattern)
    any_case = re.IGNORECASE if isinstance(node, exp.ILike) else 0
    return [each for each in texts if re.fullmatch(expression, each, re.DOTALL | any_case)]


def _is_named(text: str, node: Any, domain: Domain) -> bool:  # noqa: ANN401
    from sqlglot import exp

    return isinstance(node, exp.Column) or level_of(text, node, domain) is not None


def _column(text: str, column: Any, domain: Domain) -> str:  # noqa: ANN401
    name = level_of(text, column, domain) or name_of(column, domain.names)
    if name is None:
        raise refuse(text, column, "name an attribute or one of its levels; expressions are not allowed here")
    return name


def _checked(text: str, node: Any, build: Any) -> Condition:  # noqa: ANN401
    try:
        built_condition: Condition = build()
    except CutCellError as error:
        raise error.at(place_of(text, node)) from None
    except SfumatoError as error:
        raise refuse(text, node, str(error)) from None
    return built_condition
