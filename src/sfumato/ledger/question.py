"""What was asked, in one canonical spelling: the same question has the same key, whoever asks it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from sfumato.errors import InputError

JSON: TypeAlias = "bool | int | float | str | Sequence[JSON] | Mapping[str, JSON] | None"


def canonical(value: JSON) -> str:
    """The one JSON spelling of a value: sorted keys, no spaces, whole floats written as integers.

    Raises:
        InputError: something that JSON cannot say (NaN, infinity, a key that is no string, an object).

    >>> canonical({"b": (1.0, 0.5), "a": None})
    '{"a":null,"b":[1,0.5]}'
    """
    return json.dumps(_spelled(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


_ATOMS = frozenset((str, int, bool, type(None)))  # what JSON has one spelling for


def _spelled(value: JSON) -> JSON:
    if type(value) in _ATOMS:  # most are, and matching below takes longer
        return value
    match value:
        case bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return int(value) if value.is_integer() else value
        case Mapping() if all(isinstance(key, str) for key in value):
            return {key: _spelled(item) for key, item in value.items()}
        case list() if _ATOMS.issuperset(map(type, value)):  # the cells of a condition
            return value
        case Sequence() if not isinstance(value, bytes | bytearray):
            return [_spelled(item) for item in value]
        case _:
            raise InputError(f"a question is made of JSON values, and {type(value).__name__} is none", culprit=value)


def digest(value: JSON) -> str:
    """SHA-256 of the canonical spelling, hexadecimal."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


@dataclass(frozen=True)
class Question:
    """A question to one version of one dataset.

    ``parameters`` hold everything that decides what the answer is distributed like, the loss included,
    in canonical form (sorted attributes, a normalised predicate).  They are copied: later changes to the
    mapping that was handed over do not change the question.

    Raises:
        InputError: a parameter that is no JSON value.

    >>> question = Question("query", "count", {"where": None, "epsilon": "1/10"}, "v1")
    >>> question == Question("query", "count", {"epsilon": "1/10", "where": None}, "v1")
    True
    >>> len(question.key)
    64
    """

    family: str
    method: str
    parameters: Mapping[str, JSON]
    dataset_version: str
    _parameters: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_parameters", canonical(self.parameters))
        object.__setattr__(self, "parameters", json.loads(self._parameters))

    def __hash__(self) -> int:
        return hash(self.to_json)

    @classmethod
    def from_json(cls, text: str) -> Question:
        """Read what :attr:`to_json` wrote."""
        return cls(**json.loads(text))

    def of_version(self, dataset_version: str) -> Question:
        """The same question to another version of the data."""
        other = copy(self)  # parameters are canonical already, and never change
        object.__setattr__(other, "dataset_version", dataset_version)
        for name in ("to_json", "key"):
            other.__dict__.pop(name, None)
        return other

    @cached_property
    def to_json(self) -> str:
        """The canonical spelling of the whole question."""
        return (
            f'{{"dataset_version":{canonical(self.dataset_version)},"family":{canonical(self.family)},'
            f'"method":{canonical(self.method)},"parameters":{self._parameters}}}'
        )

    @cached_property
    def key(self) -> str:
        """SHA-256 of :attr:`to_json`, hexadecimal."""
        return hashlib.sha256(self.to_json.encode()).hexdigest()
