"""The odd table, how each engine is given it, and an oracle that encodes and counts it in plain Python."""

from __future__ import annotations

import math
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engine import cluster
from tests.services import require

from sfumato.domain import Attribute, Categorical, Domain, Integer, Unknown
from sfumato.domain.predicate import All, Among, Not, Predicate
from sfumato.domain.predicate import Any as AnyOf
from sfumato.engine.open import open_table
from sfumato.engine.port import ProtectedTable

Row = dict[str, Any]

SCHEMA = pa.schema(
    [
        ("person", pa.string()),
        ("number", pa.int64()),
        ("word", pa.string()),
        ("digits", pa.string()),
        ("flag", pa.bool_()),
        ("whole", pa.int64()),
        ("real", pa.float64()),
        ("wild", pa.float64()),
        ("amount", pa.decimal128(18, 2)),
        ("day", pa.date32()),
        ("single", pa.float32()),
        ("unsigned", pa.uint64()),
        ("precise", pa.decimal128(38, 20)),
    ]
)

WORDS = [
    "a",
    "A",
    " a",
    "a ",
    "\u00e9",
    "e\u0301",
    "01",
    "1",
    "",
    None,
    "true",
    "a\tb",
    'a"b',
    "a\nb",
    "a,b",
    "\u00df",
    "SS",
]
DIGITS = ["39", " 39", "39 ", "39.0", "39.5", "+5", "-5", "1e2", "1e999", "0x10", "1_000", "\u0663", "", "-0", ".5",
          "5.", "NaN", "inf", "39\n", None, "007", "1e-3", "9" * 40, "1,5", "1.5E+2", "-2e300", "5e-324"]  # fmt: skip
FLAGS = [True, False, None]
WHOLES = [0, 5, -3, (1 << 63) - 1, -(1 << 63), (1 << 53) + 1, None, 99, 100, 7]
REALS = [0.5, None, -0.0, 1e299, 0.1 + 0.2, 0.3, 1.0, -2.5, 2.5, 3.5, 99.999999999999986, 100.0, 0.1]
WILDS = [math.nan, math.inf, -math.inf, 0.25, None, 5e-324, 1.0]
AMOUNTS = [Decimal("0.10"), Decimal("2.50"), Decimal("-1.00"), None, Decimal("1234567890123456.78"), Decimal("7.00")]
SINGLES = [float(np.float32(value)) for value in (0.1, 16777217, -0.0, 3.4e38, 1e-45, 2.5)] + [None]
UNSIGNEDS = [0, 7, (1 << 64) - 1, 1 << 63, None, (1 << 53) + 1, 100]
PRECISES = [
    Decimal("0.1"),
    Decimal("0.30000000000000004441"),  # nearest to the double above 0.3
    Decimal("999999999999999999.99999999999999999999"),
    Decimal("-0.00000000000000000001"),
    None,
    Decimal(7),
]
DAYS = [date(2024, 2, 29), date(1970, 1, 1), None, date(1, 1, 1)]


def odd_rows() -> list[Row]:
    """Rows that hold every odd value at least once, in combinations that repeat."""
    columns = (WORDS, DIGITS, FLAGS, WHOLES, REALS, WILDS, AMOUNTS, DAYS, SINGLES, UNSIGNEDS, PRECISES)
    names = SCHEMA.names[2:]
    rows = []
    for index in range(120):
        row = {name: values[index % len(values)] for name, values in zip(names, columns, strict=True)}
        person = None if index % 23 == 0 else f"p{index % 11}"
        rows.append({"person": person, "number": None if person is None else int(person[1:])} | row)
    return rows


def arrow(rows: Sequence[Row]) -> pa.Table:
    return pa.table({field.name: pa.array([row[field.name] for row in rows], field.type) for field in SCHEMA})


def spelled(value: object) -> str | None:
    """Return the text of a value in a CSV file."""
    match value:
        case bool():
            return str(value)
        case float():
            return None if math.isnan(value) else repr(value)
        case date():
            return value.isoformat()
        case None | str():
            return value
        case _:
            return str(value)


