"""The text of a vault, its releases and released rows in a session, and the facts that it never shows."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from fractions import Fraction

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from sfumato import query
from sfumato.errors import MissingLedgerError
from sfumato.ledger import Ledger
from sfumato.ledger.dataset_terms import UNDECLARED
from sfumato.privacy.loss import Epsilon
from sfumato.query import answer as answer_formats
from sfumato.query.answer import STATEMENT, arrow_pieces, json_pieces, parquet_pieces
from sfumato.vault.release import ReleasedRows
from sfumato.vault.vault import Vault

NUMBER = r"-?\d+(\.\d+)?(e[+-]?\d+)?"


def test_a_vault_tells_what_is_left(vault) -> None:
    limit = vault.limit.value
    assert vault.remaining.left == limit
    query.ask(vault, query.count(), loss=Epsilon("0.25"))
    assert vault.remaining.left == limit - Fraction(1, 4)
    query.ask(vault, query.count(), loss=Epsilon("0.25"))  # asked before: free
    assert vault.remaining.spent.epsilon == Fraction(1, 4)


def test_an_analyst_is_told_of_their_own_cap_where_there_is_one(vault) -> None:
    vault.ledger.set_cap("ana", Epsilon("0.5"))
    query.ask(vault.for_analyst("ana"), query.count(), loss=Epsilon("0.125"))
    assert vault.for_analyst("ana").remaining.left == Fraction(3, 8)
    assert vault.for_analyst("bea").remaining.left == vault.remaining.left


def test_a_vault_shows_its_attributes_unit_and_budget_and_no_rows(vault, table) -> None:
    query.ask(vault, query.count(), loss=Epsilon("0.25"))
    shown, page = repr(vault), vault._repr_html_()
    for text in (shown, page):
        assert "age" in text
        assert str(vault.domain.unit) in text
        assert str(vault.remaining) in text
        assert str(table.num_rows) not in text.replace(",", "")
    assert "epsilon = 0.25" in page


def test_a_vault_without_its_ledger_is_shown_all_the_same(vault, tmp_path) -> None:
    ledger = Ledger(f"sqlite:///{tmp_path}/none.ledger", dataset="default")
    shown = Vault(vault.encoded, ledger, UNDECLARED)
    assert "not open" in repr(shown)
    assert "not open" in shown._repr_html_()
    with pytest.raises(MissingLedgerError):
        _ = shown.remaining


def test_an_answer_shows_its_numbers_its_guarantee_and_its_cost(vault) -> None:
    answer = query.ask(vault, query.count(), loss=Epsilon("0.25"))
    assert str(answer.value) in repr(answer)
    for text in (repr(answer), answer._repr_html_()):
        assert answer.guarantee in text
        assert answer.cost in text
    groups = query.ask(vault, query.table("age"), loss=Epsilon("0.25"))
    assert repr(groups).count("count(*)") == 3
    assert f"and {len(groups) - 3} more" in repr(groups)
    assert len(repr(groups)) < 600


ASKED = [
    query.count(),
    query.table("band", "sex"),
    query.table("age", "member", where="age >= 40"),
    query.Query((query.Count(), query.Average("income")), by=("sex",)),
]


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize(("indent", "separators"), [(2, None), (None, (",", ":"))])
@pytest.mark.parametrize("few", [0, 1 << 10])
def test_the_text_of_an_answer_in_json_is_that_of_its_values(asked, indent, separators, few, vault, monkeypatch):
    monkeypatch.setattr(answer_formats, "_PIECE", 7)  # estimates
    monkeypatch.setattr(answer_formats, "_FEW", few)
    odd = pa.array(['"rows": []', "50 %s", "\\ \n \u00e9"])
    given = query.ask(vault, asked, loss=Epsilon(1))
    if len(given.groups) == 1:
        given = replace(given, labels=(pa.concat_arrays([odd, given.labels[0].cast(pa.string())[len(odd) :]]),))
    first = given.estimates[0]
    assert len(first.value)
    signed = replace(first, value=np.where(np.arange(len(first.value)) % 2, -0.0, first.value))
    for each in (given, replace(given, estimates=(signed, *given.estimates[1:]))):
        text = b"".join(json_pieces(each, indent=indent)).decode()
        expected = json.dumps(each.to_json(), ensure_ascii=False, indent=indent, separators=separators, default=str)
        assert repr(json.loads(text)) == repr(json.loads(expected))  # 1 is not 1.0, and 0.0 not -0.0
        assert re.sub(NUMBER, "", text) == re.sub(NUMBER, "", expected)
    infinite = replace(first, high=np.full(len(first.value), np.inf))
    with pytest.raises(ValueError, match="JSON"):
        _ = list(json_pieces(replace(given, estimates=(infinite,)), indent=indent))


@pytest.mark.parametrize("asked", ASKED)
def test_an_answer_in_arrow_and_in_parquet_holds_what_it_holds_in_json(asked, vault, monkeypatch) -> None:
    monkeypatch.setattr(answer_formats, "_BATCH", 7)  # groups
    given = query.ask(vault, asked, loss=Epsilon(1))
    found = json.loads(json.dumps(given.to_json()))
    numbers = [[value[name] for value in row["values"] for name in value] for row in found["rows"]]
    keys = [row["key"] for row in found["rows"]]
    streamed = pa.ipc.open_stream(b"".join(arrow_pieces(given))).read_all()
    for table in (streamed, parquet.read_table(io.BytesIO(b"".join(parquet_pieces(given))))):
        rows = [list(row.values()) for row in table.to_pylist()]
        assert [row[len(keys[0]) :] for row in rows] == numbers
        assert [["missing" if each is None else str(each) for each in row[: len(keys[0])]] for row in rows] == keys
        assert json.loads(table.schema.metadata[STATEMENT]) == found | {"rows": []}


def test_a_batch_and_a_chosen_quantile_are_shown_by_what_they_are(vault) -> None:
    batch = query.answer_batch(vault, query.prefixes(vault.domain, "age"), loss=Epsilon("0.25"))
    assert f"{len(batch.answers):,} counts by {batch.strategy}" in repr(batch)
    chosen = query.choose_quantile(vault, query.Quantile("age", Fraction(1, 2)), loss=Epsilon("0.25"))
    assert f"{chosen.value:.6g}" in repr(chosen)


def test_released_rows_are_a_table_for_every_tool() -> None:
    rows = ReleasedRows(pa.table({"age": [*range(12)], "sex": ["f", "<m>"] * 6}))
    assert rows.columns == ("age", "sex")
    assert rows["age"].to_pylist() == [*range(12)]
    assert pa.table(rows).equals(rows.table)
    stream = pa.RecordBatchReader.from_stream(rows)
    assert duckdb.from_arrow(stream).sum("age").fetchall() == [(66,)]
    assert repr(rows) == "<ReleasedRows: 12 rows of age, sex>"
    page = rows._repr_html_()
    assert "10 of 12 rows" in page
    assert "&lt;m&gt;" in page
    assert "<m>" not in page
    with pytest.raises(KeyError):
        rows["height"]
