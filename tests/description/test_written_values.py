"""A draft proposes codes for missing values and formats of dates."""

from __future__ import annotations

import math
import secrets

import pandas as pd
import pyarrow as pa
import pytest
import sqlalchemy as sa
from tests.engine.conftest import _MADE
from tests.services import require

from sfumato.description.domain_fit import draft_domain
from sfumato.domain import Categorical, Integer, Real, Unknown
from sfumato.domain.document import parse
from sfumato.engine.exact import reveal
from sfumato.engine.open import open_table
from sfumato.engine.profile import outlying_codes
from sfumato.errors import DomainError
from sfumato.evaluate.release_files import compatible

TABLE = {
    "age": ["34", "NA", "51", "999", "62", "?", "", "47"] * 10,
    "bmi": ["22.5", "99.9", "31.2", "NA", "28.0", "99.9", "19.5", "24.1"] * 10,
    "siblings": ["0", "1", "-9", "2", "-9", "3", "-8", "-8"] * 10,
    "sign": ["+", "-"] * 40,
    "grade": ["A", "B", "C", "n/a", "A", "B", "C", "D"] * 10,
}


def database(engine: str, table: dict[str, list[str]]):
    """Return the table as text in a database."""
    url = sa.make_url(require(f"SFUMATO_TEST_{engine.upper()}"))
    driver = "mysql+pymysql" if engine == "mariadb" else "postgresql+psycopg"
    name = f"written_{secrets.token_hex(6)}"
    made = sa.Table(name, sa.MetaData(), *(sa.Column(each, sa.Text) for each in table))
    with sa.create_engine(url.set(drivername=driver), poolclass=sa.NullPool).begin() as connection:
        made.create(connection)
        connection.execute(made.insert(), pa.table(table).to_pylist())
    _MADE.append((url.render_as_string(hide_password=False), name))
    return open_table(url.update_query_dict({"table": name}).render_as_string(hide_password=False))


@pytest.mark.parametrize("engine", ["frame", "postgres", "mariadb"])
def test_codes_are_proposed_and_are_no_values(engine):
    table = open_table(pd.DataFrame(TABLE)) if engine == "frame" else database(engine, TABLE)
    draft = draft_domain(table)
    age, bmi, siblings, sign, grade = draft.domain
    texts = {"", "NA", "?", "n/a"}
    assert isinstance(age, Integer)
    assert (age.minimum, age.maximum, set(age.missing)) == (34, 62, texts | {999})
    assert isinstance(bmi, Real)
    assert bmi.maximum < 40
    assert set(bmi.missing) == texts | {99.9}
    assert (siblings.minimum, siblings.maximum, set(siblings.missing)) == (0, 3, texts | {-9, -8})
    assert sign.values == ("+", "-")
    assert set(sign.missing) == texts
    assert grade.values == ("A", "B", "C", "D")
    assert "999 is far outside the rest" in draft.hints["age"]
    assert parse(draft.document()) == draft.domain
    encoded = table.encode(draft.domain)
    missing = {each.name: int(reveal(encoded.marginals([(each.name,)])[0])[-1]) for each in (age, bmi, siblings)}
    assert missing == {"age": 40, "bmi": 30, "siblings": 40}


@pytest.mark.parametrize(
    ("least", "greatest", "codes"),
    [
        ([(1, 9), (2, 9), (3, 9)], [(9, 9), (3, 9), (2, 9)], (9,)),
        ([(1, 9), (2, 9), (3, 9)], [(10, 9), (9, 9), (8, 9)], ()),
        ([(0, 9), (1, 9), (2, 9)], [(999, 1), (60, 9), (59, 9)], ()),  # one row shares it with nobody
        ([(-20, 9), (-9, 9), (3, 9)], [(30, 9), (29, 9), (28, 9)], ()),  # temperatures
        ([(-1, 9), (0, 9), (3, 9)], [(30, 9), (29, 9), (28, 9)], ()),
        ([(-2, 9), (0, 9), (3, 9)], [(30, 9), (29, 9), (28, 9)], (-2,)),
        ([(-10, 9), (-9, 9), (-8, 9)], [(8, 9), (-5, 9), (-6, 9)], ()),  # time zones
        ([(0, 9), (1, 9), (2, 9)], [(999, 5), (998, 5), (997, 5), (40, 9), (39, 9)], (997, 998, 999)),
        ([(0.5, 9), (1, 9)], [(999.9, 5), (40, 9)], ()),  # nothing else is known
        ([(0, 9)], [(0, 9)], ()),
    ],
)
def test_numbers_far_outside_that_many_rows_share(least, greatest, codes):
    assert outlying_codes(least, greatest, rows=100) == codes


