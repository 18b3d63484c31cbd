"""The guarantee that a release states in its file, checked against a claim."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sfumato.errors import InputError
from sfumato.evaluate.released import Claim
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Loss, Rho
from sfumato.strict_documents import read_json

_OURS = b"sfumato."
"""Prefix of the metadata keys of Sfumato's releases."""


def claim_of_folder(folder: Path, claim: Claim | None) -> Claim | None:
    """Return the guarantee of a folder of linked tables. A given claim must agree with the statement in the folder.

    Args:
        folder: of the release.
        claim: the guarantee according to the caller. None: use the statement.

    Raises:
        InputError: claim and statement differ, or the statement is damaged.
    """
    from sfumato.synthesize.linked.linked_codebook import STATEMENT

    place = folder / STATEMENT
    if not place.is_file():
        return claim
    try:
        document = read_json(place.read_bytes())
        stated = parse_stated_loss(document["codebook"]["guarantee"]["loss"])
        other = parse_stated_loss(document.get("loss", document["codebook"]["guarantee"]["loss"]))
    except (OSError, KeyError, TypeError, ValueError, InputError):
        raise InputError(f"{place} is damaged: it states no loss", culprit=place) from None
    if other != stated:
        raise InputError(
            f"{place} contradicts itself: it states {other}, and its codebook states {stated}", culprit=place
        )
    return _agreed(str(place), stated, claim)


def stated_orders(folder: Path) -> dict[str, str]:
    """Return the order of the children of a parent, by table, if the release states it."""
    from sfumato.synthesize.linked.linked_codebook import STATEMENT

    place = folder / STATEMENT
    if not place.is_file():
        return {}
    try:
        order_of: dict[str, str] = {}
        for each in _children(read_json(place.read_bytes())):
            order = each["order"]
            order_of[each["table"]] = "" if order is None else f"{order['by']}{':falling' if order['falling'] else ''}"
    except (OSError, KeyError, TypeError, ValueError, InputError):
        raise InputError(f"{place} is damaged: it says no order of children", culprit=place) from None
    return order_of


def _children(document: Any) -> list[Any]:  # noqa: ANN401 - JSON
    """Return the descriptions of child tables, at any depth of a statement."""
    if not isinstance(document, Mapping):
        return []
    for name, value in document.items():
        if name == "children" and isinstance(value, list):
            return value
        if descriptions := _children(value):
            return descriptions
    return []


def claim_of_file(path: Path, claim: Claim | None) -> Claim:
    """Return the guarantee of a released file: its statement, or the claim if it has none.

    Args:
        path: of the file.
        claim: the guarantee according to the caller, which must agree with the file. None: use the statement.

    Raises:
        InputError: claim and statement differ, or neither exists.
    """
    stated = None
    if any(name.startswith(_OURS) for name in _carried(path)):
        from sfumato.synthesize.codebook.codebook import read_codebook

        try:
            stated = parse_stated_loss(read_codebook(path).guarantee.loss)
        except (InputError, KeyError, ValueError):  # the file is no release of Sfumato, or it states no loss
            stated = None
    if stated is not None:
        return _agreed(str(path), stated, claim)
    if claim is None:
        raise InputError(
            f"{path.name} states no guarantee: give the argument claim, such as epsilon=1, k=5, or none", culprit=path
        )
    return claim


def _carried(path: Path) -> Mapping[bytes, bytes]:
    """Return the metadata of a Parquet or Arrow file; empty for other and unreadable files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        match path.suffix.lower():
            case ".parquet":
                return pq.read_schema(path).metadata or {}
            case ".arrow":
                with pa.memory_map(str(path)) as source:
                    return pa.ipc.open_file(source).schema.metadata or {}
    except (OSError, pa.ArrowException):
        pass
    return {}


def _agreed(where: str, stated: Loss, claim: Claim | None) -> Claim:
    if claim is not None and claim.loss != stated:
        raise InputError(
            f"{where} states {stated}, but the argument claim is {claim}; leave the claim out or correct it",
            culprit=where,
        )
    return claim or Claim(stated)


def parse_stated_loss(document: Mapping[str, Any]) -> Loss:
    """Parse a loss in the format of released files.

    Raises:
        KeyError, TypeError, ValueError, InputError: the document is no loss.
    """
    if not isinstance(document, Mapping):
        raise TypeError
    amounts = {name: str(value) for name, value in document.items() if value is not None}
    match amounts:
        case {"rho": rho}:
            return Rho(rho)
        case {"epsilon": epsilon, "delta": delta}:
            return EpsilonDelta(epsilon, delta)
        case {"epsilon": epsilon}:
            return Epsilon(epsilon)
    raise KeyError("loss")
