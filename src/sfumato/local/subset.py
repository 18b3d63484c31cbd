"""Subset selection: report a random subset of fixed size that tends to contain the true value."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from math import comb, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import SizeError
from sfumato.local.bounds import DENOMINATOR
from sfumato.local.counting import column_counts
from sfumato.local.designs import check
from sfumato.local.randomizer import LARGEST_TABLE, Codes, Counts, Layout, Reports
from sfumato.local.sampling import Sampler, below
from sfumato.privacy.entropy import Entropy

_BLOCK = 16  # positions of one block: its subsets are tabulated
_WORD = 64


@dataclass(frozen=True)
class Subset:
    """Subsets of ``size`` out of ``inputs`` values, as packed little-endian bits.

    Ye and Barg 2018; Wang et al. 2016: the least variance of all randomizers at every epsilon.
    """

    inputs: int
    size: int

    def __post_init__(self) -> None:
        check(0 < self.size < self.inputs, self)

    @property
    def outputs(self) -> int:
        """Number of reports that can occur."""
        return comb(self.inputs, self.size)

    @property
    def share(self) -> Fraction:
        """Share of all reports that support a given value."""
        return Fraction(self.size, self.inputs)

    @property
    def meeting(self) -> tuple[Fraction, Fraction]:
        """P(another value is supported), given that the true one is, and given that it is not."""
        return Fraction(self.size - 1, self.inputs - 1), Fraction(self.size, self.inputs - 1)

    @property
    def layout(self) -> Layout:
        """The form of one report."""
        return Layout(np.dtype(np.uint8), -(-self.inputs // 8))

    @property
    def tally_size(self) -> int:
        """Length of a tally."""
        return self.inputs

    def pick(self, codes: Codes, inside: NDArray[np.bool_], entropy: Entropy) -> Reports:
        """A uniform report on the wanted side of each value."""
        if self.inputs > _WORD:
            return self._pick_sequentially(codes, inside, entropy)
        others = self._others.draw(inside, entropy)
        position = codes.astype(np.uint64)
        low = others & ((np.uint64(1) << position) - np.uint64(1))
        # make room at the true value's position and fill it where it belongs to the subset
        word = ((others ^ low) << np.uint64(1)) | low | (inside.astype(np.uint64) << position)
        packed = word.astype("<u8").view(np.uint8).reshape(-1, 8)
        return packed[:, 0] if self.layout.width == 1 else packed[:, : self.layout.width]

    def possible(self, reports: Reports) -> bool:
        """Whether every report can occur."""
        packed = reports.reshape(-1, self.layout.width).astype(np.uint8, copy=False)
        word = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}.get(self.layout.width)
        sizes = np.bitwise_count(packed if word is None else np.ascontiguousarray(packed).view(word))
        if word is None:
            sizes = sizes.sum(axis=1, dtype=np.int64)
        spare = self.inputs % 8
        return bool(np.all(sizes == self.size)) and (spare == 0 or not np.any(packed[:, -1] >> np.uint8(spare)))

    def tally(self, reports: Reports) -> Counts:
        """Counts that add up over disjoint reports."""
        return column_counts(reports.reshape(-1, self.layout.width).astype(np.uint8, copy=False))[: self.inputs]

    def support(self, tally: Counts) -> Counts:
        """Number of reports that support each value."""
        return tally

    def incidence(self) -> NDArray[np.bool_]:
        """Which reports support which values, ``(inputs, outputs)``."""
        if self.outputs * self.inputs > LARGEST_TABLE:
            raise SizeError(f"{self.outputs} subsets are too many to enumerate")
        incidence = np.zeros((self.inputs, self.outputs), dtype=np.bool_)
        for output, members in enumerate(combinations(range(self.inputs), self.size)):
            incidence[list(members), output] = True
        return incidence

    def describe(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"kind": "subset", "inputs": self.inputs, "size": self.size}

    @cached_property
    def _others(self) -> _Subsets:
        """Subsets of the other values: of full size, or of one less beside the true value."""
        return _Subsets(self.inputs - 1, (self.size, self.size - 1))

    def _pick_sequentially(self, codes: Codes, inside: NDArray[np.bool_], entropy: Entropy) -> Reports:
        """Selection sampling (Fan, Muller, Rezucha 1962): position by position, all reports at once."""
        missing = self.size - inside.astype(np.int64)
        bits = np.zeros((codes.size, self.inputs), dtype=np.bool_)
        for position in range(self.inputs):
            true = codes == position
            others_left = (self.inputs - position - (codes > position)).astype(np.uint32)
            taken = below(entropy, others_left, codes.size) < missing
            taken &= ~true
            missing -= taken
            bits[:, position] = np.where(true, inside, taken)
        return np.packbits(bits, axis=1, bitorder="little")


class _Subsets:
    """Uniform subsets of ``count <= 64`` positions, of one of two sizes each, as words.

    First the sizes of the parts in blocks of 16, from their exact joint distribution; then, in every block, one
    of the tabulated subsets of that size.
    """

    def __init__(self, count: int, sizes: tuple[int, int]) -> None:
        lengths = [min(_BLOCK, count - start) for start in range(0, max(count, 1), _BLOCK)]
        splits = [_compositions(lengths, size) for size in sizes]
        self._rejected = max(map(len, splits))
        rows = []
        starts, limits = np.zeros((2, len(lengths), 2, self._rejected + 1), dtype=np.uint32)
        self._tables = []
        for block, length in enumerate(lengths):
            masks = np.arange(1 << length, dtype=np.uint32)
            order = np.argsort(np.bitwise_count(masks), kind="stable")
            self._tables.append(masks[order].astype(np.uint16))
            first = np.cumsum([0, *(comb(length, k) for k in range(length + 1))])
            for which, split in enumerate(splits):
                parts = [each[block] for each in split]
                starts[block, which, : len(split)] = first[parts]
                limits[block, which, : len(split)] = [comb(length, part) for part in parts]
        for split in splits:
            weights = [prod(map(comb, lengths, parts)) for parts in split]
            numerators = [DENOMINATOR // sum(weights) * weight for weight in weights]
            unused = [0] * (self._rejected - len(split))
            rows.append([*numerators, *unused, DENOMINATOR - sum(numerators)])
        self._composition = Sampler(rows)
        self._starts, self._limits = starts.reshape(len(lengths), -1), limits.reshape(len(lengths), -1)

    def draw(self, which: NDArray[np.bool_], entropy: Entropy) -> NDArray[np.uint64]:
        """One subset each, of the second size where ``which``."""
        rows = which.view(np.uint8)
        composition = self._composition.draw(rows, entropy).astype(np.intp)
        again = np.flatnonzero(composition == self._rejected)
        while again.size:
            composition[again] = self._composition.draw(rows[again], entropy)
            again = again[composition[again] == self._rejected]
        composition += rows * np.intp(self._rejected + 1)
        parts = np.zeros((which.size, _WORD // _BLOCK), dtype="<u2")
        for block, table in enumerate(self._tables):
            place = below(entropy, self._limits[block].take(composition), which.size)
            place += self._starts[block].take(composition)
            parts[:, block] = table.take(place)
        return parts.view("<u8").ravel().astype(np.uint64, copy=False)


def _compositions(lengths: list[int], size: int) -> list[tuple[int, ...]]:
    """All ways to split ``size`` over blocks of the given lengths."""
    if not lengths:
        return [()] if size == 0 else []
    return [
        (first, *rest)
        for first in range(min(lengths[0], size) + 1)
        for rest in _compositions(lengths[1:], size - first)
    ]
