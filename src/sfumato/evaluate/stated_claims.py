"""What a release says of its own guarantee, and whether that is what it is judged by."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sfumato.errors import InputError
from sfumato.evaluate.released import Claim
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Loss, Rho
from sfumato.strict_documents import read_json
from sfumato.synthesize.codebook import read_codebook
from sfumato.synthesize.families.family_codebook import STATEMENT


def claim_of_folder(folder: Path, claim: Claim | None) -> Claim | None:
    """The guarantee of a release of several tables: what is said, which its own statement may not contradict.

    Args:
        folder: of the release.
        claim: what whoever judges it says; None: the release speaks for itself.

    Raises:
        InputError: both say something, and not the same; or the statement is damaged.
    """
    place = folder / STATEMENT
    if not place.is_file():
        return claim
    try:
        document = read_json(place.read_bytes())
        stated = _loss(document["codebook"]["guarantee"]["loss"])
        other = _loss(document.get("loss", document["codebook"]["guarantee"]["loss"]))
    except (OSError, KeyError, TypeError, ValueError, InputError):
        raise InputError(f"{place} is damaged: it states no loss", culprit=place) from None
    if other != stated:
        raise InputError(f"{place} contradicts itself: it says {other}, and its codebook says {stated}", culprit=place)
    return _agreed(str(place), stated, claim)


def stated_orders(folder: Path) -> dict[str, str]:
    """How the children of a parent follow each other in a release, by table, where it says so."""
    place = folder / STATEMENT
    if not place.is_file():
        return {}
    try:
        found: dict[str, str] = {}
        for each in _children(read_json(place.read_bytes())):
            order = each["order"]
            found[each["table"]] = "" if order is None else f"{order['by']}{':falling' if order['falling'] else ''}"
    except (OSError, KeyError, TypeError, ValueError, InputError):
        raise InputError(f"{place} is damaged: it says no order of children", culprit=place) from None
    return found


def _children(document: Any) -> list[Any]:  # noqa: ANN401 - JSON
    """The descriptions of child tables, wherever they stand in a statement."""
    if not isinstance(document, Mapping):
        return []
    for name, value in document.items():
        if name == "children" and isinstance(value, list):
            return value
        if found := _children(value):
            return found
    return []


def claim_of_file(path: Path, claim: Claim) -> Claim:
    """The guarantee of a released file, which its codebook may not contradict, where it carries one.

    Raises:
        InputError: the codebook says otherwise.
    """
    try:
        stated = _loss(read_codebook(path).guarantee.loss)
    except (InputError, KeyError, ValueError):  # no release of ours, or one that states no loss
        return claim
    return _agreed(str(path), stated, claim) or claim


def _agreed(where: str, stated: Loss, claim: Claim | None) -> Claim:
    if claim is not None and claim.loss != stated:
        raise InputError(
            f"{where} says of itself {stated}, and --claim says {claim}: judge it by what it promises", culprit=where
        )
    return claim or Claim(stated)


def _loss(said: Mapping[str, Any]) -> Loss:
    """A loss as releases write it."""
    if not isinstance(said, Mapping):
        raise TypeError
    amounts = {name: str(value) for name, value in said.items() if value is not None}
    match amounts:
        case {"rho": rho}:
            return Rho(rho)
        case {"epsilon": epsilon, "delta": delta}:
            return EpsilonDelta(epsilon, delta)
        case {"epsilon": epsilon}:
            return Epsilon(epsilon)
    raise KeyError("loss")
