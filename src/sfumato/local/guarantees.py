"""The guarantee of a spec: the exact epsilon of one report, and the guarantee of a shuffled batch of reports.

The epsilon of one report comes from the formula of its randomizer, in integers, and from enumeration of the whole
probability table.  A shuffled batch follows Feldman, McMillan, Talwar 2023 ("Stronger privacy amplification by
shuffling"), Theorem 3.1.  Consider n reports of an epsilon0-LDP randomizer, in random order and without names.  One
person's value is then at least as well hidden as in the pair

    (A + D, C - A + 1 - D)   and   (A + 1 - D, C - A + D),

with C ~ Binomial(n - 1, 2 / (e^epsilon0 + 1)) clones, A ~ Binomial(C, 1/2) and D ~ Bernoulli(e^epsilon0 / (e^epsilon0 +
1)).  The divergence of the pair is summed numerically.  Tails outside the sum are added to delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from sfumato.arguments import expect, parse_integer
from sfumato.errors import InputError, LossError, SizeError
from sfumato.local.randomizers.composite import Labelled
from sfumato.local.randomizers.randomizer import exp_below, proven
from sfumato.local.specs.spec import Spec
from sfumato.privacy.loss import Number, exact

_MOST = 10**10  # reports: the arrays grow with the square root, and 10^9 take 20 seconds
_DEVIATIONS = 12  # standard deviations of the number of clones on either side; the tails are added to delta
_BISECTIONS = 40
_SLACK = 1e-9  # relative error of the floating-point sums


@dataclass(frozen=True)
class Audit:
    """The result of an exact audit of a spec, in integers.

    Attributes:
        claimed: the epsilon of the spec.
        proven: the least twelve-digit epsilon that bounds the exact likelihood ratio, from the structure of the table.
        enumerated: the same from the enumerated table, or None if the table is too large.
        neighbours: the change of one person's value that the numbers are about.
    """

    claimed: Fraction
    proven: Fraction
    enumerated: Fraction | None
    neighbours: str

    @property
    def holds(self) -> bool:
        """True if the claim is proven, and a possible enumeration does not contradict the proof."""
        return self.proven <= self.claimed and (self.enumerated is None or self.enumerated <= self.proven)


def audit(spec: Spec) -> Audit:
    """Prove the epsilon of a spec, and check the proof by enumeration if the table is small enough.

    The proof uses the formula of the randomizer's kind, in integers.  The enumeration uses every report's largest and
    smallest probability over all inputs, as fractions.
    """
    expect(spec, Spec, "a spec is what a design returns, such as Frequency.design(...)")
    ratio = spec.randomizer.ratio()
    assert ratio <= exp_below(proven(ratio))
    # a public label is not protected: inputs are compared within one label
    channels = spec.randomizer.parts if isinstance(spec.randomizer, Labelled) else (spec.randomizer,)
    try:
        enumerated = max(proven(enumerate_ratio(channel.rows())) for channel in channels)
    except SizeError:
        enumerated = None
    return Audit(spec.epsilon, proven(ratio), enumerated, spec.neighbours)


def enumerate_ratio(rows: list[list[Fraction]]) -> Fraction:
    """Return the largest ratio of two probabilities of one report; ``rows`` are P(report | input).

    Raises:
        InputError: a report is impossible under some input, or a row is no distribution, so no finite ratio exists.
    """
    if any(sum(row) != 1 for row in rows) or any(chance <= 0 for row in rows for chance in row):
        raise InputError("a report that is impossible under one value and not under another proves nothing finite")
    ratios: list[Fraction] = [max(column) / min(column) for column in zip(*rows, strict=True)]
    return max(ratios)


@dataclass(frozen=True)
class Amplified:
    """The guarantee of a shuffled batch.

    Attributes:
        epsilon: of the batch, rounded upward.
        delta: of the batch.
        local: epsilon of a single report, which holds toward anyone who sees reports before they are shuffled.
        reports: number of reports shuffled together.
    """

    epsilon: float
    delta: float
    local: Fraction
    reports: int


def amplify(spec: Spec, reports: int, delta: Number) -> Amplified:
    """Return the (epsilon, delta) of ``reports`` shuffled reports under a spec.

    The guarantee is for the replacement of one person's value.  The shuffler must remove order and origin, and every
    other person must report honestly: ``reports`` is the number of *honest* reports.

    Args:
        spec: any spec whose claim is ordinary LDP.
        reports: number of reports, at least two.
        delta: in (0, 1).

    Raises:
        LossError: delta is outside (0, 1).
        InputError: there are fewer than two or more than 10^10 reports, or the spec discloses a level.
    """
    chance = exact(delta, name="delta")
    if not 0 < chance < 1:
        raise LossError(f"delta must lie strictly between 0 and 1, not {delta}", culprit=delta)
    expect(spec, Spec, "a spec is what a design returns, such as Frequency.design(...)")
    reports = parse_integer(reports, "reports are a whole number")
    if reports < 2:  # noqa: PLR2004
        raise InputError(f"shuffling needs at least two reports, not {reports}", culprit=reports)
    if reports > _MOST:
        raise InputError(
            f"the guarantee is computed for at most {_MOST:,} reports; state that number: it also holds for more",
            culprit=reports,
        )
    if spec.discloses_labels:
        raise InputError("shuffling amplifies ordinary LDP only; this spec discloses levels", culprit=spec)
    local = float(spec.epsilon)
    low, high = 0.0, local
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if divergence(middle, local, reports) <= float(chance):
            high = middle
        else:
            low = middle
    return Amplified(high, float(chance), spec.epsilon, reports)


def divergence(epsilon: float, local: float, reports: int) -> float:
    """Return an upper bound on the smallest delta at ``epsilon``: the pair's hockey-stick divergence, with tails added.

    For a given number of clones the likelihood ratio rises with the first count.  So each term is a difference of two
    binomial tails.
    """
    from scipy.stats import binom

    others, rate = reports - 1, 2 / (math.exp(local) + 1)
    spread = _DEVIATIONS * math.sqrt(others * rate * (1 - rate)) + _DEVIATIONS
    clones = np.arange(max(0, math.floor(others * rate - spread)), min(others, math.ceil(others * rate + spread)) + 1)
    weight = binom.pmf(clones, others, rate)
    outside = binom.cdf(clones[0] - 1, others, rate) + binom.sf(clones[-1], others, rate)
    p = math.exp(local) / (math.exp(local) + 1)
    factor = math.exp(epsilon)
    # the first count a is likelier under the first value if a p + (m - a) q > factor (a q + (m - a) p)
    q, total = 1 - p, clones + 1
    first = np.floor(total * (factor * p - q) / ((p - q) * (1 + factor))) + 1
    with_own, without = binom.sf(first - 2, clones, 0.5), binom.sf(first - 1, clones, 0.5)
    gained = p * with_own + q * without - factor * (q * with_own + p * without)
    return float(weight @ np.maximum(gained, 0) * (1 + _SLACK) + outside)
