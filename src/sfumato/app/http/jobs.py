"""Releases that a server makes in the background: asked for, watched, fetched."""

# ruff: noqa: S608  (names of our own stand in statements, values never)

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from sfumato.ledger.dbapi import changed
from sfumato.ledger.store import Store

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
