"""What is nearest where nothing is feasible: the fewest rows that any recoding would have to suppress.

With criteria that are monotone under suppression the top suppresses least.  With others, such as entropy-diversity,
merging a class that fails into one that holds may make both fail, so a lower vector may do better.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from sfumato.anonymize.criteria import safe
from sfumato.anonymize.lattice import Lattice
from sfumato.anonymize.problem import Vector, sufficient_share

LARGEST_SEARCH = 1 << 28  # distinct tuples looked at, over all vectors: some seconds


@dataclass(frozen=True)
class Nearest:
    """The fewest suppressed rows found, None where no vector can be cured, and whether no vector suppresses fewer."""

    suppressed: int | None
    proven: bool

    def limit(self, rows: int) -> str:
        """The suppression limit in words; one that is named is enough when it is typed back."""
        if self.suppressed is None or self.suppressed >= rows:
            return "no limit below 1 would do" if self.proven else "no limit below 1 that would do was found"
        share = sufficient_share(self.suppressed, rows)
        return f"the nearest limit is {share}" if self.proven else f"a limit of {share} would do, perhaps a lower one"


def nearest(lattice: Lattice, *, height: int | None = None, largest: int = LARGEST_SEARCH) -> Nearest:
    """Look for the vector that suppresses fewest rows, from the top down.

    Below a vector nothing suppresses fewer rows than fail there by the criteria that are monotone under suppression.
    The vector of least such bound is opened next, until no bound is below the best found.

    Args:
        lattice: the problem; what it allows to suppress does not matter.
        height: look only at vectors whose levels sum to this.
        largest: stop after so many distinct tuples were looked at, as if each vector had those of the bottom.
    """
    sound = tuple(each for each in lattice.problem.criteria if each.monotone_with_suppression)
    left = max(largest // max(len(lattice.problem.data.counts), 1), 1)
    best: int | None = None
    heap: list[tuple[int, Vector]] = [(0, lattice.top)]
    seen = {lattice.top}
    while heap and (best is None or heap[0][0] < best):
        if not left:
            return Nearest(best, proven=False)
        left -= 1
        _, vector = heapq.heappop(heap)
        classes, kept = lattice.kept(vector)
        excluded = lattice.problem.data.excluded
        bound = int(classes.counts[~safe(sound, classes)].sum()) + excluded
        if height in (None, sum(vector)) and classes.counts[~kept].all():
            suppressed = int(classes.counts[~kept].sum()) + excluded
            best = suppressed if best is None else min(best, suppressed)
        if height is None or sum(vector) > height:
            for attribute, level in enumerate(vector):
                below = (*vector[:attribute], level - 1, *vector[attribute + 1 :])
                if level and below not in seen:
                    seen.add(below)
                    heapq.heappush(heap, (bound, below))
    return Nearest(best, proven=True)
