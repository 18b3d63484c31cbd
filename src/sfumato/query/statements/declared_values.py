"""Comparisons of declared values with literals of another kind: texts with numbers, and truth values."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction

from sfumato.domain import Categorical, Unknown
from sfumato.domain.predicate import CodeRanges

_INTEGER_TEXT = re.compile(r"[+-]?[0-9]{1,18}")
_TRUTH = {"true": True, "false": False, "1": True, "0": False}

_Literal = str | bool | int | Fraction


def codes_meeting(
    attribute: Categorical, literal: _Literal, meets: Callable[[Fraction, Fraction], bool]
) -> CodeRanges | None:
    """Return the codes of declared values that meet a comparison with a literal of another kind.

    As in DuckDB, texts are read as the numbers that they are where a number stands beside them, and truth values are 0
    and 1.  All declared values have to read so.

    Args:
        attribute: the attribute; a cell for undeclared values compares with its own kind only.
        literal: to compare with.
        meets: compares the number of a value with that of the literal.

    Returns:
        None if the values and the literal are not comparable.
    """
    if attribute.unknown is Unknown.CATEGORY:
        return None
    truths = isinstance(literal, bool) or isinstance(attribute.values[0], bool)
    read = _as_truth if truths else _as_number
    numbers, other = _read(attribute.values, read), (_as_number if isinstance(literal, Fraction) else read)(literal)
    if numbers is None or other is None:
        return None
    return CodeRanges.of(code for code, value in enumerate(numbers) if meets(value, other))


def _read(values: Sequence[_Literal], read: Callable[[_Literal], Fraction | None]) -> list[Fraction] | None:
    numbers = [number for value in values if (number := read(value)) is not None]
    return numbers if len(numbers) == len(values) else None


def _as_truth(value: _Literal) -> Fraction | None:
    truth = _TRUTH.get(str(value).lower())
    return None if truth is None else Fraction(truth)


def _as_number(value: _Literal) -> Fraction | None:
    if isinstance(value, str):
        return Fraction(value) if _INTEGER_TEXT.fullmatch(value) else None
    return Fraction(value)
