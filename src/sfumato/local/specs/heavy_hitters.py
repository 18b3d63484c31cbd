"""Frequent values of an open domain, by the prefix extending method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import parse_integer
from sfumato.errors import InputError
from sfumato.local.estimators import Estimate, Post, sampled
from sfumato.local.randomizers.composite import Sampled
from sfumato.local.randomizers.local_hashing import LocalHash
from sfumato.local.randomizers.randomizer import InputCodes, ReportArray, Tally, claimed
from sfumato.local.randomizers.two_valued import TwoValued
from sfumato.local.specs.spec import Spec
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.loss import Number

LONGEST = 48
"""Largest number of bits of a value: six bytes of text, or an integer below 2^48."""

_BYTE = 8
_FALSE_ALARMS = 1e-4  # nominal probability of a false value, over all final candidates together


@dataclass(frozen=True)
class HeavyHitters(Spec):
    """The most frequent of up to 2^48 values (PEM, Wang, Li, Jha 2019).

    Every person reports the prefix of one random length, by local hashing over a binary field whose digits are groups
    of bits.  The server stores the reports (its state grows with them), extends frequent prefixes and counts.

    Attributes:
        bits: length of a value, a multiple of 8 up to 48.
        text: true if values are texts of at most ``bits / 8`` bytes in UTF-8, false for integers.
        epsilon: the claimed loss of every report.
        randomizer: one local hashing per prefix length.
    """

    bits: int
    text: bool
    epsilon: Fraction
    randomizer: Sampled

    kind: ClassVar[str] = "heavy_hitters"
    neighbours: ClassVar[str] = "one person's value replaced by any other value of that length"

    def _check(self) -> None:
        if self.bits % _BYTE or not _BYTE <= self.bits <= LONGEST:
            raise InputError(
                f"heavy hitters need a multiple of 8 from 8 to {LONGEST} bits, not {self.bits}", culprit=self
            )
        designs = self.designs
        step, buckets = designs[0].inputs.bit_length() - 1, designs[0].buckets
        places = range(1, -(-self.bits // step) + 1)
        if (
            [(each.inputs, each.buckets) for each in designs] != [(1 << step * place, buckets) for place in places]
            or buckets & (buckets - 1)
            or step % (buckets.bit_length() - 1)
        ):
            raise InputError("the parts of a heavy-hitter randomizer do not fit its prefix lengths", culprit=self)

    @classmethod
    def design(cls, *, bits: int, text: bool, epsilon: Number) -> HeavyHitters:
        """Return a spec for values of ``bits`` bits.

        Raises:
            LossError: epsilon is outside [1e-9, 32].
            InputError: the number of bits is no multiple of 8 up to 48.
        """
        exact = claimed(epsilon)
        bits = parse_integer(bits, "bits are a whole number")
        fields = [TwoValued.within(LocalHash(1 << width, 1 << width), exact) for width in range(1, _BYTE + 1)]
        width = 1 + fields.index(min(fields, key=lambda each: each.variance(0)))
        step = width * max(1, round(_BYTE / width))
        lengths = range(step, step * -(-min(bits, LONGEST) // step) + 1, step)
        parts = tuple(TwoValued.within(LocalHash(1 << length, 1 << width), exact) for length in lengths)
        return cls(bits, text, exact, Sampled(parts))

    @property
    def designs(self) -> tuple[LocalHash, ...]:
        """The hash family of every prefix length."""
        designs = tuple(part.design for part in self.randomizer.parts if isinstance(part, TwoValued))
        hashed = tuple(design for design in designs if isinstance(design, LocalHash))
        if not hashed or len(hashed) != len(self.randomizer.parts):
            raise InputError("heavy hitters are found by local hashing only", culprit=self)
        return hashed

    def encode(self, values: NDArray[Any] | Sequence[Any], entropy: Entropy) -> InputCodes:  # noqa: ARG002 -- see Spec
        """Return the prefixes of all lengths, ``(n, lengths)``.

        Raises:
            InputError: a value is no text (or no integer), or is too long.
        """
        codes = self._texts(values) if self.text else self._integers(values)
        lengths = [design.inputs.bit_length() - 1 for design in self.designs]
        return np.stack([codes >> np.uint64(lengths[-1] - length) for length in lengths], axis=1)

    def estimate(self, tally: Tally, reports: int, post: Post) -> Estimate:  # noqa: ARG002 -- see Spec
        """Refuse, because a tally of an open domain would be as long as the domain.

        Raises:
            InputError: always.
        """
        raise InputError("heavy hitters are found, not estimated: use find")

    def find(self, reports: ReportArray, *, most: int) -> Estimate:
        """Return the most frequent values, at most ``most`` of them, with their frequencies.

        Frequencies come only from people who reported whole values, and the variance includes this.  Values that noise
        alone could have raised this high are excluded.  Nominally, one run in 10 000 has a false value; with few
        reports the normal approximation understates this rate.  The estimates of the reported values are slightly high,
        because they were selected by size.

        Args:
            reports: all reports, in the layout of the randomizer.
            most: number of prefixes extended per length, 1 .. 256.

        Raises:
            InputError: a length has no reports, or ``most`` is out of range.
        """
        if not 1 <= most <= 1 << _BYTE:
            raise InputError(f"heavy hitters returns 1 to 256 values, not {most}", culprit=most)
        prefixes = np.zeros(1, dtype=np.uint64)
        values = spread = np.zeros(0)
        limit = 0.0
        for design, (part, mine) in zip(self.designs, self.randomizer.select(reports), strict=True):
            assert isinstance(part, TwoValued)
            if not mine.size:
                raise InputError("heavy hitters need reports of every prefix length: there are too few")
            step = self.designs[0].inputs.bit_length() - 1
            support = _extensions(design, mine.astype(np.uint64), prefixes, step)
            values = (support / mine.size - part.q) / (part.p - part.q)
            best = np.argsort(-values, kind="stable")[:most]
            prefixes, values = (
                (prefixes[best >> step] << np.uint64(step)) | (best & ((1 << step) - 1)).astype(np.uint64),
                values[best],
            )
            share = np.clip(values, 0, 1)
            chance = share * part.p * (1 - part.p) + (1 - share) * part.q * (1 - part.q)
            spread = chance / ((part.p - part.q) ** 2 * mine.size) + sampled(values, mine.size, len(reports))
            noise = np.sqrt(part.q * (1 - part.q) / mine.size) / (part.p - part.q)
            limit = NormalDist(0, float(noise)).inv_cdf(1 - _FALSE_ALARMS / support.size)
        clear = values > limit
        labels = tuple(self._label(int(value)) for value in prefixes[clear])
        return Estimate(labels, values[clear], spread[clear], len(reports))

    def _integers(self, values: NDArray[Any] | Sequence[Any]) -> NDArray[np.uint64]:
        column = np.asarray(values)
        integral = column.ndim == 1 and column.dtype.kind in "iu"
        if not integral or (column.size and (int(column.min()) < 0 or int(column.max()) >> self.bits)):
            raise InputError(f"values must be one column of whole numbers from 0 to 2^{self.bits} - 1")
        return column.astype(np.uint64)

    def _texts(self, values: NDArray[Any] | Sequence[Any]) -> NDArray[np.uint64]:
        width = self.bits // _BYTE
        texts = np.asarray(values, dtype=object).tolist()
        encoded = [value.encode() if isinstance(value, str) else b"" for value in texts]
        wrong = [place for place, value in enumerate(encoded) if not 0 < len(value) <= width or b"\0" in value]
        if wrong:
            raise InputError(
                f"{len(wrong)} values are no texts of 1 to {width} bytes, the first in row {1 + int(wrong[0])}"
            )
        padded = np.zeros((len(encoded), 8), dtype=np.uint8)
        padded[:, 8 - width :] = np.array(encoded, dtype=f"S{width}").view(np.uint8).reshape(len(encoded), width)
        return padded.view(">u8").ravel().astype(np.uint64)

    def _label(self, value: int) -> str:
        if not self.text:
            return str(value)
        return value.to_bytes(-(-value.bit_length() // 8), "big").rstrip(b"\0").decode(errors="replace")


def _extensions(design: LocalHash, reports: NDArray[np.uint64], prefixes: NDArray[np.uint64], step: int) -> Tally:
    """Return the support of every ``step``-bit extension of every prefix, ``(prefixes << step,)``.

    The hash is linear.  The hash of an extended prefix is the sum of the hashes of prefix and extension (in a binary
    field: the exclusive or).  So one histogram per prefix serves all its extensions.  It counts the extension's
    coefficients and the remaining bucket.
    """
    buckets = design.buckets
    function, bucket = np.divmod(reports, np.uint64(buckets))
    high, low = function >> np.uint64(step), function & np.uint64((1 << step) - 1)
    last = LocalHash(1 << step, buckets)
    places = np.arange(1 << step)
    cells = last.hash(places[:, None], places[None, :]).astype(np.int64) + places[None, :] * buckets
    counts = np.empty((prefixes.size, 1 << step), dtype=np.int64)
    for row, prefix in enumerate(prefixes):
        left = bucket
        if design.inputs > last.inputs:
            left = bucket ^ LocalHash(design.inputs >> step, buckets).hash(np.asarray(prefix), high).astype(np.uint64)
        seen = np.bincount((low * np.uint64(buckets) + left).astype(np.int64), minlength=buckets << step)
        counts[row] = seen[cells].sum(axis=1)
    return counts.ravel()
