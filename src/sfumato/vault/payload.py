"""What a release stores in the ledger: named arrays and JSON values, as bytes that load without code."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any, TypeAlias
from zipfile import BadZipFile

import numpy as np

from sfumato.errors import LedgerError

Payload: TypeAlias = Mapping[str, Any]

_JSON = "json"


def encode(payload: Payload) -> bytes:
    """Arrays as one compressed npz, everything else as JSON inside it.

    >>> import numpy as np
    >>> decode(encode({"counts": np.arange(3), "method": "histogram"}))["method"]
    'histogram'
    """
    arrays = {name: value for name, value in payload.items() if isinstance(value, np.ndarray)}
    rest = {name: value for name, value in payload.items() if name not in arrays}
    text = json.dumps(rest, allow_nan=False)  # in order: that of columns means something
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer, allow_pickle=False, **{_JSON: np.frombuffer(text.encode(), np.uint8)}, **_prefixed(arrays)
    )
    return buffer.getvalue()


def decode(stored: bytes) -> dict[str, Any]:
    """The payload that ``encode`` stored.

    Raises:
        LedgerError: the bytes are not a stored payload.
    """
    try:
        with np.load(io.BytesIO(stored), allow_pickle=False) as archive:
            payload: dict[str, Any] = json.loads(archive[_JSON].tobytes())
            return payload | {name[2:]: archive[name] for name in archive.files if name != _JSON}
    except (ValueError, OSError, KeyError, EOFError, BadZipFile) as error:
        raise LedgerError("a stored answer cannot be read back; restore the ledger from a backup") from error


def _prefixed(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {f"a:{name}": array for name, array in arrays.items()}
