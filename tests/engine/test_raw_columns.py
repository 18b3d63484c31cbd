"""Codes for missing values and formats of dates: every engine puts a raw value into the same cell."""

from __future__ import annotations

import math
import re
import secrets
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from tests.engine import cluster
from tests.engine.conftest import _MADE
from tests.services import require

from sfumato.domain import Categorical, Date, Domain, Grain, Integer, Real, Timestamp, Unit, Unknown
from sfumato.domain.document import dump, parse
from sfumato.domain.raw_values import DateFormat, is_missing
from sfumato.domain.table_schema import parse_schema
from sfumato.domain.view import BoundedView, Scan
from sfumato.engine.exact import reveal
from sfumato.engine.open import open_table
from sfumato.engine.port import ProtectedTable
from sfumato.engine.views.joined import open_tables
from sfumato.errors import DomainError
from sfumato.evaluate.release_files import compatible
from sfumato.strict_documents import read_yaml

C = Unknown.CATEGORY
BORN = Date(
    name="born", first=date(1999, 1, 1), last=date(2001, 12, 31), by=Grain.DAY, unknown=C, nullable=True,
    formats=("%d.%m.%Y", "%m/%d/%y", "%B %d, %Y", "%d-%b-%Y", "%Y%m%d", "excel"),
)  # fmt: skip
SEEN = Timestamp(
    name="seen", first=date(1999, 12, 31), last=date(2000, 3, 1), by=Grain.HOUR, zone="Europe/Zurich", unknown=C,
    nullable=True, formats=("%d/%b/%Y %I:%M %p", "%m/%d/%Y %H:%M:%S%z", "%a %B %d %Y %H:%M", "excel"),
)  # fmt: skip
CODED = Domain(
    (
        Integer(name="age", minimum=0, maximum=3, unknown=C, nullable=True, missing=(999, 2, "?", "NA")),
        Real(name="bmi", edges=(0.0, 10.0, 1e6), unknown=C, nullable=True, missing=(99.9, -9, "Inf", "", "-")),
        Categorical(name="sex", values=("F", "M"), unknown=C, nullable=True, missing=(9, "NA", "?")),
        Integer(name="children", minimum=0, maximum=9, unknown=Unknown.DROP, missing=(9,)),
    )
)
CODES = [
    *(("1", "5", "F", "1"), ("2", "99.9", "NA", "2"), ("2.0", "99.90", "9", "3"), ("999", "-9", "9.0", "4")),
    *(("?", "Inf", "?", "9"), ("NA", "", "na", "5"), (" ?", " \t", "M", "6"), ("na", "-", None, "7")),
    *((None, "-9.0", "", "8"), ("3", "1e5", "M", None), ("998", "nan", "m", "0"), ("0", "-Inf", "F", "99")),
]
DATES = ["1.2.2000", "01.12.2000", "12/31/99", "1/1/00", "2/30/00", "May 5, 2000", "SEPTEMBER 30, 2000", "1-Jan-2000",
         "20000415", "36526", "36526.75", "2000-05-06", "2000-05-06 10:00", "5 May 2000", "32.1.2000", "", None, "x",
         "29.02.2000", "29.02.2001", "1.2.2000\n", "61", "60", "73109", "-1"]  # fmt: skip
CLOCKS = ["01/Jan/2000 1:05 PM", "1/JAN/2000 12:05 am", "1/2/2000 23:30:00Z", "1/1/2000 00:30:00-05:00", "36526.5",
          "36526.99999", "Sat January 1 2000 9:59", "2000-01-01T10:00+01:00", "2000-01-01", "31/Feb/2000 1:00 AM",
          "31/Foo/2000 1:00 AM", "13/Jan/2000 13:00 PM", None]  # fmt: skip


