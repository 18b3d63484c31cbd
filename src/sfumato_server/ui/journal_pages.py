"""The pages that change nothing: journals of datasets, their list for a privacy officer, and the audit log.

Stewards and privacy officers see the journal of every dataset.  A privacy officer sees nothing else, and no page of an
officer has a form.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response

from sfumato.errors import LedgerError
from sfumato.ledger import Kind
from sfumato.ledger.audit_log import newest_actions, verify_actions
from sfumato_server import stewards
from sfumato_server.access import CurrentService, Officer, Steward
from sfumato_server.datasets import summary
from sfumato_server.registry import Key
from sfumato_server.service import Service
from sfumato_server.stewards import PAGE_SIZE, entry_facts
from sfumato_server.tables import ServedDataset
from sfumato_server.ui.rendering import Gauge, forget_note, gauge, page, read_note

OFFICER = "/officer"
"""The address of the list of datasets for a privacy officer."""

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
        entries=[entry_facts(entry) for entry in entries],
        older=entries[-1].number if entries and entries[-1].number > 1 else None,
        newer=before is not None,
        analysts=[
            (analyst, loaded.ledger.limit.in_words(account.spent), gauge(account))
            for analyst, account in loaded.ledger.caps().items()
        ],
        verified=verified,
        damage=damage,
        **context,
    )


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
