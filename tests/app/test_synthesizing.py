"""Synthetic tables on the command line: what each method takes, says and shows."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from tests.app.test_cli import Done, sfumato

import sfumato as sf
from sfumato.app.api.methods import split_names
from sfumato.app.api.releases import SynthesizeRequest
from sfumato.domain import Domain, Integer, Unknown
from sfumato.errors import BudgetError, LossError, QueryError
from sfumato.synthesize import read_codebook

DOMAIN = """sfumato: 1
unit: row
attributes:
  age: {type: integer, minimum: 0, maximum: 99, unknown: clamp, nullable: true}
  married: {type: categorical, values: [never, yes], unknown: category}
  town: {type: categorical, values: [T0, T1, T2, T3], unknown: category}
"""
RHO = ("--rho", "0.5", "--out", "out.parquet")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    random = np.random.default_rng(3)
    age = random.integers(0, 100, 2000)
    people = pa.table(
        {
            "age": age,
            "married": np.where((age >= 18) & (random.random(2000) < 0.6), "yes", "never"),
            "town": random.choice(["T0", "T1", "T2", "T3"], 2000),
        }
    )
    csv.write_csv(people, tmp_path / "people.csv")
    (tmp_path / "people.yaml").write_text(DOMAIN)
    return tmp_path


def release(workspace: Path, *more: str, code: int = 0) -> Done:
    return sfumato("synthesize", "people.csv", "--domain", "people.yaml", *more, cwd=workspace, code=code)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--method", "mst", "--marginals", "age,town"], "--method mst takes no --marginals"),
        (["--method", "mst", "--way", "3"], "--method mst takes no --way"),
        (["--method", "mst", "--rounds", "3", "--way", "2"], "takes no --way and no --rounds"),
        (["--method", "marginals", "--way", "2", "--marginals", "age"], "takes no --way"),
        (["--method", "histogram", "--way", "2"], "takes no --way"),
        (["--method", "batched", "--rounds", "3"], "--rounds is for mwem"),
        (["--method", "histogram", "--zeros", "people.yaml"], "--zeros is for auto, batched, mst, aim"),
        (["--method", "mst", "--no-reuse"], "--no-reuse is for auto, batched"),
        (["--bound-pairs"], "--method auto takes no --bound-pairs. --bound-pairs is for batched"),
        (["--method", "aim", "--marginals", "age,town@4"], "takes no weights of marginals: only batched does"),
        (["--marginals", "age,town@0"], "The weight of a marginal is a number from 0.001"),
        (["--marginals", "age@x"], "The weight of a marginal is a positive number such as 4 or 0.5, not 'x'"),
        (["--marginals", "age,town@-1"], "The weight of a marginal is a positive number"),
        (["--method", "mwem", "--marginals", "married", "--rounds", "9"], "Take --rounds 3"),
        (["--method", "batched", "--zeros", "people.csv"], "does not read as structural zeros"),
        (["--method", "batched", "--zeros", "zeors.yaml"], "There is no file zeors.yaml"),
        (["--method", "marginals", "--marginals", "town,town"], "different attributes"),
    ],
)
def test_options_that_a_method_would_ignore_are_refused_before_the_charge(arguments, says, workspace: Path) -> None:
    before = {path.name for path in workspace.iterdir()}
    assert says in release(workspace, *RHO, *arguments, code=2).stderr
    assert {path.name for path in workspace.iterdir()} == before


def test_named_marginals_are_weighed_beside_all_pairs(workspace: Path) -> None:
    named = ("--method", "batched", "--way", "2", "--marginals", "age, town@4", "--model", "model")
    assert release(workspace, *RHO, *named).stdout.startswith("Method: batched\n")
    made = sf.synthesize.load(workspace / "model")
    assert ("age", "town") in {table.attributes for table in made.model.measured}
    asked = SynthesizeRequest(method="batched", loss={"rho": "1"}, way=2, marginals=[["age", "town"]], weights=["4"])
    assert asked.workload(made.model.domain) == sf.synthesize.all_marginals(2, named={("age", "town"): 4})


def test_bounds_of_pairs_are_said_where_they_were_asked_for(workspace: Path) -> None:
    few = ("--rho", "0.5", "--method", "batched", "--way", "1")
    told = release(workspace, *few, "--out", "a.parquet", "--ledger", "a.ledger").stdout
    assert "pairs are modeled: their error is not known" in told
    more = ("--bound-pairs", "--html", "b.html", "--model", "b.model")
    told = release(workspace, *few, *more, "--out", "b.parquet", "--ledger", "b.ledger").stdout
    assert "pairs are modeled: at most" in told
    assert ": estimated; at most" in (workspace / "b.html").read_text(encoding="utf-8")
    sfumato("sample", "b.model", "--out", "c.parquet", "--copies", "2", cwd=workspace)
    books = [read_codebook(workspace / name) for name in ("b.parquet", "c-1.parquet", "c-2.parquet")]
    assert len({(book.journal_entry, book.guarantee.text, book.domain, book.measured) for book in books}) == 1
    assert books[0].journal_entry == 2


def test_auto_says_which_method_it_took_and_why(workspace: Path) -> None:
    told = release(workspace, *RHO).stdout
    assert told.startswith("Method: ")
    method = told.split()[1]
    assert f"among:\n  {method}: " in told
    for each in ("histogram", "batched", "mst", "aim"):
        assert f"\n  {each}: " in told
    named = release(workspace, "--rho", "0.5", "--method", "mst", "--ledger", "m.ledger", "--out", "m.csv")
    assert named.stdout.startswith("Method: mst\nGuarantee")


def test_auto_takes_no_histogram_of_more_cells_than_noise_leaves_rows(tmp_path: Path) -> None:
    """Twenty-one columns of two values: a histogram has two million cells, and its rows were noise."""
    random = np.random.default_rng(1)
    likely = random.random(32_000)
    columns = {f"c{place}": (random.random(32_000) < 0.1 + 0.4 * likely).astype(int) for place in range(21)}
    pq.write_table(pa.table(columns), tmp_path / "people.parquet")
    values = "".join(f"  {name}: {{type: categorical, values: [0, 1], unknown: drop}}\n" for name in columns)
    (tmp_path / "people.yaml").write_text(f"sfumato: 1\nunit: row\nattributes:\n{values}")
    arguments = ("people.parquet", "--domain", "people.yaml", "--epsilon", "1", "--way", "3", "--out", "out.parquet")
    told = sfumato("synthesize", *arguments, cwd=tmp_path).stdout
    assert told.startswith("Method: batched\n")
    assert "\n  histogram: noise hides a table of fewer than " in told
    assert "; taken because " in told.partition("histogram")[0]
    released = pq.read_table(tmp_path / "out.parquet")
    off = [abs(released[name].to_numpy().mean() - rows.mean()) for name, rows in columns.items()]
    assert max(off) < 0.1  # of the rows; the histogram was off by a fifth and more


def test_mwem_measures_what_queries_there_are_and_matrix_can_be_named(workspace: Path) -> None:
    few = ("--marginals", "town", "--marginals", "married")
    assert release(workspace, "--epsilon", "1", "--out", "a.csv", "--method", "mwem", *few).returncode == 0
    few = ("--marginals", "town", "--ledger", "b.ledger")
    told = release(workspace, "--epsilon", "1", "--out", "b.csv", "--method", "matrix", *few).stdout
    assert told.startswith("Method: matrix")


@pytest.mark.parametrize("method", ["batched", "mst", "aim", "auto"])
def test_impossible_combinations_are_in_no_row(method: str, workspace: Path) -> None:
    children = ", ".join(str(age) for age in range(18))
    (workspace / "zeros.yaml").write_text(f"- {{attributes: [age, married], impossible: [[[{children}], yes]]}}\n")
    noisy = ("--rho", "0.002", "--out", "out.parquet", "--method", method)
    release(workspace, *noisy, "--zeros", "zeros.yaml", "--rows", "5000")
    rows = pq.read_table(workspace / "out.parquet").to_pandas()
    assert not ((rows["age"] < 18) & (rows["married"] == "yes")).any()
    release(workspace, *noisy, "--rows", "5000", "--overwrite", code=3)  # another question


def test_a_table_of_one_column_is_released_without_a_word_on_pairs() -> None:
    only = Domain((Integer(name="n", minimum=0, maximum=9, unknown=Unknown.CLAMP),))
    asked = SynthesizeRequest(method="auto", loss={"epsilon": "1"})
    assert asked.workload(only).marginal_attributes(only) == (("n",),)
    with pytest.raises(QueryError, match="marginals of 2 attributes are more than a domain of 1 has"):
        asked.model_copy(update={"way": 2}).workload(only).marginal_attributes(only)


def test_a_release_of_no_rows_says_that_noise_made_it_so(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("a\n1\n")
    (tmp_path / "one.yaml").write_text(
        "sfumato: 1\nunit: row\nattributes:\n  a: {type: integer, minimum: 0, maximum: 1, unknown: clamp}\n"
    )
    said = ""
    for attempt in range(60):  # half of them have noise below minus one
        ledger = ("--ledger", f"{attempt}.ledger", "--out", f"{attempt}.csv")
        done = sfumato(
            *("synthesize", "one.csv", "--domain", "one.yaml", "--epsilon", "0.1", "--method", "histogram", *ledger),
            cwd=tmp_path,
        )
        if "Wrote 0 rows" in done.stderr:
            said = done.stderr
            break
    assert "the noise at this loss is larger than the table" in said
    assert "No row fits" not in said


def test_a_table_without_rows_is_released_like_one_of_a_row(workspace: Path) -> None:
    """A neighbor of the table of one person has none: no refusal, code or line before the noise tells them apart."""
    for name, rows in (("none", ""), ("one", "40,yes,T1\n")):
        (workspace / name).mkdir()
        (workspace / name / "people.csv").write_text("age,married,town\n" + rows)
        (workspace / name / "people.yaml").write_text(DOMAIN)
    asked = [
        ("query", "people.csv", "SELECT town, AVG(age) FROM people GROUP BY town", "--limit", "9", "--create"),
        ("query", "people.csv", "SELECT MEDIAN(age), COUNT(DISTINCT town) FROM people"),
        *(("synthesize", "people.csv", "--method", each, "--out", f"{each}.csv") for each in ("batched", "aim", "mst")),
    ]
    for command in asked:
        said = [sfumato(*command, "--epsilon", "1", cwd=workspace / name).stderr for name in ("none", "one")]
        before_noise = {re.split("Answering|Making the release", each)[0] for each in said}
        assert len(before_noise) == 1


def test_the_codebook_counts_the_rows_that_were_written(workspace: Path) -> None:
    from sfumato.synthesize.synthetic import load

    release(workspace, *RHO, "--html", "page.html", "--model", "model")
    rows = pq.read_table(workspace / "out.parquet").to_pandas()
    book = load(workspace / "model").codebook
    assert [column.name for column in book.columns] == ["age", "married", "town"]
    for column in book.columns:
        written = rows[column.name].value_counts(dropna=False)
        assert sum(value.rows for value in column.values) == len(rows)
        for value in column.values:
            if value.label not in ("(missing)", "(other)"):
                found = int(value.label) if column.name == "age" else value.label
                assert value.rows == written.get(found, 0), (column.name, found)
    page = (workspace / "page.html").read_text()
    assert "no row is a person" in page
    assert all(f"Values of {column.name}" in page for column in book.columns)


def test_a_codebook_groups_many_cells_and_leaves_out_no_attribute() -> None:
    from sfumato.domain import Categorical, Domain, Integer, Unknown
    from sfumato.engine.arrays import ArrayTable
    from sfumato.privacy.loss import Rho
    from sfumato.synthesize import PublicTotal, mst
    from sfumato.vault.simulated import SimulatedVault

    random = np.random.default_rng(1)
    many = Categorical(name="many", values=tuple(f"v{code}" for code in range(650)), unknown=Unknown.DROP)
    fine = Integer(name="fine", minimum=0, maximum=999, unknown=Unknown.CLAMP, nullable=True)
    small = [Categorical(name=f"s{number}", values=("x", "y"), unknown=Unknown.DROP) for number in range(14)]
    domain = Domain((many, fine, *small))
    codes = np.stack([random.integers(0, size, 3000) for size in domain.shape], axis=1)
    release = mst(SimulatedVault(ArrayTable(domain, codes), seed=1), loss=Rho(1), total=PublicTotal(3000))
    columns = {column.name: column for column in release.codebook.columns}
    assert list(columns) == list(domain.names)
    for column in columns.values():
        assert len(column.values) <= 500
        assert sum(value.rows for value in column.values) == 3000
        assert sum(value.values for value in column.values) == column.size
    assert columns["fine"].values[0].label == "0..2"
    assert columns["fine"].values[-1].label == "(missing)"
    assert "others" in columns["many"].values[-1].label


def test_a_file_describes_itself_and_anything_else_is_refused_in_a_sentence(workspace: Path) -> None:
    told = json.loads(release(workspace, *RHO, "--json").stdout)
    assert told["codebook"]["guarantee"]["loss"] == {"rho": "0.5"}
    assert told["codebook"]["guarantee"]["neighbours"] == "adding or removing one row"
    beside = (workspace / "out.codebook.md").read_text()
    assert beside.startswith("# Codebook of a synthetic table")
    described = sfumato("describe", "out.parquet", "--markdown", "again.md", "--html", "again.html", cwd=workspace)
    assert "synthetic" in described.stdout.splitlines()[0]
    for said in ("rho = 0.5", "Good for:", "Not good for:", "modeled", "single value off by"):
        assert said in described.stdout
    assert (workspace / "again.md").read_text() == beside
    assert json.loads(sfumato("describe", "out.parquet", "--json", cwd=workspace).stdout) == told["codebook"]
    assert "Stated by the file alone" in described.stderr
    for page in (beside, (workspace / "again.html").read_text()):
        assert "2, which confirms this page" in page
    assert b"synthetic" in pq.read_schema(workspace / "out.parquet").metadata[b"sfumato.notice"]

    release(workspace, *RHO[:2], "--out", "c.csv", "--json")
    assert "Read c.codebook.md beside it" in sfumato("describe", "c.csv", cwd=workspace, code=2).stderr
    pq.write_table(pa.table({"a": [1]}), workspace / "plain.parquet")
    assert "carries no codebook" in sfumato("describe", "plain.parquet", cwd=workspace, code=2).stderr
    assert "no such file" in sfumato("describe", "absent.parquet", cwd=workspace, code=2).stderr
    (workspace / "text.parquet").write_text("no")
    assert "no Parquet file" in sfumato("describe", "text.parquet", cwd=workspace, code=2).stderr
    assert "no Parquet or Arrow file" in sfumato("describe", "people.yaml", cwd=workspace, code=2).stderr


def test_an_existing_codebook_file_is_refused_before_the_charge(workspace: Path) -> None:
    (workspace / "out.codebook.md").write_text("mine")
    assert "out.codebook.md exists" in release(workspace, *RHO, code=2).stderr
    assert not (workspace / "people.ledger").exists()
    assert (workspace / "out.codebook.md").read_text() == "mine"


def test_samples_say_what_is_wrong_and_why_there_are_none(workspace: Path) -> None:
    release(workspace, *RHO, "--method", "mst", "--model", "model")

    def sample(*more: str, code: int = 0) -> Done:
        return sfumato("sample", "model", "--out", "s.csv", "--overwrite", *more, cwd=workspace, code=code)

    assert "Ask for fewer rows" in sample("--rows", "99999999999", code=2).stderr
    assert "It has 101: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ..., (missing)" in sample("--given", "age=200", code=2).stderr
    rare = ("--given", "age=(missing)", "--given", "town=(other)", "--given", "married=(other)")
    none = sample(*rare)
    assert "Wrote 0 rows" in none.stderr
    assert "expects less than one such row" in none.stderr
    assert "Wrote 5 rows" in sample(*rare, "--rows", "5").stderr
    listed = sfumato("domain", "show", "people.yaml", "--cells", "town", cwd=workspace).stdout
    assert listed.splitlines() == ["T0", "T1", "T2", "T3", "(other)"]
    content = bytearray((workspace / "model").read_bytes())
    content[len(content) // 2] ^= 4
    (workspace / "model").write_bytes(content)
    assert "damaged" in sample("--rows", "5", code=2).stderr


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Programs that are started get SIGINT, even if the tests run in the background, where shells switch it off."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_release_says_that_its_charge_stays(workspace: Path) -> None:
    sfumato("data", "census", cwd=workspace)  # large enough to take seconds
    script = Path(sys.executable).parent / "sfumato"
    terms = ("--create", "--limit", "rho=5", "--rho", "5", "--out", "out.csv", "--method", "aim", "--way", "3")
    with subprocess.Popen(
        [script, "synthesize", "census.parquet", "--domain", "census.yaml", *terms],
        cwd=workspace,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stderr is not None
        while "Making the release" not in running.stderr.readline():
            assert running.poll() is None
        running.send_signal(signal.SIGINT)
        said = running.stderr.read()
    assert running.returncode == 130
    assert "sfumato: Interrupted. What was charged before stays charged" in said
    assert not (workspace / "out.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--epsilon", "1", "--rho", "1", "--out", "out.csv"],
            "Epsilon and rho both state the privacy loss. Give one of them.",
        ),
        (["--delta", "1e-9", "--out", "out.csv"], "Give epsilon with it"),
        (["--epsilon", "1", "--out", "people.csv"], "overwrite it (--overwrite"),
    ],
)
def test_a_refusal_names_the_option_that_mends_it(arguments, says, workspace: Path) -> None:
    assert says in release(workspace, *arguments, code=2).stderr


@pytest.mark.parametrize(("command", "more"), [("evaluate", ["--out", "page.html"]), ("attack", [])])
def test_a_file_without_a_guarantee_is_judged_by_a_claim_only(command: str, more: list[str], workspace: Path) -> None:
    for name in ("out.csv", "h.csv"):
        (workspace / name).write_bytes((workspace / "people.csv").read_bytes())
    terms = ("people.csv", "out.csv", "--domain", "people.yaml", "--holdout", "h.csv", *more)
    assert "out.csv states no guarantee: give --claim" in sfumato(command, *terms, cwd=workspace, code=2).stderr


def test_the_census_comes_with_its_domain_and_its_promise(tmp_path: Path) -> None:
    printed = json.loads(sfumato("data", "census", cwd=tmp_path).stdout)
    assert {path.name for path in tmp_path.iterdir()} == {"census.parquet", "census.yaml", "census.json"}
    assert json.loads((tmp_path / "census.json").read_text()) == printed
    assert "epsilon = 4" in printed["guarantee"]
    assert printed["rows"] == pq.read_table(tmp_path / "census.parquet").num_rows
    assert "--overwrite" in sfumato("data", "census", cwd=tmp_path, code=2).stderr


SMALL = ("--method", "marginals", "--marginals", "town")


def kept_spent(workspace: Path) -> str:
    return sfumato("ledger", "show", "people.ledger", cwd=workspace).stdout


def test_a_pure_ledger_says_that_it_takes_no_delta_before_any_work(workspace: Path) -> None:
    begun = release(workspace, "--epsilon", "0.1", *SMALL, "--out", "a.csv", "--limit", "1")
    assert "it will never take --delta or --rho. One with --limit 1,1e-9 takes pure epsilon as well." in begun.stderr
    before = kept_spent(workspace)
    for loss in (("--epsilon", "0.1", "--delta", "1e-9"), ("--rho", "0.01")):
        refused = release(workspace, *loss, "--out", "b.csv", code=2)
        assert "can never take a delta or a rho. Leave them out" in refused.stderr
        assert "--limit 1,1e-9" in refused.stderr
        assert "Reading" not in refused.stderr
    assert kept_spent(workspace) == before


def test_a_value_that_is_no_choice_is_refused_with_the_choices_alone(workspace: Path) -> None:
    asked = ("anonymize", "people.csv", "--quasi", "age", "--k", "2", "--out", "out.csv")
    for option in ("--method", "--missing"):
        refused = sfumato(*asked, option, "best", cwd=workspace, code=2)
        assert f"Invalid value for '{option}': 'best' is not one of " in refused.stderr


OTHERS = [
    ("query", "people.csv", "SELECT COUNT(*) FROM people"),
    ("bound", "people.csv", "--cells", "4"),
    ("regress", "people.csv", "age", "--by", "income"),
]


@pytest.mark.parametrize("asked", OTHERS, ids=[asked[0] for asked in OTHERS])
def test_other_commands_refuse_before_any_work_too(workspace: Path, asked: tuple[str, ...]) -> None:
    told = sfumato("ledger", "create", "pure.ledger", "--limit", "1", cwd=workspace).stderr
    assert "it will never take --delta or --rho. One with --limit 1,1e-9 takes pure epsilon as well." in told
    told = sfumato("ledger", "create", "both.ledger", "--limit", "1,1e-9", cwd=workspace).stderr
    assert "never" not in told
    asked = (*asked, "--domain", "people.yaml")
    never = sfumato(*asked, "--ledger", "pure.ledger", "--epsilon", "0.1", "--delta", "1e-9", cwd=workspace, code=2)
    assert "can never take a delta or a rho. Leave them out" in never.stderr
    much = sfumato(*asked, "--ledger", "both.ledger", "--epsilon", "1", cwd=workspace, code=3)
    assert "Add --delta 1e-9, then epsilon = 1 needs 100 % of the budget." in much.stderr
    assert "Reading" not in never.stderr + much.stderr


def test_a_refusal_of_a_pure_epsilon_names_delta_and_both_rhos_before_any_work(workspace: Path) -> None:
    release(workspace, "--epsilon", "0.1", "--delta", "1e-9", *SMALL, "--out", "a.csv", "--limit", "1,1e-9")
    before = kept_spent(workspace)
    refused = release(workspace, "--epsilon", "1", "--out", "b.csv", code=3)
    assert "Add --delta 1e-9, then epsilon = 1 needs 100 % of the budget." in refused.stderr
    told = release(workspace, "--epsilon", "1", "--out", "b.csv", "--verbose", code=3).stderr
    assert "Epsilon = 1 without a delta counts as rho = 0.5. With --delta 1e-9 it asks for rho = 0.01496" in told
    assert "Reading" not in refused.stderr
    assert kept_spent(workspace) == before
    taken = release(workspace, "--epsilon", "0.15", *SMALL, "--out", "c.csv")  # fits, at thirty times the rho
    assert "Before it is charged: add --delta 1e-9, then epsilon = 0.15 needs 3 % of the budget" in taken.stderr
    again = release(workspace, "--epsilon", "0.15", *SMALL, "--out", "d.csv")  # what was charged is free, and is told
    assert "nothing" in again.stdout
    full = release(workspace, "--epsilon", "0.16", *SMALL, "--out", "e.csv", code=3)  # more than is left of the limit
    assert "Add --delta 1e-9, then epsilon = 0.16 needs 3 % of the budget" in full.stderr


def test_what_a_delta_would_give_is_said_before_a_pure_charge_on_many_columns(workspace: Path) -> None:
    many = "".join(f"  c{place}: {{type: categorical, values: [0, 1], unknown: drop}}\n" for place in range(12))
    (workspace / "many.yaml").write_text(f"sfumato: 1\nunit: row\nattributes:\n{many}")
    rows = np.random.default_rng(1).integers(0, 2, (500, 12))
    pq.write_table(pa.table({f"c{place}": rows[:, place] for place in range(12)}), workspace / "many.parquet")
    asked = ("synthesize", "many.parquet", "--domain", "many.yaml", "--epsilon", "1")
    told = sfumato(*asked, "--out", "a.csv", "--limit", "9,1e-9", cwd=workspace).stderr
    said = "Before it is charged: epsilon = 1 without a delta (rho = 0.5) leaves noise of about "
    assert said in told
    assert told.index(said) < told.index("Making the release")
    told = sfumato(*asked, "--delta", "1e-9", "--out", "b.csv", cwd=workspace).stderr
    assert "without a delta" not in told


def test_a_refusal_in_python_names_delta_as_well(workspace: Path) -> None:
    table, domain = workspace / "people.csv", workspace / "people.yaml"
    vault = sf.open(table, domain=domain, limit=sf.EpsilonDelta(1, "1e-9"), create=True)
    asked = {"total": sf.synthesize.NoisyTotal(), "workload": sf.synthesize.all_marginals(2)}
    with pytest.raises(BudgetError, match=r"with a delta of 1e-09 it asks for rho = 0\.01496"):
        sf.synthesize.batched(vault, loss=sf.Epsilon(1), **asked)
    assert vault.remaining.spent.rho == 0
    pure = sf.open(table, domain=domain, ledger=f"sqlite:///{workspace}/p.ledger", limit=sf.Epsilon(1), create=True)
    with pytest.raises(LossError, match=r"can never take a delta or a rho; .* with the limit 1,1e-9"):
        sf.synthesize.batched(pure, loss=sf.EpsilonDelta("0.1", "1e-9"), **asked)


def test_names_are_separated_by_commas_outside_of_quotes():
    assert split_names('age, "Name, full",zip') == ["age", "Name, full", "zip"]
    assert split_names('a"b, c d ,') == ['a"b', "c d", ""]
    assert split_names("") == [""]
    assert split_names("a\nb,c") == ["a\nb", "c"]