def opened(engine: str, table: pa.Table, folder: Path) -> ProtectedTable:
    """Return a table of text in an engine."""
    match engine:
        case "arrow":
            return open_table(table)
        case "pandas":
            return open_table(table.to_pandas())
        case "csv":
            pa_csv.write_csv(table, folder / "raw.csv")
            return open_table(folder / "raw.csv")
        case "spark":
            pq.write_table(table, folder / "part.parquet")
            assert cluster.session() is not None
            return open_table(f"spark:{folder}")
    url = sa.make_url(require(f"SFUMATO_TEST_{engine.upper()}"))
    driver = "mysql+pymysql" if engine == "mariadb" else "postgresql+psycopg"
    name = f"raw_{secrets.token_hex(6)}"
    made = sa.Table(name, sa.MetaData(), *(sa.Column(each, sa.Text) for each in table.column_names))
    with sa.create_engine(url.set(drivername=driver), poolclass=sa.NullPool).begin() as connection:
        made.create(connection)
        connection.execute(made.insert(), table.to_pylist())
    _MADE.append((url.render_as_string(hide_password=False), name))
    return open_table(url.update_query_dict({"table": name}).render_as_string(hide_password=False))


def counts(table: ProtectedTable, domain: Domain) -> dict[str, list[int]]:
    """Return the exact number of rows in each cell of each attribute."""
    exact = table.encode(domain).marginals([(name,) for name in domain.names])
    return {name: reveal(each).tolist() for name, each in zip(domain.names, exact, strict=True)}


def codes(table: ProtectedTable, attribute: Date | Timestamp) -> dict[str, str]:
    """Return the label of each row by its number."""
    number = Integer(name="n", minimum=0, maximum=999, unknown=Unknown.DROP)
    batches = reveal(table.encode(Domain((number, attribute))).batches(("n", attribute.name)))
    found = pa.Table.from_batches(batches)
    labels = [attribute.label(code) for code in found[attribute.name].to_pylist()]
    return dict(sorted(zip(found["n"].to_pylist(), labels, strict=True)))


def shown(attribute: Date | Timestamp, text: str | None) -> datetime | None:
    """Return what a clock of the attribute showed, as Python reads it."""
    moments = [DateFormat(each).read(text) for each in attribute.formats] if text is not None else []
    moment = next((each for each in moments if each is not None), None)
    if text is None or moment is None:
        try:
            moment = datetime.fromisoformat(text or "")
        except ValueError:
            return None
    ahead = {"Z": 1, "-05:00": 6, "+01:00": 0}  # hours from there to Zurich in winter
    return (moment + timedelta(hours=next((ahead[end] for end in ahead if text.endswith(end)), 0))).replace(tzinfo=None)


ENGINES = ["arrow", "pandas", "csv", "postgres", "mariadb", "spark"]


@pytest.mark.parametrize("engine", ENGINES)
def test_codes_are_missing_on_every_engine(engine, tmp_path):
    rows = [row for row in CODES if engine != "csv" or None not in row[:3]]
    table = pa.table(
        {name: pa.array(column, pa.string()) for name, column in zip(CODED.names, zip(*rows, strict=True), strict=True)}
    )
    found = counts(opened(engine, table, tmp_path), CODED)
    for place, attribute in enumerate(CODED):
        wanted = [0] * attribute.size
        for row in rows:
            cells = [cell(each, text) for each, text in zip(CODED, row, strict=True)]
            if None not in cells:
                wanted[cells[place]] += 1
        assert found[attribute.name] == wanted, attribute.name


def cell(attribute, text: str | None) -> int | None:
    """Return the code of a text, read in Python; None if it drops the row."""
    numeric = not isinstance(attribute, Categorical)
    if is_missing(text, attribute.missing, numeric=numeric):
        return attribute.declared if attribute.nullable else None
    if not numeric:
        return attribute.values.index(text) if text in attribute.values else attribute.size - 1
    known = re.fullmatch(r"[+-]?[0-9]+([.][0-9]*)?(e[0-9]+)?", text)
    value = float(text) if known else math.nan
    if isinstance(attribute, Real):
        return 0 if 0 <= value < 10 else 1 if 10 <= value <= 1e6 else attribute.size - 1
    other = attribute.size - 1 if attribute.unknown is C else None
    return int(value) if 0 <= value <= attribute.maximum and value == int(value) else other


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("attribute", "texts"), [(BORN, DATES), (SEEN, CLOCKS)], ids=["date", "timestamp"])
def test_dates_of_a_format_are_in_the_same_cell_on_every_engine(engine, attribute, texts, tmp_path):
    numbers = [str(number) for number in range(len(texts))]
    table = pa.table({"n": numbers, attribute.name: pa.array(texts, pa.string())})
    found = codes(opened(engine, table, tmp_path), attribute)
    for number, text in enumerate(texts):
        moment = shown(attribute, text)
        if moment is None:
            wanted = "(missing)"
        elif not attribute.first <= moment.date() <= attribute.last:
            wanted = "(other)"
        else:
            wanted = attribute.by.label(attribute.by.of(moment.date(), moment.hour))
        assert found[number] == wanted, text


