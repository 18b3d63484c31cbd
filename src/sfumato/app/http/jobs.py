"""Releases that a server makes in the background: asked for, watched, fetched."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import RowMapping, func, insert, select, update

from sfumato.ledger.schema import service_job as _job
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
        open_ones = (_job.c.owner == owner) & _job.c.state.in_(_OPEN) & (_job.c.updated >= alive)
        with self._store.founding() as connection:  # nobody else counts meanwhile
            if connection.execute(select(func.count()).where(open_ones)).scalar_one() >= most:
                return None
            connection.execute(insert(_job).values(row))
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
        with self._store.writing() as connection:
            done = update(_job).where(_job.c.id == job_id).values(state=State.DONE.value, updated=_now(), **made)
            connection.execute(done)

    def fail(self, job_id: str, note: str) -> None:
        """Say why an open job made nothing."""
        self._update(job_id, state=State.FAILED.value, note=note)

    def job(self, job_id: str) -> Job | None:
        """One job; where its worker has died, it has failed."""
        if not job_id.isalnum():  # there is none, and PostgreSQL refuses to look for some characters
            return None
        columns = [column for column in _job.c if column is not _job.c.rows]
        with self._store.reading() as connection:
            row = connection.execute(select(*columns).where(_job.c.id == job_id)).mappings().one_or_none()
        if row is None:
            return None
        found = _as_job(row)
        if found.state.value in _OPEN and datetime.now(UTC) - found.updated > self.lease:
            self._bury(row)
            return self.job(job_id)
        return found

    def rows(self, job_id: str) -> bytes | None:
        """What a job made."""
        with self._store.reading() as connection:
            return connection.execute(select(_job.c.rows).where(_job.c.id == job_id)).scalar_one_or_none()

    def _bury(self, row: RowMapping) -> None:
        """Fail a job whose worker has died, unless it has stirred meanwhile."""
        where = (_job.c.id == row["id"]) & (_job.c.updated == row["updated"]) & _job.c.state.in_(_OPEN)
        failed = {"state": State.FAILED.value, "note": _INTERRUPTED, "updated": _now()}
        with self._store.writing() as connection:
            connection.execute(update(_job).where(where).values(failed))

    def _update(self, job_id: str, **values: object) -> None:
        """Change a job, unless it is over."""
        where = (_job.c.id == job_id) & _job.c.state.in_(_OPEN)
        with self._store.writing() as connection:
            connection.execute(update(_job).where(where).values(updated=_now(), **values))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _as_job(row: RowMapping) -> Job:
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
