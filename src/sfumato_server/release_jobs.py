"""Routes of synthetic and anonymized tables: start a release in the background, watch it, and fetch its rows."""

from __future__ import annotations

import io
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import APIRouter, Query, Response

from sfumato.app.api.releases import Anonymization, AnonymizeRequest, SynthesisFields, SynthesizeRequest
from sfumato.domain.linked_domain import LinkedTables
from sfumato.errors import LedgerError
from sfumato.ledger.account import refuse_beyond_limit
from sfumato.ledger.entry import method_title
from sfumato.privacy.loss import Loss
from sfumato.vault.release import ReleasedRows
from sfumato.vault.vault import Vault
from sfumato_server.access import Anyone, CurrentService, Steward, StrictRoute
from sfumato_server.problems import RefusalError, log, problem
from sfumato_server.registry import Key, Scope
from sfumato_server.rules import naming_spenders
from sfumato_server.service import Service, refuse_retired
from sfumato_server.tables import ServedDataset
from sfumato_server.work import Job, Jobs, State

router = APIRouter(prefix="/v1", tags=["releases"], route_class=StrictRoute)
RELEASE_SLOT = threading.Semaphore(1)  # one release per worker at a time, because a release needs much memory
MAX_OPEN = 8
"""Releases of one owner that may be queued or running.  Each of them has a thread."""

Form: TypeAlias = Annotated[Literal["csv", "parquet"], Query(alias="format")]
ReleaseOutput: TypeAlias = tuple[dict[str, Any], bytes]
"""The statement of a release, and its rows as a Parquet file, or as a ZIP file of several."""

_MAX_LISTED = 20  # earlier releases
_PARQUET, _ZIP = b"PAR1", b"PK\x03\x04"
_MEDIA = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}


@router.post("/datasets/{name}/releases", status_code=202)
def release(name: str, form: SynthesisFields, key: Anyone, service: CurrentService) -> dict[str, Any]:
    """Start the release of a synthetic table, or of linked ones.  It is charged when it starts to run.

    The reply's ``advice`` says how much less noise a delta would leave at the same epsilon.
    """
    return start(service, synthesis_order(name, form, key, service))


def synthesis_order(name: str, form: SynthesisFields, key: Key, service: Service) -> ReleaseOrder:
    """Check the release of a synthetic table, or of linked ones.  Nothing is charged or started.

    Raises:
        SfumatoError, RefusalError: the release is not admitted, or a field is invalid.
    """
    from sfumato.synthesize import linked_without_delta

    loss = form.loss.loss()
    loaded = service.check_query_budget(name, key, loss)
    with naming_spenders(loaded.ledger, key):
        refuse_beyond_limit(loaded.ledger.remaining(), loss.charge)
    request = {"synthesize": form.model_dump()}
    if form.method == "related":
        tables = form.linked(loaded.schema)
        advice = linked_without_delta(tables.schema, loss=loss, children=tables.children)
        make = partial(linked, tables=tables, loss=loss)
        return ReleaseOrder(loaded, key, loss, request | {"advice": advice}, make, tables)
    synthesis = form.read(loaded.domain)
    advice = synthesis.without_delta(loaded.domain)
    return ReleaseOrder(loaded, key, loss, request | {"advice": advice}, partial(synthesized, request=synthesis))


@router.post("/datasets/{name}/anonymizations", status_code=202)
def anonymization(name: str, form: AnonymizeRequest, key: Steward, service: CurrentService) -> dict[str, Any]:
    """Start the release of an anonymized table, for stewards.  It has no differential privacy and spends no budget."""
    loaded = service.loaded(name)
    request = form.read()
    for attribute in form.quasi:
        loaded.domain.index(attribute)
    refuse_retired(loaded)
    make = partial(anonymized, request=request)
    return start(service, ReleaseOrder(loaded, key, None, {"anonymize": form.model_dump()}, make))


def kind_words(request: Mapping[str, Any]) -> str:
    """Return what a job releases, in words, from its request."""
    if "anonymize" in request:
        return "anonymized table"
    method = request["synthesize"]["method"]
    return method_title(method) if method == "related" else "synthetic table"


