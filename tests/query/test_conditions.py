"""Conditions on drawn domains against Python's own comparison of every value that a cell can hold.

The oracle knows no codes, no ranges and no predicates: it compares witnesses, the values at both ends of a cell and
between them, and joins the verdicts by the tables of Kleene's logic.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sfumato.domain import Categorical, Date, Domain, Grain, Integer, Real, Timestamp, Unknown
from sfumato.domain.hierarchy.levels import Hierarchy
from sfumato.domain.predicate import Among, CodeRanges, Predicate, holds_at_cells
from sfumato.engine.contingency import condition as as_sql
from sfumato.errors import QueryError
from sfumato.query.question import count
from sfumato.query.statements.sql_condition import condition, parsed, read_condition
from sfumato.query.statements.three_valued_logic import normal
from sfumato.vault.measurables import where_json

MISSING, OTHER = object(), object()
Verdict = bool | None
SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
EDGES = [-1.5, -0.1, 0.0, 0.1, 0.3, 1.0, 2.5, 1e3]
NEAR = [edge + more for edge in EDGES for more in (0, 0.05, -0.05)]  # what numbers are compared with
MOMENTS = [*(timedelta(minutes=n) for n in (0, 15, 30, 45)), timedelta(minutes=60, microseconds=-1)]
HIERARCHY = Hierarchy.from_rows("c", [["a", "x"], ["b", "x"], ["o'k", "y"]], names=["chapter"])


# --- what cells hold --------------------------------------------------------------------------------------------------


def witnesses(attribute: Any) -> list[list[Any]]:
    """Return, per cell, values that decide every comparison; numbers and dates are compared near edges."""
    match attribute:
        case Categorical():
            cells = [[value] for value in attribute.values]
        case Integer():
            starts = attribute.edges or range(attribute.minimum, attribute.maximum + 1)
            values = range(attribute.minimum, attribute.maximum + 1)
            cells = [
                [v for v in values if sum(start <= v for start in starts) == place + 1] for place in range(len(starts))
            ]
        case Real(edges=edges):
            cells = []
            for low, high in pairwise(edges):
                inside = [near for near in NEAR if low <= near < high]
                cells.append([low, *inside, math.nextafter(high, -math.inf)])
            if edges[-2] not in attribute.points:  # behind a point at the end there is nothing
                cells[-1].append(edges[-1])
        case Date():
            days = [attribute.first + timedelta(days=n) for n in range((attribute.last - attribute.first).days + 1)]
            cells = grouped(days, lambda day: period(attribute.by, day))
        case Timestamp():
            hours = 24 * ((attribute.last - attribute.first).days + 1)
            begun = [datetime.combine(attribute.first, datetime.min.time()) + timedelta(hours=n) for n in range(hours)]
            moments = [each + more for each in begun for more in MOMENTS]
            cells = grouped(moments, lambda moment: period(attribute.by, moment))
    cells += [[MISSING]] if attribute.nullable else []
    return cells + ([[OTHER]] if attribute.unknown is Unknown.CATEGORY else [])


def grouped(values: list[Any], key: Callable[[Any], Any]) -> list[list[Any]]:
    cells: dict[Any, list[Any]] = {}
    for value in values:
        cells.setdefault(key(value), []).append(value)
    return list(cells.values())


def period(by: Grain, day: Any) -> Any:
    return {
        Grain.HOUR: lambda: (day.date(), day.hour),
        Grain.DAY: lambda: day.timetuple()[:3],
        Grain.WEEK: lambda: day.isocalendar()[:2],
        Grain.MONTH: lambda: (day.year, day.month),
        Grain.QUARTER: lambda: (day.year, (day.month - 1) // 3),
        Grain.YEAR: lambda: day.year,
    }[by]()


# --- what conditions say ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Atom:
    """A comparison as text, its attribute, and its result for one value."""

    text: str
    of: str
    says: Callable[[Any], Verdict]
    each: tuple[
        Atom, ...
    ] = ()  # comparisons that it lists: a cell that one of them cuts is cut, whatever the others say


def atoms(attribute: Any) -> st.SearchStrategy[Atom]:
    name = attribute.name
    return st.one_of(
        st.just(Atom(f"{name} IS NULL", name, lambda value: value is MISSING)),
        st.just(Atom(f"{name} IS NOT NULL", name, lambda value: value is not MISSING)),
        compared(
            name, name, literals(attribute), list(SIGNS) if not isinstance(attribute, Categorical) else ["=", "<>"]
        ),
        listed(name, literals(attribute), categorical=isinstance(attribute, Categorical)),
        *([halves(attribute)] if isinstance(attribute, Integer) else []),
        *([levels(name)] if isinstance(attribute, Categorical) and attribute.name == "c" else []),
        *(
            [parts(attribute)]
            if isinstance(attribute, Date | Timestamp) and attribute.by in (Grain.HOUR, Grain.DAY)
            else []
        ),
    )


def compared(spoken: str, of: str, wanted: Any, signs: list[str], seen: Any = lambda value: value) -> Any:
    def atom(sign: str, literal: tuple[str, Any]) -> Atom:
        return Atom(f"{spoken} {sign} {literal[0]}", of, lambda value: verdict(seen, value, SIGNS[sign], literal[1]))

    return st.builds(atom, st.sampled_from(signs), wanted)


def verdict(seen: Any, value: Any, how: Callable[[Any, Any], bool], wanted: Any) -> Verdict:
    if value is MISSING:
        return None
    if value is OTHER:  # no declared value of a category; unknown numbers and dates have no position
        return None if not isinstance(wanted, str | bool) else how is operator.ne
    return how(seen(value), wanted)


def listed(name: str, wanted: Any, *, categorical: bool) -> Any:
    def atom(values: list[tuple[str, Any]], *, negated: bool) -> Atom:
        def says(value: Any) -> Verdict:
            if value is MISSING or (value is OTHER and not categorical):
                return None
            return (value is not OTHER and any(value == each for _, each in values)) != negated

        text = f"{name} {'NOT ' if negated else ''}IN ({', '.join(text for text, _ in values)})"
        return Atom(text, name, says, tuple(Atom("", name, lambda value, one=one: value == one[1]) for one in values))

    return st.builds(atom, st.lists(wanted, min_size=1, max_size=6), negated=st.booleans())


def literals(attribute: Any) -> st.SearchStrategy[tuple[str, Any]]:
    """Texts of literals, and what values of the attribute are compared with."""
    match attribute:
        case Categorical(values=values):
            spelled = [(f"'{v.replace(chr(39), chr(39) * 2)}'" if isinstance(v, str) else str(v), v) for v in values]
            return st.sampled_from(spelled)
        case Integer():
            number = st.integers(attribute.minimum - 2, attribute.maximum + 2)
            return number.map(lambda n: (str(n), Fraction(n)))
        case Real():
            return st.sampled_from(NEAR).map(lambda x: (format(x, ".20f").rstrip("0") + "0", float(x)))
        case Date():
            day = st.integers(-3, (attribute.last - attribute.first).days + 3)
            return day.map(lambda n: attribute.first + timedelta(days=n)).map(lambda d: (f"DATE '{d}'", d))
        case Timestamp():
            quarter = st.integers(-9, 96 * ((attribute.last - attribute.first).days + 1) + 9)
            midnight = datetime.combine(attribute.first, datetime.min.time())
            moment = quarter.flatmap(lambda n: st.sampled_from([n, n - n % 4, n - n % 96]))
            return moment.map(lambda n: midnight + timedelta(minutes=15 * n)).map(lambda m: (f"TIMESTAMP '{m}'", m))
    raise AssertionError(attribute)


def halves(attribute: Integer) -> Any:
    """Comparisons with numbers that no value is equal to."""
    odd = st.integers(attribute.minimum - 1, attribute.maximum + 1).map(lambda n: n + Fraction(1, 2))
    return compared(attribute.name, attribute.name, odd.map(lambda n: (str(float(n)), n)), ["<", "<=", ">", ">="])


def levels(name: str) -> Any:
    upper = {"a": "x", "b": "x", "o'k": "y"}

    def says(label: str, how: Callable[[Any, Any], bool]) -> Callable[[Any], Verdict]:
        return lambda value: (
            None if value is MISSING else how is operator.ne if value is OTHER else how(upper[value], label)
        )

    return st.builds(
        lambda label, sign: Atom(f"chapter({name}) {sign} '{label}'", name, says(label, SIGNS[sign])),
        st.sampled_from(["x", "y"]),
        st.sampled_from(["=", "<>"]),
    )


def parts(attribute: Any) -> Any:
    name, signs = attribute.name, list(SIGNS)
    numbers = {
        f"EXTRACT(MONTH FROM {name})": (lambda day: day.month, 1, 12),
        f"EXTRACT(ISODOW FROM {name})": (lambda day: day.isoweekday(), 1, 7),
        f"day_of_month({name})": (lambda day: day.day, 1, 31),
        f"year({name})": (lambda day: day.year, 2019, 2023),
    } | ({f"EXTRACT(HOUR FROM {name})": (lambda day: day.hour, 0, 23)} if attribute.by is Grain.HOUR else {})
    found = [
        compared(spoken, name, st.integers(low, high).map(lambda n: (str(n), n)), signs, seen)
        for spoken, (seen, low, high) in numbers.items()
    ]
    month = (
        st.integers(0, 40)
        .map(lambda n: date(2019 + n // 12, n % 12 + 1, 1))
        .map(lambda d: (f"DATE '{d}'", (d.year, d.month)))
    )
    found.append(compared(f"DATE_TRUNC('month', {name})", name, month, signs, lambda day: (day.year, day.month)))
    return st.one_of(found)


@dataclass(frozen=True)
class Joined:
    """A condition made of others."""

    word: str
    parts: tuple[Any, ...]

    @property
    def text(self) -> str:
        if self.word == "NOT":
            return f"NOT ({self.parts[0].text})"
        return f"({f' {self.word} '.join(part.text for part in self.parts)})"


def conditions(domain: Domain) -> st.SearchStrategy[Any]:
    return st.recursive(
        st.one_of([atoms(each) for each in domain]),
        lambda inner: st.one_of(
            inner.map(lambda one: Joined("NOT", (one,))),
            st.builds(Joined, st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=4).map(tuple)),
        ),
        max_leaves=8,
    )


TRUE, FALSE, UNKNOWN, CUT = 1, -1, 0, 9


def leaves(asked: Any) -> Iterator[Atom]:
    if isinstance(asked, Atom):
        yield from asked.each or (asked,)
    else:
        for part in asked.parts:
            yield from leaves(part)


def of_cells(atom: Atom, domain: Domain) -> NDArray[np.int64]:
    """Return the result of an atom for each cell of its attribute."""
    found = []
    for values in witnesses(domain[atom.of]):
        said = {atom.says(value) for value in values}
        found.append({True: TRUE, False: FALSE, None: UNKNOWN}[said.pop()] if len(said) == 1 else CUT)
    return np.array(found)


def expected(asked: Any, domain: Domain) -> NDArray[np.int64]:
    """Return the result of a condition for each combination of cells. In Kleene's logic AND is the minimum and OR the
    maximum.
    """
    if isinstance(asked, Atom):
        return of_cells(asked, domain).reshape([-1 if name == asked.of else 1 for name in domain.names])
    found = [expected(part, domain) for part in asked.parts]
    if asked.word == "NOT":
        return -found[0]
    joined = np.minimum if asked.word == "AND" else np.maximum
    whole = found[0]
    for each in found[1:]:
        whole = joined(whole, each)
    return whole


# --- drawn domains ----------------------------------------------------------------------------------------------------

unknowns = st.sampled_from([Unknown.DROP, Unknown.CATEGORY])
categories = st.builds(
    lambda values, unknown, nullable: Categorical(name="c", values=values, unknown=unknown, nullable=nullable),
    st.just(("a", "b", "o'k")),
    unknowns,
    st.booleans(),
)
truths = st.builds(
    lambda unknown, nullable: Categorical(name="t", values=(True, False), unknown=unknown, nullable=nullable),
    unknowns,
    st.booleans(),
)


@st.composite
def integers(draw: Any) -> Integer:
    low = draw(st.integers(-4, 3))
    high = low + draw(st.integers(0, 9))
    inner = draw(st.sets(st.integers(low, high), max_size=4))
    edges = draw(st.sampled_from([None, (low, *sorted(inner - {low}))]))
    unknown = draw(st.sampled_from(list(Unknown)))
    return Integer(name="i", minimum=low, maximum=high, edges=edges, unknown=unknown, nullable=draw(st.booleans()))


@st.composite
def reals(draw: Any) -> Real:
    edges = tuple(sorted(draw(st.sets(st.sampled_from(EDGES), min_size=2, max_size=6))))
    points = tuple(
        sorted(draw(st.sets(st.sampled_from(NEAR).filter(lambda x: edges[0] <= x <= edges[-1]), max_size=2)))
    )
    unknown, nullable = draw(st.sampled_from(list(Unknown))), draw(st.booleans())
    return Real(name="r", edges=edges, points=points, unknown=unknown, nullable=nullable)


@st.composite
def dates(draw: Any) -> Date:
    first = date(2019, 12, 20) + timedelta(days=draw(st.integers(0, 40)))
    by = draw(st.sampled_from([grain for grain in Grain if grain is not Grain.HOUR]))
    last = first + timedelta(days=draw(st.integers(0, 120)))
    return Date(name="d", first=first, last=last, by=by, unknown=draw(unknowns), nullable=draw(st.booleans()))


@st.composite
def stamps(draw: Any) -> Timestamp:
    first = date(2021, 3, 26)  # clocks are set on the 28th
    last = first + timedelta(days=draw(st.integers(0, 4)))
    by, zone = draw(st.sampled_from([Grain.HOUR, Grain.DAY])), draw(st.sampled_from(["UTC", "Europe/Zurich"]))
    return Timestamp(
        name="s", first=first, last=last, by=by, zone=zone, unknown=draw(unknowns), nullable=draw(st.booleans())
    )


@st.composite
def domains(draw: Any) -> Domain:
    kinds = [categories, truths, integers(), reals(), dates(), stamps()]
    chosen = draw(st.lists(st.sampled_from(range(len(kinds))), min_size=1, max_size=2, unique=True))
    attributes = tuple(draw(kinds[place]) for place in chosen)
    return Domain(
        attributes, hierarchies=(HIERARCHY,) if attributes[0].name == "c" or attributes[-1].name == "c" else ()
    )


cases = domains().flatmap(lambda domain: st.tuples(st.just(domain), conditions(domain)))


def from_journal(said: Any, domain: Domain) -> NDArray[np.bool_]:
    """Return where a condition holds, from its form in the journal."""
    if said is None:
        return np.array(True)
    ((kind, value),) = said.items()
    if kind == "among":
        name, ranges = value
        codes = [
            code + step * place
            for first, last, step, number in ((*each, 0, 1)[:4] if len(each) == 2 else each for each in ranges)
            for place in range(number)
            for code in range(first, last + 1)
        ]
        held = np.isin(np.arange(domain[name].size), codes)
        return held.reshape([-1 if each == name else 1 for each in domain.names])
    parts = [from_journal(part, domain) for part in value] if kind != "not" else [from_journal(value, domain)]
    if kind == "not":
        return ~parts[0]
    whole = np.array(kind == "all")
    for part in parts:
        whole = whole & part if kind == "all" else whole | part
    return whole


def counted(predicate: Predicate | None, domain: Domain) -> int:
    """Cells at which an engine finds a condition true."""
    codes = np.indices(domain.shape).reshape(len(domain), -1)
    cells = pa.table({f"c{place}": column for place, column in enumerate(codes)})  # noqa: F841  (DuckDB finds it)
    return duckdb.sql(f"SELECT COUNT(*) FROM cells WHERE {as_sql(predicate, domain)}").fetchall()[0][0]  # noqa: S608


@given(cases)
@settings(max_examples=300, deadline=None)
def test_a_condition_holds_where_all_values_of_its_cells_say_so(case):
    domain, asked = case
    if any(CUT in of_cells(atom, domain) for atom in leaves(asked)):
        with pytest.raises(QueryError, match="cuts the cell"):
            read_condition(asked.text, domain)
        return
    said = np.broadcast_to(expected(asked, domain), domain.shape)
    for text, wanted in ((asked.text, said == TRUE), (f"NOT ({asked.text})", said == FALSE)):
        found = read_condition(text, domain)
        simple = normal(found, domain)
        assert (np.broadcast_to(holds_at_cells(found, domain.names, domain), domain.shape) == wanted).all()
        assert (np.broadcast_to(from_journal(where_json(simple), domain), domain.shape) == wanted).all()
        assert counted(found, domain) == counted(simple, domain) == wanted.sum()
        assert normal(condition(text, parsed(text), domain).true, domain) == simple  # by the parser of SQL as well
        assert count(text).describe(domain)


sets = st.frozensets(st.integers(0, 40), max_size=20)


@given(sets, sets, sets)
def test_ranges_of_codes_are_the_sets_that_they_stand_for(one, other, third):
    left, right = CodeRanges.of(one), CodeRanges.of(other)
    for ranges, codes in (
        (left, one),
        (left & right, one & other),
        (left | right, one | other),
        (left - right, one - other),
    ):
        assert ranges == CodeRanges.of(codes)
        assert (list(ranges), len(ranges), bool(ranges)) == (sorted(codes), len(codes), bool(codes))
        assert all((code in ranges) == (code in codes) for code in range(-1, 43))
        assert list(ranges.bounds) == sorted(set(ranges.bounds))
        mask = np.isin(np.arange(41), list(codes))
        assert CodeRanges.where(mask) == ranges
        assert (ranges.mask(41) == mask).all()
        for kind in (np.uint8, np.uint32):
            assert (ranges.contains(np.arange(41, dtype=kind), 41) == mask).all()
            assert (ranges.contains(np.arange(41, dtype=kind), 1 << 20) == mask).all()  # of a wide column
    assert CodeRanges.union([left, right, CodeRanges.of(third)]) == CodeRanges.of(one | other | third)
    assert CodeRanges.intersection([left, right, CodeRanges.of(third)]) == CodeRanges.of(one & other & third)


@given(sets, st.integers(40, 300))
@settings(max_examples=50, deadline=None)
def test_an_engine_finds_the_same_codes_by_ranges(codes, size):
    domain = Domain((Integer(name="x", minimum=0, maximum=size, unknown=Unknown.CLAMP),))
    spread = {code * 7 % 41 for code in codes} | {code for code in codes if code % 3}
    assert counted(Among("x", spread), domain) == len(spread)


def test_a_comparison_of_a_million_cells_takes_as_little_room_as_one_of_ten():
    """This holds in memory and in the journal, because only the ends of the range are stored."""
    wide = Domain((Integer(name="x", minimum=0, maximum=10**6, unknown=Unknown.CATEGORY, nullable=True),))
    for text in ("x >= 17 AND x < 900000", "x <> 500000", "x IS NOT NULL", "NOT x BETWEEN 3 AND 999999"):
        found = normal(read_condition(text, wide), wide)
        assert isinstance(found, Among)
        assert len(found.codes.bounds) <= 6
        assert len(str(where_json(found))) < 100
