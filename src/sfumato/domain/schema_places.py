"""What stands where in the document of a schema, and refusals that name the place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sfumato.errors import DomainError


def mapping_at(said: object, at: str) -> dict[Any, Any]:
    """A mapping.

    Raises:
        DomainError: something else stands there.
    """
    expect_at(said, dict, at, "a mapping")
    assert isinstance(said, dict)
    return said


def text_at(said: object, at: str) -> str:
    """A name.

    Raises:
        DomainError: something else stands there.
    """
    if not isinstance(said, str) or not said or said != said.strip():
        raise DomainError(f"the schema is wrong at {at}: a name stands there, without blanks around it", culprit=said)
    return said


def expect_at(said: object, kind: type, at: str, words: str) -> None:
    """Refuse a value of another kind.

    Raises:
        DomainError: so it is.
    """
    if not isinstance(said, kind) or (kind is int and isinstance(said, bool)):
        raise DomainError(f"the schema is wrong at {at}: {words} stands there", culprit=said)


def only_at(said: Mapping[Any, Any], known: set[str], at: str, *, required: Sequence[str] | set[str] = ()) -> None:
    """Refuse words that are not known in a mapping, and one that lacks what is required.

    Raises:
        DomainError: so it is.
    """
    for name in said:
        if name not in known:
            raise DomainError(
                f"the schema is wrong at {at}: {str(name)[:60]!r} is not known there; {', '.join(sorted(known))} are",
                culprit=name,
            )
    for name in sorted(required):
        if name not in said:
            raise DomainError(f"the schema is wrong at {at}: {name!r} is missing", culprit=name)
