"""Views of several tables: what they hold, and that no row of a unit depends on what other units have."""

# ruff: noqa: S608, ISC004 - statements of an engine that knows nothing of units are written out here

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.hospital import OUTSIDE, UNITS, Rows, database, frames, schema, without

from sfumato.domain import Categorical, Integer, Real, Unit, Unknown
from sfumato.domain.expression import (
    Arithmetic,
    Cases,
    Clamp,
    Constant,
    DaysBetween,
    Expression,
    Field,
    Labels,
    Operator,
)
from sfumato.domain.predicate import All, Among, Not
from sfumato.domain.predicate import Any as AnyOf
from sfumato.domain.table_schema import Schema, SchemaTable, parse_schema
from sfumato.domain.unit_views import (
    AnyRow,
    Declared,
    EveryRow,
    PublicAggregate,
    Renamed,
    WithFacts,
    WithGap,
    WithPublicValue,
)
from sfumato.domain.view import (
    BoundedView,
    Computed,
    Filter,
    Join,
    OfUnits,
    PerUnit,
    Pick,
    RowCount,
    Scan,
    Taken,
    UnitSum,
    View,
    one_row_bounds,
)
from sfumato.engine.encoded import EncodedRows
from sfumato.engine.exact import reveal
from sfumato.engine.views.joined import JoinedTables, open_tables
from sfumato.errors import EngineError, InputError, QueryError, TableError

HOSPITAL = schema()
LOOSE = Unit("patient_id", rows=10_000, schema="hospital")


def scan(name: str, alias: str | None = None) -> Scan:
    prefix = "" if alias is None else f"{alias}."
    return Scan(HOSPITAL[name], alias or name, tuple(prefix + each.name for each in HOSPITAL[name].attributes))


