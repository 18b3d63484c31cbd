"""The interface of specs, frozen agreements that client and server both read, and their JSON form.

A document states version, claim, proven epsilon and neighboring values, and contains the exact integer table.  The
declared types of the fields alone decide its content.  A part of an undeclared kind is refused, in a document and in
Python.
"""

from __future__ import annotations

import hashlib
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from enum import StrEnum
from fractions import Fraction
from inspect import isabstract
from types import UnionType
from typing import Any, ClassVar, Protocol, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from sfumato.arguments import expect
from sfumato.bounded_cache import cached
from sfumato.errors import InputError
from sfumato.local.estimators import Estimate, Post
from sfumato.local.randomizers.randomizer import (
    DENOMINATOR,
    InputCodes,
    Numerator,
    Randomizer,
    Tally,
    claimed,
    exp_below,
    proven,
)
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.loss import exact, plain

VERSION = 1

P = TypeVar("P", bound="SpecPart")


class SpecPart(Protocol):
    """A dataclass that occurs in documents, as a spec or as a part of one.

    Attributes:
        kind: its name in documents; empty if the type of its field identifies it.
    """

    kind: ClassVar[str]


class Spec(ABC):
    """A question to a population, its randomizer and its guarantee.

    Attributes:
        kind: its name in documents.
        neighbours: the change of one person's value that ``epsilon`` is about.
        claims: true if epsilon is a claim to check, false if it is computed from the table.
        discloses_labels: true if reports carry a public label.  Values are then protected within a label only.
        epsilon: the loss of every report.
        randomizer: the channel with its integer probabilities.
    """

    kind: ClassVar[str]
    neighbours: ClassVar[str]
    claims: ClassVar[bool] = True
    discloses_labels: ClassVar[bool] = False
    epsilon: Fraction
    randomizer: Randomizer

    def __post_init__(self) -> None:
        """Refuse parts of kinds without a proof, and a table that exceeds its claim.

        Raises:
            InputError: a part or the table is refused.
            LossError: the claim is outside [1e-9, 32].
        """
        _check_kinds(self)
        self._check()
        if self.claims and self.randomizer.ratio() > exp_below(claimed(self.epsilon)):
            raise InputError("the probability table exceeds the epsilon that the spec claims", culprit=self)

    @abstractmethod
    def _check(self) -> None:
        """Refuse fields that contradict each other, and set derived attributes."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the estimated quantities."""
        return ("mean",)

    @abstractmethod
    def encode(self, values: Any, entropy: Entropy) -> InputCodes:  # noqa: ANN401 -- each spec states its values
        """Encode values, and refuse values that the spec does not know.  Some specs round at random."""

    @abstractmethod
    def estimate(self, tally: Tally, reports: int, post: Post) -> Estimate:
        """Estimate from the tally of ``reports`` reports.

        Raises:
            InputError: there are too few reports, or the spec does not offer the post-processing.
        """


def describe(spec: Spec) -> dict[str, Any]:
    """Return a spec as plain JSON."""
    return {
        "sfumato_local": VERSION,
        "epsilon": plain(spec.epsilon),
        "proven_epsilon": plain(proven(spec.randomizer.ratio())),
        "neighbours": spec.neighbours,
        **_body(spec),
    }


