"""Ids that are whole numbers, and dates of the DATE type, are read as they are: they come to what text gives."""

# ruff: noqa: S608 - statements are put together here, and times of no zone are meant

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest
from tests.engine.test_views import HOSPITAL, LOOSE, VIEWS, bounds, by_unit, scan
from tests.hospital import database, frames

from sfumato.domain import Date, Domain, Grain, Unknown
from sfumato.domain.view import BoundedView
from sfumato.engine.encoded import EncodedRows
from sfumato.engine.open import open_table
from sfumato.engine.views.joined import open_tables
from sfumato.errors import TableError

KEYS = {"patient_id", "person_id", "visit_id", "rx_id", "dx_id"}


def as_text(tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    found = {}
    for name, table in tables.items():
        types = [pa.field(each.name, pa.string() if each.name in KEYS else each.type) for each in table.schema]
        found[name] = table.cast(pa.schema(types))
    return found


@pytest.mark.parametrize("name", ["two private, by a key", "through another", "per unit", "beside facts"])
def test_numbers_and_texts_keep_the_same_rows(name: str) -> None:
    tables = frames(database(3))
    one, other = (open_tables(HOSPITAL, each) for each in (tables, as_text(tables)))
    for unit in (LOOSE, bounds(name)):
        assert by_unit(one, VIEWS[name], unit) == by_unit(other, VIEWS[name], unit)


@pytest.mark.parametrize("type_", [pa.int8(), pa.int32(), pa.uint32(), pa.uint64()])
def test_ids_of_two_types_meet(type_: pa.DataType) -> None:
    tables = frames(database(3))
    patients = tables["patients"]
    other = tables | {"patients": patients.set_column(0, "patient_id", patients["patient_id"].cast(type_))}
    one, two = (by_unit(open_tables(HOSPITAL, each), VIEWS["outer"], LOOSE) for each in (tables, other))
    assert one == two


@pytest.mark.parametrize("keys", [[7, 7], [-3, -3], [2**62, 2**62], [-(2**62), 2**62, 2**62]])
def test_a_key_that_repeats_is_found_however_far_apart_keys_are(keys: list[int]) -> None:
    tables = frames(database(0))
    known = tables["patients"].slice(0, len(keys))
    tables["patients"] = known.set_column(0, "patient_id", pa.array(keys))
    with pytest.raises(TableError, match="names several rows"):
        open_tables(HOSPITAL, tables)
    tables["patients"] = known.set_column(0, "patient_id", pa.array([*keys[:-1], 5]))
    open_tables(HOSPITAL, tables)


@pytest.mark.parametrize("by", [Grain.DAY, Grain.WEEK])
@pytest.mark.parametrize("unknown", list(Unknown))
def test_days_of_the_date_type_are_those_of_text(by: Grain, unknown: Unknown) -> None:
    seen = Date(name="d", first=date(1899, 12, 30), last=date(2024, 3, 1), by=by, unknown=unknown, nullable=True)
    days = [date(1, 1, 1), date(1582, 10, 10), date(1899, 12, 30), date(1900, 2, 28), date(1900, 3, 1)]
    days += [date(2000, 2, 29), date(2024, 2, 29), date(2024, 3, 1), date(2024, 3, 2), date(9999, 12, 31)]
    beyond = [2932897, -719163, 2**31 - 1, -(2**31) + 1]  # the year 10000, the year 0, and what prints as infinity
    numbers = [(day - date(1970, 1, 1)).days for day in days] + [*beyond, None]
    dated = pa.table({"d": pa.array(numbers, pa.int32()).cast(pa.date32())})
    text = pa.table({"d": pa.array([*map(str, days), "10000-01-01", "0000-12-31 (BC)", "infinity", "-infinity", None])})
    codes = []
    for table in (dated, text):
        encoded = open_table(table).encode(Domain((seen,)))
        assert isinstance(encoded, EncodedRows)
        codes.append(sorted(encoded.store.query(f"SELECT c0 FROM {encoded.store.relation}")["c0"].to_pylist()))
    assert codes[0] == codes[1]


def test_ids_beyond_signed_numbers_are_told_apart() -> None:
    tables = frames(database(3))
    large = [(row.as_py() or 0) + 2**63 for row in tables["patients"]["patient_id"]]
    tables["patients"] = tables["patients"].set_column(0, "patient_id", pa.array(large, pa.uint64()))
    versions = []
    for _ in range(2):
        encoded = open_tables(HOSPITAL, tables).encode(BoundedView(scan("patients"), LOOSE))
        versions.append(encoded.version)
    assert versions[0] == versions[1]


def with_decimals(table: pa.Table, column: str) -> pa.Table:
    """Return numbers as text with decimals, as written by programs that read missing values in the column."""
    numbers = [None if each is None else f"{each}.0" for each in table[column].to_pylist()]
    return table.set_column(table.column_names.index(column), column, pa.array(numbers, pa.string()))


@pytest.mark.parametrize(
    ("name", "column"), [("visits", "patient_id"), ("patients", "patient_id"), ("drugs", "visit_id")]
)
def test_ids_that_are_written_with_decimals_in_one_table_are_refused(name: str, column: str) -> None:
    """Each person would become two units."""
    tables = as_text(frames(database(3)))
    with pytest.raises(TableError, match="at its end that"):
        open_tables(HOSPITAL, tables | {name: with_decimals(tables[name], column)})


def test_ids_that_are_written_with_decimals_everywhere_are_ids() -> None:
    tables = as_text(frames(database(3)))
    alike = {name: tables[name] for name in tables}
    for name, column in (("patients", "patient_id"), ("visits", "patient_id"), ("drug_era", "person_id")):
        alike[name] = with_decimals(alike[name], column)
    one, other = (by_unit(open_tables(HOSPITAL, each), VIEWS["outer"], LOOSE) for each in (tables, alike))
    assert len(one) == len(other) > 0


def test_codes_of_public_tables_may_end_with_a_decimal() -> None:
    tables = as_text(frames(database(3)))
    codes = {f"I{n}": str(n) for n in range(6)}
    icd = [codes[each] for each in tables["icd"]["code"].to_pylist()]
    tables["icd"] = pa.table({"code": [*icd, "1.0"], "chapter": [*tables["icd"]["chapter"].to_pylist(), 1]})
    found = [f"{codes[each]}.0" for each in tables["diagnoses"]["code"].to_pylist()]
    tables["diagnoses"] = tables["diagnoses"].set_column(2, "code", pa.array(found))
    open_tables(HOSPITAL, tables)
