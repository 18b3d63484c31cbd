"""The work that a server takes on: quotas of a key, and releases that it makes in the background.

A quota bounds the estimates of one answer, large questions at a time, and bytes of replies a minute.  Each worker
counts on its own.  What decides is public: the question, its domain, and what the key was sent before.  A refusal names
its limit and comes before the charge.  Repeated questions count like new ones.

A job is one release in the background.  Its worker renews a lease.  A job whose lease ran out has failed.
"""

# ruff: noqa: S608  (names of our own stand in statements, values never)

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from prometheus_client import Counter, Gauge

from sfumato.ledger.database import changed
from sfumato.ledger.store import Store
from sfumato_server.problems import RefusalError

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


LEASE = timedelta(seconds=30)
"""A worker says more often than this that it is at a job; one that is silent for longer has died."""

_INTERRUPTED = (
    "its worker stopped; if it was charged, the charge stands and is in the journal, and the same request asked again "
    "is completed without a second charge"
)


class State(StrEnum):
    """How far a job is."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


_OPEN = (State.QUEUED.value, State.RUNNING.value)
_IS_OPEN = f"state IN ('{_OPEN[0]}', '{_OPEN[1]}')"
_QUESTION = "q"  # begins the id of a question, as no job's does, whose digits are hexadecimal
_DIGITS = 16  # of whose it is, and again of what was asked
_MOST_QUESTIONS = 200  # of one owner and dataset that are remembered; beyond, the oldest are forgotten
_OF_OWNER = "id BETWEEN :first AND :last"
_FORGET = f"""
    DELETE FROM service_job WHERE {_OF_OWNER} AND id NOT IN
    (SELECT id FROM service_job WHERE {_OF_OWNER} ORDER BY updated DESC, id LIMIT :kept)"""
_COLUMNS = "id, dataset, owner, request, state, progress, note, updated, statement"  # all but the rows


@dataclass(frozen=True)
class Job:
    """A release that is made in the background."""

    id: str
    dataset: str
    owner: str
    request: Mapping[str, Any]
    state: State
    progress: float
    note: str
    updated: datetime
    statement: Mapping[str, Any] | None


class Jobs:
    """The jobs of a server, over a store that is prepared.

    Attributes:
        lease: how long a worker may be silent; the same in all processes of a server.
    """

    def __init__(self, store: Store, *, lease: timedelta = LEASE) -> None:
        self._store = store
        self.lease = lease

    def add(self, dataset: str, owner: str, request: Mapping[str, Any], *, most: int) -> str | None:
        """Queue a job; returns its id, or None where ``most`` jobs of the owner are open already."""
        job = secrets.token_hex(12)
        row = {
            "id": job,
            "dataset": dataset,
            "owner": owner,
            "request": json.dumps(request),
            "state": State.QUEUED.value,
            "progress": 0.0,
            "note": "waiting",
            "updated": _now(),
        }
        alive = (datetime.now(UTC) - self.lease).isoformat(timespec="microseconds")
        open_ones = f"SELECT COUNT(*) FROM service_job WHERE owner = :owner AND {_IS_OPEN} AND updated >= :alive"
        with self._store.founding() as driver:  # nobody else counts meanwhile
            if driver.value(open_ones, {"owner": owner, "alive": alive}) >= most:
                return None
            driver.insert("service_job", [row])
        return job

    def beat(self, job_id: str) -> None:
        """Say that the worker of an open job lives."""
        self._update(job_id)

    def advance(self, job_id: str, progress: float, note: str) -> None:
        """Say how far an open job is."""
        self._update(job_id, state=State.RUNNING.value, progress=progress, note=note)

    def finish(self, job_id: str, statement: Mapping[str, Any], rows: bytes) -> None:
        """Store what a job made, also where it was thought to have failed as its worker was silent for too long."""
        made = {"progress": 1.0, "note": "done", "statement": json.dumps(statement), "rows": rows}
        self._change("id = :id", {"id": job_id}, made | {"state": State.DONE.value})

    def fail(self, job_id: str, note: str) -> None:
        """Say why an open job made nothing."""
        self._update(job_id, state=State.FAILED.value, note=note)

    def releases(self, dataset: str, owner: str, *, most: int) -> tuple[Job, ...]:
        """What an owner asked to be made of a dataset, newest first."""
        return self._of(dataset, owner, f"id < '{_QUESTION}'", most)

    def questions(self, dataset: str, owner: str, *, most: int) -> tuple[Job, ...]:
        """What an owner asked a dataset on the page, as the forms that were sent, newest first."""
        first, last = _questions_of(dataset, owner)
        return self._of(dataset, owner, _OF_OWNER, most, first=first, last=last)

    def asked(self, dataset: str, owner: str, request: Mapping[str, Any]) -> None:
        """Remember a question that was answered, once however often it is asked, so that it can be asked again.

        Of one owner and dataset the newest are kept; ids begin alike for them, so that the table's key finds them.
        """
        text = json.dumps(request, sort_keys=True)
        first, last = _questions_of(dataset, owner)
        found = first[:-_DIGITS] + _digest(text)
        row = {"id": found, "dataset": dataset, "owner": owner, "request": text, "state": State.DONE.value}
        again = "UPDATE service_job SET updated = :updated WHERE id = :id"
        with self._store.writing() as driver:
            if not driver.run(again, {"id": found, "updated": _now()}):
                driver.insert("service_job", [row | {"progress": 1.0, "note": "answered", "updated": _now()}])
                driver.run(_FORGET, {"first": first, "last": last, "kept": _MOST_QUESTIONS})

    def _of(self, dataset: str, owner: str, which: str, most: int, **more: str) -> tuple[Job, ...]:
        named = {"dataset": dataset, "owner": owner, "most": most, **more}
        query = (
            f"SELECT {_COLUMNS} FROM service_job WHERE dataset = :dataset AND owner = :owner AND {which} "
            "ORDER BY updated DESC LIMIT :most"
        )
        with self._store.reading() as driver:
            return tuple(_as_job(row) for row in driver.records(query, named))

    def job(self, job_id: str) -> Job | None:
        """One job; where its worker has died, it has failed."""
        if not job_id.isalnum():  # there is none, and PostgreSQL refuses to look for some characters
            return None
        if job_id.startswith(_QUESTION):
            return None
        with self._store.reading() as driver:
            row = driver.record(f"SELECT {_COLUMNS} FROM service_job WHERE id = :id", {"id": job_id})
        if row is None:
            return None
        found = _as_job(row)
        if found.state.value in _OPEN and datetime.now(UTC) - found.updated > self.lease:
            self._bury(row)
            return self.job(job_id)
        return found

    def open_states(self) -> list[str]:
        """The states of all jobs whose workers live and that are not over."""
        alive = (datetime.now(UTC) - self.lease).isoformat(timespec="microseconds")
        with self._store.reading() as driver:
            found = driver.rows(
                f"SELECT state FROM service_job WHERE {_IS_OPEN} AND updated >= :alive", {"alive": alive}
            )
        return [state for (state,) in found]

    def rows(self, job_id: str) -> bytes | None:
        """What a job made."""
        with self._store.reading() as driver:
            found: bytes | None = driver.value("SELECT rows FROM service_job WHERE id = :id", {"id": job_id})
        return found

    def _bury(self, row: Mapping[str, Any]) -> None:
        """Fail a job whose worker has died, unless it has stirred meanwhile."""
        which = f"id = :id AND updated = :seen AND {_IS_OPEN}"
        failed = {"state": State.FAILED.value, "note": _INTERRUPTED}
        self._change(which, {"id": row["id"], "seen": row["updated"]}, failed)

    def _update(self, job_id: str, **values: object) -> None:
        """Change a job, unless it is over."""
        self._change(f"id = :id AND {_IS_OPEN}", {"id": job_id}, values)

    def _change(self, which: str, named: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        values = {**values, "updated": _now()}
        with self._store.writing() as driver:
            driver.run(f"UPDATE service_job SET {changed(tuple(values))} WHERE {which}", {**values, **named})


def _questions_of(dataset: str, owner: str) -> tuple[str, str]:
    """Between which ids the questions of one owner about a dataset are."""
    begins = _QUESTION + _digest(json.dumps([dataset, owner]))
    return begins + "0" * _DIGITS, begins + "f" * _DIGITS


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _as_job(row: Mapping[str, Any]) -> Job:
    return Job(
        id=row["id"],
        dataset=row["dataset"],
        owner=row["owner"],
        request=json.loads(row["request"]),
        state=State(row["state"]),
        progress=row["progress"],
        note=row["note"],
        updated=datetime.fromisoformat(row["updated"]),
        statement=None if row["statement"] is None else json.loads(row["statement"]),
    )
