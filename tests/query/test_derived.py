"""Derived columns and facts about units: their values against a loop over rows, and what of them is refused."""

# ruff: noqa: S608 - statements are put together here

from __future__ import annotations

import re
from collections import Counter, defaultdict
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.hospital import Rows, database, derived_document, derived_schema, frames

import sfumato as sf
from sfumato.domain import Unit
from sfumato.domain.table_schema import dump_schema, load_schema, parse_schema
from sfumato.domain.view_words import describe_view
from sfumato.engine.exact import reveal
from sfumato.engine.views.joined import open_tables
from sfumato.errors import DomainError, QueryError, SfumatoError
from sfumato.privacy.loss import Epsilon
from sfumato.query.statements.derived_columns import check_derived
from sfumato.query.statements.table_statement import parse_tables
from sfumato.vault.schema_vault import open_schema

HOSPITAL = derived_schema()
LOOSE = Unit("patient_id", rows=10_000, schema="hospital")
VALUES = (*(str(n) for n in range(91)), "(missing)")


def counted(rows: Rows, name: str, table: str) -> Counter[str]:
    """Return how many of all rows of a table have each value."""
    asked = parse_tables(f"SELECT {name}, COUNT(*) FROM {table} GROUP BY {name}", HOSPITAL, bounds=LOOSE)
    found = reveal(open_tables(HOSPITAL, frames(rows)).encode(asked.view).groups((name,)))
    labels = asked.view.domain[name].labels()
    return Counter({labels[at]: int(n) for (at,), n in zip(found.codes.tolist(), found.counts, strict=True)})


def visits(rows: Rows) -> dict[int, list[dict[str, Any]]]:
    """Return the visits of each patient, in order."""
    found = defaultdict(list)
    for row in rows["visits"]:
        if row["patient_id"] is not None:
            found[row["patient_id"]].append(row)
    return {who: sorted(own, key=lambda row: (row["admitted"], str(row["visit_id"]))) for who, own in found.items()}


def gaps(own: list[dict[str, Any]]) -> list[int | None]:
    days = [date.fromisoformat(row["admitted"]) for row in own]
    return [None, *(min((later - earlier).days, 90) for earlier, later in pairwise(days))]


@pytest.mark.parametrize("seed", range(3))
def test_days_since_the_row_before_are_those_of_a_loop(seed: int) -> None:
    rows = database(seed)
    expected = Counter("(missing)" if gap is None else str(gap) for own in visits(rows).values() for gap in gaps(own))
    assert counted(rows, "gap", "visits") == expected


def test_rows_of_one_day_are_in_the_order_of_their_keys() -> None:
    rows = dict(database(0)) | {
        "visits": [
            {"visit_id": key, "patient_id": 1, "admitted": day, "kind": 0, "cost": cost}
            for key, day, cost in [(9, "2023-03-01", 600), (10, "2023-03-01", 1), (8, "2023-01-01", 600)]
        ]
    }
    asked = parse_tables("SELECT gap, cost, COUNT(*) FROM visits GROUP BY gap, cost", HOSPITAL, bounds=LOOSE)
    found = reveal(open_tables(HOSPITAL, frames(rows)).encode(asked.view).groups(("gap", "cost")))
    gap, cost = (asked.view.domain[name].labels() for name in ("gap", "cost"))
    assert {(gap[a], cost[b]) for a, b in found.codes.tolist()} == {
        ("(missing)", "500..1000"),
        ("59", "0..499"),  # as text, 10 is before 9
        ("0", "500..1000"),
    }


def test_a_case_may_be_about_what_is_derived_before_it() -> None:
    rows = database(1)
    expected: Counter[str] = Counter()
    for own in visits(rows).values():
        for row, gap in zip(own, gaps(own), strict=True):
            dear = row["cost"] is not None and row["cost"] >= 500
            expected["no" if gap is None or gap > 7 else "both" if dear else "soon"] += 1
    assert counted(rows, "soon", "visits") == expected


