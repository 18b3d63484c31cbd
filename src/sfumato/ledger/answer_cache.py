"""Answers that a process keeps, so that asking again needs no lock and no database."""

from __future__ import annotations

import threading
from typing import TypeAlias

from sfumato.bounded_cache import BoundedCache
from sfumato.ledger.entry import Event

_LARGEST = 1 << 14  # bytes of an answer; larger ones are read from the database again
_MOST_RETRY_KEYS = 64  # of one release and analyst
_ENTRY_BYTES = 3_000  # beside the answer

NumberedAnswer: TypeAlias = tuple[int, bytes]
"""The number of a release's entry, and its stored answer."""

_Kept = tuple[NumberedAnswer, frozenset[str]]


def _weight(_: object, kept: _Kept | None) -> int:
    assert kept is not None
    (_number, answer), retry_keys = kept
    return _ENTRY_BYTES + len(answer) + sum(200 + len(key) for key in retry_keys)


class AnswerCache:
    """Answers of one dataset by release and analyst: asking again needs no lock and no database.

    What was charged and answered stays so: entries and answers are never changed or removed.  Nothing else may be
    remembered here, least of all what is left of a budget.
    """

    def __init__(self) -> None:
        self._kept: BoundedCache[tuple[str, str | None], _Kept | None] = BoundedCache(_weight)
        self._lock = threading.Lock()  # two threads that add a retry key to one answer

    def find(self, event: Event, retry_key: str | None) -> NumberedAnswer | None:
        """Return the answer of this analyst's earlier release, under this retry key if there is one."""
        kept = self._kept.get((event.key, event.analyst), None)
        return kept[0] if kept is not None and (retry_key is None or retry_key in kept[1]) else None

    def keep(self, event: Event, retry_key: str | None, found: NumberedAnswer) -> None:
        """Keep an answer that the database stored and that this analyst was charged for."""
        if len(found[1]) > _LARGEST:
            return
        place = (event.key, event.analyst)
        with self._lock:
            found, retry_keys = self._kept.get(place, None) or (found, frozenset[str]())
            if retry_key is not None and len(retry_keys) < _MOST_RETRY_KEYS:
                retry_keys |= {retry_key}
            self._kept.put(place, (found, retry_keys))
