"""Synthetic and anonymised tables, made in the background: asked for, watched, fetched with their statement."""

from __future__ import annotations

import io
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import APIRouter, Query, Response

from sfumato.app.api.releases import Anonymization, AnonymizeRequest, SynthesisFields, SynthesizeRequest
from sfumato.domain.linked_domain import LinkedTables
from sfumato.errors import LedgerError
from sfumato.ledger.reservation import refuse_never
from sfumato.privacy.loss import Loss
from sfumato.vault.release import ReleasedRows
from sfumato.vault.vault import Vault
from sfumato_server.access import Anyone, CurrentService, Steward, StrictRoute
from sfumato_server.problems import RefusalError, log, problem
from sfumato_server.registry import Key, Scope
from sfumato_server.rules import explained
from sfumato_server.service import Service, refuse_retired
from sfumato_server.tables import ServedDataset
from sfumato_server.work import Job, Jobs, State

router = APIRouter(prefix="/v1", tags=["releases"], route_class=StrictRoute)
AT_ONCE = threading.Semaphore(1)  # one release a worker at a time: they need the memory that queries need
MOST_OPEN = 8
"""Releases that one name may have waiting or under way, as each holds a thread."""

Form: TypeAlias = Annotated[Literal["csv", "parquet"], Query(alias="format")]
Made: TypeAlias = tuple[dict[str, Any], bytes]
"""The statement of a release, and its rows as Parquet, with all that they carry."""

_PARQUET, _ZIP = b"PAR1", b"PK\x03\x04"
_MEDIA = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}


@router.post("/datasets/{name}/releases", status_code=202)
def release(name: str, form: SynthesisFields, key: Anyone, service: CurrentService) -> dict[str, Any]:
    """Ask for a synthetic table, or for related ones; what it costs is charged when its turn comes.

    The reply's ``advice`` says how much less noise a delta would leave at the same epsilon.
    """
    from sfumato.synthesize import linked_without_delta

    loss = form.loss.loss()
    loaded = service.admit(name, key, loss)
    with explained(loaded.ledger, key):
        refuse_never(loaded.ledger.remaining(), loss.charge)
    asked = {"synthesize": form.model_dump()}
    if form.method == "related":
        tables = form.linked(loaded.schema)
        advice = linked_without_delta(tables.schema, loss=loss, children=tables.children)
        order = Ordered(loaded, key, loss, asked | {"advice": advice}, tables)
        return _start(service, order, partial(linked, tables=tables, loss=loss))
    wanted = form.read(loaded.domain)
    order = Ordered(loaded, key, loss, asked | {"advice": wanted.without_delta(loaded.domain)})
    return _start(service, order, partial(synthesized, request=wanted))


