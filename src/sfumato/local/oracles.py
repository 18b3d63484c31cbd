"""Frequency oracles by name, each made as truthful as its epsilon allows, and the choice by exact variance."""

from __future__ import annotations

import math
from enum import StrEnum
from fractions import Fraction

import numpy as np

from sfumato.arguments import expect
from sfumato.errors import InputError, LossError
from sfumato.local.bits import Coins, Unary
from sfumato.local.bounds import DENOMINATOR, exp_below
from sfumato.local.choice import Choice, Design
from sfumato.local.designs import LARGEST_GEOMETRY, Direct, Hadamard, Projective, points
from sfumato.local.encodings import BucketRun, CountMeanSketch
from sfumato.local.field import prime_powers
from sfumato.local.hashing import LARGEST_TALLY, Hashed
from sfumato.local.memoised import Loloha, Rappor
from sfumato.local.randomizer import FrequencyOracle, variance
from sfumato.local.sketch import HadamardSketch
from sfumato.local.subset import Subset

ORACLES = Choice | Unary | CountMeanSketch | BucketRun | Rappor | Loloha
"""Every frequency oracle: one column of codes, and a report that supports some of them."""


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


_EIGHT_BYTES = 64
_SMALLEST_EIGHT_BYTE_GEOMETRY = 2
_BUCKETS_REPORTED = 8
_THRESHOLDS = 501


def oracle(
    size: int, epsilon: Fraction, method: Method, first_report: Fraction | None
) -> tuple[Method, FrequencyOracle]:
    """The randomizer of a method for ``size`` values, and the method that it is.

    Raises:
        LossError: a first report without a memoised method, missing for one, or not below epsilon.
        InputError: the geometry of PGR would be too large.
    """
    expect(method, Method, "a method is one of sfumato.local.oracles.Method")
    if (first_report is None) == (method in {Method.RAPPOR, Method.LOLOHA}):
        raise LossError("memoised methods, and only they, state the epsilon of a first report")
    if first_report is not None and first_report >= epsilon:
        raise LossError("the epsilon of a first report must be below that of all reports", culprit=first_report)
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
            assert first_report is not None
            return method, _rappor(size, epsilon, first_report)
        case Method.LOLOHA:
            assert first_report is not None
            return method, _loloha(size, epsilon, first_report)
        case _:
            return method, Choice.within(_design(size, epsilon, method), epsilon)


def least_variance(size: int, epsilon: Fraction) -> tuple[Method, FrequencyOracle]:
    """The method of least exact variance at a value of average frequency, of at most eight bytes a report."""
    methods = [Method.GRR, Method.HR, Method.OLH]  # the first of equals wins: GRR where subsets have one element
    methods += [Method.SS] if size <= _EIGHT_BYTES else []
    methods += [Method.PGR] if geometries(size) else []
    candidates = [(method, Choice.within(_design(size, epsilon, method), epsilon)) for method in methods]
    return min(candidates, key=lambda candidate: variance(candidate[1], 1 / size))


def symmetric(epsilon: Fraction) -> Coins:
    """Coins p and 1 - p with odds e^(epsilon / 2) each: symmetric unary encoding (basic RAPPOR)."""
    root = exp_below(epsilon / 2)
    one = int(DENOMINATOR * root / (1 + root))
    return Coins(one, DENOMINATOR - one)


def optimised(epsilon: Fraction) -> Coins:
    """Coins 1/2 and 1 / (e^epsilon + 1): optimised unary encoding (Wang et al. 2017)."""
    return Coins(DENOMINATOR // 2, math.ceil(DENOMINATOR / (1 + exp_below(epsilon))))


def thresholded(epsilon: Fraction, size: int) -> Coins:
    """A histogram with Laplace noise of scale 2 / epsilon, reported as bits above the best threshold.

    The bits alone leak less than the noisy histogram, so integers usually prove a smaller epsilon than claimed.
    """
    half = float(epsilon) / 2
    thresholds = np.linspace(0.5, 1, _THRESHOLDS)
    ones, zeros = 1 - np.exp(half * (thresholds - 1)) / 2, np.exp(-half * thresholds) / 2
    spread = (ones * (1 - ones) + (size - 1) * zeros * (1 - zeros)) / (ones - zeros) ** 2
    best = int(np.argmin(spread))
    return Coins(int(Fraction(float(ones[best])) * DENOMINATOR), math.ceil(Fraction(float(zeros[best])) * DENOMINATOR))


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
    return min(designs, key=lambda design: variance(Choice.within(design, epsilon), 1 / design.inputs))


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
    return min(sketches, key=lambda sketch: variance(sketch, 1 / size))


def _rappor(size: int, epsilon: Fraction, first_report: Fraction) -> Rappor:
    """Symmetric coins twice: together they have the odds of ``first_report``."""
    permanent, both = symmetric(epsilon), symmetric(first_report)
    stay = Fraction(both.one + permanent.one - DENOMINATOR, 2 * permanent.one - DENOMINATOR)
    one = int(DENOMINATOR * stay)
    return Rappor(size, permanent, Coins(one, DENOMINATOR - one))


def _loloha(size: int, epsilon: Fraction, first_report: Fraction) -> Loloha:
    """Direct response over the buckets twice: together they have the odds of ``first_report``."""

    def made(hashed: Hashed) -> Loloha:
        buckets = hashed.buckets
        permanent = Choice.within(hashed, epsilon).numerator
        both = Fraction(Choice.within(hashed, first_report).numerator, DENOMINATOR)
        kept = Fraction(permanent, DENOMINATOR)
        stay = (both * (buckets - 1) - (1 - kept)) / (kept * buckets - 1)
        return Loloha(hashed, permanent, int(DENOMINATOR * stay))

    candidates = [made(Hashed(size, buckets)) for buckets in prime_powers() if buckets <= _EIGHT_BYTES]
    return min(candidates, key=lambda candidate: variance(candidate, 1 / size))
