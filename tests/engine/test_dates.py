"""Every engine puts the same dates into the same cells, as Python's calendar and zones do."""

from __future__ import annotations

import itertools
import re
import secrets
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engine import cluster
from tests.engine.conftest import _MADE
from tests.services import require

from sfumato.description.domain_fit import AttributeFit, domain_fit, draft_domain
from sfumato.description.findings import domain_findings
from sfumato.domain import Date, Domain, Grain, Integer, Timestamp, Unit, Unknown
from sfumato.engine.exact import reveal
from sfumato.engine.open import open_table
from sfumato.errors import TableError

C, D, K = Unknown.CATEGORY, Unknown.DROP, Unknown.CLAMP
ZURICH = "Europe/Zurich"
TEXTS = [
    *("2023-03-01", "2023-02-30", "2024-02-29", "2023-02-29", "1900-02-29", "2000-02-29", "1899-12-31", "0001-01-01"),
    *("0000-01-01", "9999-12-31", "2023-13-01", "2023-00-10", "2023-04-31", "2023-3-1", "01/02/2023", "20230301"),
    *("2020-12-31", "2021-01-01", "2021-01-03", "2021-01-04", "2026-12-31", "2027-01-03", " 2023-03-01", "2023-03-01 "),
    *("2023-03-01T", "2023-03-01t08:00", "2023-03-01 08:15", "2023-03-01T23:59:59.999999", "2023-03-01 24:00"),
    *("2023-03-01 08:60", "2023-03-26 01:59:59", "2023-03-26 02:30:00", "2023-03-26 03:00", "2023-03-26T00:59:59Z"),
    *("2023-03-26T01:00:00Z", "2023-10-29 00:59:59+00", "2023-10-29T01:30:00+00:00", "2023-10-29 03:30:00+0200"),
    *("2023-10-28 23:30-01:00", "2023-12-31 23:30:00Z", "2023-12-31 23:30:00-00:30", "1880-05-05 12:00+00:34:08"),
    *("2023-03-01 08:15z", "2023-03-01 08:15+25:00", "", "infinity", "2023-03-01\n", "tomorrow", None),
]
CLOCKS = [
    text and datetime.fromisoformat(text)
    for text in ("2023-03-26T02:30", "2023-10-29T02:30", "2020-12-31T23:59:59", "1880-05-05T12:00", None, "2026-01-01")
]
MOMENTS = [
    *(datetime(2023, 3, 26, 0, 59, 59, tzinfo=UTC), datetime(2023, 3, 26, 1, tzinfo=UTC)),
    *(datetime(2023, 10, 29, 0, 30, tzinfo=UTC), datetime(2023, 10, 29, 1, 30, tzinfo=UTC), None),
    *(datetime(2020, 12, 31, 23, 30, tzinfo=UTC), datetime(1971, 1, 1, tzinfo=UTC), datetime(2037, 6, 1, tzinfo=UTC)),
]
DAYS = [
    text and date.fromisoformat(text)
    for text in ("2024-02-29", "1899-12-31", None, "2021-01-03", "2026-12-31", "0001-01-01", "2023-07-01")
]


def dates() -> list[tuple[str, Date | Timestamp]]:
    """Columns with what they are declared as, all grains and ways with what is out of range among them."""
    wide = Date(name="d", first=date(1880, 2, 10), last=date(2026, 12, 30), by=Grain.DAY, unknown=C, nullable=True)
    clock = Timestamp(
        name="t",
        first=date(2020, 12, 31),
        last=date(2026, 12, 30),
        by=Grain.HOUR,
        zone=ZURICH,
        unknown=C,
        nullable=True,
    )
    some = replace(wide, first=date(2021, 1, 2), last=date(2023, 3, 15))
    grains = [grain for grain in Grain if grain is not Grain.HOUR]
    return [
        *(("text", replace(wide, by=grain)) for grain in grains),
        *(("text", replace(clock, by=grain)) for grain in Grain),
        *((column, replace(some, by=by)) for column, by in zip(("text", "day", "clock"), grains, strict=False)),
        ("day", replace(some, by=Grain.MONTH, unknown=K)),
        ("text", replace(some, by=Grain.WEEK, unknown=C, nullable=False)),
        *(("day", replace(wide, by=grain)) for grain in grains),
        ("clock", replace(wide, by=Grain.DAY)),
        ("clock", replace(clock, first=date(1880, 1, 1), last=date(1881, 1, 1))),
        ("text", replace(clock, first=date(1880, 1, 1), last=date(1881, 1, 1))),
        ("clock", replace(clock, by=Grain.WEEK, zone="UTC")),
        ("day", replace(clock, by=Grain.HOUR)),
        *(("moment", replace(clock, by=grain)) for grain in (Grain.HOUR, Grain.DAY, Grain.YEAR)),
        (
            "moment",
            replace(clock, first=date(1970, 1, 1), last=date(2040, 1, 1), zone="America/New_York", by=Grain.DAY),
        ),
        ("moment", replace(clock, zone="Australia/Lord_Howe", by=Grain.HOUR, unknown=K)),
    ]