def test_numbers_and_dates_of_their_own_type_are_read_with_codes_and_formats():
    table = open_table(
        pa.table(
            {
                "born": pa.array([date(2000, 1, 1), date(1999, 9, 9), None]),
                "day": [20000101, 20000230, 5],
                "sheet": [36526.0, 36527.9, float("nan")],
                "age": [1, 2, 999],
                "bmi": [5.0, math.inf, -math.inf],
            }
        )
    )
    born = replace(BORN, missing=("1999-09-09",))
    day = replace(BORN, name="day", formats=("%Y%m%d",))
    sheet = replace(BORN, name="sheet", formats=("excel",))
    bmi = replace(CODED["bmi"], missing=("Inf", "-inf"))
    found = counts(table, Domain((born, day, sheet, CODED["age"], bmi)))
    for name, missing, first in (("born", 2, 1), ("day", 2, 1), ("sheet", 1, 1)):
        assert found[name][BORN.declared] == missing, name
        assert found[name][365] == first, name
    assert found["age"] == [0, 1, 0, 0, 2, 0]
    assert found["bmi"] == [1, 0, 2, 0]


def test_each_day_of_two_centuries_as_a_serial():
    first = date(1900, 3, 1)
    days = [first + timedelta(days=number) for number in range(73109 - 61 + 1)]
    assert str(days[-1]) == "2100-02-28"
    attribute = replace(BORN, first=days[0], last=days[-1], nullable=False, unknown=Unknown.DROP)
    assert counts(open_table(pa.table({"born": list(range(61, 73110))})), Domain((attribute,)))["born"] == [1] * len(
        days
    )


WRITTEN = ["%d.%m.%Y", "%m/%d/%y", "%Y/%m/%d", "%b %d, %Y", "%d %B %Y", "%Y%m%d", "%d%b%Y", "%A, %B %d, %Y"]


@pytest.mark.parametrize("written", WRITTEN)
def test_a_format_reads_what_python_writes(written):
    days = [date(1999, 1, 1) + timedelta(days=number) for number in range(1096)]
    table = open_table(pa.table({"born": [day.strftime(written) for day in days]}))
    attribute = replace(BORN, formats=(written,), nullable=False, unknown=Unknown.DROP)
    assert counts(table, Domain((attribute,)))["born"] == [1] * attribute.declared
    moments = [DateFormat(written).read(day.strftime(written)) for day in days]
    assert [moment and moment.date() for moment in moments] == days


@pytest.mark.parametrize(
    ("text", "reason"),
    [("%d.%m", "needs %Y"), ("%Q", "%Q is unknown"), ("%Y-%d-%m", "ISO 8601"), ("%d %Y", "needs its month"),
     ("%Y %m %b", "month twice"), ("%d.%m.%Y %I:%M", "%I and %p"), ("%z %Y", "%z stands last"), ("%Y:%M", "need hours"),
     ("%Y %Y", "a part twice"), ("%Y%", "% is unknown"), ("", "needs %Y")],
)  # fmt: skip
def test_what_is_no_format_is_refused(text, reason):
    with pytest.raises(DomainError, match=re.escape(reason)):
        replace(BORN, formats=(text,))


def test_a_distance_to_utc_needs_a_zone():
    with pytest.raises(DomainError, match="declare the column as a timestamp"):
        replace(BORN, formats=("%Y/%m/%d %H:%M%z",))


def document(**parts: object) -> dict[str, object]:
    bodies = {
        "age": {"type": "integer", "minimum": 0, "maximum": 9, "unknown": "clamp"},
        "sex": {"type": "categorical", "values": ["F", "M"], "unknown": "drop"},
        "country": {"type": "categorical", "values": ["NA", "DE"], "unknown": "drop", "missing": []},
    }
    return {"sfumato": 1, "unit": "row", "attributes": bodies, **parts}


