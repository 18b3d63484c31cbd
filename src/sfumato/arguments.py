"""Checks of arguments: a value of the wrong kind is refused in one sentence."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from types import UnionType
from typing import SupportsIndex, cast

import numpy as np

from sfumato.errors import InputError

_LISTED = 20


def listed(names: Iterable[str]) -> str:
    """Return names for a sentence about an unknown name, up to a readable number.

    >>> listed(["age", "sex"]), listed(f"c{n}" for n in range(300)).endswith("c18, c19 and 280 others")
    ('age, sex', True)
    """
    every = list(names)
    more = len(every) - _LISTED
    return ", ".join(every) if more <= 1 else f"{', '.join(every[:_LISTED])} and {more} others"


def expect(value: object, kind: type | UnionType, form: str) -> None:
    """Refuse a value of another kind; True and False are no numbers, NumPy's numbers are.

    Raises:
        InputError: the value is of another kind.  The message starts with ``form``.

    >>> expect(3, int, "rows are a whole number")
    """
    plain = value.item() if isinstance(value, np.number) else value
    if not isinstance(plain, kind) or (isinstance(plain, bool) and kind is not bool):
        raise InputError(f"{form}, not {type(value).__name__}", culprit=value)


def parse_integer(value: object, form: str) -> int:
    """Return a whole number of Python or NumPy as Python's own.

    Raises:
        InputError: the value is no whole number. The message starts with ``form``.

    >>> parse_integer(np.int64(3), "rows are a whole number")
    3
    """
    expect(value, int, form)
    return operator.index(cast("SupportsIndex", value))


def expect_all(values: object, kind: type | UnionType, form: str) -> None:
    """Refuse a value that is no list of values of one kind; a single text is no list.

    Raises:
        InputError: the value is no list, or one of its elements is of another kind.

    >>> expect_all(["age", "sex"], str, "attributes are a list of names")
    """
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise InputError(f"{form}, not {type(values).__name__}", culprit=values)
    for value in values:
        expect(value, kind, form)
