"""Quotas of a key: estimates of one answer, large questions at a time, and bytes of replies a minute.

Each worker counts on its own.  What decides is public: the question, its domain, and what the key was sent before.  A
refusal names its limit and comes before the charge.  Repeated questions count like new ones.
"""

from __future__ import annotations

import threading
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from prometheus_client import Counter, Gauge

from sfumato.app.http.problems import RefusalError

LARGE: Final = 10_000
"""Estimates of an answer from which on its question is large."""
_UNDER_WAY = 16  # large questions of all keys in a worker, waiting ones included: each holds a thread or an answer
_PATIENCE = 30.0  # seconds that a large question waits for its turn: less than clients wait for a reply
_AGAIN = 5  # seconds after which to come again
_REMEMBERED = 4096  # keys
_MINUTE = 60.0  # seconds

UNDER_WAY = Gauge("sfumato_large_questions", "Large questions under way.", multiprocess_mode="livesum")
CELLS = Counter("sfumato_answer_cells_total", "Estimates of answers that were asked for within the limit.")
BYTES = Counter("sfumato_reply_bytes_total", "Bytes of the replies to requests with a key.")


@dataclass(frozen=True)
class KeyLimits:
    """The limits of every key; 0 means no limit.

    Attributes:
        cells: estimates of one answer, groups times aggregates.
        at_once: large questions of one key under way in a worker, from the first look to the end of the reply.
        bytes_a_minute: bytes of the replies of a worker to one key in a minute.
    """

    cells: int = 1_000_000
    at_once: int = 2
    bytes_a_minute: int = 256 << 20


class Permit:
    """The place of a large question among those under way; closed when its reply is sent or lost."""

    def __init__(self, quotas: Quotas, key_id: str) -> None:
        self._close: Callable[[str], None] | None = quotas.leave
        self._key_id = key_id

    def close(self) -> None:
        """Give the place back, once."""
        close, self._close = self._close, None
        if close is not None:
            close(self._key_id)

    def __del__(self) -> None:
        self.close()  # the reply was never sent, because the asker had left


class Quotas:
    """The quotas that each key has used in this worker.

    Args:
        limits: of every key.
        patience: seconds that a large question waits for its turn.
        clock: tells seconds that never go back.
    """

    def __init__(
        self,
        limits: KeyLimits | None = None,
        *,
        patience: float = _PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = KeyLimits() if limits is None else limits
        self._patience = patience
        self._clock = clock
        self._lock = threading.RLock()  # a permit may be closed by the garbage collector
        self._turn = threading.Lock()  # one large question is computed at a time, so that small ones get a processor
        self._large: Tally[str] = Tally()
        self._within_rate: dict[str, float] = {}  # by key, when its bytes have passed at the rate

    def refuse_cells(self, cells: int) -> None:
        """Refuse an answer of too many estimates.

        Raises:
            RefusalError: it has more than a key gets in one answer; nothing was charged.
        """
        most = self.limits.cells
        if most and cells > most:
            raise RefusalError(
                "answer-too-large",
                "The answer has too many cells",
                422,
                f"this answer has {cells:,} cells, groups times aggregates, and the limit of one answer is {most:,} "
                "(serve --answer-cells); group by fewer or coarser attributes, or ask for fewer aggregates",
            )
        CELLS.inc(cells)

    def refuse_page(self, cells: int) -> None:
        """Refuse to show a large answer on a page.

        Raises:
            RefusalError: it has too many estimates for a page; nothing was charged.
        """
        self.refuse_cells(cells)
        if cells > LARGE:
            raise RefusalError(
                "page-too-large",
                "The answer is too large for a page",
                422,
                f"this answer has {cells:,} cells, groups times aggregates, and a page shows at most {LARGE:,}; "
                "ask by a program over HTTP, as Parquet, or group by fewer or coarser attributes",
            )

    @contextmanager
    def turn(self, key_id: str, cells: int) -> Iterator[Permit | None]:
        """Let a question in, and compute it inside: a large one waits until no other large one is computed.

        Yields:
            The permit of a large question, to be closed when its reply is sent; an exception closes it.

        Raises:
            RefusalError: the answer is too large, the key has too many large questions under way, or the worker has;
                nothing was charged.
        """
        self.refuse_cells(cells)
        if cells < LARGE:
            yield None
            return
        permit = self._enter(key_id)
        try:
            self._take_turn()
            try:
                yield permit
            finally:
                self._turn.release()
        except BaseException:
            permit.close()
            raise

    def _take_turn(self) -> None:
        if not self._turn.acquire(timeout=self._patience):
            raise _busy(f"other large questions were computed for {self._patience:g} s")

    def _enter(self, key_id: str) -> Permit:
        with self._lock:
            own, most = self._large[key_id], self.limits.at_once
            if most and own >= most:
                raise RefusalError(
                    "too-many-large-questions",
                    "Too many large questions at a time",
                    429,
                    f"this key has {own} questions of {LARGE:,} cells and more under way, and the limit is {most} "
                    "(serve --large-questions); ask again when one of their replies has arrived",
                    after=_AGAIN,
                )
            if (all_keys := self._large.total()) >= _UNDER_WAY:
                raise _busy(f"{all_keys} large questions are under way, and the limit is {_UNDER_WAY}")
            self._large[key_id] += 1
        UNDER_WAY.inc()
        return Permit(self, key_id)

    def leave(self, key_id: str) -> None:
        """Take a large question off those under way."""
        with self._lock:
            self._large[key_id] -= 1
            if not self._large[key_id]:
                del self._large[key_id]
        UNDER_WAY.dec()

    def sent(self, key_id: str, size: int) -> None:
        """Count bytes that a key was sent."""
        BYTES.inc(size)
        if not self.limits.bytes_a_minute:
            return
        now = self._clock()
        with self._lock:
            if len(self._within_rate) > _REMEMBERED:
                self._within_rate = {each: free for each, free in self._within_rate.items() if free > now}
            seconds = size * _MINUTE / self.limits.bytes_a_minute
            self._within_rate[key_id] = max(self._within_rate.get(key_id, 0.0), now) + seconds

    def refuse_bytes(self, key_id: str) -> None:
        """Refuse the request of a key that was sent more than its bytes of a minute.

        Raises:
            RefusalError: says when to come again.
        """
        over = self._within_rate.get(key_id, 0.0) - self._clock() - _MINUTE
        if over > 0:
            wait = int(over) + 1
            raise RefusalError(
                "too-many-bytes",
                "Too many bytes of replies",
                429,
                f"this key was sent more than {self.limits.bytes_a_minute >> 20:,} MiB in a minute, which is the limit "
                f"(serve --reply-rate); come again in {wait} s, and ask for Parquet or Arrow, which are smaller",
                after=wait,
            )


def _busy(reason: str) -> RefusalError:
    detail = f"{reason}; come again in {_AGAIN} s"
    return RefusalError("server-busy", "The server is busy with large questions", 503, detail, after=_AGAIN)
