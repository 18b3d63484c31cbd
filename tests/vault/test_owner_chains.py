"""The owners of rows that find them through other tables: one ledger admits one chain per table."""

from __future__ import annotations

import copy
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.processes import processes

import sfumato as sf
from sfumato.domain.table_schema import Schema, parse_schema
from sfumato.errors import UnitError
from sfumato.privacy.loss import Epsilon

SMALL = {"type": "integer", "minimum": 0, "maximum": 9, "unknown": "drop"}
DOCUMENT: dict[str, Any] = {
    "sfumato": 2,
    "schema": "clinic",
    "unit": {"id": "patient_id", "table": "patients"},
    "tables": {
        "patients": {"key": "patient_id", "attributes": {"region": SMALL}},
        "visits": {"key": "visit_id", "unit": "patient_id", "rows": 3, "attributes": {"kind": SMALL}},
        "drugs": {
            "key": "rx",
            "through": {"visit_id": "visits"},
            "references": {"code": "agents"},
            "rows": 3,
            "attributes": {"drug": SMALL},
        },
        "doses": {"key": "dose_id", "through": {"rx": "drugs"}, "rows": 3, "attributes": {"amount": SMALL}},
        "agents": {"public": True, "key": "code", "attributes": {"agent": SMALL}},
    },
    "of_unit": {"dosed": {"any": "doses", "where": "amount > 1"}},
}
TABLES = {
    "patients": pa.table({"patient_id": [1, 2], "region": [1, 2]}),
    "visits": pa.table(
        {"visit_id": [1, 2, 3], "number": [3, 1, 2], "patient_id": [1, 1, 2], "doctor": [2, 2, 1], "kind": [1, 2, 3]}
    ),
    "drugs": pa.table(
        {"rx": [1, 2, 3], "visit_id": [1, 2, 3], "follow_up": [2, 3, 1], "code": [1, 1, 2], "drug": [1, 1, 2]}
    ),
    "doses": pa.table({"dose_id": [1, 2, 3], "rx": [1, 2, 3], "amount": [1, 2, 3]}),
    "agents": pa.table({"code": [1, 2], "agent": [1, 2]}),
}
BY_AGENT = "SELECT agent, COUNT(*) FROM doses JOIN drugs USING (rx) JOIN agents USING (code) GROUP BY agent"
STATEMENTS = {
    "two links": "SELECT COUNT(*) FROM drugs",
    "three links": "SELECT COUNT(*) FROM doses",
    "a public table beside": BY_AGENT,
    "people who have rows there": "SELECT COUNT(*) FROM patients WHERE patient_id IN (SELECT patient_id FROM doses)",
    "a fact of people": "SELECT COUNT(*) FROM patients WHERE dosed",
}
Change = Callable[[dict[str, Any]], None]


def unit_of_visits(tables: dict[str, Any]) -> None:
    tables["visits"]["unit"] = "doctor"


def key_of_visits(tables: dict[str, Any]) -> None:
    tables["visits"]["key"] = "number"


def link_of_drugs(tables: dict[str, Any]) -> None:
    del tables["drugs"]["through"]
    tables["drugs"]["through"] = {"follow_up": "visits"}


def public_agents(tables: dict[str, Any]) -> None:
    del tables["drugs"]["references"]
    tables["agents"] = {"unit": "code", "rows": 3, "attributes": {"agent": SMALL}}


CHANGES: dict[Change, str] = {unit_of_visits: "visits", key_of_visits: "drugs", link_of_drugs: "drugs"}


def described(change: Change | None = None) -> Schema:
    document = copy.deepcopy(DOCUMENT)
    if change is not None:
        change(document["tables"])
    return parse_schema(document)


def opened(folder: Path, change: Change | None = None, *, create: bool = False) -> Any:
    ledger = f"sqlite:///{folder / 'clinic.ledger'}"
    return sf.open_schema(TABLES, schema=described(change), ledger=ledger, limit=Epsilon(5), create=create)


def ask(vault: Any, statement: str) -> None:
    sf.query.sql(vault, statement, loss=Epsilon("0.5"))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_document_with_another_chain_is_refused(tmp_path: Path, statement: str, change: Change) -> None:
    ask(opened(tmp_path, create=True), STATEMENTS[statement])
    with pytest.raises(UnitError, match=f"the rows of {CHANGES[change]} are of the") as caught:
        opened(tmp_path, change)
    assert caught.value.culprit == CHANGES[change]


@pytest.mark.parametrize("change", CHANGES)
def test_the_other_chain_is_refused_too_once_it_was_first(tmp_path: Path, change: Change) -> None:
    ask(opened(tmp_path, change, create=True), STATEMENTS["three links"])
    with pytest.raises(UnitError, match="their losses do not add up"):
        opened(tmp_path)


def test_a_public_table_of_a_view_stays_public(tmp_path: Path) -> None:
    ask(opened(tmp_path, create=True), BY_AGENT)
    with pytest.raises(UnitError, match="the rows of agents are nobody's"):
        opened(tmp_path, public_agents)


def test_a_table_that_no_release_hangs_on_may_be_described_otherwise(tmp_path: Path) -> None:
    ask(opened(tmp_path, create=True), "SELECT COUNT(*) FROM visits")
    ask(opened(tmp_path, link_of_drugs), "SELECT COUNT(*) FROM drugs")


def test_the_charging_transaction_refuses_another_chain(tmp_path: Path) -> None:
    first, late = opened(tmp_path, create=True), opened(tmp_path, unit_of_visits)
    ask(first, STATEMENTS["three links"])
    object.__setattr__(late, "_told", [10**6])  # as if the other release came after the last look
    with pytest.raises(UnitError, match="the rows of visits"):
        ask(late, STATEMENTS["two links"])
    assert first.remaining.spent.epsilon == Fraction(1, 2)


def test_a_release_records_every_step_of_its_chains(tmp_path: Path) -> None:
    vault = opened(tmp_path, create=True)
    sf.query.sql(vault, "SELECT COUNT(*) FROM patients", loss=Epsilon("0.5"))
    _, told = vault.ledger.recorded_owners()
    assert told == [{"patients": "of the unit that patient_id names"}]
    ask(vault, STATEMENTS["three links"])
    _, told = vault.ledger.recorded_owners(after=2)
    assert told == [
        {
            "doses": "of the row of drugs whose 'rx' is in 'rx'",
            "drugs": "of the row of visits whose 'visit_id' is in 'visit_id'",
            "visits": "of the unit that patient_id names",
        }
    ]


def release_when_told(folder: str, change: Change | None, begin: Any, outcome: Any) -> None:
    vault = opened(Path(folder), change)
    outcome.put("opened")
    begin.wait()
    try:
        ask(vault, STATEMENTS["three links"])
        outcome.put("released")
    except UnitError:
        outcome.put("refused")


def test_of_two_processes_with_two_chains_one_is_refused(tmp_path: Path) -> None:
    first = opened(tmp_path, create=True)
    context = processes()
    begin, outcome = context.Event(), context.Queue()
    racing = [
        context.Process(target=release_when_told, args=(str(tmp_path), change, begin, outcome))
        for change in (None, unit_of_visits)
    ]
    for each in racing:
        each.start()
    assert [outcome.get(timeout=60) for _ in racing] == ["opened", "opened"]
    begin.set()
    assert sorted(outcome.get(timeout=60) for _ in racing) == ["refused", "released"]
    for each in racing:
        each.join()
    assert first.remaining.spent.epsilon == Fraction(1, 2)