def test_facts_of_units_are_those_of_a_loop() -> None:
    rows = database(2)
    of = visits(rows)
    whose = {row["visit_id"]: row["patient_id"] for row in rows["visits"]}
    ill = {whose.get(row["visit_id"]) for row in rows["diagnoses"] if row["code"] == "I0"}
    units = [row["patient_id"] for row in rows["patients"]]
    kinds = {who: min(r["kind"] for r in own if r["admitted"] == own[-1]["admitted"]) for who, own in of.items()}
    assert counted(rows, "visits_n", "patients") == Counter(str(min(len(of.get(who, [])), 5)) for who in units)
    late = {who: sum(gap is not None and gap > 30 for gap in gaps(own)) for who, own in of.items()}
    assert counted(rows, "late_n", "patients") == Counter(str(min(late.get(who, 0), 6)) for who in units)
    assert counted(rows, "ever_i0", "patients") == Counter(str(who in ill) for who in units)
    assert counted(rows, "last_kind", "patients") == Counter(str(kinds.get(who, "(missing)")) for who in units)
    first = Counter(of[who][0]["admitted"] if who in of else "(missing)" for who in units)
    assert counted(rows, "seen", "patients") == first
    costs = {who: [row["cost"] for row in own if row["cost"] is not None] for who, own in of.items()}
    spent = {who: str(min(sum(each), 2500)) for who, each in costs.items() if each}
    assert counted(rows, "spend", "patients") == Counter(spent.get(who, "(missing)") for who in units)


def test_what_is_derived_of_a_joined_table_has_its_name() -> None:
    text = "SELECT w.gap, COUNT(*) FROM visits v JOIN visits w USING (visit_id) WHERE v.gap > 30 GROUP BY w.gap"
    asked = parse_tables(text, HOSPITAL)
    assert {"v.gap", "w.gap"} <= set(asked.view.domain.names)
    assert "price" not in asked.view.domain.names  # only the required values are computed


def test_another_description_is_another_question() -> None:
    changed = derived_document()
    changed["tables"]["visits"]["derived"]["price"]["case"][0]["when"] = "kind = 1"
    text = "SELECT price, COUNT(*) FROM visits GROUP BY price"
    one, other = (parse_tables(text, each).view for each in (HOSPITAL, parse_schema(changed)))
    assert one.hash != other.hash
    facts = derived_document()
    facts["of_unit"]["ever_i0"]["where"] = "code = 'I1'"
    assert parse_schema(facts).hash != HOSPITAL.hash
    text = "SELECT COUNT(*) FROM patients WHERE ever_i0"
    assert parse_tables(text, parse_schema(facts)).view.hash != parse_tables(text, HOSPITAL).view.hash


def test_the_document_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "hospital.yaml"
    path.write_text(dump_schema(HOSPITAL), encoding="utf-8")
    assert load_schema(path) == HOSPITAL
    check_derived(HOSPITAL)


def test_days_between_dates_are_moved_to_their_bounds() -> None:
    changed = derived_document()
    visits_ = changed["tables"]["visits"]
    visits_["attributes"]["discharged"] = dict(visits_["attributes"]["admitted"])
    visits_["derived"]["stay"] = {"days": ["admitted", "discharged"], "minimum": 0, "maximum": 60, "unknown": "clamp"}
    described = parse_schema(changed)
    check_derived(described)
    import pyarrow as pa

    tables = frames(database(0))
    days = pa.array(["2023-03-01"] * 3).cast(pa.date32())
    ends = pa.array(["2023-02-01", "2023-03-05", "2023-12-31"]).cast(pa.date32())
    ids, kinds = pa.array([1, 2, 3]), pa.array([0, 0, 0])
    tables["visits"] = pa.table(
        {"visit_id": ids, "patient_id": ids, "admitted": days, "kind": kinds, "cost": kinds, "discharged": ends}
    )
    asked = parse_tables("SELECT stay, COUNT(*) FROM visits GROUP BY stay", described)
    found = reveal(open_tables(described, tables).encode(asked.view).groups(("stay",)))
    assert sorted(asked.view.domain["stay"].labels()[at] for (at,) in found.codes.tolist()) == ["0", "4", "60"]


