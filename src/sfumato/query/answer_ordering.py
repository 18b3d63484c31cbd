"""HAVING, ORDER BY and LIMIT of noisy answers: post-processing, which costs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from sfumato.query.answer import Answer
from sfumato.query.statements.sql_condition import number, refuse

_COMPARISONS: Final = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "=": np.equal,
    "<>": np.not_equal,
}
_CHOSEN = "groups were left out, ordered or cut by their noisy answers, after these were released"


@dataclass(frozen=True)
class HavingCondition:
    """A comparison of a noisy answer with a number: its column, the sign, the number."""

    column: int
    sign: str
    number: Fraction


@dataclass(frozen=True)
class SortKey:
    """A column that orders groups: of answers, or of labels if it is below zero (-1 is the first)."""

    column: int
    descending: bool


@dataclass(frozen=True)
class Ordering:
    """The groups of a noisy answer to show, and their order.

    Attributes:
        having: conditions that every group to show meets.
        order: keys; the first has precedence.
        limit: the number of groups; None: all.
        called: names of the groups, in order; empty for the names of the groupings.
    """

    having: tuple[HavingCondition, ...] = ()
    order: tuple[SortKey, ...] = ()
    limit: int | None = None
    called: tuple[str, ...] = ()

    def apply(self, answer: Answer) -> Answer:
        """Return the groups of an answer that the statement asks for, in its order."""
        if self.called:
            integers = {
                name for before, name in zip(answer.groups, self.called, strict=True) if before in answer.integers
            }
            answer = replace(answer, called=self.called, integers=frozenset(integers))
        if not (self.having or self.order or self.limit is not None):
            return answer
        places = np.arange(len(answer))
        for each in self.having:
            values = answer.estimates[each.column].value[places]
            places = places[_COMPARISONS[each.sign](values, float(each.number))]
        for by in reversed(self.order):
            places = places[_order(answer, by, places)]
        ordered_answer = answer.take(places[: self.limit])
        return replace(ordered_answer, notes=(*answer.notes, _CHOSEN))


def _order(answer: Answer, by: SortKey, places: NDArray[np.intp]) -> NDArray[np.intp]:
    if by.column >= 0:
        values = answer.estimates[by.column].value[places]
        return np.argsort(-values if by.descending else values, kind="stable")
    labels = answer.labels[-1 - by.column]  # coded in the order of the cells
    codes = np.asarray(labels.indices.to_numpy())[places].astype(np.int64)
    return np.argsort(-codes if by.descending else codes, kind="stable")


def read_ordering(text: str, select: Any, *, called: tuple[str, ...] = ()) -> Ordering:  # noqa: ANN401  (sqlglot's own)
    """Read HAVING, ORDER BY and LIMIT of a parsed statement.

    Args:
        text: the statement.
        select: as it was parsed.
        called: what its groups are called, in order.

    Raises:
        QueryError: something else than answers, groups and numbers, with its place.
    """
    from sqlglot import exp

    limit = select.args.get("limit")
    most = None
    if limit is not None:
        most = number(text, limit.expression) if isinstance(limit.expression, exp.Literal) else None
        if most is None or most.denominator != 1:
            raise refuse(text, limit, "LIMIT takes a whole number")
    having, order = tuple(_having(text, select)), tuple(_sort_keys(text, select, called))
    return Ordering(having, order, None if most is None else int(most), called)


def _having(text: str, select: Any) -> Iterator[HavingCondition]:  # noqa: ANN401
    from sqlglot import exp

    having = select.args.get("having")
    signs: dict[Any, str] = {exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.EQ: "=", exp.NEQ: "<>"}
    met = [] if having is None else [having.this]
    for part in met[0].flatten() if met and isinstance(met[0], exp.And) else met:
        place = _answer(select, part.this) if type(part) in signs else None
        if place is None:
            raise refuse(text, part, "HAVING compares what is selected with a number, such as COUNT(*) > 100")
        yield HavingCondition(place, signs[type(part)], number(text, part.expression))


def _sort_keys(text: str, select: Any, called: tuple[str, ...]) -> Iterator[SortKey]:  # noqa: ANN401
    order, group = select.args.get("order"), select.args.get("group")
    keys = [] if group is None else group.expressions
    for each in [] if order is None else order.expressions:
        place = _answer(select, each.this)
        if place is None:
            names = _names(select, each.this)
            own = [{name.casefold()} for name in called] or [set()] * len(keys)
            at = next(
                (n for n, key in enumerate(keys) if key == each.this or names & (_names(select, key) | own[n])), None
            )
            if at is None:
                raise refuse(text, each, "ORDER BY names what is selected, or what is grouped by")
            place = -1 - at
        yield SortKey(place, descending=bool(each.args.get("desc")))


def _answer(select: Any, node: Any) -> int | None:  # noqa: ANN401
    """Return the place of a selected aggregate that a node is, or is called by; None if it is none."""
    from sqlglot import exp

    aggregates = [item for item in select.expressions if item.find(exp.AggFunc)]
    names = _names(select, node)
    for place, item in enumerate(aggregates):
        if (item.this if isinstance(item, exp.Alias) else item) == node or names & {item.alias.casefold()} - {""}:
            return place
    return None


def _names(select: Any, node: Any) -> set[str]:  # noqa: ANN401
    """Return the names of a node: its own if it is a plain column, and what it is selected AS."""
    from sqlglot import exp

    plain = {node.name.casefold()} if isinstance(node, exp.Column) and not node.table else set()
    return plain | {item.alias.casefold() for item in select.expressions if item.alias and item.this == node}
