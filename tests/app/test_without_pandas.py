"""Commands do not import pandas, even if it is installed."""

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


LOADED = """
import runpy, sys
try:
    runpy.run_module("sfumato", run_name="__main__")
except SystemExit as left:
    assert not left.code, left.code
print(*sorted(sys.modules), file=sys.stderr)
"""
ELSEWHERE = {"sqlalchemy", "scipy", "sklearn", "fastapi", "altair", "pandas"}
"""Libraries that neither a question nor a search of recodings needs."""


def loaded(folder: Path, *words: str) -> set[str]:
    """The modules that a command has loaded at its end."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


def test_the_error_of_a_question_is_told_without_libraries_of_tables(tmp_path: Path) -> None:
    command(tmp_path, "data", "zoo")
    words = ("query", "zoo.parquet", "SELECT COUNT(*) FROM t", "--domain", "zoo.yaml", "--epsilon", "1", "--accuracy")
    found = loaded(tmp_path, *words)
    assert not found & (ELSEWHERE | {"duckdb", "pyarrow", "cryptography"})
    families = {"sfumato.anonymize", "sfumato.synthesize", "sfumato.local", "sfumato.evaluate", "sfumato.workload"}
    assert not found & (families | {"sfumato.ledger.store", "sfumato.query.session", "sfumato.query.release_interval"})


def test_a_question_loads_what_it_needs(tmp_path: Path) -> None:
    command(tmp_path, "data", "zoo")
    words = ("SELECT COUNT(*) FROM t", "--domain", "zoo.yaml", "--epsilon", "1", "--limit", "3", "--create")
    found = loaded(tmp_path, "query", "zoo.parquet", *words)
    assert not found & (ELSEWHERE | {"pyarrow.compute", "sfumato.workload", "sfumato.query.session"})


def test_a_search_of_recodings_loads_what_it_needs(tmp_path: Path) -> None:
    command(tmp_path, "data", "zoo")
    words = ("--domain", "zoo.yaml", "--k", "2", "--quasi", "carrots", "--out", "released.csv", "--create")
    found = loaded(tmp_path, "anonymize", "zoo.parquet", *words, "--limit", "1")
    unused = {"sqlglot", "sfumato.query", "sfumato.anonymize.local_recoding", "sfumato.anonymize.reidentification"}
    assert not found & (ELSEWHERE | unused)


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
