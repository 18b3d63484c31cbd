"""Codes drawn given others follow the model exactly, whatever is shared between rows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from sfumato.model.factor import Factor
from sfumato.synthesize.linked import conditional_sampling
from sfumato.synthesize.linked.conditional_sampling import ConditionalSampler

SIZES = {"p": 3, "q": 2, "a": 3, "b": 2, "c": 4}
DRAWN = ("a", "b", "c")
CLIQUES = {
    "chain": [("p", "a"), ("a", "b"), ("b", "c"), ("q", "c")],
    "loop": [("p", "a", "b"), ("b", "c", "q"), ("c", "a"), ("p", "q")],
    "apart": [("q", "a"), ("p", "b")],
    "one table": [("q", "c", "a", "b", "p")],
}
ROWS = 6000  # of each evidence


def model(cliques: list[tuple[str, ...]], seed: int) -> list[Factor]:
    random = np.random.default_rng(seed)
    return [Factor(clique, random.normal(0, 1.5, [SIZES[name] for name in clique])) for clique in cliques]


def exact(factors: list[Factor], p: int, q: int) -> np.ndarray:
    """Return the distribution from every combination, one by one."""
    table = np.zeros([SIZES[name] for name in DRAWN])
    for codes in itertools.product(*(range(SIZES[name]) for name in DRAWN)):
        given = {"p": p, "q": q, **dict(zip(DRAWN, codes, strict=True))}
        table[codes] = sum(factor.values[tuple(given[name] for name in factor.attributes)] for factor in factors)
    table = np.exp(table)
    return table / table.sum()


@pytest.mark.parametrize("name", CLIQUES)
def test_rows_follow_the_conditional_distribution(name) -> None:
    factors = model(CLIQUES[name], 5)
    p, q = (each.ravel() for each in np.meshgrid(np.arange(3), np.arange(2), indexing="ij"))
    evidence = {"p": np.tile(p, ROWS), "q": np.tile(q, ROWS)}
    drawn = ConditionalSampler(factors, SIZES, DRAWN).draw(evidence, 6 * ROWS, np.random.default_rng(1))
    for one, other in zip(p, q, strict=True):
        held = (evidence["p"] == one) & (evidence["q"] == other)
        cells = np.ravel_multi_index([drawn[each][held] for each in DRAWN], [SIZES[each] for each in DRAWN])
        found = np.bincount(cells, minlength=24) / ROWS
        assert np.abs(found - exact(factors, one, other).ravel()).sum() / 2 < 0.03


@pytest.mark.parametrize("far", [50.0, 900.0, 40_000.0])
@pytest.mark.parametrize("hidden", [("a", "c"), ("c", "a", "b"), ("p", "b")])
def test_potentials_that_cancel_each_other_change_nothing(hidden, far) -> None:
    factors = model(CLIQUES["loop"], 5)
    random = np.random.default_rng(7)
    for name in hidden:  # factors that cancel each other, on top of the others
        moved = far * random.permutation(np.linspace(-1, 1, SIZES[name]))
        one, other = (place for place, factor in enumerate(factors) if name in factor.attributes)
        for place, sign in ((one, 1), (other, -1)):
            axes = [SIZES[each] if each == name else 1 for each in factors[place].attributes]
            factors[place] = Factor(factors[place].attributes, factors[place].values + sign * moved.reshape(axes))
    p, q = (each.ravel() for each in np.meshgrid(np.arange(3), np.arange(2), indexing="ij"))
    evidence = {"p": np.tile(p, ROWS), "q": np.tile(q, ROWS)}
    drawn = ConditionalSampler(factors, SIZES, DRAWN).draw(evidence, 6 * ROWS, np.random.default_rng(1))
    for given, other in zip(p, q, strict=True):
        held = (evidence["p"] == given) & (evidence["q"] == other)
        cells = np.ravel_multi_index([drawn[each][held] for each in DRAWN], [SIZES[each] for each in DRAWN])
        found = np.bincount(cells, minlength=24) / ROWS
        assert np.abs(found - exact(model(CLIQUES["loop"], 5), given, other).ravel()).sum() / 2 < 0.03


def test_impossible_cells_are_never_drawn() -> None:
    barred = np.zeros((3, 3))
    barred[np.tril_indices(3, -1)] = -np.inf
    factors = [*model(CLIQUES["loop"], 2), Factor(("p", "a"), barred)]
    random = np.random.default_rng(3)
    evidence = {"p": random.integers(3, size=20_000), "q": random.integers(2, size=20_000)}
    drawn = ConditionalSampler(factors, SIZES, DRAWN).draw(evidence, 20_000, random)
    assert (drawn["a"] >= evidence["p"]).all()
    assert {name: int(codes.max()) for name, codes in drawn.items()} == {"a": 2, "b": 1, "c": 3}


def test_no_rows_are_no_rows() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    drawn = ConditionalSampler(model(CLIQUES["loop"], 2), SIZES, DRAWN).draw(
        {"p": nothing, "q": nothing}, 0, np.random.default_rng(0)
    )
    assert {name: len(codes) for name, codes in drawn.items()} == {"a": 0, "b": 0, "c": 0}


@pytest.mark.parametrize("held", [1, 100, 4000])
def test_rows_that_are_drawn_a_few_at_a_time_follow_it_as_well(held, monkeypatch) -> None:
    factors = model(CLIQUES["loop"], 5)
    monkeypatch.setattr(conditional_sampling, "_HELD", held)
    rows = 200 if held == 1 else ROWS
    evidence = {"p": np.full(rows, 1), "q": np.full(rows, 1)}
    drawn = ConditionalSampler(factors, SIZES, DRAWN).draw(evidence, rows, np.random.default_rng(1))
    cells = np.ravel_multi_index([drawn[each] for each in DRAWN], [SIZES[each] for each in DRAWN])
    wrong = np.abs(np.bincount(cells, minlength=24) / rows - exact(factors, 1, 1).ravel()).sum() / 2
    assert wrong < 0.6 / np.sqrt(rows / 24)  # of 24 cells its mean is below .4 of that, its deviation below .1
