"""Bounds by noisy distances: what they cost, that nothing else changes without them, and that they hold.

The statistical test has a false-alarm rate of a millionth.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import binom
from tests.synthesize.conftest import table_of

from sfumato.domain import Categorical, Domain, Integer, Unknown
from sfumato.errors import InputError, SfumatoError, SizeError
from sfumato.model.noisy_table import NoisyDistance, NoisyTable, distances_payload, integer_counts, restore_distances
from sfumato.privacy.entropy import SimulatedEntropy
from sfumato.privacy.gaussian import DiscreteGaussian
from sfumato.privacy.loss import Rho
from sfumato.query import Share, count, interval, mean, total
from sfumato.synthesize import (
    NoisyTotal,
    SizeLimits,
    Synthetic,
    aim,
    all_marginals,
    auto,
    batched,
    load,
    mst,
    options,
    read_release,
    save,
    stated_errors,
)
from sfumato.synthesize.structural_zeros import read_zeros
from sfumato.vault.measurables import Distance
from sfumato.vault.simulated import SimulatedVault

FALSE_ALARM = 1e-6

DOMAIN = Domain(
    (
        Integer(name="age", minimum=5, maximum=16, unknown=Unknown.CLAMP),
        Categorical(name="town", values=tuple("abcdef"), unknown=Unknown.DROP),
        Categorical(name="sex", values=("F", "M"), unknown=Unknown.DROP),
    )
)
RANDOM = np.random.default_rng(1)
COUNTS = RANDOM.integers(0, 60, DOMAIN.shape) * (RANDOM.random(DOMAIN.shape) < 0.5)


def released(seed: int = 1, *, limits: SizeLimits | None = None) -> Synthetic:
    vault = SimulatedVault(table_of(DOMAIN, COUNTS), seed=seed)
    return batched(vault, loss=Rho("0.02"), total=NoisyTotal(), workload=all_marginals(1), limits=limits)


BOUNDED = SizeLimits(distance_bounds=True)


@pytest.mark.parametrize(("shape", "rows"), [((3, 4), 17), ((1, 1), 5), ((2, 2), 0)])
def test_whole_counts_sum_to_the_total_and_are_near(shape, rows) -> None:
    counts = np.random.default_rng(2).random(shape)
    counts *= max(rows, 1) / counts.sum()
    found = integer_counts(counts, rows)
    assert (found.sum(), found.shape) == (rows, shape)
    if rows:
        assert (np.abs(found - counts) <= 1 + 1e-9).all()
    assert (integer_counts(np.zeros((2, 2)), 8) == 2).all()


def test_it_takes_three_percent_of_the_loss_for_all_pairs_in_equal_parts() -> None:
    vault = SimulatedVault(table_of(DOMAIN, COUNTS), seed=1)
    asked = []
    real = SimulatedVault.release

    def watched(request, loss, run, **more):
        def seen(mechanisms):
            measure = mechanisms.measure

            def kept(questions, loss, **terms):
                if isinstance(questions[0], Distance) and len(questions) == 3:
                    asked.append((loss, terms, [question.sensitivity(DOMAIN) for question in questions]))
                return measure(questions, loss, **terms)

            mechanisms.measure = kept
            return run(mechanisms)

        return real(vault, request, loss, seen, **more)

    vault.release = watched
    made = batched(vault, loss=Rho("0.02"), total=NoisyTotal(), workload=all_marginals(1), limits=BOUNDED)
    ((loss, terms, sensitivities),) = asked
    assert (loss, terms) == (Rho("0.02") * Fraction(3, 100), {})
    assert set(sensitivities) == {(1, 1)}
    assert [each.noise.sigma_squared for each in made.distances] == pytest.approx([3 / (2 * 0.02 * 0.03)] * 3, rel=1e-6)
    assert [each.attributes for each in made.distances] == [("age", "town"), ("age", "sex"), ("town", "sex")]


def test_nobody_who_does_not_ask_pays_and_the_journal_asks_as_it_did() -> None:
    assert released().distances == ()
    described = SizeLimits().describe()
    assert described == {"cells": 400_000, "candidates": 400, "marginal": 1 << 22}
    both = SizeLimits(prior_marginals=False, distance_bounds=True)
    assert both.describe() == described | {"earlier": False, "bounds": True}
    assert released(limits=BOUNDED).provenance["parameters"]["limits"]["bounds"] is True


@pytest.mark.parametrize("limits", [BOUNDED, SizeLimits(prior_marginals=False)], ids=["bounds", "earlier"])
def test_methods_that_do_neither_refuse_it(limits) -> None:
    vault = SimulatedVault(table_of(DOMAIN, COUNTS), seed=1)
    with pytest.raises(InputError, match="only batched does"):
        mst(vault, loss=Rho(1), total=NoisyTotal(), limits=limits)
    with pytest.raises(InputError, match="only batched does"):
        aim(vault, loss=Rho(1), total=NoisyTotal(), workload=all_marginals(2), limits=limits)
    assert not vault.reserved
    with pytest.raises(InputError, match="True or False"):
        SizeLimits(distance_bounds=1)


def test_saved_models_and_files_keep_them(tmp_path) -> None:
    made = released(limits=BOUNDED)
    save(made, tmp_path / "a.model")
    made.rows.write(tmp_path / "a.parquet")
    kept, alone = load(tmp_path / "a.model").distances, read_release(tmp_path / "a.parquet").distances
    assert [(e.attributes, e.value, e.noise, e.rows_distance) for e in kept] == [
        (e.attributes, e.value, e.noise, 0.0) for e in made.distances
    ]
    assert [(e.attributes, e.value, e.noise) for e in alone] == [(e.attributes, e.value, e.noise) for e in kept]
    rows = made.rows
    for each in alone:  # by another way: from the rows themselves
        cells = integer_counts(made.model.cells(each.attributes), made.model.total)
        apart = np.zeros(DOMAIN.project(each.attributes).shape)
        labels = [DOMAIN[name].labels() for name in each.attributes]
        for values in zip(*(rows[name].to_pylist() for name in each.attributes), strict=True):
            apart[tuple(names.index(str(value)) for names, value in zip(labels, values, strict=True))] += 1
        assert each.rows_distance == pytest.approx(np.abs(cells - apart.ravel()).sum())


@pytest.mark.parametrize("pair", [("age", "town"), ("town", "sex")], ids=" x ".join)
def test_rows_that_were_changed_are_not_bounded_by_the_distances_of_others(pair, tmp_path) -> None:
    released(limits=BOUNDED).rows.write(tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    sorted_towns = pa.array(sorted(table["town"].to_pylist())).cast(table["town"].type)  # as often, in other rows
    table = table.set_column(1, table.schema.field("town"), sorted_towns)
    pq.write_table(table, tmp_path / "a.parquet")
    condition = {"age": "age = 7", "town": "town = 'b'", "sex": "sex = 'F'"}
    changed = read_release(tmp_path / "a.parquet")
    with pytest.raises(InputError, match=f"its rows changed since it was written, .* {' x '.join(pair)} from"):
        interval(changed, count(" AND ".join(condition[name] for name in pair)))
    assert interval(changed, count("age = 7 AND sex = 'F'")).bound is not None


def test_the_order_of_rows_does_not_matter_to_their_distances(tmp_path) -> None:
    released(limits=BOUNDED).rows.write(tmp_path / "a.parquet")
    asked, before = count("age = 7 AND town = 'b'"), read_release(tmp_path / "a.parquet")
    bound = interval(before, asked).bound
    assert bound is not None
    pq.write_table(pq.read_table(tmp_path / "a.parquet").sort_by("town"), tmp_path / "a.parquet")
    assert interval(read_release(tmp_path / "a.parquet"), asked).bound == bound


WRONG = [
    *((2, value) for value in (1.5, True, "1", None, 1 << 62, -(10**30))),
    *((4, beside) for beside in (-1, "0", "inf", True, None, 1e308, 10**30)),
    *((5, rows) for rows in (1, None)),
    *((0, name) for name in ("town", "sex", "none", None)),
    *((3, noise) for noise in (["discrete Gaussian", "-1"], ["discrete Gaussian", "nan"], ["none", "1"], [])),
]


@pytest.mark.parametrize(("place", "value"), WRONG, ids=str)
def test_forged_distances_are_refused(place, value) -> None:
    made = released_once()
    payload = distances_payload(stated_errors.distances_of_rows(made.model, np.zeros((9, 3), dtype=np.int64)))
    assert len(restore_distances(DOMAIN, payload)) == 3
    payload["noisy distances"][0][place] = value
    with pytest.raises((SfumatoError, TypeError, ValueError, KeyError)):
        restore_distances(DOMAIN, payload)


@pytest.mark.parametrize("change", [lambda held: held[:-1], lambda held: held - 1000, lambda held: held + 0.5])
def test_forged_counts_of_a_model_are_refused(change) -> None:
    payload = distances_payload(
        stated_errors.distances_of_rows(released_once().model, np.zeros((9, 3), dtype=np.int64))
    )
    payload["counts of the model 0"] = change(payload["counts of the model 0"])
    with pytest.raises(SizeError, match="counts that no model has"):
        restore_distances(DOMAIN, payload)


def test_a_file_bounds_as_narrowly_as_the_model_that_it_was_drawn_from(tmp_path, monkeypatch) -> None:
    """Without room for the model's counts, the bound is wider by the difference of its rows from the model."""
    made = released(limits=BOUNDED)
    asked = count("age = 7 AND town = 'b'")
    of_model = interval(made, asked).bound
    widths = []
    for most in (1 << 18, 0):
        monkeypatch.setattr(stated_errors, "_MOST_KEPT", most)
        fresh = released(limits=BOUNDED)
        fresh.rows.write(tmp_path / "a.parquet", overwrite=True)
        release = read_release(tmp_path / "a.parquet")
        found = interval(release, asked).bound
        widths.append(found.high - found.low)
        if most:
            assert found == of_model
    beside = next(each.rows_distance for each in release.distances if each.attributes == ("age", "town"))
    assert widths[1] == pytest.approx(widths[0] + beside)
    assert beside > 0


