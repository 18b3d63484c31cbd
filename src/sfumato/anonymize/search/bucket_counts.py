"""Whether too many rows fail in a level vector, counted in buckets of a hash: fast, and never more than do fail.

Classes that share a bucket look like one larger class.  The criteria that a search prunes with hold of a class made of
two that hold, and, where rows may be suppressed, of one that holds and any other.  So where a bucket fails, a class in
it does, and a vector that suppresses too many rows by such a count does so indeed.
"""

from __future__ import annotations

import numpy as np

from sfumato.anonymize.criteria.classes import Classes
from sfumato.anonymize.criteria.criterion import KAnonymity
from sfumato.anonymize.microdata import Keys, group
from sfumato.anonymize.search.lattice import Lattice, Vector
from sfumato.domain.hierarchy.levels import Integers

BUCKETS = 8  # a class, so that few share one
MOST_BITS = 18  # of buckets: a larger table would not stay in the cache


class BucketHashes:
    """Random bits for every leaf at every level: the bucket of a class is the exclusive or of those of its cells."""

    def __init__(self, lattice: Lattice) -> None:
        self.lattice = lattice
        problem = lattice.problem
        sizes_alone = all(isinstance(each, KAnonymity) for each in problem.prunable)
        self.least = max(each.least_rows for each in problem.prunable) if sizes_alone else None  # in a class
        rng = np.random.default_rng(0)  # any numbers are right: they decide which classes share a bucket
        self.leaves: list[list[Integers]] = [
            [rng.integers(0, 1 << MOST_BITS, size=level.size)[level.cells] for level in hierarchy.levels]
            for hierarchy in problem.hierarchies
        ]


class BucketCounts:
    """Counts in vectors above that of some classes, from one that ``move`` takes further up.

    Args:
        hashes: of the lattice.
        vector: level vector of the classes.
        classes: exact ones.
    """

    def __init__(self, hashes: BucketHashes, vector: Vector, classes: Classes) -> None:
        self._hashes = hashes
        self._classes = classes
        self._rows = classes.counts.astype(np.float64)
        self._sizes = self._rows if classes.units is None else classes.sizes.astype(np.float64)
        self._bits = min((BUCKETS * len(classes)).bit_length(), MOST_BITS)
        self._levels = list(vector)
        codes = hashes.lattice.problem.data.codes.take(classes.members, axis=0)  # (classes, attributes)
        self._columns = list(codes.T)
        self._keys = np.zeros(len(classes), dtype=np.int64)
        for leaves, column, level in zip(hashes.leaves, self._columns, vector, strict=True):
            self._keys ^= leaves[level].take(column)

    def too_many(self, attribute: int, level: int) -> bool:
        """Whether too many rows fail where one attribute is raised to a level."""
        return self._too_many(self._raised(attribute, level))

    def move(self, attribute: int, level: int) -> None:
        """Raise one attribute, for all that is counted from now on."""
        self._keys = self._raised(attribute, level)
        self._levels[attribute] = level

    def _raised(self, attribute: int, level: int) -> Integers:
        leaves = self._hashes.leaves[attribute]
        changes = leaves[self._levels[attribute]] ^ leaves[level]
        raised: Integers = self._keys ^ changes.take(self._columns[attribute])
        return raised

    def _too_many(self, keys: Integers) -> bool:
        buckets = keys & ((1 << self._bits) - 1)
        lattice, least = self._hashes.lattice, self._hashes.least
        if least is None:
            return lattice.hopeless(self._classes.merge(group(Keys(buckets, 1 << self._bits))))
        rows = sizes = np.bincount(buckets, weights=self._rows)
        if self._sizes is not self._rows:  # a unit of several classes counts too often, so that too few seem to fail
            sizes = np.bincount(buckets, weights=self._sizes)
        failing = rows[sizes < least].sum()
        return float(failing) + lattice.problem.data.excluded > lattice.problem.allowed
