"""Commands do without pandas, also where it is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

RUN = """
import runpy, sys
try:
    runpy.run_module("sfumato", run_name="__main__")
except SystemExit as left:
    assert not left.code, left.code
assert "pandas" not in sys.modules
import pandas  # others may have it
"""


def command(folder: Path, *words: str) -> None:
    done = subprocess.run([sys.executable, "-c", RUN, *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_command_imports_pandas(tmp_path: Path) -> None:
    described = ("zoo.parquet", "--domain", "zoo.yaml")
    command(tmp_path, "data", "zoo")
    command(tmp_path, "domain", "draft", "zoo.parquet", "--out", "draft.yaml")
    command(tmp_path, "domain", "check", "zoo.yaml", "--table", "zoo.parquet")
    question = ("SELECT COUNT(*) FROM t", "--epsilon", "1", "--limit", "3", "--create")
    command(tmp_path, "query", "zoo.parquet", question[0], "--domain", "zoo.yaml", *question[1:])
    command(tmp_path, "synthesize", *described, "--epsilon", "1", "--method", "histogram", "--out", "rows.csv")


ABSENT = """
import runpy, sys
try:
    runpy.run_module("sfumato", run_name="__main__")
except SystemExit as left:
    assert not left.code, left.code
loaded = {"sqlalchemy", "duckdb", "scipy", "jsonschema", "fastapi"} & set(sys.modules)
assert not loaded, loaded
"""


def test_the_error_of_a_question_is_told_without_a_database_library(tmp_path: Path) -> None:
    command(tmp_path, "data", "zoo")
    words = ("query", "zoo.parquet", "SELECT COUNT(*) FROM t", "--domain", "zoo.yaml", "--epsilon", "1", "--accuracy")
    done = subprocess.run(
        [sys.executable, "-c", ABSENT, *words], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


LEARNERS = """
import sys
from sfumato.app.cli.main import _WithoutPandas
sys.meta_path.insert(0, _WithoutPandas())
import sklearn.utils.fixes
assert "pandas" not in sys.modules
import pandas
"""


def test_learners_do_not_import_it_either() -> None:
    done = subprocess.run([sys.executable, "-c", LEARNERS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
