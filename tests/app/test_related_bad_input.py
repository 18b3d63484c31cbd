"""Files as bad as they come: a release of linked tables is made of them, or they are refused before it is charged.

What depends on rows, such as children of nobody or more of them than are kept, is no error at a release: errors leak.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.app.test_cli import sfumato

SCHEMA = """\
sfumato: 2
schema: clinic
unit: {id: patient, table: patients}
tables:
  patients:
    key: patient
    attributes:
      sex: {type: categorical, values: [f, m], nullable: false, unknown: drop}
  visits:
    key: visit
    unit: patient
    rows: 3
    attributes:
      came: {type: date, first: 2023-01-01, last: 2023-12-31, by: day, nullable: true, unknown: category}
      kind: {type: categorical, values: [a, b], nullable: true, unknown: category}
  tests:
    through: {visit: visits}
    rows: 4
    attributes:
      kind: {type: categorical, values: [x, y], nullable: false, unknown: drop}
"""
PATIENTS = "patient,sex\n" + "".join(f"{unit},{'fm'[unit % 2]}\n" for unit in range(40))
VISITS = "visit,patient,came,kind\n" + "".join(
    f"{3 * unit + at},{unit},2023-0{1 + at}-{1 + unit % 28:02},{'ab'[at % 2]}\n"
    for unit in range(40)
    for at in range(3)
)
TESTS = "visit,kind\n" + "".join(f"{visit},{'xy'[visit % 2]}\n" for visit in range(0, 120, 2))
ASKED = ("synthesize", "in", "--schema", "clinic.yaml", "--out", "made", "--epsilon", "1", "--delta", "1e-6")
NEW = ("--limit", "2,1e-5", "--create")

RELEASED = {
    "as it should be": {},
    "visits of nobody": {"visits": VISITS + "999,77,2023-03-03,a\n998,,2023-03-03,a\n"},
    "tests of no visit": {"tests": TESTS + "5555,x\n,y\n"},
    "more visits than are kept": {"visits": VISITS + "".join(f"{500 + at},0,2023-05-05,a\n" for at in range(50))},
    "more tests than are kept": {"tests": TESTS + "0,x\n" * 50},
    "nobody has two visits": {
        "visits": "visit,patient,came,kind\n" + "".join(f"{u},{u},2023-02-02,a\n" for u in range(40))
    },
    "no test": {"tests": "visit,kind\n"},
    "no visit, and so no test that is of one": {"visits": "visit,patient,came,kind\n"},
    "nobody has a test of two": {"tests": "visit,kind\n0,x\n"},
    "dates missing and equal": {
        "visits": "visit,patient,came,kind\n" + "".join(f"{u},{u % 20},,b\n" for u in range(40))
    },
    "values that nobody declared": {"visits": VISITS.replace(",a\n", ",zzz\n").replace("2023-01", "1999-01")},
    "a visit whose patient is left out": {"patients": PATIENTS.replace("3,m", "3,q")},
    "a visit without a key": {"visits": VISITS + ",5,2023-05-05,a\n,5,2023-05-05,a\n"},
    "no patient": {"patients": "patient,sex\n"},
    "no row at all": {
        "patients": "patient,sex\n",
        "visits": "visit,patient,came,kind\n",
        "tests": "visit,kind\n",
    },
    "one patient": {
        "patients": "patient,sex\n0,f\n",
        "visits": "visit,patient,came,kind\n1,0,2023-05-05,a\n",
        "tests": "visit,kind\n1,x\n",
    },
}
REFUSED = {
    "two patients of one id": ({"patients": PATIENTS + "0,m\n"}, "names several rows"),
    "two visits of one key": ({"visits": VISITS + "0,5,2023-05-05,a\n"}, "names several rows"),
    "no column of the unit": ({"visits": VISITS.replace("visit,patient", "visit,person")}, "no column 'patient'"),
    "no table": ({"tests": None}, "no file tests.csv"),
    "no table at all": ({"tests": ""}, "tests.csv"),
}


def written(folder: Path, files: dict[str, Any]) -> Path:
    (folder / "in").mkdir()
    (folder / "clinic.yaml").write_text(SCHEMA)
    for name, text in ({"patients": PATIENTS, "visits": VISITS, "tests": TESTS} | files).items():
        if text is not None:
            (folder / "in" / f"{name}.csv").write_text(text)
    return folder


def test_a_release_says_how_many_rows_are_kept_of_what(tmp_path: Path) -> None:
    said = sfumato(*ASKED, *NEW, "--most", "tests=2", cwd=written(tmp_path, {})).stdout
    assert "visits: the first 3 of a unit, by came" in said
    assert "tests: at most 2 of a row of visits and 4 of a unit, in no order" in said


def test_every_bad_row_is_released_like_any_other(tmp_path: Path) -> None:
    for place, (name, files) in enumerate(RELEASED.items()):
        folder = tmp_path / str(place)
        folder.mkdir()
        written(folder, files)
        made = json.loads(sfumato(*ASKED, *NEW, "--json", cwd=folder).stdout)
        assert set(made["rows"]) == {"patients", "visits", "tests"}, name
        assert made["guarantee"].endswith("(at most 3 of visits, 4 of tests are kept)"), name


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_owners_open_is_refused_in_a_sentence_and_changes_nothing(tmp_path: Path, name: str) -> None:
    files, words = REFUSED[name]
    folder = written(tmp_path, files)
    before = sorted(path.name for path in folder.rglob("*"))
    said = sfumato(*ASKED, *NEW, cwd=folder, code=2).stderr
    assert words in said
    assert "Traceback" not in said
    assert sorted(path.name for path in folder.rglob("*")) == before