VISITS, PATIENTS, DRUGS, DIAGNOSES = (scan(name) for name in ("visits", "patients", "drugs", "diagnoses"))
DEAR = Among("cost", frozenset({1}))
VIEWS: dict[str, View] = {
    "one table": VISITS,
    "through another": DRUGS,
    "two private, by the unit": Join(VISITS, PATIENTS, ()),
    "two private, by a key": Join(DRUGS, VISITS, ((1, 0),)),
    "two private through one": Join(DRUGS, DIAGNOSES, ((1, 1),)),
    "by the unit alone": Join(DRUGS, DIAGNOSES, ()),
    "with itself": Join(VISITS, scan("visits", "w"), ()),
    "by a key that others have too": Join(DIAGNOSES, scan("diagnoses", "e"), ((2, 2),)),
    "public": Join(DIAGNOSES, scan("icd"), ((2, 0),)),
    "public, one to many": Join(DIAGNOSES, scan("icd_block"), ((2, 0),)),
    "outer": Join(PATIENTS, VISITS, (), outer=True),
    "outer, three": Join(Join(PATIENTS, VISITS, (), outer=True), DRUGS, ((1, 1),), outer=True),
    "filtered": Filter(Join(VISITS, PATIENTS, ()), DEAR),
    "computed": Computed(VISITS, "double", Arithmetic(Operator.TIMES, Field("cost"), Constant(Fraction(2)))),
    "labelled": Computed(VISITS, "band", Labels(((DEAR, "dear"),), "cheap")),
    "with rows elsewhere": OfUnits(VISITS, DRUGS),
    "without rows elsewhere": OfUnits(PATIENTS, DIAGNOSES, without=True),
    "per unit": PerUnit(
        Join(PATIENTS, VISITS, (), outer=True),
        ("sex",),
        (
            ("n", RowCount(39, 1)),
            ("spend", UnitSum("cost", Fraction(0), Fraction(2500))),
            ("dearest", Taken(Pick.GREATEST, "cost")),
            ("first", Taken(Pick.LEAST, "admitted")),
            ("kind at last", Taken(Pick.LAST, "kind", "admitted")),
            ("ever", AnyRow(DEAR)),
        ),
    ),
    "per unit, of doses": PerUnit(DRUGS, ("drug",), (("dose", UnitSum("dose", Fraction(0), Fraction(20))),)),
}
VIEWS["per unit, or missing"] = PerUnit(
    Join(Join(PATIENTS, VISITS, (), outer=True), DRUGS, ((1, 1),), outer=True),
    ("sex",),
    (
        ("spend", UnitSum("cost", Fraction(10), Fraction(2500), missing=True)),
        ("doses", UnitSum("dose", Fraction(0), Fraction(20), missing=True)),
        ("any dear", AnyRow(DEAR, Among("cost", [0]))),
        ("all dear", EveryRow(DEAR, Among("cost", [0]))),
    ),
)
VIEWS["least of what is missing"] = Computed(
    VISITS, "most", Clamp(Field("cost"), high=Fraction(600), ignores_missing=True)
)
VIEWS["with itself, twice"] = Join(VIEWS["with itself"], scan("visits", "x"), ())
VIEWS["groups of units, joined"] = Join(PerUnit(DRUGS, ("drug",), (("n", RowCount(9)),)), VISITS, ())
VIEWS["public, then private"] = Join(VIEWS["public, one to many"], DRUGS, ())
VIEWS["keyless"] = Join(scan("drug_era"), VISITS, ())
VIEWS["since the row before"] = WithGap(VISITS, "gap", "admitted", 0, 90)
VIEWS["since the row before, of a key"] = Join(DRUGS, VIEWS["since the row before"], ((1, 0),))
VIEWS["beside facts"] = WithFacts(
    PATIENTS,
    PerUnit(
        VIEWS["since the row before"],
        (),
        (
            ("n", RowCount(5)),
            ("ever", AnyRow(DEAR)),
            ("spend", UnitSum("cost", Fraction(10), Fraction(2500))),
            ("longest", Taken(Pick.GREATEST, "gap")),
        ),
    ),
)
VIEWS["beside sums of doses"] = WithFacts(
    VISITS, PerUnit(DRUGS, (), (("doses", UnitSum("dose", Fraction(1), Fraction(20))),))
)
VIEWS["declared, rows left out"] = Declared(
    WithGap(VISITS, "gap", "admitted", 0, 364),
    Integer(name="gap", minimum=7, maximum=60, edges=(7, 30), unknown=Unknown.DROP),
)
VIEWS["declared, where it is cut"] = Declared(
    Computed(VISITS, "half", Arithmetic(Operator.TIMES, Field("cost"), Constant(Fraction(1, 2)))),
    Real(name="half", edges=(0.0, 250.5, 500.0), unknown=Unknown.CLAMP, nullable=True),
)
VIEWS["declared, not missing"] = Declared(
    Computed(VISITS, "band", Labels(((DEAR, "dear"),))),
    Categorical(name="band", values=("dear",), unknown=Unknown.DROP),
)
VIEWS["renamed, joined with itself"] = Join(
    Renamed(DRUGS, ("medicine", "amount")), Renamed(DRUGS, ("drug", "dose too")), ((0, 0),)
)
VIEWS["a row of a key"] = OfUnits(VISITS, Filter(DRUGS, Among("drug", [0])), on=((0, 1),))
VIEWS["no row of a key"] = OfUnits(VISITS, DRUGS, without=True, on=((0, 1),))
VIEWS["a row of a public key"] = OfUnits(DIAGNOSES, Filter(scan("icd"), Among("chapter", [0])), on=((2, 0),))
VIEWS["a row of the unit with another key"] = OfUnits(DIAGNOSES, scan("diagnoses", "e"), apart=((2, 2),))
VIEWS["a row of a key that others have too"] = OfUnits(DIAGNOSES, scan("diagnoses", "e"), on=((2, 2),), apart=((0, 0),))
SIZED = Computed(
    scan("icd"), "size", Cases(((Among("chapter", [0]), Constant(Fraction(5))),), Constant(Fraction(1, 2)))
)
VIEWS["beside a public mean"] = WithPublicValue(VISITS, "mean", SIZED, "size", PublicAggregate.MEAN)
VIEWS["beside a public extreme"] = WithPublicValue(VISITS, "most", SIZED, "size", PublicAggregate.GREATEST)
VIEWS["per unit, or a number"] = PerUnit(
    Join(PATIENTS, VISITS, (), outer=True),
    (),
    (("spend", UnitSum("cost", Fraction(0), Fraction(900), empty=Fraction(900))),),
)
VIEWS["per unit, joined"] = Join(VISITS, PerUnit(DRUGS, (), (("drugs", RowCount(20)),)), (), outer=True)


