"""``sfumato show`` of a folder of linked tables, which may be forged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.app.test_evaluating import sfumato
from tests.families import related
from tests.synthesize.linked.test_related_synthesis import chained, simulated

from sfumato.privacy.loss import Rho


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("release")
    release, _ = simulated(chained(500, 1), related(3), loss=Rho(1))
    release.write(place / "village")
    return place


def test_a_folder_is_described(made: Path) -> None:
    out, err = sfumato("describe", "village", cwd=made)
    for words in ("synthetic:", "Table persons", "by falling age", "persons.tail", "all rows of one house", "rho = 1"):
        assert words in out
    assert "Stated by the file alone" in err
    found = json.loads(sfumato("describe", "village", "--json", cwd=made)[0])
    assert [part["name"] for part in found["parts"]] == ["head", "persons.tail"]


def test_its_page_and_its_markdown(made: Path, tmp_path: Path) -> None:
    page, text = tmp_path / "page.html", tmp_path / "book.md"
    sfumato("describe", "village", "--html", str(page), "--markdown", str(text), cwd=made)
    assert "values of persons.first.age" in page.read_text()
    assert "<script" not in page.read_text()
    assert text.read_text() == (made / "village" / "codebook.md").read_text()


def test_text_of_anybody_means_nothing_more_than_itself(made: Path, tmp_path: Path) -> None:
    said = json.loads((made / "village" / "release.json").read_text())
    evil = "\x1b[2J<script>alert(1)</script>|`"
    said["codebook"]["parts"][0]["name"] = evil
    said["codebook"]["parts"][0]["columns"][0]["name"] = evil
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "release.json").write_text(json.dumps(said))
    out, _ = sfumato("describe", "evil", "--html", "page.html", "--markdown", "book.md", cwd=tmp_path)
    assert "\x1b" not in out
    assert "<script>alert" not in (tmp_path / "page.html").read_text()
    assert "<script>alert" not in (tmp_path / "book.md").read_text()


@pytest.mark.parametrize("damage", ["parts", "files", "units", "guarantee"])
def test_what_is_damaged_is_refused(made: Path, tmp_path: Path, damage: str) -> None:
    said = json.loads((made / "village" / "release.json").read_text())
    said["codebook"][damage] = "nothing"
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "release.json").write_text(json.dumps(said))
    assert "is damaged" in sfumato("describe", "damaged", cwd=tmp_path, code=2)[1]


def test_a_folder_of_anything_is_refused(tmp_path: Path) -> None:
    assert "no release of" in sfumato("describe", ".", cwd=tmp_path, code=2)[1]
