from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from sfumato.domain import Categorical, Domain, Unknown
from sfumato.errors import SizeError, TableError
from sfumato.evaluate import released
from sfumato.evaluate.released import Released, spread


@pytest.fixture
def generalised(people) -> Released:
    """Random sets in every cell."""
    luck = np.random.default_rng(5)
    cells = []
    for size in people.DOMAIN.shape:
        sets = luck.random((7, size)) < 0.3
        sets[:, 0] |= ~sets.any(axis=1)
        cells.append(spread(sets))
    return Released(people.DOMAIN, luck.integers(0, 7, (40, 6)), tuple(cells))


def brute_force(release: Released, attributes: tuple[str, ...]) -> np.ndarray:
    columns = [release.domain.index(name) for name in attributes]
    table = np.zeros([release.domain.shape[column] for column in columns])
    for row in release.codes:
        for leaf in product(*(range(size) for size in table.shape)):
            table[leaf] += np.prod([release.cells[c][row[c], v] for c, v in zip(columns, leaf, strict=True)])
    return table / len(release)


def test_marginals_of_generalised_rows_by_brute_force(generalised):
    for attributes in [("rich",), ("rooms", "job"), ("rich", "rooms", "job"), ("job", "town", "rich")]:
        np.testing.assert_allclose(generalised.marginal(attributes), brute_force(generalised, attributes), atol=1e-6)


def test_both_ways_to_marginals_agree(generalised, monkeypatch):
    for attributes in combinations(("town", "job", "rich", "rooms"), 3):
        columns = [generalised.domain.index(name) for name in attributes]
        expected = generalised.marginal(attributes)
        chunked = generalised.marginal_by_rows(columns).reshape(expected.shape)
        np.testing.assert_allclose(chunked, expected, atol=1e-6)
    monkeypatch.setattr(released, "_CHUNK_CELLS", 1000)
    np.testing.assert_allclose(generalised.marginal_by_rows(columns).reshape(expected.shape), expected, atol=1e-6)


def test_drawn_leaves_are_compatible_and_follow_the_weights(generalised):
    luck = np.random.default_rng(0)
    drawn = [generalised.draw(luck).codes for _ in range(400)]
    shares = np.zeros((40, generalised.domain.shape[1]))
    for codes in drawn:
        for column, cells in enumerate(generalised.cells):
            assert (cells[generalised.codes[:, column], codes[:, column]] > 0).all()
        shares[np.arange(40), codes[:, 1]] += 1 / 400
    assert np.abs(shares - generalised.cells[1][generalised.codes[:, 1]]).max() < 0.2


def test_weights_are_exact_in_single_precision(generalised):
    weights = generalised.weights()
    assert weights.dtype == np.float32
    assert (weights.astype(np.float64) * 2**16 % 1 == 0).all()
    assert np.abs(weights.sum(axis=1) - 6).max() < 1e-3


def test_a_marginal_too_large_to_hold_is_refused():
    wide = Domain(
        tuple(Categorical(name=n, values=tuple(range(1700)), unknown=Unknown.DROP) for n in ("one", "two", "three"))
    )
    release = Released(wide, np.zeros((1, 3), int), tuple(np.eye(1700, dtype=np.float32) for _ in range(3)))
    with pytest.raises(SizeError, match="declare wider bins"):
        release.marginal(wide.names)


def test_a_release_needs_rows_and_all_columns(people):
    for codes in (np.zeros((0, 6), int), np.zeros((3, 5), int)):
        with pytest.raises(TableError):
            Released(people.DOMAIN, codes, tuple(np.eye(n, dtype=np.float32) for n in people.DOMAIN.shape))
