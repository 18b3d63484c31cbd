"""Answers that this process has handed out, so that asking again needs neither the lock nor the database.

What was paid for and answered stays so: entries and answers are never changed or removed.  Nothing else may be
remembered here, least of all what is left of a budget.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from sfumato.ledger.entry import Receipt
from sfumato.ledger.reservation import Order

_MOST = 4096
_LARGEST = 1 << 14  # bytes of an answer; larger ones are read from the database again


class Repeats:
    """Receipts of one dataset by release and analyst, the latest asked for."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str | None], tuple[Receipt, set[str]]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, order: Order) -> Receipt | None:
        """The receipt of a release that this analyst has got, under this retry key where there is one."""
        place = (order.event.key, order.event.analyst)
        with self._lock:
            receipt, retry_keys = self._kept.get(place, (None, set[str]()))
            if receipt is None or not (order.retry_key is None or order.retry_key in retry_keys):
                return None
            self._kept.move_to_end(place)
            return receipt

    def keep(self, order: Order, number: int, answer: bytes) -> None:
        """Remember an answer that is stored, and was handed to the analyst of the order."""
        if len(answer) > _LARGEST:
            return
        receipt = Receipt(number, order.event.key, answer, charged=False, charged_analyst=False)
        with self._lock:
            _, retry_keys = self._kept.setdefault((order.event.key, order.event.analyst), (receipt, set()))
            if order.retry_key is not None and len(retry_keys) < _MOST:
                retry_keys.add(order.retry_key)
            if len(self._kept) > _MOST:
                self._kept.popitem(last=False)
