"""Every family from the command line on every engine: all engines agree with DuckDB.

At an epsilon of 100000 a discrete Laplace noise that is not zero has probability below 1e-200, so that
even noisy answers can be compared as they are.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from pyarrow import csv
from tests.app.test_cli import Done, sfumato
from tests.engine import cluster
from tests.services import require

DOMAIN = """sfumato: 1
unit: row
attributes:
  age: {type: integer, minimum: 0, maximum: 99, edges: [0, 18, 40, 65], unknown: clamp}
  town: {type: categorical, values: [Ulm, Bern, Graz], unknown: category, nullable: true}
  score: {type: real, edges: [0, 1, 2, 5], unknown: drop}
"""
SIZE = 300
DRIVERS = {"postgres": "postgresql+psycopg", "mariadb": "mysql+pymysql"}
FAMILIES = ["ledger", *["query"] * 3, "synthesize", "anonymize"]  # the first entry is of the table's version
LEDGER = ("--ledger", "people.ledger", "--limit", "1000000")


def people(seed: int) -> pa.Table:
    generator = np.random.default_rng(seed)
    towns = generator.choice(["Ulm", "Bern", "Graz", "Rom", ""], SIZE)
    return pa.table(
        {
            "age": generator.integers(0, 105, SIZE),
            "town": pa.array([town or None for town in towns]),
            "score": generator.integers(0, 44, SIZE) / 8,
        }
    )


@dataclass
class Workspace:
    """A folder with a domain and a ledger of its own, and the addresses of a table and of its holdout."""

    folder: Path
    table: str
    holdout: str

    def __post_init__(self) -> None:
        self.folder.mkdir()
        (self.folder / "people.yaml").write_text(DOMAIN)

    def run(self, command: str, *arguments: str, code: int = 0) -> Done:
        """Run a command with words TABLE and HOLDOUT replaced by addresses."""
        places = {"TABLE": self.table, "HOLDOUT": self.holdout}
        return sfumato(*command.split(), *(places.get(word, word) for word in arguments), cwd=self.folder, code=code)

    def json(self, command: str, *arguments: str) -> Any:
        return json.loads(self.run(command, *arguments, "--json").stdout)

    def rows(self, name: str) -> Counter[tuple[object, ...]]:
        found = pq.read_table(self.folder / name)
        return Counter(zip(*found.to_pydict().values(), strict=True))


def loaded(engine: str, places: list[str]) -> Iterator[str]:
    """Load people and holdout into a database, and yield their addresses."""
    url = sa.make_url(require(f"SFUMATO_TEST_{engine.upper()}"))
    database = sa.create_engine(url.set(drivername=DRIVERS[engine]), poolclass=sa.NullPool)
    columns = (("age", sa.BigInteger), ("town", sa.String(20)), ("score", sa.Double))
    names = [f"{place}_{secrets.token_hex(6)}" for place in places]
    metadata = sa.MetaData()
    for seed, name in enumerate(names):
        made = sa.Table(name, metadata, *(sa.Column(*column) for column in columns))
        with database.begin() as connection:
            made.create(connection)
            connection.execute(made.insert(), people(seed).to_pylist())
    yield from (url.update_query_dict({"table": name}).render_as_string(hide_password=False) for name in names)
    with database.begin() as connection:
        metadata.drop_all(connection)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for seed, name in enumerate(("people", "holdout")):
        pq.write_table(people(seed), folder / f"{name}.parquet")
        csv.write_csv(people(seed), folder / f"{name}.csv")
    pq.write_table(people(2).filter(pc.less(people(2)["score"], 5)), folder / "released.parquet")
    return folder


ENGINES = [*DRIVERS, pytest.param("spark", marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=ENGINES)
def workspace(
    request: pytest.FixtureRequest, files: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Workspace]:
    """A workspace whose table lies on an engine."""
    place = tmp_path_factory.mktemp(request.param) / "workspace"
    if request.param == "spark":
        cluster.session()
        yield Workspace(place, f"spark:{files / 'people.parquet'}", f"spark:{files / 'holdout.parquet'}")
        return
    addresses = loaded(request.param, ["people", "holdout"])
    yield Workspace(place, next(addresses), next(addresses))
    assert next(addresses, None) is None


@pytest.fixture(scope="module")
def duck(workspace: Workspace, files: Path, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The workspace whose results the other has to repeat."""
    place = tmp_path_factory.mktemp("duck") / "workspace"
    return Workspace(place, str(files / "people.parquet"), str(files / "holdout.parquet"))


