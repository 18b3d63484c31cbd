"""Results become tables of other libraries, and show themselves in a notebook whatever its style sheet says."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import duckdb
import narwhals as nw
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from playwright.sync_api import sync_playwright
from tests.server.ui.browsing import ARGUMENTS
from tests.services import require

import sfumato as sf
from sfumato.app.cli.output import working
from sfumato.domain import Domain, Integer, Unknown
from sfumato.engine.open import open_table
from sfumato.notebook_html import html_table
from sfumato.query.aggregates.contract import NoisyValue
from sfumato.vault.vault import Vault

pytest.importorskip("pandas")
TABLE = pa.table({"age": [20, 30, 40, 50] * 50, "pay": [1, 2, 3, 4] * 50})
DOMAIN = Domain(
    (
        Integer(name="age", minimum=0, maximum=99, edges=(0, 25, 45), unknown=Unknown.CLAMP),
        Integer(name="pay", minimum=0, maximum=9, unknown=Unknown.CLAMP),
    )
)


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    limit = sf.EpsilonDelta(9, 1e-9)
    return sf.open(TABLE, domain=DOMAIN, ledger=tmp_path / "people.ledger", limit=limit, create=True)


def test_the_path_of_a_ledger_is_its_address(vault: Vault, tmp_path: Path) -> None:
    sf.query.sql(vault, "SELECT COUNT(*) FROM t", epsilon=0.5)
    for address in (tmp_path / "people.ledger", str(tmp_path / "people.ledger"), f"sqlite:///{tmp_path}/people.ledger"):
        assert sf.open(TABLE, domain=DOMAIN, ledger=address).remaining.spent.epsilon == 0.5
    with pytest.raises(sf.SfumatoError, match="memory"):
        sf.open(TABLE, domain=DOMAIN, ledger=":memory:", limit=sf.Epsilon(1), create=True)


def test_every_release_becomes_a_table_of_other_libraries(vault: Vault) -> None:
    answer = sf.query.sql(vault, "SELECT age, COUNT(*), AVG(pay) FROM t GROUP BY age", epsilon=1)
    synthetic = sf.synthesize.auto(vault, epsilon=1, delta=1e-9)
    anonymized = sf.anonymize.optimal(vault, quasi=["age"], criteria=[sf.KAnonymity(5)], suppression=0)
    for release in (answer, synthetic, anonymized):
        arrow = release.to_arrow()
        assert not any(" " in name for name in arrow.column_names)
        assert list(release.to_pandas().columns) == arrow.column_names
        assert release.to_polars().equals(pl.from_arrow(arrow))
    assert synthetic.to_arrow().equals(synthetic.rows.table)
    assert answer.to_arrow().column_names[-3:] == ["mean(pay)_error", "mean(pay)_low", "mean(pay)_high"]
    assert set(answer.rows[0]) == set(answer.to_arrow().column_names)


def test_auto_measures_all_pairs_and_a_noisy_total_unless_said_otherwise(vault: Vault) -> None:
    plain = sf.synthesize.auto(vault, epsilon=1, delta=1e-9)
    total, pairs = sf.synthesize.NoisyTotal(), sf.synthesize.all_marginals(2)
    stated = sf.synthesize.auto(vault, epsilon=1, delta=1e-9, total=total, workload=pairs)
    assert plain.provenance["journal_entry"] == stated.provenance["journal_entry"]


def test_a_release_shows_its_report_and_sums_itself_up(vault: Vault, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    release = sf.synthesize.auto(vault, epsilon=1, delta=1e-9)
    release.summary()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert lines[2] == "Cost: rho 0.0149646"  # rounded upward; ``cost`` and the ledger have all digits
    assert release.cost == "rho 0.0149645502681"
    worst = max(column.worst or 0 for column in release.codebook.columns)
    assert lines[3].startswith(f"Accuracy: counts by any one column within {worst:,} rows (")
    assert lines[3].endswith("1 of 1 pair of columns measured")
    page, picture = release.page(), release.plot("age")
    assert [Path(address.removeprefix("file://")).read_text() for address in opened] == [page.html, picture.html]
    assert "<svg" in picture.html
    assert "Pairs of columns" in page.html
    assert 'sandbox=""' in page._repr_html_()
    with pytest.raises(sf.SfumatoError, match="no column 'height'; it has age, pay"):
        release.plot("height")
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    release.page()
    assert len(opened) == 2


def test_answers_and_anonymized_tables_have_pages_and_pictures_too(
    vault: Vault, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    answer = sf.query.sql(vault, "SELECT age, COUNT(*), AVG(pay) FROM t GROUP BY age", epsilon=1)
    anonymized = sf.anonymize.optimal(vault, quasi=["age"], criteria=[sf.KAnonymity(5)], suppression=0)
    for release, column, bars in ((answer, "count(*)", 3), (anonymized, "age", 3)):  # on a page, and on a phone
        release.summary()
        assert len(capsys.readouterr().out.splitlines()) == 5
        assert release.plot(column).html.count("<rect") == 2 * bars
        assert release.plot().html.count("<figure>") == len(getattr(release, "columns", ["age"]))
        assert release.page().html.count("<figure>") == release.plot().html.count("<figure>")
        with pytest.raises(sf.SfumatoError, match="no column 'height' to draw; there are"):
            release.plot("height")
    assert answer.plot("mean(pay)").html.count('<path d="M') == 2 * 3
    assert "no DP guarantee" in anonymized.page().html


def test_linked_releases_have_pages_pictures_and_tables_of_other_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    people = pa.table({"person": list(range(300)), "sex": ["F", "M"] * 150})
    visits = pa.table({"person": list(range(300)), "ward": ["a", "b", "c"] * 100})
    draft = sf.describe_tables({"people": people, "visits": visits})
    draft["visits"].most_rows(1)
    schema = draft.accept(by="Ann Lee", confirm=list(draft.risks))
    limit = sf.EpsilonDelta(9, 1e-9)
    tables = {"people": people, "visits": visits}
    vault = sf.open_schema(tables, schema=schema, ledger=tmp_path / "h.ledger", limit=limit, create=True)
    release = sf.synthesize.synthesize_linked(vault, epsilon=5, delta=1e-9)
    arrow = release.to_arrow()
    assert {name: each.shape for name, each in release.to_pandas().items()} == {n: t.shape for n, t in arrow.items()}
    assert release.to_polars()["visits"].equals(pl.from_arrow(arrow["visits"]))
    assert release.plot("people.sex").html.count("<rect") == 2 * 3
    for shown in (vault, vault.schema, release):
        page = shown._repr_html_()
        assert "Ann Lee" in page
        assert "{" not in page
        assert schema.hash not in page
    for page in (release.page().html, release._repr_html_()):
        assert f"accepted by {schema.accepted_by}" in page


def test_releases_say_who_accepted_the_description_and_what_they_confirmed(tmp_path: Path) -> None:
    draft = sf.describe(TABLE)
    draft["age"].bounds(0, 99)
    domain = draft.accept(by="Ann Lee", confirm=list(draft.risks))
    limit = sf.EpsilonDelta(9, 1e-9)
    vault = sf.open(TABLE, domain=domain, ledger=tmp_path / "people.ledger", limit=limit, create=True)
    words = f"accepted by {domain.accepted_by}"
    assert words.endswith("; the draft was edited")
    answer = sf.query.sql(vault, "SELECT COUNT(*) FROM t", epsilon=1)
    synthetic = sf.synthesize.auto(vault, epsilon=1, delta=1e-9)
    for page in (domain._repr_html_(), answer._repr_html_(), answer.page().html, synthetic.page().html):
        assert words in page
    assert "accepted" not in answer.to_json()
    sf.synthesize.save(synthetic, tmp_path / "model")
    assert sf.synthesize.load(tmp_path / "model").accepted == domain.accepted_by


def test_a_noisy_value_is_a_number() -> None:
    value = NoisyValue(1.75, 0.5, 1.0, 2.5)
    assert (float(value), round(value), round(value, 1)) == (1.75, 2, 1.8)
    assert np.add(value, 1) == 2.75
    assert np.mean([value, value]) == 1.75
    assert np.asarray([value], dtype=np.float32).dtype == np.float32
    assert (int(value), value + 1, 2 * value, -value, abs(value)) == (1, 2.75, 3.5, -1.75, 1.75)
    assert (value > 1, value < 1) == (True, False)
    assert (f"{value:.1f}", f"{value}") == ("1.8", "1.75 (1.00 to 2.50)")
    assert value == NoisyValue(1.75, 0.5, 1.0, 2.5) != NoisyValue(1.75, 0.5, 1.0, 2.6)


def test_frames_of_any_library_are_tables() -> None:
    frame = TABLE.to_pandas()
    relation = duckdb.from_arrow(TABLE)
    given = [relation, ds.dataset(TABLE), nw.from_native(frame), nw.from_native(relation), pl.from_arrow(TABLE).lazy()]
    for source in given:
        assert [column.name for column in open_table(source).schema()] == ["age", "pay"]


def test_named_row_labels_of_pandas_are_columns_and_others_are_left_out() -> None:
    frame = TABLE.to_pandas()
    before = frame.set_index("pay")
    assert [column.name for column in open_table(before).schema()] == ["pay", "age"]
    assert list(before.columns) == ["age"]
    assert [column.name for column in open_table(frame).schema()] == ["age", "pay"]
    assert [column.name for column in open_table(frame.set_index(["pay"], drop=False)).schema()] == ["age", "pay"]


def test_what_a_notebook_shows_is_a_table_with_styles_of_its_own(vault: Vault) -> None:
    answer = sf.query.sql(vault, "SELECT age, COUNT(*) FROM t GROUP BY age", epsilon=1)
    synthetic = sf.synthesize.auto(vault, epsilon=1, delta=1e-9)
    for shown in (answer, synthetic, synthetic.rows, vault, vault.remaining):
        page = shown._repr_html_()
        assert "<dl" not in page
        assert page.count("<td ") + page.count("<th ") == page.count("<td") + page.count("<th") - page.count("<thead")
        assert "{" not in page
        assert vault.domain.hash not in page
    assert html_table(("<a>",), [("<b>",)], caption="<c>").count("&lt;") == 3


JUPYTER = """
.out dl {display: grid; grid-template-columns: 1fr} .out table {border-collapse: collapse; table-layout: fixed;
margin-left: auto; margin-right: auto; font-size: 12px} .out td, .out th, .out tr {text-align: right;
vertical-align: middle; padding: .5em; line-height: normal; white-space: normal; max-width: none; border: none}
.out tbody tr:nth-child(odd) {background: #f5f5f5} .out th {font-weight: bold}
"""
CLASSIC = (
    ".out table {margin-left: auto; border: 1px solid black} .out td, .out th {display: table-cell; padding: .5em}"
)
VS_CODE_OUTPUTS = """
body {color: #ccc; background: #1e1e1e} table, thead, tr, th, td, tbody {border: none !important} table {width: 100%}
table, th, tr {text-align: left !important} thead {font-weight: bold; background-color: rgba(130, 130, 130, .16)}
th, td {padding: 4px 8px} tr:nth-child(even) {background-color: rgba(130, 130, 130, .08)} tbody th {font-weight: normal}
"""
VS_CODE = """
body {color: #ccc; background: #1e1e1e} table {border-collapse: collapse; border-spacing: 0} table th, table td {
border: 1px solid transparent} table thead th {text-align: right; border-bottom: 1px solid rgba(255, 255, 255, .18)}
th, td {padding: 5px 10px; text-align: right} table tbody tr:nth-child(even) {background: rgba(130, 130, 130, .16)}
"""


def test_labels_stand_beside_their_values_under_the_css_of_notebooks(vault: Vault) -> None:
    shown = "".join(each._repr_html_() for each in (vault, vault.domain, sf.describe(TABLE)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=require("SFUMATO_TEST_CHROMIUM"), args=ARGUMENTS)
        page = browser.new_page(viewport={"width": 900, "height": 900})
        for css in (JUPYTER, CLASSIC, VS_CODE, VS_CODE_OUTPUTS):
            page.set_content(f"<style>{css}</style><div class='out'>{shown}</div>")
            for row in page.locator("tbody tr").all():
                boxes = [cell.bounding_box() for cell in row.locator("th, td").all()]
                assert len({round(box["y"]) for box in boxes}) == 1
                assert all(one["x"] + one["width"] <= other["x"] + 1 for one, other in pairwise(boxes))
            styles = "cells => [...new Set(cells.map(cell => getComputedStyle(cell).textAlign))]"
            assert page.locator("table.sfumato th, table.sfumato td").evaluate_all(styles) == ["left"]
        browser.close()


def test_the_progress_of_a_command_in_a_notebook_is_one_line(capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JPY_PARENT_PID", "1")
    with working("Reading people.csv") as progress:
        progress("encoding the columns")
        progress("noise")
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.rpartition("\r")[2].rstrip() == "Reading people.csv: noise"


def test_large_counts_are_shown_to_the_last_row() -> None:
    assert str(NoisyValue(1_013_184.0, 2.0, 1_013_180.0, 1_013_189.0)) == "1013184 (1013180 to 1013189)"


def test_a_summary_claims_no_column_and_no_pair_that_was_not_measured(vault: Vault) -> None:
    book = sf.synthesize.auto(vault, epsilon=1, delta=1e-9).codebook
    known, unknown = book.columns[0], replace(book.columns[1], worst=None)
    some = replace(book, columns=(known, unknown), pairs_left_out=5)
    assert some.accuracy.startswith(f"counts by any one of 1 measured column within {known.worst:,} rows (")
    assert some.accuracy.endswith("; at least 1 of 6 pairs of columns measured")
    none = replace(book, columns=(unknown,), pairs=(replace(book.pairs[0], measured=False),))
    assert none.accuracy == "0 of 1 pair of columns measured, the others estimated"


def test_an_estimate_has_the_digits_that_its_interval_supports() -> None:
    assert str(NoisyValue(38.58401, 0.012, 38.559193, 38.60882)) == "38.584 (38.559 to 38.609)"
    assert str(NoisyValue(316722.6, 454, 315832.2, 317612.9)) == "316720 (315830 to 317620)"
    assert str(NoisyValue(37, 0, 37, 37)) == "37 (37 to 37)"
