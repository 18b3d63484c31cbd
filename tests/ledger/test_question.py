from __future__ import annotations

import json
import math
from copy import copy
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ledger.asking import TENTH, question

from sfumato.errors import InputError, LossError
from sfumato.ledger import Question
from sfumato.ledger.entry import Event, Kind
from sfumato.privacy.loss import Epsilon
from sfumato.strict_documents import canonical

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)


@given(values)
def test_the_canonical_spelling_says_the_same_value(value):
    assert json.loads(canonical(value)) == value
    assert canonical(json.loads(canonical(value))) == canonical(value)


@given(st.dictionaries(st.text(), scalars, min_size=2), st.randoms())
def test_the_order_of_parameters_does_not_matter(parameters, random):
    shuffled = list(parameters.items())
    random.shuffle(shuffled)
    assert Question("f", "m", parameters, "v").key == Question("f", "m", dict(shuffled), "v").key


@given(st.dictionaries(st.text(), scalars), st.dictionaries(st.text(), scalars))
def test_keys_agree_exactly_when_questions_do(one, other):
    first, second = Question("f", "m", one, "v"), Question("f", "m", other, "v")
    assert (first.key == second.key) == (canonical(one) == canonical(other))


def test_every_part_of_a_question_decides_its_key():
    parts = ("f", "m", {"a": 1}, "v")
    others = ("g", "n", {"a": 2}, "w")
    keys = {Question(*parts).key}
    for place in range(4):
        keys.add(Question(*(*parts[:place], others[place], *parts[place + 1 :])).key)
    assert len(keys) == 5


def test_a_whole_float_and_an_integer_are_the_same_number():
    assert canonical([1.0, -0.0, 1e16]) == "[1,0,10000000000000000]"


def test_tuples_and_read_only_mappings_are_json_too():
    assert canonical(MappingProxyType({"a": (1, 2)})) == '{"a":[1,2]}'


@pytest.mark.parametrize("value", [math.nan, math.inf, {1: 2}, {1, 2}, b"bytes", object()])
def test_what_json_cannot_say_is_refused(value):
    with pytest.raises(InputError, match="JSON"):
        Question("f", "m", {"value": value}, "v")


def test_a_question_does_not_change_with_the_mapping_it_was_made_from():
    parameters = {"a": [1]}
    asked = Question("f", "m", parameters, "v")
    key = asked.key
    parameters["a"].append(2)
    assert asked.key == key


def test_a_question_survives_its_spelling():
    assert Question.from_json(question(3).to_json) == question(3)


def test_one_question_at_two_charges_is_two_releases():
    def key(charge):
        return Event(Kind.RELEASE, question(), charge, None, "", None).key

    assert len({key(None), key(TENTH), key(Epsilon("0.2").charge)}) == 3


def test_a_negative_charge_is_refused():
    refund = copy(Epsilon("0.1").charge)  # charges are shared, and this one is spoilt
    object.__setattr__(refund, "epsilon", -refund.epsilon)
    with pytest.raises(LossError, match="never negative"):
        Event(Kind.RELEASE, question(), refund, None, "", None)
