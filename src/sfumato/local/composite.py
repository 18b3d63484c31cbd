"""Several randomizers for one person: one of them drawn at random, or all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

import numpy as np

from sfumato.errors import InputError, SizeError
from sfumato.local.randomizer import (
    LARGEST_TABLE,
    Codes,
    Counts,
    Layout,
    Randomizer,
    Reports,
    from_bytes,
    to_bytes,
)
from sfumato.local.sampling import below
from sfumato.privacy.entropy import Entropy

MOST_PARTS = 256
"""The number of a part travels as one byte."""


@dataclass(frozen=True)
class Sampled:
    """One part, drawn uniformly whatever the values, is reported with its whole epsilon.

    Codes have one column a part.  A report is the number of the part, then its bytes, padded with zeros to the
    longest part.  A tally is, part by part, the number of its reports and its tally.

    Raises:
        InputError: more parts than one byte can number.
    """

    parts: tuple[Randomizer, ...]

    def __post_init__(self) -> None:
        _check(self.parts, self)
        if len(self.parts) > MOST_PARTS:
            raise InputError(f"one of at most {MOST_PARTS} parts is reported, not of {len(self.parts)}", culprit=self)

    @property
    def inputs(self) -> int:
        """Number of input codes."""
        return prod(part.inputs for part in self.parts)

    @property
    def layout(self) -> Layout:
        """The form of one report."""
        return Layout(np.dtype(np.uint8), 1 + max(size_of(part) for part in self.parts))

    @property
    def tally_size(self) -> int:
        """Length of a tally."""
        return sum(1 + part.tally_size for part in self.parts)

    def ratio(self) -> Fraction:
        """The exact largest likelihood ratio of two inputs."""
        return max(part.ratio() for part in self.parts)

    def rows(self) -> list[list[Fraction]]:
        """The whole probability table."""
        tables = [part.rows() for part in self.parts]
        _enumerable(self.inputs, sum(len(table[0]) for table in tables))
        share = Fraction(1, len(tables))
        return [[share * chance for row in rows for chance in row] for rows in product(*tables)]

    def draw(self, codes: Codes, entropy: Entropy) -> Reports:
        """Randomise codes to reports."""
        return self.address(below(entropy, len(self.parts), len(codes)), codes, entropy)

    def address(self, chosen: Codes, codes: Codes, entropy: Entropy) -> Reports:
        """Reports of given parts; ``chosen`` travels in the open, so it must not depend on what is protected."""
        reports = np.zeros((len(codes), self.layout.width), dtype=np.uint8)
        reports[:, 0] = chosen
        for index, part in enumerate(self.parts):
            mine = np.flatnonzero(chosen == index)
            reports[mine, 1 : 1 + size_of(part)] = to_bytes(part.draw(codes[mine, index], entropy))
        return reports

    def possible(self, reports: Reports) -> bool:
        """Whether every report can occur."""
        if len(reports) and int(reports[:, 0].max()) >= len(self.parts):
            return False
        return all(
            part.possible(mine) and not np.any(reports[reports[:, 0] == index, 1 + size_of(part) :])
            for index, (part, mine) in enumerate(self.select(reports))
        )

    def tally(self, reports: Reports) -> Counts:
        """Counts that add up over disjoint reports."""
        pieces = [np.concatenate([[len(mine)], part.tally(mine)]) for part, mine in self.select(reports)]
        return np.concatenate(pieces)

    def select(self, reports: Reports) -> list[tuple[Randomizer, Reports]]:
        """The reports of each part, in the part's own layout."""
        return [
            (part, from_bytes(reports[reports[:, 0] == index, 1 : 1 + size_of(part)], part.layout))
            for index, part in enumerate(self.parts)
        ]

    def split(self, tally: Counts) -> list[tuple[int, Counts]]:
        """Number of reports and tally of each part."""
        return _split(self.parts, tally)

    def describe(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"kind": "sampled", "parts": [part.describe() for part in self.parts]}


