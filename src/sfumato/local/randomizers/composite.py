"""Several randomizers for one person: one of them is drawn at random, or all are used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError, SizeError
from sfumato.local.randomizers.integer_table import below
from sfumato.local.randomizers.randomizer import (
    InputCodes,
    Layout,
    Randomizer,
    ReportArray,
    Tally,
    check_enumerable,
    derive,
    from_bytes,
    to_bytes,
)
from sfumato.privacy.entropy import Entropy

MOST_PARTS = 256
"""Largest number of parts, because a report has the number of its part as one byte."""

_CODES_AT_ONCE = 1 << 21
_WORDS = (1, 2, 4, 8)  # sizes of a word in bytes


@dataclass(frozen=True)
class Composite(Randomizer):
    """A combination of randomizers with one column of codes each.  Its tally has, per part, a number of reports and a
    tally.
    """

    parts: tuple[Randomizer, ...]

    def __post_init__(self) -> None:
        """Refuse nested composites, because the proofs here are about one column of codes per part.

        Raises:
            InputError: there is no part, or a part is a composite.
        """
        if not self.parts or any(isinstance(part, Composite) for part in self.parts):
            raise InputError("a randomizer is made of at least one part, and no part is made of parts", culprit=self)
        derive(self, inputs=prod(part.inputs for part in self.parts), layout=Layout(np.dtype(np.uint8), self._width()))
        derive(self, tally_size=sum(1 + part.tally_size for part in self.parts))

    def _width(self) -> int:
        """Return the bytes of a report: the number of the part, then the part's bytes, padded to the longest part.

        Raises:
            InputError: there are more parts than one byte can number.
        """
        if len(self.parts) > MOST_PARTS:
            raise InputError(f"one of at most {MOST_PARTS} parts is reported, not of {len(self.parts)}", culprit=self)
        return 1 + max(part.layout.size for part in self.parts)

    @property
    def chunk_size(self) -> int:
        """The reports to draw at a time: the sum over the parts, limited by the memory for all codes."""
        size = min(sum(part.chunk_size for part in self.parts), _CODES_AT_ONCE // len(self.parts))
        return max(super().chunk_size, size)

    def address(self, chosen: InputCodes, codes: InputCodes, entropy: Entropy) -> ReportArray:
        """Draw reports of the given parts.  ``chosen`` is public, so it must not depend on protected values."""
        longest = self.layout.width - 1
        if longest in _WORDS:
            return self._address_words(chosen, codes, entropy)
        reports = np.zeros((len(codes), self.layout.width), dtype=np.uint8)
        records = reports.view(np.dtype((np.void, self.layout.width)))[
            :, 0
        ]  # copied report by report, which is faster than byte by byte
        for index, part in enumerate(self.parts):
            mine = np.flatnonzero(chosen == index)
            drawn = np.zeros((len(mine), self.layout.width), dtype=np.uint8)
            drawn[:, 0] = index
            body = to_bytes(part.draw(codes[:, index].take(mine), entropy))
            for place in range(part.layout.size):
                drawn[:, 1 + place] = body[:, place]
            records[mine] = drawn.view(records.dtype)[:, 0]
        return reports

    def _address_words(self, chosen: InputCodes, codes: InputCodes, entropy: Entropy) -> ReportArray:
        """Draw reports of the given parts if the longest part fills a word: each report is moved as one number."""
        word = np.dtype(f"<u{self.layout.width - 1}")
        reports = np.empty(len(codes), dtype=[("part", np.uint8), ("body", word)])
        bodies = np.empty(len(codes), dtype=word)
        for index, part in enumerate(self.parts):
            mine = np.flatnonzero(chosen == index)
            drawn = part.draw(codes[:, index].take(mine), entropy)
            bodies[mine] = drawn.astype(word, copy=False) if drawn.ndim == 1 else _as_words(drawn, word)
        reports["part"] = chosen
        reports["body"] = bodies
        return reports.view(np.uint8).reshape(len(codes), self.layout.width)

    def valid_reports(self, reports: ReportArray) -> bool:
        """Return whether every report can occur."""
        if len(reports) and int(reports[:, 0].max()) >= len(self.parts):
            return False
        return all(
            not np.any(spare) and part.valid_reports(mine)
            for part, (mine, spare) in zip(self.parts, self._bodies(reports), strict=True)
        )

    def tally(self, reports: ReportArray) -> Tally:
        """Count reports; counts of disjoint reports add up."""
        pieces = [np.concatenate([[len(mine)], part.tally(mine)]) for part, mine in self.select(reports)]
        return np.concatenate(pieces)

    def select(self, reports: ReportArray) -> list[tuple[Randomizer, ReportArray]]:
        """Return the reports of each part, in the part's own layout."""
        return [(part, mine) for part, (mine, _) in zip(self.parts, self._bodies(reports), strict=True)]

    def _bodies(self, reports: ReportArray) -> Iterator[tuple[ReportArray, NDArray[np.unsignedinteger[Any]]]]:
        """Yield the reports of each part in its own layout, and the unused bytes after them."""
        longest = self.layout.width - 1
        word = np.dtype(f"<u{longest}") if longest in _WORDS else None
        fields = [("part", np.uint8), ("body", word or np.dtype((np.void, longest)))]
        records = np.ascontiguousarray(reports).view(fields)[:, 0]
        chosen, held = np.ascontiguousarray(records["part"]), np.ascontiguousarray(records["body"])
        for index, part in enumerate(self.parts):
            size = part.layout.size
            mine = held.take(np.flatnonzero(chosen == index))
            if word is None:
                body = mine.view(np.uint8).reshape(len(mine), longest)
                yield from_bytes(body[:, :size], part.layout), body[:, size:]
                continue
            spare = mine >> word.type(8 * size) if size < longest else mine[:0]
            if size in _WORDS:
                mine = mine.astype(f"<u{size}", copy=False)
            yield from_bytes(mine.view(np.uint8).reshape(len(mine), mine.itemsize)[:, :size], part.layout), spare

    def split(self, tally: Tally) -> list[tuple[int, Tally]]:
        """Return the number of reports and tally of each part."""
        ends = np.cumsum([1 + part.tally_size for part in self.parts])
        return [(int(piece[0]), piece[1:]) for piece in np.split(tally, ends[:-1])]

    def fits(self, tally: Tally, reports: int) -> bool:
        """Return whether the reports counted in a tally sum to ``reports``."""
        return sum(count for count, _ in self.split(tally)) == reports


