"""Independent tables: what is in them, what they draw, what the ledger keeps."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.errors import QueryError
from sfumato.model.factor import Factor
from sfumato.synthesize import all_marginals
from sfumato.synthesize.product import Product
from sfumato.vault.interface import decode, encode


@pytest.fixture
def model(domain):
    pair = Factor(("sex", "age"), np.array([[10.0, 20.0, 5.0, 0.0], [15.0, 0.0, 40.0, 10.0]]))
    return Product.from_parts(domain, (pair, Factor(("mood",), np.array([20.0, 30.0, 50.0]))), 100)


def test_cells_are_products_of_the_parts(model):
    assert model.domain.names == ("age", "mood", "sex")
    joint = model.cells(("age", "mood", "sex")).reshape(4, 3, 2)
    expected = np.einsum("sa,m->ams", model.parts[0].values, model.parts[1].values) / 100
    np.testing.assert_allclose(joint, expected)
    np.testing.assert_allclose(model.cells(("mood", "sex")).reshape(3, 2), expected.sum(axis=0))
    np.testing.assert_allclose(
        model.answers(all_marginals(1)), [25, 20, 45, 10, 20, 30, 50, 35, 65], err_msg="one-way marginals"
    )


def test_an_attribute_that_no_part_covers_is_refused(model):
    alone = Product.from_parts(model.domain, model.parts[1:], 100)
    with pytest.raises(QueryError, match="does not cover age"):
        alone.cells(("age",))


def test_a_sample_meets_every_part_to_within_one_row_a_cell(model):
    codes = model.sample(np.random.default_rng(2))
    assert codes.shape == (100, 3)
    pairs = np.bincount(codes[:, 2] * 4 + codes[:, 0], minlength=8)
    assert np.abs(pairs - model.parts[0].values.ravel()).max() < 1
    assert np.bincount(codes[:, 1]).tolist() == [20, 30, 50]


def test_a_sample_may_have_another_size(model):
    codes = model.sample(np.random.default_rng(2), 1000)
    assert np.bincount(codes[:, 1]).tolist() == [200, 300, 500]
    assert model.sample(np.random.default_rng(2), 0).shape == (0, 3)


def test_parts_are_joined_independently_and_rows_shuffled(domain):
    parts = tuple(Factor((name,), np.array([5000.0] * 2 + [0.0] * (domain[name].size - 2))) for name in ("age", "sex"))
    codes = Product.from_parts(domain, parts, 10_000).sample(np.random.default_rng(4))
    # both correlations have standard deviation 0.01
    assert abs(np.corrcoef(codes[:, 0], codes[:, 1])[0, 1]) < 0.06
    assert abs(np.corrcoef(codes[:, 0], np.arange(10_000))[0, 1]) < 0.06


def test_the_ledger_gives_back_the_same_model(domain, model):
    again = Product.restore(domain, decode(encode(model.payload())))
    assert again.total == 100
    assert again.domain == model.domain
    for part, stored in zip(model.parts, again.parts, strict=True):
        assert part.attributes == stored.attributes
        np.testing.assert_array_equal(part.values, stored.values)
