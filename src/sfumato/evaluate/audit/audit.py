"""Empirical lower bounds on the loss of a mechanism.  A loss above the claim disproves the claim.

The test is one-sided: a mechanism that fails is not private as claimed, but passing proves nothing.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import expect, expect_all, parse_integer
from sfumato.errors import InputError
from sfumato.evaluate.audit.loss_bounds import Measure, lower_bounds, measure_of
from sfumato.privacy.loss import Loss
from sfumato.strict_documents import read_json

Outputs: TypeAlias = NDArray[np.float64]  # (draws, coordinates)
Draw: TypeAlias = Callable[[int], NDArray[np.number]]
Input = TypeVar("Input")


@dataclass(frozen=True)
class Subject:
    """A mechanism on two neighboring inputs.

    ``first`` and ``second`` take a number of draws and return that many independent outputs, shape ``(draws,)`` or
    ``(draws, coordinates)``.  If Gaussian noise is claimed, ``mu`` is the largest signal-to-noise ratio that the claim
    allows (Dong, Roth, Su 2022).  The audit then uses the sharper test of mu instead of rho.
    """

    name: str
    claim: Loss
    first: Draw
    second: Draw
    mu: float | None = None

    def __post_init__(self) -> None:
        expect(self.name, str, "the name of a Subject is text")
        expect(self.claim, Loss, "a Subject claims a loss: Epsilon(...), EpsilonDelta(..., ...) or Rho(...)")
        if not (callable(self.first) and callable(self.second)):
            raise InputError("a Subject draws outputs by two functions of a number of draws", culprit=self)
        expect(self.mu, int | float | None, "mu is a number, or None")
        if self.mu is not None and not 0 < self.mu <= sys.float_info.max:
            raise InputError("mu is a finite number above zero", culprit=self.mu)


def subject_of(
    function: Callable[[Input], object], neighbours: tuple[Input, Input], *, name: str, claim: Loss
) -> Subject:
    """Return a subject for a Python function of one input.

    Args:
        function: takes an input and returns a number, or a sequence of numbers of fixed length; called once per draw.
        neighbours: two inputs that differ by what the claim protects; include answers of 0 and 1.
        name: the name in reports.
        claim: the claimed loss.

    Raises:
        InputError: the function is not callable, there are not two inputs, or the claim is no loss.
    """
    if not callable(function):
        raise InputError("an audit takes a function of one input", culprit=function)
    if not isinstance(neighbours, tuple | list) or len(neighbours) != 2:  # noqa: PLR2004
        raise InputError("an audit needs a pair of neighboring inputs", culprit=neighbours)
    first, second = neighbours
    return Subject(name, claim, lambda count: _repeat(function, first, count), lambda n: _repeat(function, second, n))


def _repeat(function: Callable[[Input], object], value: Input, count: int) -> NDArray[np.number]:
    try:
        results = [function(value) for _ in range(count)]
    except Exception as error:
        raise InputError(f"the audited callable failed with {type(error).__name__}", culprit=function) from error
    try:
        return np.array(results, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            "an audited callable returns a number, or a sequence of numbers of one length", culprit=function
        ) from None


def outputs(draw: Draw, count: int) -> Outputs:
    """Return ``count`` outputs as numbers, shape ``(count, coordinates)``.

    Raises:
        InputError: the mechanism returned the wrong number of outputs, or values that are not numbers.
    """
    try:
        drawn = np.asarray(draw(count), dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError("a mechanism returns numbers, as many as it is asked for", culprit=draw) from None
    if drawn.shape[:1] != (count,):
        raise InputError(f"a mechanism asked for {count} outputs returned {drawn.shape[:1]}", culprit=draw)
    return drawn.reshape(count, -1)


def _find_callable(name: str) -> Callable[[object], object]:
    """Return the callable ``module:function``.  Modules in the working directory are found too.

    Raises:
        InputError: there is no such callable.
    """
    module, _, path = name.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        target: object = importlib.import_module(module)
        for part in path.split("."):
            target = getattr(target, part)
    except (ImportError, AttributeError, SyntaxError, TypeError, ValueError):
        raise InputError(f"no callable {name!r} to audit; say module:function", culprit=name) from None
    except Exception as error:
        raise InputError(f"the module {module!r} failed with {type(error).__name__}", culprit=name) from error
    finally:
        sys.path.remove(here)
    if not callable(target):
        raise InputError(f"{name!r} cannot be called", culprit=name)
    return target


def subject_from_text(name: str, first: str, second: str, claim: Loss) -> Subject:
    """Return a subject for a user's mechanism, with two neighboring inputs written as JSON.

    Raises:
        InputError: no such callable, or an input that is not JSON.
    """
    try:
        neighbours = read_json(first), read_json(second)
    except InputError:
        raise InputError(
            "write both inputs as JSON, such as 0 and 1, or [1, 2] and [1]", culprit=(first, second)
        ) from None
    return subject_of(_find_callable(name), neighbours, name=name, claim=claim)


_THRESHOLDS = 256  # thresholds tried per score
_ATOMS = 32  # most frequent values tried as separate events


class Side(StrEnum):
    """A comparison of a score with the threshold of an event."""

    AT_MOST = "<="
    ABOVE = ">"
    EQUAL = "="


@dataclass(frozen=True, eq=False)
class OutputEvent:
    """A set of outputs that is likelier on the first input, or on the second if ``reverse``."""

    name: str
    score: Score
    side: Side
    threshold: float
    reverse: bool

    def contains(self, drawn: Outputs) -> NDArray[np.bool_]:
        """Return which outputs are in the event."""
        return _compare(self.score(drawn), self.side, self.threshold)

    def __str__(self) -> str:
        order = "second input against first" if self.reverse else "first input against second"
        return f"{self.name} {self.side} {self.threshold:.6g}, {order}"


def _best_event(first: Outputs, second: Outputs, measure: Measure, *, error: float) -> tuple[OutputEvent, float]:
    """Return the event with the largest lower bound on these outputs, and that bound.

    The event was chosen on these outputs, so a valid bound needs other outputs.
    """
    best, largest = None, -np.inf
    for name, score in scores_for(first, second).items():
        one, two = score(first), score(second)
        for side, thresholds in _candidates(one, two):
            held = [_count(scores, side, thresholds) for scores in (one, two)]
            for reverse in (False, True):
                more, less = (held[1], held[0]) if reverse else (held[0], held[1])
                bounds = lower_bounds(measure, more, less, len(first), error=error)
                place = int(np.argmax(bounds))
                if best is None or bounds[place] > largest:
                    largest = float(bounds[place])
                    best = OutputEvent(name, score, side, float(thresholds[place]), reverse)
    assert best is not None  # the likelihood ratio is always a candidate
    return best, largest


def _candidates(one: ScoreTable, two: ScoreTable) -> Iterator[tuple[Side, ScoreTable]]:
    values, counts = np.unique(np.concatenate([one, two]), return_counts=True)
    spaced = values[np.unique(np.linspace(0, len(values) - 1, _THRESHOLDS).astype(np.intp))]
    yield Side.AT_MOST, spaced
    yield Side.ABOVE, spaced
    yield Side.EQUAL, values[np.argsort(counts)[-_ATOMS:]]


def _count(scores: ScoreTable, side: Side, thresholds: ScoreTable) -> NDArray[np.intp]:
    ascending = np.sort(scores)
    upto = np.searchsorted(ascending, thresholds, side="right")
    match side:
        case Side.AT_MOST:
            return upto
        case Side.ABOVE:
            return np.asarray(len(scores) - upto, dtype=np.intp)
        case Side.EQUAL:
            return np.asarray(upto - np.searchsorted(ascending, thresholds, side="left"), dtype=np.intp)


def _compare(scores: ScoreTable, side: Side, threshold: float) -> NDArray[np.bool_]:
    match side:
        case Side.AT_MOST:
            return np.asarray(scores <= threshold)
        case Side.ABOVE:
            return np.asarray(scores > threshold)
        case Side.EQUAL:
            return np.asarray(scores == threshold)


ScoreTable: TypeAlias = NDArray[np.float64]
Score: TypeAlias = Callable[[Outputs], ScoreTable]

_COORDINATES = 16  # coordinates with a score of their own; all coordinates enter the sum and the likelihood ratio
_BINS = 16  # cells of a coordinate's histogram: few, to avoid overfitting the first half
_ZERO = 4096.0  # exponent reported for zero, above that of every double


def scores_for(first: Outputs, second: Outputs) -> dict[str, Score]:
    """Return scores by name.  The likelihood ratio is fitted on the given outputs."""
    coordinates = range(min(first.shape[1], _COORDINATES))
    scores: dict[str, Score] = {}
    for place in coordinates:
        scores[f"coordinate {place}"] = lambda drawn, place=place: drawn[:, place]  # type: ignore[misc]
        if not _integral(first[:, place], second[:, place]):
            scores[f"lowest bit of coordinate {place}"] = lambda drawn, place=place: (
                lowest_bit(  # type: ignore[misc]
                    drawn[:, place]
                )
                - (drawn[:, place] < 0)
            )  # a shifted sum loses one more bit to rounding below zero
    if first.shape[1] > 1:
        scores["sum of coordinates"] = lambda drawn: drawn.sum(axis=1)
    scores["likelihood ratio"] = likelihood_ratio(first, second)
    return scores


def lowest_bit(values: ScoreTable) -> ScoreTable:
    """Return the exponent of the least significant bit of each double (Mironov 2012); 4096 for zero.

    >>> lowest_bit(np.array([1.0, 0.75, 6.0, 0.0])).tolist()
    [0.0, -2.0, 1.0, 4096.0]
    """
    fraction, exponent = np.frexp(values)
    mantissa = np.abs(fraction * (1 << 53)).astype(np.int64)
    lowest = (mantissa & -mantissa).astype(np.float64)
    place = np.frexp(np.maximum(lowest, 1.0))[1] - 1
    return np.where(values == 0, _ZERO, exponent - 53.0 + place)


def likelihood_ratio(first: Outputs, second: Outputs) -> Score:
    """Return the sum over coordinates of the log ratio of two smoothed histograms with cells of equal mass."""
    edges, logs = [], []
    for one, two in zip(first.T, second.T, strict=True):
        inner = np.unique(np.quantile(np.concatenate([one, two]), np.linspace(0, 1, _BINS + 1)[1:-1]))
        counts = [
            np.bincount(np.searchsorted(inner, side, side="left"), minlength=len(inner) + 1) for side in (one, two)
        ]
        smooth = [(count + 1) / (count.sum() + len(count)) for count in counts]
        edges.append(inner)
        logs.append(np.log(smooth[0]) - np.log(smooth[1]))

    def score(drawn: Outputs) -> ScoreTable:
        total = np.zeros(len(drawn))
        for column, inner, log in zip(drawn.T, edges, logs, strict=True):
            total += log[np.searchsorted(inner, column, side="left")]
        return total

    return score


def _integral(first: ScoreTable, second: ScoreTable) -> bool:
    return bool((first == np.rint(first)).all() and (second == np.rint(second)).all())


FALSE_ALARMS = 1e-3
"""Probability that a whole run rejects at least one mechanism whose claim is true."""
FEWEST_DRAWS = 20
_MOST = 10**9
_ERROR = "the error of an audit is a probability between 0 and 1"


@dataclass(frozen=True)
class Finding:
    """Claimed and proven loss of one mechanism, in the unit ``measure`` (epsilon, rho or mu)."""

    name: str
    measure: str
    claimed: float
    proven: float
    event: str
    draws: int

    @property
    def passed(self) -> bool:
        """True if the outputs are compatible with the claim."""
        return self.proven <= self.claimed


def audit(subject: Subject, *, draws: int, error: float = FALSE_ALARMS) -> Finding:
    """Return a lower bound on the loss of one mechanism.

    The mechanism runs ``draws`` times on each of two neighboring inputs.  The first half of the outputs chooses the
    event that distinguishes the inputs best.  The second half gives the bound, by Clopper-Pearson intervals.  The bound
    exceeds the true loss with probability at most ``error``.

    Raises:
        InputError: fewer than 20 draws, an invalid error probability, or outputs that are not numbers.
    """
    draws = parse_integer(draws, "draws are a whole number")
    _refuse_wrong_error(error)
    if not FEWEST_DRAWS <= draws <= _MOST:
        raise InputError(
            f"an audit needs at least {FEWEST_DRAWS} draws on each input, and at most {_MOST:,}", culprit=draws
        )
    first, second = outputs(subject.first, draws), outputs(subject.second, draws)
    if first.shape != second.shape or not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise InputError(f"{subject.name} returns outputs of different shapes, infinite or NaN", culprit=subject)
    half = draws // 2
    measure = measure_of(subject.claim, subject.mu)
    event, _ = _best_event(first[:half], second[:half], measure, error=error)
    held = [np.array([np.count_nonzero(event.contains(side[half:]))]) for side in (first, second)]
    more, less = reversed(held) if event.reverse else held
    proven = float(lower_bounds(measure, more, less, draws - half, error=error)[0])
    return Finding(subject.name, measure.name, measure.claimed, max(proven, 0.0), str(event), draws)


def audit_all(
    subjects: Sequence[Subject], *, draws: int, error: float = FALSE_ALARMS, watch: Callable[[str], None] | None = None
) -> tuple[Finding, ...]:
    """Audit several mechanisms so that all correct ones pass with probability at least 1 - ``error``.

    The error is split evenly over the subjects (Bonferroni).  ``watch`` receives the name of each subject before it
    starts.

    Raises:
        InputError: an element is no Subject, or ``audit`` refuses its draws or outputs.
    """
    expect_all(subjects, Subject, "an audit takes a list of Subject, such as those of subject_of")
    _refuse_wrong_error(error)
    findings = []
    for subject in subjects:
        if watch is not None:
            watch(subject.name)
        findings.append(audit(subject, draws=draws, error=error / len(subjects)))
    return tuple(findings)


def _refuse_wrong_error(error: float) -> None:
    expect(error, int | float, _ERROR)
    if not 0 < error < 1:
        raise InputError(_ERROR, culprit=error)
