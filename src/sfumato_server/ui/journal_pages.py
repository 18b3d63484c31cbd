"""The pages that change nothing: journals of datasets, sign-off pages of their releases, and the audit log.

Stewards and privacy officers see the journal of every dataset and the sign-off pages.  A privacy officer sees nothing
else.  A sign-off page is made of the ledger and of what was released, and reads no row of a table.
"""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel

from sfumato.errors import LedgerError
from sfumato.ledger import Entry, Kind
from sfumato.ledger.audit_log import newest_actions, verify_actions
from sfumato.privacy.loss import Charge, Loss
from sfumato.report.sign_off.answers_sign_off import answers_sign_off, choose_answers
from sfumato.report.sign_off.ledger_record import open_record
from sfumato.report.sign_off.sign_off_files import Evidence, file_sign_off
from sfumato.report.sign_off.sign_off_page import Purpose, SignOff, render_sign_off
from sfumato_server import stewards
from sfumato_server.access import CurrentService, Officer, Steward
from sfumato_server.datasets import summary
from sfumato_server.problems import RefusalError
from sfumato_server.registry import Key, Scope
from sfumato_server.release_jobs import kind_words
from sfumato_server.service import Service
from sfumato_server.stewards import PAGE_SIZE, entry_facts
from sfumato_server.tables import ServedDataset
from sfumato_server.ui.budgets import Gauge, gauge
from sfumato_server.ui.question_form import Short
from sfumato_server.ui.rendering import forget_note, page, read_note

OFFICER = "/officer"
"""The address of the list of datasets for a privacy officer."""

