"""How well a table fits a domain: how many values of each attribute are declared, missing or unknown.

Exact and not private: for the owner of the table, who mends the domain with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sfumato.domain import Domain, Unknown
from sfumato.engine.exact import reveal
from sfumato.engine.port import Table


@dataclass(frozen=True)
class Fit:
    """Rows whose value of ``attribute`` is a declared one, missing, or neither (clamped, grouped or dropped)."""

    attribute: str
    declared: int
    missing: int
    unknown: int


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
