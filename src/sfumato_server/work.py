"""The work that a server accepts: quotas of keys, and releases in the background.

A quota bounds the estimates of one answer, the large questions at a time, and the bytes of replies per minute.  Each
worker counts on its own.  Only public facts decide: the question, its domain, and earlier replies to the key.  A
refusal names its limit and comes before the charge.  A repeated question counts like a new one.

A job is one release in the background.  Its worker renews a lease.  A job whose lease ran out has failed.
"""

# ruff: noqa: S608  (statements are formatted with constants only)

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
_MAX_LARGE = 16  # large questions of all keys in a worker, waiting ones included: each holds a thread or an answer
_MAX_WAIT = 30.0  # seconds that a large question waits for others: less than clients wait for a reply
_RETRY_AFTER = 5  # seconds
_MAX_TRACKED_KEYS = 4096
_MINUTE = 60.0  # seconds

LARGE_QUESTIONS = Gauge("sfumato_large_questions", "Large questions under way.", multiprocess_mode="livesum")
CELLS = Counter("sfumato_answer_cells_total", "Estimates of answers that were asked for within the limit.")
BYTES = Counter("sfumato_reply_bytes_total", "Bytes of the replies to requests with a key.")


@dataclass(frozen=True)
class KeyLimits:
    """The limits of every key; 0 means no limit.

    Attributes:
        cells: estimates of one answer, groups times aggregates.
        large_questions: large questions of one key under way in a worker, each until its reply is sent.
        bytes_a_minute: bytes of the replies of a worker to one key in a minute.
    """

    cells: int = 1_000_000
    large_questions: int = 2
    bytes_a_minute: int = 256 << 20


class Permit:
    """The place of a large question among those under way.  It is closed when its reply is sent or lost."""

    def __init__(self, quotas: Quotas, key_id: str) -> None:
        self._return: Callable[[str], None] | None = quotas.return_permit
        self._key_id = key_id

    def close(self) -> None:
        """Return the place, once."""
        return_permit, self._return = self._return, None
        if return_permit is not None:
            return_permit(self._key_id)

    def __del__(self) -> None:
        self.close()  # the reply was never sent, because the client had left