CELLS: list[dict[str, Any]] = [
    {"minimum": 7, "maximum": 60, "edges": [7, 30], "unknown": "drop"},
    {"minimum": 7, "maximum": 60, "edges": [7, 30], "nullable": True, "unknown": "drop"},
    {"minimum": 0, "maximum": 60, "edges": [0, 7, 30], "nullable": True, "unknown": "clamp"},
    {"unknown": "drop"},
]


@pytest.mark.parametrize("said", CELLS, ids=range(len(CELLS)))
def test_derived_columns_have_declared_cells_and_leave_out_rows_whatever_is_asked(
    said: dict[str, Any],
) -> None:
    changed = derived_document()
    changed["tables"]["visits"]["derived"] = {"gap": {"days_since_previous": "admitted"} | said}
    changed["of_unit"] = {"n": {"count": "visits", "maximum": 99}}
    described, rows = parse_schema(changed), database(2)
    check_derived(described)
    assert parse_schema(described.describe()) == described
    low, high = said.get("minimum", 0), said.get("maximum", 364)
    starts = said.get("edges") or list(range(low, high + 1))
    expected: Counter[str] = Counter()
    of_unit: Counter[int] = Counter()
    for who, own in visits(rows).items():
        days = [date.fromisoformat(row["admitted"]) for row in own]
        for gap in [None, *((later - earlier).days for earlier, later in pairwise(days))]:
            if gap is None or (said["unknown"] == "drop" and not low <= gap <= high):
                if gap is None and said.get("nullable"):
                    expected["(missing)"] += 1
                    of_unit[who] += 1
                continue
            at = max(place for place, start in enumerate(starts) if start <= min(max(gap, low), high))
            last = starts[at + 1] - 1 if at + 1 < len(starts) else high
            expected[str(last) if starts[at] == last else f"{starts[at]}..{last}"] += 1
            of_unit[who] += 1
    tables = open_tables(described, frames(rows))

    def found(text: str, name: str) -> Counter[str]:
        asked = parse_tables(text, described, bounds=LOOSE)
        codes = reveal(tables.encode(asked.view).groups((name,)))
        labels = asked.view.domain[name].labels()
        return Counter({labels[at]: int(n) for (at,), n in zip(codes.codes.tolist(), codes.counts, strict=True)})

    assert found("SELECT gap, COUNT(*) FROM visits GROUP BY gap", "gap") == expected
    by_kind = found("SELECT kind, COUNT(*) FROM visits GROUP BY kind", "kind")
    assert by_kind.total() == expected.total(), "whether it is named or not"
    numbers = Counter(str(of_unit[row["patient_id"]]) for row in rows["patients"])
    assert found("SELECT n, COUNT(*) FROM patients GROUP BY n", "n") == numbers
    remarks = parse_tables("SELECT COUNT(*) FROM visits", described)
    told = " ".join(remarks.query.population_notes(remarks.view.domain, remarks.view))
    assert ("admitted or gap are left out" in told) is (said["unknown"] == "drop")


def test_rows_that_meet_no_case_are_left_out_where_the_schema_says_so() -> None:
    changed = derived_document()
    case = {"case": [{"when": "cost >= 500", "then": "dear"}], "unknown": "drop"}
    changed["tables"]["visits"]["derived"] = {"price": case}
    del changed["of_unit"]
    described, rows = parse_schema(changed), database(2)
    assert parse_schema(described.describe()) == described
    asked = parse_tables("SELECT price, COUNT(*) FROM visits GROUP BY price", described, bounds=LOOSE)
    assert asked.view.domain["price"].labels() == ("dear",)
    found = reveal(open_tables(described, frames(rows)).encode(asked.view).groups(("price",)))
    dear = [row for row in rows["visits"] if row["patient_id"] is not None and (row["cost"] or 0) >= 500]
    assert found.counts.tolist() == [len(dear)]
    assert "price is not missing" in describe_view(asked.view)


