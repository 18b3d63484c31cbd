"""How one quasi-identifier is treated: its hierarchy or scale, its weight, its missing values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from sfumato.anonymize.builders import draft
from sfumato.anonymize.hierarchy import Hierarchy
from sfumato.anonymize.space import HierarchyCells, Intervals, Scale
from sfumato.arguments import expect, expect_all
from sfumato.domain import Attribute, Domain, Integer, Real
from sfumato.errors import InputError


class Missing(StrEnum):
    """What becomes of rows whose quasi-identifier is missing or unknown, where the domain has a cell for those."""

    CATEGORY = "category"  # a category of its own below the top
    SUPPRESS = "suppress"  # the row is suppressed, and counts as such


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


def read(quasi: Sequence[str | Quasi], domain: Domain) -> tuple[Quasi, ...]:
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
