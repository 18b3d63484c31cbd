"""A draft is one object for the command, the web form and Python: it shows itself, is changed, and is accepted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import yaml
from typer.testing import CliRunner

import sfumato as sf
from sfumato.app.cli.main import app
from sfumato.description.draft import TableDraft
from sfumato.domain import Integer, Real, load
from sfumato.domain.document import accept
from sfumato.errors import DomainError, InputError

ROWS = 3_000


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    random = np.random.default_rng(0)
    bmi = np.where(random.random(ROWS) < 0.1, 999, random.normal(28, 5, ROWS).round(1))
    return pd.DataFrame(
        {
            "patient_nbr": random.integers(100_000, 100_900, ROWS),
            "bmi": bmi,
            "age": random.integers(18, 95, ROWS),
            "sex": random.choice(["f", "m"], ROWS),
            "admitted": pd.to_datetime("2020-01-05") + pd.to_timedelta(random.integers(0, 700, ROWS), unit="D"),
            "remark": [f"text {number} of a doctor" for number in range(ROWS)],
        }
    )


def changed(frame: pd.DataFrame) -> TableDraft:
    draft = sf.describe(frame)
    draft["bmi"].missing(999).bounds(10, 80)
    draft["admitted"].days("2020-01-01", "2021-12-31")
    draft["age"].bins(10)
    draft.unit("patient_nbr", rows=5)
    return draft


def test_a_draft_has_a_line_for_each_column_and_says_what_is_left_out_and_why(frame: pd.DataFrame) -> None:
    draft = sf.describe(frame)
    assert sorted(line[0] for line in draft.rows()) == sorted(frame.columns)
    left_out = {name: why for name, kind, _, why in draft.rows() if kind == "left out"}
    assert set(left_out) == {"patient_nbr", "remark"}
    assert all(left_out.values())
    for text in (repr(draft), draft._repr_html_()):
        assert all(name in text for name in frame.columns)
        assert "draft.accept(by=" in text
    assert repr(draft.findings).startswith("free-text: ")
    assert "left out" in draft.findings._repr_html_()
    assert 'State first: draft["admitted"].days(first, last)' in repr(draft)
    assert repr(draft["sex"]).split() == ["sex", "categorical", "f,", "m"]


def test_columns_are_changed_and_what_makes_no_sense_changes_nothing(frame: pd.DataFrame) -> None:
    draft = changed(frame)
    bmi, age = draft.domain["bmi"], draft.domain["age"]
    assert isinstance(bmi, Real)
    assert (bmi.minimum, bmi.maximum, bmi.missing) == (10, 80, (999,))
    assert bmi.edges == (10.0, *range(15, 80, 5), 80.0)
    assert isinstance(age, Integer)
    assert age.declared == 10
    assert (draft.domain.unit.column, draft.domain.unit.rows) == ("patient_nbr", 5)
    before = draft.text()
    with pytest.raises(DomainError, match="least comes first"):
        draft["bmi"].bounds(80, 10)
    with pytest.raises(DomainError):
        draft.unit("patient_nbr", rows=0)
    for edges in (0, [], [20]):
        with pytest.raises(InputError, match="at least"):
            draft["bmi"].bins(edges)
    with pytest.raises(InputError, match="are numbers"):
        draft["bmi"].bounds("ten", 80)
    with pytest.raises(InputError, match="no bounds"):
        draft["sex"].bounds(0, 1)
    with pytest.raises(InputError, match="left out"):
        draft["remark"].bounds(0, 1)
    with pytest.raises(InputError, match="no column 'height'"):
        draft["height"]
    assert draft.text() == before
    draft["age"].drop()
    assert "age" not in draft.domain
    draft["age"].values(["18", "19"])
    assert draft.domain["age"].declared == 2


def test_a_code_for_missing_values_is_no_category() -> None:
    draft = sf.describe(pa.table({"state": ["yes", "no", "refused"] * 50}))
    draft["state"].missing("refused")
    assert draft.domain["state"].missing == ("refused",)
    assert draft.domain["state"].values == ("no", "yes")


def test_whole_numbers_have_whole_even_bins() -> None:
    draft = sf.describe(pa.table({"pay": [number % 700 for number in range(4_900)], "sex": ["f", "m"] * 2_450}))
    draft["pay"].bounds(0, 9_999)
    edges = draft.document["attributes"]["pay"]["edges"]
    assert edges == list(range(0, 10_000, 500))
    draft["pay"].bounds(np.int64(0), 700.0)
    assert draft.domain["pay"].maximum == 700


def test_acceptance_refuses_kinds_that_are_not_confirmed_and_says_how(frame: pd.DataFrame) -> None:
    draft = sf.describe(frame)
    with pytest.raises(DomainError, match="first and its last day"):
        draft.accept(by="Ann Lee", confirm=draft.risks)
    draft["admitted"].days("2020-01-01", "2021-12-31")
    assert draft.risks
    with pytest.raises(DomainError) as refused:
        draft.accept(by="Ann Lee")
    assert f"confirm={list(draft.risks)}" in str(refused.value)
    assert "--confirm" not in str(refused.value)
    with pytest.raises(InputError, match="no kind"):
        draft.accept(by="Ann Lee", confirm=["nonsense"])
    domain = draft.accept(by="Ann Lee", confirm=draft.risks)
    assert not domain.draft
    assert domain.accepted_by is not None
    assert domain.accepted_by.by == "Ann Lee"
    assert domain.accepted_by.confirmed == draft.risks
    assert "accepted by Ann Lee" in domain._repr_html_()


def test_the_command_and_python_write_the_same_document(frame: pd.DataFrame, tmp_path: Path) -> None:
    frame.drop(columns="admitted").to_csv(tmp_path / "people.csv", index=False)
    draft = sf.describe(tmp_path / "people.csv")
    draft.save(tmp_path / "python.yaml")
    words = ["domain", "draft", str(tmp_path / "people.csv"), "--out", str(tmp_path / "command.yaml")]
    said = CliRunner().invoke(app, words, catch_exceptions=False)
    assert (tmp_path / "command.yaml").read_text() == (tmp_path / "python.yaml").read_text() == draft.text()
    for finding in draft.findings:
        assert str(finding) in said.stderr
    assert load(tmp_path / "python.yaml") == draft.domain


def test_several_tables_are_described_changed_and_accepted(tmp_path: Path) -> None:
    patients = pa.table({"patient_id": list(range(200)), "sex": ["f", "m"] * 100})
    visits = pa.table(
        {
            "visit_id": list(range(600)),
            "patient_id": [number % 200 for number in range(600)],
            "cost": [float(number % 97) + 0.5 for number in range(600)],
        }
    )
    draft = sf.describe_tables({"patients": patients, "visits": visits})
    assert "yours to state" in repr(draft["visits"])
    draft["visits"].most_rows(5)["cost"].bounds(0, 100)
    for text in (repr(draft), draft._repr_html_()):
        assert "cost" in text
        assert "at most 5 rows of one person" in text
    schema = draft.accept(by="Ann Lee", confirm=draft.risks)
    limit = sf.EpsilonDelta(2, 1e-9)
    tables = {"patients": patients, "visits": visits}
    vault = sf.open_schema(tables, schema=schema, ledger=tmp_path / "t.ledger", limit=limit, create=True)
    assert vault.schema.accepted_by is not None
    draft.save(tmp_path / "schema.yaml")
    assert yaml.safe_load((tmp_path / "schema.yaml").read_text())["tables"]["visits"]["rows"] == 5
    with pytest.raises(InputError, match="no table 'wards'"):
        draft["wards"]


EIGHT_LINES = """
import sfumato as sf
draft = sf.describe(frame)
draft["bmi"].bounds(10, 80)
draft["admitted"].days("2020-01-01", "2021-12-31")
domain = draft.accept(by="Ann Lee", confirm=["unit", "days"])
vault = sf.open(frame, domain=domain, ledger="people.ledger", limit=sf.EpsilonDelta(2, 1e-9), create=True)
release = sf.synthesize.auto(vault, epsilon=1, delta=1e-9)
rows = release.to_pandas()
"""


def test_eight_lines_lead_from_a_frame_to_synthetic_rows(
    frame: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert len(EIGHT_LINES.strip().splitlines()) == 8
    names = {"frame": frame}
    exec(EIGHT_LINES, names)  # noqa: S102
    rows = names["rows"]
    assert list(rows.columns) == ["bmi", "age", "sex", "admitted"]
    assert len(rows)


def test_labels_of_other_cells_are_no_drafted_values() -> None:
    frame = pa.table({"city": ["Ulm", "Bern", "(other)", "(missing)"] * 200, "same": ["(other)"] * 800})
    draft = sf.describe(frame)
    assert list(draft.document["attributes"]) == ["city"]
    assert draft.document["attributes"]["city"]["values"] == ["Bern", "Ulm"]
    domain = draft.accept(by="Ann Lee", confirm=draft.risks)
    assert domain["city"].labels() == ("Bern", "Ulm", "(other)")


def test_codes_for_missing_values_draft_a_column_anew() -> None:
    codes = ["none", "refused", "asked twice"]
    ages = [str(20 + place % 60) for place in range(300)] + codes * 5
    draft = sf.describe(pa.table({"age": ages, "sex": ["f", "m", "x"] * 105}))
    assert draft["age"].body["type"] == "categorical"
    draft["age"].missing(*codes)
    body = draft["age"].body
    assert (body["type"], body["minimum"], body["maximum"], body["nullable"]) == ("integer", 20, 79, True)
    assert body["missing"] == codes
    draft["age"].bounds(0, 99).missing(77)
    assert draft["age"].body["maximum"] == 99  # what the owner stated stays


def test_a_number_for_missing_values_takes_part_in_no_bin() -> None:
    draft = sf.describe(pa.table({"bmi": [20 + place / 10 for place in range(200)] + [500.5] * 5}))
    assert draft["bmi"].body["edges"][-1] > 400
    draft["bmi"].missing(500.5)
    assert draft["bmi"].body["edges"][-1] < 60


def test_spellings_and_labels_of_other_cells_are_findings() -> None:
    states = ["no"] * 60 + ["NO"] * 30 + ["yes"] * 30 + ["rare"] + ["(other)"] * 30
    draft = sf.describe(pa.table({"state": states}))
    assert draft.document["attributes"]["state"]["values"] == ["no", "rare", "yes"]
    assert draft.risks == ("values",)
    assert str(draft.findings[0]).count("state (1 of 3)") == 1


def test_facts_that_a_column_without_its_codes_reads_off_the_table_are_findings() -> None:
    ages = [str(21 + place % 57) if place % 9 else "unknown" for place in range(400)]
    numbers = [place % 97 + 0.25 for place in range(400)]
    kinds = ["a", "b", "c", "x"] * 99 + ["d", "e", "f", "g"]
    draft = sf.describe(pa.table({"age": ages, "number": numbers, "kind": kinds}))
    draft["age"].missing("unknown")
    draft["number"].missing(96.25)
    draft["kind"].missing("x")
    found = {str(finding.kind): list(finding.columns) for finding in draft.findings}
    assert found == {"values": ["kind"], "bounds": ["age"], "bins": ["number"]}
    draft["age"].bounds(0, 110)
    assert "bounds" not in draft.risks
    with pytest.raises(DomainError, match="values"):
        draft.accept(by="Ann Lee", confirm=["bins"])


def test_a_list_of_the_values_of_a_table_stays_a_finding_without_a_code(tmp_path: Path) -> None:
    people = pa.table({"person_id": list(range(60)), "kind": ["a", "b", "x"] * 18 + ["c", "d", "e"] * 2})
    visits = pa.table({"person_id": list(range(60)) * 2, "cost": [place % 50 + 0.5 for place in range(120)]})
    draft = sf.describe_tables({"people": people, "visits": visits})
    draft["visits"].most_rows(2)
    assert "values" in draft.risks
    draft["people"]["kind"].missing("x")
    assert draft.document["tables"]["people"]["attributes"]["kind"]["values"] == ["a", "b", "c", "d", "e"]
    assert "values" in draft.risks


def test_a_missing_code_drafts_a_column_of_several_tables_anew() -> None:
    people = pa.table({"person_id": list(range(60))})
    cost = [f"{place % 50 + 0.5}" for place in range(115)] + ["n.d."] * 5
    visits = pa.table({"person_id": list(range(60)) * 2, "cost": cost})
    draft = sf.describe_tables({"people": people, "visits": visits})
    assert draft["visits"]["cost"].body["type"] == "categorical"
    assert "visits.cost" in draft.document["drafted"]["findings"]["values"]
    draft["visits"]["cost"].missing("n.d.")
    body = draft["visits"]["cost"].body
    assert (body["type"], body["missing"], body["nullable"]) == ("real", ["n.d."], True)
    record = draft.document["drafted"]["findings"]
    assert (record["values"], "visits.cost" in record["bins"]) == ({}, True)
    draft["visits"].most_rows(2)
    assert "bins" in draft.risks
    draft["visits"]["cost"].bounds(0, 60).missing(7)  # the owner's bounds stay
    assert draft["visits"]["cost"].body["edges"][-1] == 60


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda column: column.bounds(1, float("inf")), "numbers up to 1e\\+300, not inf"),
        (lambda column: column.bounds(-1e308, 1e308), "numbers up to 1e\\+300"),
        (lambda column: column.bounds(0, 10**400), "numbers up to 1e\\+300"),
        (lambda column: column.bins(10**9), "at most 100,000"),
        (lambda column: column.bins(True), "their number, or a list of edges, not bool"),
        (lambda column: column.bins(2.5), "their number, or a list of edges, not float"),
        (lambda column: column.bins(None), "their number, or a list of edges, not NoneType"),
        (lambda column: column.values("low"), "list the values of 'bmi', such as \\['low'\\]"),
        (lambda column: column.values(5), "list the values of 'bmi'"),
    ],
)
def test_arguments_that_make_no_sense_are_refused_and_change_nothing(frame, change, says) -> None:
    draft = sf.describe(frame)
    before = draft.text()
    with pytest.raises(InputError, match=says):
        change(draft["bmi"])
    assert draft.text() == before


def test_numbers_of_numpy_are_numbers_for_a_draft(frame) -> None:
    draft = sf.describe(frame)
    draft["bmi"].missing(np.int64(999), np.float64(998.5)).bounds(np.float32(10), np.int8(80)).bins(np.int64(7))
    assert draft["bmi"].body["missing"][-2:] == [999, 998.5]
    assert draft.unit("patient_nbr", rows=np.int64(5)).document["unit"] == {"id": "patient_nbr", "rows": 5}


def test_a_further_acceptance_keeps_the_kinds_that_were_confirmed(tmp_path: Path) -> None:
    path = tmp_path / "kinds.yaml"
    sf.describe(pa.table({"kind": ["a", "b", "c"] * 100 + ["d", "e"]})).save(path)
    path.write_text(accept(path, by="Ann", confirmed=["values"]), encoding="utf-8")
    path.write_text(accept(path, by="Bea"), encoding="utf-8")
    accepted = load(path).accepted_by
    assert accepted is not None
    assert (accepted.by, accepted.confirmed, accepted.edited) == ("Bea", ("values",), False)
    path.write_text(path.read_text(encoding="utf-8").replace("[a, b, c, d, e]", "[a, b, c, d, e, f]"), encoding="utf-8")
    path.write_text(accept(path, by="Cem", confirmed=["bounds"]), encoding="utf-8")
    accepted = load(path).accepted_by
    assert accepted is not None
    assert (accepted.by, accepted.confirmed, accepted.edited) == ("Cem", ("values", "bounds"), True)


def test_the_id_of_the_unit_as_a_column_is_a_finding() -> None:
    draft = sf.describe(pa.table({"dossier": [f"K{place // 4}" for place in range(400)], "rot": ["a", "b"] * 200}))
    draft.unit("dossier", rows=4)["dossier"].values([f"K{place}" for place in range(120)])
    assert str(draft.findings).count("dossier (it is the id of the unit)") == 1
    with pytest.raises(DomainError, match="identifiers"):
        draft.accept(by="Ann Lee", confirm=["unit", "values"])


@pytest.mark.parametrize("by", [None, 5, ["Ann"]])
@pytest.mark.parametrize("confirm", [None, 5, [None], [["values"]]])
def test_names_that_are_no_texts_are_refused(by, confirm) -> None:
    draft = sf.describe(pa.table({"state": ["a", "b", "c"] * 100}))
    with pytest.raises(InputError, match="named by a text"):
        draft.accept(by=by)
    with pytest.raises(InputError, match="confirmed by their names"):
        draft.accept(by="Ann Lee", confirm=confirm)


def test_a_table_whose_columns_are_all_left_out_shows_itself() -> None:
    people = pa.table({"pid": list(range(50)), "sex": ["f", "m"] * 25})
    draft = sf.describe_tables({"people": people, "links": pa.table({"pid": list(range(50)) * 2})})
    assert "links" in repr(draft)
    assert repr(draft["links"].most_rows(2)).strip() == "links, at most 2 rows of one person"


@pytest.mark.parametrize("source", [None, 5, {1: pa.table({"pid": [1, 2]}), "b": pa.table({"pid": [1, 2]})}])
def test_a_source_that_is_no_folder_of_tables_is_refused_with_a_message(source) -> None:
    with pytest.raises(InputError, match=r"tables (are|have)"):
        sf.describe_tables(source)
