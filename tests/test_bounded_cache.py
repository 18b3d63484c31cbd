"""All caches of a process together hold a bounded number of bytes, for any questions."""

from __future__ import annotations

import ast
import gc
import sqlite3
import sys
import tracemalloc
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sfumato as sf
from sfumato import bounded_cache
from sfumato.bounded_cache import BoundedCache, Shared, cached, held_bytes, weigh
from sfumato.domain import Domain, Integer, Unknown
from sfumato.domain.predicate import CodeRanges
from sfumato.query import sql

SOURCE = Path(sf.__file__).parent


class Wide(Shared):
    held_bytes = 10_000


@pytest.fixture
def room(monkeypatch):
    """Room of its own, for 100,000 bytes."""
    monkeypatch.setattr(bounded_cache, "_ALL_ENTRIES", bounded_cache._Entries())  # noqa: SLF001
    monkeypatch.setattr(bounded_cache, "MOST_BYTES", 100_000)
    monkeypatch.setattr(bounded_cache, "LARGEST_BYTES", 50_000)


@given(asked=st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=200))
def test_a_function_returns_the_same_whatever_is_dropped_and_no_more_is_held(asked):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounded_cache, "_ALL_ENTRIES", bounded_cache._Entries())  # noqa: SLF001
        patch.setattr(bounded_cache, "MOST_BYTES", 20_000)
        patch.setattr(bounded_cache, "LARGEST_BYTES", 9_000)
        repeated = cached()(lambda number: "a" * (number * 250))
        counted = cached(lambda key, _: 100 * key[0])(lambda number: number + 1)
        for number, first in asked:
            if first:
                assert repeated(number) == "a" * (number * 250)
            else:
                assert counted(number) == number + 1
            assert held_bytes() <= 20_000
    assert held_bytes() <= bounded_cache.MOST_BYTES


def test_what_is_used_stays_and_what_is_not_makes_room(room):
    cache = BoundedCache(9_000)
    for number in range(5):
        cache.put(number, str(number))
    for other in range(5, 30):
        assert cache.get(0, None) == "0"
        cache.put(other, str(other))
    assert cache.get(1, None) is None
    assert cache.get(29, None) == "29"


def test_a_value_of_very_many_bytes_is_not_kept(room):
    cache = BoundedCache()
    cache.put("small", "a")
    cache.put("large", "a" * 60_000)
    assert (cache.get("small", None), cache.get("large", None)) == ("a", None)


def test_what_many_entries_refer_to_is_weighed_once(room):
    cache, wide = BoundedCache(), Wide()
    for number in range(20):
        cache.put((wide, number), number)
    assert all(cache.get((wide, number), None) == number for number in range(20))
    assert 10_000 < held_bytes() < 30_000
    before, others = held_bytes(), BoundedCache(lambda *_: 100)  # and by caches that weigh for themselves
    others.put((wide, "again"), 0)
    others.put((Wide(), "another"), 0)
    assert 10_000 < held_bytes() - before < 12_000


def test_a_later_value_replaces_an_earlier_one(room):
    cache = BoundedCache(100)
    for number in range(10_000):
        cache.put("same", number)
        assert cache.get("same", None) == number
        assert held_bytes() <= 100_000


@given(
    st.recursive(
        st.one_of(st.integers(), st.text(max_size=30), st.fractions(), st.binary(max_size=30), st.none()),
        lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.integers(), inner), st.tuples(inner, inner)),
        max_leaves=20,
    )
)
def test_everything_that_is_referred_to_is_weighed(value):
    """At least what its spelling takes, and not ten times more."""
    alone = weigh(value)[0]
    assert alone >= sys.getsizeof(value)
    assert weigh([value, object()])[0] > alone
    assert weigh(CodeRanges.of(range(0, 1000, 2)))[0] > 1000 * 28
    assert weigh(np.zeros(1000)[::2])[0] >= 4000
    assert weigh(Fraction(1, 3))[0] > sys.getsizeof(Fraction(1, 3))


def test_no_cache_counts_its_entries():
    """This is about functions with arguments: a value that is made once may be cached for ever."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute | ast.Name | ast.alias):
                named = (
                    node.attr
                    if isinstance(node, ast.Attribute)
                    else node.id
                    if isinstance(node, ast.Name)
                    else node.name
                )
                found += [f"{path.name}: {named}"] if named == "lru_cache" else []
            if isinstance(node, ast.FunctionDef) and node.args.args:
                kept = any(isinstance(each, ast.Name) and each.id == "cache" for each in node.decorator_list)
                found += [f"{path.name}: {node.name}"] if kept else []
    assert found == []


@pytest.fixture(scope="module")
def wide_column(tmp_path_factory):
    """A vault of a column of a million cells, and its ledger's file."""
    path = tmp_path_factory.mktemp("wide") / "wide.ledger"
    domain = Domain((Integer(name="x", minimum=0, maximum=999_999, unknown=Unknown.DROP),))
    rows = pa.table({"x": np.arange(0, 10**6, 997)})
    return sf.open(rows, domain=domain, ledger=f"sqlite:///{path}", limit=sf.Epsilon(10**6), create=True), path


def ask(vault, numbers: range, where: str = "x >= {low} AND x < {high}") -> None:
    for number in numbers:
        text = where.format(low=number, high=999_999 - 7 * number, number=number)
        sql(vault, f"SELECT COUNT(*) FROM t WHERE {text}", loss=sf.Epsilon(f"1.{number:06d}"))  # noqa: S608


def written(path: Path) -> int:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size


def test_a_comparison_of_a_million_cells_adds_a_few_bytes_to_a_ledger(wide_column):
    vault, path = wide_column
    ask(vault, range(3))
    before = written(path)
    ask(vault, range(10, 60), "x >= 0")
    plain, before = written(path) - before, written(path)
    ask(vault, range(100, 150))
    assert written(path) - before <= plain + 50 * 1024


def test_different_questions_do_not_grow_a_process(wide_column, monkeypatch):
    """Their remains are in bounded caches, whose size no longer grows."""
    vault, _ = wide_column
    monkeypatch.setattr(bounded_cache, "MOST_BYTES", 300_000)
    ask(vault, range(1000, 1100))
    tracemalloc.start()
    ask(vault, range(2000, 2050))
    gc.collect()  # the trees of statements refer to themselves
    first, _ = tracemalloc.get_traced_memory()
    ask(vault, range(3000, 3050))
    gc.collect()
    second, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert second - first < 50 * 4_000
    assert most < 16 << 20
    assert held_bytes() <= 300_000