def is_repeat(order: ReleaseOrder, service: Service) -> bool:
    """Return whether the owner got the same synthetic table within the current version, which is free to repeat."""
    loaded, request = order.loaded, order.request["synthesize"]
    version = loaded.ledger.data_version()
    jobs = service.registry.jobs.releases(loaded.dataset.name, order.key.name, most=_MAX_LISTED)
    return version is not None and any(
        job.request.get("synthesize") == request
        and job.state is State.DONE
        and job.updated > datetime.fromisoformat(version.time)
        for job in jobs
    )


def earlier_releases(loaded: ServedDataset, key: Key, service: Service) -> list[dict[str, str]]:
    """Return the releases of a dataset that a key's holder started, newest first."""
    return [
        {
            "id": job.id,
            "when": job.updated.astimezone(UTC).strftime("%Y-%m-%d %H:%M"),
            "state": job.state.value,
            "kind": kind_words(job.request),
        }
        for job in service.registry.jobs.releases(loaded.dataset.name, key.name, most=_MAX_LISTED)
    ]


@router.get("/releases/{job_id}")
def progress(job_id: str, key: Anyone, service: CurrentService) -> dict[str, Any]:
    """Return the progress of a release, and its statement when it is done."""
    job = _owned(service, job_id, key)
    return {
        "job": job.id,
        "dataset": service.current_name(job.dataset),
        "state": job.state.value,
        "progress": job.progress,
        "note": job.note,
        "advice": list(job.request.get("advice", ())),
        "statement": job.statement,
    }


@router.get("/releases/{job_id}/rows")
def rows(job_id: str, key: Anyone, service: CurrentService, form: Form = "csv") -> Response:
    """Return the rows as CSV or Parquet.  A Parquet file of a synthetic release has its codebook and noisy tables.

    Linked tables come as a ZIP file of all tables with their codebook.
    """
    job = _owned(service, job_id, key)
    file = service.registry.jobs.rows(job.id) if job.state is State.DONE else None
    if file is None:
        raise RefusalError("not-ready", "The release is not ready", 409, "wait until its state is done")
    if file.startswith(_ZIP):
        return Response(file if form == "parquet" else tables_as_csv(file), media_type="application/zip")
    if not file.startswith(_PARQUET):  # an earlier version stored CSV
        if form != "csv":
            raise RefusalError(
                "kept-as-csv", "These rows are kept as CSV", 409, "fetch them as CSV, or release them again"
            )
        return Response(file, media_type=_MEDIA[form])
    return Response(file if form == "parquet" else as_csv(file), media_type=_MEDIA[form])


def _owned(service: Service, job_id: str, key: Key) -> Job:
    job = service.registry.jobs.job(job_id)
    if job is None or (job.owner != key.name and key.scope is not Scope.STEWARD):
        raise RefusalError("unknown-release", "There is no such release", 404, "name a release that you asked for")
    return job


@dataclass(frozen=True)
class ReleaseOrder:
    """A release to make.

    Attributes:
        loaded: the dataset.
        key: the key of the owner.
        loss: the loss; None without differential privacy.
        request: the request as JSON, for the job.
        make: the release from a vault.
        tables: the linked tables; None for a release of one table.
    """

    loaded: ServedDataset
    key: Key
    loss: Loss | None
    request: dict[str, Any]
    make: Callable[[Vault], ReleaseOutput]
    tables: LinkedTables | None = None


def start(service: Service, order: ReleaseOrder) -> dict[str, Any]:
    """Start a release in the background.

    Raises:
        RefusalError: too many releases of the owner are not done yet.
    """
    name = order.loaded.dataset.name
    job = service.registry.jobs.add(name, order.key.name, order.request, most=MAX_OPEN)
    if job is None:
        raise RefusalError(
            "too-many-releases",
            "Too many of your releases are waiting",
            429,
            f"{MAX_OPEN} releases that you asked for are not done yet; wait for one of them",
        )
    threading.Thread(target=_run, args=(service, job, order), daemon=True).start()
    return {"job": job, "state": State.QUEUED.value, "advice": list(order.request.get("advice", ()))}


