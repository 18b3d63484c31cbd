"""The sign-off sheet on the command line."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.app.test_cli import sfumato

from sfumato.report.sign_off.linked_sign_off import linked_sign_off, signed_tables
from sfumato.report.sign_off.sign_off_page import Purpose
from sfumato.synthesize.synthetic import TABLES_KEY
from sfumato.vault.interface import decode, encode

DOMAIN = """sfumato: 1
unit: row
attributes:
  age: {type: integer, minimum: 0, maximum: 99, unknown: clamp}
  town: {type: categorical, values: [Ulm, Bern, Oslo, Rome], unknown: drop}
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A synthetic file at a quarter of its limit, its holdout and its evaluation."""
    folder = tmp_path_factory.mktemp("sign-off")
    rows = [f"{number * 7 % 100},{['Ulm', 'Bern', 'Oslo', 'Rome'][number * number % 4]}" for number in range(1200)]
    (folder / "people.csv").write_text("\n".join(["age,town", *rows[:600]]))
    (folder / "others.csv").write_text("\n".join(["age,town", *rows[600:]]))
    (folder / "people.yaml").write_text(DOMAIN)
    for epsilon, name in (("1", "made"), ("2", "more")):
        loss = ("--epsilon", epsilon, *(("--create", "--limit", "4") if name == "made" else ()))
        out = f"{name}.parquet"
        sfumato("synthesize", "people.csv", "--domain", "people.yaml", *loss, "--out", out, cwd=folder, code=0)
    judged = ("evaluate", "people.csv", "made.parquet", "--domain", "people.yaml", "--holdout", "others.csv")
    told = sfumato(*judged, "--out", "evaluation.html", "--json", cwd=folder, code=0)
    (folder / "evaluation.json").write_text(told.stdout)
    return folder


def sheet(folder: Path, *more: str, file: str = "made.parquet") -> dict:
    told = sfumato("sign-off", file, "--html", "sheet.html", "--overwrite", "--json", *more, cwd=folder, code=0)
    return json.loads(told.stdout)


def test_without_evaluation_nothing_is_claimed_about_risk(workspace: Path) -> None:
    told = sheet(workspace, "--to", "Anyone", "--purpose", "<b>Teaching</b>")
    page = (workspace / "sheet.html").read_text()
    assert told["tiles"]["Privacy"] == "Stated, not checked"
    assert told["tiles"]["Risk measured"] == "Not evaluated"
    assert told["internal"] is False
    assert "&lt;b&gt;Teaching" in page
    assert "<script" not in page
    assert "a chance of at most 73.2 %" in page
    assert "Not checked: no ledger was given" in page
    for word in (" safe ", "anonymous", "risk-free"):
        assert word not in page.casefold()


def test_the_ledger_fills_budget_and_checks(workspace: Path) -> None:
    told = sheet(workspace, "--ledger", "people.ledger")
    page = (workspace / "sheet.html").read_text()
    assert "<strong>This release 25 %</strong> · before 0 % · later 50 % · left 25 %" in page
    assert "Ledger verified" in page
    assert told["tiles"]["Privacy"] == "Guaranteed"
    assert any("accepted" in check["text"] for check in told["checks"])
    later = sheet(workspace, "--ledger", "people.ledger", file="more.parquet")
    assert "<strong>This release 50 %</strong> · before 25 % · later 0 %" in (workspace / "sheet.html").read_text()
    assert later["right_guesses"] == pytest.approx(0.8808, abs=1e-4)


def test_rows_are_compared_with_those_of_the_ledger(workspace: Path) -> None:
    table = pq.read_table(workspace / "made.parquet")
    pq.write_table(table.slice(1), workspace / "fewer.parquet")
    changed = table.take([1, 0, *range(2, table.num_rows)])
    assert changed != table
    pq.write_table(changed, workspace / "changed.parquet")
    held, key = dict(table.schema.metadata), b"sfumato.codebook"
    book = json.loads(held[key])
    book["columns"][0]["worst"] = 0
    better = table.replace_schema_metadata({**held, key: json.dumps(book).encode()})
    pq.write_table(better, workspace / "better.parquet")
    for file, sentence in {
        "made.parquet": "Rows and stated errors are those that entry",
        "fewer.parquet": "The rows are not those that entry",
        "changed.parquet": "The rows are not those that entry",
        "better.parquet": "The rows match entry 2, and the errors that the file states do not",
    }.items():
        checks = sheet(workspace, "--ledger", "people.ledger", file=file)["checks"]
        (check,) = [each for each in checks if each["text"].startswith(sentence)]
        assert check["to_judge"] is not (file == "made.parquet")
    assert any(each["text"].endswith("equal those of entry 2; its rows do not") for each in _checks_of(workspace))
    page = (workspace / "sheet.html").read_text()
    assert '<div class="tile bad"><span>Privacy</span><b>Stated, not matched</b>' in page
    assert "Entry 2 of the ledger promises that the guess is right with a chance of at most 73.2 %" in page
    assert "This holds whatever else the observer knows" not in page
    assert "<strong>Entry 2 25 %</strong>" in page


@pytest.mark.parametrize("method", ["histogram", "marginals", "mwem"])
def test_part_of_the_columns_is_compared_by_the_description_of_the_whole_table(
    workspace: Path, tmp_path: Path, method: str
) -> None:
    for name in ("people.csv", "people.yaml"):
        (tmp_path / name).write_text((workspace / name).read_text())
    made = ("synthesize", "people.csv", "--method", method, "--marginals", "town", "--epsilon", "3", "--limit", "4")
    sfumato(*made, "--create", "--out", "towns.parquet", cwd=tmp_path, code=0)
    ledger = ("--ledger", "people.ledger")
    assert sheet(tmp_path, *ledger, file="towns.parquet")["tiles"]["Privacy"] == "Guaranteed, but weak"
    (tmp_path / "people.yaml").rename(tmp_path / "elsewhere.yaml")
    unmatched = sheet(tmp_path, *ledger, file="towns.parquet")
    assert unmatched["tiles"]["Privacy"] == "Stated, not matched"
    assert any("Name its file by --domain" in each["text"] for each in unmatched["checks"])
    assert "(weak above 90 %)" in (tmp_path / "sheet.html").read_text()
    told = sheet(tmp_path, *ledger, "--domain", "elsewhere.yaml", file="towns.parquet")
    assert told["tiles"]["Privacy"] == "Guaranteed, but weak"
    (tmp_path / "other.yaml").write_text(DOMAIN.replace("Rome", "Roma"))
    refused = ("sign-off", "towns.parquet", *ledger, "--domain", "other.yaml", "--html", "none.html")
    assert "is not the description" in sfumato(*refused, cwd=tmp_path, code=2).stderr


def _with_tables(table: pa.Table, change: Callable[[dict], dict]) -> pa.Table:
    """Return a file whose noisy tables and description were changed, with a digest that fits."""
    held = dict(table.schema.metadata)
    payload = decode(base64.b64decode(held[TABLES_KEY][64:]))
    content = base64.b64encode(encode(change(dict(payload))))
    digest = hashlib.sha256(hashlib.sha256(held[b"sfumato.codebook"]).digest() + content).hexdigest()
    return table.replace_schema_metadata({**held, TABLES_KEY: digest.encode() + content})


@pytest.mark.parametrize(
    "change",
    [
        lambda tables: {**tables, "domain": tables["domain"].replace("Rome", "Roma")},
        lambda tables: {name: part + 1 if name == "noisy table 0" else part for name, part in tables.items()},
    ],
    ids=["description", "noisy tables"],
)
def test_a_file_that_carries_more_than_its_release_is_not_matched(
    workspace: Path, tmp_path: Path, change: Callable[[dict], dict]
) -> None:
    for name in ("people.csv", "people.yaml"):
        (tmp_path / name).write_text((workspace / name).read_text())
    made = ("synthesize", "people.csv", "--method", "histogram", "--marginals", "town", "--epsilon", "1")
    sfumato(*made, "--limit", "4", "--create", "--out", "towns.parquet", cwd=tmp_path, code=0)
    table = pq.read_table(tmp_path / "towns.parquet")
    pq.write_table(_with_tables(table, dict), tmp_path / "same.parquet")
    pq.write_table(_with_tables(table, change), tmp_path / "forged.parquet")
    more = table.replace_schema_metadata({**table.schema.metadata, b"pandas": b"{}"})
    pq.write_table(more, tmp_path / "more.parquet")
    told_of = table.replace_schema_metadata({**table.schema.metadata, b"sfumato.notice": b"Ann Lee of Ulm"})
    pq.write_table(told_of, tmp_path / "notice.parquet")
    for file, matched in (("same", True), ("forged", False), ("more", False), ("notice", False)):
        told = sheet(tmp_path, "--ledger", "people.ledger", file=f"{file}.parquet")
        assert (told["tiles"]["Privacy"] == "Guaranteed") is matched
        carried = [each for each in told["checks"] if "carries another description" in each["text"]]
        assert bool(carried) is not matched


def test_a_column_that_carries_metadata_is_not_matched(workspace: Path) -> None:
    table = pq.read_table(workspace / "made.parquet")
    hidden = table.schema.set(0, table.schema.field(0).with_metadata({"n": "Ann Lee of Ulm"}))
    pq.write_table(table.cast(hidden).replace_schema_metadata(table.schema.metadata), workspace / "hidden.parquet")
    assert pq.read_table(workspace / "hidden.parquet").schema.field(0).metadata[b"n"] == b"Ann Lee of Ulm"
    told = sheet(workspace, "--ledger", "people.ledger", file="hidden.parquet")
    assert told["tiles"]["Privacy"] == "Stated, not matched"


def test_a_use_that_the_release_does_not_name_is_not_matched(workspace: Path) -> None:
    table = pq.read_table(workspace / "made.parquet")
    book = json.loads(table.schema.metadata[b"sfumato.codebook"])
    key = next(each for each in book if each.startswith("good"))
    book[key] = [*book[key], "Every use."]
    kept = {name: part for name, part in table.schema.metadata.items() if name != b"sfumato.tables"}
    changed = table.replace_schema_metadata({**kept, b"sfumato.codebook": json.dumps(book).encode()})
    pq.write_table(changed, workspace / "uses.parquet")
    told = sheet(workspace, "--ledger", "people.ledger", file="uses.parquet")
    assert told["tiles"]["Privacy"] == "Stated, not matched"
    assert any("the errors that the file states do not" in each["text"] for each in told["checks"])


def _checks_of(folder: Path) -> list[dict]:
    return sheet(folder, "--ledger", "people.ledger", file="changed.parquet")["checks"]


def test_a_weak_guarantee_is_a_point_to_judge(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text((workspace / "people.csv").read_text())
    (tmp_path / "people.yaml").write_text(DOMAIN)
    made = ("synthesize", "people.csv", "--domain", "people.yaml", "--epsilon", "50", "--create", "--limit", "50")
    sfumato(*made, "--anyway", "--out", "made.parquet", cwd=tmp_path, code=0)
    told = sheet(tmp_path, "--ledger", "people.ledger")
    assert told["tiles"]["Privacy"] == "Guaranteed, but weak"
    assert told["checks"][0]["to_judge"] is True
    assert any(each["to_judge"] and each["text"].startswith("A guess may be right up to") for each in told["checks"])


def test_the_public_edition_names_nobody_and_asks_for_no_signature(workspace: Path) -> None:
    private = ("--by", "R. Okafor", "--to", "Internal revision", "--purpose", "Project Nightingale")
    told = sheet(workspace, "--ledger", "people.ledger", *private, "--public")
    page = (workspace / "sheet.html").read_text()
    assert told["public"] is True
    assert not any(word in page for word in ("Internal revision", "Nightingale", "made.parquet", "people.ledger"))
    assert "<h1>Synthetic table</h1>" in page
    assert "Okafor" not in page
    assert "Signature" not in page
    assert "Public edition" in page
    refused = ("sign-off", "made.parquet", "--public", "--evaluation", "evaluation.json", "--html", "none.html")
    assert "cannot be published" in sfumato(*refused, cwd=workspace, code=2).stderr


def test_an_evaluation_makes_the_sheet_internal(workspace: Path) -> None:
    told = sheet(workspace, "--evaluation", "evaluation.json")
    assert told["internal"] is True
    (check,) = [each for each in told["checks"] if each["text"].startswith("The verdicts of the evaluation are those")]
    assert check["to_judge"] is True
    assert len(told["risk"]) == 4
    assert told["tiles"]["Risk measured"] != "Not evaluated"
    assert "Internal: contains figures" in (workspace / "sheet.html").read_text()


def test_bad_input_gets_a_sentence_and_no_page(workspace: Path) -> None:
    def refused(*arguments: str) -> str:
        told = sfumato("sign-off", *arguments, "--html", "none.html", cwd=workspace, code=2)
        assert not (workspace / "none.html").exists()
        return told.stderr

    assert "evaluates other files" in refused("more.parquet", "--evaluation", "evaluation.json")
    assert "is not what 'sfumato evaluate --json' prints" in refused("made.parquet", "--evaluation", "people.yaml")
    assert "carries no codebook" in refused("people.csv")
    assert "Synthetic rows are signed off as a .parquet or .arrow file" in refused("people.csv")
    assert "Synthetic rows are signed off as a .parquet" in refused("people.csv", "--ledger", "people.ledger")
    assert "There is no ledger" in refused("made.parquet", "--ledger", "absent.ledger")


@pytest.mark.parametrize("loss", ['{"epsilon":"0.01"}', '{"epsilon":"many"}', '{"epsilon":"-1"}'])
def test_a_forged_guarantee_is_refused(workspace: Path, loss: str) -> None:
    table = pq.read_table(workspace / "made.parquet")
    held = dict(table.schema.metadata)
    key = b"sfumato.codebook"
    forged = held[key].replace(b'"loss":{"epsilon":"1"}', f'"loss":{loss}'.encode())
    forged = forged.replace(b"epsilon = 1 ", b"epsilon = 0.01 ")
    assert forged != held[key]
    pq.write_table(table.replace_schema_metadata({**held, key: forged}), workspace / "forged.parquet")
    arguments = ("sign-off", "forged.parquet", "--html", "none.html", "--ledger", "people.ledger")
    told = sfumato(*arguments, cwd=workspace, code=2)
    assert "does not match the file" in told.stderr or "states a loss that is none" in told.stderr


@pytest.mark.parametrize(
    "part",
    [
        {"loss": {"epsilon": "0.001"}},
        {"loss": {"rho": "1"}},
        {"loss": {}},
        {"unit": "at most 9 rows of one person"},
        {"neighbours": "adding or removing all rows of one person (at most 9)"},
    ],
)
@pytest.mark.parametrize("ledger", [(), ("--ledger", "people.ledger")])
def test_fields_that_contradict_the_text_of_a_guarantee_are_refused(workspace: Path, part: dict, ledger: tuple) -> None:
    table = pq.read_table(workspace / "made.parquet")
    held, key = dict(table.schema.metadata), b"sfumato.codebook"
    book = json.loads(held[key])
    book["guarantee"] |= part
    forged = table.replace_schema_metadata({**held, key: json.dumps(book).encode()})
    pq.write_table(forged, workspace / "forged.parquet")
    told = sfumato("sign-off", "forged.parquet", "--html", "none.html", *ledger, cwd=workspace, code=2)
    assert "contradicts itself" in told.stderr


@pytest.mark.parametrize(
    ("changed", "added", "says"),
    [
        (b'"epsilon":"2"', b',"checked by":"the ledger"', "states a loss that is none"),
        (b'"method":"', b"certified ", "of the method"),
        (
            b"adding or removing one row",
            b", beyond what journal entries 2 released, of which it was made as well",
            "made",
        ),
    ],
)
def test_what_the_page_shows_is_that_of_the_entry(workspace: Path, changed: bytes, added: bytes, says: str) -> None:
    table = pq.read_table(workspace / "more.parquet")
    held, key = dict(table.schema.metadata), b"sfumato.codebook"
    forged = held[key].replace(changed, changed + added, 1)
    assert forged != held[key]
    pq.write_table(table.replace_schema_metadata({**held, key: forged}), workspace / "shown.parquet")
    arguments = ("sign-off", "shown.parquet", "--html", "none.html", "--ledger", "people.ledger")
    assert says in sfumato(*arguments, cwd=workspace, code=2).stderr


@pytest.mark.parametrize("change", [{"verdict": "Good"}, {"verdict": "No leak found", "interval": [0.2, 0.4]}])
def test_an_evaluation_that_contradicts_itself_is_refused(workspace: Path, change: dict) -> None:
    document = json.loads((workspace / "evaluation.json").read_text())
    next(each for each in document["verdicts"] if each["is_risk"]).update(change)
    (workspace / "forged.json").write_text(json.dumps(document))
    arguments = ("sign-off", "made.parquet", "--html", "none.html", "--evaluation", "forged.json")
    assert "is not what" in sfumato(*arguments, cwd=workspace, code=2).stderr


@pytest.mark.parametrize("loss", [("--rho", "0.5"), ("--epsilon", "1", "--delta", "1e-9")])
@pytest.mark.parametrize("unit", ["{id: pid, rows: 2}", "{id: pid, rows: 1, per: {town: {rows: 1, groups: 1}}}"])
def test_every_guarantee_of_ours_agrees_with_itself(tmp_path: Path, loss: tuple[str, ...], unit: str) -> None:
    rows = [f"{number % 300},{number % 100},{['Ulm', 'Bern'][number % 2]}" for number in range(600)]
    (tmp_path / "people.csv").write_text("\n".join(["pid,age,town", *rows]))
    (tmp_path / "people.yaml").write_text(DOMAIN.replace("unit: row", f"unit: {unit}"))
    limit = "rho=9" if loss[0] == "--rho" else "9,1e-6"
    made = ("synthesize", "people.csv", "--domain", "people.yaml", *loss, "--create", "--limit", limit)
    sfumato(*made, "--anyway", "--out", "made.parquet", cwd=tmp_path, code=0)
    assert sheet(tmp_path, "--ledger", "people.ledger")["tiles"]["Privacy"] == "Guaranteed"


def test_an_anonymized_table_is_counted_again_and_compared_with_its_source(workspace: Path) -> None:
    made = ("anonymize", "people.csv", "--domain", "people.yaml", "--quasi", "age,town", "--k", "5")
    sfumato(*made, "--ledger", "people.ledger", "--out", "k5.csv", cwd=workspace, code=0)
    told = sheet(workspace, "--ledger", "people.ledger", "--table", "people.csv", file="k5.csv")
    page = (workspace / "sheet.html").read_text()
    assert told["tiles"]["Privacy"] == "5-anonymity"
    assert told["tiles"]["Accuracy"] == "Not evaluated"
    assert told["internal"] is True
    assert any(each["text"].startswith("Only the number of rows of the table") for each in told["checks"])
    lines = {each["measure"]: (each["before"], each["after"]) for each in told["reidentification"]}
    before, after = (
        [line.split(",") for line in (workspace / name).read_text().splitlines()[1:]]
        for name in ("people.csv", "k5.csv")
    )
    classes = [{tuple(row): rows.count(row) for row in rows}.values() for rows in (before, after)]
    assert lines["Smallest class"] == tuple(f"{min(sizes)}" for sizes in classes)
    assert lines["Classes"] == tuple(f"{len(sizes):,}" for sizes in classes)
    assert "No differential privacy" in page
    assert "The fact that a person is in the table" in page
    public = sheet(workspace, "--ledger", "people.ledger", "--public", file="k5.csv")
    assert {each["before"] for each in public["reidentification"]} == {"Not evaluated"}
    rows = (workspace / "k5.csv").read_text().splitlines()
    (workspace / "moved.csv").write_text("\n".join([*rows[:-1], next(row for row in rows[1:] if row != rows[-1])]))
    moved = ("sign-off", "moved.csv", "--ledger", "people.ledger", "--html", "none.html")
    assert "other rows or classes" in sfumato(*moved, cwd=workspace, code=2).stderr
    fewer = (workspace / "k5.csv").read_text().splitlines()[:-1]
    (workspace / "cut.csv").write_text("\n".join(fewer))
    refused = ("sign-off", "cut.csv", "--ledger", "people.ledger", "--html", "none.html")
    assert "other rows or classes" in sfumato(*refused, cwd=workspace, code=2).stderr
    assert "name its --ledger" in sfumato("sign-off", "k5.csv", "--html", "none.html", cwd=workspace, code=2).stderr


def test_answers_are_signed_one_by_one_or_all_together(tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("\n".join(["age,town", *(f"{n},Ulm" for n in range(90))]))
    (tmp_path / "people.yaml").write_text(DOMAIN)
    asked = ("query", "people.csv", "--domain", "people.yaml", "--epsilon", "1")
    first = ("SELECT town, COUNT(*) FROM people GROUP BY town", "--create", "--limit", "4")
    answer = sfumato(*asked[:2], first[0], *asked[2:], *first[1:], "--json", cwd=tmp_path, code=0).stdout
    sfumato(*asked[:2], "SELECT COUNT(*) FROM people", *asked[2:], cwd=tmp_path, code=0)
    (tmp_path / "answer.json").write_text(answer)
    told = sheet(tmp_path, file="people.ledger")
    page = (tmp_path / "sheet.html").read_text()
    assert told["tiles"]["Privacy"] == "Guaranteed"
    assert told["right_guesses"] == pytest.approx(0.8536, abs=1e-4)  # rho = 1, less than by epsilon = 2
    assert "These answers 50 %" in page
    assert "<td>25 %</td>" in page  # the share of each answer, which a phone shows whole
    assert "count(*) by town" in page
    one = sheet(tmp_path, "--ledger", "people.ledger", file="answer.json")
    assert one["tiles"]["Privacy"] == "Stated, not matched"
    assert one["right_guesses"] == pytest.approx(0.7311, abs=1e-4)
    assert sheet(tmp_path, file="answer.json")["tiles"]["Privacy"] == "Stated, not checked"
    forged = json.loads(answer)
    forged["provenance"]["parameters"]["loss"]["epsilon"] = "0.1"
    (tmp_path / "forged.json").write_text(json.dumps(forged))
    refused = ("sign-off", "forged.json", "--html", "none.html")
    assert "contradict each other" in sfumato(*refused, cwd=tmp_path, code=2).stderr
    for change in (
        {"confidence": 5},
        {"confidence": "nan"},
        {"guarantee": json.loads(answer)["guarantee"] + " at all"},
    ):
        (tmp_path / "forged.json").write_text(json.dumps(json.loads(answer) | change))
        assert "is no answer" in sfumato(*refused, cwd=tmp_path, code=2).stderr
    (tmp_path / "forged.json").write_text(answer.replace('"low": ', '"low": "nan", "was": ', 1))
    assert "is no answer" in sfumato(*refused, cwd=tmp_path, code=2).stderr


def test_linked_tables_are_signed_as_a_folder(tmp_path: Path) -> None:
    sfumato("data", "hospital", cwd=tmp_path, code=0)
    made = ("synthesize", "hospital", "--schema", "hospital.yaml", "--epsilon", "1", "--delta", "1e-9")
    sfumato(*made, "--create", "--limit", "2,1e-9", "--out", "made", cwd=tmp_path, code=0)
    told = sheet(tmp_path, "--ledger", "hospital.ledger", file="made")
    assert told["tiles"]["Privacy"] == "Stated, not matched"
    assert any(each["text"].startswith("Each table has the columns") for each in told["checks"])
    document = json.loads((tmp_path / "made" / "release.json").read_text())
    unwritten = linked_sign_off(signed_tables(document["codebook"], document), purpose=Purpose())
    assert not any(each.text.startswith("Each table") for each in unwritten.checks)
    assert any("the stated errors were not compared" in each["text"] for each in told["checks"])
    shutil.copytree(tmp_path / "hospital", tmp_path / "others")
    judge = ("evaluate", "hospital", "made", "--schema", "hospital.yaml", "--holdout", "others", "--json")
    (tmp_path / "judged.json").write_text(sfumato(*judge, cwd=tmp_path, code=0).stdout)
    judged = sheet(tmp_path, "--ledger", "hospital.ledger", "--evaluation", "judged.json", file="made")
    assert judged["internal"] is True
    assert judged["tiles"]["Risk measured"] in ("No leak found", "Leak found")  # a chance of one in twenty per attack
    assert {each["question"] for each in judged["risk"]} >= {"Membership of a family (visits)"}
    (tmp_path / "made" / "patients.csv").write_text("name\nAnn Lee\n")
    stale = ("sign-off", "made", "--evaluation", "judged.json", "--html", "none.html")
    assert "evaluates other files than made" in sfumato(*stale, cwd=tmp_path, code=2).stderr
    assert any("they were edited" in each["text"] for each in sheet(tmp_path, file="made")["checks"])
    (tmp_path / "made" / "patients.csv").unlink()
    (tmp_path / "made" / "raw").mkdir()
    assert any("they were edited" in each["text"] for each in sheet(tmp_path, file="made")["checks"])
    (tmp_path / "made" / "raw").rmdir()
    (tmp_path / "made" / "visits.parquet").unlink()
    assert any("they were edited" in each["text"] for each in sheet(tmp_path, file="made")["checks"])
    place = tmp_path / "made" / "release.json"
    place.write_text(place.read_text().replace("epsilon = 1,", "epsilon = 0.1,"))
    refused = ("sign-off", "made", "--html", "none.html")
    assert "contradicts itself" in sfumato(*refused, cwd=tmp_path, code=2).stderr