_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_CLOCK = re.compile(r"[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?", re.ASCII)
_MARK = re.compile(r"Z|[+-]\d\d(:?\d\d(:\d\d)?)?", re.ASCII)


def shown(attribute: Date | Timestamp, value: object) -> datetime | None:
    """Return the local time of the attribute; None if the value is no date."""
    if isinstance(value, datetime):
        moment = value.astimezone(ZoneInfo(attribute.zone)) if value.tzinfo is not None else value
        return moment.replace(tzinfo=None)
    if isinstance(value, date):
        return datetime.fromisoformat(f"{value.isoformat()}T00:00")
    day = _DAY.match(value)
    clock = _CLOCK.match(value, 10) if day else None
    end = clock.end() if clock else 10
    mark = _MARK.match(value, end) if clock else None
    if day is None or (mark.end() if mark else end) != len(value) or (mark and isinstance(attribute, Date)):
        return None
    try:
        found = datetime.fromisoformat(value[:end][:26])
        if mark is None:
            return found
        ahead = datetime.fromisoformat(f"2000-01-01T00:00{mark[0]}").utcoffset()
        return (found - ahead).replace(tzinfo=UTC).astimezone(ZoneInfo(attribute.zone)).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None


def code(attribute: Date | Timestamp, value: object) -> int | None:
    """Return the cell of a value by the label from Python's formats; None if the row is dropped."""
    labels = _places(attribute)
    unknown = labels.get("(other)")
    if value is None:
        return labels.get("(missing)", unknown)
    clock = shown(attribute, value)
    if clock is None and isinstance(value, str) and value.startswith("0000-01-01"):
        clock = datetime.fromisoformat("0001-01-01")  # the year 0 is no year of Python's; it is before all others
    if clock is None:
        return unknown
    if not attribute.first <= clock.date() <= attribute.last:
        clamped = 0 if clock.date() < attribute.first else attribute.declared - 1
        return clamped if attribute.unknown is K else unknown
    year = f"{clock.year:04}"
    label = {
        Grain.HOUR: f"{clock.date()}T{clock.hour:02}",
        Grain.DAY: str(clock.date()),
        Grain.WEEK: f"{clock.isocalendar()[0]:04}-W{clock.isocalendar()[1]:02}",
        Grain.MONTH: f"{year}-{clock.month:02}",
        Grain.QUARTER: f"{year}-Q{-(-clock.month // 3)}",
        Grain.YEAR: year,
    }[attribute.by]
    return labels[label]


@cache
def _places(attribute: Date | Timestamp) -> dict[str, int]:
    return {label: place for place, label in enumerate(attribute.labels())}


COLUMNS = {"text": TEXTS, "day": DAYS, "clock": CLOCKS, "moment": MOMENTS}
TYPES = {"text": pa.string(), "day": pa.date32(), "clock": pa.timestamp("us"), "moment": pa.timestamp("us", tz="UTC")}
ROWS = len(TEXTS)