@dataclass(frozen=True)
class Labelled:
    """One part, named by a public label, is reported: nothing protects the label.

    Codes are ``(n, 2)``: the label and the part's code.  Reports and tallies are those of :class:`Sampled`.
    """

    parts: tuple[Randomizer, ...]

    def __post_init__(self) -> None:
        _check(self.parts, self)

    @property
    def inputs(self) -> int:
        """Number of input codes."""
        return sum(part.inputs for part in self.parts)

    @property
    def layout(self) -> Layout:
        """The form of one report."""
        return self._sampled.layout

    @property
    def tally_size(self) -> int:
        """Length of a tally."""
        return self._sampled.tally_size

    def ratio(self) -> Fraction:
        """The largest ratio between inputs *of the same label*."""
        return self._sampled.ratio()

    def rows(self) -> list[list[Fraction]]:
        """Refused: reports of one label are impossible under another, so the parts are enumerated one by one."""
        raise SizeError("the labels of these reports are public: enumerate the table of each label")

    def draw(self, codes: Codes, entropy: Entropy) -> Reports:
        """Randomise codes to reports."""
        own = np.repeat(codes[:, 1:], len(self.parts), axis=1)
        return self._sampled.address(codes[:, 0], own, entropy)

    def possible(self, reports: Reports) -> bool:
        """Whether every report can occur."""
        return self._sampled.possible(reports)

    def tally(self, reports: Reports) -> Counts:
        """Counts that add up over disjoint reports."""
        return self._sampled.tally(reports)

    def split(self, tally: Counts) -> list[tuple[int, Counts]]:
        """Number of reports and tally of each part."""
        return self._sampled.split(tally)

    def describe(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"kind": "labelled", "parts": [part.describe() for part in self.parts]}

    @property
    def _sampled(self) -> Sampled:
        return Sampled(self.parts)


@dataclass(frozen=True)
class Joint:
    """All parts are reported, and their epsilons add up.

    Codes have one column a part; a report is the bytes of all parts in order; a tally is as in :class:`Sampled`.
    """

    parts: tuple[Randomizer, ...]

    def __post_init__(self) -> None:
        _check(self.parts, self)

    @property
    def inputs(self) -> int:
        """Number of input codes."""
        return prod(part.inputs for part in self.parts)

    @property
    def layout(self) -> Layout:
        """The form of one report."""
        return Layout(np.dtype(np.uint8), sum(size_of(part) for part in self.parts))

    @property
    def tally_size(self) -> int:
        """Length of a tally."""
        return sum(1 + part.tally_size for part in self.parts)

    def ratio(self) -> Fraction:
        """The exact largest likelihood ratio of two inputs."""
        return prod((part.ratio() for part in self.parts), start=Fraction(1))

    def rows(self) -> list[list[Fraction]]:
        """The whole probability table."""
        tables = [part.rows() for part in self.parts]
        _enumerable(self.inputs, prod(len(table[0]) for table in tables))
        return [[prod(chances, start=Fraction(1)) for chances in product(*rows)] for rows in product(*tables)]

    def draw(self, codes: Codes, entropy: Entropy) -> Reports:
        """Randomise codes to reports."""
        drawn = [to_bytes(part.draw(codes[:, index], entropy)) for index, part in enumerate(self.parts)]
        reports = np.concatenate(drawn, axis=1)
        return reports[:, 0] if self.layout.width == 1 else reports

    def possible(self, reports: Reports) -> bool:
        """Whether every report can occur."""
        return all(part.possible(mine) for part, mine in self.select(reports))

    def tally(self, reports: Reports) -> Counts:
        """Counts that add up over disjoint reports."""
        pieces = [np.concatenate([[len(mine)], part.tally(mine)]) for part, mine in self.select(reports)]
        return np.concatenate(pieces)

    def select(self, reports: Reports) -> list[tuple[Randomizer, Reports]]:
        """The reports of each part, in the part's own layout."""
        ends = np.cumsum([size_of(part) for part in self.parts])
        pieces = np.split(reports.reshape(len(reports), -1).astype(np.uint8, copy=False), ends[:-1], axis=1)
        return [(part, from_bytes(piece, part.layout)) for part, piece in zip(self.parts, pieces, strict=True)]

    def split(self, tally: Counts) -> list[tuple[int, Counts]]:
        """Number of reports and tally of each part."""
        return _split(self.parts, tally)

    def describe(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"kind": "joint", "parts": [part.describe() for part in self.parts]}


def size_of(part: Randomizer) -> int:
    """Bytes of one report."""
    return part.layout.dtype.itemsize * part.layout.width


def _check(parts: tuple[Randomizer, ...], whole: object) -> None:
    """Refuse parts that are composites themselves: the proofs here are about one column of codes a part.

    Raises:
        InputError: no part, or one that is itself made of parts.
    """
    if not parts or any(isinstance(part, Sampled | Labelled | Joint) for part in parts):
        raise InputError("a randomizer is made of at least one part, and no part is made of parts", culprit=whole)


def _enumerable(inputs: int, outputs: int) -> None:
    if inputs * outputs > LARGEST_TABLE:
        raise SizeError(f"a table of {inputs} by {outputs} is too large to enumerate")


def _split(parts: Sequence[Randomizer], tally: Counts) -> list[tuple[int, Counts]]:
    """Number of reports and tally of each part."""
    ends = np.cumsum([1 + part.tally_size for part in parts])
    return [(int(piece[0]), piece[1:]) for piece in np.split(tally, ends[:-1])]
