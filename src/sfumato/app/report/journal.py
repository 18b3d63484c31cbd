"""The budget journal as rows of a page."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from sfumato.app.report.pictures import Row
from sfumato.ledger import Entry
from sfumato.ledger.entry import Kind
from sfumato.vault.promise import cost


def journal_rows(entries: Iterable[Entry]) -> tuple[Row, ...]:
    """Releases in order with their cost, and what was spent so far: epsilon where all have one, otherwise rho."""
    released = [entry for entry in entries if entry.event.kind is Kind.RELEASE]
    charges = [entry.event.charge for entry in released if entry.event.charge is not None]
    pure = all(charge.epsilon is not None for charge in charges)
    rows: list[Row] = []
    spent = Fraction(0)
    for entry in released:
        charge = entry.event.charge
        if charge is not None:
            spent += charge.epsilon if pure and charge.epsilon is not None else charge.rho
        rows.append(
            {
                "entry": entry.number,
                "method": entry.method,
                "asked": entry.asked,
                "statement": entry.event.statement,
                "cost": cost(charge),
                "unit": "epsilon" if pure else "rho",
                "spent": float(spent),
            }
        )
    return tuple(rows)
