"""A ledger in PostgreSQL is copied and restored as docs/how-to/serve.md says, and a copy that is too old is found."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.ledger.asking import ask, spent_epsilon
from tests.server.serving import DOMAIN, write_people
from tests.services import require

from sfumato.ledger import open_ledger
from sfumato.privacy.loss import Epsilon
from sfumato_server.monitoring import Readiness
from sfumato_server.problems import RefusalError
from sfumato_server.service import Service

ROOT = Path(__file__).resolve().parents[2]
RECIPE = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def databases():
    """Addresses of two databases of their own, both empty."""
    server = sa.make_url(require("SFUMATO_TEST_POSTGRES"))
    engine = sa.create_engine(
        server.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool
    )
    names = [f"copied_{secrets.token_hex(6)}" for _ in range(2)]
    with engine.connect() as connection:
        for name in names:
            connection.exec_driver_sql(f"CREATE DATABASE {name}")
    yield [server.set(database=name).render_as_string(hide_password=False) for name in names]
    with engine.connect() as connection:
        for name in names:
            connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def bash(tmp_path):
    """Runs lines in an empty folder, and returns what became of them."""
    programs = max(Path("/usr/lib/postgresql").glob("*/bin"), default=Path("/usr/bin"))
    path = f"{Path(sys.executable).parent}:{programs}:{os.environ['PATH']}"
    if shutil.which("pg_dump", path=path) is None:
        pytest.skip("there is no pg_dump on this machine")
    folder = tmp_path / "folder"
    folder.mkdir()

    def run(*lines, **names):
        environment = os.environ | names | {"PATH": path, "PYTHONPATH": str(ROOT / "src")}
        return subprocess.run(
            ["bash", "-c", "\n".join(["set -euo pipefail", *lines])],
            check=False, cwd=folder, env=environment, text=True, capture_output=True,
        )  # fmt: skip

    return run


def recipe():
    (block,) = RECIPE.findall((ROOT / "docs" / "how-to" / "serve.md").read_text(encoding="utf-8"))
    return block.splitlines()


def test_the_recipe_copies_and_restores_a_ledger_with_its_hashes(databases, bash):
    before, restored = databases
    with open_ledger(before, dataset="people", limit=Epsilon(1), create=True) as ledger:
        ask(ledger, 0)
        heads, *copying = recipe()
        done = bash(heads, LEDGER=before)
        assert done.returncode == 0, done.stderr
        ask(ledger, 1)  # a release happens between the hashes and the copy
        done = bash(*copying, LEDGER=before, RESTORED=restored)
        assert done.returncode == 0, done.stderr
        last = ledger.verify()
        assert last in done.stdout
    with open_ledger(restored, dataset="people", limit=None) as ledger:
        assert ledger.verify() == last
        assert not ask(ledger, 1).charged
        assert ask(ledger, 2).charged
        assert spent_epsilon(ledger) == Epsilon("0.3").value


def test_the_recipe_refuses_a_copy_that_is_older_than_its_hashes(databases, bash):
    before, restored = databases
    heads, dump, *restoring = recipe()
    with open_ledger(before, dataset="people", limit=Epsilon(1), create=True) as ledger:
        ask(ledger, 0)
        assert bash(dump, LEDGER=before).returncode == 0
        ask(ledger, 1)
        assert bash(heads, LEDGER=before).returncode == 0
        done = bash(*restoring, LEDGER=before, RESTORED=restored)
    assert done.returncode == 1, done.stderr
    assert "the copy is older, or of another ledger" in done.stderr


def test_a_server_notices_that_an_old_copy_was_restored_under_it(databases, bash, tmp_path):
    url, _ = databases
    _, dump, *_ = recipe()
    with closing(Service(url, create=True, snapshots=str(tmp_path / "snapshots"))) as service:
        people = write_people(tmp_path / "people.parquet")
        service.register("people", source=str(people), domain=DOMAIN, limit="2", more={})
        assert bash(dump, LEDGER=url).returncode == 0
        service.loaded("people").ledger.declare_version("other", by="ann", new=True)
        Readiness(service).refuse()
        done = bash('pg_restore --exit-on-error --clean --no-owner --dbname="$LEDGER" ledger.dump', LEDGER=url)
        assert done.returncode == 0, done.stderr
        with pytest.raises(RefusalError) as refused:
            Readiness(service).refuse()
        assert refused.value.kind == "ledger-moved"
