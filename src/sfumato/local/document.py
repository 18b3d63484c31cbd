"""Specs as JSON: version, claim, proven epsilon, neighbours, and the exact integer table; and their hash."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from enum import StrEnum
from fractions import Fraction
from functools import cache
from typing import Any, cast

from sfumato.arguments import expect
from sfumato.errors import InputError, LossError
from sfumato.local.bounds import proven
from sfumato.local.randomizer import Randomizer
from sfumato.local.spec import Spec
from sfumato.privacy.loss import plain
from sfumato.strict_json import read_json

VERSION = 1

Document = dict[str, Any]

_LONGEST = 64 << 20


def describe(spec: Spec) -> Document:
    """A spec as plain JSON; numerators are decimal strings, as JSON readers round large integers."""
    return {
        "sfumato_local": VERSION,
        "kind": spec.kind,
        "epsilon": plain(spec.epsilon),
        "proven_epsilon": plain(proven(spec.randomizer.ratio())),
        "neighbours": spec.neighbours,
        **_body(spec),
    }


def dumps(spec: Spec) -> str:
    """The canonical JSON text of a spec; :func:`loads` reads it back to an equal spec."""
    expect(spec, Spec, "a spec is what a design returns, such as Frequency.design(...)")
    return json.dumps(describe(spec), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


@cache
def fingerprint(spec: Spec) -> str:
    """SHA-256 of the canonical text, hexadecimal: what reports and states carry."""
    return hashlib.sha256(dumps(spec).encode()).hexdigest()


def loads(text: str) -> Spec:
    """Read a spec, and prove its epsilon again from the integers that it brings.

    Raises:
        InputError: no spec, another version, or a table that does not keep its claim.
    """
    from sfumato.local.parsing import parse_spec  # every kind of spec: a client that makes its own needs one only

    try:
        document = read_json(text, name="this is no local spec: it") if len(text) <= _LONGEST else None
        if not isinstance(document, dict) or document.get("sfumato_local") != VERSION:
            raise InputError(f"this is no local spec of version {VERSION}")
        spec = parse_spec(document)
        same = dumps(spec) == json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    except LossError as error:
        raise InputError(f"the local spec is wrong: {error}") from None
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
        IndexError,
        AssertionError,
        RecursionError,
        ZeroDivisionError,
    ):
        raise InputError("this is no local spec: it lacks a field, or a field has the wrong form") from None
    if not same:
        raise InputError("the local spec does not say what its table says: its fields contradict each other")
    return spec


def _body(spec: Spec) -> Document:
    """The fields of a spec beyond those that all have, in the order in which it declares them."""
    names = (each.name for each in fields(cast("Any", spec)))  # every spec is a dataclass
    return {name: _field(getattr(spec, name)) for name in names if name != "epsilon"}


def _field(value: object) -> Any:  # noqa: ANN401 -- JSON
    match value:
        case Fraction():
            return plain(value)
        case StrEnum():
            return value.value
        case Spec():
            return {"kind": value.kind, "epsilon": plain(value.epsilon), **_body(value)}
        case tuple():
            return [_field(each) for each in value]
        case str() | int() | float():
            return value
        case _:
            return cast("Randomizer", value).describe()
