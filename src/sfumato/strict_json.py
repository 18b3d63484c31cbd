"""JSON as documents of this project are read: a field that is said twice, or a number that is none, is refused.

Python's own reader takes the last of two equal keys and accepts ``NaN``.  Whoever checks a document with one reader and
uses it with another would then see two documents.
"""

from __future__ import annotations

import json
from typing import Any

from sfumato.errors import InputError


def read_json(text: str | bytes, *, name: str = "this") -> Any:  # noqa: ANN401 -- JSON
    """The value of a JSON text; ``name`` says in a refusal what was read.

    Raises:
        InputError: no JSON (RFC 8259), a key twice in one object, NaN or infinity, or a nesting or number beyond all
            reason; where Python says why, that is the cause.  The message quotes nothing of the text.

    >>> read_json('{"a": [1, 2.5, null]}')
    {'a': [1, 2.5, None]}
    """
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    except _RepeatedKeyError:
        raise InputError(f"{name} says a key twice, so what it means is open", culprit=text) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is no JSON", culprit=text) from error


class _RepeatedKeyError(Exception):
    """Two equal keys in one object."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _RepeatedKeyError
    return made


def _no_constant(_: str) -> None:
    raise ValueError
