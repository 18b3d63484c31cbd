"""Releases of linked tables, judged on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.app.test_evaluating import sfumato
from tests.evaluate.linked_tables import DOCUMENT, write_hospital

from sfumato.strict_documents import write_yaml


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "hospital.yaml").write_text(write_yaml(DOCUMENT))
    for seed, name in enumerate(("hospital", "synthetic", "others")):
        write_hospital(tmp_path / name, patients=200, seed=seed)
    return tmp_path


JUDGE = ("evaluate", "hospital", "synthetic", "--schema", "hospital.yaml")


def test_a_release_of_tables_is_judged(place: Path) -> None:
    visits = place / "synthetic" / "visits.csv"
    visits.write_text(visits.read_text() + "x,nobody,2023-01-01,1,A\n")
    out, err = sfumato(*JUDGE, "--claim", "epsilon=1", cwd=place)
    assert "patients with visits: share in a wrong cell, on average" in out
    assert "visits with drugs" in out
    assert "children dealt at random" in out
    assert "guarantee: epsilon = 1" in out
    assert "No attacks were made" in out
    assert "these are not judged: 1 without a parent." in err


def test_its_page_and_json(place: Path) -> None:
    arguments = ("--holdout", "others", "--html", "page.html", "--json", "--internal")
    found = json.loads(sfumato(*JUDGE, *arguments, cwd=place)[0])
    assert [edge["children"] for edge in found["edges"]] == ["visits", "drugs"]
    assert found["claim"] is None
    assert found["notice"].endswith("they are for its owner alone.")
    assert {each["attack"] for each in found["attacks"]} >= {"membership of a family (visits)"}
    page = (place / "page.html").read_text()
    for words in ("Internal:", "How many visits", "Two of one parent: visits", "One and the next: visits"):
        assert words in page
    public = ("--html", "public.html")
    sfumato(*JUDGE, *public, cwd=place)
    assert "Internal:" not in (place / "public.html").read_text()


def test_children_with_one_column_and_with_none_left(place: Path) -> None:
    (place / "synthetic" / "visits.csv").unlink()
    _, err = sfumato(*JUDGE, cwd=place, code=2)
    assert "has drugs, and no visits" in err
    (place / "synthetic" / "visits.csv").write_text("visit_id,patient_id,admitted,cost,ward\n")
    found = json.loads(sfumato(*JUDGE, "--json", cwd=place)[0])
    assert found["edges"][0]["scores"]["release"]["child1"] == 1


def test_tables_without_a_file_in_the_release_are_not_judged(place: Path) -> None:
    (place / "synthetic" / "drugs.csv").unlink()
    found = json.loads(sfumato(*JUDGE, "--json", cwd=place)[0])
    assert [edge["children"] for edge in found["edges"]] == ["visits"]


def test_what_a_release_says_of_itself_is_not_contradicted(place: Path) -> None:
    (place / "synthetic" / "release.json").write_text(
        json.dumps({"codebook": {"guarantee": {"loss": {"epsilon": "1"}}}})
    )
    assert json.loads(sfumato(*JUDGE, "--json", cwd=place)[0])["claim"] == "epsilon = 1"
    _, err = sfumato(*JUDGE, "--claim", "epsilon=0.1", cwd=place, code=2)
    assert "states epsilon = 1" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--domain", "hospital.yaml"), "takes no --domain"),
        (("--holdout", "hospital"), "names others of the population"),
        (("--order", "visits"), "is no order"),
        (("--order", "visits=height"), "is no order"),
        (("--claim", "rho=1", "--claim", "rho=2"), "one release is judged at a time"),
    ],
)
def test_wrong_arguments_are_refused(place: Path, arguments: tuple[str, ...], words: str) -> None:
    assert words in sfumato(*JUDGE, *arguments, cwd=place, code=2)[1]


def test_an_order_without_a_schema_is_refused(place: Path) -> None:
    _, err = sfumato("evaluate", "a.csv", "b.csv", "--order", "a=b", cwd=place, code=2)
    assert "needs --schema" in err
    _, err = sfumato("evaluate", "a.csv", "b.csv", cwd=place, code=2)
    assert "a.csv" in err
