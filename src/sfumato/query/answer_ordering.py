"""HAVING, ORDER BY and LIMIT of noisy answers: post-processing, without privacy loss.

A group has no mean, variance or quantile if the interval excludes no value allowed by the domain.  As in SQL, such a
group meets no comparison of HAVING, and it comes last in the order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Categorical, Domain, Integer
from sfumato.domain.attribute import EXTRA
from sfumato.domain.predicate import Among
from sfumato.errors import LossError, QueryError, SfumatoError
from sfumato.model.factor import FloatArray
from sfumato.privacy.loss import exact
from sfumato.query.aggregates import Aggregate, Estimates
from sfumato.query.answer_expression import AnswerExpression, aggregate_at, evaluate, exact_numbers, unit_of
from sfumato.query.statements.select_list import COMPUTED, ExpressionReader
from sfumato.query.statements.sql_condition import MIRRORED, chain, literal, number, refuse, selected_at
from sfumato.query.statements.three_valued_logic import Comparison, Literal, compare, missing


class AnsweredGroups(Protocol):
    """The groups of an answer: their labels and estimates."""

    @property
    def labels(self) -> tuple[Any, ...]:
        """The labels, one Arrow array per group attribute."""

    @property
    def measured(self) -> tuple[Estimates, ...]:
        """The estimates, one set per aggregate."""

    def __len__(self) -> int: ...


_Mask: TypeAlias = NDArray[np.bool_]
Truth: TypeAlias = Callable[[AnsweredGroups], tuple[_Mask, _Mask]]
"""The groups of an answer for which a condition is true, and those for which it is false."""
Numbers: TypeAlias = Callable[[AnsweredGroups], FloatArray]
"""A number for each group of an answer; NaN stands for NULL."""

_SIGNS: Final = {
    "lt": Comparison.LESS,
    "lte": Comparison.AT_MOST,
    "gt": Comparison.GREATER,
    "gte": Comparison.AT_LEAST,
    "eq": Comparison.EQUAL,
    "neq": Comparison.UNEQUAL,
}
_COMPARED: Final = {
    Comparison.LESS: np.less,
    Comparison.AT_MOST: np.less_equal,
    Comparison.GREATER: np.greater,
    Comparison.AT_LEAST: np.greater_equal,
    Comparison.EQUAL: np.equal,
    Comparison.UNEQUAL: np.not_equal,
}
_CLAUSES = ("having", "order", "limit", "offset")
_LONGEST = 500  # characters of clauses in a note, and of a statement that a refusal suggests
_SUBJECTS = {
    "having": "HAVING compares what is selected or grouped by",
    "order": "ORDER BY names what is selected, or what is grouped by",
}


@dataclass(frozen=True)
class SortKey:
    """The numbers that order groups."""

    numbers: Numbers
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class Ordering:
    """The groups of a noisy answer to show, and their order.

    Attributes:
        having: the condition for the groups to show; None: all groups.
        order: keys; the first has precedence.
        limit: the number of groups; None: all.
        offset: the number of groups to skip first.
        called: names of the groups, in order; empty for the names of the groupings.
        clauses: the text of the clauses after GROUP BY; empty if there are none.
    """

    having: Truth | None = None
    order: tuple[SortKey, ...] = ()
    limit: int | None = None
    offset: int = 0
    called: tuple[str, ...] = ()
    clauses: str = ""

    @property
    def note(self) -> str:
        """The clauses for the notes of an answer, and their effect on its intervals."""
        note = f"after the noise, groups were chosen and ordered by their noisy answers: {self.clauses}"
        chosen = self.having is not None or self.limit is not None or self.offset
        return f"{note}; the intervals of chosen groups hold less often" if chosen else note

    def places(self, answer: AnsweredGroups) -> NDArray[np.intp]:
        """Return the indices of the groups to show, in the order of the statement."""
        places = np.arange(len(answer))
        if self.having is not None:
            places = places[self.having(answer)[0]]
        for key in reversed(self.order):
            numbers = key.numbers(answer)[places] * (-1 if key.descending else 1)
            if key.nulls_first:
                numbers = np.where(np.isnan(numbers), -np.inf, numbers)
            places = places[np.argsort(numbers, kind="stable")]
        return places[self.offset :][: self.limit]


UNORDERED: Final = Ordering()


@dataclass(frozen=True)
class OrderingReader:
    """A reader of the clauses of a statement about its noisy answers.

    Attributes:
        text: the statement.
        select: the parsed statement, unchanged.
        domain: the domain of the rows.
        by: the groups.
        aggregates: the aggregates.
        items: for each selected column, its numbers, or -1 for the first group, -2 for the second.
        place_of: returns the index of a node; None if it is an aggregate or attribute that is not selected.
    """

    text: str
    select: Any
    domain: Domain
    by: tuple[str, ...]
    aggregates: tuple[Aggregate, ...]
    items: tuple[int | AnswerExpression, ...]
    place_of: Callable[[Any], int | None]

    def read(self, called: tuple[str, ...]) -> Ordering:
        """Return the ordering, with the names ``called`` for the groups.

        Raises:
            QueryError: a clause names anything but answers, groups and numbers.
        """
        having, order, limit, offset = (self.select.args.get(name) for name in _CLAUSES)
        truth = None if having is None else self._truth(having.this)
        keys = () if order is None else tuple(map(self._sort_key, order.expressions))
        most = None if limit is None else self._whole_number(limit, "limit")
        first = 0 if offset is None else self._whole_number(offset, "offset")
        clauses = " ".join(_sql(each).strip() for each in (having, order, limit, offset) if each is not None)
        clauses = clauses if len(clauses) <= _LONGEST else f"{clauses[: _LONGEST - 4]} ..."
        return Ordering(truth, keys, most, first, called, clauses)

    def _whole_number(self, clause: Any, name: str) -> int:  # noqa: ANN401
        from sqlglot import exp

        node, options = clause.args.get("count") or clause.expression, clause.args.get("limit_options")
        shares = options is not None and (options.args.get("percent") or options.args.get("with_ties"))
        value = number(self.text, node) if isinstance(node, exp.Literal) and not shares else None
        if value is None or value.denominator != 1:
            reason = f"{name.upper()} takes a whole number"
            raise refuse(self.text, clause, reason, *self._suggest(**{name: None}))
        return int(value)

    def _sort_key(self, key: Any) -> SortKey:  # noqa: ANN401
        from sqlglot import exp

        node = key.this
        if isinstance(node, exp.Literal) and not node.is_string:
            item = selected_at(self.text, self.select, node)
            place = next(n for n, each in enumerate(self.select.expressions) if each is item)
            what = self.items[place]
        elif isinstance(node, exp.Cast) and node.is_type(*exp.DataType.TEXT_TYPES) and self._group(node.this):
            group = self._item(node.this, "order")
            assert isinstance(group, int)
            what = group
        else:
            what = self._operand(key, node, "order")
        as_text = isinstance(node, exp.Cast) and isinstance(what, int)
        codes = _in_text_order if as_text else _codes
        numbers = partial(codes, -1 - what) if isinstance(what, int) else self._numbers(what)
        return SortKey(numbers, bool(key.args.get("desc")), bool(key.args.get("nulls_first")))

    def _truth(self, node: Any) -> Truth:  # noqa: ANN401, C901 - one case a kind
        """Return the groups that make a condition of HAVING true, and the groups that make it false."""
        from sqlglot import exp

        match node:
            case exp.Paren(this=inner):
                return self._truth(inner)
            case exp.And():
                return partial(_every, [self._truth(part) for part in chain(node)])
            case exp.Or():
                return _negated(partial(_every, [_negated(self._truth(part)) for part in chain(node)]))
            case exp.Not(this=inner):
                return _negated(self._truth(inner))
            case exp.Between(this=column) if not node.args.get("symmetric"):
                ends = ((Comparison.AT_LEAST, node.args["low"]), (Comparison.AT_MOST, node.args["high"]))
                return partial(_every, [self._comparison(node, column, sign, end) for sign, end in ends])
            case exp.In(this=column, expressions=[_, *_] as values) if not node.args.get("query"):
                unequal = [self._comparison(node, column, Comparison.UNEQUAL, value) for value in values]
                return _negated(partial(_every, unequal))
            case exp.Is(this=column, expression=exp.Null()):
                return self._missing(node, column)
            case exp.Is(this=inner, expression=exp.Boolean(this=value)):
                met = self._truth(inner)
                return partial(_known, met if value else _negated(met))
            case exp.Column():
                return self._comparison(node, node, Comparison.EQUAL, exp.true())
        sign = _SIGNS.get(node.key)
        if sign is None:
            raise refuse(
                self.text,
                node,
                "HAVING compares what is selected or grouped by, with AND, OR and NOT, such as COUNT(*) > 100",
                *self._suggest(having=None),
            )
        return self._comparison(node, node.this, sign, node.expression)

    def _comparison(self, node: Any, left: Any, sign: Comparison, right: Any) -> Truth:  # noqa: ANN401
        if _is_number(left) or (self._group(right) and not self._group(left)):
            left, right, sign = right, left, MIRRORED.get(sign, sign)
        what = self._operand(node, left, "having")
        if not isinstance(what, int):
            other = self._operand(node, right, "having")
            if isinstance(other, int):
                raise refuse(self.text, right, "HAVING compares an answer with a number or another answer")
            return partial(_compared, sign, self._numbers(what), self._numbers(other))
        name, value = self.by[-1 - what], literal(self.text, right)
        if not self._is_declared(name):
            return partial(_compared_labels, -1 - what, sign, value)
        return self._of_cells(right, what, lambda: compare(self.domain, name, sign, value))

    def _missing(self, node: Any, column: Any) -> Truth:  # noqa: ANN401
        what = self._operand(node, column, "having")
        if not isinstance(what, int):
            return partial(_is_null, self._numbers(what))
        name = self.by[-1 - what]
        if not self._is_declared(name):
            return partial(_is_null, partial(_codes, -1 - what))
        return self._of_cells(column, what, lambda: missing(self.domain, name))

    def _of_cells(self, node: Any, place: int, build: Callable[[], Any]) -> Truth:  # noqa: ANN401
        """Return the groups that make a condition on a group true, and false, by the labels of its cells."""
        try:
            met = build()
        except SfumatoError as error:
            raise refuse(self.text, node, str(error)) from None
        grouping = self.domain.grouping(self.by[-1 - place])
        labels = []
        for each in (met.true, met.false):
            assert isinstance(each, Among)
            cells = np.unique(grouping.cell_of_code[np.fromiter(each.codes, dtype=np.int64)])
            labels.append(frozenset(grouping.labels[cell] for cell in cells))
        return partial(_labelled, -1 - place, labels[0], labels[1])

    def _is_declared(self, name: str) -> bool:
        """Return whether the domain declares the cells of a group; otherwise they come from the data."""
        try:
            return bool(self.domain.grouping(name).name)
        except SfumatoError:
            return False

    def _numbers(self, expression: AnswerExpression) -> Numbers:
        return partial(_values, expression, self.aggregates, self.domain)

    def _operand(self, node: Any, operand: Any, clause: str) -> int | AnswerExpression:  # noqa: ANN401
        """Return the group or the numbers of a clause's operand."""
        what = self._item(operand, clause)
        if what is not None:
            return what
        return ExpressionReader(self.text, partial(self._leaf, node, clause), self._unit).read(operand)

    def _leaf(self, node: Any, clause: str, operand: Any) -> AnswerExpression | None:  # noqa: ANN401
        """Return an operand that computes nothing; refuse one that is not selected."""
        from sqlglot import exp

        what = self._item(operand, clause)
        if isinstance(what, int):
            if not self._has_numbers(self.by[-1 - what]):
                raise refuse(self.text, operand, COMPUTED)
            return aggregate_at(what)  # a negative index: the number of the group
        if what is None and isinstance(operand, exp.Column | exp.AggFunc | exp.WithinGroup | exp.Anonymous):
            raise self._not_selected(node, operand, _SUBJECTS[clause], **{clause: None})
        return what

    def _has_numbers(self, name: str) -> bool:
        """Return whether each group is one number."""
        attribute = next((each for each in self.domain if each.name == name), None)
        if isinstance(attribute, Integer):
            return attribute.edges is None
        texts = attribute.values if isinstance(attribute, Categorical) else [""]
        return all(isinstance(each, str) and _as_number(each) is not None for each in texts)

    def _unit(self, place: int) -> Fraction:
        return Fraction(0) if place < 0 else unit_of(self.aggregates[place], self.domain)

    def _group(self, node: Any) -> bool:  # noqa: ANN401
        return isinstance(self._item(node, "having"), int)

    def _item(self, node: Any, clause: str) -> int | AnswerExpression | None:  # noqa: ANN401
        """Return the selected or measured item of a node; in ORDER BY a name given by AS takes precedence."""
        named, written = self._named(node), self._written(node)
        first, second = (named, written) if clause == "order" else (written, named)
        return second if first is None else first

    def _written(self, node: Any) -> int | AnswerExpression | None:  # noqa: ANN401
        """Return the item whose text equals a node; None if it is not selected."""
        for item, what in zip(self.select.expressions, self.items, strict=False):
            if item.unalias() == node:
                return what
        try:
            place = self.place_of(node)
        except QueryError:
            return None
        return aggregate_at(place) if place is not None and place >= 0 else place

    def _named(self, node: Any) -> int | AnswerExpression | None:  # noqa: ANN401
        """Return the item that AS gives the name of a node."""
        from sqlglot import exp

        if not isinstance(node, exp.Column) or node.table:
            return None
        named = zip(self.select.expressions, self.items, strict=False)
        return next(
            (what for item, what in named if item.alias and item.alias.casefold() == node.name.casefold()), None
        )

    def _not_selected(self, node: Any, operand: Any, reason: str, **clause: None) -> QueryError:  # noqa: ANN401
        """Return the refusal of a node, with the nearest statement that works."""
        try:
            self.place_of(operand)
        except QueryError as error:
            where, _, detail = str(error).partition(": ")
            return refuse(self.text, node, f"{reason} ({detail or where})", *self._suggest(**clause))
        from sqlglot import exp

        if isinstance(operand, exp.AggFunc | exp.WithinGroup | exp.Anonymous):
            select = self.select.copy().select(operand.copy(), copy=False)
            return refuse(self.text, node, f"{reason}; select {_sql(operand)} as well", *_statement(select))
        return refuse(self.text, node, reason, *self._suggest(**clause))

    def _suggest(self, **clause: None) -> tuple[str, ...]:
        """Return the statement without a clause as a suggestion; nothing if it is long."""
        select = self.select.copy()
        for name, value in clause.items():
            select.set(name, value)
        return _statement(select)


