"""What an anonymised release may be asked for, wherever it is asked: method, quasi-identifiers, criteria."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING

from sfumato.errors import InputError

if TYPE_CHECKING:
    from sfumato.anonymize import Anonymized, Hierarchy, Quasi
    from sfumato.anonymize.criteria import Criterion
    from sfumato.vault.vault import Vault


class Method(StrEnum):
    """How classes are found."""

    OPTIMAL = "optimal"
    SAMARATI = "samarati"
    MONDRIAN = "mondrian"
    K_MEMBER = "k-member"


class MissingValues(StrEnum):
    """What becomes of a row whose quasi-identifier is missing or unknown."""

    CATEGORY = "category"
    SUPPRESS = "suppress"


@dataclass(frozen=True)
class Wanted:
    """What is asked of a method."""

    quasi: Sequence[Quasi]
    criteria: Sequence[Criterion]
    suppression: str
    keep: tuple[str, ...]
    seconds: float | None


def quasi_identifiers(
    names: Sequence[str], hierarchies: Mapping[str, Hierarchy], missing: MissingValues
) -> list[Quasi]:
    """Quasi-identifiers by name, each with its hierarchy where there is one."""
    from sfumato.anonymize import Missing, Quasi

    return [Quasi(name=name, hierarchy=hierarchies.get(name), missing=Missing(missing.value)) for name in names]


def criteria(k: int, further: Sequence[str]) -> list[Criterion]:
    """k-anonymity, and further criteria as they are spelled: ``t-closeness:t=0.2,sensitive=class,distance=equal``."""
    from sfumato.anonymize import KAnonymity
    from sfumato.anonymize.spelling import parse

    return [KAnonymity(k), *(parse(text) for text in further)]


def check(method: Method, wanted: Wanted) -> None:
    """Refuse what the method has no use for, before anything is read.

    Raises:
        InputError: a suppression, criterion or time that the method does not take.
    """
    from sfumato.anonymize.problem import allowed_rows

    allowed_rows(wanted.suppression, 1)  # refuses what is no share
    if method in (Method.MONDRIAN, Method.K_MEMBER) and Fraction(wanted.suppression):
        raise InputError(f"{method.value} suppresses no row; leave out the suppression", culprit=wanted.suppression)
    if method is Method.K_MEMBER and len(wanted.criteria) > 1:
        raise InputError("k-member promises k-anonymity only; use mondrian for further criteria")
    if method is not Method.OPTIMAL and wanted.seconds is not None:
        raise InputError(f"{method.value} cannot stop early; leave out the seconds", culprit=wanted.seconds)


def release(vault: Vault, method: Method, wanted: Wanted, *, watch: Callable[[str], None] | None = None) -> Anonymized:
    """Search, journal and hand out; ``watch`` is told what a long search does next."""
    from sfumato import anonymize as methods
    from sfumato.anonymize.full_domain import Extent

    quasi, criteria, suppression, keep = wanted.quasi, wanted.criteria, wanted.suppression, wanted.keep
    match method:
        case Method.OPTIMAL:
            extent = Extent(seconds=math.inf if wanted.seconds is None else wanted.seconds)
            return methods.optimal(
                vault, quasi=quasi, criteria=criteria, suppression=suppression, keep=keep, extent=extent
            )
        case Method.SAMARATI:
            return methods.samarati(vault, quasi=quasi, criteria=criteria, suppression=suppression, keep=keep)
        case Method.MONDRIAN:
            return methods.mondrian(vault, quasi=quasi, criteria=criteria, keep=keep)
        case Method.K_MEMBER:
            return methods.k_member(vault, quasi=quasi, k=criteria[0].least_rows, keep=keep, watch=watch)
