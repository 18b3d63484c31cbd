"""How a long evaluation says what it is doing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Watch: TypeAlias = Callable[[str], None]
"""Told in a few words what comes next."""


def unwatched(_: str) -> None:
    """Nobody is told."""