def _run(service: Service, job_id: str, order: ReleaseOrder) -> None:
    jobs, key = service.registry.jobs, order.key
    with _lease_renewed(jobs, job_id), RELEASE_SLOT:
        try:
            jobs.advance(job_id, 0.1, "reading the table")
            loaded = service.reload(order.loaded)  # it may have been renamed or retired since
            name = loaded.dataset.called
            if order.loss is not None:
                service.check_query_budget(name, key, order.loss)  # the grants or terms may have changed
            tables = order.tables
            vault = service.vault(name, key.name) if tables is None else service.linked_vault(name, key.name, tables)
            jobs.advance(job_id, 0.3, "searching, measuring and fitting")
            with naming_spenders(loaded.ledger, key):
                statement, file = order.make(vault)
            jobs.finish(job_id, statement, file)
        except Exception as error:  # noqa: BLE001  (after any error, the job has to fail, with a fixed message)
            log("release failed", error=type(error).__name__)
            content = problem(error)
            jobs.fail(job_id, f"{content['title']}: {content['detail']}")


@contextmanager
def _lease_renewed(jobs: Jobs, job_id: str) -> Iterator[None]:
    """Renew the lease of a job in a thread while a block runs."""
    stopped = threading.Event()

    def renew() -> None:
        while not stopped.wait(jobs.lease.total_seconds() / 6):
            try:
                jobs.renew_lease(job_id)
            except LedgerError:
                log("heartbeat missed")  # the next one may come in time

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def synthesized(vault: Vault, request: SynthesizeRequest) -> ReleaseOutput:
    """Return a synthetic table.  Its codebook is in the statement and in the file."""
    synthetic = request.release(vault)
    return {**synthetic.statement(), "codebook": synthetic.codebook.to_json()}, as_parquet(synthetic.rows)


def anonymized(vault: Vault, request: Anonymization) -> ReleaseOutput:
    """Return an anonymized table.  Its facts (classes, suppressed rows, losses) are in the statement."""
    table = request.release(vault)
    return {**table.statement(), "facts": dict(table.facts)}, as_parquet(table.rows)


def linked(vault: Vault, tables: LinkedTables, loss: Loss) -> ReleaseOutput:
    """Return linked synthetic tables in a ZIP file.  Their codebook is in the statement and in the file."""
    from sfumato.synthesize import NoisyTotal
    from sfumato.synthesize.linked import ModelSizes
    from sfumato.synthesize.linked.linked_synthesis import release_units

    synthetic = release_units(vault, tables, loss=loss, total=NoisyTotal(), settings=ModelSizes())
    with tempfile.TemporaryDirectory() as folder:
        tables_folder = Path(folder) / "tables"
        synthetic.write(tables_folder)
        files = {path.name: path.read_bytes() for path in sorted(tables_folder.iterdir())}
    return {**synthetic.statement(), "codebook": synthetic.codebook.to_json()}, _zip(files)


def tables_as_csv(file: bytes) -> bytes:
    """Convert a ZIP file of Parquet files to one of CSV files; other files in it stay."""
    files = {}
    with zipfile.ZipFile(io.BytesIO(file)) as archive:
        for name in archive.namelist():
            body, stem = archive.read(name), name.removesuffix(".parquet")
            files[name if stem == name else f"{stem}.csv"] = body if stem == name else as_csv(body)
    return _zip(files)


def _zip(files: Mapping[str, bytes]) -> bytes:
    """Return a ZIP file, whose bytes depend on nothing but the files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, body in files.items():
            archive.writestr(zipfile.ZipInfo(name), body, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def as_parquet(rows: ReleasedRows) -> bytes:
    """Return rows as a Parquet file with the same metadata as that of a command."""
    from pyarrow import parquet

    buffer = io.BytesIO()
    parquet.write_table(rows.to_arrow(), buffer, compression="zstd")
    return buffer.getvalue()


def as_csv(file: bytes) -> bytes:
    """Convert a Parquet file to CSV."""
    from pyarrow import csv, parquet

    buffer = io.BytesIO()
    csv.write_csv(parquet.read_table(io.BytesIO(file)), buffer)
    return buffer.getvalue()
