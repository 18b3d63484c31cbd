"""Nothing but noise depends on the rows: a method that gets the noisy answers of one table over the rows of another
asks the same questions at the same shares of the loss, and releases the same model and rows.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from tests.families import Families, related, some_families

from sfumato.domain import Categorical, Domain, Integer, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho
from sfumato.synthesize import NoisyTotal, aim, all_marginals, batched, marginal_selection, mst, read_zeros
from sfumato.synthesize.linked import ModelSizes
from sfumato.synthesize.linked.linked_synthesis import release_units
from sfumato.synthesize.marginal_selection import SizeLimits
from sfumato.vault.simulated import SimulatedVault

PAY = Integer(
    name="pay", minimum=0, maximum=10**12, edges=(0, 1, 1000, 9000, 30_000), unknown=Unknown.CLAMP, typical=50_000
)
DOMAIN = Domain(
    (
        PAY,
        Integer(name="age", minimum=0, maximum=39, unknown=Unknown.CLAMP),
        Categorical(name="stage", values=("young", "old"), unknown=Unknown.DROP),
        Categorical(name="town", values=tuple("abcde"), unknown=Unknown.DROP),
        Categorical(name="home", values=tuple("uvwxyz"), unknown=Unknown.DROP),
    )
)
RULES = read_zeros(
    [
        {"column": "stage", "from": "age", "cells": {"young": "..17", "old": "18.."}},
        {"if": {"stage": "young"}, "then": {"pay": "0"}},
        {"impossible": {"town": "a", "home": ["x", "y"]}},
    ],
    DOMAIN,
)


class Replayed:
    """Mechanisms that run as they are, then give the answers of an earlier run, if there is one."""

    def __init__(self, mechanisms, earlier, transcript):
        self._mechanisms, self._earlier, self._transcript = mechanisms, iter(earlier), transcript
        self._drawn = np.random.default_rng(3)

    def __getattr__(self, name):
        return getattr(self._mechanisms, name)

    def _replay(self, asked, answer):
        before, answer = next(self._earlier, (asked, answer))
        assert asked == before
        self._transcript.append((asked, answer))
        return answer

    def measure(self, questions, loss, *, shares=None):
        answer = self._mechanisms.measure(questions, loss, shares=shares)
        return self._replay((str([each.canonical() for each in questions]), str(loss), str(shares)), answer)

    def select(self, scores, loss):
        return self._replay((type(scores), str(loss)), self._mechanisms.select(scores, loss))

    def generator(self):
        return self._drawn


class ReplayingVault(SimulatedVault):
    """A simulated vault whose methods run over replayed mechanisms."""

    def __init__(self, encoded, *, seed, earlier=()):
        super().__init__(encoded, seed=seed)
        self.earlier, self.transcript = earlier, []

    def release(self, request, loss, run, **options):
        return super().release(
            request, loss, lambda held: run(Replayed(held, self.earlier, self.transcript)), **options
        )


def table(rows: int, seed: int) -> ArrayTable:
    """Dependent columns that keep the rules, and round pays in table 1 alone."""
    random = np.random.default_rng(seed)
    age = random.integers(0, 40, rows)
    town = np.where(random.random(rows) < 0.7, age // 8, random.integers(0, 5, rows))
    home = np.where(random.random(rows) < 0.7, (town + age // 5) % 6, random.integers(0, 6, rows))
    home = np.where(town == 0, home % 3, home)
    earned = 10_000 * home + random.integers(1, 9000, rows)
    pay = np.where(age < 18, 0, earned // 1000 * 1000 if seed == 1 else earned)
    code = np.searchsorted(PAY.edges, pay, side="right") - 1
    codes = np.stack([code, age, age >= 18, town, home], axis=1).astype(np.int64)
    return ArrayTable(DOMAIN, codes, values={"pay": pay.astype(float)})


def released(method: str, vault: SimulatedVault, loss):
    if method == "mst":
        return mst(vault, loss=loss, total=NoisyTotal(), zeros=RULES)
    synthesizer = aim if method == "aim" else batched
    limits = SizeLimits(cells=300 if method == "batched in little room" else 20_000)
    return synthesizer(vault, loss=loss, total=NoisyTotal(), workload=all_marginals(2), zeros=RULES, limits=limits)


@pytest.mark.parametrize("loss", [Rho("0.002"), EpsilonDelta(10, "1e-9")], ids=str)
@pytest.mark.parametrize("method", ["batched", "batched in little room", "mst", "aim"])
def test_a_release_depends_on_the_rows_by_their_noisy_answers_alone(method, loss) -> None:
    first = ReplayingVault(table(3000, 1), seed=1)
    release = released(method, first, loss)
    assert any("round-numbers" in asked[0] for asked, _ in first.transcript if isinstance(asked[0], str))
    for other in (table(500, 2), table(0, 2)):
        again = ReplayingVault(other, seed=2, earlier=first.transcript)
        repeated = released(method, again, loss)
        assert len(again.transcript) == len(first.transcript)
        assert repeated.rows.to_arrow().equals(release.rows.to_arrow())
        assert repeated.codebook == release.codebook
        assert again.spent == first.spent


def very_wide(rows: int, seed: int) -> ArrayTable:
    """A number of 20,000 cells, some of them missing, next to two small columns."""
    random = np.random.default_rng(seed)
    missing = Integer(name="wide", minimum=0, maximum=19_999, unknown=Unknown.CATEGORY)
    small = (Categorical(name=name, values=tuple("abc"), unknown=Unknown.DROP) for name in ("one", "two"))
    wide = np.where(random.random(rows) < 0.1, 20_000, random.integers(0, 3000, rows))
    return ArrayTable(Domain((missing, *small)), np.stack([wide, wide % 3, random.integers(0, 3, rows)], axis=1))


@pytest.mark.parametrize("loss", [Epsilon("0.5"), Rho("0.02")], ids=str)
@pytest.mark.parametrize("method", [partial(batched, workload=all_marginals(2)), mst], ids=["batched", "mst"])
def test_groups_of_a_very_wide_column_depend_on_noisy_answers_alone(method, loss) -> None:
    first = ReplayingVault(very_wide(3000, 1), seed=1)
    release = method(first, loss=loss, total=NoisyTotal())
    assert sum(table.attributes == ("wide",) and not table.fresh for table in release.model.tables) > 1
    for other in (very_wide(500, 2), very_wide(0, 2)):
        again = ReplayingVault(other, seed=2, earlier=first.transcript)
        repeated = method(again, loss=loss, total=NoisyTotal())
        assert len(again.transcript) == len(first.transcript)
        assert repeated.rows.to_arrow().equals(release.rows.to_arrow())
        assert repeated.codebook == release.codebook
        assert again.spent == first.spent


def crowded(rows: int, seed: int) -> ArrayTable:
    """Two columns of 30 values with most rows in few of their cells, the second often equal to the first."""
    random = np.random.default_rng(seed)
    first, other = (random.zipf(1.5, rows).clip(1, 30) - 1 for _ in range(2))
    second = np.where(random.random(rows) < 0.1, first, other)
    shape = {"a": 30, "b": 30, "c": 3, "d": 3}
    domain = Domain(
        tuple(Categorical(name=name, values=tuple(range(n)), unknown=Unknown.DROP) for name, n in shape.items())
    )
    return ArrayTable(domain, np.stack([first, second, *random.integers(0, 3, (2, rows))], axis=1))


def test_the_last_round_does_not_charge_a_pair_for_cells_that_noise_hides(monkeypatch) -> None:
    """Charged for all cells, the pair was measured at none of four seeds; without hidden cells at all of them.

    The hidden cells follow from noisy answers alone.
    """
    asked = {"loss": Rho("0.2"), "total": NoisyTotal(), "workload": all_marginals(2)}
    first = ReplayingVault(crowded(2000, 3), seed=1)
    release = batched(first, **asked)
    again = ReplayingVault(crowded(0, 2), seed=2, earlier=first.transcript)
    repeated = batched(again, **asked)
    assert len(again.transcript) == len(first.transcript)
    assert repeated.rows.to_arrow().equals(release.rows.to_arrow())
    assert ("a", "b") in [table.attributes for table in release.model.measured]
    monkeypatch.setattr(marginal_selection.Table, "open", marginal_selection.Table.cells)
    charged = batched(SimulatedVault(crowded(2000, 3), seed=1), **asked)
    assert ("a", "b") not in [table.attributes for table in charged.model.measured]


def test_several_rules_hold_in_tuned_rows() -> None:
    release = released("batched in little room", SimulatedVault(table(3000, 1), seed=1), EpsilonDelta(10, "1e-9"))
    assert release.model.estimates
    codes, rows = release.codes(), release.rows.to_arrow()
    for rule in RULES:
        assert not rule.impossible[tuple(codes[:, DOMAIN.index(name)] for name in rule.attributes)].any()
    pay, age = rows["pay"].to_numpy(), rows["age"].to_numpy()
    assert (pay[age < 18] == 0).all()
    assert ((rows["stage"].to_numpy() == "old") == (age >= 18)).all()


@pytest.mark.parametrize("loss", [Rho("0.02"), Rho(10)], ids=str)
def test_linked_tables_depend_on_the_rows_by_their_noisy_answers_alone(loss) -> None:
    """The rounds of a tail, and whether it is modeled at all, are decided by noisy answers."""
    sizes = ModelSizes(head_cells=20_000, tail_cells=20_000, calibration=3)

    def drawn(units: int, earlier=()):
        tables = related(4)
        vault = ReplayingVault(Families(some_families(units, units), tables), seed=units, earlier=earlier)
        return vault, release_units(vault, tables, loss=loss, total=NoisyTotal(), settings=sizes)

    first, release = drawn(800)
    for units in (1, 3000):
        again, repeated = drawn(units, first.transcript)
        assert len(again.transcript) == len(first.transcript)
        assert again.spent == first.spent
        for name, rows in release.tables.items():
            assert repeated.tables[name].equals(rows)
