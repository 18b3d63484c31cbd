"""Dates in questions: each condition and group against Python's own comparisons of each day or hour."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from sfumato import query
from sfumato.domain import Categorical, Date, Domain, Grain, GroupBound, Integer, Timestamp, Unit, Unknown
from sfumato.domain.predicate import CodeRanges, describe_condition
from sfumato.engine.exact import reveal
from sfumato.engine.open import open_table
from sfumato.errors import InputError, QueryError
from sfumato.evaluate.release_files import compatible
from sfumato.privacy.loss import Epsilon
from sfumato.query.plan import plan
from sfumato.query.statements.select_statement import parse
from sfumato.query.statements.sql_condition import read_condition
from sfumato.query.statements.three_valued_logic import normal
from sfumato.synthesize.product import codes_of, to_arrow
from sfumato.vault.simulated import SimulatedVault

FIRST, LAST = date(2022, 12, 28), date(2024, 1, 3)
DAY = Date(name="d", first=FIRST, last=LAST, by=Grain.DAY, unknown=Unknown.CATEGORY, nullable=True)
HOUR = Timestamp(name="t", first=FIRST, last=LAST, by=Grain.HOUR, zone="Europe/Zurich", unknown=Unknown.CATEGORY)
DOMAIN = Domain((DAY, HOUR, Categorical(name="sex", values=("F", "M"), unknown=Unknown.CATEGORY)))
DAYS = [FIRST + timedelta(days=number) for number in range(DAY.declared)]
HOURS = [datetime.fromisoformat(str(FIRST)) + timedelta(hours=number) for number in range(HOUR.declared)]


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("d >= DATE '2023-03-01'", lambda d: str(d) >= "2023-03-01"),
        ("d < '2023-03-01'", lambda d: str(d) < "2023-03-01"),
        ("DATE '2023-03-01' < d", lambda d: str(d) > "2023-03-01"),
        ("d = CAST('2023-03-01' AS DATE)", lambda d: str(d) == "2023-03-01"),
        ("d <> DATE '2023-03-01'", lambda d: str(d) != "2023-03-01"),
        ("d BETWEEN DATE '2023-02-28' AND '2023-03-02'", lambda d: "2023-02-28" <= str(d) <= "2023-03-02"),
        ("d IN (DATE '2022-12-28', '2024-01-03', '2030-01-01')", lambda d: d in (FIRST, LAST)),
        ("d <= TIMESTAMP '2023-03-01 00:00:00'", lambda d: str(d) <= "2023-03-01"),
        ("NOT d > DATE '2023-03-01'", lambda d: str(d) <= "2023-03-01"),
        ("DATE_TRUNC('month', d) = DATE '2023-03-01'", lambda d: str(d)[:7] == "2023-03"),
        ("month(d) = '2023-03'", lambda d: str(d)[:7] == "2023-03"),
        ("month(d) >= '2023-03'", lambda d: str(d)[:7] >= "2023-03"),
        ("DATE_TRUNC('month', d) > DATE '2023-03-15'", lambda d: str(d)[:7] > "2023-03"),
        ("DATE_TRUNC('week', d) = DATE '2023-01-02'", lambda d: d.strftime("%G-W%V") == "2023-W01"),
        ("DATE_TRUNC('isoweek', d) <> DATE '2022-12-26'", lambda d: d.strftime("%G-W%V") != "2022-W52"),
        ("DATE_TRUNC('quarter', d) < DATE '2023-07-01'", lambda d: str(d) < "2023-07"),
        ("YEAR(d) = 2023", lambda d: d.year == 2023),
        ("EXTRACT(YEAR FROM d) <> 2023", lambda d: d.year != 2023),
        ("EXTRACT(MONTH FROM d) IN (12, 1)", lambda d: d.month in (12, 1)),
        ("month_of_year(d) BETWEEN 3 AND 5", lambda d: 3 <= d.month <= 5),
        ("EXTRACT(QUARTER FROM d) = 4", lambda d: d.month >= 10),
        ("EXTRACT(ISODOW FROM d) >= 6", lambda d: d.weekday() >= 5),
        ("weekday(d) IN ('Saturday', 'Sunday')", lambda d: d.weekday() >= 5),
        ("EXTRACT(DAY FROM d) = 31", lambda d: d.day == 31),
        ("EXTRACT(DOY FROM d) <= 59", lambda d: (d - date(d.year, 1, 1)).days < 59),
        ("EXTRACT(WEEK FROM d) = 52", lambda d: d.strftime("%V") == "52"),
        ("EXTRACT(ISOYEAR FROM d) = 2022", lambda d: d.strftime("%G") == "2022"),
    ],
)
def test_conditions_on_days(text, holds):
    assert _codes(text, "d") == {code for code, day in enumerate(DAYS) if holds(day)}
    known = set(range(DAY.declared))  # of a missing or unknown date nothing is known, either way
    assert _codes(f"NOT ({text})", "d") == known - _codes(text, "d")


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("t >= TIMESTAMP '2023-03-26 02:00' AND t < '2023-03-26 03:00:00'", lambda t: str(t)[:13] == "2023-03-26 02"),
        ("t < DATE '2023-03-26'", lambda t: str(t.date()) < "2023-03-26"),
        ("EXTRACT(HOUR FROM t) BETWEEN 8 AND 17", lambda t: 8 <= t.hour <= 17),
        ("DATE_TRUNC('day', t) = DATE '2023-10-29'", lambda t: str(t.date()) == "2023-10-29"),
        ("DATE_TRUNC('hour', t) = TIMESTAMP '2023-10-29 02:00'", lambda t: str(t)[:13] == "2023-10-29 02"),
        ("day(t) = '2023-10-29'", lambda t: str(t.date()) == "2023-10-29"),
        ("EXTRACT(HOUR FROM t) < 24 AND hour_of_day(t) >= 22", lambda t: t.hour >= 22),
        ("weekday(t) = 'Monday'", lambda t: t.weekday() == 0),
    ],
)  # fmt: skip
def test_conditions_on_hours(text, holds):
    assert _codes(text, "t") == {code for code, hour in enumerate(HOURS) if holds(hour)}


def _codes(text: str, name: str) -> set[int]:
    found = normal(read_condition(text, DOMAIN), DOMAIN)
    assert found is not None
    assert found.attributes == {name}
    return set(found.codes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("d > DATE '2023-02-30'", "'d' holds dates; compare it with a date"),
        ("d > 5", "compare it with a date"),
        ("d > TIMESTAMP '2023-03-01 08:00'", "compared with dates without a time"),
        ("t > TIMESTAMP '2023-03-01 08:00+01:00'", "without a zone"),
        ("t <= TIMESTAMP '2023-03-01 08:00'", "hold their left end only"),
        ("DATE_TRUNC('month', d) = DATE '2023-03-02'", "but one on 2023-03-01$"),
        ("DATE_TRUNC('hour', t) = TIMESTAMP '2023-03-01 08:30'", "but one at 2023-03-01 08:00:00$"),
        ("month(d) = 3", r"EXTRACT\(MONTH FROM d\)"),
        ("EXTRACT(MONTH FROM d) = 'March'", "is a number, from 1 to 12$"),
        ("EXTRACT(MONTH FROM d) = 13", "is a number, from 1 to 12"),
        ("EXTRACT(MONTH FROM d) <> 0", "is a number, from 1 to 12"),
        ("EXTRACT(MONTH FROM d) IN (12, 13)", "is a number, from 1 to 12"),
        ("EXTRACT(MONTH FROM d) = 2.5", "is a number, from 1 to 12"),
        ("EXTRACT(MONTH FROM d) > 14", "is a number, from 1 to 12"),
        ("month_of_year(d) BETWEEN -2 AND 3", "is a number, from 1 to 12"),
        ("EXTRACT(HOUR FROM t) = 24", "is a number, from 0 to 23"),
        ("EXTRACT(DAY FROM d) = 32", "is a number, from 1 to 31"),
        ("EXTRACT(DOY FROM d) = 367", "is a number, from 1 to 366"),
        ("EXTRACT(WEEK FROM d) = 54", "is a number, from 1 to 53"),
        ("EXTRACT(QUARTER FROM d) = 5", "is a number, from 1 to 4"),
        ("EXTRACT(ISOYEAR FROM d) = 10000", "is a number, from 1 to 9999"),
        ("weekday(d) = 0", "is a number, from 1 to 7"),
        ("weekday(d) = 'Sonntag'", "from 1 to 7, or one of Monday, Tuesday, .*, Sunday$"),
        ("EXTRACT(DOW FROM d) = 0", "ask ISODOW"),
        ("EXTRACT(MINUTE FROM t) = 0", "no part MINUTE; it has HOUR, ISODOW"),
        ("EXTRACT(HOUR FROM d) = 0", "no part HOUR"),
        ("DATE_TRUNC('fortnight', d) = DATE '2023-03-01'", "no period is called fortnight"),
        ("DATE_TRUNC('hour', d) = DATE '2023-03-01'", "a date by day has no hour"),
        ("DATE_TRUNC('month', sex) = DATE '2023-03-01'", "'sex' is no date"),
        ("DATE_TRUNC('month', d + 1) = DATE '2023-03-01'", "name an attribute"),
        ("EXTRACT(YEAR FROM d) = 2023.5", "compared with a year"),
        ("sex = DATE '2023-03-01'", "not a declared value"),
    ],
)
def test_what_cannot_be_said_of_dates_is_refused_with_its_place(text, said):
    with pytest.raises(QueryError, match=f"line 1, column .*{said}"):
        read_condition(text, DOMAIN)


def test_parts_of_the_calendar_without_a_cell_hold_of_no_row_by_number_and_by_name():
    """A week in January has no Sunday before its end and no December, but the calendar has them."""
    domain = Domain((replace(DAY, first=date(2023, 1, 2), last=date(2023, 1, 6)),))
    for text in ("weekday(d) = 7", "weekday(d) = 'Sunday'", "EXTRACT(MONTH FROM d) = 12", "month_of_year(d) = '12'"):
        assert not read_condition(text, domain).codes
        assert read_condition(f"NOT {text}", domain).codes == CodeRanges.between(0, 4)


def test_a_date_within_a_cell_is_refused_and_a_bound_within_the_first_cell_is_not():
    domain = Domain((replace(DAY, by=Grain.MONTH),))
    with pytest.raises(QueryError, match="cuts the cell 2023-03 of 'd': its cells start at 2022-12-28, 2023-01-01"):
        read_condition("d >= DATE '2023-03-02'", domain)
    first = normal(read_condition("d < DATE '2023-01-01'", domain), domain)
    assert first.codes == CodeRanges.of([0])
    assert describe_condition(first, domain) == "d in 2022-12-28 to 2022-12-31"
    assert normal(read_condition("d >= DATE '2022-12-28'", domain), domain).codes == CodeRanges.between(0, 13)


def test_a_moment_within_one_of_many_cells_is_refused_with_the_cells_around_it():
    hours = Timestamp(
        name="t",
        first=date(2022, 1, 1),
        last=date(2024, 12, 31),
        by=Grain.HOUR,
        zone="UTC",
        unknown=Unknown.DROP,
    )
    with pytest.raises(QueryError, match="cuts the cell 2023-03-01T08 of 't'") as refused:
        read_condition("t >= TIMESTAMP '2023-03-01 08:30'", Domain((hours,)))
    assert "start near it at 2023-03-01 03:00:00" in str(refused.value)
    assert "2023-03-01 08:00:00, 2023-03-01 09:00:00" in str(refused.value)
    assert "2022-01-01" not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "label"),
    [
        ("DATE_TRUNC('month', d)", lambda d: str(d)[:7]),
        ("EXTRACT(ISODOW FROM d)", lambda d: d.strftime("%A")),
        ("YEAR(d)", lambda d: str(d.year)),
        ("EXTRACT(WEEK FROM d)", lambda d: str(d.isocalendar()[1])),
        ("d", str),
    ],
)
def test_groups_by_the_calendar_count_each_row_once(key, label):
    random = np.random.default_rng(3)
    days = [DAYS[place] for place in random.integers(0, len(DAYS), 500)]
    table = pa.table({"d": [None, "2023-02-30", *map(str, days)], "n": [1] * 502})
    domain = Domain((DAY, Integer(name="n", minimum=0, maximum=3, unknown=Unknown.CLAMP)))
    vault = SimulatedVault(open_table(table).encode(domain), seed=1)
    text = f"SELECT {key}, COUNT(*), SUM(n) FROM x GROUP BY {key}"  # noqa: S608
    answer = query.sql(vault, text, loss=Epsilon(1000))
    wanted: dict[str, int] = {"(missing)": 1, "(other)": 1}
    for day in days:
        wanted[label(day)] = wanted.get(label(day), 0) + 1
    found = {keys[0]: round(values[0].estimate) for keys, values in zip(answer.keys, answer.values, strict=True)}
    assert {name: rows for name, rows in found.items() if rows} == wanted


def test_dates_have_no_sums_and_stand_once_in_the_groups():
    for text, said in (
        ("SELECT AVG(d) FROM x", "holds dates: it can be counted"),
        ("SELECT MIN(d) FROM x", "holds dates: it can be counted"),
        ("SELECT YEAR(d), COUNT(*) FROM x GROUP BY YEAR(d), DATE_TRUNC('year', d)", "is repeated in GROUP BY"),
    ):
        with pytest.raises(QueryError, match=said):
            parse(text, DOMAIN)


@pytest.mark.parametrize("by", list(Grain))
def test_rows_that_are_written_lie_in_the_cells_that_were_drawn(by):
    """This holds in Arrow, in CSV text, and when an evaluation reads a release."""
    day = replace(DAY, by=Grain.DAY if by is Grain.HOUR else by)
    for attribute in (day, replace(HOUR, by=by, nullable=True)):
        domain = Domain((attribute,))
        codes = np.arange(attribute.declared + 1)[:, None]
        written = to_arrow(domain, codes, np.random.default_rng(0)).column(0)
        assert str(written.type) == ("date32[day]" if isinstance(attribute, Date) else "timestamp[s]")
        drawn = [*range(attribute.declared + 1)]
        assert codes_of(attribute, written).tolist() == drawn
        if isinstance(attribute, Timestamp):  # Parquet has no seconds, only their parts
            assert codes_of(attribute, written.cast(pa.timestamp("ms"))).tolist() == drawn
        with pytest.raises(InputError, match="what its domain does not declare"):
            codes_of(attribute, pa.chunked_array([pa.array([0], pa.int32()).cast(pa.date32()).cast(written.type)]))
        for column in (written, written.cast(pa.string())):
            encoded = open_table(pa.table({attribute.name: column})).encode(domain)
            (table,) = encoded.marginals([(attribute.name,)])
            assert reveal(table).tolist() == [1] * (attribute.declared + 1) + [0]
        for code in (0, 1, attribute.declared - 1):
            assert compatible(attribute, str(written[code].as_py()), {}) == {code}
        assert compatible(attribute, "2030-01-01", {}) == {attribute.size - 1}
        assert compatible(attribute, f"{attribute.labels()[0]}..{attribute.labels()[1]}", {}) == {0, 1}


@pytest.mark.parametrize(
    ("by", "cell"),
    [
        (("month(d)", "weekday(d)"), lambda d: (f"{d:%Y-%m}", f"{d:%A}")),
        (("weekday(d)", "month(d)", "year(d)"), lambda d: (f"{d:%A}", f"{d:%Y-%m}", f"{d:%Y}")),
        (("d", "month(d)"), lambda d: (str(d), f"{d:%Y-%m}")),
    ],
)
def test_several_maps_of_one_date_have_the_cells_that_some_day_is_in(by, cell):
    """Another attribute is between them: the columns are in the requested order."""
    days = [DAYS[place * place % len(DAYS)] for place in range(900)]
    sexes = ["FM"[place % 2] for place in range(900)]
    table = pa.table(
        {"d": days, "t": [None] * 900, "sex": sexes},
        pa.schema([("d", pa.date32()), ("t", pa.timestamp("s")), ("sex", pa.string())]),
    )
    asked = query.Query((query.Count(),), by=(by[0], "sex", *by[1:]))
    encoded = open_table(table).encode(DOMAIN)
    answer = query.ask(SimulatedVault(encoded, seed=1), asked, loss=Epsilon(10**6))
    held = Counter((cell(day)[0], sex, *cell(day)[1:]) for day, sex in zip(days, sexes, strict=True))
    known = {cell(day) for day in DAYS}
    beside = {("(missing)",) * len(by), ("(other)",) * len(by)}
    assert {(key[0], *key[2:]) for key in answer.keys} == known | beside
    assert len(answer.keys) == len(set(answer.keys)) == 3 * len(known | beside)
    assert {
        key: int(value[0].estimate) for key, value in zip(answer.keys, answer.values, strict=True) if value[0].estimate
    } == held


def test_two_maps_of_one_date_are_one_table_of_the_reach_of_both():
    unit = Unit("p", rows=40, per=(GroupBound(("month(d)",), rows=2, groups=6),))
    domain = Domain(DOMAIN.attributes, unit=unit)
    (question,) = plan(parse("SELECT COUNT(*) FROM x GROUP BY month(d), weekday(d)", domain), domain).questions
    assert question.sensitivity(domain) == (12, 24), (
        "in six months two rows each, on one weekday of a month at most two"
    )
    (weekdays,) = plan(parse("SELECT COUNT(*) FROM x GROUP BY weekday(d)", domain), domain).questions
    assert weekdays.sensitivity(domain) == (12, 144)
    (days,) = plan(parse("SELECT COUNT(*) FROM x GROUP BY d, month(d)", domain), domain).questions
    assert days == plan(parse("SELECT COUNT(*) FROM x GROUP BY d", domain), domain).questions[0], (
        "one table, charged once"
    )
