"""How to wait: in the thread that asks, or beside an event loop that has to go on.

Whoever serves many at once on one thread says so in :data:`WAITING`; for everybody else a wait is a wait.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Protocol, TypeVar

T = TypeVar("T")


class Bell(Protocol):
    """Rings once for one who waits."""

    def wait(self) -> None:
        """Return when it has rung."""
        ...

    def ring(self) -> None:
        """End the wait; any thread may."""
        ...


class Waiting(Protocol):
    """A way to wait."""

    def bell(self) -> Bell:
        """A bell for who asks."""
        ...

    def aside(self, slow: Callable[[], T]) -> T:
        """Do what may take long, and return when it is done."""
        ...


class ThreadBell:
    """Stops a thread until it rings."""

    def __init__(self) -> None:
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def wait(self) -> None:
        """See :class:`Bell`."""
        self._asleep.acquire()

    def ring(self) -> None:
        """See :class:`Bell`."""
        self._asleep.release()


class InThread:
    """Waiting as threads do."""

    def bell(self) -> Bell:
        """See :class:`Waiting`."""
        return ThreadBell()

    def aside(self, slow: Callable[[], T]) -> T:
        """Right here: only who asked waits for it."""
        return slow()


WAITING: ContextVar[Waiting] = ContextVar("sfumato_waiting", default=InThread())  # noqa: B039  (it has no state)
