"""How well a table fits a domain: how many values of each attribute are declared, missing or unknown.

Exact and not private: for the owner of the table, who mends the domain with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sfumato.domain import Domain, Unknown
from sfumato.engine.exact import reveal
from sfumato.engine.port import Table

_ALL = 1 << 40  # more rows than any unit has


@dataclass(frozen=True)
class Fit:
    """Rows whose value of ``attribute`` is a declared one, missing, or neither (clamped, grouped or dropped)."""

    attribute: str
    declared: int
    missing: int
    unknown: int


@dataclass(frozen=True)
class Truncation:
    """What the bound on rows of a unit leaves out of a table: ``dropped`` of its ``rows``, of ``units`` of them."""

    rows: int
    dropped: int
    units: int


def truncation(table: Table, domain: Domain) -> Truncation | None:
    """What the bound of the domain's unit leaves out, exactly; None where every row is a unit.

    Rows that the domain drops for their values are no part of it.

    Raises:
        TableError: the table has no such columns.
    """
    if domain.unit.column is None:
        return None
    encoded = table.encode(domain)
    kept, dropped, units = (
        int(reveal(exact)[0]) for exact in (encoded.marginals([()])[0], encoded.dropped(_ALL), encoded.dropped(1))
    )
    return Truncation(kept + dropped, dropped, units)


def fit(table: Table, domain: Domain) -> tuple[Fit, ...]:
    """Count the values of every attribute, over all rows, before the domain drops or clamps any.

    Raises:
        TableError: the table has no such columns.
    """
    loose = Domain(
        tuple(replace(attribute, nullable=True, unknown=Unknown.CATEGORY) for attribute in domain), unit=domain.unit
    )
    sealed = table.encode(loose).marginals([(name,) for name in domain.names])
    found = []
    for attribute, exact in zip(domain, sealed, strict=True):
        counts = reveal(exact)
        declared, missing, unknown = counts[: attribute.declared].sum(), counts[attribute.declared], counts[-1]
        found.append(Fit(attribute.name, int(declared), int(missing), int(unknown)))
    return tuple(found)
