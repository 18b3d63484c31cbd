"""A view is charged before its rows are looked at: by whatever question, and before every refusal."""

# ruff: noqa: S608 - statements are written out here

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.domain.table_schema import Schema, parse_schema
from sfumato.engine.duckdb.duck_session import DuckSession
from sfumato.engine.duckdb.duck_table import DuckTable
from sfumato.errors import BudgetError, EngineError, QueryError, SfumatoError
from sfumato.ledger.ledger import Ledger
from sfumato.privacy.loss import Epsilon
from sfumato.vault.schema_vault import SchemaVault

SMALL = {"type": "integer", "minimum": 0, "maximum": 9, "unknown": "drop"}
DOCUMENT: dict[str, Any] = {
    "sfumato": 2,
    "schema": "clinic",
    "unit": {"id": "patient_id", "table": "patients"},
    "tables": {
        "patients": {"key": "patient_id", "attributes": {"region": SMALL, "sex": SMALL}},
        "visits": {"key": "visit_id", "unit": "patient_id", "rows": 3, "attributes": {"kind": SMALL, "cost": SMALL}},
    },
    "of_unit": {"visits_n": {"count": "visits", "maximum": 3}},
}
PAIRS = "FROM visits v JOIN visits w ON v.patient_id = w.patient_id"
LOSS = Epsilon("0.25")
UNITS = 40


def described() -> Schema:
    return parse_schema(DOCUMENT)


def people(rows_of_one: int = 3) -> Mapping[str, pa.Table]:
    who = [1 + place % (UNITS - 1) for place in range(2 * UNITS)] + [0] * rows_of_one
    places = range(len(who))
    visits = {"patient_id": who, "kind": [n % 10 for n in places], "cost": [n % 7 for n in places]}
    patients = {"region": [n % 4 for n in range(UNITS)], "sex": [n % 2 for n in range(UNITS)]}
    return {
        "patients": pa.table({"patient_id": list(range(UNITS))} | patients),
        "visits": pa.table({"visit_id": list(places)} | visits),
    }


def opened(folder: Path, *, limit: str = "1", rows: int = 3) -> SchemaVault:
    ledger = f"sqlite:///{folder / f'clinic{rows}.ledger'}"
    return sf.open_schema(people(rows), schema=described(), ledger=ledger, limit=Epsilon(limit), create=True)


def view(vault: SchemaVault) -> Any:
    return sf.query.view(vault, f"SELECT * {PAIRS}")