def test_groups_are_called_as_a_statement_says(tmp_path: Path) -> None:
    vault = open_schema(
        frames(database(0)), schema=HOSPITAL, ledger=f"sqlite:///{tmp_path / 'a.ledger'}", limit=Epsilon(9), create=True
    )
    text = "SELECT v.kind AS sort, COUNT(1) AS n FROM visits v GROUP BY kind ORDER BY sort DESC"
    answer = sf.query.sql(vault, text, loss=Epsilon(1))
    assert (answer.groups, answer.columns) == (("sort",), ("n",))
    assert answer.keys[0] == ("(other)",)
    again = sf.query.sql(vault, "SELECT kind, COUNT(*) AS n FROM visits GROUP BY kind", loss=Epsilon(1))
    assert vault.remaining.spent.epsilon == 1  # the same question
    assert again.groups == ("kind",)


def test_a_key_of_a_units_rows_may_be_called_otherwise() -> None:
    inner = "SELECT patient_id, kind AS sort, COUNT(1) AS n FROM visits GROUP BY patient_id, kind"
    asked = parse_tables(f"SELECT sort, SUM(n) FROM ({inner}) AS t GROUP BY sort", HOSPITAL)
    assert asked.query.by == ("kind",)
    assert asked.view.domain["n"].labels()[-1] == "6"


@pytest.mark.parametrize("what", ["MIN", "MAX", "MEDIAN"])
def test_the_least_date_of_all_people_is_refused_by_name(what: str) -> None:
    with pytest.raises(QueryError, match=rf"holds dates: it can be counted, but has no .*{what}"):
        parse_tables(f"SELECT {what}(admitted) FROM visits", HOSPITAL)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("visits", {"g": {"days_since_previous": "admitted"}}, "g may be missing, as the first row of a unit"),
    ("visits", {"g": {"days_since_previous": "cost", "nullable": True}}, "'cost' is a date of the table"),
    ("visits", {"kind": {"case": [{"when": "cost > 1", "then": "x"}], "else": "y"}}, "an attribute 'kind'"),
    ("visits", {"p": {"case": [{"when": "cost >= 500", "then": "x"}]}}, "else is not said: say nullable"),
    ("visits", {"p": {"case": []}}, "at least one when and then"),
    ("visits", {"p": {}}, "one of days, days_since_previous and case"),
    ("visits", {"s": {"days": ["admitted"]}}, "write two dates"),
    ("visits", {"s": {"days": ["admitted", "admitted"], "unknown": "category"}}, "or drop to leave out its row"),
    ("visits", {"s": {"days": ["admitted", "admitted"], "edges": [0, 5]}}, "needs its minimum and maximum"),
    (
        "visits",
        {"s": {"days": ["admitted", "admitted"], "minimum": 0, "maximum": 9, "edges": [1, 5]}},
        "must be whole, increase from its minimum",
    ),
    ("visits", {"s": {"days": ["admitted", "admitted"], "edges": [0.5]}}, "a list of whole numbers"),
    ("visits", {"p": {"case": [{"when": "cost >= 500", "then": "x"}], "unknown": "clamp"}}, "write drop to drop rows"),
    (
        "visits",
        {"p": {"case": [{"when": "cost >= 500", "then": "x"}], "unknown": "drop", "nullable": True}},
        "have a cell and be dropped",
    ),
    ("visits", {"s": {"days": ["admitted", "admitted"], "minimum": 5, "maximum": 1}}, "minimum above maximum"),
    ("visits", {"s": {"days": ["admitted", "admitted"], "minimum": 0.5}}, "a whole number"),
    ("of_unit", {"n": {"count": "icd"}}, "of a private table"),
    ("of_unit", {"n": {"count": "nothing"}}, "no table 'nothing'"),
    ("of_unit", {"n": {"count": "visits", "any": "visits"}}, "one of count, any"),
    ("of_unit", {"n": {"sum": "visits.cost"}}, "minimum and maximum"),
    ("of_unit", {"n": {"sum": "visits", "minimum": 0, "maximum": 1}}, "of table.column"),
    ("of_unit", {"n": {"max": "visits.dose"}}, "visits has no attribute 'dose'"),
    ("of_unit", {"sex": {"count": "visits"}}, "two attributes called 'sex'"),
    ("of_unit", {"n": {"count": "visits", "by": "admitted"}}, "only first and last are by a date"),
    ("of_unit", {"n": {"any": "visits", "where": "drug = 'D0'"}}, "no attribute 'drug'"),
    ("of_unit", {"n": {"any": "visits", "where": "cost > 250"}}, "the schema is wrong at of_unit.n"),
    ("of_unit", {"n": {"last": "visits.kind", "by": "cost"}}, "by a date"),
]