def test_views_go_by_the_names_under_which_answers_of_earlier_versions_are_kept() -> None:
    """Another name of a class of views would charge questions once more that were answered before."""
    unit = HOSPITAL.bounds("visits")
    found = {word for view in VIEWS.values() for word in re.findall(r'"is":"(\w+)"', BoundedView(view, unit).canonical)}
    found |= {each.__name__ for each in (*Expression.__subclasses__(), All, AnyOf, Not)}
    kept = "All Among Any Arithmetic Clamp Computed Constant DaysBetween Field Filter Join Labels Not OfUnits PerUnit "
    kept += "AnyRow Cases CodeRanges Declared RowCount Scan Taken UnitSum WithFacts WithGap Categorical Integer Real "
    kept += "EveryRow Renamed WithPublicValue Applied AppliedToPair"
    assert found == set(kept.split())


def bounds(name: str) -> Unit:
    view = VIEWS[name]
    unit = HOSPITAL.bounds("drugs" if "drug" in view.names else "visits").bounded(rows=4, per=())
    return one_row_bounds(unit, view) if isinstance(view, PerUnit) else unit


def opened(rows: Rows, described: Schema = HOSPITAL) -> JoinedTables:
    return open_tables(described, frames(rows))


def by_unit(tables: JoinedTables, view: View, unit: Unit) -> dict[str, Counter[tuple[Any, ...]]]:
    """The encoded rows of each unit."""
    encoded = tables.encode(BoundedView(view, unit))
    assert isinstance(encoded, EncodedRows)
    found = encoded.store.query(f"SELECT * FROM {encoded.store.relation}").to_pylist()
    rows: dict[str, Counter[tuple[Any, ...]]] = defaultdict(Counter)
    for row in found:
        rows[str(row.pop("u"))][tuple(row.items())] += 1
    return rows


# the views whose rows may lose their owner; the tables of all others are the same with and without a cascade
OF_PARTS = {name: view for name, view in VIEWS.items() if {"drugs", "diagnoses"} & {each.name for each in view.tables}}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 12))])
def test_removing_a_unit_removes_its_rows_and_moves_no_other(seed: int) -> None:
    rows = database(seed)
    before = opened(rows)
    whole = {name: (by_unit(before, view, LOOSE), by_unit(before, view, bounds(name))) for name, view in VIEWS.items()}
    assert any(whole[name][0] for name in VIEWS)
    for unit in range(UNITS):
        for cascade in (True, False):
            after = opened(without(rows, unit, cascade=cascade))
            for name, view in VIEWS.items() if cascade else OF_PARTS.items():
                for place, limits in enumerate((LOOSE, bounds(name))):
                    expected = {id_: kept for id_, kept in whole[name][place].items() if id_ != str(unit)}
                    assert by_unit(after, view, limits) == expected, (name, unit, cascade)


def test_no_unit_has_more_rows_than_its_bound() -> None:
    fullest: Counter[str] = Counter()
    for seed in range(2):
        tables = opened(database(seed))
        for name, view in VIEWS.items():
            for kept in by_unit(tables, view, bounds(name)).values():
                fullest[name] = max(fullest[name], sum(kept.values()))
    assert all(fullest[name] <= bounds(name).rows for name in VIEWS)
    assert fullest["two private, by a key"] == bounds("two private, by a key").rows  # the bound is met


# --- what they hold, against statements of an engine that knows nothing of units --------------------------------------

