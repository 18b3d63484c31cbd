"""Exact results, sealed.

A tally leaves the engine sealed: it cannot be read, compared, printed or pickled.  ``reveal`` opens it.  The import
contracts allow this to the vault, ``anonymize``, ``evaluate`` and ``description``, whose checks of a table against its
domain are for the owner.
"""

from __future__ import annotations

from typing import Generic, NoReturn, TypeVar

T = TypeVar("T")


class Exact(Generic[T]):
    """An exact result that only ``reveal`` opens."""

    __slots__ = ("__content",)

    def __init__(self, content: T) -> None:
        self.__content = content

    def __repr__(self) -> str:
        return "<exact result, sealed>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an exact result cannot be pickled or copied out of the vault")

    def __eq__(self, other: object) -> NoReturn:
        raise TypeError("an exact result cannot be compared outside the vault")

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> NoReturn:
        raise TypeError("an exact result cannot be tested outside the vault")


def reveal(exact: Exact[T]) -> T:
    """Return the content of an exact result.  The vault adds noise to it before anything leaves."""
    content: T = exact._Exact__content  # type: ignore[attr-defined]  # noqa: SLF001
    return content
