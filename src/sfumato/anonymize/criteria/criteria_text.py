"""Criteria as text, for the command line, the journal and saved recodings: ``t-closeness:t=0.2,sensitive=class``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from fractions import Fraction
from typing import Any

from sfumato.anonymize.criteria.closeness import (
    BasicBetaLikeness,
    DeltaDisclosure,
    EnhancedBetaLikeness,
    GroundDistance,
    TCloseness,
)
from sfumato.anonymize.criteria.criterion import Criterion, DeltaPresence, KAnonymity, KMap
from sfumato.anonymize.criteria.diversity import AlphaK, DistinctDiversity, EntropyDiversity, RecursiveDiversity
from sfumato.errors import InputError

CRITERIA: tuple[type[Criterion], ...] = (
    KAnonymity,
    KMap,
    DeltaPresence,
    DistinctDiversity,
    EntropyDiversity,
    RecursiveDiversity,
    AlphaK,
    TCloseness,
    DeltaDisclosure,
    BasicBetaLikeness,
    EnhancedBetaLikeness,
)

_READERS: Mapping[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "str": str,
    "Fraction": Fraction,
    "GroundDistance": GroundDistance,
    "int | None": int,
}


def parse_criterion(text: str) -> Criterion:
    """The criterion that ``Criterion.spell`` wrote, or a person typed.

    Raises:
        InputError: an unknown name, a parameter that is missing, unknown or no number, or a criterion that
            needs a population, which text cannot hold.

    >>> parse_criterion("recursive-diversity:c=3,l=2,sensitive=class").l
    2
    """
    name, _, rest = text.partition(":")
    kinds = {kind.name: kind for kind in CRITERIA}
    kind = kinds.get(name.strip())
    if kind is None:
        raise InputError(f"no criterion {name!r}; there are {', '.join(kinds)}", culprit=text)
    wanted = {field.name: str(field.type) for field in fields(kind)}
    if "population" in wanted:
        raise InputError(f"{name} needs a population; use it from Python", culprit=text)
    given = dict(part.strip().partition("=")[::2] for part in rest.split(",") if part.strip())
    strange = sorted(set(given) - set(wanted))
    absent = [key for key, kind_ in wanted.items() if key not in given and "None" not in kind_]
    if strange or absent:
        what = f"does not know {strange[0]!r}" if strange else f"needs {absent[0]!r}"
        raise InputError(f"{name} {what}; write {name}:{','.join(f'{key}=...' for key in wanted)}", culprit=text)
    try:
        values = {key: _READERS[wanted[key]](value) for key, value in given.items()}
    except (ValueError, ZeroDivisionError):
        raise InputError(f"a parameter of {name} is not of the right kind: {rest}", culprit=text) from None
    return kind(**values)
