"""What a caller asks of an anonymisation: how each quasi-identifier is treated, and all in the journal's words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from sfumato.anonymize.clustering.space import HierarchyCells, Intervals, Scale
from sfumato.anonymize.criteria.criterion import Criterion
from sfumato.anonymize.hierarchy.builders import draft
from sfumato.anonymize.hierarchy.levels import Hierarchy
from sfumato.arguments import expect, expect_all, whole
from sfumato.domain import Attribute, Domain, Integer, Real, Unit
from sfumato.errors import InputError
from sfumato.vault.interface import Request


class Missing(StrEnum):
    """What becomes of rows whose quasi-identifier is missing or unknown, where the domain has a cell for those."""

    CATEGORY = "category"  # a category of its own below the top
    SUPPRESS = "suppress"  # the row is suppressed, and counts as such


@dataclass(frozen=True)
class RowLimit:
    """How many rows may be suppressed, where a share is inconvenient.  The journal holds the share that it is."""

    rows: int

    def __post_init__(self) -> None:
        if whole(self.rows, "rows to suppress are a whole number") < 0:
            raise InputError("rows to suppress are 0 or more", culprit=self.rows)


@dataclass(frozen=True, kw_only=True)
class Quasi:
    """A quasi-identifier.

    ``hierarchy`` is what it is generalised by; without one, full-domain methods draft one from the declared
    domain, and local methods use free intervals in the order of the declared values.  ``weight`` is its
    importance in the loss.
    """

    name: str
    hierarchy: Hierarchy | None = None
    weight: float = 1.0
    missing: Missing = Missing.CATEGORY

    def __post_init__(self) -> None:
        expect(self.name, str, "a quasi-identifier is called by the name of its attribute")
        expect(self.hierarchy, Hierarchy | None, f"{self.name!r} is generalised by a Hierarchy")
        expect(self.missing, Missing, f"missing values of {self.name!r} are Missing.CATEGORY or Missing.SUPPRESS")
        expect(self.weight, int | float, f"the weight of {self.name!r} is a number")
        if not 0 <= self.weight < math.inf:
            raise InputError(f"the weight of {self.name!r} must be finite and not negative", culprit=self.weight)

    def aligned(self, attribute: Attribute) -> Hierarchy:
        """The hierarchy over the codes of the domain.

        Raises:
            DomainError: it misses a declared value.
        """
        return (self.hierarchy or draft(attribute)).align(attribute.labels())

    def scale(self, attribute: Attribute) -> Scale:
        """Hierarchy cells, or free intervals."""
        if self.hierarchy is not None:
            return HierarchyCells(self.hierarchy.align(attribute.labels()))
        if isinstance(attribute, Integer | Real):
            positions = np.array([float(attribute.bounds(code)[0]) for code in range(attribute.declared)])
        else:
            positions = np.arange(attribute.declared, dtype=np.float64)
        return Intervals(attribute.labels(), positions, float(positions[-1] - positions[0]))


def read_quasi(quasi: Sequence[str | Quasi], domain: Domain) -> tuple[Quasi, ...]:
    """Quasi-identifiers as given, by name or with details.

    Raises:
        InputError: none, one twice, or none with a weight.
        DomainError: one that the domain does not have.
    """
    expect_all(quasi, str | Quasi, "quasi-identifiers are a list of names or Quasi(...)")
    found = tuple(Quasi(name=given) if isinstance(given, str) else given for given in quasi)
    names = [each.name for each in found]
    if not names:
        raise InputError("name at least one quasi-identifier", culprit=quasi)
    if len(set(names)) != len(names):
        raise InputError("a quasi-identifier is named twice", culprit=names)
    if not any(each.weight for each in found):
        raise InputError("at least one quasi-identifier needs a weight above zero", culprit=names)
    for name in names:
        domain.index(name)
    return found


def suppressed_codes(quasi: Quasi, attribute: Attribute) -> tuple[int, ...]:
    """Codes whose rows are suppressed from the start."""
    if quasi.missing is Missing.CATEGORY:
        return ()
    return tuple(range(attribute.declared, attribute.size))


@dataclass(frozen=True, eq=False)
class AnonymizationRequest:
    """What a caller asks for, in the words of the journal."""

    method: str
    quasi: tuple[Quasi, ...]
    criteria: tuple[Criterion, ...]
    suppression: str
    options: Mapping[str, Any]

    def question(self, keep: Sequence[str]) -> Request:
        """The journal's question, for rows that are published with the columns of ``keep``."""
        described = [
            {
                "name": each.name,
                "weight": each.weight,
                "missing": each.missing.value,
                "hierarchy": None if each.hierarchy is None else each.hierarchy.describe(),
            }
            for each in self.quasi
        ]
        return Request(
            "anonymize",
            self.method,
            {
                "quasi": described,
                "criteria": [criterion.spell() for criterion in self.criteria],
                "suppression": self.suppression,
                "keep": sorted(keep),
                **self.options,
            },
            f"rows by {', '.join(each.name for each in self.quasi)}: {' and '.join(map(str, self.criteria))}",
            raw=tuple(sorted(keep)) or None,
        )

    def statement(self, unit: Unit) -> str:
        """What is promised instead of differential privacy."""
        names = ", ".join(each.name for each in self.quasi)
        attackers = "; ".join(dict.fromkeys(criterion.attacker for criterion in self.criteria))
        people = "" if unit.column is None else f", where one {unit.column} may have up to {unit.rows} rows"
        # only full-domain searches are held to a limit; how many rows are suppressed is said with the rows
        limited = self.method in ("optimal", "samarati")
        limit = f"; at most a share {self.suppression} of the rows is suppressed" if limited else ""
        return (
            f"{' and '.join(map(str, self.criteria))} over the quasi-identifiers {names}, counted in rows{people};"
            f" attacker: {attackers}{limit}"
        )