def test_the_list_of_an_attribute_takes_the_place_of_the_list_of_the_table():
    domain = parse(document(missing=["NA", 999.0, date(1900, 1, 1)]))
    assert [each.missing for each in domain] == [(999, "1900-01-01", "NA")] * 2 + [()]
    described = domain.describe()
    assert described["missing"] == [999, "1900-01-01", "NA"]
    assert described["attributes"]["country"]["missing"] == []
    assert "missing" not in described["attributes"]["age"]
    assert parse(read_yaml(dump(domain), name="")) == domain


def test_a_domain_without_codes_keeps_its_identity():
    assert "missing" not in parse(document()).describe()["attributes"]["age"]
    assert parse(document()).hash == "b1046dbb6b504c43525e6229803a849624c070fe97580076000b2f7b81a8a297"
    assert parse(document(missing=["?"])).hash != parse(document()).hash
    assert parse(document(missing=["?", 9])).hash == parse(document(missing=[9, "?", "?"])).hash


def test_a_value_is_not_missing_too():
    with pytest.raises(DomainError, match="'NA' as a value and as missing"):
        Categorical(name="c", values=("NA", "DE"), unknown=C, missing=("NA",))
    with pytest.raises(DomainError, match="is a number or text"):
        Categorical(name="c", values=("DE",), unknown=C, missing=(True,))
    with pytest.raises(DomainError, match="in quotes"):
        Categorical(name="c", values=("DE",), unknown=C, missing=(math.inf,))
    with pytest.raises(DomainError, match="are a list"):
        Categorical(name="c", values=("DE",), unknown=C, missing="NA")


def test_a_release_file_is_read_with_codes_and_formats():
    age, born = CODED["age"], BORN
    assert compatible(age, "999.0", {}) == compatible(age, "?", {}) == compatible(age, None, {}) == {age.declared}
    assert compatible(born, "1.2.2000", {}) == compatible(born, "2000-02-01", {}) == {396}
    assert compatible(CODED["sex"], "NA", {}) == {2}


def test_formats_and_codes_of_a_unit_and_of_raw_columns_change_nothing():
    domain = Domain(CODED.attributes[:1], unit=Unit("id", rows=1))
    table = open_table(pa.table({"id": ["NA", "NA", "b"], "age": ["1", "NA", "3"]}))
    assert sum(counts(table, domain)["age"]) == 2


def test_tables_of_a_schema_have_codes_formats_and_spellings_of_their_own():
    sex = {"type": "categorical", "values": ["F", "M"], "spellings": {"F": ["f"]}, "unknown": "drop", "nullable": True}
    born = {"type": "date", "first": "2000-01-01", "last": "2000-12-31", "by": "month", "unknown": "drop"}
    people = {"key": "pid", "missing": ["?"], "attributes": {"sex": sex, "born": born | {"format": "%d.%m.%Y"}}}
    visits = {"unit": "pid", "rows": 1, "attributes": {"sex": sex}}
    document = {"sfumato": 2, "schema": "s", "unit": {"id": "pid", "table": "people"}}
    schema = parse_schema(document | {"tables": {"people": people, "visits": visits}})
    assert parse_schema(schema.describe()) == schema
    assert [each.missing for each in schema["people"].attributes] == [("?",), ("?",)]
    assert schema["visits"].attributes[0].missing == ()
    frames = {
        "people": pa.table({"pid": [1, 2, 3], "sex": ["f", "?", "M"], "born": ["1.2.2000", "3.2.2000", "4.3.2000"]}),
        "visits": pa.table({"pid": [1, 2], "sex": ["F", "F"]}),
    }
    people_rows = BoundedView(Scan(schema["people"], "people", ("sex", "born")), schema.bounds("people"))
    encoded = open_tables(schema, frames).encode(people_rows)
    assert reveal(encoded.marginals([("sex",)])[0]).tolist() == [1, 1, 1]
    assert reveal(encoded.marginals([("born",)])[0]).tolist()[1:3] == [2, 1]
