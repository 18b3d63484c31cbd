"""A release in an old ledger is repeated by its own method under the new name, and never by another method."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.domain import Categorical, Domain, Unknown
from sfumato.errors import InputError
from sfumato.ledger.entry import Entry
from sfumato.privacy.loss import Rho
from sfumato.synthesize.auto import method_named
from sfumato.synthesize.methods import AIM, BATCHED
from sfumato.synthesize.synthesis_method import SynthesisMethod, Task, release_planned
from sfumato.synthesize.synthetic import Synthetic
from sfumato.vault.vault import Vault

DOMAIN = Domain(tuple(Categorical(name=name, values=("x", "y"), unknown=Unknown.DROP) for name in "abc"))
TASK = Task(loss=Rho(1), total=sf.synthesize.NoisyTotal(), workload=sf.synthesize.all_marginals(2))


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    table = pa.table({name: ["x", "y"] * 50 for name in "abc"})
    opened = sf.open(table, domain=DOMAIN, ledger=tmp_path / "old.ledger", limit=Rho(5), create=True)
    assert isinstance(opened, Vault)
    return opened


def release_under(name: str, method: SynthesisMethod, vault: Vault) -> Synthetic:
    """Release with a method under the name that it had."""

    def plan(domain: Domain):
        planned = method.plan(domain, TASK)
        old = replace(planned.request, method=name, former_method="", displaced_method="")
        return replace(planned, request=old)

    return release_planned(vault, TASK.loss, TASK.total, plan)


def entries(vault: Vault) -> list[Entry]:
    return [each for each in vault.ledger.journal() if each.kind == "release"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("name", "method"), [("aim", BATCHED), ("annealed", AIM)])
def test_an_old_release_is_repeated_for_nothing(name: str, method: SynthesisMethod, vault: Vault) -> None:
    old = release_under(name, method, vault)
    again = method.release(vault, TASK)
    assert again.cost == "nothing: asked and answered before"
    assert again.rows.table.equals(old.rows.table)
    assert again.method == again.codebook.to_json()["method"].replace(name, f"{method.name} (recorded as {name})")
    assert [each.title for each in entries(vault)] == [f"synthesize {method.name} (recorded as {name})"]


def test_an_old_release_of_batched_is_not_taken_for_one_of_aim(vault: Vault) -> None:
    release_under("aim", BATCHED, vault)
    with pytest.raises(InputError, match=r"under the name 'aim', which the method 'batched' had; name 'batched'"):
        AIM.release(vault, TASK)
    assert len(entries(vault)) == 1
    made = AIM.release(vault, replace(TASK, loss=Rho("1.5")))
    assert made.cost.startswith("rho 1.5")
    assert [each.method for each in entries(vault)] == ["aim", "aim-2022"]


def test_an_analyst_who_did_not_receive_it_is_not_refused(vault: Vault) -> None:
    release_under("aim", BATCHED, vault)
    assert AIM.release(vault.for_analyst("ana"), TASK).cost.startswith("rho 1")


def test_new_releases_have_names_of_their_own(vault: Vault) -> None:
    for method in (BATCHED, AIM):
        method.release(vault, TASK)
        assert method.release(vault, TASK).cost == "nothing: asked and answered before"
    assert [each.title for each in entries(vault)] == ["synthesize batched", "synthesize aim-2022"]


def test_the_former_name_of_aim_is_explained() -> None:
    with pytest.raises(InputError, match=r"'annealed' is called 'aim'"):
        method_named("annealed")