def write_csv(path: Path, rows: Sequence[Row]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        stream.write(",".join(SCHEMA.names) + "\n")
        for row in rows:  # by hand: the csv module of Python 3.11 cannot tell an empty text from a missing value
            texts = (spelled(row[name]) for name in SCHEMA.names)
            stream.write(",".join("" if text is None else '"' + text.replace('"', '""') + '"' for text in texts) + "\n")
    return path


@dataclass(frozen=True)
class Adapter:
    """A way to bring rows to an engine: ``open`` opens them, ``seen`` are the rows that the engine sees."""

    name: str
    open: Callable[[Sequence[Row], Path], ProtectedTable]
    text_only: bool = False
    finite_only: bool = False  # there is no NaN and no infinity, and booleans are integers

    def seen(self, rows: Sequence[Row]) -> list[Row]:
        if self.finite_only:
            return [finite(row) for row in rows]
        if self.text_only:
            return [{name: spelled(value) for name, value in row.items()} for row in rows]
        return list(rows)

    def __repr__(self) -> str:
        return self.name


def _csv(rows: Sequence[Row], folder: Path) -> ProtectedTable:
    return open_table(write_csv(folder / "odd.csv", rows))


def _parquet(rows: Sequence[Row], folder: Path) -> ProtectedTable:
    pq.write_table(arrow(rows), folder / "odd.parquet", row_group_size=17)
    return open_table(folder / "odd.parquet")


def _pandas(rows: Sequence[Row], folder: Path) -> ProtectedTable:
    import pandas as pd

    return open_table(arrow(rows).to_pandas(types_mapper=pd.ArrowDtype))


def _polars(rows: Sequence[Row], folder: Path) -> ProtectedTable:
    import polars as pl

    return open_table(pl.from_arrow(arrow(rows)))


def _arrow(rows: Sequence[Row], folder: Path) -> ProtectedTable:
    return open_table(arrow(rows))


def _database(variable: str) -> Callable[[Sequence[Row], Path], ProtectedTable]:
    def opener(rows: Sequence[Row], folder: Path) -> ProtectedTable:
        import sqlalchemy as sa
        from sqlalchemy.dialects import mysql

        url = sa.make_url(require(variable))
        maria = url.drivername == "mysql"
        driver = "mysql+pymysql" if maria else "postgresql+psycopg"
        engine = sa.create_engine(url.set(drivername=driver), poolclass=sa.NullPool)
        types = [sa.BigInteger, sa.String(255), sa.String(255), sa.Boolean, sa.BigInteger, sa.Double, sa.Double,
                 sa.Numeric(18, 2), sa.Date, mysql.FLOAT() if maria else sa.REAL,
                 mysql.BIGINT(unsigned=True) if maria else sa.Numeric(20, 0), sa.Numeric(38, 20)]  # fmt: skip
        name = f"odd_{secrets.token_hex(6)}"
        columns = [sa.Column(*pair) for pair in zip(SCHEMA.names, [sa.String(255), *types], strict=True)]
        table = sa.Table(name, sa.MetaData(), *columns)
        with engine.begin() as connection:
            table.create(connection)
            connection.execute(table.insert(), [finite(row) if maria else row for row in rows])
        _MADE.append((url.render_as_string(hide_password=False), name))
        return open_table(url.update_query_dict({"table": name}).render_as_string(hide_password=False))

    return opener


def _spark(rows: Sequence[Row], folder: Path) -> ProtectedTable:
    spark = cluster.session()
    pq.write_table(arrow(rows).slice(0, len(rows) // 3), folder / "part-0.parquet")
    pq.write_table(arrow(rows).slice(len(rows) // 3), folder / "part-1.parquet")
    assert spark is not None
    return open_table(f"spark:{folder}")


_MADE: list[tuple[str, str]] = []


@pytest.fixture(scope="session", autouse=True)
def _tables_are_dropped():
    yield
    cluster.stop()
    import sqlalchemy as sa

    for text, name in _MADE:
        url = sa.make_url(text)
        driver = "mysql+pymysql" if url.drivername == "mysql" else "postgresql+psycopg"
        with sa.create_engine(url.set(drivername=driver), poolclass=sa.NullPool).begin() as connection:
            connection.exec_driver_sql(f"DROP TABLE {name}")


ADAPTERS = [
    Adapter("duckdb-csv", _csv, text_only=True),
    Adapter("duckdb-parquet", _parquet),
    Adapter("duckdb-pandas", _pandas),
    Adapter("duckdb-polars", _polars),
    Adapter("duckdb-arrow", _arrow),
    Adapter("postgres", _database("SFUMATO_TEST_POSTGRES")),
    Adapter("mariadb", _database("SFUMATO_TEST_MARIADB"), finite_only=True),
]
# A hundred questions to a cluster take minutes: all of them in `make slow`, the gist in test_spark.py always.
SPARK = Adapter("spark", _spark)


@pytest.fixture(scope="session", params=[*ADAPTERS, pytest.param(SPARK, marks=pytest.mark.slow)], ids=repr)
def adapter(request: pytest.FixtureRequest) -> Adapter:
    """Return every engine in turn."""
    return request.param


def finite(row: Row) -> Row:
    """The row for a database without NaN and infinity."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


class Oracle:
    """Encodes and counts rows one by one."""

    def __init__(self, domain: Domain, rows: Iterable[Row]) -> None:
        self.domain = domain
        self.codes: list[tuple[int, ...]] = []
        self.values: list[tuple[float | None, ...]] = []
        self.persons: list[object] = []
        for row in rows:
            cells = [cell(attribute, row[attribute.name]) for attribute in domain]
            person = row[domain.unit.column] if domain.unit.column else None
            if any(code is None for code, _ in cells) or (domain.unit.column and person is None):
                continue
            self.codes.append(tuple(code for code, _ in cells if code is not None))
            self.values.append(tuple(value for _, value in cells))
            self.persons.append(person)

    def at(self, names: Sequence[str], where: Predicate | None = None) -> list[tuple[tuple[int, ...], int]]:
        """Cell and position of each row that meets the condition."""
        places = [self.domain.index(name) for name in names]
        return [
            (tuple(codes[place] for place in places), index)
            for index, codes in enumerate(self.codes)
            if holds(where, self.domain, codes)
        ]

    def dense(self, names: Sequence[str], weights: Iterable[tuple[tuple[int, ...], int]]) -> np.ndarray:
        table = np.zeros([self.domain[name].size for name in names], dtype=object)
        for where, weight in weights:
            table[where] += weight
        return table.reshape(-1).astype(np.int64)

    def marginal(self, names: Sequence[str], where: Predicate | None = None) -> np.ndarray:
        return self.dense(names, ((found, 1) for found, _ in self.at(names, where)))

    def units(self, names: Sequence[str], where: Predicate | None = None) -> np.ndarray:
        distinct = {
            (found, self.persons[index] if self.domain.unit.column else index) for found, index in self.at(names, where)
        }
        return self.dense(names, ((found, 1) for found, _ in distinct))

    def groups(self, names: Sequence[str], where: Predicate | None = None) -> list[tuple[tuple[int, ...], int]]:
        return sorted(Counter(found for found, _ in self.at(names, where)).items())

    def sums(self, value: str, names: Sequence[str], unit: Fraction, where: Predicate | None = None) -> np.ndarray:
        numbers = [row[self.domain.index(value)] for row in self.values]
        rows = self.at(names, where)
        return self.dense(
            names,
            ((found, round(Fraction(numbers[index]) / unit)) for found, index in rows if numbers[index] is not None),
        )

    def bins(self, value: str, edges: Sequence[float], names: Sequence[str]) -> np.ndarray:
        table = np.zeros((math.prod(self.domain[name].size for name in names), len(edges) - 1), dtype=np.int64)
        shape = [self.domain[name].size for name in names]
        for found, index in self.at(names):
            number = self.values[index][self.domain.index(value)]
            if number is None or not edges[0] <= number <= edges[-1]:
                continue
            place = max(start for start, edge in enumerate(edges[:-1]) if edge <= number)
            table[np.ravel_multi_index(found, shape) if shape else 0, place] += 1
        return table.reshape(-1)


@pytest.fixture(scope="session")
def oracle() -> type[Oracle]:
    """The oracle's class."""
    return Oracle


def cell(attribute: Attribute, value: object) -> tuple[int | None, float | None]:
    """Code (None: the row is dropped) and clamped number of one value, as its domain says."""
    unknown = attribute.size - 1 if attribute.unknown is Unknown.CATEGORY else None
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return (attribute.declared if attribute.nullable else unknown), None
    if isinstance(attribute, Categorical):
        return _category(attribute, value, unknown), None
    number = _number(value)
    if number is None:
        return unknown, None
    if number < attribute.minimum or number > attribute.maximum:
        if attribute.unknown is not Unknown.CLAMP:
            return unknown, None
        low = number < attribute.minimum
        return (0, attribute.minimum) if low else (attribute.declared - 1, attribute.maximum)
    if isinstance(attribute, Integer):
        if number != int(number):
            return unknown, None
        return next(c for c in range(attribute.declared) if int(number) <= attribute.bounds(c)[1]), number
    return max(code for code in range(attribute.declared) if attribute.edges[code] <= number), number


def _category(attribute: Categorical, value: object, unknown: int | None) -> int | None:
    match value:
        case bool():
            text = str(value).lower()
        case str():
            text = value
        case date():
            text = value.isoformat()
        case _:
            text = str(int(value)) if value == int(value) else ""
    for code, declared in enumerate(attribute.values):
        if isinstance(declared, bool):
            if text in ({"true", "True", "TRUE", "1"} if declared else {"false", "False", "FALSE", "0"}):
                return code
        elif text == str(declared):
            return code
    return unknown


def _number(value: object) -> float | None:
    if isinstance(value, str):
        plain = re.fullmatch(r"[+-]?([0-9]{1,200}(\.[0-9]{0,200})?|\.[0-9]{1,200})", value)
        scientific = re.fullmatch(r"[+-]?([0-9]{1,8}(\.[0-9]{0,20})?|\.[0-9]{1,20})[eE][+-]?[0-9]{1,3}", value)
        return float(value) if plain or (scientific and abs(int(re.split("[eE]", value)[1])) < 300) else None
    return float(value)


def holds(predicate: Predicate | None, domain: Domain, codes: Sequence[int]) -> bool:
    match predicate:
        case None:
            return True
        case Among(attribute=name, codes=among):
            return codes[domain.index(name)] in among
        case All(parts=parts):
            return all(holds(part, domain, codes) for part in parts)
        case AnyOf(parts=parts):
            return any(holds(part, domain, codes) for part in parts)
        case Not(part=part):
            return not holds(part, domain, codes)


@pytest.fixture(scope="session")
def rows() -> list[Row]:
    """The odd table."""
    return odd_rows()


@pytest.fixture(scope="session")
def table(adapter: Adapter, rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> ProtectedTable:
    """The odd table on every engine."""
    return adapter.open(rows, tmp_path_factory.mktemp("odd"))