PLAIN: dict[str, tuple[View, tuple[str, ...], str]] = {
    "join": (
        VIEWS["two private, by the unit"],
        ("region", "kind"),
        "region, kind FROM visits JOIN patients USING (patient_id)",
    ),
    "key": (
        VIEWS["two private, by a key"],
        ("drug", "kind"),
        "drug, kind FROM drugs JOIN visits USING (visit_id) WHERE patient_id IS NOT NULL",
    ),
    "pairs": (
        VIEWS["two private through one"],
        ("drug", "code"),
        "drug, code FROM drugs JOIN diagnoses USING (visit_id) JOIN visits USING (visit_id)",
    ),
    "public": (
        VIEWS["public, one to many"],
        ("block",),
        "block FROM diagnoses JOIN icd_block USING (code) JOIN visits USING (visit_id)",
    ),
    "filter": (
        VIEWS["filtered"],
        ("sex",),
        "sex FROM visits JOIN patients USING (patient_id) WHERE cost >= 500",
    ),
    "band": (
        VIEWS["labelled"],
        ("band",),
        "CASE WHEN cost >= 500 THEN 'dear' ELSE 'cheap' END FROM visits WHERE patient_id IS NOT NULL",
    ),
    "units with": (
        VIEWS["with rows elsewhere"],
        ("kind",),
        "kind FROM visits WHERE patient_id IN (SELECT patient_id FROM drugs JOIN visits USING (visit_id))",
    ),
    "units without": (
        VIEWS["without rows elsewhere"],
        ("sex",),
        "sex FROM patients WHERE patient_id NOT IN "
        "(SELECT patient_id FROM diagnoses JOIN visits USING (visit_id) WHERE patient_id IS NOT NULL)",
    ),
    "key elsewhere": (
        VIEWS["a row of a key"],
        ("kind",),
        "kind FROM visits WHERE patient_id IS NOT NULL AND visit_id IN (SELECT visit_id FROM drugs WHERE drug = 'D0')",
    ),
    "no key elsewhere": (
        VIEWS["no row of a key"],
        ("kind",),
        "kind FROM visits v WHERE patient_id IS NOT NULL AND NOT EXISTS "
        "(SELECT * FROM drugs d WHERE d.visit_id = v.visit_id)",
    ),
    "renamed": (
        VIEWS["renamed, joined with itself"],
        ("medicine",),
        "drug FROM drugs JOIN visits USING (visit_id) WHERE patient_id IS NOT NULL",
    ),
    "counts": (
        VIEWS["per unit"],
        ("n",),
        "COUNT(visit_id) FROM patients LEFT JOIN visits USING (patient_id) GROUP BY patient_id",
    ),
    "sums": (
        VIEWS["per unit"],
        ("spend",),
        "LEAST(COALESCE(SUM(cost), 0), 2500) FROM patients LEFT JOIN visits USING (patient_id) GROUP BY patient_id",
    ),
    "first day": (
        VIEWS["per unit"],
        ("first",),
        "COALESCE(MIN(admitted)::VARCHAR, '(missing)') FROM patients LEFT JOIN visits USING (patient_id) "
        "GROUP BY patient_id",
    ),
    "ever": (
        VIEWS["per unit"],
        ("ever",),
        "CASE WHEN COALESCE(BOOL_OR(cost >= 500), false) THEN 'True' ELSE 'False' END "
        "FROM patients LEFT JOIN visits USING (patient_id) GROUP BY patient_id",
    ),
    "last kind": (
        VIEWS["per unit"],
        ("kind at last",),
        "COALESCE(MIN(kind) FILTER (admitted = latest)::VARCHAR, '(missing)') FROM patients LEFT JOIN "
        "(SELECT *, MAX(admitted) OVER (PARTITION BY patient_id) AS latest FROM visits) USING (patient_id) "
        "GROUP BY patient_id",
    ),
}  # fmt: skip


def generous(part: Any) -> Any:
    """Return the same tables with larger declared numbers of rows per unit, so that no join leaves a row out."""
    if isinstance(part, SchemaTable):
        return part if part.public else replace(part, rows=90, per=())
    if isinstance(part, Schema):
        return replace(part, tables=tuple(map(generous, part)))
    nodes = {each.name: getattr(part, each.name) for each in fields(part)}
    return replace(
        part, **{name: generous(node) for name, node in nodes.items() if isinstance(node, View | SchemaTable)}
    )


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_a_view_holds_what_plain_sql_does(name: str, seed: int) -> None:
    view, by, text = PLAIN[name]
    rows = database(seed)
    encoded = opened(rows, generous(HOSPITAL)).encode(BoundedView(generous(view), LOOSE))
    found = reveal(encoded.groups(by))
    labels = [encoded.domain[each].labels() for each in by]
    seen = {
        tuple(labels[axis][code] for axis, code in enumerate(codes)): count
        for codes, count in zip(found.codes.tolist(), found.counts.tolist(), strict=True)
    }
    with duckdb.connect() as connection:
        for table, frame in frames(rows).items():
            connection.register(table, frame)
        expected = Counter(tuple(map(str, row)) for row in connection.sql(f"SELECT {text}").fetchall())
    assert seen == expected


