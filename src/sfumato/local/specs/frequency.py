"""How often each of a set of values occurs: the spec, its fourteen methods, and the choice among them.

Every method is made as truthful as its epsilon allows; AUTO takes the least exact variance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import expect
from sfumato.errors import InputError, LossError
from sfumato.local.estimators import Estimate, Post, frequencies, likeliest, simplex
from sfumato.local.randomizers.finite_field import LARGEST_GEOMETRY, Projective, points, prime_powers
from sfumato.local.randomizers.local_hashing import LARGEST_TALLY, Hashed
from sfumato.local.randomizers.longitudinal import Loloha, Rappor
from sfumato.local.randomizers.randomizer import (
    DENOMINATOR,
    FrequencyOracle,
    InputCodes,
    Numerator,
    Tally,
    claimed,
    exp_below,
)
from sfumato.local.randomizers.two_valued import Design, Direct, Hadamard, Subset, TwoValued
from sfumato.local.randomizers.unary_encoding import BucketRun, Coins, CountMeanSketch, HadamardSketch, Unary
from sfumato.local.specs.spec import Spec
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.loss import Number

LARGEST_DOMAIN = 1 << 20
"""Values of a closed domain; larger ones are open domains, for :class:`sfumato.local.HeavyHitters`."""


_EIGHT_BYTES = 64
_SMALLEST_EIGHT_BYTE_GEOMETRY = 2
_BUCKETS_REPORTED = 8
_THRESHOLDS = 501


class Method(StrEnum):
    """Frequency methods."""

    AUTO = "auto"  # the least exact variance of grr, ss, pgr, hr, olh whose reports fit eight bytes
    GRR = "grr"  # generalised randomised response
    SS = "ss"  # subset selection
    PGR = "pgr"  # projective geometry response
    HR = "hr"  # Hadamard response
    BLH = "blh"  # binary local hashing
    OLH = "olh"  # optimised local hashing
    SUE = "sue"  # symmetric unary encoding
    OUE = "oue"  # optimised unary encoding
    THE = "the"  # thresholded histogram encoding
    CMS = "cms"  # count-mean sketch
    HCMS = "hcms"  # Hadamard count-mean sketch
    DBITFLIP = "dbitflip"  # bits about a few buckets
    RAPPOR = "rappor"  # unary, permanent and instantaneous rounds
    LOLOHA = "loloha"  # hashed, permanent and instantaneous rounds


@dataclass(frozen=True)
class Frequency(Spec):
    """How often each value of a closed domain occurs.

    Attributes:
        values: the values in order, or the number of values where they are 0, 1, 2, ...
        epsilon: what every report claims: replacing the value changes the probability of any report by at most
            a factor ``e^epsilon``; integers prove it from ``randomizer`` when the spec is made or read.
        method: the randomizer's name.
        randomizer: the channel, with its integer probabilities.
    """

    values: tuple[str, ...] | tuple[int, ...] | int
    epsilon: Fraction
    method: Method
    randomizer: FrequencyOracle

    kind: ClassVar[str] = "frequency"
    neighbours: ClassVar[str] = "one person's value replaced by any other value of the domain"

    def _check(self) -> None:
        size = size_of_domain(self.values)
        if self.randomizer.inputs != size:
            raise InputError(
                f"the randomizer is for {self.randomizer.inputs} values, the domain has {size}", culprit=self
            )

    @classmethod
    def design(
        cls,
        values: Sequence[str] | Sequence[int] | int,
        *,
        epsilon: Number,
        method: Method = Method.AUTO,
        instantaneous_epsilon: Number | None = None,
    ) -> Frequency:
        """A spec for a domain.

        Args:
            values: the public list of values, or their number where they are 0 .. n-1; at least two.
            epsilon: per report, or, for the memoised methods, for all reports about one value; in [1e-9, 32].
            method: AUTO takes the least exact variance among methods whose reports fit eight bytes.
            instantaneous_epsilon: for RAPPOR and LOLOHA, the smaller epsilon of a single report.

        Raises:
            LossError: an epsilon outside [1e-9, 32], or an instantaneous epsilon not below it.
            InputError: fewer than two values, a value twice, or more than 2^20 values.

        >>> Frequency.design(["red", "green", "blue"], epsilon=1).method.value
        'grr'
        """
        domain = _domain(values)
        size = size_of_domain(domain)
        exact = claimed(epsilon)
        chosen, randomizer = oracle(
            size, exact, method, None if instantaneous_epsilon is None else claimed(instantaneous_epsilon)
        )
        return cls(domain, exact, chosen, randomizer)

    @property
    def labels(self) -> tuple[str, ...]:
        """One label a value."""
        return tuple(map(str, range(self.values) if isinstance(self.values, int) else self.values))

    def encode(self, values: NDArray[Any] | Sequence[Any], entropy: Entropy) -> InputCodes:  # noqa: ARG002 -- see Spec
        """Codes of values ``(n,)``.

        Raises:
            InputError: a value outside the domain, or missing.
        """
        return codes_of(self.values, np.asarray(values))

    def estimate(self, tally: Tally, reports: int, post: Post) -> Estimate:
        """Frequencies from a tally of ``reports`` reports; unbiased with ``Post.NONE``.

        Raises:
            InputError: no reports, or a post-processing that this method does not offer.
        """
        values, variance = frequencies(self.randomizer, tally, reports)
        match post:
            case Post.SIMPLEX:
                values = simplex(values)
            case Post.MLE:
                values = likeliest(_channel(self.randomizer), tally)
            case Post.SMOOTH:
                raise InputError("smoothing is for ordered bins: use a distribution spec, or post none, simplex or mle")
            case Post.NONE:
                pass
        step = 1 / (reports * (self.randomizer.p - self.randomizer.q))
        return Estimate(self.labels, values, variance, reports, step)


def codes_of(domain: tuple[str, ...] | tuple[int, ...] | int, values: NDArray[Any]) -> InputCodes:
    """Positions of ``values`` in a domain.

    Raises:
        InputError: a value that is not in the domain; the message names its position only.
    """
    if values.ndim != 1:
        raise InputError(f"values must come as one column, not with {values.ndim} dimensions")
    if isinstance(domain, int):
        if values.dtype.kind not in "iu":
            raise InputError("values must be whole numbers from 0 to the size of the domain")
        bad = values.size > 0 and (int(values.min()) < 0 or int(values.max()) >= domain)
        if bad:
            raise _unknown((values < 0) | (values >= domain))
        whole: InputCodes = values
        return whole
    known = np.array(domain)
    if known.dtype.kind == "U":
        values = values.astype(np.str_) if values.dtype.kind == "U" else _texts(values)
    elif values.dtype.kind not in "iu":
        raise InputError("values must be whole numbers, as the domain's are")
    order = np.argsort(known, kind="stable")
    place = np.searchsorted(known, values, sorter=order).clip(max=known.size - 1)
    codes: InputCodes = order[place]
    wrong = known[codes] != values
    if wrong.any():
        raise _unknown(wrong)
    return codes


def _texts(values: NDArray[Any]) -> NDArray[Any]:
    wrong = np.array([not isinstance(value, str) for value in values.tolist()], dtype=np.bool_)
    if wrong.any():
        raise _unknown(wrong)
    return values.astype(np.str_)


def _unknown(wrong: NDArray[np.bool_]) -> InputError:
    return InputError(
        f"{int(wrong.sum())} values are not in the domain of the spec, the first in row {1 + int(np.argmax(wrong))}"
    )


def _domain(values: Sequence[str] | Sequence[int] | int) -> tuple[str, ...] | tuple[int, ...] | int:
    if isinstance(values, str | bool) or not isinstance(values, int | Iterable):
        raise InputError("a domain is a list of values, or their number", culprit=values)
    return values if isinstance(values, int) else tuple(values)  # type: ignore[return-value]  # checked with its size


def size_of_domain(domain: tuple[str, ...] | tuple[int, ...] | int) -> int:
    """Number of values of a domain.

    Raises:
        InputError: fewer than two values or more than 2^20, a value twice, or others than texts or whole numbers.
    """
    expect(domain, tuple | int, "a domain is a tuple of values, or their number")
    size = domain if isinstance(domain, int) else len(domain)
    if not 2 <= size <= LARGEST_DOMAIN:  # noqa: PLR2004
        raise InputError(f"a domain needs from 2 to {LARGEST_DOMAIN} values, not {size}", culprit=size)
    if not isinstance(domain, int):
        if {type(value) for value in domain} not in ({str}, {int}):
            raise InputError("the values of a domain must be all texts or all whole numbers", culprit=domain)
        if len(set(domain)) != size:
            raise InputError("a domain names a value twice", culprit=domain)
    return size


def _channel(randomizer: FrequencyOracle) -> NDArray[np.float64]:
    if not isinstance(randomizer, TwoValued) or randomizer.tally_size != randomizer.design.outputs:
        raise InputError("the likeliest distribution needs counts of whole reports, which this method does not keep")
    incidence = randomizer.design.incidence()
    inside = incidence.sum(axis=1, keepdims=True)
    channel: NDArray[np.float64] = np.where(
        incidence, randomizer.p / inside, (1 - randomizer.p) / (incidence.shape[1] - inside)
    )
    return channel


def oracle(
    size: int, epsilon: Fraction, method: Method, instantaneous_epsilon: Fraction | None
) -> tuple[Method, FrequencyOracle]:
    """The randomizer of a method for ``size`` values, and the method that it is.

    Raises:
        LossError: an instantaneous epsilon without a memoised method, missing for one, or not below epsilon.
        InputError: the geometry of PGR would be too large.
    """
    expect(method, Method, "a method is one of sfumato.local.Method")
    if (instantaneous_epsilon is None) == (method in {Method.RAPPOR, Method.LOLOHA}):
        raise LossError("memoised methods, and only they, state an instantaneous epsilon: that of a single report")
    if instantaneous_epsilon is not None and instantaneous_epsilon >= epsilon:
        raise LossError(
            "the instantaneous epsilon must be below epsilon, which bounds all reports", culprit=instantaneous_epsilon
        )
    match method:
        case Method.AUTO:
            return least_variance(size, epsilon)
        case Method.SUE | Method.OUE | Method.THE:
            return method, Unary(size, _coins(method, epsilon, size))
        case Method.CMS:
            return method, _sketch(size, epsilon)
        case Method.DBITFLIP:
            return method, BucketRun(size, min(_BUCKETS_REPORTED, size), symmetric(epsilon))
        case Method.RAPPOR:
            assert instantaneous_epsilon is not None
            return method, _rappor(size, epsilon, instantaneous_epsilon)
        case Method.LOLOHA:
            assert instantaneous_epsilon is not None
            return method, _loloha(size, epsilon, instantaneous_epsilon)
        case _:
            return method, TwoValued.within(_design(size, epsilon, method), epsilon)


def least_variance(size: int, epsilon: Fraction) -> tuple[Method, FrequencyOracle]:
    """The method of least exact variance at a value of average frequency, of at most eight bytes a report."""
    methods = [Method.GRR, Method.HR, Method.OLH]  # the first of equals wins: GRR where subsets have one element
    methods += [Method.SS] if size <= _EIGHT_BYTES else []
    methods += [Method.PGR] if geometries(size) else []
    candidates = [(method, TwoValued.within(_design(size, epsilon, method), epsilon)) for method in methods]
    return min(candidates, key=lambda candidate: candidate[1].variance(1 / size))


def symmetric(epsilon: Fraction) -> Coins:
    """Coins p and 1 - p with odds e^(epsilon / 2) each: symmetric unary encoding (basic RAPPOR)."""
    root = exp_below(epsilon / 2)
    one = int(DENOMINATOR * root / (1 + root))
    return Coins(Numerator(one), Numerator(DENOMINATOR - one))


def optimised(epsilon: Fraction) -> Coins:
    """Coins 1/2 and 1 / (e^epsilon + 1): optimised unary encoding (Wang et al. 2017)."""
    return Coins(Numerator(DENOMINATOR // 2), Numerator(math.ceil(DENOMINATOR / (1 + exp_below(epsilon)))))


def thresholded(epsilon: Fraction, size: int) -> Coins:
    """A histogram with Laplace noise of scale 2 / epsilon, reported as bits above the best threshold.

    The bits alone leak less than the noisy histogram, so integers usually prove a smaller epsilon than claimed.
    """
    half = float(epsilon) / 2
    thresholds = np.linspace(0.5, 1, _THRESHOLDS)
    ones, zeros = 1 - np.exp(half * (thresholds - 1)) / 2, np.exp(-half * thresholds) / 2
    spread = (ones * (1 - ones) + (size - 1) * zeros * (1 - zeros)) / (ones - zeros) ** 2
    best = int(np.argmin(spread))
    one, zero = (Fraction(float(chances[best])) * DENOMINATOR for chances in (ones, zeros))
    return Coins(Numerator(int(one)), Numerator(math.ceil(zero)))


def geometries(size: int) -> list[Projective]:
    """Every projective geometry with at least ``size`` points whose table is small enough, one a field."""
    found = []
    for order in prime_powers():
        dimension = _SMALLEST_EIGHT_BYTE_GEOMETRY
        while points(order, dimension) < size:
            dimension += 1
        if points(order, dimension) * size <= LARGEST_GEOMETRY:
            found.append(Projective(size, order, dimension))
    return found


def hash_designs(size: int, epsilon: Fraction) -> list[Hashed]:
    """Local hashing with the prime powers next to e^epsilon + 1, the best number of buckets for rare values."""
    ideal = float(exp_below(epsilon)) + 1
    powers = prime_powers()
    smaller = max((power for power in powers if power <= ideal), default=powers[0])
    larger = min((power for power in powers if power >= ideal), default=powers[-1])
    return [Hashed(size, buckets) for buckets in sorted({smaller, larger})]


def _design(size: int, epsilon: Fraction, method: Method) -> Design:
    match method:
        case Method.GRR:
            return Direct(size)
        case Method.HR:
            return Hadamard(size)
        case Method.BLH:
            return Hashed(size, 2)
        case Method.SS:
            return _best([Subset(size, part) for part in _subset_sizes(size, epsilon)], epsilon)
        case Method.OLH:
            return _best(hash_designs(size, epsilon), epsilon)
        case Method.PGR:
            designs = geometries(size)
            if not designs:
                raise InputError(
                    f"projective geometry serves domains far below {size} values: use hr or olh", culprit=size
                )
            return _best(designs, epsilon)
        case _:
            widths = [1 << bits for bits in range(1, 6)]  # wider gains below 2 %
            fitting = [width for width in widths if 2 * width * Hashed(size, width).functions <= LARGEST_TALLY]
            return _best([HadamardSketch(size, width) for width in fitting], epsilon)


def _best(
    designs: list[Design] | list[Subset] | list[Hashed] | list[Projective] | list[HadamardSketch], epsilon: Fraction
) -> Design:
    return min(designs, key=lambda design: TwoValued.within(design, epsilon).variance(1 / design.inputs))


def _subset_sizes(size: int, epsilon: Fraction) -> list[int]:
    """The two sizes around size / (e^epsilon + 1), between which the best lies (Ye and Barg 2018)."""
    ideal = int(size / (1 + exp_below(epsilon)))
    return sorted({min(max(part, 1), size - 1) for part in (ideal, ideal + 1)})


def _coins(method: Method, epsilon: Fraction, size: int) -> Coins:
    match method:
        case Method.SUE:
            return symmetric(epsilon)
        case Method.OUE:
            return optimised(epsilon)
        case _:
            return thresholded(epsilon, size)


def _sketch(size: int, epsilon: Fraction) -> CountMeanSketch:
    widths = [1 << bits for bits in range(1, 5)]  # wider gains below 3 %
    fitting = [width for width in widths if width * Hashed(size, width).functions <= LARGEST_TALLY]
    sketches = [CountMeanSketch(size, width, symmetric(epsilon)) for width in fitting]
    return min(sketches, key=lambda sketch: sketch.variance(1 / size))


def _rappor(size: int, epsilon: Fraction, instantaneous_epsilon: Fraction) -> Rappor:
    """Symmetric coins twice: together they have the odds of ``instantaneous_epsilon``."""
    permanent, both = symmetric(epsilon), symmetric(instantaneous_epsilon)
    stay = Fraction(both.one + permanent.one - DENOMINATOR, 2 * permanent.one - DENOMINATOR)
    one = int(DENOMINATOR * stay)
    return Rappor(size, permanent, Coins(Numerator(one), Numerator(DENOMINATOR - one)))


def _loloha(size: int, epsilon: Fraction, instantaneous_epsilon: Fraction) -> Loloha:
    """Direct response over the buckets twice: together they have the odds of ``instantaneous_epsilon``."""

    def made(hashed: Hashed) -> Loloha:
        buckets = hashed.buckets
        permanent = TwoValued.within(hashed, epsilon).numerator
        both = Fraction(TwoValued.within(hashed, instantaneous_epsilon).numerator, DENOMINATOR)
        kept = Fraction(permanent, DENOMINATOR)
        stay = (both * (buckets - 1) - (1 - kept)) / (kept * buckets - 1)
        return Loloha(hashed, permanent, Numerator(int(DENOMINATOR * stay)))

    candidates = [made(Hashed(size, buckets)) for buckets in prime_powers() if buckets <= _EIGHT_BYTES]
    return min(candidates, key=lambda candidate: candidate.variance(1 / size))
