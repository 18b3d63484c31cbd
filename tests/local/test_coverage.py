"""Stated intervals of 95 % hold the shares and means of the people who were asked, at least 95 times in 100.

Every run asks the same people again and looks at one quantity, so runs are independent trials.  The number of misses is
compared with the binomial distribution of one miss in twenty: a spec that keeps its statement fails with probability
below 10^-6, or 10^-4 over all specs and epsilons together.  Means state the variance of people drawn at random from
many, which is more than that of their noise alone, so they may miss less often.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from sfumato.local import (
    Block,
    Distribution,
    Frequency,
    GradedMean,
    HeavyHitters,
    Hiera,
    KeyValue,
    Mean,
    PublicLevels,
    Range,
    Server,
    Several,
    Sharing,
)
from sfumato.local.protocol.device import simulate
from sfumato.local.specs.frequency import Method
from sfumato.local.specs.mean import MeanMethod
from sfumato.local.specs.multi_attribute import NumericBounds
from sfumato.local.specs.spec import Spec

CONFIDENCE = 0.95
ALARM = 1e-6
EPSILONS = ("0.5", "3", "10")
PEOPLE = 2_000
RANDOM = np.random.default_rng(17)

CELLS = np.repeat(np.arange(16), np.array([24, 12, 8, 8, *[4] * 12]) * PEOPLE // 100)
UNIT = np.clip(RANDOM.normal(0.3, 0.4, PEOPLE), -1, 1)
LEVELS = RANDOM.integers(0, 2, PEOPLE)
DIVISIONS = (-1.0, 0.0, 1.0)
WORDS = np.array(["aa", "bb", *(f"{n:02d}" for n in range(40))], dtype=object)
TEXTS = WORDS[np.repeat(np.arange(42), [6400, 3200, *[160] * 40])]  # enough for every run to find the first
KEYS = np.where(RANDOM.random(PEOPLE) < 0.3, 0, RANDOM.integers(1, 4, PEOPLE))


@dataclass(frozen=True)
class Case:
    """A spec for an epsilon, the people it asks, what is looked at, and the truth about them."""

    design: Callable[[str], Spec]
    people: Any
    labels: dict[str, float]


def share(values: np.ndarray, cell: object) -> float:
    return float(np.mean(values == cell))


def frequency(method: Method) -> Callable[[str], Spec]:
    memoized = method in {Method.RAPPOR, Method.LOLOHA}
    return lambda e: Frequency.design(16, epsilon=e, method=method, instantaneous_epsilon="0.3" if memoized else None)


def mean(method: MeanMethod) -> Callable[[str], Spec]:
    return lambda e: Mean.design(-1, 1, epsilon=e, method=method)


def several(sharing: Sharing) -> Callable[[str], Spec]:
    return lambda e: Several.design({"a": 16, "b": NumericBounds(-1, 1)}, epsilon=e, sharing=sharing)


CELL_SHARES = {str(cell): share(CELLS, cell) for cell in (0, 1, 15)}
OVERALL = {"mean": float(UNIT.mean())}
BOTH = {"a: 0": share(CELLS, 0), "a: 15": share(CELLS, 15), "b: mean": OVERALL["mean"]}
TABLE = {"a": CELLS, "b": UNIT}
CASES = {
    **{f"frequency {m.value}": Case(frequency(m), CELLS, CELL_SHARES) for m in Method},
    **{f"mean {m.value}": Case(mean(m), UNIT, OVERALL) for m in MeanMethod},
    "distribution": Case(
        lambda e: Distribution.design(-1, 1, bins=4, epsilon=e),
        UNIT,
        {"[0, 0.5)": float(np.mean((UNIT >= 0) & (UNIT < 0.5))), "[-1, -0.5)": float(np.mean(UNIT < -0.5))},
    ),
    "range": Case(lambda e: Range.design(16, epsilon=e), CELLS, CELL_SHARES),
    "sampled attributes": Case(several(Sharing.SAMPLE), TABLE, BOTH),
    "split attributes": Case(several(Sharing.SPLIT), TABLE, BOTH),
    "key value": Case(
        lambda e: KeyValue.design(4, -1, 1, pairs=1, epsilon=e),
        (KEYS, UNIT, np.ones(PEOPLE, dtype=int)),
        {"0: share": share(KEYS, 0), "0: mean": float(UNIT[KEYS == 0].mean()), "3: share": share(KEYS, 3)},
    ),
    "hiera": Case(lambda e: Hiera.design(-1, 1, divisions=DIVISIONS, budgets=(e, e)), UNIT, OVERALL),
    "graded mean": Case(lambda e: GradedMean.design(-1, 1, divisions=DIVISIONS, budgets=(e, e)), UNIT, OVERALL),
    "public levels": Case(
        lambda e: PublicLevels.design(-1, 1, budgets=(e, e), independent=False), (UNIT, LEVELS), OVERALL
    ),
    "independent levels": Case(
        lambda e: PublicLevels.design(-1, 1, budgets=(e, e), independent=True), (UNIT, LEVELS), OVERALL
    ),
    "block": Case(lambda e: Block.design(DIVISIONS, budgets=(e, e)), UNIT, OVERALL),
    "heavy hitters": Case(
        lambda e: HeavyHitters.design(bits=16, text=True, epsilon=e), TEXTS, {"aa": share(TEXTS, "aa")}
    ),
}
SAMPLED = ("range", "sampled attributes", "heavy hitters")


def misses(case: Case, spec: Spec, runs: int) -> dict[str, tuple[int, int]]:
    """Return, per label, how many runs estimated it and how many of their intervals missed the truth."""
    found = {label: [0, 0] for label in case.labels}
    for seed in range(runs):
        server = Server(spec)
        server.update(simulate(spec, case.people, seed=seed))
        made = server.find(most=4) if isinstance(spec, HeavyHitters) else server.estimate()
        low, high = made.interval(CONFIDENCE)
        for label, truth in case.labels.items():
            if label in made.labels:
                place = made.labels.index(label)
                found[label][0] += 1
                found[label][1] += not low[place] <= truth <= high[place]
    return {label: (tried, missed) for label, (tried, missed) in found.items()}


def too_many(tried: int, missed: int) -> bool:
    return bool(binom.sf(missed - 1, tried, 1 - CONFIDENCE) < ALARM)


def covers(name: str, epsilon: str, runs: int) -> None:
    case = CASES[name]
    for label, (tried, missed) in misses(case, case.design(epsilon), runs).items():
        assert tried == runs
        assert not too_many(tried, missed), f"{label}: {missed} of {tried} intervals miss the truth"


def test_the_judge_tells_a_stated_95_from_80_percent() -> None:
    """The power of the slow tests; where every fifth interval misses, 300 runs nearly always say so."""
    caught = [too_many(300, missed) for missed in range(301)]
    assert float(binom.pmf(np.arange(301), 300, 0.2) @ caught) > 0.99
    assert float(binom.pmf(np.arange(301), 300, 0.05) @ caught) < ALARM


@pytest.mark.parametrize("name", SAMPLED)
def test_intervals_of_what_some_report_count_who_was_drawn(name: str) -> None:
    covers(name, "10", runs=60)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", CASES)
def test_intervals_cover_what_they_state(name: str, epsilon: str) -> None:
    covers(name, epsilon, runs=100 if name == "heavy hitters" else 300)
