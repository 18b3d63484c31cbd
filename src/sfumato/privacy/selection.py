"""Private choice of a candidate by its score, exactly sampled."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError, LossError
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.loss import Charge, Epsilon, Number, Rho, exact
from sfumato.privacy.noise import exp_enclosure
from sfumato.privacy.noise_table import COARSE_BITS, EnclosureEnds, decide, exp_enclosures, one_below, uniform_below

CandidateScores = NDArray[np.int64] | Sequence[int | Fraction]

_LARGEST = 1 << 62
_MOST_CANDIDATES = 1 << 32


@dataclass(frozen=True)
class ScoreMechanism(ABC):
    """A choice among candidates by their scores, at a loss.

    Neighbors: the caller's; between neighbors every score moves by at most ``sensitivity``.

    Args:
        epsilon: the loss of one choice.
        sensitivity: exact, greater than zero.
        monotone: adding a unit raises no score, or lowers none, as the definer of the scores declares (a score that can
            do either, such as an error, is *not* monotone); the exponent then needs no factor 2.

    Raises:
        LossError: the sensitivity is not a finite number greater than zero.
    """

    epsilon: Epsilon
    sensitivity: Fraction
    monotone: bool
    squares_a_rho: ClassVar[int]  # rho = epsilon^2 / squares_a_rho

    def __init__(self, epsilon: Epsilon, *, sensitivity: Number, monotone: bool) -> None:
        moved = exact(sensitivity, name="sensitivity")
        if moved <= 0:
            raise LossError(f"sensitivity must be greater than zero, not {sensitivity}", culprit=sensitivity)
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "sensitivity", moved)
        object.__setattr__(self, "monotone", monotone)

    @classmethod
    def for_loss(cls, loss: Epsilon | Rho, *, sensitivity: Number, monotone: bool) -> Self:
        """Return the mechanism of the given loss; a rho allows the epsilon with that rho, rounded down to 18 digits."""
        epsilon = loss if isinstance(loss, Epsilon) else Epsilon(root_below(cls.squares_a_rho * loss.value))
        return cls(epsilon, sensitivity=sensitivity, monotone=monotone)

    @cached_property
    def charge(self) -> Charge:
        """The charge of one choice in every measure."""
        return Charge(self.epsilon.value, self.epsilon.value**2 / self.squares_a_rho, Fraction(0))

    @cached_property
    def rate(self) -> Fraction:
        """The exponent per unit of score."""
        return self.epsilon.value / (self.sensitivity if self.monotone else 2 * self.sensitivity)

    @abstractmethod
    def choose(self, scores: CandidateScores, entropy: Entropy) -> int:
        """Return the index of the chosen candidate.

        Args:
            scores: integers (shape ``(candidates,)``) or fractions; at least one.
            entropy: source of the coins.

        Raises:
            InputError: no scores, not integers or fractions, or integers beyond 2^62.
        """


class Exponential(ScoreMechanism):
    """The exponential mechanism: candidate i with probability proportional to exp(epsilon score_i / (2 sensitivity)).

    Neighbors, sensitivity and ``monotone`` as for :class:`ScoreMechanism`.  Loss: pure epsilon, and rho = epsilon^2 /
    8, because the privacy loss lies in an interval of length epsilon (bounded range), so that a rho allows epsilon =
    sqrt(8 rho).  Source: McSherry and Talwar 2007, Theorem 6; Cesar and Rogers 2021, Lemma 3.2 (rho of bounded range,
    after Dong, Durfee and Rogers 2020).

    >>> Exponential.for_loss(Rho("0.5"), sensitivity=1, monotone=False).epsilon
    Epsilon('2')
    """

    squares_a_rho = 8

    def choose(self, scores: CandidateScores, entropy: Entropy) -> int:
        """See :meth:`ScoreMechanism.choose`.

        Exact: candidate i gets an integer weight w_i just above 2^31 p_i, where p_i = exp(-rate (max - score_i)). A
        uniform integer below the sum of weights picks i with probability proportional to w_i.  Candidate i is then
        accepted with probability 2^31 p_i / w_i, decided exactly; otherwise the draw is repeated.
        """
        gaps = gaps_below(scores, self.rate)
        if len(scores) >= _MOST_CANDIDATES:
            raise InputError("a choice is among fewer than 2^32 candidates")
        chosen, _ = self._drawn(gaps, gaps.high.cumsum(dtype=np.uint64), entropy)
        return chosen

    def choose_among(self, scores: CandidateScores, sizes: NDArray[np.int64], entropy: Entropy) -> tuple[int, int]:
        """Choose like :meth:`choose` among groups of candidates that share a score: the group, and the index within it.

        Args:
            scores: scores of the groups, as for :meth:`choose`.
            sizes: candidates of each group, shape ``(groups,)``, at least one and less than 2^32 in all.
            entropy: source of the coins.

        Raises:
            InputError: as for :meth:`choose`, or too many candidates.
        """
        gaps = gaps_below(scores, self.rate)
        if sizes.shape != gaps.high.shape or sizes.min() < 1 or int(sizes.sum()) >= _MOST_CANDIDATES:
            raise InputError("each group has at least one candidate, and all of them together fewer than 2^32")
        return self._drawn(gaps, np.cumsum(gaps.high * sizes.astype(np.uint64), dtype=np.uint64), entropy)

    @staticmethod
    def _drawn(gaps: _Gaps, ends: NDArray[np.uint64], entropy: Entropy) -> tuple[int, int]:
        """Return a group, and the index of a candidate in it; ``ends`` are the sums of all candidates' weights."""
        while True:
            drawn = one_below(int(ends[-1]), entropy)
            chosen = int(ends.searchsorted(np.uint64(drawn), side="right"))
            low, high = int(gaps.low[chosen]), int(gaps.high[chosen])
            # the rest of the group's weight is uniform: the candidate, and the uniform position within its weight
            candidate, place = divmod(int(ends[chosen]) - drawn - 1, high)
            if high - 1 - place < low or decide(partial(gaps.remainder, chosen), entropy):
                return chosen, candidate

    def keeps(self, gap: int, entropy: Entropy) -> bool:
        """Toss a coin with probability exp(-epsilon gap / (2 sensitivity)) of heads, exactly, for an integer gap >=
        0.
        """
        return decide(partial(exp_enclosure, self.rate * gap), entropy)


