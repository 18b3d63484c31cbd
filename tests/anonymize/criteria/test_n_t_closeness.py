"""(n, t)-closeness against its definition over all sets of tuples around a class, in searches and in recounts."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.anonymize.criteria import test_units as units
from tests.anonymize.criteria.test_criteria import classes_of, ground, histograms, moved, tally, values

import sfumato as sf
from sfumato import anonymize
from sfumato.anonymize.criteria import GroundDistance, NTCloseness
from sfumato.anonymize.criteria.criterion import safe
from sfumato.anonymize.release.request import parse_criterion
from sfumato.domain import Categorical, Domain, Unknown
from sfumato.errors import InputError

distances = st.sampled_from(GroundDistance)


def far(row: list[int], around: list[int], distance: GroundDistance, declared: int) -> float:
    """The earth mover's distance of two histograms, by a linear program."""
    p, q = ([Fraction(count, sum(counts)) for count in counts] for counts in (row, around))
    return moved(p, q, ground(distance, len(row), declared))


@given(
    row=histograms,
    rest=histograms,
    n=st.integers(1, 14),
    t=st.sampled_from([0.1, 0.25, 0.4]),
    declared=values,
    distance=distances,
)
def test_a_class_holds_if_it_or_the_table_is_large_and_close(row, rest, n, t, declared, distance):
    table = [x + y for x, y in zip(row, rest, strict=True)]
    assume(sum(row) > 0)
    gap = far(row, table, distance, declared)
    assume(abs(gap - t) > 1e-6 or n <= sum(row))
    expected = sum(row) >= n or (sum(table) >= n and gap <= t)
    criterion = NTCloseness(n, t, "s", distance)
    assert bool(safe([criterion], classes_of([row], table, [0], declared))[0]) == expected
    assert criterion.is_safe(tally(row, table, sum(row), declared)) == expected


@given(tuples=st.lists(histograms, min_size=2, max_size=4), n=st.integers(1, 14), t=st.sampled_from([0.1, 0.3]))
def test_a_class_that_holds_satisfies_the_published_definition(tuples, n, t):
    """Some set of tuples around the first has n rows and is close, as an enumeration of all sets finds."""
    table = [sum(column) for column in zip(*tuples, strict=True)]
    row = tuples[0]
    assume(sum(row) > 0)
    if not safe([NTCloseness(n, t, "s", GroundDistance.EQUAL)], classes_of([row], table, [0]))[0]:
        return
    around = [
        [sum(column) for column in zip(row, *others, strict=True)]
        for size in range(len(tuples))
        for others in combinations(tuples[1:], size)
    ]
    assert any(sum(each) >= n and far(row, each, GroundDistance.EQUAL, 3) <= t + 1e-9 for each in around)


@given(a=histograms, b=histograms, rest=histograms, n=st.integers(1, 14), distance=distances)
def test_two_classes_that_hold_merge_into_one_that_holds(a, b, rest, n, distance):
    union = [x + y for x, y in zip(a, b, strict=True)]
    table = [x + y for x, y in zip(union, rest, strict=True)]
    assume(sum(union) > 0)
    criteria = [NTCloseness(n, 0.25, "s", distance)]
    assert (
        safe(criteria, classes_of([union], table, [0]))[0]
        or not safe(criteria, classes_of([a, b], table, [0, 0])).all()
    )


@settings(deadline=None)
@given(
    table=units.rows,
    n=st.integers(1, 8),
    grouping=st.lists(st.integers(0, 2), min_size=5, max_size=5),
    values=units.declared,
)
def test_search_and_recount_agree_on_units_of_several_rows(table, n, grouping, values):
    found = units.merged(units.microdata(table, [], values), grouping)
    criterion = NTCloseness(n, 0.3, "s", GroundDistance.EQUAL)
    names = sorted({grouping[row[0]] for row in table})
    for name, holds in zip(names, criterion.safe_classes(found).tolist(), strict=True):
        part = [row for row in table if grouping[row[0]] == name]
        assert criterion.is_safe(units.tally(part, table, 0, values)) == holds
        if len({unit for _, unit, _ in part}) >= n:
            assert holds


def test_a_small_class_that_holds_may_be_spoilt_by_a_merge():
    """So that the search may not count on it when it suppresses."""
    assert not NTCloseness.monotone_with_suppression
    criteria = [NTCloseness(20, 0.1, "s", GroundDistance.EQUAL)]
    assert safe(criteria, classes_of([[5, 5]], [50, 50], [0], 2))[0]
    assert not safe(criteria, classes_of([[14, 5]], [50, 50], [0], 2))[0]


def test_text_is_read_back_and_wrong_text_refused():
    criterion = NTCloseness(30, 0.25, "s", GroundDistance.ORDERED)
    assert criterion.spell() == "n-t-closeness:n=30,t=0.25,sensitive=s,distance=ordered"
    assert parse_criterion(criterion.spell()) == criterion
    for text, message in (
        ("n-t-closeness:n=0,t=0.2,sensitive=s,distance=equal", "n must be at least 1"),
        ("n-t-closeness:n=5,t=2,sensitive=s,distance=equal", "t must lie in"),
        ("n-t-closeness:t=0.2,sensitive=s,distance=equal", "needs 'n'"),
    ):
        with pytest.raises(InputError, match=message):
            parse_criterion(text)


def test_the_search_leaves_large_classes_that_t_closeness_would_merge(tmp_path: Path):
    """Groups A and B have a hundred rows each and are mostly ill and mostly well; the ten rows of C are all ill."""
    ill = ["yes"] * 70 + ["no"] * 30 + ["yes"] * 30 + ["no"] * 70 + ["yes"] * 10
    table = pa.table({"town": ["A"] * 100 + ["B"] * 100 + ["C"] * 10, "ill": ill})
    domain = Domain(
        (
            Categorical(name="town", values=("A", "B", "C"), unknown=Unknown.DROP),
            Categorical(name="ill", values=("yes", "no"), unknown=Unknown.DROP),
        )
    )
    url = f"sqlite:///{tmp_path / 'towns.ledger'}"
    source = sf.open(table, domain=domain, ledger=url, limit=sf.Epsilon(1), create=True)

    def towns(criterion: str) -> dict[str, int]:
        made = anonymize.optimal(
            source, quasi=["town"], criteria=[parse_criterion(criterion)], suppression="0.05", keep=["ill"]
        )
        published = made.rows.to_arrow()["town"].to_pylist()
        return {town: published.count(town) for town in sorted(set(published))}

    assert towns("t-closeness:t=0.1,sensitive=ill,distance=equal") == {"*": 210}
    assert towns("n-t-closeness:n=100,t=0.1,sensitive=ill,distance=equal") == {"A": 100, "B": 100}