class Quotas:
    """The use of the quotas by each key in this worker.

    Args:
        limits: the limits of every key.
        max_wait: the seconds that a large question waits for others.
        clock: a monotonic clock in seconds.
    """

    def __init__(
        self,
        limits: KeyLimits | None = None,
        *,
        max_wait: float = _MAX_WAIT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = KeyLimits() if limits is None else limits
        self._max_wait = max_wait
        self._clock = clock
        self._lock = threading.RLock()  # a permit may be closed by the garbage collector
        self._computing = threading.Lock()  # held for one large question at a time, so that small ones get a processor
        self._large: Tally[str] = Tally()  # questions under way, by key id
        self._rate_exceeded_until: dict[str, float] = {}  # the time when the bytes of a key have passed at the rate

    def refuse_cells(self, cells: int) -> None:
        """Refuse an answer with too many estimates.

        Raises:
            RefusalError: the answer exceeds the limit of a key; nothing was charged.
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
            RefusalError: the answer has too many estimates for a page; nothing was charged.
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
    def question_slot(self, key_id: str, cells: int) -> Iterator[Permit | None]:
        """Run a block that computes an answer.  Large answers are computed one at a time.

        Yields:
            The permit of a large question, to be closed when its reply is sent; an exception closes it.

        Raises:
            RefusalError: the answer is too large, or the key or the worker has too many large questions under way;
                nothing was charged.
        """
        self.refuse_cells(cells)
        if cells < LARGE:
            yield None
            return
        permit = self._issue_permit(key_id)
        try:
            self._wait_for_others()
            try:
                yield permit
            finally:
                self._computing.release()
        except BaseException:
            permit.close()
            raise

    def _wait_for_others(self) -> None:
        if not self._computing.acquire(timeout=self._max_wait):
            raise _busy(f"other large questions were computed for {self._max_wait:g} s")

    def _issue_permit(self, key_id: str) -> Permit:
        with self._lock:
            of_key, limit = self._large[key_id], self.limits.large_questions
            if limit and of_key >= limit:
                raise RefusalError(
                    "too-many-large-questions",
                    "Too many large questions at a time",
                    429,
                    f"this key has {of_key} questions of {LARGE:,} cells and more under way, and the limit is {limit} "
                    "(serve --large-questions); ask again when one of their replies has arrived",
                    after=_RETRY_AFTER,
                )
            if (of_all_keys := self._large.total()) >= _MAX_LARGE:
                raise _busy(f"{of_all_keys} large questions are under way, and the limit is {_MAX_LARGE}")
            self._large[key_id] += 1
        LARGE_QUESTIONS.inc()
        return Permit(self, key_id)

    def return_permit(self, key_id: str) -> None:
        """Remove a large question from those under way."""
        with self._lock:
            self._large[key_id] -= 1
            if not self._large[key_id]:
                del self._large[key_id]
        LARGE_QUESTIONS.dec()

    def count_bytes(self, key_id: str, size: int) -> None:
        """Count bytes that were sent to a key."""
        BYTES.inc(size)
        if not self.limits.bytes_a_minute:
            return
        now = self._clock()
        with self._lock:
            until = self._rate_exceeded_until
            if len(until) > _MAX_TRACKED_KEYS:
                until = self._rate_exceeded_until = {id_: end for id_, end in until.items() if end > now}
            seconds = size * _MINUTE / self.limits.bytes_a_minute
            until[key_id] = max(until.get(key_id, 0.0), now) + seconds

    def refuse_bytes(self, key_id: str) -> None:
        """Refuse a request of a key that received more than its bytes per minute.

        Raises:
            RefusalError: the key has to wait; the reply's Retry-After says how long.
        """
        excess = self._rate_exceeded_until.get(key_id, 0.0) - self._clock() - _MINUTE  # seconds
        if excess > 0:
            wait = int(excess) + 1
            raise RefusalError(
                "too-many-bytes",
                "Too many bytes of replies",
                429,
                f"this key was sent more than {self.limits.bytes_a_minute >> 20:,} MiB in a minute, which is the limit "
                f"(serve --reply-rate); try again in {wait} s, and ask for Parquet or Arrow, which are smaller",
                after=wait,
            )


def _busy(reason: str) -> RefusalError:
    detail = f"{reason}; come again in {_RETRY_AFTER} s"
    return RefusalError("server-busy", "The server is busy with large questions", 503, detail, after=_RETRY_AFTER)


LEASE = timedelta(seconds=30)
"""A worker renews the lease of its job more often than this.  If a lease runs out, the worker has died."""

_INTERRUPTED = (
    "its worker stopped; if it was charged, the charge stands and is in the journal, and the same request asked again "
    "is completed without a second charge"
)


class State(StrEnum):
    """The state of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


_OPEN = (State.QUEUED.value, State.RUNNING.value)
_IS_OPEN = f"state IN ('{_OPEN[0]}', '{_OPEN[1]}')"
_QUESTION = "q"  # the prefix of question ids; the ids of jobs are hexadecimal
_DRAFT = "w"  # the prefix of ids of descriptions under way
_DIGITS = 16  # of the hash of the owner, and of the hash of the question
_MAX_DRAFTS = 20  # descriptions under way that are stored per owner, the newest
_MAX_QUESTIONS = 200  # that are stored per owner and dataset, the newest
_OF_OWNER = "id BETWEEN :first AND :last"
_FORGET = f"""
    DELETE FROM service_job WHERE {_OF_OWNER} AND id NOT IN
    (SELECT id FROM service_job WHERE {_OF_OWNER} ORDER BY updated DESC, id LIMIT :most)"""
_COLUMNS = "id, dataset, owner, request, state, progress, note, updated, statement"  # all but the rows


@dataclass(frozen=True)
class Job:
    """A release in the background."""

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
    """The jobs of a server, in a prepared store.

    Attributes:
        lease: the time after which a silent worker counts as dead; the same in all processes of a server.
    """

    def __init__(self, store: Store, *, lease: timedelta = LEASE) -> None:
        self._store = store
        self.lease = lease

    def add(self, dataset: str, owner: str, request: Mapping[str, Any], *, most: int) -> str | None:
        """Queue a job and return its id; None if ``most`` jobs of the owner are open."""
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
        count_open = f"SELECT COUNT(*) FROM service_job WHERE owner = :owner AND {_IS_OPEN} AND updated >= :alive"
        with self._store.founding() as driver:  # no other transaction adds a job meanwhile
            if driver.value(count_open, {"owner": owner, "alive": alive}) >= most:
                return None
            driver.insert("service_job", [row])
        return job

    def renew_lease(self, job_id: str) -> None:
        """Record that the worker of an open job is alive."""
        self._update(job_id)

    def advance(self, job_id: str, progress: float, note: str) -> None:
        """Record the progress of an open job."""
        self._update(job_id, state=State.RUNNING.value, progress=progress, note=note)

    def finish(self, job_id: str, statement: Mapping[str, Any], rows: bytes) -> None:
        """Store the result of a job, even if it counts as failed because its worker was silent for too long."""
        made = {"progress": 1.0, "note": "done", "statement": json.dumps(statement), "rows": rows}
        self._change("id = :id", {"id": job_id}, made | {"state": State.DONE.value})

    def fail(self, job_id: str, note: str) -> None:
        """Record the reason why an open job failed."""
        self._update(job_id, state=State.FAILED.value, note=note)

    def releases(self, dataset: str, owner: str, *, most: int) -> tuple[Job, ...]:
        """Return an owner's releases of a dataset, newest first."""
        return self._select(dataset, owner, f"id < '{_QUESTION}'", most)

    def finished(self, dataset: str, *, most: int) -> tuple[Job, ...]:
        """Return the finished releases of a dataset of all owners, newest first."""
        query = (
            f"SELECT {_COLUMNS} FROM service_job WHERE dataset = :dataset AND state = :state AND id < '{_QUESTION}' "
            "ORDER BY updated DESC LIMIT :most"
        )
        with self._store.reading() as driver:
            values = {"dataset": dataset, "state": State.DONE.value, "most": most}
            return tuple(_as_job(row) for row in driver.records(query, values))

    def questions(self, dataset: str, owner: str, *, most: int) -> tuple[Job, ...]:
        """Return the questions that an owner asked on the pages, as their forms were sent, newest first."""
        first, last = _questions_of(dataset, owner)
        return self._select(dataset, owner, _OF_OWNER, most, first=first, last=last)

    def remember_question(self, dataset: str, owner: str, request: Mapping[str, Any]) -> None:
        """Store an answered question, so that the page can offer it again.  A repeated question moves to the front.

        Only the newest of an owner and dataset stay.  Their ids share a prefix, so the primary key finds them.
        """
        text = json.dumps(request, sort_keys=True)
        first, last = _questions_of(dataset, owner)
        question_id = first[:-_DIGITS] + _digest(text)
        row = {"id": question_id, "dataset": dataset, "owner": owner, "request": text, "state": State.DONE.value}
        renew = "UPDATE service_job SET updated = :updated WHERE id = :id"
        with self._store.writing() as driver:
            if not driver.run(renew, {"id": question_id, "updated": _now()}):
                driver.insert("service_job", [row | {"progress": 1.0, "note": "answered", "updated": _now()}])
                driver.run(_FORGET, {"first": first, "last": last, "most": _MAX_QUESTIONS})

    def save_draft(self, owner: str, draft: bytes, name: str, draft_id: str | None = None) -> str:
        """Store a description that a steward works on, and return its id.  Only the newest of a steward stay."""
        first, last = _drafts_of(owner)
        values = {"rows": draft, "note": name, "updated": _now()}
        with self._store.writing() as driver:
            if draft_id is not None:
                change = f"UPDATE service_job SET {changed(tuple(values))} WHERE id = :id AND owner = :owner"
                driver.run(change, {**values, "id": draft_id, "owner": owner})
                return draft_id
            new = first[:-_DIGITS] + secrets.token_hex(_DIGITS // 2)
            row = {"id": new, "dataset": "", "owner": owner, "request": "{}", "state": State.DONE.value}
            driver.insert("service_job", [row | {"progress": 1.0} | values])
            driver.run(_FORGET, {"first": first, "last": last, "most": _MAX_DRAFTS})
        return new

    def draft(self, owner: str, draft_id: str) -> bytes | None:
        """Return a description that a steward works on; None if this steward has none of that id."""
        first, last = _drafts_of(owner)
        return self.rows(draft_id) if draft_id.isalnum() and first <= draft_id <= last else None

    def discard_draft(self, owner: str, draft_id: str) -> None:
        """Delete a description that a steward works on."""
        with self._store.writing() as driver:
            driver.run("DELETE FROM service_job WHERE id = :id AND owner = :owner", {"id": draft_id, "owner": owner})

    def drafts(self, owner: str) -> tuple[Job, ...]:
        """Return the descriptions that a steward works on, newest first; the note of each is its name."""
        first, last = _drafts_of(owner)
        return self._select("", owner, _OF_OWNER, _MAX_DRAFTS, first=first, last=last)

    def _select(self, dataset: str, owner: str, condition: str, most: int, **more: str) -> tuple[Job, ...]:
        values = {"dataset": dataset, "owner": owner, "most": most, **more}
        query = (
            f"SELECT {_COLUMNS} FROM service_job WHERE dataset = :dataset AND owner = :owner AND {condition} "
            "ORDER BY updated DESC LIMIT :most"
        )
        with self._store.reading() as driver:
            return tuple(_as_job(row) for row in driver.records(query, values))

    def job(self, job_id: str) -> Job | None:
        """Return a job; None if there is none.  If its worker has died, the job has failed."""
        # PostgreSQL refuses some characters, such as NUL
        if not job_id.isalnum() or job_id.startswith((_QUESTION, _DRAFT)):
            return None
        with self._store.reading() as driver:
            row = driver.record(f"SELECT {_COLUMNS} FROM service_job WHERE id = :id", {"id": job_id})
        if row is None:
            return None
        job = _as_job(row)
        if job.state.value in _OPEN and datetime.now(UTC) - job.updated > self.lease:
            self._fail_abandoned(row)
            return self.job(job_id)
        return job

    def open_states(self) -> list[str]:
        """Return the states of all open jobs with a living worker."""
        alive = (datetime.now(UTC) - self.lease).isoformat(timespec="microseconds")
        with self._store.reading() as driver:
            rows = driver.rows(
                f"SELECT state FROM service_job WHERE {_IS_OPEN} AND updated >= :alive", {"alive": alive}
            )
        return [state for (state,) in rows]

    def rows(self, job_id: str) -> bytes | None:
        """Return the rows that a job produced; None if there are none."""
        with self._store.reading() as driver:
            rows: bytes | None = driver.value("SELECT rows FROM service_job WHERE id = :id", {"id": job_id})
        return rows

    def _fail_abandoned(self, row: Mapping[str, Any]) -> None:
        """Fail a job whose worker has died, unless the worker renewed the lease meanwhile."""
        condition = f"id = :id AND updated = :seen AND {_IS_OPEN}"
        failed = {"state": State.FAILED.value, "note": _INTERRUPTED}
        self._change(condition, {"id": row["id"], "seen": row["updated"]}, failed)

    def _update(self, job_id: str, **values: object) -> None:
        """Change an open job."""
        self._change(f"id = :id AND {_IS_OPEN}", {"id": job_id}, values)

    def _change(self, condition: str, bound: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        values = {**values, "updated": _now()}
        with self._store.writing() as driver:
            driver.run(f"UPDATE service_job SET {changed(tuple(values))} WHERE {condition}", {**values, **bound})


def _questions_of(dataset: str, owner: str) -> tuple[str, str]:
    """Return the first and last possible id of the questions of one owner about a dataset."""
    prefix = _QUESTION + _digest(json.dumps([dataset, owner]))
    return prefix + "0" * _DIGITS, prefix + "f" * _DIGITS


def _drafts_of(owner: str) -> tuple[str, str]:
    """Return the first and last possible id of the descriptions of one owner."""
    prefix = _DRAFT + _digest(owner)
    return f"{prefix}{'0' * _DIGITS}", f"{prefix}{'f' * _DIGITS}"


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