@router.post("/datasets/{name}/anonymizations", status_code=202)
def anonymization(name: str, form: AnonymizeRequest, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Ask for an anonymised table (stewards).  No differential privacy: the journal says so, no budget is spent."""
    loaded = service.loaded(name)
    wanted = form.read()
    for attribute in form.quasi:
        loaded.domain.index(attribute)
    refuse_retired(loaded)
    order = Ordered(loaded, key, None, {"anonymize": form.model_dump()})
    return _start(service, order, partial(anonymized, wanted=wanted))


@router.get("/releases/{job_id}")
def progress(job_id: str, key: Anyone, service: CurrentService) -> dict[str, Any]:
    """How far a release is, and its statement when it is done."""
    job = _owned(service, job_id, key)
    return {
        "job": job.id,
        "dataset": service.called(job.dataset),
        "state": job.state.value,
        "progress": job.progress,
        "note": job.note,
        "advice": list(job.request.get("advice", ())),
        "statement": job.statement,
    }


@router.get("/releases/{job_id}/rows")
def rows(job_id: str, key: Anyone, service: CurrentService, form: Form = "csv") -> Response:
    """The rows: as CSV, or as a Parquet file, with the codebook and noisy tables of a synthetic release.

    Of related tables a ZIP file of all, with their codebook.
    """
    job = _owned(service, job_id, key)
    found = service.registry.jobs.rows(job.id) if job.state is State.DONE else None
    if found is None:
        raise RefusalError("not-ready", "The release is not ready", 409, "ask for its state first")
    if found.startswith(_ZIP):
        return Response(found if form == "parquet" else tables_as_csv(found), media_type="application/zip")
    if not found.startswith(_PARQUET):  # an earlier version kept CSV
        if form != "csv":
            raise RefusalError(
                "kept-as-csv", "These rows are kept as CSV", 409, "fetch them as CSV, or release them again"
            )
        return Response(found, media_type=_MEDIA[form])
    return Response(found if form == "parquet" else as_csv(found), media_type=_MEDIA[form])


def _owned(service: Service, job_id: str, key: Key) -> Job:
    job = service.registry.jobs.job(job_id)
    if job is None or (job.owner != key.name and key.scope is not Scope.STEWARD):
        raise RefusalError("unknown-release", "There is no such release", 404, "name a release that you asked for")
    return job


@dataclass(frozen=True)
class Ordered:
    """A release that somebody ordered: of what, for whom, at which loss (None: without differential privacy).

    ``tables`` are those that belong together, where not one alone is made.
    """

    loaded: ServedDataset
    key: Key
    loss: Loss | None
    request: dict[str, Any]
    tables: LinkedTables | None = None


def _start(service: Service, order: Ordered, make: Callable[[Vault], Made]) -> dict[str, Any]:
    name = order.loaded.dataset.name
    job = service.registry.jobs.add(name, order.key.name, order.request, most=MOST_OPEN)
    if job is None:
        raise RefusalError(
            "too-many-releases",
            "Too many of your releases are waiting",
            429,
            f"{MOST_OPEN} releases that you asked for are not done yet; wait for one of them",
        )
    threading.Thread(target=_run, args=(service, job, order, make), daemon=True).start()
    return {"job": job, "state": State.QUEUED.value, "advice": list(order.request.get("advice", ()))}


def _run(service: Service, job_id: str, order: Ordered, make: Callable[[Vault], Made]) -> None:
    jobs, key = service.registry.jobs, order.key
    with _alive(jobs, job_id), AT_ONCE:
        try:
            jobs.advance(job_id, 0.1, "reading the table")
            loaded = service.again(order.loaded)  # it may have been renamed, or retired, while this waited
            name = loaded.dataset.called
            if order.loss is not None:
                service.admit(name, key, order.loss)  # or its owner shut out, or terms changed
            tables = order.tables
            vault = service.vault(name, key.name) if tables is None else service.units(name, key.name, tables)
            jobs.advance(job_id, 0.3, "searching, measuring and fitting")
            with explained(loaded.ledger, key):
                statement, made = make(vault)
            jobs.finish(job_id, statement, made)
        except Exception as error:  # noqa: BLE001  (whatever it is, the job says that it failed, in fixed words)
            log("release failed", error=type(error).__name__)
            found = problem(error)
            jobs.fail(job_id, f"{found['title']}: {found['detail']}")


@contextmanager
def _alive(jobs: Jobs, job_id: str) -> Iterator[None]:
    """Say again and again that the job has a worker, for as long as it has one."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(jobs.lease.total_seconds() / 6):
            try:
                jobs.beat(job_id)
            except LedgerError:
                log("heartbeat missed")  # the next one may come in time

    beating = threading.Thread(target=beat, daemon=True)
    beating.start()
    try:
        yield
    finally:
        over.set()
        beating.join()


def synthesized(vault: Vault, request: SynthesizeRequest) -> Made:
    """A synthetic table; its codebook stands with the statement, and in the file of its rows."""
    made = request.release(vault)
    return {**made.statement(), "codebook": made.codebook.to_json()}, as_parquet(made.rows)


def anonymized(vault: Vault, wanted: Anonymization) -> Made:
    """An anonymised table; its facts (classes, suppressed rows, losses) stand with the statement."""
    made = wanted.release(vault)
    return {**made.statement(), "facts": dict(made.facts)}, as_parquet(made.rows)


def linked(vault: Vault, tables: LinkedTables, loss: Loss) -> Made:
    """Related tables, in one file with their codebook, which stands with the statement as well."""
    from sfumato.synthesize import NoisyTotal
    from sfumato.synthesize.linked import ModelSizes
    from sfumato.synthesize.linked.linked_synthesis import release_units

    made = release_units(vault, tables, loss=loss, total=NoisyTotal(), settings=ModelSizes())
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "tables"
        made.write(place)
        files = {path.name: path.read_bytes() for path in sorted(place.iterdir())}
    return {**made.statement(), "codebook": made.codebook.to_json()}, _packed(files)


def tables_as_csv(file: bytes) -> bytes:
    """A ZIP file of Parquet files as one of CSV; what else is in it stays."""
    found = {}
    with zipfile.ZipFile(io.BytesIO(file)) as packed:
        for name in packed.namelist():
            body, stem = packed.read(name), name.removesuffix(".parquet")
            found[name if stem == name else f"{stem}.csv"] = body if stem == name else as_csv(body)
    return _packed(found)


def _packed(files: Mapping[str, bytes]) -> bytes:
    """A ZIP file, the same whenever it is made."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for name, body in files.items():
            packed.writestr(zipfile.ZipInfo(name), body, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def as_parquet(rows: ReleasedRows) -> bytes:
    """The rows as a Parquet file, with the metadata that the file of a command has."""
    from pyarrow import parquet

    buffer = io.BytesIO()
    parquet.write_table(rows.to_arrow(), buffer, compression="zstd")
    return buffer.getvalue()


def as_csv(file: bytes) -> bytes:
    """A Parquet file as one of CSV."""
    from pyarrow import csv, parquet

    buffer = io.BytesIO()
    csv.write_csv(parquet.read_table(io.BytesIO(file)), buffer)
    return buffer.getvalue()
