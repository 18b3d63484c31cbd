"""Descriptions of tables before they are registered: drafted off them, looked at for risks, accepted by a steward.

A draft says what is in the tables, so it is for stewards alone, and releases refuse it.  Nothing is kept here: whoever
asked for a draft edits it, has it accepted in their name, and registers what was accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from fastapi import APIRouter

from sfumato.app.http.access import Steward, StrictRoute, Worker
from sfumato.app.http.problems import unreadable, unusable
from sfumato.app.http.sources import TablePlaces
from sfumato.app.http.tables import Described, described
from sfumato.app.requests.administration import AcceptanceRequest, DraftRequest
from sfumato.app.requests.methods import EXACT_FIGURES
from sfumato.domain.domain import Acceptance
from sfumato.domain.table_schema import Schema
from sfumato.engine.csv_file import how_written
from sfumato.engine.domain_fit import draft_domain, risks
from sfumato.engine.open import open_table
from sfumato.engine.schema_fit import schema_risks
from sfumato.engine.schema_source import draft_source
from sfumato.errors import DomainError, EngineError, InputError, TableError
from sfumato.query.derived_columns import check_derived
from sfumato.strict_documents import read_yaml

router = APIRouter(prefix="/v1", tags=["stewards"], route_class=StrictRoute)


@dataclass(frozen=True)
class DescriptionDraft:
    """The document of a domain or a schema that was read off tables, and what to look at, a sentence each."""

    document: dict[str, Any]
    remarks: tuple[str, ...]


@router.post("/drafts")
def draft(form: DraftRequest, _: Steward, worker: Worker) -> dict[str, Any]:
    """Draft the domain of a table, or the schema of the tables of a folder or database; nothing is registered."""
    found = drafted(form.source, worker.places, unit=form.unit, name=form.name)
    return {"notice": EXACT_FIGURES, "domain": found.document, "remarks": list(found.remarks)}


@router.post("/acceptances")
def accept(form: AcceptanceRequest, key: Steward, worker: Worker) -> dict[str, Any]:
    """Accept a description as it stands, in the name of the key's holder, after a look at what is risky in it.

    The document that comes back says who accepted it, and is what to register; nothing is registered here.
    """
    found = read_described(form.domain)
    told = () if form.source is None else looked_at(found, form.source, worker.places)
    notice = {} if form.source is None else {"notice": EXACT_FIGURES}
    return {**notice, "domain": accepted(found, by=key.name), "risks": list(told)}


def drafted(source: str, places: TablePlaces, *, unit: str | None = None, name: str | None = None) -> DescriptionDraft:
    """A description read off what lies somewhere: of a folder, or a database without a table in its address, a schema.

    Args:
        source: where the table or the tables lie.
        places: where tables may lie.
        unit: of several tables, the column by which people are called; None: the one that sounds most like it.
        name: of several tables, what their schema is called; None: as the folder or database.

    Raises:
        RefusalError: they lie where none is served, or cannot be read.
        InputError: no such place, or a name or unit for a single table.
    """
    source = places.address(source)
    try:
        if several(source):
            many = draft_source([source], unit=unit, name=name)
            return DescriptionDraft(plain(many.document), tuple(f"{each}." for each in many.remarks))
        if unit is not None or name is not None:
            raise InputError("a unit and a name are of several tables, which lie in a folder or a database")
        written = how_written(source, {})
        one = draft_domain(open_table(source, csv=written.format), written.format)
    except (TableError, EngineError) as error:
        raise unreadable(error) from error
    told = [f"How the file is written: {each}; the draft says so." for each in written.remarks]
    told += [f"Left out {column}: {reason}." for column, reason in one.left_out.items()]
    told += [f"Look at {column}: {hint}." for column, hint in one.hints.items()]
    return DescriptionDraft(plain(one.document()), tuple(told))


def several(source: str) -> bool:
    """Whether an address is of several tables: of a folder of files by name, or of a database without a table."""
    if "://" in source:
        return "table=" not in source.partition("?")[2]
    try:
        return Path(source).is_dir() and not any(_in_parts(each.name) for each in Path(source).iterdir())
    except OSError:  # which opening it tells
        return False


def _in_parts(name: str) -> bool:
    """Whether what is called so in a folder shows that the folder is one table in parts, as Spark writes them."""
    return name.startswith("part-") or "=" in name or name == "_SUCCESS"


def looked_at(found: Described, source: str, places: TablePlaces) -> tuple[str, ...]:
    """What of a description its steward should look at before accepting it, with the tables that it describes.

    Raises:
        RefusalError: the tables lie where none is served, cannot be read, or do not fit it.
    """
    source = places.address(source)
    try:
        if isinstance(found, Schema):
            return schema_risks(found, source)
        table = open_table(source, csv=found.csv)
        table.encode(found)
        return risks(found, table)
    except (TableError, EngineError) as error:
        raise unreadable(error) from error


def read_described(document: Mapping[str, Any]) -> Described:
    """The domain or schema that a document is, as nobody accepted it, with all that an accepted one has to say.

    Raises:
        RefusalError: it cannot be used.
    """
    try:
        found = replace(described(document), draft=False, acceptance=None)  # refuses what a draft may leave open
        if isinstance(found, Schema):
            check_derived(found)
    except DomainError as error:
        raise unusable(error) from error
    return found


def accepted(found: Described, *, by: str) -> dict[str, Any]:
    """The document of a description that somebody accepts as it stands, which says so."""
    at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    acceptance = Acceptance(by, at, found.hash_accepted(by, at))
    return plain(replace(found, acceptance=acceptance).describe())


def read_document(text: str) -> dict[str, Any]:
    """A description's YAML as plain values: dates as the text that JSON, in which the server keeps it, has for them.

    Raises:
        DomainError: it is not YAML, or no mapping.
    """
    try:
        found = read_yaml(text, name="the domain")
    except InputError as error:
        raise DomainError(str(error)) from None
    if not isinstance(found, dict):
        raise DomainError("the domain is a mapping with 'sfumato', 'unit' and 'attributes'")
    return plain(found)


def plain(document: Mapping[Any, Any]) -> dict[str, Any]:
    """A document of values that JSON has: dates as text."""
    return {str(key): _plain(value) for key, value in document.items()}


def _plain(value: Any) -> Any:  # noqa: ANN401  (whatever YAML may hold)
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.isoformat() if isinstance(value, date) else value
