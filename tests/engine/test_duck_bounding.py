"""The rows that DuckDB selects for units above their bounds, against the choice by hand, under random bounds."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.engine.test_bounding import FIRST, LAST, chosen, domain_of

from sfumato.domain import Domain, GroupBound, Integer, Unit, Unknown
from sfumato.engine.exact import reveal
from sfumato.engine.open import open_table

GROUPINGS = ("month(day)", "weekday(day)", "word", "letter(word)", "flag")


def drawn_rows(draw: random.Random, people: int) -> list[dict[str, Any]]:
    """Rows of people with one to sixty rows, of few kinds or of many, so that a person has some several times."""
    rows = []
    for person in range(people):
        days = [
            FIRST + (LAST - FIRST) * (draw.random() if draw.random() < 0.9 else 0) for _ in range(draw.choice([2, 40]))
        ]
        for _ in range(draw.choice([1, 3, 12, 60])):
            day = None if draw.random() < 0.05 else draw.choice(days)
            rows.append({"person": f"p{person}", "day": day, "word": draw.choice("abcz"), "flag": draw.random() < 0.5})
    draw.shuffle(rows)
    return rows


def drawn_bounds(draw: random.Random) -> tuple[GroupBound, ...]:
    """No bound by groups, or up to three, by one grouping or by several."""
    found = {}
    for _ in range(draw.randrange(4)):
        by = tuple(sorted(draw.sample(GROUPINGS, draw.choice([1, 1, 2, 3]))))
        found[by] = GroupBound(by, rows=draw.choice([1, 2, 5, 11]), groups=draw.choice([None, 1, 3, 6]))
    return tuple(found.values())


@pytest.mark.parametrize("bucket", [20, 150, 1_000_000])
def test_the_rows_that_are_kept_are_those_of_the_order(monkeypatch, bucket: int) -> None:
    """Drawn rows and bounds: some leave out a few rows, some nearly all, some none.

    Of buckets of 20 rows, people with more than 10 are left to DuckDB.
    """
    monkeypatch.setattr("sfumato.engine.duckdb.duck_bounding.BUCKET_ROWS", bucket)
    shares = []
    for seed in range(20):
        draw = random.Random(seed)  # noqa: S311 - of a test
        rows = drawn_rows(draw, draw.choice([1, 5, 25]))
        domain = domain_of(drawn_bounds(draw), rows=draw.choice([1, 9, 30, 100]))
        kept, left_out = chosen(domain, rows)
        expected = np.zeros(domain.shape, dtype=np.int64)
        for codes, times in kept.items():
            expected[codes] = times
        encoded = open_table(pa.Table.from_pylist(rows)).encode(domain)
        found = reveal(encoded.marginals([domain.names])[0])
        np.testing.assert_array_equal(found, expected.reshape(-1), err_msg=f"seed {seed}")
        assert reveal(encoded.dropped(10**6)).tolist() == [sum(left_out)]
        shares.append(sum(left_out) / len(rows))
    assert min(shares) == 0
    assert any(0 < share < 0.5 for share in shares)
    assert max(shares) > 0.5


def test_cells_of_large_numbers_are_told_apart_by_unit() -> None:
    """With 2^51 cells, units times cells no longer fit 64 bits. Each unit has two rows, and one cell remains."""
    people, size = 9000, 1 << 17
    names = ("a", "b", "c")
    attributes = tuple(Integer(name=name, minimum=0, maximum=size - 1, unknown=Unknown.DROP) for name in names)
    domain = Domain(attributes, unit=Unit("person", rows=5, per=(GroupBound(names, rows=1, groups=1),)))
    rows = {"person": [f"p{place}" for place in range(2 * people)], **{name: [0] * (2 * people) for name in names}}
    rows = {name: [*values[:people], *values[:people]] for name, values in rows.items()}
    rows["a"][people:] = [size - 1] * people

    def first(person: int) -> bool:
        digests = [
            hashlib.md5(f"{domain.hash[:16]}p{person}|{cell}".encode()).hexdigest()  # noqa: S324
            for cell in (0, (size - 1) * size * size)
        ]
        return digests[0] < digests[1]

    found = reveal(open_table(pa.table(rows)).encode(domain).marginals([("a",)])[0])
    assert found.sum() == people
    assert found[0] == sum(map(first, range(people)))