_STYLED_BY_ITSELF = (  # a sign-off page has its style sheet in it, and no script
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
Before = Annotated[int | None, Query(ge=1, le=2**53)]

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class DatasetRow:
    """A dataset in a list: its public facts, its budget, the number of its releases, and the last of them."""

    facts: dict[str, Any]
    gauge: Gauge
    releases: int
    last: dict[str, Any] | None


_RELEASES = "SELECT dataset, COUNT(*), MAX(number) FROM ledger_entry WHERE kind = :kind GROUP BY dataset"


def dataset_rows(service: Service, datasets: Iterable[ServedDataset]) -> list[DatasetRow]:
    """Return the rows of datasets."""
    with service.store.reading() as driver:
        counts = {name: (count, last) for name, count, last in driver.rows(_RELEASES, {"kind": Kind.RELEASE.value})}
    rows = []
    for loaded in datasets:
        count, last = counts.get(loaded.dataset.name, (0, 0))
        entries = loaded.ledger.newest(1, before=last + 1) if count else []
        facts = entry_facts(entries[0]) if entries else None
        rows.append(DatasetRow(summary(loaded), gauge(loaded.ledger.remaining()), count, facts))
    return rows


@router.get(OFFICER, response_class=HTMLResponse)
def officer_page(key: Officer, service: CurrentService) -> Response:
    """Show all datasets with their budgets and last releases."""
    return page("officer.html.j2", key=key, datasets=dataset_rows(service, service.accessible_datasets(key)))


@router.get(f"{OFFICER}/{{name}}", response_class=HTMLResponse)
def officer_journal(name: str, key: Officer, service: CurrentService, before: Before = None) -> Response:
    """Show the journal of a dataset to a privacy officer."""
    return _journal(name, key, service, before, home=OFFICER)


@router.get("/steward/{name}", response_class=HTMLResponse)
def journal(request: Request, name: str, key: Steward, service: CurrentService, before: Before = None) -> Response:
    """Show the journal of a dataset to a steward."""
    return forget_note(_journal(name, key, service, before, home="/steward", **read_note(request)))


def _journal(name: str, key: Key, service: Service, before: int | None, **context: Any) -> Response:  # noqa: ANN401
    loaded = service.loaded(name)
    entries = loaded.ledger.newest(PAGE_SIZE, before=before)[::-1]
    try:
        verified, damage = loaded.ledger.check(), None
    except LedgerError as error:
        verified, damage = None, str(error)
    return page(
        "journal.html.j2",
        key=key,
        dataset=summary(loaded),
        accepted=loaded.description.accepted_by,
        gauge=gauge(loaded.ledger.remaining()),
        entries=[entry_facts(entry) | {"share": _share(loaded.ledger.limit, entry)} for entry in entries],
        older=entries[-1].number if entries and entries[-1].number > 1 else None,
        newer=before is not None,
        analysts=[
            (analyst, _share_of(loaded.ledger.limit, account.spent), gauge(account))
            for analyst, account in loaded.ledger.caps().items()
        ],
        released=[
            (job.id, f"{kind_words(job.request)} for {job.owner}, {job.updated:%Y-%m-%d %H:%M}")
            for job in service.registry.jobs.finished(loaded.dataset.name, most=PAGE_SIZE)
        ],
        verified=verified,
        damage=damage,
        **context,
    )


def _share(limit: Loss, entry: Entry) -> float | None:
    """Return the share of the limit that a release was charged; None if nothing was charged."""
    return _share_of(limit, entry.charge) if entry.kind is Kind.RELEASE and entry.charge is not None else None


def _share_of(limit: Loss, charge: Charge) -> float | None:
    amount = limit.amount(charge)
    return None if amount is None else float(amount / limit.most)


class SignOffForm(BaseModel):
    """The form of a sign-off page: a release or all answers, recipients, purpose and edition."""

    release: Short = ""
    to: Short = ""
    purpose: Short = ""
    public: bool = False


@router.get("/sign-off/{name}", response_class=HTMLResponse)
def sign_off(name: str, key: Officer, service: CurrentService, form: Annotated[SignOffForm, Query()]) -> Response:
    """Show the sign-off page of a release in a file, or of all answers of a dataset, checked against the ledger."""
    loaded = service.loaded(name)
    requested_by = "" if key.scope is Scope.OFFICER else key.name
    purpose = Purpose(form.to.strip(), form.purpose.strip(), requested_by)
    if form.release:
        content = _file_sign_off(loaded, form.release, service, purpose)
    else:
        content = answers_sign_off(name, open_record(loaded.ledger, name, choose_answers), purpose=purpose)
    content = content.published() if form.public else content
    return HTMLResponse(render_sign_off(content), headers={"Content-Security-Policy": _STYLED_BY_ITSELF})


def _file_sign_off(loaded: ServedDataset, job_id: str, service: Service, purpose: Purpose) -> SignOff:
    """Return the sign-off page of a finished release.

    Raises:
        RefusalError: the dataset has no such release.
        InputError: the file and the ledger contradict each other.
    """
    jobs = service.registry.jobs
    job = jobs.job(job_id)
    file = jobs.rows(job.id) if job is not None and job.dataset == loaded.dataset.name else None
    if job is None or file is None:
        raise RefusalError("unknown-release", "There is no such release", 404, "choose one of the list of the journal")
    domain = loaded.domain if loaded.schema is None and "synthesize" in job.request else None
    evidence = Evidence(ledger=loaded.ledger, domain=domain)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / f"{loaded.dataset.called}-{job.id}"
        if zipfile.is_zipfile(io.BytesIO(file)):
            zipfile.ZipFile(io.BytesIO(file)).extractall(place)
            return file_sign_off(place, purpose, evidence)
        place = place.with_suffix(".parquet")
        place.write_bytes(file)
        return file_sign_off(place, purpose, evidence)


ACTIONS = "/steward/all/actions"


@router.get(ACTIONS, response_class=HTMLResponse)
def actions_page(key: Steward, service: CurrentService, before: Before = None) -> Response:
    """Show the actions of stewards and operators, newest first, and whether the audit log is intact."""
    with service.store.reading() as driver:
        actions, verified, damage = [], None, None
        try:
            actions = newest_actions(driver, before=before, most=PAGE_SIZE)
            verified = verify_actions(driver)
        except LedgerError as error:
            damage = str(error)
    older, newer = actions[-1].number if actions and actions[-1].number > 1 else None, before is not None
    return page("actions.html.j2", key=key, actions=actions, older=older, newer=newer, verified=verified, damage=damage)


@router.get(f"{ACTIONS}/lines")
def actions_file(key: Steward, service: CurrentService) -> Response:
    """Export the audit log as a file of lines of JSON."""
    lines = stewards.actions(key, service)
    lines.headers["Content-Disposition"] = 'attachment; filename="actions.jsonl"'
    return lines
