"""Counts of nested tables are those of least squares, and pieces are fine where counts are clear."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.model.count_priors import NestedCounts, nested_widths

CELLS = 20_000


def test_consistent_counts_are_those_of_least_squares() -> None:
    random = np.random.default_rng(2)
    widths, variances = (6, 2, 1), (3.0, 2.0, 5.0)
    tables = [random.normal(10, 5, size) for size in (2, 6, 11)]
    design = [
        np.equal.outer(np.arange(len(table)), np.arange(11) // width)
        for table, width in zip(tables, widths, strict=True)
    ]
    weights = np.concatenate([np.full(len(table), each**-0.5) for table, each in zip(tables, variances, strict=True)])
    fitted, *_ = np.linalg.lstsq(np.vstack(design) * weights[:, None], np.concatenate(tables) * weights)
    nested = NestedCounts.of_tables(widths, tables, variances)
    for counts, groups in zip(nested.counts, design, strict=True):
        assert counts == pytest.approx(groups @ fitted)


def test_pieces_are_fine_where_noisy_counts_are_clear() -> None:
    exact = np.zeros(CELLS)
    exact[7_000:7_030] = 200.0
    random = np.random.default_rng(3)
    widths = nested_widths(CELLS)
    tables = [np.add.reduceat(exact, np.arange(0, CELLS, width)) for width in widths]
    pieces = NestedCounts.of_tables(widths, [t + random.normal(0, 20, len(t)) for t in tables], [400.0] * 4).pieces()
    starts = np.cumsum(pieces.widths) - pieces.widths
    inside = (starts >= 7_000) & (starts < 7_030)
    assert pieces.widths.sum() == CELLS
    assert (pieces.widths[inside] == 1).all()
    assert inside.sum() == 30
    assert len(pieces.widths) < 200
    assert pieces.counts[inside].sum() == pytest.approx(6_000, abs=150)
