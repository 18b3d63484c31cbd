"""The rows of a unit under bounds by groups, on every engine, against a hand-written choice."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sfumato.domain import Categorical, Date, Domain, Grain, GroupBound, Integer, Unit, Unknown
from sfumato.domain.hierarchy.levels import Hierarchy
from sfumato.domain.predicate import Among
from sfumato.domain.unit import SizeOf
from sfumato.engine.encoded import EncodedRows
from sfumato.engine.exact import reveal
from sfumato.engine.open import open_table

FIRST, LAST = date(2023, 11, 20), date(2024, 3, 10)
DAY = Date(name="day", first=FIRST, last=LAST, by=Grain.DAY, unknown=Unknown.DROP, nullable=True)
WORD = Categorical(name="word", values=("a", "b", "c"), unknown=Unknown.CATEGORY)
FLAG = Categorical(name="flag", values=(False, True), unknown=Unknown.CATEGORY)
LETTERS = Hierarchy.parse(
    {"attribute": "word", "rows": [["a", "x"], ["b", "y"], ["c", "x"], ["(other)", "y"]], "levels": ["letter"]}
)
MONTH = GroupBound(("month(day)",), rows=3, groups=2)
BOUNDS = {
    "months": (MONTH,),
    "words": (GroupBound(("word",), rows=2),),
    "weekdays and letters": (GroupBound(("weekday(day)", "letter(word)"), rows=1, groups=4),),
    "several": (MONTH, GroupBound(("word",), rows=4, groups=2), GroupBound(("flag",), rows=5)),
}


def domain_of(per: Sequence[GroupBound], rows: int = 9) -> Domain:
    return Domain((DAY, WORD, FLAG), unit=Unit("person", rows=rows, per=per), hierarchies=(LETTERS,))


def people(odd: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of few and of many a person, some of them alike, some without an id or a day."""
    rows, base = [], odd[0]
    for person in range(24):
        for place in range(1 + (person * 7) % 31):
            day = FIRST + timedelta(days=(person * 13 + place * place * 5) % ((LAST - FIRST).days + 1))
            own = {"day": None if (person + place) % 17 == 0 else day, "word": "abcz"[place * place % 4]}
            name = None if person == 5 else f"p{person}"
            rows.append(base | own | {"person": name, "flag": [True, False, None][(place + person) % 3]})
    return rows


