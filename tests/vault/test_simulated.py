"""No real vault takes a seed, and what a simulated one returns says so wherever it is read."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import sfumato as sf
from sfumato import query
from sfumato.app.cli.main import app
from sfumato.domain import Domain, Integer, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.ledger import open_ledger
from sfumato.ledger.dataset_terms import UNDECLARED
from sfumato.privacy.entropy import SIMULATED, SimulatedEntropy
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho
from sfumato.report.release_page import release_page
from sfumato.synthesize import NoisyTotal, all_marginals, auto, histogram, load, mst, read_codebook, save
from sfumato.vault.schema_vault import SchemaVault, open_schema
from sfumato.vault.simulated import SimulatedVault
from sfumato.vault.vault import Vault
from sfumato.vault.vault_opening import open_vault, open_vault_later

SOURCE = Path(sf.__file__).parent
NAMES = ("age", "size")
DOMAIN = Domain([Integer(name=name, minimum=0, maximum=3, unknown=Unknown.CLAMP) for name in NAMES])
CODES = np.random.default_rng(1).integers(0, 4, (500, 2))

# Functions with a parameter of these names: mechanisms and their samplers, and functions whose results are no release
# (an evaluation of a release, rows of a public model, a declared simulation).
SEEDED = {"seed", "entropy", "noise_source", "random_state"}
ALLOWED = ("privacy/", "local/randomizers/", "local/specs/", "evaluate/", "app/cli/judge/")
ALLOWED_PARTS = {
    "anonymize/clustering/k_member_clustering.py": {"_grow", "_best_join", "_join"},  # a row that a cluster starts at
    "local/protocol/device.py": {"randomize", "simulate", "_drawn"},  # whose reports say that they are simulated
    "model/row_sampling.py": {"generator", "seeded"},  # rows of public models
    "synthesize/linked/linked_release.py": {"LinkedRelease"},  # made of a released payload
    "synthesize/synthetic.py": {"Synthetic"},  # made of a released payload
    "vault/mechanisms.py": {"__init__"},  # TableMechanisms and PreparedQueries, which journal nothing
    "vault/scores.py": {"choose"},
    "vault/simulated.py": {"__init__"},
}


def seeded_places() -> set[tuple[str, str]]:
    """Return each function that takes a seed and each class with such a public field, by file."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        place = path.relative_to(SOURCE).as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                names = {argument.arg for argument in arguments}
                kinds = {ast.unparse(argument.annotation) for argument in arguments if argument.annotation}
            elif isinstance(node, ast.ClassDef):
                fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
                names = {ast.unparse(part.target) for part in fields}
                kinds = {ast.unparse(part.annotation) for part in fields}
            else:
                continue
            if names & SEEDED or any("Entropy" in kind for kind in kinds):
                found.add((place, node.name))
    return found


def test_nothing_that_releases_takes_a_seed() -> None:
    odd = {
        (place, name)
        for place, name in seeded_places()
        if not place.startswith(ALLOWED) and name not in ALLOWED_PARTS.get(place, ())
    }
    assert odd == set()


@pytest.mark.parametrize("make", [Vault, SchemaVault, open_vault, open_vault_later, open_schema, sf.open])
def test_no_real_vault_is_made_with_a_seed(make) -> None:
    assert not {*inspect.signature(make).parameters} & SEEDED


def test_the_words_of_a_real_vault_cannot_be_replaced(tmp_path: Path) -> None:
    table = pa.table({name: CODES[:, place] for place, name in enumerate(NAMES)})
    with open_ledger(f"sqlite:///{tmp_path}/a.ledger", dataset="a", limit=Epsilon(1), create=True) as ledger:
        vault = Vault(sf.open_table(table).encode(DOMAIN), ledger, UNDECLARED)
        with pytest.raises(TypeError):
            replace(vault, entropy=SimulatedEntropy(7))
        with pytest.raises(TypeError):
            Vault(vault.encoded, ledger, UNDECLARED, entropy=SimulatedEntropy(7))


def simulated(seed: int = 1) -> SimulatedVault:
    return SimulatedVault(
        ArrayTable(DOMAIN, CODES, values=dict(zip(NAMES, CODES.T.astype(float), strict=True))), seed=seed
    )


RELEASES = {
    "ask": lambda vault: query.ask(vault, query.count(), loss=Epsilon(1)),
    "mean": lambda vault: query.ask(vault, query.mean("age"), loss=Rho(1)),
    "session": lambda vault: query.Session(vault, budget=Epsilon(1), queries=2).ask(query.count()),
    "adaptive": lambda vault: query.Adaptive(vault, budget=Epsilon(1)).ask(query.count(), loss=Epsilon(1)),
    "batch": lambda vault: query.answer_batch(vault, all_marginals(1), loss=Epsilon(1)),
    "regression": lambda vault: query.linear_regression(vault, "age", ["size"], loss=Epsilon(9)),
    "histogram": lambda vault: histogram(vault, loss=Epsilon(1), total=NoisyTotal()),
    "mst": lambda vault: mst(vault, loss=Rho(1), total=NoisyTotal()),
    "auto": lambda vault: auto(vault, loss=EpsilonDelta(1, "1e-6"), total=NoisyTotal(), workload=all_marginals(2)),
}


@pytest.mark.parametrize("name", RELEASES)
def test_every_statement_of_a_simulated_release_begins_with_simulated(name: str) -> None:
    release = RELEASES[name](simulated())
    assert release.guarantee.startswith(f"{SIMULATED}: ")
    assert release.statement()["guarantee"] == release.guarantee
    assert SIMULATED in repr(release)
    shown = re.sub("<[^>]*>", " ", release.to_html())
    assert re.search(rf"Guarantee\s+{re.escape(SIMULATED)}", shown)
    assert release.cost == "nothing: simulated"


def test_files_and_pages_of_a_simulated_release_say_so(tmp_path: Path) -> None:
    release = mst(simulated(), loss=Rho(1), total=NoisyTotal())
    save(release, tmp_path / "model")
    assert load(tmp_path / "model").guarantee == release.guarantee
    release.rows.to_parquet(tmp_path / "rows.parquet")
    book = read_codebook(tmp_path / "rows.parquet")
    assert book.guarantee.text == release.guarantee
    assert book.guarantee.loss == {}, "no loss is stated that an evaluation would judge the file by"
    assert SIMULATED in book.to_markdown()
    page = release_page("rows", book)
    assert page.terms["Guarantee"].startswith(SIMULATED)
    assert f"{SIMULATED}: show this page only" in page.lead
    drawn = CliRunner().invoke(app, ["sample", str(tmp_path / "model"), "--out", str(tmp_path / "more.csv")])
    assert f"Guarantee: {SIMULATED}" in drawn.output


def test_a_simulated_vault_repeats_its_answers_where_it_is_asked_to() -> None:
    again = SimulatedVault(ArrayTable(DOMAIN, CODES), seed=1, repeats=True)
    anew = SimulatedVault(ArrayTable(DOMAIN, CODES), seed=1)
    for vault, answers in ((again, 1), (anew, 3)):
        found = {query.ask(vault, query.count(), loss=Epsilon("0.01")).value.estimate for _ in range(3)}
        assert (len(found), len(vault.reserved)) == (answers, answers)
    assert query.ask(again, query.count(), loss=Epsilon("0.02")).value.estimate not in found
