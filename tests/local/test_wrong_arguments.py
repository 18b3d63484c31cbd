"""Arguments of the wrong kind are refused in one sentence."""

from __future__ import annotations

import pytest

from sfumato.errors import InputError, LossError
from sfumato.local import (
    Distribution,
    Frequency,
    GradedMean,
    HeavyHitters,
    Hiera,
    KeyValue,
    Mean,
    Range,
    Server,
    Several,
    Sharing,
    amplify,
    audit,
    dumps,
)

ODD = (None, "x", [], {"a": 1}, object())
COLOURS = ["red", "green"]
SPEC = Frequency.design(COLOURS, epsilon=1)
LEVELS = {"divisions": (0, 5, 10), "budgets": (2, 1)}

ARGUMENTS = {
    "frequency values": lambda odd: Frequency.design(odd, epsilon=1),
    "frequency method": lambda odd: Frequency.design(COLOURS, epsilon=1, method=odd),
    "mean low": lambda odd: Mean.design(odd, 1, epsilon=1),
    "mean high": lambda odd: Mean.design(0, odd, epsilon=1),
    "range size": lambda odd: Range.design(odd, epsilon=1),
    "range fanout": lambda odd: Range.design(16, epsilon=1, fanout=odd),
    "distribution low": lambda odd: Distribution.design(odd, 1, bins=4, epsilon=1),
    "distribution bins": lambda odd: Distribution.design(0, 1, bins=odd, epsilon=1),
    "heavy bits": lambda odd: HeavyHitters.design(bits=odd, text=False, epsilon=1),
    "key-value keys": lambda odd: KeyValue.design(odd, 0, 1, pairs=1, epsilon=1),
    "key-value low": lambda odd: KeyValue.design(("a", "b"), odd, 1, pairs=1, epsilon=1),
    "key-value pairs": lambda odd: KeyValue.design(("a", "b"), 0, 1, pairs=odd, epsilon=1),
    "hiera divisions": lambda odd: Hiera.design(0, 10, **{**LEVELS, "divisions": odd}),
    "hiera budgets": lambda odd: Hiera.design(0, 10, **{**LEVELS, "budgets": odd}),
    "graded divisions": lambda odd: GradedMean.design(0, 10, **{**LEVELS, "divisions": odd}),
    "graded budgets": lambda odd: GradedMean.design(0, 10, **{**LEVELS, "budgets": odd}),
    "several attributes": lambda odd: Several.design(odd, epsilon=1, sharing=Sharing.SPLIT),
    "several sharing": lambda odd: Several.design({"a": COLOURS, "b": COLOURS}, epsilon=1, sharing=odd),
    "server spec": Server,
    "server reports": lambda odd: Server(SPEC).update(odd),
    "dumps": dumps,
    "audit": audit,
    "amplify spec": lambda odd: amplify(odd, 1000, delta="1e-6"),
    "amplify reports": lambda odd: amplify(SPEC, odd, delta="1e-6"),
}


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
@pytest.mark.parametrize("argument", ARGUMENTS.values(), ids=ARGUMENTS)
def test_arguments_of_the_wrong_kind_are_refused(argument, odd) -> None:
    with pytest.raises(InputError):
        argument(odd)


@pytest.mark.parametrize("epsilon", ["1e-300", "9e-10", 0, "33", "nan"])
def test_an_epsilon_of_which_nothing_can_be_made_is_refused_by_every_kind(epsilon) -> None:
    for design in (
        lambda: Frequency.design(3, epsilon=epsilon),
        lambda: Mean.design(0, 1, epsilon=epsilon),
        lambda: Range.design(4, epsilon=epsilon),
        lambda: Distribution.design(0, 1, bins=4, epsilon=epsilon),
        lambda: HeavyHitters.design(bits=8, text=True, epsilon=epsilon),
    ):
        with pytest.raises(LossError, match="epsilon must be"):
            design()
    assert Frequency.design(3, epsilon="1e-9").epsilon > 0


def test_more_reports_than_can_be_computed_with_are_refused() -> None:
    with pytest.raises(InputError, match="it also holds for more"):
        amplify(Frequency.design(3, epsilon=1), 10**23, "1e-9")