def columns(every: int = 1) -> tuple[pa.Table, Domain, list[list[object]]]:
    """A table with a column for each declaration, or every third and so on, and one that numbers the rows; its domain,
    and the values."""
    chosen = dates()[::every]
    values = [[COLUMNS[kind][row % len(COLUMNS[kind])] for row in range(ROWS)] for kind, _ in chosen]
    names = [f"{kind}_{place}" for place, (kind, _) in enumerate(chosen)]
    arrays = [pa.array(held, TYPES[kind]) for held, (kind, _) in zip(values, chosen, strict=True)]
    attributes = [replace(attribute, name=name) for name, (_, attribute) in zip(names, chosen, strict=True)]
    number = Integer(name="number", minimum=0, maximum=ROWS - 1, unknown=D)
    table = pa.table({"number": pa.array(range(ROWS)), **dict(zip(names, arrays, strict=True))})
    return table, Domain((number, *attributes)), values


def _written(table: pa.Table, folder, name):
    pq.write_table(table, folder / name)
    return folder / name


def _database(variable, table, monkeypatch):
    import sqlalchemy as sa
    from sqlalchemy.dialects import mysql

    url = sa.make_url(require(variable))
    maria = url.drivername == "mysql"
    types = {
        "text": sa.String(255),
        "day": sa.Date,
        "clock": sa.DateTime,
        "moment": mysql.TIMESTAMP(fsp=0) if maria else sa.TIMESTAMP(timezone=True),
    }
    engine = sa.create_engine(
        url.set(drivername="mysql+pymysql" if maria else "postgresql+psycopg"), poolclass=sa.NullPool
    )
    name = f"dates_{secrets.token_hex(6)}"
    made = [
        sa.Column(column, sa.BigInteger if column == "number" else types[column.split("_")[0]], nullable=True)
        for column in table.column_names
    ]
    target = sa.Table(name, sa.MetaData(), *made)
    with engine.begin() as connection:
        if maria:
            connection.exec_driver_sql("SET SESSION time_zone = '+00:00'")
        target.create(connection)
        connection.execute(target.insert(), table.to_pylist())
    _MADE.append((url.render_as_string(hide_password=False), name))
    monkeypatch.setenv("PGTZ", "America/New_York")  # the clock of the session decides nothing
    return open_table(url.update_query_dict({"table": name}).render_as_string(hide_password=False))


def _spark(table, folder):
    spark = cluster.session()
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    return open_table(f"spark:{_written(table, folder, 'part.parquet').parent}")


@pytest.mark.parametrize("engine", ["csv", "parquet", "arrow", "pandas", "postgres", "mariadb", "spark"])
def test_the_same_codes_on_every_engine(engine, tmp_path, monkeypatch):
    table, domain, values = columns(4 if engine == "spark" else 1)  # Spark takes seconds to compile each of them
    match engine:
        case "csv":
            rows = (row.values() for row in table.to_pylist())
            lines = [",".join("" if v is None else f'"{v}"' for v in row) for row in rows]
            lines.insert(0, ",".join(table.column_names))
            (tmp_path / "d.csv").write_text("\n".join(lines) + "\n", newline="")
            opened = open_table(tmp_path / "d.csv")
        case "parquet":
            opened = open_table(_written(table, tmp_path, "d.parquet"))
        case "arrow":
            opened = open_table(table)
        case "pandas":
            opened = open_table(table.to_pandas())
        case "spark":
            opened = _spark(table, tmp_path)
        case _:
            opened = _database(f"SFUMATO_TEST_{engine.upper()}", table, monkeypatch)
    found = pa.Table.from_batches(reveal(opened.encode(domain).batches(domain.names))).sort_by("number")
    assert found["number"].to_pylist() == list(range(ROWS))
    for name, held in zip(domain.names[1:], values, strict=True):
        wanted = [code(domain[name], value) for value in held]
        wrong = [value for value, one, other in zip(held, found[name].to_pylist(), wanted, strict=True) if one != other]
        assert not wrong, (domain[name], wrong)


@pytest.mark.parametrize("unknown", list(Unknown))
@pytest.mark.parametrize("nullable", [True, False])
def test_what_is_no_date_or_out_of_range_goes_where_the_domain_says(unknown, nullable):
    attribute = Date(
        name="d", first=date(2021, 1, 2), last=date(2023, 3, 15), by=Grain.QUARTER, unknown=unknown, nullable=nullable
    )
    clock = Timestamp(**{**vars(attribute), "zone": ZURICH})
    for each in (attribute, clock):
        wanted = [cell for value in TEXTS if (cell := code(each, value)) is not None]
        assert sorted(_codes(pa.table({"d": TEXTS}), each)) == sorted(wanted)


