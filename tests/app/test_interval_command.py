"""Intervals of a saved release on the command line."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from tests.app.test_cli import sfumato
from tests.app.test_synthesizing import release, workspace

from sfumato.vault.interface import decode, encode

__all__ = ["workspace"]  # a fixture

SELECT = "SELECT COUNT(*) FROM people WHERE"


@pytest.fixture
def model(workspace: Path) -> Path:
    release(
        workspace, "--method", "marginals", "--marginals", "married,town", "--create", "--limit", "20,1e-6",
        "--rho", "0.5", "--out", "out.parquet", "--model", "saved.model",
    )  # fmt: skip
    return workspace


def test_a_saved_release_answers_with_intervals_and_spends_nothing(model: Path) -> None:
    before = (model / "people.ledger").read_bytes()
    (model / "people.csv").unlink()
    said = sfumato("interval", "saved.model", f"{SELECT} town = 'T1' AND married = 'yes'", "--json", cwd=model)
    found = json.loads(said.stdout)
    assert found["table"]["low"] < found["table"]["estimate"] < found["table"]["high"]
    assert found["population"]["standard_error"] > found["table"]["standard_error"]
    assert (found["confidence"], found["tables"]) == (0.95, [["married", "town"]])
    text = sfumato("interval", "saved.model", f"{SELECT} town = 'T1'", "--among", "married = 'yes'", cwd=model).stdout
    assert text.startswith("share where town in T1 among married in yes: 0.")
    assert "Cost: nothing" in text
    assert "Stated by the file alone" in text
    assert "Stated by the file alone" in found["trust"]
    apart = sfumato(
        "interval", "saved.model", f"{SELECT} town = 'T1'", "--among", "married = 'yes'",
        "--minus", f"{SELECT} town = 'T1'", "--minus-among", "married = 'never'", "--json", cwd=model,
    )  # fmt: skip
    assert abs(json.loads(apart.stdout)["table"]["estimate"]) < 0.2
    assert (model / "people.ledger").read_bytes() == before


def test_the_released_file_alone_answers_as_the_saved_model_does(workspace: Path) -> None:
    release(
        workspace, "--method", "marginals", "--marginals", "married,town", "--create", "--limit", "20,1e-6",
        "--rho", "0.5", "--out", "out.parquet", "--model", "saved.model",
    )  # fmt: skip
    asked = ("interval", f"{SELECT} town = 'T1'", "--json")
    of_model = json.loads(sfumato(asked[0], "saved.model", *asked[1:], cwd=workspace).stdout)
    before = (workspace / "people.ledger").read_bytes()
    for file in ("people.csv", "people.ledger", "saved.model", "out.codebook.md"):
        (workspace / file).unlink()
    found = json.loads(sfumato(asked[0], "out.parquet", *asked[1:], cwd=workspace).stdout)
    assert {**found, "model": None} == {**of_model, "model": None}
    assert "Stated by the file alone" in found["trust"]
    said = sfumato("describe", "out.parquet", cwd=workspace)
    assert "sfumato interval out.parquet" in said.stderr
    assert before
    (workspace / "out.csv").write_text("a\n1\n")
    refused = sfumato("interval", "out.csv", *asked[1:], cwd=workspace, code=2)
    assert "ask of the .parquet file, or of the saved model" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["SELECT MEDIAN(married) FROM t"], "categorical"),
        (["SELECT married, COUNT(*) FROM t GROUP BY married"], "An interval is for one number"),
        (["SELECT COUNT(*) FROM t", "--among", "married = 'yes'"], "A share is asked as SELECT COUNT"),
        ([f"{SELECT} married = 'yes'", "--minus-among", "town = 'T1'"], "--minus-among belongs to --minus"),
        ([f"{SELECT} married = 'yes'", "--confidence", "1"], "confidence"),
        ([f"{SELECT} age = 3"], "age"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_sentence(model: Path, arguments: list[str], says: str) -> None:
    refused = sfumato("interval", "saved.model", *arguments, cwd=model, code=2)
    assert says in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_copies_are_drawn_by_themselves_and_say_what_they_are_not_for(model: Path) -> None:
    said = sfumato("sample", "saved.model", "--out", "copy.csv", "--copies", "3", "--json", cwd=model)
    found = json.loads(said.stdout)
    assert "Stated by the file alone" in found["trust"]
    assert found["copies"] == ["copy-1.csv", "copy-2.csv", "copy-3.csv"]
    texts = {(model / name).read_text() for name in found["copies"]}
    assert len(texts) == 3
    assert "not valid here" in found["note"]
    assert "not valid here" in said.stderr
    assert not (model / "copy.csv").exists()
    (model / "more-2.csv").write_text("mine")
    refused = sfumato("sample", "saved.model", "--out", "more.csv", "--copies", "2", cwd=model, code=2)
    assert "more-2.csv exists" in refused.stderr
    assert not (model / "more-1.csv").exists()
    nameless = sfumato("sample", "saved.model", "--out", ".", "--copies", "2", cwd=model, code=2)
    assert "names a folder and no file" in nameless.stderr


def test_a_statement_that_somebody_wrote_into_a_model_cannot_move_the_cursor(model: Path) -> None:
    payload = decode((model / "saved.model").read_bytes()[32:])
    payload["release"]["statement"]["guarantee"] = "all is well\x1b[2J\nGuarantee: none needed"
    stored = encode(payload)
    (model / "edited.model").write_bytes(hashlib.sha256(stored).digest() + stored)
    for command in (
        ["interval", "edited.model", f"{SELECT} town = 'T1'"],
        ["sample", "edited.model", "--out", "e.csv"],
    ):
        said = sfumato(*command, cwd=model).stdout
        assert "\x1b" not in said
        assert said.count("\nGuarantee:") + said.startswith("Guarantee:") == 1
        assert "Stated by the file alone" in said