def _as_words(packed: ReportArray, word: np.dtype[np.unsignedinteger[Any]]) -> ReportArray:
    """Read rows of little-endian bytes as words, padded to the size of a word."""
    if packed.shape[1] < word.itemsize:
        filled = np.zeros((len(packed), word.itemsize), dtype=np.uint8)
        for place in range(packed.shape[1]):
            filled[:, place] = packed[:, place]
        packed = filled
    return np.ascontiguousarray(packed).view(word)[:, 0]


@dataclass(frozen=True)
class Sampled(Composite):
    """A composite that reports one part, drawn uniformly and independently of the values, with its full epsilon.

    Codes have one column per part.
    """

    kind: ClassVar[str] = "sampled"

    def ratio(self) -> Fraction:
        """Return the exact largest likelihood ratio of two inputs."""
        return max(part.ratio() for part in self.parts)

    def rows(self) -> list[list[Fraction]]:
        """Return the whole probability table."""
        tables = [part.rows() for part in self.parts]
        check_enumerable(self.inputs, sum(len(table[0]) for table in tables))
        share = Fraction(1, len(tables))
        return [[share * chance for row in rows for chance in row] for rows in product(*tables)]

    def draw(self, codes: InputCodes, entropy: Entropy) -> ReportArray:
        """Randomize codes to reports."""
        return self.address(below(entropy, len(self.parts), len(codes)).astype(np.uint8), codes, entropy)


@dataclass(frozen=True)
class Labelled(Composite):
    """A composite that reports the part named by a public label.  The label is not protected.

    Codes are ``(n, 2)``: the label and the part's code.
    """

    kind: ClassVar[str] = "labelled"

    def __post_init__(self) -> None:
        super().__post_init__()
        derive(self, inputs=sum(part.inputs for part in self.parts))

    def ratio(self) -> Fraction:
        """Return the largest ratio between inputs *of the same label*."""
        return max(part.ratio() for part in self.parts)

    def rows(self) -> list[list[Fraction]]:
        """Refuse: reports of one label are impossible under another, so the parts are enumerated one by one."""
        raise SizeError("the labels of these reports are public: enumerate the table of each label")

    def draw(self, codes: InputCodes, entropy: Entropy) -> ReportArray:
        """Randomize codes to reports."""
        own = np.repeat(codes[:, 1:], len(self.parts), axis=1)
        return self.address(codes[:, 0], own, entropy)


@dataclass(frozen=True)
class Joint(Composite):
    """A composite that reports all parts.  Their epsilons add up.

    Codes have one column per part; a report is the bytes of all parts in order.
    """

    kind: ClassVar[str] = "joint"

    @property
    def chunk_size(self) -> int:
        """The reports to draw at a time: the minimum over the parts, because each draws all."""
        return min(part.chunk_size for part in self.parts)

    def _width(self) -> int:
        return sum(part.layout.size for part in self.parts)

    def ratio(self) -> Fraction:
        """Return the exact largest likelihood ratio of two inputs."""
        return prod((part.ratio() for part in self.parts), start=Fraction(1))

    def rows(self) -> list[list[Fraction]]:
        """Return the whole probability table."""
        tables = [part.rows() for part in self.parts]
        check_enumerable(self.inputs, prod(len(table[0]) for table in tables))
        return [[prod(chances, start=Fraction(1)) for chances in product(*rows)] for rows in product(*tables)]

    def draw(self, codes: InputCodes, entropy: Entropy) -> ReportArray:
        """Randomize codes to reports."""
        drawn = [to_bytes(part.draw(codes[:, index], entropy)) for index, part in enumerate(self.parts)]
        reports = np.concatenate(drawn, axis=1)
        return reports[:, 0] if self.layout.width == 1 else reports

    def valid_reports(self, reports: ReportArray) -> bool:
        """Return whether every report can occur."""
        return all(part.valid_reports(mine) for part, mine in self.select(reports))

    def select(self, reports: ReportArray) -> list[tuple[Randomizer, ReportArray]]:
        """Return the reports of each part, in the part's own layout."""
        ends = np.cumsum([part.layout.size for part in self.parts])
        pieces = np.split(reports.reshape(-1, self.layout.width).astype(np.uint8, copy=False), ends[:-1], axis=1)
        return [(part, from_bytes(piece, part.layout)) for part, piece in zip(self.parts, pieces, strict=True)]

    def fits(self, tally: Tally, reports: int) -> bool:
        """Return whether every part of a tally counts ``reports`` people."""
        return all(count == reports for count, _ in self.split(tally))