def computed(value: Any) -> Computed:
    return Computed(VISITS, "x", value)


COMPUTED: dict[str, tuple[Any, str]] = {
    "plus": (Arithmetic(Operator.PLUS, Field("cost"), Constant(Fraction(7))), "cost + 7"),
    "minus": (Arithmetic(Operator.MINUS, Field("kind"), Field("cost")), "kind - cost"),
    "times": (Arithmetic(Operator.TIMES, Field("cost"), Field("kind")), "cost * kind"),
    "half": (Arithmetic(Operator.TIMES, Field("cost"), Constant(Fraction(1, 2))), "cost / 2.0"),
    "clamp": (Clamp(Field("cost"), Fraction(10), Fraction(600)), "LEAST(GREATEST(cost, 10), 600)"),
    "cases": (Cases(((DEAR, Field("kind")),), Constant(Fraction(-5))), "CASE WHEN cost >= 500 THEN kind ELSE -5 END"),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_expressions_are_what_plain_sql_computes(name: str) -> None:
    value, text = COMPUTED[name]
    rows = database(1)
    view = computed(value)
    encoded = opened(rows).encode(BoundedView(view, LOOSE))
    total = int(reveal(encoded.sums("x", (), Fraction(1, 2)))[0])
    missing = "cost IS NULL" if name != "cases" else "false"
    with duckdb.connect() as connection:
        connection.register("visits", frames(rows)["visits"])
        values = f"SELECT {text} AS x FROM visits WHERE patient_id IS NOT NULL AND NOT {missing}"
        plain = f"SELECT SUM(x), MIN(x), MAX(x) FROM ({values})"
        ((expected, low, high),) = connection.sql(plain).fetchall()
    assert total == round(2 * float(expected))
    attribute = encoded.domain["x"]
    assert attribute.minimum <= low <= high <= attribute.maximum  # type: ignore[union-attr]


def test_days_between_two_dates() -> None:
    view = Computed(
        Join(VISITS, PerUnit(VISITS, (), (("first", Taken(Pick.LEAST, "admitted")),)), ()),
        "since",
        DaysBetween("admitted", "first"),
    )
    rows = database(2)
    encoded = opened(rows).encode(BoundedView(view, LOOSE))
    with duckdb.connect() as connection:
        connection.register("visits", frames(rows)["visits"])
        ((expected,),) = connection.sql(
            "SELECT SUM(admitted - first) FROM (SELECT *, MIN(admitted) OVER (PARTITION BY patient_id) AS first "
            "FROM visits WHERE patient_id IS NOT NULL)"
        ).fetchall()
    assert int(reveal(encoded.sums("since", (), Fraction(1)))[0]) == expected


QUARTERS = "(cost / 4 - 30)"
ROW_NUMBERS = [f"{function}({QUARTERS})" for function in ("ABS", "CEIL", "FLOOR", "ROUND", "SIGN", "TRUNC")]
ROW_NUMBERS += [f"ROUND({QUARTERS}, -1)", f"ROUND({QUARTERS}, 1)", f"CAST({QUARTERS} AS BIGINT)", f"{QUARTERS} % 7"]
ROW_NUMBERS += ["(cost - 500) % 7", "(cost - 500) // 7", f"POWER({QUARTERS}, 2)", "COALESCE(cost, kind)"]
ROW_NUMBERS += ["NULLIF(cost - 500, kind)", f"LEAST(cost - 500, {QUARTERS})", f"GREATEST(kind * 500, {QUARTERS})"]


# --- opening ----------------------------------------------------------------------------------------------------------


def test_a_key_that_names_two_rows_is_refused_at_opening() -> None:
    rows = dict(database(0))
    rows["visits"] = [*rows["visits"], rows["visits"][0]]
    with pytest.raises(TableError, match=r"visits\.visit_id names several rows"):
        opened(rows)


def test_keys_of_two_types_are_refused_at_opening() -> None:
    tables = frames(database(0))
    tables["drugs"] = tables["drugs"].set_column(1, "visit_id", tables["drugs"]["visit_id"].cast(pa.string()))
    with pytest.raises(TableError, match=r"drugs\.visit_id is of type VARCHAR and visits\.visit_id of type BIGINT"):
        open_tables(HOSPITAL, tables)


def test_ids_of_two_types_are_refused_where_no_table_lists_the_units() -> None:
    tables = {"one": {"unit": "who", "rows": 1, "attributes": {}}, "two": {"unit": "id", "rows": 1, "attributes": {}}}
    described = parse_schema({"sfumato": 2, "schema": "two", "unit": {"id": "person"}, "tables": tables})
    texts, numbers = pa.table({"who": ["07", "8"]}), pa.table({"id": [7, 8]})
    with pytest.raises(TableError, match=r"one\.who is of type VARCHAR and two\.id of type BIGINT"):
        open_tables(described, {"one": texts, "two": numbers})
    assert open_tables(described, {"one": texts, "two": texts.rename_columns(["id"])})


def test_parts_of_rows_without_an_owner_are_in_no_view() -> None:
    rows = dict(database(0))
    rows["visits"] = [*rows["visits"], {**rows["visits"][0], "visit_id": 7777, "patient_id": None}]
    rows["drugs"] = [*rows["drugs"], {"rx_id": 7777, "visit_id": 7777, "drug": "D0", "dose": 1.0}]
    counts = PerUnit(DRUGS, (), (("n", RowCount(20)),))
    for view in (DRUGS, counts, OfUnits(DRUGS, DIAGNOSES, without=True), Join(DRUGS, VISITS, (), outer=True)):
        assert by_unit(opened(rows), view, LOOSE) == by_unit(opened(database(0)), view, LOOSE)


def test_sums_of_numbers_too_large_for_a_double_are_refused() -> None:
    for most, low, high in ((1e300, 0, 1), (1e90, 0, 10**400), (1e90, -(10**400), 0)):
        table = replace(HOSPITAL["visits"], attributes=(Real(name="huge", edges=(0.0, most), unknown=Unknown.CLAMP),))
        with pytest.raises(QueryError, match=r"exceed 10\^100"):
            PerUnit(Scan(table, "v", ("huge",)), (), (("s", UnitSum("huge", Fraction(low), Fraction(high))),))


def test_a_missing_table_column_or_file_is_refused(tmp_path: Path) -> None:
    tables = frames(database(0))
    with pytest.raises(TableError, match="visits has no column 'visit_id'"):
        open_tables(HOSPITAL, tables | {"visits": tables["visits"].drop_columns(["visit_id"])})
    with pytest.raises(TableError, match="there is no table icd"):
        open_tables(HOSPITAL, {name: table for name, table in tables.items() if name != "icd"})
    with pytest.raises(TableError, match=r"has no file patients\.csv"):
        open_tables(HOSPITAL, tmp_path)
    with pytest.raises(InputError, match=r"name .*a folder"):
        open_tables(HOSPITAL, 7)


def test_files_of_a_folder_hold_what_frames_do(tmp_path: Path) -> None:
    tables = frames(database(3))
    for name, table in tables.items():
        shuffled = table.take(list(reversed(range(len(table)))))
        pa.csv.write_csv(shuffled, tmp_path / f"{name}.csv")
    files, held = open_tables(HOSPITAL, tmp_path), open_tables(HOSPITAL, tables)
    for name, view in VIEWS.items():
        assert by_unit(files, view, bounds(name)) == by_unit(held, view, bounds(name)), name
    (tmp_path / "visits.csv").write_text((tmp_path / "visits.csv").read_text() + "\n")
    with pytest.raises(EngineError, match="was written since"):
        files.encode(BoundedView(VISITS, LOOSE))


def test_endings_of_files_may_be_in_capitals(tmp_path: Path) -> None:
    """Some systems write endings in capitals; every file that a draft lists must be found."""
    for name, frame in frames(database(1)).items():
        pq.write_table(frame, tmp_path / f"{name}.PARQUET")
    opened = open_tables(HOSPITAL, tmp_path)
    assert opened.encode(BoundedView(VISITS, LOOSE)).version
    (tmp_path / "visits.Csv").write_text("visit_id\n1\n")
    with pytest.raises(TableError, match=r"has visits\.Csv and visits\.PARQUET: leave one"):
        open_tables(HOSPITAL, tmp_path)


def test_a_missing_attribute_is_named_with_its_table() -> None:
    held = frames(database(1))
    without = held | {"visits": held["visits"].drop(["kind"])}
    with pytest.raises(TableError, match="visits has no column 'kind'; it has"):
        open_tables(HOSPITAL, without)
    listed = pa.array([[1]] * len(held["visits"]))
    other = held["visits"].drop(["kind"]).append_column("kind", listed)
    with pytest.raises(TableError, match="visits: column 'kind' of type"):
        open_tables(HOSPITAL, held | {"visits": other})


def test_a_view_without_rows_is_one_like_any_other() -> None:
    rows = dict(database(4))
    nobody = Filter(VISITS, Among("kind", frozenset()))
    encoded = opened(rows).encode(BoundedView(nobody, LOOSE))
    assert reveal(encoded.marginals([()])[0]).tolist() == [0]


def test_two_views_of_the_same_rows_have_two_versions() -> None:
    tables = opened(database(0))
    everything = Filter(VISITS, Among("kind", frozenset(range(4))))
    one, other = (tables.encode(BoundedView(view, LOOSE)).version for view in (VISITS, everything))
    assert one != other
    assert one == tables.encode(BoundedView(VISITS, LOOSE)).version


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Join(scan("icd"), VISITS, ()), "start FROM with a private table"),
        (lambda: Join(VISITS, scan("icd"), ()), "joined on a declared key"),
        (lambda: Join(VISITS, VISITS, ()), "an attribute of one name"),
        (lambda: PerUnit(scan("icd"), (), (("n", RowCount(3)),)), "start FROM with a private table"),
        (lambda: BoundedView(scan("icd"), LOOSE), "start FROM with a private table"),
        (lambda: Computed(PATIENTS, "x", Field("sex")), "no number to compute with"),
        (lambda: Computed(VISITS, "x", DaysBetween("admitted", "kind")), "dates whose cells are days"),
        (lambda: PerUnit(VISITS, (), (("x", UnitSum("admitted", Fraction(0), Fraction(1))),)), "no numbers"),
        (lambda: RowCount(0), "whole number from 1 on"),
    ],
)
def test_what_is_not_local_to_units_cannot_be_built(make: Callable[[], object], words: str) -> None:
    with pytest.raises(QueryError, match=words):
        make()


