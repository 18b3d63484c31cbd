"""The claim of every method holds, by its formula, and by enumerating its whole integer probability table."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

from sfumato.errors import InputError, LossError, SizeError
from sfumato.local.guarantees import audit, enumerate_ratio
from sfumato.local.randomizers.longitudinal import Loloha, Rappor
from sfumato.local.randomizers.randomizer import DENOMINATOR, exp_below, proven
from sfumato.local.randomizers.two_valued import DirectResponse, TwoValued
from sfumato.local.randomizers.unary_encoding import BitFlipProbabilities, CountMeanSketch, Unary, symmetric
from sfumato.local.specs.distribution import Distribution, Range
from sfumato.local.specs.frequency import Frequency, Method
from sfumato.local.specs.graded import Block, GradedMean, PublicLevels
from sfumato.local.specs.hiera import DIVISIONS, Hiera
from sfumato.local.specs.key_value import KeyValue
from sfumato.local.specs.mean import Mean, MeanMethod
from sfumato.local.specs.multi_attribute import NumericBounds, Several, Sharing
from sfumato.local.specs.spec import Spec

MEMOISED = (Method.RAPPOR, Method.LOLOHA)
METHODS = [method for method in Method if method not in MEMOISED]


def frequency(method: Method, size: int, epsilon: str) -> Frequency:
    first = Fraction(epsilon) / 2 if method in MEMOISED else None
    return Frequency.design(size, epsilon=epsilon, method=method, instantaneous_epsilon=first)


BUDGETS = (5, 4, 3, 2, 1)
OTHERS: dict[str, Callable[[], Spec]] = {  # designed by the tests: some take a second
    **{f"mean-{m}": partial(Mean.design, -1, 1, epsilon="0.7", method=m) for m in MeanMethod},
    "distribution": lambda: Distribution.design(0, 1, bins=8, epsilon=1),
    "range": lambda: Range.design(8, epsilon=1, fanout=2),
    "key_value": lambda: KeyValue.design(("a", "b", "c"), 0, 1, pairs=2, epsilon="1.5"),
    "several-sample": lambda: Several.design(
        {"a": 2, "b": 3, "c": NumericBounds(0, 1)}, epsilon=1, sharing=Sharing.SAMPLE
    ),
    "several-split": lambda: Several.design({"a": 2, "b": 3}, epsilon=1, sharing=Sharing.SPLIT),
    "hiera": lambda: Hiera.design(-1, 1, divisions=DIVISIONS, budgets=BUDGETS),
    "graded_mean": lambda: GradedMean.design(-1, 1, divisions=DIVISIONS, budgets=BUDGETS),
    "public_levels": lambda: PublicLevels.design(-1, 1, budgets=(2, 1), independent=True),
    "block": lambda: Block.design((0, 1, 3), budgets=(2, 1)),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [2, 3, 6])
@pytest.mark.parametrize("epsilon", ["0.1", "2"])
def test_enumeration_confirms_the_proof_of_every_frequency_method(method: Method, size: int, epsilon: str) -> None:
    spec = frequency(method, size, epsilon)
    found = audit(spec)
    assert found.holds
    if method is Method.CMS:  # sixteen cells are too many to write out; see the test of small sketches
        assert found.enumerated is None
        return
    assert found.enumerated == found.proven
    if spec.method is not Method.THE:  # its bits leak less than the noisy histogram they are cut from
        assert float(found.proven) > 0.999999 * float(epsilon)
    for row in spec.randomizer.rows():
        assert sum(row) == 1


@pytest.mark.parametrize(("size", "width"), [(2, 2), (3, 2), (5, 4)])
def test_enumeration_confirms_the_proof_of_small_sketches(size: int, width: int) -> None:
    sketch = CountMeanSketch(size, width, symmetric(Fraction(1)))
    assert enumerate_ratio(sketch.rows()) == sketch.ratio()


@pytest.mark.parametrize("name", OTHERS)
def test_enumeration_confirms_the_proof_of_every_other_spec(name: str) -> None:
    spec = OTHERS[name]()
    found = audit(spec)
    assert found.holds
    assert found.enumerated == found.proven
    if spec.kind in {"public_levels", "block"}:
        with pytest.raises(SizeError, match="each label"):
            spec.randomizer.rows()
    else:
        assert all(sum(row) == 1 for row in spec.randomizer.rows())


@pytest.mark.parametrize(
    "rows", [[[1, 0], [0, 1]], [["1/2", "1/2", 0], ["1/2", "1/2", 0]], [["1/2", "1/4"], ["1/2", "1/2"]], [["1/2"]]]
)
def test_a_table_that_proves_nothing_is_not_enumerated(rows: list[list[str | int]]) -> None:
    with pytest.raises(InputError, match="proves nothing"):
        enumerate_ratio([[Fraction(chance) for chance in row] for row in rows])


def test_the_permanent_answer_bounds_all_reports_and_the_first_has_its_epsilon() -> None:
    for method in MEMOISED:
        spec = frequency(method, 4, "2")
        assert audit(spec).holds
        randomizer = spec.randomizer
        if isinstance(randomizer, Rappor):
            first = Unary(4, randomizer.first.then(randomizer.second)).ratio()
        else:
            assert isinstance(randomizer, Loloha)
            truth = Fraction(randomizer.first * randomizer.second, DENOMINATOR**2)
            lies = Fraction((DENOMINATOR - randomizer.first) * (DENOMINATOR - randomizer.second), DENOMINATOR**2)
            stay = truth + lies / (randomizer.hashed.buckets - 1)
            first = stay * (randomizer.hashed.buckets - 1) / (1 - stay)
        assert 0.999 < float(proven(first)) <= 1.0000001


def test_whole_tuples_are_neighbours_of_each_other() -> None:
    for sharing in Sharing:
        spec = Several.design({"a": 3, "b": 4}, epsilon=2, sharing=sharing)
        assert spec.randomizer.inputs == 12
        ratio = enumerate_ratio(spec.randomizer.rows())
        assert exp_below(Fraction(199, 100)) < ratio <= exp_below(Fraction(2))


def test_graded_tables_keep_the_smaller_budget_of_every_pair_and_twice_the_smallest() -> None:
    spec = GradedMean.design(-1, 1, divisions=DIVISIONS, budgets=(5, 4, 3, 2, 1))
    rows = spec.randomizer.numerators
    budgets = [budget for budget in spec.budgets for _ in range(5)]
    limits = {budget: exp_below(budget) for budget in spec.budgets}
    for first, one in zip(budgets, rows, strict=True):
        for second, two in zip(budgets, rows, strict=True):
            limit = limits[min(first, second)]
            assert all(a * limit.denominator <= b * limit.numerator for a, b in zip(one, two, strict=True))
    assert spec.epsilon <= 2 * min(spec.budgets)


def test_a_table_that_exceeds_its_claim_is_refused() -> None:
    honest = Frequency.design(4, epsilon=1, method=Method.GRR)
    assert isinstance(honest.randomizer, TwoValued)
    generous = TwoValued(DirectResponse(4), honest.randomizer.numerator + DENOMINATOR // 10**6)
    with pytest.raises(InputError, match="exceeds the epsilon"):
        Frequency(4, Fraction(1), Method.GRR, generous)
    with pytest.raises(InputError, match="exceeds the epsilon"):
        Frequency(4, Fraction(1, 2), Method.OUE, Unary(4, BitFlipProbabilities(DENOMINATOR // 2, DENOMINATOR // 4)))


@pytest.mark.parametrize("epsilon", [0, -1, 800, "32.0001", float("nan"), float("inf"), "much"])
def test_absurd_epsilons_are_refused(epsilon: object) -> None:
    for design in (
        lambda: Frequency.design(4, epsilon=epsilon),  # type: ignore[arg-type]
        lambda: Mean.design(0, 1, epsilon=epsilon),  # type: ignore[arg-type]
        lambda: Hiera.design(-1, 1, divisions=DIVISIONS, budgets=[epsilon] * 5),  # type: ignore[list-item]
    ):
        with pytest.raises(LossError):
            design()


@pytest.mark.parametrize("epsilon", [Fraction(1, 1000), Fraction(1), Fraction(10), Fraction(32)])
def test_the_bound_on_the_exponential_is_below_and_close(epsilon: Fraction) -> None:
    bound = exp_below(epsilon)
    above = 1 / exp_below(-epsilon) if epsilon < 0 else Fraction(np.exp(float(epsilon))) * (1 + Fraction(1, 10**15))
    assert bound < above
    assert proven(bound) <= epsilon
    assert proven(bound * (1 + Fraction(1, 10**9))) > epsilon
