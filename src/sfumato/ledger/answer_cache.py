"""Answers that a process keeps, so that asking again needs no lock and no database."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import replace

from sfumato.ledger.entry import Receipt
from sfumato.ledger.reservation import Order

MOST_KEPT = 4096
_LARGEST = 1 << 14  # bytes of an answer; larger ones are read from the database again


class AnswerCache:
    """Receipts of one dataset by release and analyst, the latest asked for: asking again needs no lock and no database.

    What was charged and answered stays so: entries and answers are never changed or removed.  Nothing else may be
    remembered here, least of all what is left of a budget.
    """

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

    def kept(self, order: Order, receipt: Receipt) -> Receipt:
        """The receipt of an order that the database gave; its answer, stored and handed to the analyst, is kept."""
        if receipt.answer is not None and len(receipt.answer) <= _LARGEST:
            self._keep(order, replace(receipt, charged=False, charged_analyst=False))
        return receipt

    def _keep(self, order: Order, receipt: Receipt) -> None:
        with self._lock:
            _, retry_keys = self._kept.setdefault((order.event.key, order.event.analyst), (receipt, set()))
            if order.retry_key is not None and len(retry_keys) < MOST_KEPT:
                retry_keys.add(order.retry_key)
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