def test_a_distance_that_stands_there_twice_is_refused() -> None:
    payload = distances_payload((*released_once().distances, released_once().distances[0]))
    with pytest.raises(SizeError, match="listed twice"):
        restore_distances(DOMAIN, payload)


@lru_cache
def released_once() -> Synthetic:
    return released(limits=BOUNDED)


class Kept:
    """A release with a table of all rows, whose model and distances are set by hand."""

    domain = DOMAIN

    def __init__(self, cells: np.ndarray, noise: DiscreteGaussian, seed: int, *, of_rows: DiscreteGaussian) -> None:
        self.all, self.total = cells, round(cells.sum())
        pair = COUNTS.sum(axis=2)
        exact = int(np.abs(pair - integer_counts(self.cells(("age", "town")).reshape(pair.shape), self.total)).sum())
        entropy = SimulatedEntropy(seed)
        value = int(noise.add(np.array([exact]), entropy)[0])
        self.distances = (NoisyDistance(("age", "town"), value, noise),)
        rows = of_rows.add(np.array([COUNTS.sum()]), entropy).reshape(())
        self.tables = (NoisyTable((), (), rows, of_rows, True),)

    @property
    def model(self):
        return self

    def cells(self, attributes):
        others = tuple(axis for axis, name in enumerate(DOMAIN.names) if name not in attributes)
        return self.all.sum(axis=others).ravel()