def _sql(node: Any) -> str:  # noqa: ANN401
    return str(node.sql(dialect="duckdb", normalize_functions=False))


def _statement(select: Any) -> tuple[str, ...]:  # noqa: ANN401
    text = _sql(select)
    return (text,) if len(text) <= _LONGEST else ()


def _is_number(node: Any) -> bool:  # noqa: ANN401
    from sqlglot import exp

    return isinstance(node.this if isinstance(node, exp.Neg) else node, exp.Literal)


def _negated(part: Truth) -> Truth:
    return partial(_swapped, part)


def _swapped(part: Truth, answer: AnsweredGroups) -> tuple[_Mask, _Mask]:
    true, false = part(answer)
    return false, true


def _known(part: Truth, answer: AnsweredGroups) -> tuple[_Mask, _Mask]:
    true, _ = part(answer)
    return true, ~true


def _every(parts: Sequence[Truth], answer: AnsweredGroups) -> tuple[_Mask, _Mask]:
    true, false = zip(*(part(answer) for part in parts), strict=True)
    return np.logical_and.reduce(true), np.logical_or.reduce(false)


def _compared(sign: Comparison, left: Numbers, right: Numbers, answer: AnsweredGroups) -> tuple[_Mask, _Mask]:
    one, other = left(answer), right(answer)
    known, met = ~(np.isnan(one) | np.isnan(other)), _COMPARED[sign](one, other)
    return known & met, known & ~met


