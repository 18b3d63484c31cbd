"""Synthetic tables, made in the background: asked for, watched, fetched."""

from __future__ import annotations

import io
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi import APIRouter, Response

from sfumato.app.http.access import Anyone, Worker
from sfumato.app.http.forms import ReleaseForm
from sfumato.app.http.logs import log
from sfumato.app.http.problems import problem
from sfumato.app.http.refusal import RefusalError
from sfumato.app.http.service import Service
from sfumato.ledger.registry import Job, Key, Scope, State

router = APIRouter(prefix="/v1", tags=["releases"])
_SILENCE = timedelta(hours=1)  # after which a running job is taken to have died with its worker
_AT_ONCE = threading.Semaphore(1)  # one release a worker at a time: they need the memory that queries need


@router.post("/datasets/{name}/releases", status_code=202)
def release(name: str, form: ReleaseForm, key: Anyone, worker: Worker) -> dict[str, Any]:
    """Ask for a synthetic table; what it costs is charged when its turn comes."""
    loaded = worker.loaded(name)
    form.loss.loss()
    for attribute in form.attributes:
        loaded.domain.index(attribute)
    job = worker.registry.add_job(name, key.name, form.model_dump())
    threading.Thread(target=_run, args=(worker, job, form, key.name), daemon=True).start()
    return {"job": job, "state": State.QUEUED.value}


@router.get("/releases/{job_id}")
def progress(job_id: str, key: Anyone, worker: Worker) -> dict[str, Any]:
    """How far a release is, and its statement when it is done."""
    job = _owned(worker, job_id, key)
    stale = job.state in (State.QUEUED, State.RUNNING) and datetime.now(UTC) - job.updated > _SILENCE
    return {
        "job": job.id,
        "dataset": job.dataset,
        "state": State.FAILED.value if stale else job.state.value,
        "progress": job.progress,
        "note": "interrupted; ask again, which pays nothing twice" if stale else job.note,
        "statement": job.statement,
    }


@router.get("/releases/{job_id}/rows")
def rows(job_id: str, key: Anyone, worker: Worker) -> Response:
    """The synthetic rows as CSV."""
    job = _owned(worker, job_id, key)
    found = worker.registry.job_rows(job.id) if job.state is State.DONE else None
    if found is None:
        raise RefusalError("not-ready", "The release is not ready", 409, "ask for its state first")
    return Response(found, media_type="text/csv")


def _owned(worker: Service, job_id: str, key: Key) -> Job:
    job = worker.registry.job(job_id)
    if job is None or (job.owner != key.name and key.scope is not Scope.STEWARD):
        raise RefusalError("unknown-release", "There is no such release", 404, "name a release that you asked for")
    return job


def _run(worker: Service, job_id: str, form: ReleaseForm, analyst: str) -> None:
    with _AT_ONCE:
        try:
            job = worker.registry.job(job_id)
            assert job is not None
            worker.registry.advance(job_id, 0.1, "reading the table")
            vault = worker.vault(job.dataset, analyst)
            worker.registry.advance(job_id, 0.3, "measuring and fitting")
            statement, made = _synthesize(vault, form)
            worker.registry.finish(job_id, statement, made)
        except Exception as error:  # noqa: BLE001  (whatever it is, the job says that it failed, in fixed words)
            log("release failed", error=type(error).__name__)
            found = problem(error)
            worker.registry.fail(job_id, f"{found['title']}: {found['detail']}")


def _synthesize(vault: Any, form: ReleaseForm) -> tuple[dict[str, Any], bytes]:  # noqa: ANN401  (a Vault)
    from pyarrow import csv

    from sfumato import synthesize

    loss, total = form.loss.loss(), synthesize.Summed()
    names = tuple(form.attributes) or None
    if form.method == "histogram":
        made = synthesize.histogram(vault, loss=loss, total=total, attributes=names)
    else:
        ways = min(2, len(vault.domain))
        made = synthesize.auto(vault, loss=loss, total=total, workload=synthesize.all_marginals(ways))
    buffer = io.BytesIO()
    csv.write_csv(made.rows.to_arrow(), buffer)
    return made.statement(), buffer.getvalue()
