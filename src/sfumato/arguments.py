"""What a stranger hands over by mistake: a value of the wrong kind is refused in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from types import UnionType

from sfumato.errors import InputError


def expect(value: object, kind: type | UnionType, form: str) -> None:
    """Refuse a value of another kind than ``form`` says; True and False are no numbers.

    Raises:
        InputError: as said.

    >>> expect(3, int, "rows are a whole number")
    """
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise InputError(f"{form}, not {type(value).__name__}", culprit=value)


def expect_all(values: object, kind: type | UnionType, form: str) -> None:
    """Refuse what is no list of values of one kind; a single text is none.

    Raises:
        InputError: as said.

    >>> expect_all(["age", "sex"], str, "attributes are a list of names")
    """
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise InputError(f"{form}, not {type(values).__name__}", culprit=values)
    for value in values:
        expect(value, kind, form)
