"""Rows that are tuned to tables: they get closer, avoid impossible cells, and follow precise tables."""

from itertools import combinations

import numpy as np
import pytest

from sfumato.model.row_tuning import ImpossibleCells, TargetTable, tune_rows

SIZES = (4, 3, 5)
ROWS = 3000


def table_of(columns, pair):
    shape = tuple(SIZES[each] for each in pair)
    cell = np.ravel_multi_index([columns[each] for each in pair], shape)
    return np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape).astype(float)


def target_of(columns, pair, variance=1.0):
    return TargetTable(pair, tuple(np.arange(SIZES[each]) for each in pair), table_of(columns, pair), variance)


@pytest.fixture
def real():
    random = np.random.default_rng(3)
    shared = random.integers(0, 60, ROWS)
    return [np.where(random.random(ROWS) < 0.6, shared % size, random.integers(0, size, ROWS)) for size in SIZES]


@pytest.fixture
def independent(real):
    random = np.random.default_rng(4)
    return [random.permutation(column) for column in real]


def test_rows_get_the_counts_of_all_pairs(real, independent) -> None:
    pairs = list(combinations(range(3), 2))
    tuned = tune_rows(independent, SIZES, [target_of(real, pair) for pair in pairs], [], np.random.default_rng(1))
    for pair in pairs:
        before = np.abs(table_of(independent, pair) - table_of(real, pair)).sum()
        assert np.abs(table_of(tuned, pair) - table_of(real, pair)).sum() < 0.05 * before


def test_the_same_generator_gives_the_same_rows_and_the_given_rows_stay(real, independent) -> None:
    copies = [column.copy() for column in independent]
    targets = [target_of(real, (0, 1)), target_of(real, (1, 2))]
    one, other = (tune_rows(independent, SIZES, targets, [], np.random.default_rng(1)) for _ in range(2))
    assert all(map(np.array_equal, one, other))
    assert all(map(np.array_equal, independent, copies))


def test_no_row_moves_into_an_impossible_cell(real, independent) -> None:
    impossible = np.zeros((4, 5), dtype=bool)
    impossible[0, :3] = impossible[2, 4] = True
    columns = list(independent)
    columns[2] = np.where(impossible[columns[0], columns[2]], 3, columns[2])
    for cells in (impossible, impossible.T):
        attributes = (0, 2) if cells is impossible else (2, 0)
        targets = [target_of(real, pair) for pair in combinations(range(3), 2)]
        zeros = [ImpossibleCells(attributes, cells), ImpossibleCells((1,), np.zeros(3, dtype=bool))]
        tuned = tune_rows(columns, SIZES, targets, zeros, np.random.default_rng(1))
        assert not impossible[tuned[0], tuned[2]].any()
        assert table_of(tuned, (0, 1)).tolist() != table_of(columns, (0, 1)).tolist()


def test_a_precise_table_decides_where_tables_disagree(real, independent) -> None:
    targets = [target_of(real, (0, 1), variance=1.0), target_of(independent, (0, 1), variance=1e4)]
    tuned = tune_rows(independent, SIZES, targets, [], np.random.default_rng(1))
    gap = [np.abs(table_of(tuned, (0, 1)) - table_of(rows, (0, 1))).sum() for rows in (real, independent)]
    assert gap[0] < 0.05 * gap[1]


def test_attributes_without_a_table_do_not_move(real, independent) -> None:
    tuned = tune_rows(independent, SIZES, [target_of(real, (0, 1))], [], np.random.default_rng(1))
    assert np.array_equal(tuned[2], independent[2])


def test_rows_get_the_counts_of_tables_of_one_to_three_attributes_over_joined_cells(real, independent) -> None:
    joined = np.array([0, 0, 1, 1, 2])

    def counts(columns):
        pair, triple = np.zeros((3, 4)), np.zeros((3, 5, 4))
        np.add.at(pair, (joined[columns[2]], columns[0]), 1.0)
        np.add.at(triple, (columns[1], columns[2], columns[0]), 1.0)
        return [pair, triple, np.bincount(columns[1], minlength=3).astype(float), table_of(columns, (0, 1))]

    numbers = ((2, 0), (1, 2, 0), (1,), (0, 1))
    variances = (2.0, 3.0, 1.0, 1.0)
    targets = [
        TargetTable(
            each, tuple(joined if one == 2 and each == (2, 0) else np.arange(SIZES[one]) for one in each), *rest
        )
        for each, *rest in zip(numbers, counts(real), variances, strict=True)
    ]
    tuned = tune_rows(independent, SIZES, targets, [], np.random.default_rng(1))
    for wanted, start, got in zip(counts(real), counts(independent), counts(tuned), strict=True):
        assert np.abs(got - wanted).sum() <= 0.05 * np.abs(start - wanted).sum() + 10


def test_many_rows_are_tuned_a_window_at_a_time(real, independent) -> None:
    many = [np.tile(column, 9) for column in independent]
    wanted = [np.tile(column, 9) for column in real]
    shuffled = np.random.default_rng(5).permutation(len(many[0]))
    targets = [target_of(wanted, pair) for pair in combinations(range(3), 2)]
    tuned = tune_rows([column[shuffled] for column in many], SIZES, targets, [], np.random.default_rng(1))
    for pair in combinations(range(3), 2):
        before = np.abs(table_of(many, pair) - table_of(wanted, pair)).sum()
        assert np.abs(table_of(tuned, pair) - table_of(wanted, pair)).sum() < 0.05 * before


def test_each_count_pulls_by_its_own_variance(real, independent) -> None:
    """Two tables disagree, and each is certain of other cells."""
    sure = np.where(np.arange(4)[:, None] < 2, 1.0, 1e4) * np.ones((4, 3))
    targets = [target_of(real, (0, 1), sure), target_of(independent, (0, 1), sure[::-1])]
    mixed = np.where(sure == 1.0, table_of(real, (0, 1)), table_of(independent, (0, 1)))
    tuned = tune_rows(independent, SIZES, targets, [], np.random.default_rng(1))
    gap = [np.abs(table_of(rows, (0, 1)) - mixed).sum() for rows in (tuned, independent)]
    assert gap[0] < 0.3 * gap[1]


def test_moves_never_raise_the_squares_that_they_lower(real, independent) -> None:
    """By hand, with a variance for each count."""
    random = np.random.default_rng(6)
    targets = [
        target_of(real, pair, random.uniform(0.1, 50, (SIZES[pair[0]], SIZES[pair[1]]))) for pair in [(0, 1), (1, 2)]
    ]

    def squares(rows):
        return sum(((table_of(rows, t.attributes) - t.counts) ** 2 / (t.variance + 0.1)).sum() for t in targets)

    tuned = tune_rows(independent, SIZES, targets, [], np.random.default_rng(1))
    assert squares(tuned) < 0.02 * squares(independent)
