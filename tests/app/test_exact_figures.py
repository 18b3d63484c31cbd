"""Every command that prints exact figures states, also in its JSON, that they are for the table's owner alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from tests.app.test_cli import sfumato
from tests.hospital import database, frames, schema

from sfumato.domain.table_schema import dump_schema

SENTENCE = "These figures are exact and as secret as the table: they are for its owner alone."
DOMAIN = """sfumato: 1
unit: row
attributes:
  age: {type: integer, minimum: 0, maximum: 99, unknown: clamp}
  sex: {type: categorical, values: [F, M], unknown: drop}
"""
ATTACK = ("attack", "people.csv", "people.csv", "--domain", "people.yaml", "--holdout", "others.csv", "--people", "40")
EXACT = [
    ("domain", "check", "people.yaml", "--table", "people.csv"),
    ("domain", "accept", "people.yaml", "--by", "Ann", "--table", "people.csv"),
    ("schema", "check", "hospital.yaml", "--tables", "hospital"),
    ("schema", "accept", "hospital.yaml", "--by", "Ann", "--tables", "hospital"),
    ("risk", "people.csv", "--quasi", "age,sex"),
    (*ATTACK, "--claim", "none"),
]
PUBLIC = [
    ("domain", "check", "people.yaml"),
    ("domain", "accept", "people.yaml", "--by", "Ann"),
    ("schema", "check", "hospital.yaml"),
    ("schema", "accept", "hospital.yaml", "--by", "Ann"),
    ("domain", "show", "people.yaml"),
]


@pytest.fixture
def owned(tmp_path: Path) -> Path:
    """A folder with tables and what describes them."""
    (tmp_path / "hospital").mkdir()
    for name, table in frames(database(0)).items():
        pyarrow.csv.write_csv(table, tmp_path / "hospital" / f"{name}.csv")
    (tmp_path / "hospital.yaml").write_text(dump_schema(schema()), encoding="utf-8")
    (tmp_path / "people.yaml").write_text(DOMAIN)
    rng = np.random.default_rng(0)
    for name in ("people", "others"):
        table = pa.table({"age": rng.integers(0, 100, 200), "sex": rng.choice(["F", "M"], 200)})
        pyarrow.csv.write_csv(table, tmp_path / f"{name}.csv")
    return tmp_path


@pytest.mark.parametrize("asked", EXACT, ids=lambda each: " ".join(each[:2]))
def test_exact_figures_are_for_the_owner_alone_in_json_and_in_words(asked: tuple[str, ...], owned: Path) -> None:
    told = json.loads(sfumato(*asked, "--json", cwd=owned).stdout)
    assert told["notice"] == SENTENCE
    assert next(iter(told)) == "notice"
    assert sfumato(*asked, cwd=owned).stdout.rstrip().endswith(SENTENCE)


@pytest.mark.parametrize("asked", PUBLIC, ids=lambda each: " ".join(each[:2]))
def test_what_reads_no_row_does_not_say_so(asked: tuple[str, ...], owned: Path) -> None:
    assert "notice" not in json.loads(sfumato(*asked, "--json", cwd=owned).stdout)
    assert SENTENCE not in sfumato(*asked, cwd=owned).stdout