def canonical(document: object) -> str:
    """Return the canonical JSON text of a document, the input of its hash."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def dumps(spec: Spec) -> str:
    """Return a spec as canonical JSON; :func:`sfumato.local.loads` reads it back to an equal spec."""
    expect(spec, Spec, "a spec is what a design returns, such as Frequency.design(...)")
    return canonical(describe(spec))


@cached()  # uncached, estimating 256 bins takes 1.14 times the CPU
def fingerprint(spec: Spec) -> str:
    """Return the hexadecimal SHA-256 of the canonical text, which reports and states carry."""
    return hashlib.sha256(dumps(spec).encode()).hexdigest()


class WrongFormError(Exception):
    """The document does not fit the declared types."""


def _check_kinds(value: object) -> None:
    for name, _, hint in _fields(type(value)):
        if not _admits(hint, getattr(value, name)):
            raise InputError(f"{type(value).__name__} takes another kind of {name}", culprit=value)


def _body(value: SpecPart) -> dict[str, Any]:
    body = {key: _written(hint, getattr(value, name)) for name, key, hint in _fields(type(value))}
    return {"kind": value.kind, **body} if value.kind else body


def _written(hint: Any, value: Any) -> Any:  # noqa: ANN401 -- a type, and JSON
    match value:
        case Fraction():
            return plain(value)
        case StrEnum():
            return value.value
        case tuple():
            inner = next(each for each in _choices(hint) if get_origin(each) is tuple)
            return [_written(get_args(inner)[0], each) for each in value]
        case _ if is_dataclass(value):
            return _body(cast("SpecPart", value))
        case _:
            return str(value) if hint is Numerator else value


def from_json(kind: type[P], document: dict[str, Any]) -> P:
    """Read a dataclass from a document with exactly its fields.

    Raises:
        WrongFormError: the fields differ, or a field does not fit its type.
    """
    declared = _fields(kind)
    named = {"kind"} if kind.kind else set[str]()
    if set(document) != {key for _, key, _ in declared} | named:
        raise WrongFormError
    return kind(*(_read(hint, document[key]) for _, key, hint in declared))


def _read(hint: Any, document: Any) -> Any:  # noqa: ANN401 -- a type, and JSON
    for each in _choices(hint):
        value = _read_as(each, document)
        if _admits(each, value):
            return value
    raise WrongFormError


def _read_as(hint: Any, document: Any) -> Any:  # noqa: ANN401 -- a type, and JSON
    """Read a value of the type if possible.  The caller checks the result."""
    if get_origin(hint) is tuple and isinstance(document, list):
        inner = get_args(hint)[0]
        # _admits checks each plain value
        return tuple(document) if inner in (str, int, float) else tuple(_read(inner, each) for each in document)
    if hint is Numerator and isinstance(document, str) and document.isascii() and document.isdigit():
        return int(document) if len(document) <= len(str(DENOMINATOR)) else None
    if hint is Fraction and isinstance(document, str):
        return exact(document, name="epsilon")
    if isinstance(hint, type) and issubclass(hint, StrEnum) and isinstance(document, str):
        return next((each for each in hint if each.value == document), None)
    if isinstance(hint, type) and isinstance(document, dict):
        kind = next((each for each in _kinds(hint) if each.kind == document.get("kind", "")), None)
        return None if kind is None else from_json(kind, document)
    return document


def _admits(hint: Any, value: object) -> bool:  # noqa: ANN401 -- a type
    if get_origin(hint) in (Union, UnionType):
        return any(_admits(each, value) for each in get_args(hint))
    if get_origin(hint) is tuple:
        inner = get_args(hint)[0]
        return isinstance(value, tuple) and all(_admits(inner, each) for each in value)
    if hint is float:
        return type(value) is float or (type(value) is int and abs(value) <= sys.float_info.max)
    if hint in (int, Numerator):
        return type(value) is int
    return isinstance(value, hint)


def _choices(hint: Any) -> tuple[Any, ...]:  # noqa: ANN401 -- a type
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _kinds(base: type[Any]) -> Iterator[type[SpecPart]]:
    """Yield the dataclasses of a type: the type, or those derived from it."""
    if is_dataclass(base) and not isabstract(base):
        yield cast("type[SpecPart]", base)
    for each in base.__subclasses__():
        yield from _kinds(each)


_KNOWN: dict[type[Any], tuple[tuple[str, str, Any], ...]] = {}


def _fields(kind: type[Any]) -> tuple[tuple[str, str, Any], ...]:
    """Return name, name in documents, and type of the fields of a dataclass that are not derived."""
    if kind not in _KNOWN:
        hints = get_type_hints(kind)
        given = (each for each in fields(kind) if each.init)
        _KNOWN[kind] = tuple((each.name, each.metadata.get("name", each.name), hints[each.name]) for each in given)
    return _KNOWN[kind]