def md5(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()  # noqa: S324 - as engines order rows


def chosen(domain: Domain, rows: Sequence[dict[str, Any]]) -> tuple[Counter[tuple[int, ...]], list[int]]:
    """Codes of the rows that are kept with their number, and of each person how many are not, one row at a time."""
    salt, days = domain.hash[:16], (LAST - FIRST).days + 1
    held: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for row in rows:
        if row["person"] is not None:
            day = days if row["day"] is None else (row["day"] - FIRST).days
            flag = 2 if row["flag"] is None else int(row["flag"])
            held[row["person"]].append((day, "abc".find(row["word"]) % 4, flag))
    kept: Counter[tuple[int, ...]] = Counter()
    left_out = []
    for person, own in held.items():
        ordered: list[tuple[str, tuple[int, int, int]]] = []
        for codes, times in Counter(own).items():
            content = md5(f"{salt}{person}|{' '.join(map(str, codes))}")
            ordered += [(md5(f"{content}{time}"), codes) for time in range(1, times + 1)]
        ordered.sort()
        for bound in domain.unit.per:
            cells = [cell_of(domain, bound, codes) for _, codes in ordered]
            order = sorted({*cells}, key=lambda cell: md5(f"{salt}{person}|{cell}"))
            allowed = {*order[: bound.groups]}
            within: Counter[int] = Counter()
            left = []
            for each, cell in zip(ordered, cells, strict=True):
                within[cell] += 1
                if cell in allowed and within[cell] <= bound.rows:
                    left.append(each)
            ordered = left
        final = ordered[: domain.unit.rows]
        kept.update(codes for _, codes in final)
        left_out.append(len(own) - len(final))
    return kept, left_out


def cell_of(domain: Domain, bound: GroupBound, codes: tuple[int, int, int]) -> int:
    """The number of a cell: mixed radix in the order of the names."""
    day, word, flag = codes
    missing = day == (LAST - FIRST).days + 1
    at = FIRST + timedelta(days=day)
    found = 0
    for name in bound.by:
        number, size = {
            "month(day)": (5 if missing else (at.year - 2023) * 12 + at.month - 11, 6),
            "weekday(day)": (7 if missing else at.weekday(), 8),
            "word": (word, 4),
            "letter(word)": ([0, 1, 0, 1][word], 2),
            "flag": (flag, 3),
        }[name]
        found = found * size + number
    return found


def checked(adapter, rows: Sequence[dict[str, Any]], folder, per: Sequence[GroupBound]) -> None:
    """An engine keeps what the choice by hand keeps, and says how much it leaves out."""
    domain = domain_of(per)
    kept, left_out = chosen(domain, rows)
    expected = np.zeros(domain.shape, dtype=np.int64)
    for codes, times in kept.items():
        expected[codes] = times
    table = adapter.open(rows, folder)
    encoded = table.encode(domain)
    np.testing.assert_array_equal(reveal(encoded.marginals([domain.names])[0]), expected.reshape(-1))
    assert sum(left_out) > 20
    assert reveal(encoded.dropped(10**6)).tolist() == [sum(left_out)]
    assert reveal(encoded.dropped(1)).tolist() == [sum(map(bool, left_out))]
    every = table.encode(domain_of((), rows=10**6))
    where = Among("flag", frozenset({0}))
    inside = [int(reveal(each.marginals([()], where)[0])[0]) for each in (every, encoded)]
    assert reveal(encoded.dropped(10**6, where)).tolist() == [inside[0] - inside[1]]


@pytest.mark.parametrize("per", BOUNDS.values(), ids=BOUNDS)
def test_the_rows_that_are_kept_are_those_of_the_order_on_every_engine(adapter, rows, tmp_path, per) -> None:
    checked(adapter, people(rows), tmp_path, per)


def test_the_rows_that_are_kept_do_not_depend_on_order_or_on_other_units(adapter, rows, tmp_path) -> None:
    domain, every = domain_of(BOUNDS["several"]), people(rows)
    found = {}
    parts = {
        "all": every,
        "backwards": every[::-1],
        "without": [row for row in every if row["person"] != "p13"],
        "alone": [row for row in every if row["person"] == "p13"],
    }
    for name, some in parts.items():
        (tmp_path / name).mkdir()
        found[name] = reveal(adapter.open(some, tmp_path / name).encode(domain).marginals([domain.names])[0])
    np.testing.assert_array_equal(found["all"], found["backwards"])
    np.testing.assert_array_equal(found["all"], found["without"] + found["alone"])


def test_every_bound_holds_of_what_is_kept(rows) -> None:
    """The hand-written choice satisfies every bound; all engines must agree with it."""
    for per in BOUNDS.values():
        for person in range(24):
            own = [row for row in people(rows) if row["person"] == f"p{person}"]
            kept, _ = chosen(domain_of(per), own)
            assert sum(kept.values()) <= 9
            for bound in per:
                cells: Counter[int] = Counter()
                for codes, times in kept.items():
                    cells[cell_of(domain_of(per), bound, codes)] += times
                assert max(cells.values(), default=0) <= bound.rows
                assert bound.groups is None or len(cells) <= bound.groups


def test_a_unit_without_bounds_by_groups_keeps_the_rows_that_it_always_kept(adapter, rows, tmp_path) -> None:
    """The order by content alone: what earlier journals counted is counted again."""
    domain = domain_of(())
    kept, _ = chosen(domain, people(rows))
    found = reveal(adapter.open(people(rows), tmp_path).encode(domain).marginals([domain.names])[0])
    assert found.sum() == sum(kept.values())
    assert {*np.flatnonzero(found)} == {int(np.ravel_multi_index(codes, domain.shape)) for codes in kept}


def test_the_whole_table_under_bounds_by_groups_has_the_rows_that_the_domain_drops(adapter, rows, tmp_path) -> None:
    every = people(rows)
    attributes = (replace(DAY, nullable=False), WORD, FLAG)
    domain = Domain(attributes, unit=Unit("person", rows=9, per=BOUNDS["several"]), hierarchies=(LETTERS,))
    encoded = adapter.open(every, tmp_path).encode(domain)
    owned = sum(row["person"] is not None for row in every)
    kept, cut = reveal(encoded.marginals([()])[0])[0], reveal(encoded.dropped(10**6))[0]
    missing = sum(row["person"] is not None and row["day"] is None for row in every)
    assert kept + cut + missing == owned
    assert reveal(encoded.rows_before_drop()) == kept + missing
    assert reveal(encoded.unbounded()) == len(every)


def test_units_by_their_number_of_rows_are_counted_before_any_bound(adapter, rows, tmp_path) -> None:
    every = people(rows)
    held = Counter(row["person"] for row in every if row["person"] is not None)
    starts = (1, 2, 5, 12, 25)
    wanted = np.histogram(list(held.values()), [*starts, 10**6])[0]
    domain = domain_of(BOUNDS["several"])
    encoded = adapter.open(every, tmp_path).encode(domain)
    assert reveal(encoded.unit_sizes(starts, SizeOf())).tolist() == wanted.tolist()
    for bound in (MONTH, *BOUNDS["weekdays and letters"]):
        own: dict[str, Counter[int]] = defaultdict(Counter)
        for row in every:
            day = (LAST - FIRST).days + 1 if row["day"] is None else (row["day"] - FIRST).days
            codes = (day, "abc".find(row["word"]) % 4, 2 if row["flag"] is None else int(row["flag"]))
            if row["person"] is not None:
                own[row["person"]][cell_of(domain, bound, codes)] += 1
        for of, sizes in (
            (SizeOf(bound.by, cells=True), [len(cells) for cells in own.values()]),
            (SizeOf(bound.by), [max(cells.values()) for cells in own.values()]),
        ):
            wanted = np.histogram(sizes, [*starts, 10**6])[0]
            assert reveal(encoded.unit_sizes(starts, of)).tolist() == wanted.tolist(), of


@pytest.mark.parametrize(("rows", "groups"), [(1, 4), (4, 1), (2, 3), (3, 2), (2, None)])
def test_units_with_few_rows_are_cut_by_groups_too(rows: int, groups: int | None) -> None:
    """Units of every small shape have several rows in one cell, and one row in each of several other cells."""
    shapes = [(same, others) for same in range(1, 6) for others in range(5)]
    people = [(who, cell) for who, (same, more) in enumerate(shapes) for cell in [0] * same + [*range(1, more + 1)]]
    kind = Integer(name="kind", minimum=0, maximum=5, unknown=Unknown.DROP)
    unit = Unit("id", rows=100, per=[GroupBound(("kind",), rows=rows, groups=groups)])
    table = pa.table({"id": [who for who, _ in people], "kind": [cell for _, cell in people]})
    encoded = open_table(table).encode(Domain((kind,), unit=unit))
    assert isinstance(encoded, EncodedRows)
    text = f"SELECT u, c0, COUNT(*) AS n FROM {encoded.store.relation} GROUP BY u, c0"  # noqa: S608
    found = encoded.store.query(text).to_pylist()
    for who, (_, others) in enumerate(shapes):
        cells = [row["n"] for row in found if row["u"] == str(who)]
        assert len(cells) == min(others + 1, groups or others + 1)
        assert max(cells) <= rows
