"""The refusal of a comparison that cuts a cell in two, with the edges of the cell."""

from __future__ import annotations

from datetime import date, datetime, timedelta

from sfumato.domain import Date, Dated, Integer, Numeric, Real, Timestamp, Unknown
from sfumato.domain.calendar import DAY
from sfumato.errors import QueryError

_EDGES_NAMED = 40  # starts of cells; of more cells, only the neighbors of the cut cell


class CutCellError(QueryError):
    """A comparison that holds for a part of a cell only.

    Attributes:
        first: the smallest value of the cell, as a literal of SQL.
        last: its largest value; None if the cell holds all values below ``after``.
        after: the smallest value of the next cell; None if there is none, and the cell includes its right end.
    """

    def __init__(self, message: str, *, culprit: object, edges: tuple[str, str | None, str | None]) -> None:
        super().__init__(message, culprit=culprit)
        self.first, self.last, self.after = self.edges = edges

    @classmethod
    def of(cls, attribute: Numeric | Dated, code: int, literal: object) -> CutCellError:
        """Return the refusal of a comparison with a literal inside a cell of an attribute."""
        return cls(_cut(attribute, code), culprit=literal, edges=_edges(attribute, code))

    def at(self, place: object) -> CutCellError:
        """Return the same refusal with its place in a statement."""
        return CutCellError(f"{place}: {self}", culprit=place, edges=self.edges)


def _edges(attribute: Numeric | Dated, code: int) -> tuple[str, str | None, str | None]:
    """Return the first and the last value of a cell, and the first of the next, as literals of SQL."""
    is_last = code == attribute.declared - 1
    if isinstance(attribute, Timestamp):
        begins, ends = (datetime.fromordinal(at // DAY) + timedelta(seconds=at % DAY) for at in attribute.span(code))
        return f"TIMESTAMP '{begins}'", None, f"TIMESTAMP '{ends}'"
    if isinstance(attribute, Date):
        start, stop = attribute.span(code)
        first, last, after = (f"DATE '{date.fromordinal(day)}'" for day in (start, stop - 1, stop))
    elif isinstance(attribute, Integer):
        low, high = attribute.bounds(code)
        first, last, after = str(low), str(high), str(high + 1)
    else:
        first, end = (repr(float(each)).removesuffix(".0") for each in attribute.bounds(code))
        return (first, end, None) if attribute.is_closed(code) else (first, None, end)
    return first, last, None if is_last else after


def _cut(attribute: Numeric | Dated, code: int) -> str:
    cells = range(attribute.declared)
    near = " near it" if len(cells) > _EDGES_NAMED else ""
    if near:  # for example, the first of 26,000 hours is far from the literal
        cells = cells[max(0, code - _EDGES_NAMED // 8) :][: _EDGES_NAMED // 4]
    begins = attribute.beginning if isinstance(attribute, Real) else lambda cell: f"{attribute.bounds(cell)[0]}"
    edges = ", ".join(map(begins, cells))
    kind = "cells start" if isinstance(attribute, Integer | Date) else "cells, which hold their left end only, start"
    clamped = isinstance(attribute, Integer | Real) and attribute.unknown is Unknown.CLAMP
    beyond = f"; the last ends with {attribute.bounds(attribute.declared - 1)[1]}" if clamped else ""
    return (
        f"this cuts the cell {attribute.label(code)} of {attribute.name!r}: its {kind}{near} at {edges}{beyond}; "
        "compare at such an edge"
    )