DATES = {
    "us": (["01/31/2000", "2/1/2001", "12/13/1999"], "%m/%d/%Y"),
    "german": (["31.1.2000", "1.2.2001", "13.12.1999"], "%d.%m.%Y"),
    "words": (["Jan 1 2000", "Feb 2 2001", "Dec 31 1999"], "%b %d %Y"),
    "slashes": (["2012/01/01", "2012/02/29", "1999/12/31"], "%Y/%m/%d"),
    "mixed": (["2012/01/01", "2013/02/03", "Jan 1 2000"], ["%Y/%m/%d", "%b %d %Y"]),
    "part_iso": (["2012-01-01", "2013-02-03", "1/31/2000"], "%m/%d/%Y"),
    "clock": (["1/31/2000 1:15 PM", "2/1/2001 12:00 AM", "12/13/1999 11:59 PM"], "%m/%d/%Y %I:%M %p"),
    "midnight": (["31.1.2000 00:00", "1.2.2001 00:00", "13.12.1999 00:00"], "%d.%m.%Y %H:%M"),
    "visit_date": ([36526, 40000, 41000], "excel"),
    "dob": ([20000131, 20010201, 19991213], "%Y%m%d"),
}


@pytest.mark.parametrize("name", DATES)
def test_formats_are_found(name):
    values, written = DATES[name]
    body = draft_domain(open_table(pa.table({"x": [1, 2, 3] * 20, name: values * 20}))).document()["attributes"][name]
    assert body["format"] == written
    assert body["type"] == ("timestamp" if name == "clock" else "date")


def test_an_ambiguous_day_and_month_is_a_finding():
    texts = {"d": ["01/02/2000", "03/04/2001", "12/12/2000"] * 20, "x": [1, 2, 3] * 20}
    draft = draft_domain(open_table(pa.table(texts)))
    assert "%m/%d/%Y may as well be %d/%m/%Y" in draft.hints["d"]
    certain = draft_domain(open_table(pa.table(texts | {"d": ["01/02/2000", "13/04/2001", "12/12/2000"] * 20})))
    assert "may as well" not in certain.hints["d"]
    assert certain.dates["d"]["format"] == "%d/%m/%Y"


@pytest.mark.parametrize(
    "texts",
    [
        ["A-1-2", "B-3-4"],
        ["10.0.0.1", "10.0.0.2"],
        ["555-1234", "555-9876"],
        ["1-2", "3-4"],
        ["may", "jan"],
        ["1/2", "3/4"],
    ],
)
def test_what_is_no_date_has_no_format(texts):
    draft = draft_domain(open_table(pa.table({"x": texts * 20})))
    assert draft.domain.names == ("x",)
    assert not draft.dates


def test_infinite_numbers_are_missing():
    draft = draft_domain(open_table(pa.table({"x": ["1.5", "Inf", "2.5", "-Inf"] * 5})))
    assert draft.domain["x"].missing == ("-Inf", "Inf")
    assert math.isfinite(draft.domain["x"].maximum)


@pytest.mark.parametrize("engine", ["frame", "postgres", "mariadb"])
def test_values_that_differ_by_case_or_blanks_are_one(engine):
    texts = {"smoker": ["no", "NO", "yes", " no", "yes", "Yes"] * 10, "code": ["A1", "a1", "B2", "C3", "D4", "A1"] * 10}
    table = open_table(pd.DataFrame(texts)) if engine == "frame" else database(engine, texts)
    draft = draft_domain(table)
    smoker, code = draft.domain
    assert smoker.values == ("no", "yes")
    assert smoker.spellings == ((" no", "no"), ("NO", "no"), ("Yes", "yes"))
    assert code.values == ("A1", "B2", "C3", "D4")
    assert "' no' and 'NO' as 'no', 'Yes' as 'yes'" in draft.hints["smoker"]
    assert parse(draft.document()) == draft.domain
    assert reveal(table.encode(draft.domain).marginals([("smoker",)])[0]).tolist() == [30, 30, 0]
    assert compatible(smoker, "NO", {}) == {0}


@pytest.mark.parametrize(
    ("spellings", "reason"),
    [([("NO", "maybe")], "none of its values"), ([("yes", "no")], "as a value and as a spelling"),
     ([("x", "no"), ("x", "yes")], "of two values")],
)  # fmt: skip
def test_wrong_spellings_are_refused(spellings, reason):
    with pytest.raises(DomainError, match=reason):
        Categorical(name="c", values=("no", "yes"), unknown=Unknown.DROP, spellings=tuple(spellings))
