"""Structured logs: one JSON object a line on standard error, never a value of a table, a question or an answer."""

from __future__ import annotations

import json
import logging
import time

_LOGGER = logging.getLogger("sfumato.http")


def log(event: str, **facts: str | float | None) -> None:
    """Write a line."""
    if _LOGGER.isEnabledFor(logging.INFO):
        _LOGGER.info(json.dumps({"time": round(time.time(), 3), "event": event, **facts}))


def to_standard_error() -> None:
    """Show the lines of this process."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    _LOGGER.handlers[:] = [handler]
    _LOGGER.setLevel(logging.INFO)
    _LOGGER.propagate = False
