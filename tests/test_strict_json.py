"""Documents mean one thing: keys twice, NaN and nonsense are refused, wherever a document is read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.errors import InputError
from sfumato.strict_json import read_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_what_python_writes_is_read_back(value: object) -> None:
    assert read_json(json.dumps(value)) == value
    assert read_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 1}',
        '[{"b": {"a": 1, "c": 2, "a": 3}}]',
        '{"a": 1, "\\u0061": 2}',
        "NaN",
        "[-Infinity]",
        '{"a": Infinity}',
        "",
        "{",
        "[1,]",
        "[" * 100_000,
        "1" * 5_000,
        b"\xff\xfe\xfa",
    ],
    ids=lambda text: str(text)[:20],
)
def test_what_is_not_one_document_is_refused_in_one_sentence(text: str | bytes) -> None:
    with pytest.raises(InputError) as caught:
        read_json(text, name="the request")
    assert str(caught.value).startswith("the request ")
    assert "\n" not in str(caught.value)