def test_drafts_and_fits_are_the_same(workspace: Workspace, duck: Workspace) -> None:
    drafts = [each.run("domain draft", "TABLE").stdout for each in (workspace, duck)]
    assert drafts[0] == drafts[1]
    assert "Graz" in drafts[0]
    fits = [each.json("domain check", "people.yaml", "--table", "TABLE") for each in (workspace, duck)]
    assert fits[0] == fits[1]


STATEMENTS = [
    "SELECT town, COUNT(*), SUM(age) FROM people GROUP BY town",
    "SELECT COUNT(*) FROM people WHERE NOT (town = 'Ulm' AND age < 40)",
    "SELECT MEDIAN(score) FROM people",
]


def release(workspace: Workspace) -> dict[str, Any]:
    """Make one release of every kind, in the order of FAMILIES, with its statement."""
    domain = ("--domain", "people.yaml")
    private = (*domain, "--epsilon", "100000", *LEDGER)
    answers = [{**workspace.json("query", "TABLE", asked, *private), "provenance": None} for asked in STATEMENTS]
    marginals = ("--out", "synthetic.parquet", "--method", "marginals", "--marginals", "age,town")
    synthetic = workspace.json("synthesize", "TABLE", *private, *marginals)
    quasi = ("--quasi", "age,town", "--k", "8", "--suppression", "0.1")
    out = ("--out", "k.parquet", "--recoding", "k.json", "--keep", "score", *LEDGER)
    recoded = workspace.json("anonymize", "TABLE", *domain, *quasi, *out)
    other = ("--out", "more.parquet", "--dataset", "holdout", "--create", *LEDGER)
    again = workspace.json("apply", "k.json", "HOLDOUT", *domain, *other)
    return {"answers": answers, "synthetic": synthetic, "recoded": recoded["facts"], "again": again["facts"]}


@pytest.fixture(scope="module")
def releases(workspace: Workspace, duck: Workspace) -> tuple[dict[str, Any], dict[str, Any]]:
    return release(workspace), release(duck)


def test_answers_without_noise_are_the_same(releases: tuple[dict[str, Any], dict[str, Any]]) -> None:
    first, second = releases
    assert first["answers"] == second["answers"]