EXACT = DiscreteGaussian(Fraction(1, 100))
PAIR = COUNTS.sum(axis=2)
AGES = np.arange(5, 17)
QUESTIONS = [
    (count("age = 7 AND town = 'b'"), PAIR[2, 1]),
    (count("age > 9 AND town IN ('a', 'c')"), PAIR[5:, [0, 2]].sum()),
    (total("age", "town = 'c'"), AGES @ PAIR[:, 2]),
    (mean("age", "town = 'f'"), AGES @ PAIR[:, 5] / PAIR[:, 5].sum()),
    (Share("town = 'a'", among="age < 8"), PAIR[:3, 0].sum() / PAIR[:3].sum()),
]


@pytest.mark.parametrize(("asked", "truth"), QUESTIONS, ids=str)
@pytest.mark.parametrize("seed", range(12))
def test_without_noise_no_model_is_further_off_than_its_distance_bounds(asked, truth, seed) -> None:
    """Models far from the table, of other sizes too; the bound is never beaten, whatever they are."""
    random = np.random.default_rng(seed)
    cells = random.random(DOMAIN.shape) ** random.integers(1, 9) * COUNTS.sum() * random.uniform(0.2, 2) / 60
    found = interval(Kept(cells, EXACT, seed, of_rows=EXACT), asked)
    assert found.table is None
    assert found.bound is not None
    assert found.bound.low <= truth <= found.bound.high


