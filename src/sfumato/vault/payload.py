"""What a release stores in the ledger: named arrays and JSON values, as bytes that load without code.

A line of JSON, then the bytes of the arrays one after another, all compressed where there is much.  An answer of a
few numbers costs microseconds, which it would not as an archive of files.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from sfumato.errors import InputError, LedgerError
from sfumato.strict_json import read_json

Payload: TypeAlias = Mapping[str, Any]

_PLAIN, _COMPRESSED = b"p", b"z"
_SMALL = 1 << 12  # bytes; compressing fewer saves no page of a database


def encode(payload: Payload) -> bytes:
    """The bytes of a payload.

    Raises:
        ValueError: an array of Python objects, or a value that JSON does not know.

    >>> import numpy as np
    >>> decode(encode({"counts": np.arange(3), "method": "histogram"}))
    {'method': 'histogram', 'counts': array([0, 1, 2])}
    """
    arrays = {name: value for name, value in payload.items() if isinstance(value, np.ndarray)}
    if any(array.dtype.hasobject for array in arrays.values()):
        raise ValueError("an array of Python objects cannot be stored")
    head = {
        "values": {name: value for name, value in payload.items() if name not in arrays},
        "arrays": [[name, array.dtype.str, array.shape] for name, array in arrays.items()],
    }
    text = json.dumps(head, allow_nan=False)  # in order: that of columns means something
    whole = b"".join([text.encode(), b"\n", *(array.tobytes() for array in arrays.values())])
    return _COMPRESSED + zlib.compress(whole) if len(whole) > _SMALL else _PLAIN + whole


_DAMAGED = (
    *(InputError, ValueError, TypeError, KeyError),
    *(AttributeError, RecursionError, OverflowError, zlib.error),
)


def decode(stored: bytes) -> dict[str, Any]:
    """The payload that ``encode`` stored.

    Raises:
        LedgerError: the bytes are not a stored payload.
    """
    try:
        return _decoded(stored)
    except _DAMAGED as error:
        raise LedgerError("a stored answer cannot be read back; restore the ledger from a backup") from error


def _decoded(stored: bytes) -> dict[str, Any]:
    kind, whole = stored[:1], stored[1:]
    if kind not in (_PLAIN, _COMPRESSED):
        raise ValueError
    text, _, content = (whole if kind == _PLAIN else zlib.decompress(whole)).partition(b"\n")
    head = read_json(text)
    payload: dict[str, Any] = dict(head["values"])
    start = 0
    for name, dtype, shape in head["arrays"]:
        flat = np.frombuffer(content, np.dtype(dtype), count=math.prod(shape), offset=start)
        start += flat.nbytes
        payload[name] = flat.reshape(shape).copy()
    if start != len(content):
        raise ValueError
    return payload