def test_synthetic_rows_have_the_marginals_of_the_table(
    workspace: Workspace, duck: Workspace, releases: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    told = []
    for each, made in zip((workspace, duck), releases, strict=True):
        rows, said = pq.read_table(each.folder / "synthetic.parquet"), made["synthetic"]
        assert len(rows) == said["rows"]
        told.append((said["rows"], said["guarantee"], said["cost"], rows.schema))
    assert told[0] == told[1]


def test_recoded_rows_and_rows_recoded_again_are_the_same(
    workspace: Workspace, duck: Workspace, releases: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    first, second = releases
    assert (first["recoded"], first["again"]) == (second["recoded"], second["again"])
    assert first["recoded"]["smallest_class"] >= 8
    for name in ("k.parquet", "more.parquet"):
        assert workspace.rows(name) == duck.rows(name)


@pytest.mark.usefixtures("releases")
def test_the_journal_says_the_same_and_adds_up(workspace: Workspace, duck: Workspace) -> None:
    journals = [each.json("ledger show", "people.ledger") for each in (workspace, duck)]
    told = ("kind", "family", "method", "analyst", "statement", "cost", "parameters")
    for version, *_ in (each["entries"] for each in journals):
        assert len(version["parameters"].pop("digest")) == 64
        version["parameters"].pop("files", None)  # of files only
    lines = [[{name: entry[name] for name in told} for entry in each["entries"]] for each in journals]
    assert lines[0] == lines[1]
    assert [entry["family"] for entry in lines[0]] == FAMILIES
    workspace.run("ledger verify", "people.ledger")


def test_risk_is_the_same(workspace: Workspace, duck: Workspace) -> None:
    asked = ("TABLE", "--quasi", "age,town", "--population", "100000")
    assert workspace.json("risk", *asked) == duck.json("risk", *asked)


def test_reports_and_estimates_are_the_same(workspace: Workspace, duck: Workspace) -> None:
    found = []
    for each in (workspace, duck):
        each.run("local spec frequency", "--epsilon", "32", "--size", "105", "--method", "grr", "--out", "spec.json")
        each.run("local randomize", "spec.json", "TABLE", "--column", "age", "--out", "reports.parquet")
        found.append(each.json("local estimate", "spec.json", "reports.parquet"))
        done = each.run("local randomize", "spec.json", "TABLE", "--column", "town", "--out", "none.parquet", code=2)
        assert "missing" in done.stderr
        done = each.run("local randomize", "spec.json", "TABLE", "--column", "nothing", "--out", "n.parquet", code=2)
        assert "no column 'nothing'" in done.stderr
    assert found[0] == found[1]
    assert found[0]["reports"] == SIZE


def judged(workspace: Workspace, released: Path) -> tuple[list[list[float]], list[str]]:
    """Distances of marginals, which are exact, and the attacks, whose targets depend on the order of rows."""
    release = ("TABLE", str(released), "--domain", "people.yaml", "--holdout", "HOLDOUT", "--claim", "none")
    made = workspace.json("evaluate", *release, "--out", "page.html", "--target", "town")
    assert (workspace.folder / "page.html").stat().st_size > 0
    attacks = [line["attack"] for line in workspace.json("attack", *release, "--people", "40")["attacks"]]
    return [release["marginals"] for release in made["releases"]], attacks


@pytest.fixture(scope="module")
def wanted(files: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[list[float]], list[str]]:
    """Return the judgment of the release against a table in a file."""
    place = tmp_path_factory.mktemp("judged") / "workspace"
    here = Workspace(place, str(files / "people.parquet"), str(files / "holdout.parquet"))
    return judged(here, files / "released.parquet")


def test_evaluations_and_attacks_read_both_tables(
    workspace: Workspace, files: Path, wanted: tuple[list[list[float]], list[str]]
) -> None:
    scores, attacks = judged(workspace, files / "released.parquet")
    assert np.allclose(scores, wanted[0])
    assert attacks == wanted[1]


@pytest.mark.usefixtures("releases")
def test_no_screen_shows_the_password(workspace: Workspace) -> None:
    if "@" not in workspace.table:
        pytest.skip("this engine has no password")
    workspace.run("local spec frequency", "--epsilon", "1", "--size", "105", "--method", "grr", "--out", "wrong.json")
    password = str(sa.make_url(workspace.table).password)
    wrong = workspace.table.replace("@127", "wrong@127")
    for code, command, *arguments in (
        (0, "domain check", "people.yaml", "--table", "TABLE"),
        (2, "domain check", "people.yaml", "--table", workspace.table.replace("people_", "absent_")),
        (1, "domain draft", wrong),
        (0, "query", "TABLE", STATEMENTS[1], "--domain", "people.yaml", "--epsilon", "100000", *LEDGER),
        (1, "query", wrong, STATEMENTS[1], "--domain", "people.yaml", "--epsilon", "1", *LEDGER),
        (2, "anonymize", "TABLE", "--quasi", "age", "--k", "2", "--out", "x.parquet"),
        (2, "risk", "TABLE", "--quasi", "nothing"),
        (2, "attack", "TABLE", "x.parquet", "--domain", "people.yaml", "--holdout", "TABLE", "--claim", "none"),
        (1, "synthesize", wrong, "--domain", "people.yaml", "--epsilon", "1", "--out", "o.csv"),
        (1, "local randomize", "wrong.json", wrong, "--column", "age", "--out", "wrong.parquet"),
    ):
        done = workspace.run(str(command), *map(str, arguments), code=int(code))
        assert password not in done.stdout + done.stderr, command
    assert len(workspace.json("ledger show", "people.ledger")["entries"]) == len(FAMILIES), "nothing more was charged"


@pytest.mark.slow
def test_csv_on_spark_means_what_it_means_on_duckdb(files: Path, tmp_path: Path) -> None:
    cluster.session()
    here = Workspace(tmp_path / "spark", f"spark:{files / 'people.csv'}", f"spark:{files / 'holdout.csv'}")
    there = Workspace(tmp_path / "duck", str(files / "people.csv"), str(files / "holdout.csv"))
    assert here.run("domain draft", "TABLE").stdout == there.run("domain draft", "TABLE").stdout
    check = ("people.yaml", "--table", "TABLE")
    assert here.json("domain check", *check) == there.json("domain check", *check)