def _codes(table: pa.Table, attribute: Date | Timestamp) -> list[int]:
    found = reveal(open_table(table).encode(Domain((attribute,))).batches((attribute.name,)))
    return [value for batch in found for value in batch.column(0).to_pylist()]


@pytest.mark.parametrize("by", [grain for grain in Grain if grain is not Grain.HOUR])
def test_each_day_of_two_centuries_and_of_odd_ones(by):
    first, last = date(1889, 12, 20), date(2101, 3, 5)
    days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    attribute = Date(name="d", first=first, last=last, by=by, unknown=C)
    codes = _codes(pa.table({"d": [str(day) for day in days]}), attribute)
    periods = [by.of(day) for day in days]
    assert codes == [period - periods[0] for period in periods]
    assert codes[0] == 0
    assert codes[-1] == attribute.declared - 1
    assert sorted(set(codes)) == list(range(attribute.declared))  # no cell is empty, and neighbors follow each other


def test_just_the_days_of_the_calendar_are_dates():
    years = (1, 4, 100, 400, 1582, 1600, 1700, 1900, 2000, 2023, 2024, 2100, 9998)
    texts = [f"{y:04}-{m:02}-{d:02}" for y, m, d in itertools.product(years, range(14), range(33))]
    attribute = Date(name="d", first=date(1, 1, 1), last=date(9998, 12, 31), by=Grain.YEAR, unknown=C)
    for text, found in zip(texts, _codes(pa.table({"d": texts}), attribute), strict=True):
        try:
            wanted = date.fromisoformat(text).year - 1
        except ValueError:
            wanted = attribute.size - 1
        assert found == wanted, text


@pytest.mark.parametrize(
    "zone", [ZURICH, "America/St_Johns", "Australia/Lord_Howe", "Asia/Kolkata", "Pacific/Apia", "Africa/Casablanca"]
)
def test_each_quarter_of_an_hour_of_changing_clocks(zone):
    first, last = date(2011, 1, 1), date(2012, 12, 31)
    attribute = Timestamp(name="t", first=first, last=last, by=Grain.HOUR, zone=zone, unknown=C)
    begin = datetime(2010, 12, 30, tzinfo=UTC)
    moments = [begin + timedelta(minutes=15 * number) for number in range(96 * 735)]
    codes = _codes(pa.table({"t": pa.array(moments, pa.timestamp("us", tz="UTC"))}), attribute)
    for moment, found in zip(moments, codes, strict=True):
        clock = moment.astimezone(ZoneInfo(zone))
        inside = first <= clock.date() <= last
        hours = (clock.date() - first).days * 24 + clock.hour
        assert found == (hours if inside else attribute.size - 1), moment


def test_moments_in_nanoseconds_are_read_like_others(tmp_path):
    attribute = Timestamp(
        name="t", first=date(2011, 1, 1), last=date(2012, 12, 31), by=Grain.HOUR, zone=ZURICH, unknown=C
    )
    begin = datetime(2010, 12, 30, tzinfo=UTC)
    moments = [None, *(begin + timedelta(hours=number, microseconds=number % 7) for number in range(24 * 735))]
    usual = pa.array(moments, pa.timestamp("us", tz="UTC"))
    fine = pa.table({"t": usual.cast(pa.timestamp("ns", tz="Asia/Tokyo"))})
    codes = list(_codes(pa.table({"t": usual}), attribute))
    assert list(_codes(fine, attribute)) == codes
    assert list(_codes(_written(fine, tmp_path, "fine.parquet"), attribute)) == codes


