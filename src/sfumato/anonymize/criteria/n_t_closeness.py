"""The criterion (n, t)-closeness: only small classes have to be close to the table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from sfumato.anonymize.criteria.classes import Classes
from sfumato.anonymize.criteria.closeness import GroundDistance, TCloseness
from sfumato.anonymize.criteria.criterion import Criterion, Mask, at_least
from sfumato.anonymize.criteria.tally import ClassTally


@dataclass(frozen=True)
class NTCloseness(Criterion):
    """A class has n rows (or units), or is within distance t of a table that has n (Li, Li, Venkatasubramanian 2010).

    By the definition, a class is close to some natural superset of at least n rows.  This implementation tries two
    sets: the class, at distance 0, and the table.  So each class that passes satisfies the definition.  A class that is
    close only to a set between the two fails here.

    The criterion is monotone.  The union of a class of n rows with another class has n rows.  The union of two classes
    within distance t of the table is within distance t, because the distance is convex.
    """

    n: int
    t: float
    sensitive: str = field()
    distance: GroundDistance

    name: ClassVar[str] = "n-t-closeness"
    attacker: ClassVar[str] = "knows how values are distributed in any n people, and learns how a smaller class differs"

    def _check_values(self) -> None:
        at_least("n", self.n, 1)
        self._closeness()

    def _closeness(self) -> TCloseness:
        return TCloseness(self.t, self.sensitive, self.distance, count=self.count)

    def _safe_classes(self, classes: Classes) -> Mask:
        large = np.asarray(classes.sizes >= self.n)
        return large | self._closeness().safe_classes(classes) if classes.everybody(self.sensitive) >= self.n else large

    def _is_safe(self, tally: ClassTally) -> bool:
        if tally.size >= self.n:
            return True
        return tally.table[self.sensitive].total >= self.n and self._closeness().is_safe(tally)

    def __str__(self) -> str:
        return f"({self.n}, {self.t:g})-closeness of {self.sensitive} ({self.distance} distance)"