class PermuteAndFlip(ScoreMechanism):
    """Permute-and-flip: in random order, the first candidate whose coin of exp(-epsilon gap / (2 sensitivity)) is
    heads.

    Never worse in expectation than the exponential mechanism at the same pure epsilon.  Neighbors, sensitivity and
    ``monotone`` as for :class:`ScoreMechanism`.  Loss: pure epsilon.  Its rho is only epsilon^2 / 2, because it does
    not have bounded range epsilon, so prefer :class:`Exponential` under zCDP.  Source: McKenna and Sheldon 2020,
    Algorithm 1 and Theorem 1 (monotone: with the exponent that Theorem 1 allows there).
    """

    squares_a_rho = 2

    def choose(self, scores: CandidateScores, entropy: Entropy) -> int:
        """See :meth:`ScoreMechanism.choose`.

        Exact: all coins are flipped at once, and one of the heads is taken uniformly, which is the first of them in a
        random order.  The best candidate's coin is always heads.
        """
        gaps = gaps_below(scores, self.rate)
        words = entropy.words(gaps.low.size)
        places = words >> np.uint64(64 - COARSE_BITS)
        shows = places < gaps.low
        for tie in np.flatnonzero(~shows & (places < gaps.high)):
            shows[tie] = decide(partial(gaps.probability, int(tie)), entropy, first=int(words[tie]))
        candidates = np.flatnonzero(shows)
        return int(candidates[uniform_below(candidates.size, 1, entropy)[0]])


@dataclass(frozen=True, eq=False)
class _Gaps:
    """Integer distances of scores from the best, and enclosures of 2^31 exp(-unit distance)."""

    distances: Sequence[int] | NDArray[np.int64]
    unit: Fraction
    low: EnclosureEnds
    high: EnclosureEnds

    def probability(self, index: int, bits: int) -> tuple[int, int]:
        """Return an enclosure of exp(-unit distance)."""
        return exp_enclosure(self.unit * int(self.distances[index]), bits)

    def remainder(self, index: int, bits: int) -> tuple[int, int]:
        """Return an enclosure of (2^31 exp(-unit distance) - low) / (high - low)."""
        low, high = exp_enclosure(self.unit * int(self.distances[index]), bits + COARSE_BITS)
        base, width = int(self.low[index]) << bits, int(self.high[index]) - int(self.low[index])
        return (low - base) // width, -((base - high) // width)


def gaps_below(scores: CandidateScores, rate: Fraction) -> _Gaps:
    """Return the distance of each score below the best, and an enclosure of its weight ``exp(-rate gap)``.

    Raises:
        InputError: no scores, or scores that are not exact or out of range.
    """
    if len(scores) == 0:
        raise InputError("a choice needs at least one candidate", culprit=scores)
    distances: list[int] | NDArray[np.int64]
    if isinstance(scores, np.ndarray):
        if scores.dtype != np.int64 or scores.ndim != 1:
            raise InputError("scores are a vector of int64, or a sequence of integers and fractions")
        # one test instead of two: shifted up by the limit, scores that are too small become huge as unsigned
        raised = int((scores + _LARGEST).view(np.uint64).max())
        if raised >= 2 * _LARGEST:
            raise InputError("scores beyond 2^62 are out of range")
        distances = clipped = np.int64(raised - _LARGEST) - scores
    else:
        if not all(isinstance(score, int | Fraction) for score in scores):
            raise InputError("scores are integers or fractions: a float would not be exact")
        common = math.lcm(*(score.denominator for score in scores))
        integers = [int(score * common) for score in scores]
        rate /= common
        distances = [max(integers) - score for score in integers]
        # The upper end of a nearer candidate's enclosure holds for one beyond 2^62 too; the lower is set to zero.
        clipped = np.array([min(distance, _LARGEST) for distance in distances], dtype=np.int64)
    low, high = exp_enclosures(clipped, rate)
    if not isinstance(distances, np.ndarray):
        low = np.where(clipped == _LARGEST, np.uint64(0), low)
    return _Gaps(distances, rate, low, high)


def root_below(value: Fraction) -> Fraction:
    """Return the square root, rounded down to at least 18 significant digits; exact for squares of such numbers.

    >>> root_below(Fraction(4)), float(root_below(Fraction(2)))
    (Fraction(2, 1), 1.4142135623730951)
    """
    digits = max(0, 18 + (len(str(value.denominator)) - len(str(value.numerator))) // 2 + 1)
    return Fraction(math.isqrt(value.numerator * 10 ** (2 * digits) // value.denominator), 10**digits)
