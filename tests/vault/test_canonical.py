"""Equal questions have one spelling, and different ones never share one: a repetition would bring a wrong answer."""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.domain.predicate import All, Among, Any, Not
from sfumato.ledger import Question
from sfumato.privacy.loss import Charge, Epsilon, EpsilonDelta, Rho
from sfumato.vault.measurables import Counting, Distance, Marginal, Weighted, where_json
from sfumato.vault.release import loss_json
from sfumato.vault.scores import AbsoluteErrors, MarginalErrors
from sfumato.vault.unit_measurables import Dropped, Units
from sfumato.vault.value_measurables import Bins, Moments, Positions, RoundNumbers, Sum

NAMES = st.lists(st.sampled_from("ab"), max_size=2, unique=True).map(tuple)
UNITS = st.sampled_from([Fraction(1), Fraction(1, 3), Fraction(1, 2)])
GROUPS = st.sampled_from([None, (None, None), ((0, 0), None), ((0, 1), None), (None, (0, 1))])
CONDITIONS = st.recursive(
    st.builds(Among, st.sampled_from("ab"), st.frozensets(st.integers(0, 2), max_size=2)),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(All, st.lists(inner, max_size=2).map(tuple)),
        st.builds(Any, st.lists(inner, max_size=2).map(tuple)),
    ),
    max_leaves=3,
)
WHERE = st.none() | CONDITIONS
BITS = st.lists(st.booleans(), min_size=2, max_size=2)
COUNTINGS = st.builds(Counting, NAMES, st.lists(BITS, min_size=1, max_size=2).map(lambda rows: np.array(rows, bool)))
INTEGERS = st.lists(st.integers(-1, 1), min_size=1, max_size=2).map(lambda numbers: np.array(numbers, np.int64))
DISTANCES = st.builds(Distance, NAMES, INTEGERS, GROUPS)
EDGES = st.sampled_from([(0.0, 1.0), (0.0, 0.5, 1.0), (0.0, 1.5)])
PARTS = st.lists(UNITS, min_size=1, max_size=2).map(tuple)
KINDS = (
    st.builds(Marginal, NAMES, WHERE, GROUPS),
    COUNTINGS,
    st.builds(Weighted, NAMES, INTEGERS.map(lambda row: row[None])),
    DISTANCES,
    st.builds(Sum, st.sampled_from("ab"), NAMES, UNITS, WHERE),
    st.builds(Moments, st.sampled_from("ab"), NAMES, UNITS, st.integers(1, 2), WHERE),
    st.builds(
        Positions,
        st.sampled_from("ab"),
        UNITS,
        st.lists(st.integers(0, 2), max_size=2).map(tuple),
        st.sampled_from([None, (0, 0), (0, 1), (1, 0)]),
    ),
    st.builds(RoundNumbers, st.sampled_from("ab"), st.sampled_from([(1,), (1, 2), (2,)])),
    st.builds(Units, NAMES, WHERE),
    st.builds(Dropped, st.integers(1, 3), WHERE),
    st.builds(Bins, st.sampled_from("ab"), EDGES, NAMES, WHERE),
    st.builds(AbsoluteErrors, COUNTINGS, INTEGERS),
    st.builds(MarginalErrors, st.lists(DISTANCES, min_size=1, max_size=2).map(tuple), PARTS, PARTS),
)


def meaning(part: object) -> object:
    """A question as nested tuples that are equal where the questions are, parts of conditions in any order."""
    match part:
        case All(parts=parts) | Any(parts=parts):
            return type(part).__name__, tuple(sorted(map(meaning, parts), key=repr))
        case np.ndarray():
            return part.dtype.str, part.shape, part.tolist()
        case tuple():
            return tuple(map(meaning, part))
        case frozenset():
            return tuple(sorted(part))
        case _ if hasattr(part, "__dataclass_fields__"):
            return type(part).__name__, *(meaning(getattr(part, name)) for name in part.__dataclass_fields__)
        case _:
            return part


def key(asked: object) -> str:
    return Question("vault", "measure", {"question": asked.canonical()}, "v").key


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_two_questions_share_a_key_exactly_when_they_mean_the_same(kind, data) -> None:
    left, right = data.draw(kind), data.draw(kind)
    assert (key(left) == key(right)) == (meaning(left) == meaning(right))
    for field in fields(left):  # every part counts separately
        changed = replace(left, **{field.name: getattr(right, field.name)})
        assert (key(left) == key(changed)) == (meaning(left) == meaning(changed)), field.name


@given(st.lists(st.one_of(*KINDS), min_size=2, max_size=2))
def test_questions_of_different_kinds_never_share_a_key(pair) -> None:
    left, right = pair
    assert type(left) is type(right) or key(left) != key(right)


@given(CONDITIONS, CONDITIONS)
def test_the_order_of_parts_does_not_matter_and_their_kind_does(left, right) -> None:
    assert where_json(All((left, right))) == where_json(All((right, left)))
    assert where_json(Any((left, right))) == where_json(Any((right, left)))
    assert where_json(All((left, right))) != where_json(Any((left, right)))
    assert where_json(Not(left)) != where_json(left)


def test_arrays_of_other_shape_or_type_are_other_questions() -> None:
    zeros = [np.zeros(4, np.int64), np.zeros((2, 2), np.int64), np.zeros(4, np.int32), np.zeros(8, np.int32)]
    assert len({key(Distance(("a",), reference)) for reference in zeros}) == len(zeros)
    square = np.arange(4).reshape(2, 2)
    assert key(Weighted(("a",), square)) != key(Weighted(("a",), square.T))
    assert key(Weighted(("a",), square.T)) == key(Weighted(("a",), square.T.copy()))


def test_losses_and_charges_are_told_apart() -> None:
    half = Fraction(1, 2)
    losses = [Epsilon(half), Rho(half), EpsilonDelta(half, "1e-9"), Epsilon("1/3"), Epsilon(0.3333333333333333)]
    charges = [Charge(half, half**2 / 2, Fraction(0)), Charge(None, half, Fraction(0)), Charge(None, half, half)]
    spelled = [str(loss_json(loss)) for loss in (*losses, *charges)]
    assert len(set(spelled)) == len(spelled)
    assert loss_json(Epsilon("0.50")) == loss_json(Epsilon(half))
