"""Reading specs of every kind from JSON."""

from __future__ import annotations

import inspect
from typing import Any

from sfumato.errors import InputError, LossError
from sfumato.local.specs.distribution import Distribution, Range
from sfumato.local.specs.frequency import Frequency
from sfumato.local.specs.graded import Block, GradedMean, PublicLevels
from sfumato.local.specs.heavy_hitters import HeavyHitters
from sfumato.local.specs.hiera import Hiera
from sfumato.local.specs.key_value import KeyValue
from sfumato.local.specs.mean import Mean
from sfumato.local.specs.multi_attribute import Several
from sfumato.local.specs.spec import VERSION, Spec, WrongFormError, canonical, dumps, from_json
from sfumato.strict_json import read_json

_KINDS: dict[str, type[Spec]] = {
    each.kind: each
    for each in (
        *(Frequency, Mean, Distribution, Range, KeyValue, HeavyHitters, Several),
        *(Hiera, GradedMean, PublicLevels, Block),
    )
}
_STATED = frozenset({"sfumato_local", "proven_epsilon", "neighbours"})
_LONGEST = 64 << 20


def loads(text: str) -> Spec:
    """Read a spec, and prove its epsilon again from the integers that it brings.

    Raises:
        InputError: no spec, another version, or a table that does not keep its claim.
    """
    document = read_json(text, name="this is no local spec: it") if len(text) <= _LONGEST else None
    if not isinstance(document, dict) or document.get("sfumato_local") != VERSION:
        raise InputError(f"this is no local spec of version {VERSION}")
    spec = restore(document)
    if dumps(spec) != canonical(document):
        raise InputError("the local spec does not say what its table says: its fields contradict each other")
    return spec


def restore(document: dict[str, Any]) -> Spec:
    """The spec of a document, whatever the document states about it besides.

    Raises:
        InputError: no spec, or a table that does not keep its claim.
    """
    kind = _KINDS.get(str(document.get("kind")))
    if kind is None:
        raise InputError("this is no local spec: there is no such kind")
    stated = _STATED if "epsilon" in inspect.signature(kind).parameters else _STATED | {"epsilon"}
    try:
        return from_json(kind, {key: part for key, part in document.items() if key not in stated})
    except LossError as error:
        raise InputError(f"the local spec is wrong: {error}") from None
    except (WrongFormError, RecursionError, OverflowError):
        raise InputError("this is no local spec: it lacks a field, or a field has the wrong form") from None
