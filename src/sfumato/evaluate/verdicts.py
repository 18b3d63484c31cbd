"""Verdicts on a release, in words, from the figures of its evaluation and public thresholds.

A verdict is always shown with its figure and its thresholds.  A figure from too few rows gets no verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sfumato.errors import percent
from sfumato.evaluate.evaluation_result import EvaluationResult
from sfumato.evaluate.frontier import BASELINES, CEILING, FLOOR, RAW, baseline
from sfumato.evaluate.intervals import Advantage
from sfumato.evaluate.utility.scorecard import rescaled

if TYPE_CHECKING:
    from sfumato.evaluate.linked.linked_evaluation import LinkedResult

THRESHOLD_SET = "default set 1"
"""Name of the thresholds below, which pages show."""
FEWEST_ATTACKED = 160
"""Members, and as many others, below which an attack is not judged."""
FEWEST_ROWS = 1000
"""Members below which a change of an association is not judged: chance alone changes it."""
WEAK_GUARANTEE = 0.9
"""Largest chance of a right guess up to which a guarantee is not called weak."""
_NO_LIMIT = 0.995  # limits of attacks from here on read "1.00", and exclude nothing
_SUREST = 0.02  # largest standard error of a learner's score that is judged


class Verdict(StrEnum):
    """A verdict on the accuracy of a release for one kind of question, or on one attack."""

    GOOD = "Good"
    WITH_CARE = "Usable with care"
    NOT_FOR_USE = "Not for use"
    UNKNOWN = "Cannot be judged"
    NO_LEAK = "No leak found"
    LEAK = "Leak found"
    BROKEN = "Promise broken"


_ORDER = (Verdict.GOOD, Verdict.NO_LEAK, Verdict.UNKNOWN, Verdict.WITH_CARE, Verdict.LEAK, Verdict.NOT_FOR_USE)
_OF_ACCURACY = (Verdict.GOOD, Verdict.WITH_CARE, Verdict.NOT_FOR_USE)
_OF_RISK = (Verdict.NO_LEAK, Verdict.LEAK, Verdict.BROKEN)


@dataclass(frozen=True)
class Threshold:
    """The largest figure that is good, and the largest that can be used with care; the unit is a share."""

    question: str
    good: float
    with_care: float

    def verdict(self, figure: float) -> Verdict:
        """Return the verdict on a figure.

        >>> Threshold("Counts by one column", 0.02, 0.05).verdict(0.03)
        <Verdict.WITH_CARE: 'Usable with care'>
        """
        if math.isnan(figure):
            return Verdict.UNKNOWN
        if figure <= self.good:
            return Verdict.GOOD
        return Verdict.WITH_CARE if figure <= self.with_care else Verdict.NOT_FOR_USE


COLUMN = Threshold("Counts by one column", 0.02, 0.05)
PAIRS = Threshold("Any two columns, mean", 0.2, 0.6)
WORST_PAIR = Threshold("The worst two columns", 0.2, 0.3)
ASSOCIATION = Threshold("Change of association", 0.15, 0.3)
LEARNER = Threshold("Predicting", 0.02, 0.05)


@dataclass(frozen=True)
class Judgement:
    """A question about a release, the figure that answers it, what it is compared with, and the verdict.

    A judged attack has its 95 % ``interval``, and its ``limit`` if one is known.
    """

    question: str
    figure: str
    compared_with: str
    verdict: Verdict
    is_risk: bool = False
    interval: tuple[float, float] | None = None
    limit: float | None = None

    @property
    def is_limited(self) -> bool:
        """Whether a guarantee excludes some success of this attack."""
        return self.limit is not None and self.limit < _NO_LIMIT

    def to_json(self) -> dict[str, Any]:
        """Return the judgment as JSON values; :meth:`from_json` reads them."""
        attack = {} if self.interval is None else {"interval": list(self.interval), "limit": self.limit}
        return {
            "question": self.question,
            "this_release": self.figure,
            "to_compare_with": self.compared_with,
            "verdict": self.verdict.value,
            "is_risk": self.is_risk,
            **attack,
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Judgement:
        """Return the judgment that ``to_json`` wrote.

        Raises:
            KeyError, TypeError, ValueError: a field is missing, the verdict is none or contradicts the rest, or an
                interval has no two numbers.
        """
        question, figure, compared = (str(value[name]) for name in ("question", "this_release", "to_compare_with"))
        judgement = Judgement(question, figure, compared, Verdict(value["verdict"]), is_risk=bool(value["is_risk"]))
        if judgement.verdict in (_OF_ACCURACY if judgement.is_risk else _OF_RISK):
            raise ValueError("an attack has another kind of verdict than a question about accuracy")
        if value.get("interval") is None:
            return judgement
        low, high = map(float, value["interval"])
        limit = None if value.get("limit") is None else float(value["limit"])
        if not all(-1 <= number <= 1 for number in (low, high, limit or 0.0)):  # also refuses NaN
            raise ValueError("advantages of attacks lie between -1 and 1")
        if judgement.verdict is Verdict.NO_LEAK and low > 0:
            raise ValueError("an attack whose whole interval lies above 0 found a leak")
        return replace(judgement, interval=(low, high), limit=limit)


def accuracy_verdicts(result: EvaluationResult, results: Sequence[EvaluationResult]) -> tuple[Judgement, ...]:
    """Return the verdicts on the accuracy of a release.

    Args:
        result: the release.
        results: all results of the same evaluation, with the baselines.
    """
    verdicts = [_columns(result)]
    floor, ceiling = baseline(results, FLOOR), baseline(results, CEILING)
    if len(result.attributes) > 1:
        verdicts += [] if floor is None else [_pairs(result, floor, ceiling)]
        verdicts += [_worst_pair(result), _association(result, results)]
    raw = baseline(results, RAW)
    if result.learning is not None and raw is not None and raw.learning is not None:
        verdicts.append(_learner(result, raw))
    return tuple(verdicts)


def risk_verdicts(result: EvaluationResult | LinkedResult) -> tuple[Judgement, ...]:
    """Return the verdict on each attack: whether its 95 % interval covers 0, and whether it passes the limit."""
    return tuple(map(_attack, result.attacks))


def judged(results: Sequence[EvaluationResult]) -> dict[str, tuple[Judgement, ...]]:
    """Return the verdicts on each release of an evaluation by its name, accuracy before risk; baselines have none."""
    releases = [each for each in results if each.family != BASELINES]
    return {each.name: (*accuracy_verdicts(each, results), *risk_verdicts(each)) for each in releases}


def worst(judgements: Sequence[Judgement]) -> Verdict:
    """Return the worst verdict; never a mean."""
    places = [_ORDER.index(each.verdict) if each.verdict in _ORDER else len(_ORDER) for each in judgements]
    return judgements[places.index(max(places))].verdict if places else Verdict.UNKNOWN


def _columns(result: EvaluationResult) -> Judgement:
    pairs = ((name, released, result.real_columns.get(name, ())) for name, released in result.columns.items())
    gaps = [
        (max(abs(one - other) for one, other in zip(released, real, strict=True)), name)
        for name, released, real in pairs
        if real
    ]
    gap, name = max(gaps, default=(math.nan, ""))
    figure = "not measured" if math.isnan(gap) else f"at most {percent(gap)} of rows off: {name}"
    return Judgement(COLUMN.question, figure, f"good up to {percent(COLUMN.good)} of rows", COLUMN.verdict(gap))


def _pairs(result: EvaluationResult, floor: EvaluationResult, ceiling: EvaluationResult | None) -> Judgement:
    figure, low = f"{percent(result.marginals[1])} of rows in the right cell", floor.marginals[1]
    if ceiling is None:
        compared = f"{percent(low)} unrelated columns; needs a holdout"
        return Judgement(PAIRS.question, figure, compared, Verdict.UNKNOWN)
    high = ceiling.marginals[1]
    compared = f"{percent(low)} unrelated columns, {percent(high)} other people"
    if high <= low:
        return Judgement(PAIRS.question, figure, f"{compared}: the holdout is too small", Verdict.UNKNOWN)
    lost = 1 - rescaled(result.marginals[1], floor=low, ceiling=high)
    return Judgement(PAIRS.question, figure, compared, PAIRS.verdict(lost))


def _worst_pair(result: EvaluationResult) -> Judgement:
    distance, first, second = result.worst_pair
    figure = f"{percent(distance)} in the wrong cell: {first} \N{MULTIPLICATION SIGN} {second}"
    return Judgement(
        WORST_PAIR.question, figure, f"good up to {percent(WORST_PAIR.good)}", WORST_PAIR.verdict(distance)
    )


def _association(result: EvaluationResult, results: Sequence[EvaluationResult]) -> Judgement:
    change, first, second = result.association_gap
    floor = baseline(results, FLOOR)
    unrelated = "" if floor is None else f"{floor.association_gap[0]:.2f} unrelated columns; "
    samples = result.samples
    members = (samples.get("members tested by attacks") or samples["rows of the table"])[1]
    figure = f"at most {change:.3f}: {first} \N{MULTIPLICATION SIGN} {second}"
    compared = f"{unrelated}good up to {ASSOCIATION.good}"
    if members < FEWEST_ROWS:
        return Judgement(ASSOCIATION.question, figure, f"needs {FEWEST_ROWS:,} rows", Verdict.UNKNOWN)
    return Judgement(ASSOCIATION.question, figure, compared, ASSOCIATION.verdict(change))


def _learner(result: EvaluationResult, raw: EvaluationResult) -> Judgement:
    assert result.learning is not None
    assert raw.learning is not None
    target, measure, score = result.learning
    question = f"{LEARNER.question} {target}"
    figure, compared = f"{measure} {score:.3f}", f"{raw.learning[2]:.3f} from the real rows; good within {LEARNER.good}"
    if result.standard_errors.get("learner", 0.0) > _SUREST:
        return Judgement(question, figure, f"its standard error is above {_SUREST}", Verdict.UNKNOWN)
    return Judgement(question, figure, compared, LEARNER.verdict(raw.learning[2] - score))


def _attack(result: Advantage) -> Judgement:
    interval = result.interval
    figure = f"{interval.low:+.3f} to {interval.high:+.3f}"
    compared = "no known limit" if result.bound is None else f"limit {result.bound:.2f}"
    if result.bound is not None and result.bound >= _NO_LIMIT:
        compared += ", which excludes no attack"
    if result.bound is not None and interval.low > result.bound:
        verdict = Verdict.BROKEN
    elif result.members.trials < FEWEST_ATTACKED:
        compared = f"needs {FEWEST_ATTACKED} people of each kind, tested {result.members.trials}"
        verdict = Verdict.UNKNOWN
    else:
        verdict = Verdict.LEAK if interval.low > 0 else Verdict.NO_LEAK
    ends = (interval.low, interval.high)
    name = result.attack.capitalize()
    return Judgement(name, figure, compared, verdict, is_risk=True, interval=ends, limit=result.bound)
