"""Answers that a process keeps, so that asking again needs no lock and no database."""

from __future__ import annotations

import threading
from dataclasses import replace

from sfumato.bounded_cache import BoundedCache
from sfumato.ledger.entry import Receipt
from sfumato.ledger.reservation import Order

_LARGEST = 1 << 14  # bytes of an answer; larger ones are read from the database again
_MOST_RETRY_KEYS = 64  # of one release and analyst
_ENTRY_BYTES = 3_000  # beside the answer

_Kept = tuple[Receipt, frozenset[str]]


def _weight(_: object, kept: _Kept | None) -> int:
    assert kept is not None
    receipt, retry_keys = kept
    return _ENTRY_BYTES + len(receipt.answer or b"") + sum(200 + len(key) for key in retry_keys)


class AnswerCache:
    """Receipts of one dataset by release and analyst: asking again needs no lock and no database.

    What was charged and answered stays so: entries and answers are never changed or removed.  Nothing else may be
    remembered here, least of all what is left of a budget.
    """

    def __init__(self) -> None:
        self._kept: BoundedCache[tuple[str, str | None], _Kept | None] = BoundedCache(_weight)
        self._lock = threading.Lock()  # two threads that add a retry key to one receipt

    def find(self, order: Order) -> Receipt | None:
        """Return the receipt of this analyst's earlier release, under this retry key if there is one."""
        kept = self._kept.get((order.event.key, order.event.analyst), None)
        return kept[0] if kept is not None and (order.retry_key is None or order.retry_key in kept[1]) else None

    def kept(self, order: Order, receipt: Receipt) -> Receipt:
        """Keep and return the receipt of an order whose answer the database stored and the analyst got."""
        if receipt.answer is not None and len(receipt.answer) <= _LARGEST:
            self._keep(order, replace(receipt, charged=False, charged_analyst=False))
        return receipt

    def _keep(self, order: Order, receipt: Receipt) -> None:
        place = (order.event.key, order.event.analyst)
        with self._lock:
            found, retry_keys = self._kept.get(place, None) or (receipt, frozenset[str]())
            if order.retry_key is not None and len(retry_keys) < _MOST_RETRY_KEYS:
                retry_keys |= {order.retry_key}
            self._kept.put(place, (found, retry_keys))