QUESTIONS: dict[str, Callable[[SchemaVault], object]] = {
    "count": lambda vault: sf.query.sql(vault, f"SELECT COUNT(*) {PAIRS}", loss=LOSS),
    "groups": lambda vault: sf.query.sql(vault, f"SELECT v.kind, SUM(w.cost) {PAIRS} GROUP BY v.kind", loss=LOSS),
    "people": lambda vault: sf.query.sql(vault, f"SELECT COUNT(DISTINCT v.patient_id) {PAIRS}", loss=LOSS),
    "one table": lambda vault: sf.query.sql(vault, "SELECT COUNT(*) FROM visits", loss=LOSS),
    "a fact": lambda vault: sf.query.sql(vault, "SELECT visits_n, COUNT(*) FROM patients GROUP BY visits_n", loss=LOSS),
    "who has rows": lambda vault: sf.query.sql(
        vault, f"SELECT COUNT(*) FROM patients WHERE patient_id IN (SELECT patient_id {PAIRS})", loss=LOSS
    ),
    "a view": lambda vault: sf.query.ask(view(vault), sf.query.table("v.kind"), loss=LOSS),
    "a batch": lambda vault: sf.query.answer_batch(view(vault), sf.query.ranges("v.kind", [(0, 3), (2, 9)]), loss=LOSS),
    "a quantile": lambda vault: sf.query.choose_quantile(
        view(vault), sf.query.median("v.cost").aggregates[0], loss=LOSS
    ),
    "what is left out": lambda vault: sf.query.ask(
        view(vault), sf.query.Query((sf.query.Count(),), truncation=5), loss=LOSS
    ),
    "a bound on rows": lambda vault: sf.query.suggest_bound(
        sf.query.view(vault, "SELECT * FROM visits"), loss=LOSS, cells=8
    ),
    "a regression": lambda vault: sf.query.linear_regression(
        sf.query.view(vault, "SELECT * FROM visits JOIN patients USING (patient_id)"), "cost", ["kind"], loss=LOSS
    ),
    "synthesis": lambda vault: sf.synthesize.mst(view(vault), loss=LOSS, total=sf.synthesize.PublicTotal(50)),
    "linked tables": lambda vault: sf.synthesize.synthesize_linked(vault, loss=LOSS),
}


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record every use of the engine and every commit of the ledger, in order."""
    happened: list[str] = []
    cursor, transact = DuckSession.cursor, Ledger.write

    @contextmanager
    def used(self: DuckSession, title: str) -> Iterator[Any]:
        if title != "a table":  # which is dropped, some time after nobody has it
            happened.append("engine")
        with cursor(self, title) as found:
            yield found

    def committed(self: Ledger, *given: Any, **named: Any) -> Any:
        result = transact(self, *given, **named)
        happened.append("commit")
        return result

    monkeypatch.setattr(DuckSession, "cursor", used)
    monkeypatch.setattr(Ledger, "write", committed)
    return happened


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
def test_no_row_is_looked_at_before_the_charge_is_committed(
    tmp_path: Path, events: list[str], ask: Callable[[SchemaVault], object]
) -> None:
    vault = opened(tmp_path)
    del events[:]
    ask(vault)
    assert events[0] == "commit"
    assert "engine" in events
    assert vault.remaining.spent.epsilon == Fraction(1, 4)


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
def test_no_row_is_looked_at_for_a_refusal(
    tmp_path: Path, events: list[str], ask: Callable[[SchemaVault], object]
) -> None:
    """The budget of the dataset is used up, or the cap of an analyst is."""
    vault = opened(tmp_path, limit="0.2")
    vault.ledger.set_cap("ann", Epsilon("0.1"))  # type: ignore[attr-defined]
    del events[:]
    for asked in (vault, vault.for_analyst("ann")):
        with pytest.raises(BudgetError):
            ask(asked)
    assert "engine" not in events
    assert vault.remaining.spent.epsilon == 0


def test_no_row_is_looked_at_for_a_join_that_is_too_large(tmp_path: Path, events: list[str]) -> None:
    vault = opened(tmp_path)
    del events[:]
    nine = " ".join(f"JOIN visits v{n} ON v.patient_id = v{n}.patient_id" for n in range(8))
    with pytest.raises(QueryError, match=r"3 of visits x 3 of visits .* = 19,683 rows of one patient_id"):
        sf.query.sql(vault, f"SELECT COUNT(*) FROM visits v {nine}", loss=LOSS)
    assert events == []
    assert vault.remaining.spent.epsilon == 0


def test_a_repeated_question_looks_at_no_row(tmp_path: Path, events: list[str]) -> None:
    first = QUESTIONS["groups"](opened(tmp_path))
    again = opened(tmp_path)
    del events[:]
    assert QUESTIONS["groups"](again).values == first.values  # type: ignore[attr-defined]
    assert "engine" not in events


def test_charges_and_refusals_are_the_same_for_three_rows_and_for_four_thousand(tmp_path: Path) -> None:
    """A single person has that many rows; charges, refusals and the form of answers do not reveal it."""
    seen = []
    for rows in (3, 4000):
        vault, found = opened(tmp_path, limit="2.6", rows=rows), []
        for ask in QUESTIONS.values():
            try:
                found.append(type(ask(vault)).__name__)
            except SfumatoError as error:
                found.append(str(error))
            found.append(str(vault.remaining.spent))
        seen.append(found)
    assert seen[0] == seen[1]
    assert any("nothing was spent" in each for each in seen[0])


@pytest.mark.parametrize(
    "error", [EngineError("DuckDB ran out of memory over 4,000 rows"), sf.errors.TableError("line 7 is no record")]
)
def test_a_failure_after_the_charge_tells_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: SfumatoError
) -> None:
    vault = opened(tmp_path)

    def fails(*_: object) -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(DuckTable, "store", fails)
        with pytest.raises(EngineError, match="the engine failed while it computed this release") as caught:
            QUESTIONS["count"](vault)
    assert str(error) not in str(caught.value)
    assert caught.value.__cause__ is error
    assert vault.remaining.spent.epsilon == Fraction(1, 4)
    QUESTIONS["count"](vault)
    assert vault.remaining.spent.epsilon == Fraction(1, 4), "no noise was drawn, so that it is computed for its charge"
