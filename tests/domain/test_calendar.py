"""The calendar against Python's own formats, and dates in domains and their documents."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from jsonschema import Draft202012Validator

from sfumato.domain import Categorical, Date, Domain, Grain, Integer, Real, Role, Timestamp, Unknown, dump, parse
from sfumato.domain.calendar import DAY, calendar_map, clock_changes, maps
from sfumato.domain.document import schema
from sfumato.domain.hierarchy import DateLevel, Hierarchy, draft
from sfumato.errors import DomainError
from sfumato.strict_documents import read_yaml

C = Unknown.CATEGORY
ADMITTED = Date(
    name="admitted", first=date(2023, 1, 15), last=date(2024, 12, 30), by=Grain.DAY, unknown=C, nullable=True
)
SEEN = Timestamp(
    name="seen",
    first=date(2023, 3, 1),
    last=date(2023, 4, 2),
    by=Grain.HOUR,
    zone="Europe/Zurich",
    unknown=Unknown.DROP,
)
FORMATS = {  # each map of an hour as a format of strftime
    "hour": "%Y-%m-%dT%H",
    "day": "%Y-%m-%d",
    "week": "%G-W%V",
    "month": "%Y-%m",
    "year": "%Y",
    "hour_of_day": "%H",
    "weekday": "%A",
    "day_of_month": "%d",
    "day_of_year": "%j",
    "week_of_year": "%V",
    "month_of_year": "%m",
    "isoyear": "%G",
}
NUMBERS = ("hour_of_day", "day_of_month", "day_of_year", "week_of_year", "month_of_year", "isoyear", "quarter_of_year")


@pytest.mark.parametrize("by", list(Grain))
def test_each_map_of_each_grain_says_what_the_calendar_says_of_each_hour(by):
    first, last = date(2019, 12, 20), date(2021, 1, 12)
    origin = by.of(first)
    periods = (origin, by.of(last, 23))
    names = maps(by)
    found = {name: calendar_map(name, by, *periods) for name in names}
    clock = datetime(2019, 12, 20, tzinfo=UTC)
    while clock.date() <= last:
        code = by.of(clock.date(), clock.hour) - origin
        for name, each in found.items():
            label = each.labels[each.cells[code]]
            if name.startswith("quarter"):
                quarter = str((clock.month - 1) // 3 + 1)
                assert label == (quarter if name == "quarter_of_year" else f"{clock:%Y}-Q{quarter}")
            else:
                said = clock.strftime(FORMATS[name])
                assert label == (str(int(said)) if name in NUMBERS else said), (name, clock)
        clock += timedelta(hours=1)
    for name, each in found.items():
        assert len(each.labels) == len(each.numbers) == len(set(each.labels)) == max(each.cells) + 1
        assert list(each.numbers) == sorted(set(each.numbers))
        if name in NUMBERS:
            assert each.labels == tuple(map(str, each.numbers))


def test_no_map_is_offered_that_a_cell_would_be_cut_by():
    """A map is offered just where each period of the grain lies in one cell of it, over 28 years of days."""
    days = [date(1999, 12, 27) + timedelta(days=number) for number in range(28 * 366)]
    for by in list(Grain)[1:]:
        for name in maps(Grain.DAY):
            form = FORMATS.get(name)
            cells: dict[int, set[str]] = {}
            for day in days:
                quarter = f"{(day.month + 2) // 3}"
                said = day.strftime(form) if form else quarter if name == "quarter_of_year" else f"{day.year}{quarter}"
                cells.setdefault(by.of(day), set()).add(said)
            whole = all(len(said) == 1 for said in cells.values())
            assert (name in maps(by)) == whole, (by, name)


@pytest.mark.parametrize("zone", ["Europe/Zurich", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "UTC"])
def test_clock_changes_against_each_half_hour(zone):
    first, last = date(2011, 6, 1), date(2012, 6, 30)
    changes = clock_changes(zone, first, last)
    clock = datetime(2011, 5, 31, tzinfo=UTC)
    while clock.date() <= last:
        second = clock.toordinal() * DAY + clock.hour * 3600 + clock.minute * 60
        ahead = [offset for begin, offset in changes if begin <= second][-1]
        assert timedelta(seconds=ahead) == clock.astimezone(ZoneInfo(zone)).utcoffset(), clock
        clock += timedelta(minutes=30)


def test_cells_and_their_bounds_cover_the_days_once():
    for by in list(Grain)[1:]:
        attribute = replace(ADMITTED, by=by)
        covered = []
        for code in range(attribute.declared):
            low, high = attribute.bounds(code)
            assert attribute.span(code) == (low.toordinal(), high.toordinal() + 1)
            covered += range(low.toordinal(), high.toordinal() + 1)
        assert covered == list(range(ADMITTED.first.toordinal(), ADMITTED.last.toordinal() + 1))
        seen = replace(SEEN, by=by)
        spans = [seen.span(code) for code in range(seen.declared)]
        assert spans[0][0] == SEEN.first.toordinal() * DAY
        assert spans[-1][1] == (SEEN.last.toordinal() + 1) * DAY
        assert all(before[1] == after[0] for before, after in pairwise(spans))
    assert SEEN.declared == 33 * 24  # what the clocks skip on 26 March has a cell that stays empty
    assert (ADMITTED.size, SEEN.size) == (ADMITTED.declared + 2, SEEN.declared)


def test_groupings_keep_the_cells_beside():
    domain = Domain((ADMITTED, SEEN))
    month = domain.grouping(" MONTH( admitted ) ")
    assert (month.name, month.attribute) == ("month(admitted)", "admitted")
    assert month.labels[:2] == ("2023-01", "2023-02")
    assert month.labels[-2:] == ("(missing)", "(other)")
    assert month.groups[16:18] == (0, 1)
    assert month.groups[-2:] == (24, 25)
    with pytest.raises(DomainError, match="a date by hour has no fortnight"):
        domain.grouping("fortnight(seen)")
    with pytest.raises(DomainError, match="a date by week has no month; it has week, week_of_year, isoyear"):
        Domain((replace(ADMITTED, by=Grain.WEEK),)).grouping("month(admitted)")


def test_a_declared_hierarchy_comes_before_the_calendar():
    years = replace(ADMITTED, by=Grain.YEAR, nullable=False)
    named = Hierarchy.from_rows("admitted", [["2023", "then", "*"], ["2024", "now", "*"]], names=["year"])
    assert Domain((years,), hierarchies=(named,)).grouping("year(admitted)").labels[:2] == ("then", "now")
    named = replace(named, names=("era",))
    assert Domain((years,), hierarchies=(named,)).grouping("year(admitted)").labels[:2] == ("2023", "2024")
    with pytest.raises(DomainError, match="no level 'age' of 'admitted'; it has era"):
        Domain((years,), hierarchies=(named,)).grouping("age(admitted)")


def test_drafted_hierarchies_follow_the_calendar():
    found = draft(ADMITTED)
    assert found.level_names == ("month", "quarter", "year")
    assert found.rows()[16] == ["2023-01-31", "2023-01", "2023-Q1", "2023", "*"]
    assert draft(replace(ADMITTED, by=Grain.QUARTER)).level_names == ("year",)
    assert draft(replace(SEEN, by=Grain.HOUR)).rows()[0][:2] == ["2023-03-01T00", "2023-03-01"]
    weeks = draft(replace(ADMITTED, by=Grain.WEEK))
    assert weeks.rows()[0][-1] == "*"
    assert draft(replace(ADMITTED, first=date(2023, 1, 1), last=date(2023, 1, 1))).rows() == [["2023-01-01", "*"]]


DRAFTED = [
    *(replace(ADMITTED, by=by) for by in Grain if by is not Grain.HOUR),
    *(replace(SEEN, by=by) for by in Grain),
    Categorical(name="sex", values=("F", "M", "2023"), unknown=C, nullable=True),
    Categorical(name="smokes", values=(True, False), unknown=C),
    Integer(name="age", minimum=0, maximum=99, unknown=Unknown.CLAMP),
    Integer(name="rooms", minimum=1, maximum=50, edges=(1, 2, 5, 10, 50), unknown=C),
    Real(name="income", edges=(0.0, 1e4, 2.5e4, 1e6), unknown=C),
]


@pytest.mark.parametrize("attribute", DRAFTED, ids=lambda each: f"{each.name}-{getattr(each, 'by', '')}")
def test_drafted_hierarchies_are_written_and_read_back(attribute, tmp_path):
    path = tmp_path / "levels.yaml"
    path.write_text(draft(attribute).dump(), encoding="utf-8")
    assert Hierarchy.read(path) == draft(attribute)
    assert Hierarchy.read(path).level_names == draft(attribute).level_names


def test_names_of_levels_that_are_an_enum_are_written_as_texts():
    named = Hierarchy.from_rows("born", [["2023", "20s", "*"], ["2024", "20s", "*"]], names=[DateLevel.DECADE])
    assert Hierarchy.parse(read_yaml(named.dump())) == named


DOCUMENT = """
sfumato: 1
unit: row
attributes:
  admitted: {type: date, first: 2023-01-15, last: 2024-12-30, by: day, unknown: category, nullable: true}
  seen: {type: timestamp, first: '2023-03-01', last: 2023-04-02, by: hour, zone: Europe/Zurich, unknown: drop}
