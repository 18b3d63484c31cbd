"""Which class each row goes to, from its codes: look-ups in arrays, batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sfumato.engine.port import Recode
from sfumato.privacy.entropy import OsEntropy

Integers = NDArray[np.int64]
Codes = NDArray[np.unsignedinteger]

_KEY_BITS = 62
_DENSE = 1 << 22  # a table of all keys is used up to this many: beyond, it misses the caches more than a hash does


class Tuples:
    """A list of distinct code tuples; finds the place of others in it.

    Attributes are packed into one 64-bit key; where that is too narrow, what is packed so far is replaced by its
    place among the prefixes that the list has.
    """

    def __init__(self, listed: Codes, levels: Sequence[Codes]) -> None:
        """List tuples.

        Args:
            listed: the tuples, shape ``(tuples, attributes)``.
            levels: for each attribute the coarser code of each of its codes; ``listed`` is in coarser codes.
        """
        self._steps: list[tuple[list[Integers], _Places]] = []
        keys, weighted, bound = np.zeros(len(listed), dtype=np.int64), [np.zeros(1, dtype=np.int64)], 1
        for level, column in zip(levels, listed.T, strict=True):
            size = max(int(level.max(initial=0)), int(column.max(initial=0))) + 1
            if (bound * size).bit_length() > _KEY_BITS:
                known, keys = np.unique(keys, return_inverse=True)
                self._steps.append((weighted, _Places(known, bound)))
                weighted, bound = [np.arange(len(known), dtype=np.int64)], len(known)
            keys = keys * size + column
            weighted = [*(table * size for table in weighted), level.astype(np.int64)]
            bound *= size
        self._steps.append((weighted, _Places(keys, bound)))

    def places(self, columns: Sequence[NDArray[np.integer]]) -> Integers:
        """Place of each tuple of codes in the list, -1 where it is not there; one array of codes an attribute."""
        rest = iter(columns)
        found = np.zeros(len(columns[0]) if columns else 0, dtype=np.int64)
        missing = np.zeros(len(found), dtype=np.bool_)
        for (first, *weighted), places in self._steps:
            keys = first[found]
            for table in weighted:
                keys += table[next(rest)]
            found = places.of(keys)
            missing |= found < 0
        found[missing] = -1
        return found


class _Places:
    """The place of each of some distinct keys."""

    def __init__(self, keys: Integers, bound: int) -> None:
        self._table: Integers | None = None
        if bound <= max(_DENSE, 4 * len(keys)):
            self._table = np.full(bound, -1, dtype=np.int64)
            self._table[keys] = np.arange(len(keys))
        self._keys = pa.array(keys)

    def of(self, keys: Integers) -> Integers:
        if self._table is not None:
            return self._table[keys]
        found: Integers = pc.fill_null(pc.index_in(pa.array(keys), self._keys), -1).to_numpy().astype(np.int64)
        return found


class Dealing:
    """Deals rows to the classes of a ``Recode``.

    Where rows of one tuple go to several classes, the order in which they take turns is drawn once, at random;
    so it does not matter in which order rows come, as long as the order in which they leave is drawn again.
    """

    def __init__(self, recode: Recode) -> None:
        self._suppressed = -1 if recode.suppressed is None else len(recode.classes)
        self._decks: _Decks | None = None
        listed = recode.classes
        if recode.rows is not None:
            listed, tuples = np.unique(recode.classes, axis=0, return_inverse=True)
            self._decks = _Decks(tuples.reshape(-1), recode.rows)
        self._tuples = Tuples(listed, recode.levels)

    def classes(self, columns: Sequence[NDArray[Any]]) -> Integers:
        """Number of the class of each row, shape ``(rows,)``.

        A row in no class has number -1, or one more than the last class where such rows are published.  Each call
        goes on where the last one ended.
        """
        found = self._tuples.places(columns)
        if self._decks is not None:
            found = self._decks.next(found)
        found[found < 0] = self._suppressed
        return found


class _Decks:
    """For each tuple the classes that its rows take in turn, shuffled."""

    def __init__(self, tuples: Integers, rows: Integers) -> None:
        cards = np.repeat(np.arange(len(rows)), rows)
        owners = tuples[cards]
        order = np.lexsort((OsEntropy().words(len(cards)), owners))
        self._cards = cards[order]
        self._sizes = np.bincount(owners, minlength=int(tuples.max(initial=-1)) + 1)
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._taken = np.zeros(len(self._sizes), dtype=np.int64)

    def next(self, tuples: Integers) -> Integers:
        """The next class of each row's tuple, -1 where there is no tuple (-1) or its classes are full."""
        order = np.argsort(tuples, kind="stable")
        order = order[np.searchsorted(tuples[order], 0) :]
        owners = tuples[order]
        seen = np.bincount(owners, minlength=len(self._taken))
        turns = self._taken[owners] + np.arange(len(owners)) - (np.cumsum(seen) - seen)[owners]
        self._taken += seen
        found = np.full(len(tuples), -1, dtype=np.int64)
        full = turns >= self._sizes[owners]
        found[order[~full]] = self._cards[self._starts[owners[~full]] + turns[~full]]
        return found