@pytest.mark.parametrize(("at", "said", "words"), REFUSED, ids=[str(n) for n in range(len(REFUSED))])
def test_what_cannot_be_derived_is_refused(at: str, said: dict[str, Any], words: str) -> None:
    changed = derived_document()
    if at == "of_unit":
        changed["of_unit"] = said
    else:
        changed["tables"][at]["derived"] = said
        del changed["of_unit"]
    with pytest.raises(SfumatoError, match=words):
        check_derived(parse_schema(changed))


PLACED: list[tuple[str, dict[str, Any], str]] = [
    ("visits", {"p": {"case": [{"when": "nothing = 1", "then": "x"}], "else": "y"}}, "line 1, column 1: no attribute"),
    ("visits", {"p": {"case": [{"when": "cost >=", "then": "x"}], "else": "y"}}, "line 1, column 6: this is not SQL"),
    ("icd", {"p": {"case": [{"when": "chapter + 1 > 2", "then": "x"}], "else": "y"}}, "line 1, column 1: name an"),
    ("visits", {"p": {"days_since_previous": "admitted", "minimum": 400, "nullable": True}}, "minimum above maximum"),
]


@pytest.mark.parametrize(("at", "said", "words"), PLACED, ids=[str(n) for n in range(len(PLACED))])
def test_a_schema_that_cannot_be_derived_is_not_opened(
    at: str, said: dict[str, Any], words: str, tmp_path: Path
) -> None:
    changed = derived_document()
    changed["tables"][at]["derived"] = said
    changed["of_unit"] = {"n": {"any": "visits"}}
    described, ledger = parse_schema(changed), f"sqlite:///{tmp_path / 'a.ledger'}"
    with pytest.raises(
        DomainError, match=rf"^the schema is wrong at tables\.{at}\.derived\.p[:,] .*{re.escape(words)}"
    ):
        sf.open_schema(tmp_path / "nowhere", schema=described, ledger=ledger, limit=Epsilon(1), create=True)
    assert not list(tmp_path.iterdir())


def test_a_draft_may_say_the_most_that_it_counts_later() -> None:
    changed = derived_document() | {"draft": True}
    del changed["tables"]["visits"]["rows"]
    check_derived(parse_schema(changed))


@pytest.mark.parametrize("name", ["patient_id", "Kind"])
def test_what_is_derived_is_called_as_nothing_else_is(name: str) -> None:
    changed = derived_document()
    changed["tables"]["visits"]["derived"][name] = {"case": [{"when": "cost >= 500", "then": "x"}], "else": "y"}
    with pytest.raises(DomainError, match=name):
        parse_schema(changed)
    facts = derived_document()
    facts["of_unit"]["patient_id"] = {"count": "visits"}
    with pytest.raises(DomainError, match="two attributes called 'patient_id'"):
        parse_schema(facts)


def test_facts_take_a_table_that_lists_the_units() -> None:
    changed = derived_document()
    changed["unit"] = {"id": "patient_id"}
    changed["tables"]["patients"] |= {"unit": "patient_id", "rows": 1}
    with pytest.raises(DomainError, match=r"write unit: \{id: patient_id, table: TABLE\}"):
        parse_schema(changed)
