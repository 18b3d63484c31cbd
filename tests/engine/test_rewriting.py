"""Rows find their classes by look-up, are dealt at random, and leave in an order that says nothing."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, permutations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.engine.port import Recode
from sfumato.engine.rewriting import ClassAssignment, Shuffle, Tuples, relabelled

SCHEMA = pa.schema([("class", pa.uint32()), ("r0", pa.string())])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_places_are_those_of_a_dictionary(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.sampled_from([1, 3, 200, 70_000]), min_size=1, max_size=6))  # up to 96 bits of key
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    levels = [rng.integers(max(size // 2, 1), size=size).astype(np.uint32) for size in sizes]
    rows = np.column_stack([rng.integers(size, size=40) for size in sizes])
    coarse = np.column_stack([level[column] for level, column in zip(levels, rows.T, strict=True)])
    listed = np.unique(coarse[: data.draw(st.integers(0, 40))], axis=0)
    places = {tuple(row): place for place, row in enumerate(listed.tolist())}
    found = Tuples(listed, levels).places(list(rows.T))
    assert found.tolist() == [places.get(tuple(row), -1) for row in coarse.tolist()]


def test_no_tuple_has_a_place_in_an_empty_list_of_many_attributes() -> None:
    levels = [np.arange(70_000, dtype=np.uint32)] * 5  # 80 bits: more than a key holds
    found = Tuples(np.empty((0, 5), np.uint32), levels).places([np.array([0, 69_999])] * 5)
    assert found.tolist() == [-1, -1]


def recode(*, suppressed: str | None) -> Recode:
    """Rows of tuple 0 go to two classes, two rows and one. Rows of tuple 1 go to a third class, at most two."""
    return Recode(
        attributes=("a",),
        levels=(np.arange(3, dtype=np.uint8),),
        classes=np.array([[0], [0], [1]], dtype=np.uint8),
        labels=pa.table({"a": ["x", "y", "z"]}),
        rows=np.array([2, 1, 2]),
        suppressed=suppressed,
    )


@pytest.mark.parametrize(("suppressed", "none"), [(None, -1), ("*", 3)])
def test_rows_are_dealt_until_the_classes_are_full(suppressed: str | None, none: int) -> None:
    assignment = ClassAssignment(recode(suppressed=suppressed))
    first = assignment.classes([np.array([0, 1, 2], np.uint8)]).tolist()
    second = assignment.classes([np.array([0, 1, 0, 0, 1], np.uint8)]).tolist()
    assert first[1:] == [2, none]
    assert (second[1], second[4]) == (2, none)
    assert Counter([first[0], second[0], second[2], second[3]]) == Counter([0, 0, 1, none])
    assert second[3] == none


def test_every_turn_is_dealt_equally_often() -> None:
    # 1 500 draws of the row in the class of one: each of three rows a third of the time, within 9 standard deviations
    turns = [
        ClassAssignment(recode(suppressed=None)).classes([np.zeros(3, np.uint8)]).tolist().index(1) for _ in range(1500)
    ]
    assert np.abs(np.bincount(turns, minlength=3) - 1500 / 3).max() < 9 * (1500 * 2 / 9) ** 0.5


def mixed(rows: list[str], folder, batch: int) -> list[str]:
    mixer = Shuffle(SCHEMA, len(rows), folder)
    for start in range(0, len(rows), batch):
        part = rows[start : start + batch]
        mixer.add(pa.record_batch([pa.array(np.zeros(len(part), np.uint32)), pa.array(part)], schema=SCHEMA))
    return [row for table in mixer.tables() for row in table["r0"].to_pylist()]


@pytest.mark.parametrize("bucket", [2, 100])
def test_every_order_is_equally_likely(bucket: int, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    # 1 200 orders of three rows: 200 each, within 8 standard deviations, whether one bucket holds them or not
    monkeypatch.setattr("sfumato.engine.rewriting.BUCKET_ROWS", bucket)
    seen = Counter(tuple(mixed(["a", "b", "c"], tmp_path, 2)) for _ in range(1200))
    assert set(seen) == set(permutations("abc"))
    assert max(abs(number - 200) for number in seen.values()) < 8 * (1200 * 5 / 36) ** 0.5
    assert not list(tmp_path.iterdir())


def test_many_buckets_hold_every_row_once(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfumato.engine.rewriting.BUCKET_ROWS", 97)
    rows = [str(number) for number in range(5000)]
    found = mixed(rows, tmp_path, 333)
    assert sorted(found) == sorted(rows)
    ascents = sum(int(left) < int(right) for left, right in pairwise(found))
    assert abs(ascents - 2500) < 10 * (5000 / 12) ** 0.5


def test_nothing_is_left_behind_by_a_failure(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sfumato.engine.rewriting.BUCKET_ROWS", 2)

    def broken():
        yield pa.record_batch({"c0": pa.array([0, 1, 1], pa.uint8())})
        raise RuntimeError("the table is gone")

    rows = pa.RecordBatchReader.from_batches(pa.schema([("c0", pa.uint8())]), broken())
    with pytest.raises(RuntimeError, match="gone"):
        relabelled(rows, recode(suppressed=None), (), about=9, folder=tmp_path)
    assert not list(tmp_path.iterdir())
