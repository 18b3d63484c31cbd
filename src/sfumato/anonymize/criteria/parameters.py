"""Parameters of criteria: the allowed types of fields, the check of a value, and the text form."""

from __future__ import annotations

import math
import re
from enum import StrEnum
from fractions import Fraction
from types import NoneType, UnionType
from typing import Any, Final, Union, get_args, get_origin

import numpy as np

from sfumato.arguments import expect, parse_integer
from sfumato.engine.port import SparseTable
from sfumato.errors import InputError

FORMS: Final[dict[type, str]] = {
    int: "a whole number",
    float: "a number",
    Fraction: "a number",
    str: "a text",
    SparseTable: "a population, as sf.anonymize.population counts it",
}
_ASSIGNMENT = re.compile(r'([^=,]*)(?:=(?:"((?:[^"]|"")*)"(?=\s*(?:,|\Z))|([^,]*)))?\s*(?:,|\Z)')
_LARGE_EXPONENT = re.compile(r"e[+-]?[\d_]{4}", re.IGNORECASE)  # Fraction would expand the whole number


def split_optional(hint: Any) -> tuple[Any, bool]:  # noqa: ANN401 -- a type or a union
    """Return the type of a field without None, and whether the field may be None."""
    if get_origin(hint) not in (Union, UnionType) or NoneType not in get_args(hint):
        return hint, False
    kind, *others = (kind for kind in get_args(hint) if kind is not NoneType)
    return hint if others else kind, True


def is_supported(kind: object) -> bool:
    """Return whether a field may have this type: parsing the text of a value returns an equal value."""
    return kind in FORMS or (isinstance(kind, type) and issubclass(kind, StrEnum))


def check_value(value: object, hint: Any, name: str) -> Any:  # noqa: ANN401 -- of the field's type
    """Return the value of a field, with NumPy numbers converted to Python numbers.

    Raises:
        InputError: the value is of another type. The message starts with ``name``.
    """
    kind, optional = split_optional(hint)
    if value is None and optional:
        return None
    form = f"{name} is {_form(kind)}"
    if kind is int:
        return parse_integer(value, form)
    if kind not in (float, Fraction):
        expect(value, kind, form)
        return value
    expect(value, int | float | kind, form)
    number: Any = value.item() if isinstance(value, np.generic) else value
    try:
        finite = math.isfinite(number)
    except OverflowError:
        finite = False
    if not finite and (kind is Fraction or not isinstance(number, float)):
        raise InputError(f"{form}, finite and of at most 300 digits", culprit=value)
    return number


def parse_value(text: str, hint: Any, name: str) -> Any:  # noqa: ANN401 -- of the field's type
    """Parse the text of a field.

    Raises:
        InputError: the text is no value of the field's type. The message starts with ``name``.
    """
    kind, _ = split_optional(hint)
    try:
        if kind is Fraction and _LARGE_EXPONENT.search(text):
            raise ValueError(text)  # noqa: TRY301
        return kind(text)
    except (ValueError, ZeroDivisionError):
        message = f"{name} is {_form(kind)}, and {text!r} is not of the right kind"
        raise InputError(message, culprit=text) from None


def spell_parameters(values: dict[str, object]) -> str:
    """Return parameters as text, with quotes around values that need them.

    >>> spell_parameters({"l": 2, "sensitive": "ill,ness"})
    'l=2,sensitive="ill,ness"'
    """
    return ",".join(f"{key}={_quote(str(value))}" for key, value in values.items())


def split_parameters(text: str) -> dict[str, str]:
    """Parse the parameters of a text, the inverse of ``spell_parameters``.

    Raises:
        InputError: a parameter is given twice.

    >>> split_parameters('l=2, sensitive="ill,ness"')
    {'l': '2', 'sensitive': 'ill,ness'}
    """
    result: dict[str, str] = {}
    for match in _ASSIGNMENT.finditer(text):
        name, quoted, plain = match.groups()
        name = name.strip()
        if not name and quoted is None and plain is None:
            continue  # skip a superfluous comma
        if name in result:
            raise InputError(f"{name!r} is given twice: {text}", culprit=text)
        result[name] = (plain or "").rstrip() if quoted is None else quoted.replace('""', '"')
    return result


def _quote(text: str) -> str:
    if "," in text or text.startswith('"') or text != text.rstrip():
        return '"' + text.replace('"', '""') + '"'
    return text


def _form(kind: Any) -> str:  # noqa: ANN401 -- a type
    return FORMS[kind] if kind in FORMS else f"a {kind.__name__} ({', '.join(kind)})"