def _is_null(numbers: Numbers, answer: AnsweredGroups) -> tuple[_Mask, _Mask]:
    null = np.isnan(numbers(answer))
    return null, ~null


def _labelled(group: int, true: frozenset[str], false: frozenset[str], answer: AnsweredGroups) -> tuple[_Mask, _Mask]:
    labels: Any = answer.labels[group]
    texts = labels.dictionary.to_pylist()
    places = labels.indices.to_numpy()
    one, other = (np.array([text in each for text in texts], dtype=np.bool_) for each in (true, false))
    return one[places], other[places]


def _compared_labels(group: int, sign: Comparison, value: Literal, answer: AnsweredGroups) -> tuple[_Mask, _Mask]:
    """Compare labels found in the data: numbers with numbers, texts with texts."""
    labels = pairs = answer.labels[group].to_pylist()
    if isinstance(value, Fraction):
        pairs = [None if text is None else _as_number(text) for text in labels]
    known = np.array([each is not None for each in pairs], dtype=np.bool_)
    other: Any = str(value).lower() if isinstance(value, bool) else value
    met = np.array([each is not None and bool(_COMPARED[sign](each, other)) for each in pairs], dtype=np.bool_)
    return known & met, known & ~met


def _as_number(text: str) -> Fraction | None:
    try:
        return exact(text)  # a label of the data may be 1/0, or so large that its digits fill the memory
    except LossError:
        return None


