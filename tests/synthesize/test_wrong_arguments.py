"""Wrong arguments are refused in a sentence, before anything is reserved."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from sfumato import synthesize
from sfumato.domain import Categorical, Domain, Integer, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import InputError, LossError, QueryError, SizeError
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho
from sfumato.synthesize.binning import private_edges
from sfumato.synthesize.marginal_selection import SizeLimits
from sfumato.synthesize.methods.aim import aim
from sfumato.synthesize.methods.histogram import matrix
from sfumato.synthesize.structural_zeros import Zeros
from sfumato.synthesize.synthetic import save
from sfumato.vault.simulated import SimulatedVault
from sfumato.vault.vault_opening import open_vault

NONE = np.zeros((3, 3), dtype=bool)
DOMAIN = Domain(tuple(Categorical(name=name, values=("x", "y", "z"), unknown=Unknown.DROP) for name in "ab"))
MARGINALS = synthesize.all_marginals(2)
RANGES = synthesize.ranges("a", [(0, 1), (1, 2)])
ONCE = synthesize.Schedule(rounds=1, repetitions=1)

METHODS = {
    "batched": lambda vault, **terms: synthesize.batched(vault, workload=MARGINALS, **terms),
    "aim": lambda vault, **terms: aim(vault, workload=MARGINALS, **terms),
    "mst": synthesize.mst,
    "auto": lambda vault, **terms: synthesize.auto(vault, workload=MARGINALS, **terms),
    "histogram": lambda vault, **terms: synthesize.histogram(vault, attributes=("a",), **terms),
    "marginals": lambda vault, **terms: synthesize.marginals(vault, cliques=[("a",), ("b",)], **terms),
    "mwem": lambda vault, **terms: synthesize.mwem(vault, workload=RANGES, schedule=ONCE, **terms),
    "matrix": lambda vault, **terms: matrix(vault, workload=RANGES, **terms),
}


@pytest.fixture
def vault() -> SimulatedVault:
    return SimulatedVault(ArrayTable(DOMAIN, np.arange(60).reshape(30, 2) % 3), seed=1)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_loss_or_a_row_count_of_the_wrong_kind_is_refused_before_the_charge(method, vault) -> None:
    for loss in (0.1, "1", None):
        with pytest.raises(LossError, match="a loss is Epsilon"):
            method(vault, loss=loss, total=synthesize.PublicTotal(30))
    for total in (5, "many", 30.0):
        with pytest.raises(InputError, match="the row count comes from"):
            method(vault, loss=Rho(1), total=total)
    assert not vault.reserved


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize(
    "total", [synthesize.PublicTotal(30), synthesize.BudgetShare(Fraction(1, 2))], ids=["public", "share"]
)
@pytest.mark.parametrize(
    "loss",
    [EpsilonDelta("1e-100", "1e-9"), Epsilon("1e-149"), Epsilon("1e150"), Rho("1e-300"), Rho("1e300")],
    ids=str,
)
def test_a_loss_at_either_end_is_refused_before_the_charge_or_makes_a_table(method, total, loss, vault) -> None:
    try:
        release = method(vault, loss=loss, total=total)
    except LossError as error:
        refusal = str(error)
    else:
        assert release.rows.table.num_rows == 30
        return
    assert "too small" in refusal or "too large" in refusal
    assert not vault.reserved


@pytest.mark.parametrize("method", [METHODS[name] for name in METHODS if name not in {"mwem", "matrix"}])
def test_a_number_of_rows_that_is_all_noise_is_refused_before_the_charge(method, vault) -> None:
    for loss in (EpsilonDelta("1e-100", "1e-9"), Epsilon("1e-12"), Rho("1e-17")):
        with pytest.raises(LossError, match="too small"):
            method(vault, loss=loss, total=synthesize.NoisyTotal())
    assert not vault.reserved


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_an_argument_that_is_no_vault_is_refused_with_a_message(method) -> None:
    for table in ("people.csv", None, DOMAIN):
        with pytest.raises(InputError, match=r"the vault that sf\.open"):
            method(table, loss=Rho(1), total=synthesize.PublicTotal(30))


@pytest.mark.parametrize("loss", [Epsilon("1e-149"), Epsilon("1e-16"), Rho("1e-299"), Rho("1e-40")], ids=str)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_loss_too_small_for_its_noise_is_refused_before_the_charge(method, loss, vault) -> None:
    with pytest.raises(LossError, match="too small"):
        method(vault, loss=loss, total=synthesize.PublicTotal(30))
    with pytest.raises(LossError, match="too small"):
        method(vault, loss=Epsilon(1), total=synthesize.BudgetShare(Fraction(1, 10**16)))
    assert not vault.reserved


@pytest.mark.parametrize("method", [METHODS["batched"], METHODS["aim"], METHODS["mst"]])
def test_a_loss_too_large_to_choose_with_is_refused_before_the_charge(method, vault) -> None:
    with pytest.raises(LossError, match="too large"):
        method(vault, loss=Rho("1e300"), total=synthesize.PublicTotal(30))
    assert not vault.reserved


@pytest.mark.parametrize("method", [synthesize.auto, synthesize.mwem, matrix])
def test_what_is_no_workload_is_refused_before_the_charge(method, vault) -> None:
    schedule = {"schedule": ONCE} if method is synthesize.mwem else {}
    for workload in (2, 2.5, "age", [("a", "b")]):
        with pytest.raises(QueryError, match="a workload is what"):
            method(vault, loss=Rho(1), total=synthesize.PublicTotal(30), workload=workload, **schedule)
    assert not vault.reserved


@pytest.mark.parametrize("method", [METHODS["batched"], METHODS["aim"], METHODS["mst"]])
def test_what_are_no_limits_is_refused_before_the_charge(method, vault) -> None:
    for limits in (5, "many", {"cells": 5}):
        with pytest.raises(InputError, match="limits are given as"):
            method(vault, loss=Rho(1), total=synthesize.PublicTotal(30), limits=limits)
    assert not vault.reserved


def test_names_of_attributes_of_the_wrong_form_are_refused_before_the_charge(vault) -> None:
    for attributes in ("a", 5, [5], [None], {"a"}):
        with pytest.raises(QueryError, match="named in a list"):
            synthesize.histogram(vault, loss=Rho(1), total=synthesize.PublicTotal(30), attributes=attributes)
    for cliques in ("ab", 5, None, [5], ["a"], [["a"], [5]]):
        with pytest.raises(QueryError, match="named in a list"):
            synthesize.marginals(vault, loss=Rho(1), total=synthesize.PublicTotal(30), cliques=cliques)
    assert not vault.reserved


def test_workloads_and_schedules_of_the_wrong_form_are_refused_when_they_are_made(vault) -> None:
    for bounds in (5, "ab", None, [], [1, 2], [(1,)], [(1, "x")], [(0, 1), (2,)], [(0.5, 1.5)], [(0, float("nan"))]):
        with pytest.raises(QueryError, match="bound"):
            synthesize.ranges("a", bounds)
    with pytest.raises(QueryError, match="named in a list"):
        synthesize.ranges(None, [(0, 1)])
    with pytest.raises(QueryError, match="bound"):
        synthesize.rectangles(["a", "b"], [[0, 0]], None)
    for ways in (0, -1, "2", 1.5, None, True):
        with pytest.raises(QueryError, match="from 1"):
            synthesize.all_marginals(ways)
    for rounds in (0, 1.5, "3", None):
        with pytest.raises(InputError, match="whole numbers"):
            synthesize.Schedule(rounds=rounds, repetitions=1)
    with pytest.raises(InputError, match=r"Schedule\(rounds"):
        synthesize.mwem(vault, loss=Rho(1), total=synthesize.PublicTotal(30), workload=RANGES, schedule=5)
    assert not vault.reserved


@pytest.mark.parametrize("method", [synthesize.batched, aim])
def test_a_workload_that_is_no_marginals_is_refused_before_the_charge(method, vault) -> None:
    for workload in (RANGES, 2, None):
        with pytest.raises(QueryError, match="takes a workload of marginals"):
            method(vault, loss=Rho(1), total=synthesize.NoisyTotal(), workload=workload)
    assert not vault.reserved


@pytest.mark.parametrize(
    "zeros",
    [
        Zeros(("a", "b"), NONE),
        None,
        5,
        "ab",
        [None],
        [Zeros(("a", "b"), NONE.tolist())],
        [Zeros("ab", NONE)],
        [Zeros(("a", "b"), NONE[:2])],
        [Zeros(("a", "b"), NONE * 0.3)],
        [Zeros(("a", "a"), NONE)],
        [Zeros(("a", "foo"), NONE)],
    ],
)
def test_zeros_of_the_wrong_form_are_refused_before_the_charge(zeros, vault) -> None:
    with pytest.raises(InputError):
        synthesize.batched(vault, loss=Rho(1), total=synthesize.NoisyTotal(), workload=MARGINALS, zeros=zeros)
    assert not vault.reserved


@pytest.mark.parametrize("method", [METHODS["batched"], METHODS["aim"], METHODS["mst"], METHODS["auto"]])
@pytest.mark.parametrize("size", [1 << 23, 10**12])
def test_an_attribute_of_too_many_cells_is_refused_before_the_charge(method, size) -> None:
    fine = Integer(name="id", minimum=0, maximum=size - 1, unknown=Unknown.CLAMP)
    vault = SimulatedVault(ArrayTable(Domain((fine, *DOMAIN)), np.ones((9, 3), dtype=np.int64)), seed=1)
    with pytest.raises(SizeError, match=r"id has .* cells"):
        method(vault, loss=Rho(1), total=synthesize.NoisyTotal())
    assert not vault.reserved


@pytest.mark.parametrize(
    "limits", [{"marginal": 10**9}, {"marginal": 0}, {"cells": -1}, {"candidates": 1.5}, {"cells": "many"}]
)
def test_limits_that_the_vault_would_refuse_are_refused_when_made(limits) -> None:
    with pytest.raises(InputError, match="limits are whole numbers"):
        SizeLimits(**limits)


def test_a_public_count_is_whole_and_a_share_exact() -> None:
    for count in (1.5, "5", 0):
        with pytest.raises(InputError, match="whole"):
            synthesize.PublicTotal(count)
    for share in (0.1, "x", 1):
        with pytest.raises(LossError, match="Fraction"):
            synthesize.BudgetShare(share)


def test_samples_and_conditions_of_the_wrong_form_are_refused(vault) -> None:
    release = synthesize.mst(vault, loss=Rho(1), total=synthesize.PublicTotal(30))
    for rows in (1.5, True, -1, "3"):
        with pytest.raises(InputError, match="whole number of rows"):
            release.sample(rows)
    with pytest.raises(SizeError, match="ask for fewer rows"):
        release.sample(10**11)
    endless = synthesize.mst(vault, loss=Rho(1), total=synthesize.PublicTotal(10**11))
    for draw in (endless.codes, endless.sample, lambda: endless.rows):
        with pytest.raises(SizeError, match="ask for fewer rows"):
            draw()
    for codes in (3, ["x"], "x", [], [3], [0.5]):
        with pytest.raises(QueryError, match="give a list of some"):
            release.model.given({"a": codes})
    assert len(release.sample(np.int64(7))) == 7
    assert release.model.given({"a": {1}}).total <= 30


def test_edges_are_bought_of_a_vault_at_a_loss(vault) -> None:
    for table, loss, bins in (("people.csv", Rho(1), 3), (vault, 0.1, 3), (vault, Rho(1), "3")):
        with pytest.raises(InputError):
            private_edges(table, "a", loss=loss, bins=bins)
    assert not vault.reserved


def test_ranges_are_of_a_domain_and_only_releases_are_saved(tmp_path) -> None:
    for make in (synthesize.all_ranges, synthesize.prefixes):
        with pytest.raises(InputError, match="of a Domain"):
            make({"a": 3}, "a")
    with pytest.raises(InputError, match="the release of a synthesizer"):
        save("release", tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_what_is_no_domain_or_name_is_refused_when_a_table_is_opened(tmp_path) -> None:
    table, ledger = pa.table({"a": ["x"]}), f"sqlite:///{tmp_path}/l.ledger"
    with pytest.raises(InputError, match="a domain is a Domain, such as an accepted draft, or the path"):
        open_vault(table, domain={"a": 3}, ledger=ledger, limit=Rho(1), create=True)
    for dataset in (5, "", ["people"], "a\n"):
        with pytest.raises(InputError, match="printable characters"):
            open_vault(table, domain=DOMAIN.project(["a"]), ledger=ledger, limit=Rho(1), dataset=dataset, create=True)