def test_a_column_of_moments_is_no_column_of_days():
    table = open_table(pa.table({"t": pa.array(MOMENTS, pa.timestamp("us", tz="UTC"))}))
    domain = Domain((Date(name="t", first=date(2023, 1, 1), last=date(2023, 1, 2), by=Grain.DAY, unknown=C),))
    with pytest.raises(TableError, match="declare it as a timestamp with a zone"):
        table.encode(domain)
    with pytest.raises(TableError, match="store the column as text"):
        open_table(pa.table({"t": [20230101]})).encode(domain)


def test_a_draft_tells_dates_from_their_bounds():
    days = [str(date(2023, 1, 1) + timedelta(days=number % 400)) for number in range(1000)]
    table = pa.table(
        {
            "sex": ["F", "M"] * 500,
            "iso": days,
            "mixed": [None, "2023-02-30", *days[2:]],
            "foreign": [date.fromisoformat(day).strftime("%d.%m.%Y") for day in days],
            "seen": [f"{day} 08:15" for day in days],
            "midnight": [f"{day} 00:00:00" for day in days],
            "day": pa.array([date.fromisoformat(day) for day in days]),
            "clock": pa.array([datetime.fromisoformat(day) for day in days]),
        }
    )
    draft = draft_domain(open_table(table))
    assert draft.domain.names == ("sex",)
    assert not draft.left_out
    attributes = draft.document()["attributes"]
    assert list(attributes) == table.column_names
    assert attributes["foreign"]["format"] == "%d.%m.%Y"
    kinds = {name: body["type"] for name, body in attributes.items() if name != "sex"}
    assert kinds == {
        **dict.fromkeys(("iso", "mixed", "midnight", "day", "foreign"), "date"),
        **dict.fromkeys(("seen", "clock"), "timestamp"),
    }
    assert all(attributes[name]["first"] is attributes[name]["last"] is None for name in kinds)
    assert attributes["mixed"]["nullable"] is True
    assert "1 of its values are no dates" in draft.hints["mixed"]
    assert "no dates" not in draft.hints["iso"]
    assert not re.search(r"2023-01|2024", str(attributes) + str(draft.hints))  # nothing of the table's own days
    with pytest.raises(TableError, match="all columns are dates"):
        draft_domain(open_table(table.select(["iso"])))


def test_first_and_last_days_taken_from_the_table_are_reported():
    table = open_table(pa.table({"d": ["2023-03-04", "2023-05-06", None]}))
    read_off = Date(name="d", first=date(2023, 3, 4), last=date(2023, 5, 6), by=Grain.DAY, unknown=C)
    (told,) = domain_findings(Domain((read_off,)), table)
    assert str(told).startswith("1 column has its first or last day taken from the table: d (first and last)")
    assert domain_findings(Domain((replace(read_off, first=date(2023, 1, 1), last=date(2023, 12, 31)),)), table) == ()


def test_clamped_values_are_told_from_those_that_drop_their_row():
    days = {"first": date(2023, 1, 1), "last": date(2023, 12, 31), "by": Grain.MONTH}
    domain = Domain(
        (
            Date(name="d", unknown=Unknown.CLAMP, **days),
            Integer(name="n", minimum=0, maximum=9, unknown=Unknown.CLAMP, nullable=True),
            Date(name="o", unknown=Unknown.DROP, **days),
            Date(name="g", unknown=Unknown.CATEGORY, **days),
        )
    )
    dates = ["2023-05-01", None, "2022-12-31", "2024-01-01", "01.05.2023", "2023-05-01T08:00:00Z"]
    domain = Domain(tuple(domain), unit=Unit(column="p", rows=2))  # rows of all units are read
    table = pa.table(
        {"p": ["a"] * 5 + ["b"], "d": dates, "n": ["3", None, "-1", "many", "2.5", "12"], "o": dates, "g": dates}
    )
    found = {each.attribute: each for each in domain_fit(open_table(table), domain)}
    assert found["d"] == AttributeFit("d", declared=1, missing=1, unknown=4, clamped=2, dropped=3)
    assert found["n"] == AttributeFit("n", declared=1, missing=1, unknown=4, clamped=2, dropped=2)
    assert found["o"] == AttributeFit("o", declared=1, missing=1, unknown=4, clamped=0, dropped=5)
    assert found["g"] == AttributeFit("g", declared=1, missing=1, unknown=4, clamped=0, dropped=0)
