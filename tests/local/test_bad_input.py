"""Invalid input is refused in one sentence that names no value."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sfumato.errors import InputError, LossError
from sfumato.local import Client, Distribution, Frequency, HeavyHitters, Hiera, KeyValue, Mean, Range, Several, amplify
from sfumato.local.randomizers.finite_field import ProjectiveGeometry
from sfumato.local.randomizers.local_hashing import LocalHash
from sfumato.local.randomizers.two_valued import DirectResponse, SubsetSelection
from sfumato.local.randomizers.unary_encoding import HadamardSketch
from sfumato.local.specs.frequency import Method
from sfumato.local.specs.graded import Block, GradedMean, PublicLevels
from sfumato.local.specs.hiera import DIVISIONS
from sfumato.local.specs.multi_attribute import NumericBounds, Sharing

MEAN = Mean.design(0, 10, epsilon=1)
COLOURS = Frequency.design(["red", "green"], epsilon=1)
BUDGETS = (5, 4, 3, 2, 1)


def hiera(divisions: tuple[float, ...], budgets: tuple[int, ...] = BUDGETS) -> Hiera:
    return Hiera.design(-1, 1, divisions=divisions, budgets=budgets)


@pytest.mark.parametrize(
    "values",
    [
        np.array([1.0, 10.5]),
        np.array([-0.001]),
        np.array([np.nan]),
        np.array([np.inf]),
        ["5"],
        [None],
        [[1.0]],
        3.0,
        [True],
    ],
    ids=str,
)
def test_numbers_outside_their_range_are_refused(values: object) -> None:
    for spec in (MEAN, Distribution.design(0, 10, bins=4, epsilon=1), hiera_of_ten()):
        with pytest.raises(InputError) as caught:
            Client(spec).randomize_batch(values)
        assert "10.5" not in str(caught.value)


def hiera_of_ten() -> Hiera:
    return Hiera.design(0, 10, divisions=(0, 5, 10), budgets=(2, 1))


@pytest.mark.parametrize(
    "values", [["blue"], ["red", "blue"], [1], [None], [b"red"], ["Red"], ["red "], ["redd"]], ids=str
)
def test_unknown_categories_are_refused(values: object) -> None:
    with pytest.raises(InputError) as caught:
        Client(COLOURS).randomize_batch(values)
    assert "blue" not in str(caught.value)


@pytest.mark.parametrize("values", [[9], [-1], [0.5], ["0"], [np.nan]], ids=str)
def test_unknown_codes_are_refused(values: object) -> None:
    for spec in (Frequency.design(9, epsilon=1), Frequency.design([3, 5], epsilon=1), Range.design(9, epsilon=1)):
        with pytest.raises(InputError):
            Client(spec).randomize_batch(np.array(values))


@pytest.mark.parametrize(
    "make",
    [
        lambda: hiera((-0.9, -0.6, -0.2, 0.2, 0.6, 1)),
        lambda: hiera((-1, -0.6, -0.2, 0.2, 0.6, 0.9)),
        lambda: hiera((-1, -0.2, -0.6, 0.2, 0.6, 1)),
        lambda: hiera((-1, -0.6, -0.6, 0.2, 0.6, 1)),
        lambda: hiera((-1, -0.6, float("nan"), 0.2, 0.6, 1)),
        lambda: hiera(DIVISIONS[:-1]),
        lambda: hiera(DIVISIONS, (1, 2, 3, 4, 5)),
        lambda: hiera(DIVISIONS, (5, 4, 3, 2)),
        lambda: GradedMean.design(-1, 1, divisions=(-0.5, 0, 1), budgets=(2, 1)),
        lambda: Block.design((0, 0), budgets=(1,)),
        lambda: Frequency.design(1, epsilon=1),
        lambda: Frequency.design([], epsilon=1),
        lambda: Frequency.design("abc", epsilon=1),
        lambda: DirectResponse(1),
        lambda: SubsetSelection(4, 4),
        lambda: ProjectiveGeometry(8, 2, 3),
        lambda: ProjectiveGeometry(7, 6, 3),
        lambda: ProjectiveGeometry(7, 10**12, 3),
        lambda: LocalHash(9, 6),
        lambda: LocalHash(9, 10**12),
        lambda: LocalHash(1 << 60, 2),
        lambda: HadamardSketch(9, 6),
        lambda: Frequency.design(["a", "a"], epsilon=1),
        lambda: Frequency.design(["a", 1], epsilon=1),  # type: ignore[list-item]
        lambda: Frequency.design((1 << 20) + 1, epsilon=1),
        lambda: Frequency.design(1 << 15, epsilon=1, method=Method.PGR),
        lambda: Mean.design(1, 1, epsilon=1),
        lambda: Mean.design(0, float("inf"), epsilon=1),
        lambda: Mean.design(-1.7e308, 1.7e308, epsilon=1),
        # squares of these, and what is divided by them, are no floats any more
        lambda: Mean.design(0, 5e-324, epsilon=1),
        lambda: Mean.design(-8e307, 8e307, epsilon=1),
        lambda: Distribution.design(0, 1e-320, bins=4, epsilon=1),
        lambda: KeyValue.design(("a", "b"), 0, 1e300, pairs=1, epsilon=1),
        lambda: Hiera.design(0, 1, divisions=(0, 5e-324, 1), budgets=(2, 1)),
        lambda: Mean.design(0, 10**400, epsilon=1),
        lambda: Hiera.design(0, 10**400, divisions=(0, 10**400), budgets=(1,)),
        lambda: Distribution.design(0, 1, bins=1, epsilon=1),
        lambda: Range.design(1, epsilon=1),
        lambda: Range.design(10, epsilon=1, fanout=1),
        lambda: KeyValue.design((), 0, 1, pairs=1, epsilon=1),
        lambda: KeyValue.design(("a",), 0, 1, pairs=0, epsilon=1),
        lambda: HeavyHitters.design(bits=12, text=True, epsilon=1),
        lambda: HeavyHitters.design(bits=56, text=True, epsilon=1),
        lambda: Several.design({"a": 2}, epsilon=1, sharing=Sharing.SPLIT),
        # the number of the drawn attribute is one byte of a report
        lambda: Several.design({str(name): 2 for name in range(257)}, epsilon=1, sharing=Sharing.SAMPLE),
        lambda: amplify(COLOURS, 1, "1e-6"),
        lambda: amplify(Block.design((0, 1), budgets=(1,)), 100, "1e-6"),
    ],
)
def test_specs_that_make_no_sense_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_losses_that_make_no_sense_are_refused() -> None:
    for make in (
        lambda: Frequency.design(4, epsilon=1, method=Method.RAPPOR),
        lambda: Frequency.design(4, epsilon=1, method=Method.RAPPOR, instantaneous_epsilon=1),
        lambda: Frequency.design(4, epsilon=1, method=Method.GRR, instantaneous_epsilon="0.5"),
        lambda: amplify(COLOURS, 100, 0),
        lambda: amplify(COLOURS, 100, 1),
    ):
        with pytest.raises(LossError):
            make()


def test_columns_of_several_attributes_must_fit() -> None:
    spec = Several.design({"a": 2, "b": NumericBounds(0, 1)}, epsilon=1, sharing=Sharing.SAMPLE)
    for values in (
        {"a": [0]},
        {"a": [0], "b": [0.5], "c": [1]},
        {"a": [0, 1], "b": [0.5]},
        {"a": [2], "b": [0.5]},
        [0],
    ):
        with pytest.raises(InputError):
            Client(spec).randomize_batch(values)


def test_pairs_must_fit() -> None:
    spec = KeyValue.design(("a", "b"), 0, 1, pairs=1, epsilon=1)
    good = (np.array(["a", "b"]), np.array([0.5, 1]), np.array([2, 0]))
    assert len(Client(spec).randomize_batch(good)) == 2
    for place, bad in (
        (0, np.array(["a", "c"])),
        (1, np.array([0.5, 2])),
        (2, np.array([1, 0])),
        (2, np.array([3, -1])),
    ):
        with pytest.raises(InputError):
            Client(spec).randomize_batch(tuple(bad if i == place else part for i, part in enumerate(good)))


def test_texts_of_heavy_hitters_must_fit() -> None:
    spec = HeavyHitters.design(bits=16, text=True, epsilon=1)
    for values in (["abc"], [""], [3], ["a\0"], ["é€"]):
        with pytest.raises(InputError):
            Client(spec).randomize_batch(values)
    with pytest.raises(InputError):
        Client(HeavyHitters.design(bits=16, text=False, epsilon=1)).randomize_batch([1 << 16])


def test_public_levels_must_be_known() -> None:
    spec = PublicLevels.design(0, 1, budgets=(2, 1), independent=True)
    with pytest.raises(InputError):
        Client(spec).randomize_batch((np.array([0.5]), np.array([2])))
