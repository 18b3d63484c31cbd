"""What one person can change in a table: the unit for which every loss is stated."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.errors import DomainError


@dataclass(frozen=True)
class Unit:
    """One row, or all rows of one id up to a declared bound.

    Neighbouring tables differ by adding or removing one unit: one row when ``column`` is None,
    otherwise all rows that share a value of ``column``.  Engines keep at most ``rows`` rows a unit,
    chosen at random, and drop the rest before anything is counted.

    >>> Unit.row()
    Unit(column=None, rows=1)
    >>> Unit("patient", rows=3).rows
    3
    """

    column: str | None
    rows: int

    def __init__(self, column: str | None = None, rows: int = 1) -> None:
        if not isinstance(rows, int) or rows < 1:
            raise DomainError(f"a unit contributes at least one row, not {rows}", culprit=rows)
        if column is None and rows != 1:
            raise DomainError("a bound on rows needs the column that identifies a person", culprit=rows)
        object.__setattr__(self, "column", column)
        object.__setattr__(self, "rows", rows)

    @staticmethod
    def row() -> Unit:
        """The unit of a table with one row a person."""
        return Unit()

    def __str__(self) -> str:
        if self.column is None:
            return "adding or removing one row"
        return f"adding or removing all rows of one {self.column} (at most {self.rows})"