def test_the_bound_of_a_cell_is_reached() -> None:
    """The whole error is in one cell: half the distance and half the difference of rows is exactly that."""
    cells = COUNTS.astype(float)
    cells[2, 1] += 400.0
    found = interval(Kept(cells, EXACT, 1, of_rows=EXACT), count("age = 7 AND town = 'b'"))
    assert found.bound is not None
    assert found.bound.low == pytest.approx(PAIR[2, 1], abs=3)


WIDE = DiscreteGaussian(2500)


@pytest.mark.parametrize(("noise", "of_rows"), [(WIDE, EXACT), (EXACT, WIDE), (WIDE, WIDE)], ids=["U", "T", "both"])
def test_bounds_hold_as_often_as_they_say_where_only_the_noise_decides(noise, of_rows) -> None:
    """The worst model: the answer lies at the end of what the distance allows, so that noise alone decides: of the
    distance, of the number of rows, or of both.
    """
    cells = COUNTS.astype(float)
    cells[2, 1] += 4000.0
    runs, asked = 800, count("age = 7 AND town = 'b'")
    held = sum(
        bound.low <= PAIR[2, 1] <= bound.high
        for seed in range(runs)
        if (bound := interval(Kept(cells, noise, seed, of_rows=of_rows), asked).bound) is not None
    )
    assert held >= binom.ppf(FALSE_ALARM, runs, 0.95)
    assert held < runs or noise is WIDE is of_rows  # noise decides: a bound that never fails is wider than it has to be


def test_the_answer_says_it_in_a_sentence_and_json() -> None:
    made = released(limits=BOUNDED)
    found = interval(made, mean("age", "town = 'a'"))
    assert found.table is None
    assert any("% of the rows are in other cells of age x town than the model has" in each for each in found.notes)
    assert found.to_json()["bound"]["pair"] == ("age", "town")
    assert interval(made, count("age = 7")).bound is None
    assert interval(released(), mean("age", "town = 'a'")).bound is None


def test_the_codebook_bounds_pairs_that_were_left_to_the_model(tmp_path) -> None:
    plain, bounded = released().codebook, released(limits=BOUNDED).codebook
    assert {pair.misplaced for pair in plain.pairs} == {None}
    assert all(pair.misplaced is not None and not pair.measured for pair in bounded.pairs)
    model = released(limits=BOUNDED).model
    exact = {
        pair: np.abs(COUNTS.sum(axis=axis).ravel() - model.cells(pair)).sum() / 2 / COUNTS.sum()
        for pair, axis in ((("age", "town"), 2), (("age", "sex"), 1), (("town", "sex"), 0))
    }
    assert all(pair.misplaced >= exact[pair.attributes] - 0.05 for pair in bounded.pairs)
    assert any("cannot be told from it" in each for each in plain.not_for)
    assert not any("cannot be told from it" in each for each in bounded.not_for)


ZEROS = read_zeros([{"if": {"age": 5}, "then": {"town": ["a", "b"]}}], DOMAIN)


def test_auto_keeps_impossible_rows_out_by_the_methods_that_can() -> None:
    ranked = options(DOMAIN, loss=Rho(1), total=NoisyTotal(), workload=all_marginals(2), zeros=ZEROS)
    assert {option.method for option in ranked} == {"batched", "mst", "aim"}
    vault = SimulatedVault(table_of(DOMAIN, COUNTS), seed=1)
    made = auto(vault, loss=Rho(1), total=NoisyTotal(), workload=all_marginals(2), zeros=ZEROS)
    rows = made.sample(20_000)
    ages, towns = (rows[name].to_numpy(zero_copy_only=False) for name in ("age", "town"))
    assert set(towns[ages == 5]) <= {"a", "b"}
    assert made.provenance["method"] == "batched"
