"""Criteria as text, for the command line, the journal and saved recodings: ``t-closeness:t=0.2,sensitive=class``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from fractions import Fraction
from typing import Any

from sfumato.anonymize.closeness import BasicBetaLikeness, DeltaDisclosure, Distance, EnhancedBetaLikeness, TCloseness
from sfumato.anonymize.criteria import Criterion, DeltaPresence, KAnonymity, KMap
from sfumato.anonymize.diversity import AlphaK, DistinctDiversity, EntropyDiversity, RecursiveDiversity
from sfumato.errors import InputError

NAMES: Mapping[str, type] = {
    "k-anonymity": KAnonymity,
    "k-map": KMap,
    "delta-presence": DeltaPresence,
    "distinct-diversity": DistinctDiversity,
    "entropy-diversity": EntropyDiversity,
    "recursive-diversity": RecursiveDiversity,
    "alpha-k": AlphaK,
    "t-closeness": TCloseness,
    "delta-disclosure": DeltaDisclosure,
    "basic-beta-likeness": BasicBetaLikeness,
    "enhanced-beta-likeness": EnhancedBetaLikeness,
}

_READERS: Mapping[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "str": str,
    "Fraction": Fraction,
    "Distance": Distance,
    "int | None": int,
}


def spell(criterion: Criterion) -> str:
    """The criterion as text; a population is not spelled out.

    >>> spell(KAnonymity(10))
    'k-anonymity:k=10'
    """
    name = next(name for name, kind in NAMES.items() if type(criterion) is kind)
    values = {field.name: getattr(criterion, field.name) for field in fields(NAMES[name])}
    said = (f"{key}={value}" for key, value in values.items() if key != "population" and value is not None)
    return f"{name}:{','.join(said)}"


def parse(text: str) -> Criterion:
    """The criterion that ``spell`` wrote, or a person typed.

    Raises:
        InputError: an unknown name, a parameter that is missing, unknown or no number, or a criterion that
            needs a population, which text cannot hold.

    >>> parse("recursive-diversity:c=3,l=2,sensitive=class").l
    2
    """
    name, _, rest = text.partition(":")
    kind = NAMES.get(name.strip())
    if kind is None:
        raise InputError(f"no criterion {name!r}; there are {', '.join(NAMES)}", culprit=text)
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
    criterion: Criterion = kind(**values)
    return criterion