def _values(
    expression: AnswerExpression, aggregates: Sequence[Aggregate], domain: Domain, answer: AnsweredGroups
) -> FloatArray:
    """Return noisy answers; NaN if SQL may have NULL, such as for the mean of an empty group."""
    exact = {
        place: exact_numbers(np.array([_label_number(label) for label in answer.labels[-1 - place].to_pylist()]))
        for place in expression.places
        if place < 0
    }
    numbers = evaluate(expression, aggregates, answer.measured, domain, exact)
    return np.broadcast_to(np.where(numbers.missing, np.nan, numbers.value), len(answer))


def _label_number(label: str | None) -> float:
    number_ = None if label is None else _as_number(label)
    return math.nan if number_ is None else float(number_)


def _in_text_order(group: int, answer: AnsweredGroups) -> FloatArray:
    """Return the ranks of labels in the order of their texts; NaN for missing values."""
    labels = [None if label == EXTRA[0] else label for label in answer.labels[group].to_pylist()]
    places = {label: place for place, label in enumerate(sorted({each for each in labels if each is not None}))}
    return np.array([np.nan if each is None else places[each] for each in labels], dtype=np.float64)


def _codes(group: int, answer: AnsweredGroups) -> FloatArray:
    """Return the ranks of labels in the order of the cells, or of texts found in the data; NaN for missing values."""
    import pyarrow as pa

    labels: Any = answer.labels[group]
    if not isinstance(labels, pa.DictionaryArray):
        texts = labels.to_pylist()
        places = {text: place for place, text in enumerate(sorted({text for text in texts if text is not None}))}
        return np.array([places.get(text, np.nan) for text in texts], dtype=np.float64)
    codes = np.array([np.nan if text == EXTRA[0] else code for code, text in enumerate(labels.dictionary.to_pylist())])
    numbers: FloatArray = codes.astype(np.float64)[labels.indices.to_numpy()]
    return numbers
