"""A wrong domain is refused with the place and a form that is right."""

from __future__ import annotations

import pytest
import yaml

from sfumato.domain.document import parse, schema
from sfumato.errors import DomainError

AGE = {"type": "integer", "minimum": 0, "maximum": 99, "unknown": "clamp"}


@pytest.mark.parametrize(
    ("unit", "attribute", "place", "example"),
    [
        ({"column": "pid"}, AGE, "unit", "{id: patient, rows: 3}"),
        ("row", {"type": "date", "first": "2020-01-01", "last": "2020-12-31"}, "attributes.x", "by: month"),
        ("row", {"type": "integer", "minimum": 0, "unknown": "clamp"}, "attributes.x", "maximum: 120"),
        ("row", {"minimum": 0}, "attributes.x", "type: integer"),
    ],
)
def test_the_message_shows_a_form_that_is_right(unit, attribute, place, example):
    with pytest.raises(DomainError) as refused:
        parse({"sfumato": 1, "unit": unit, "attributes": {"x": attribute}})
    assert str(refused.value).startswith(f"the domain is wrong at {place}: ")
    assert example in str(refused.value)
    assert "given schemas" not in str(refused.value)


def test_every_example_is_accepted():
    for unit in schema()["properties"]["unit"]["examples"]:
        parse({"sfumato": 1, "unit": unit, "attributes": {"x": AGE}})
    for kind in ("date", "timestamp", "categorical", "integer", "real"):
        for attribute in schema()["$defs"][kind]["examples"]:
            parse(yaml.safe_load(yaml.safe_dump({"sfumato": 1, "unit": "row", "attributes": {"x": attribute}})))
