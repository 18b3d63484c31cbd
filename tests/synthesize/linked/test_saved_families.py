"""A release of linked tables in a file: the same tables again, others at no cost, and nothing of any other file."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.families import VILLAGE, Families, related, some_families

from sfumato.domain import Categorical, Domain, Unknown
from sfumato.domain.linked_domain import ChildTable
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import InputError
from sfumato.privacy.loss import Rho
from sfumato.synthesize import LinkedRelease, NoisyTotal, histogram, load_linked, save, save_linked
from sfumato.synthesize.linked import ModelSizes, is_of_linked_tables
from sfumato.synthesize.linked.linked_synthesis import release_units
from sfumato.vault.interface import decode, encode
from sfumato.vault.simulated import SimulatedVault


def made(tables=None) -> LinkedRelease:
    tables = tables or related(3)
    vault = SimulatedVault(Families(some_families(400, 3), tables), seed=1)
    settings = ModelSizes(head_cells=10_000, tail_cells=10_000, calibration=2)
    return release_units(vault, tables, loss=Rho(1), total=NoisyTotal(), settings=settings)


@pytest.mark.parametrize(
    "tables",
    [related(3), related(4, falling=False, memory=2), related(1), related(3, order=None, falling=False)],
    ids=["falling", "two before", "one child", "no order"],
)
def test_a_saved_release_is_the_same_release(tmp_path: Path, tables) -> None:
    release = made(tables)
    save_linked(release, tmp_path / "model")
    again = load_linked(tmp_path / "model")
    assert isinstance(again, LinkedRelease)
    assert not type(again).__name__.startswith("_")  # its summary begins with the name
    assert again.linked == tables
    assert again.tables == release.tables
    assert again.codebook == release.codebook
    assert again.statement() == release.statement()
    assert again.measured == release.measured
    with pytest.raises(InputError, match="exists"):
        save_linked(release, tmp_path / "model")


def test_the_end_of_a_family_is_kept(tmp_path: Path) -> None:
    child = ChildTable(table=VILLAGE["persons"], order="age", most=3, final=("work", "yes"))
    tables = replace(related(3), children=(child,))
    save_linked(made(tables), tmp_path / "model")
    assert load_linked(tmp_path / "model").linked == tables


def test_other_rows_of_the_same_models_cost_nothing(monkeypatch) -> None:
    release = made()

    def closed(*_: object) -> None:
        raise AssertionError("the protected tables are not read again")

    for name in ("marginals", "derived", "batches"):
        monkeypatch.setattr(ArrayTable, name, closed)
    one, other = release.redrawn(), release.redrawn()
    assert one.tables != other.tables
    assert (one.guarantee, one.measured) == (release.guarantee, release.measured)
    assert one.cost.startswith("nothing")
    assert one.tables["houses"].num_rows == release.tables["houses"].num_rows


def test_what_is_no_such_file_is_refused_in_one_sentence(tmp_path: Path) -> None:
    release = made()
    save_linked(release, tmp_path / "model")
    content = (tmp_path / "model").read_bytes()
    stored = decode(content[32:])

    def written(name: str, **changed: object) -> Path:
        kept = {**stored, "release": {**stored["release"], **changed}}
        bytes_of = encode(kept)
        (tmp_path / name).write_bytes(hashlib.sha256(bytes_of).digest() + bytes_of)
        return tmp_path / name

    (tmp_path / "cut").write_bytes(content[:-5])
    (tmp_path / "turned").write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])
    domain = Domain([Categorical(name="a", values=("x", "y"), unknown=Unknown.DROP)])
    rows = ArrayTable(domain, np.zeros((9, 1), dtype=np.int64))
    flat = histogram(SimulatedVault(rows, seed=0), loss=Rho(1), total=NoisyTotal())
    save(flat, tmp_path / "flat")
    statement = stored["release"]["statement"]
    for path in (
        tmp_path / "nothing",
        tmp_path / "cut",
        tmp_path / "turned",
        tmp_path / "flat",
        written("seed", seed="7"),
        written("kind", kind="other"),
        written("schema", schema="sfumato: 2"),
        written("statement", statement={}),
        written("an error", statement={**statement, "expected_error": {"a": "1"}}),
        written("loss", loss={"epsilon": 1.0}),
        written("settings", settings={"head_cells": -1}),
        written("rounds", settings={"calibration": 10**30}),
        written("most", children=[{**stored["release"]["children"][0], "most": 900}]),
    ):
        with pytest.raises(InputError, match="cannot read a saved release of linked tables"):
            load_linked(path)
    assert is_of_linked_tables(tmp_path / "model")
    assert not is_of_linked_tables(tmp_path / "flat")
    assert not is_of_linked_tables(tmp_path / "nothing")


MADE_UP = [
    {"tail 0 measured": [[["persons.place", "nobody"], 1.0]]},
    {"tail 0 measured": [[["persons.place", "persons.place"], 1.0]]},
    {"tail 0 measured": [[["persons.place"], -1.0]]},
    {"head measured": [[["houses.rooms"], "1"]]},
    {"tail 0 weights 0": None},
    {"head weights 0": np.full(3, np.nan)},
    {"tail 0 potential 0": np.array(np.inf)},
    {"tail 0 potential 0": np.full(99, np.nan)},
    {"tail 0 cliques": []},
    {"tail 0 noisy tables": {}},
    {"head total": -1.0},
    {"notes": 7},
    {"notes": [7]},
]


def test_forged_models_are_refused_or_can_be_drawn(tmp_path: Path) -> None:
    save_linked(made(), tmp_path / "model")
    stored = decode((tmp_path / "model").read_bytes()[32:])
    for changed in MADE_UP:
        assert changed.keys() <= stored.keys()
        bytes_of = encode({**stored, **changed})
        (tmp_path / "other").write_bytes(hashlib.sha256(bytes_of).digest() + bytes_of)
        with contextlib.suppress(InputError):
            assert load_linked(tmp_path / "other").redrawn().tables.keys() == {"houses", "persons"}


def test_a_model_of_which_nothing_can_be_drawn_is_damaged(tmp_path: Path, monkeypatch) -> None:
    save_linked(made(), tmp_path / "model")
    release = load_linked(tmp_path / "model").redrawn()

    def broken(*_: object, **__: object) -> None:
        raise KeyError("what nobody foresaw")

    monkeypatch.setattr("sfumato.synthesize.linked.linked_release.drawn_children", broken)
    with pytest.raises(InputError, match="damaged"):
        release.write(tmp_path / "drawn")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