"""


def test_documents_are_read_and_written():
    document = read_yaml(DOCUMENT)
    domain = parse(document)
    assert domain == Domain((ADMITTED, SEEN))
    assert parse(read_yaml(dump(domain))) == domain
    assert parse(domain.describe()).hash == domain.hash
    assert Draft202012Validator(schema()).is_valid(domain.describe())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"first": None}, "still needs its first and its last day"),
        ({"last": "2023-02-30"}, "a first or last day that no calendar has: 2023-02-30"),
        ({"last": "30.12.2024"}, "wrong at attributes.admitted.last"),
        ({"first": 2023}, "wrong at attributes.admitted.first"),
        ({"first": datetime(2023, 1, 15, tzinfo=UTC)}, "wrong at attributes.admitted.first"),
        ({"first": "2025-01-01"}, "has its first day after its last"),
        ({"last": "9999-12-31"}, "'admitted' must be before the year 9999"),
        ({"by": "fortnight"}, "'fortnight' is not one of"),
        ({"by": "hour"}, "'hour' is not one of"),
        ({"zone": "UTC"}, "wrong at attributes.admitted"),
        ({"type": "timestamp"}, "'zone' is a required property"),
        ({"type": "timestamp", "zone": "Europe/Zurih"}, "did you mean Europe/Zurich"),
        ({"type": "timestamp", "zone": "../etc"}, "names no time zone"),
        ({"unknown": "ignore"}, "'ignore' is not one of"),
        ({"role": "weight"}, "wrong at attributes.admitted.role"),
    ],
)
def test_wrong_dates_in_documents_are_refused(change, said):
    document = read_yaml(DOCUMENT)
    document["attributes"]["admitted"] |= change
    with pytest.raises(DomainError, match=said.replace("(", r"\(")):
        parse(document)


def test_wrong_dates_in_python_are_refused():
    with pytest.raises(DomainError, match="make it a timestamp"):
        replace(ADMITTED, by=Grain.HOUR)
    with pytest.raises(DomainError, match="are dates, such as"):
        replace(ADMITTED, first=datetime(2023, 1, 15, tzinfo=UTC))
    with pytest.raises(DomainError, match="Grain"):
        replace(ADMITTED, by="day")
    with pytest.raises(DomainError, match="only a number"):
        replace(ADMITTED, role=Role.WEIGHT)
    assert replace(ADMITTED, role=Role.TARGET).describe()["role"] == "target"


def test_a_domain_without_dates_is_called_what_it_was():
    sex = Categorical(name="sex", values=("F", "M"), unknown=C)
    assert Domain((sex,)).hash == "fd52f5f9a5187e7fa5c21bc32d3e11d06b60b14e012e9e0c397feefc80468928"