def test_a_number_of_rows_is_clamped_to_its_bound() -> None:
    view = PerUnit(VISITS, (), (("few", RowCount(3)),))
    rows = database(0)
    encoded = opened(rows).encode(BoundedView(view, LOOSE))
    sizes = Counter(row["patient_id"] for row in rows["visits"] if row["patient_id"] is not None)
    assert max(sizes.values()) > 3
    expected = Counter(min(size, 3) for size in sizes.values())
    assert reveal(encoded.marginals([("few",)])[0]).tolist() == [expected[n] for n in range(4)]


def test_what_an_outer_join_lacks_is_missing_and_not_unknown() -> None:
    rows = dict(database(0))
    rows["patients"] = [{"patient_id": unit, "sex": "F", "region": 0} for unit in (1, 2)]
    visit = {"patient_id": 1, "admitted": "2023-05-05", "cost": 1}
    rows["visits"] = [visit | {"visit_id": 1, "kind": 7}, visit | {"visit_id": 2, "kind": 2}]
    encoded = opened(rows).encode(BoundedView(VIEWS["outer"], LOOSE))
    counts = reveal(encoded.marginals([("kind",)])[0]).tolist()
    held = dict(zip(encoded.domain["kind"].labels(), counts, strict=True))
    assert held == {"0": 0, "1": 0, "2": 1, "(missing)": 1, "(other)": 1}


def test_the_unit_that_is_never_removed_has_rows() -> None:
    assert by_unit(opened(database(0)), VISITS, LOOSE)[str(OUTSIDE)]
