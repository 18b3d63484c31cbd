"""Groups that a condition excludes are no part of an answer; which they are, a plain loop and DuckDB say as well."""

# ruff: noqa: S608, ISC004 - statements are written out here

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.hospital import database, derived_schema, frames
from tests.query.test_drawn_statements import answers, drawn

from sfumato import query
from sfumato.domain import Domain, Unit
from sfumato.domain.document import parse
from sfumato.domain.predicate import All, Among, Any, Not, Predicate
from sfumato.engine.open import open_table
from sfumato.engine.views.joined import open_tables
from sfumato.errors import QueryError
from sfumato.ledger import open_ledger
from sfumato.ledger.dataset_terms import UNDECLARED
from sfumato.privacy.loss import Epsilon, EpsilonDelta
from sfumato.query import possible_groups
from sfumato.query.answer import json_pieces
from sfumato.query.ask import ask, sql
from sfumato.query.question import Query
from sfumato.query.statements.select_statement import parse as parse_statement
from sfumato.query.statements.table_statement import parse_tables
from sfumato.vault.interface import decode
from sfumato.vault.schema_vault import open_schema
from sfumato.vault.simulated import SimulatedVault
from sfumato.vault.vault import Vault

DOMAIN = parse(
    {
        "sfumato": 1,
        "draft": False,
        "unit": "row",
        "attributes": {
            "a": {"type": "integer", "minimum": 0, "maximum": 5, "unknown": "clamp", "nullable": True},
            "b": {"type": "categorical", "values": ["x", "y", "z"], "unknown": "category", "nullable": True},
            "c": {"type": "integer", "minimum": 0, "maximum": 3, "unknown": "drop"},
            "d": {"type": "date", "first": "2023-01-30", "last": "2023-02-02", "by": "day", "unknown": "drop"},
        },
        "hierarchies": {"a": {"levels": ["half"], "rows": [[n, "low" if n < 3 else "high"] for n in range(6)]}},
    }
)
VALUES = {
    "a": [*range(6), None],
    "b": ["x", "y", "z", None, "else"],
    "c": [0, 1, 2, 3],
    "d": ["2023-01-30", "2023-01-31", "2023-02-01", "2023-02-02"],
}
ROWS = list(itertools.product(*VALUES.values()))  # every declared cell once
GROUPINGS = ("a", "half(a)", "b", "c", "d", "month(d)", "weekday(d)")


def cells() -> pa.Table:
    return pa.table({name: pa.array(column) for name, column in zip(VALUES, zip(*ROWS, strict=True), strict=True)})


@pytest.fixture(scope="module")
def simulated() -> SimulatedVault:
    return SimulatedVault(open_table(cells()).encode(DOMAIN), seed=3)


def keys(vault: SimulatedVault, asked: Query) -> set[tuple[str, ...]]:
    """The groups of an answer; none if it is refused for having none."""
    try:
        answer = ask(vault, asked, loss=Epsilon(1))
    except QueryError as error:
        if "no group can hold a row that meets the condition" not in str(error):
            raise
        return set()
    assert len(answer) == len(set(answer.keys))
    return set(answer.keys)


# --- against a loop over all cells ------------------------------------------------------------------------------------


def leaf(name: str) -> st.SearchStrategy[Predicate]:
    return st.frozensets(st.integers(0, DOMAIN[name].size - 1)).map(lambda codes: Among(name, codes))


CONDITIONS = st.recursive(
    st.sampled_from(DOMAIN.names).flatmap(leaf),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda parts: All(tuple(parts))),
        st.lists(inner, max_size=4).map(lambda parts: Any(tuple(parts))),
        inner.map(Not),
    ),
    max_leaves=14,
)


def holds(where: Predicate, cell: dict[str, int]) -> bool:
    match where:
        case Among():
            return cell[where.attribute] in set(where.codes)
        case Not():
            return not holds(where.part, cell)
        case All():
            return all(holds(part, cell) for part in where.parts)
        case _:
            return any(holds(part, cell) for part in where.inner)


def every_cell(domain: Domain) -> Iterator[dict[str, int]]:
    for codes in itertools.product(*map(range, domain.shape)):
        yield dict(zip(domain.names, codes, strict=True))


def label(name: str, cell: dict[str, int]) -> str:
    grouping = DOMAIN.grouping(name)
    code = cell[grouping.attribute]
    return grouping.labels[code if grouping.groups is None else grouping.groups[code]]


@settings(max_examples=150, deadline=None)
@given(where=CONDITIONS, by=st.lists(st.sampled_from(GROUPINGS), min_size=1, max_size=3, unique=True))
def test_a_group_is_shown_if_some_cell_in_it_meets_the_condition(simulated, where, by) -> None:
    wanted = {tuple(label(name, cell) for name in by) for cell in every_cell(DOMAIN) if holds(where, cell)}
    assert keys(simulated, Query((query.Count(),), by=tuple(by), where=where)) == wanted


@settings(max_examples=150, deadline=None)
@given(where=CONDITIONS, name=st.sampled_from(DOMAIN.names))
def test_the_span_of_an_attribute_ends_with_the_codes_that_meet_the_condition(where, name) -> None:
    codes = [cell[name] for cell in every_cell(DOMAIN) if holds(where, cell) and cell[name] < DOMAIN[name].declared]
    wanted = (min(codes), max(codes)) if codes else None
    assert possible_groups.possible_span(name, where, DOMAIN) == wanted


@settings(max_examples=60, deadline=None)
@given(where=CONDITIONS, by=st.lists(st.sampled_from(GROUPINGS), min_size=1, max_size=2, unique=True))
def test_beyond_the_bound_on_work_no_group_with_a_row_is_left_out(where, by) -> None:
    wanted = {tuple(label(name, cell) for name in by) for cell in every_cell(DOMAIN) if holds(where, cell)}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(possible_groups, "_MOST_WORK", 0)
        vault = SimulatedVault(open_table(cells()).encode(_renamed_unit()), seed=3)
        assert wanted <= keys(vault, Query((query.Count(),), by=tuple(by), where=where))


def _renamed_unit() -> Domain:
    """The domain of another unit: what was found of the first one is not remembered of it."""
    return Domain(DOMAIN.attributes, unit=Unit("c", rows=1), hierarchies=DOMAIN.hierarchies)


def test_a_condition_that_no_short_search_decides_is_answered() -> None:
    """Thirty attributes that are not grouped, tied to each other by a hundred clauses."""
    names = [f"x{number}" for number in range(30)]
    attributes = {name: {"type": "integer", "minimum": 0, "maximum": 3, "unknown": "drop"} for name in names}
    domain = parse({"sfumato": 1, "draft": False, "unit": "row", "attributes": attributes})
    draw = np.random.default_rng(1)
    clauses = []
    for _ in range(130):
        three = draw.choice(names, 3, replace=False)
        clauses.append(Any(tuple(Among(str(name), [int(draw.integers(4))]) for name in three)))
    asked = Query((query.Count(),), by=("x0",), where=All(tuple(clauses)))
    found = asked.check(domain).possible_groups(domain)
    assert found is None or len(found) == domain["x0"].size


# --- against DuckDB ---------------------------------------------------------------------------------------------------

TEXTS = [
    ("a", "a > 3"),
    ("a", "NOT a > 3"),
    ("a", "a IS NULL OR a = 2"),
    ("a", "a IS NOT NULL"),
    ("a", "a BETWEEN 2 AND 4"),
    ("a", "a IN (1, 5) AND b = 'x'"),
    ("b", "b <> 'y'"),
    ("b", "b IN ('x', 'z') OR b IS NULL"),
    ("b", "a > 3"),
    ("a, b", "(a = 1 AND b = 'y') OR a = 3"),
    ("a, b", "(a = 1 OR b = 'y') AND (a = 3 OR b = 'z')"),
    ("a, b", "(a = 1 OR c = 0) AND (b = 'x' OR c = 1)"),
    ("a, b", "(a = 1 OR c = 0) AND (b = 'x' OR c = 1) AND (c <> 1 OR a = 4)"),
    ("b, c", "NOT (b = 'x' AND c > 1) AND (a < 2 OR c < 2)"),
    ("a, c", "a > 3 AND (c = 1 OR NOT (a = 5 OR c = 2))"),
    ("c, d", "d >= DATE '2023-02-01' AND c <> 2"),
]


@pytest.mark.parametrize(("by", "where"), TEXTS)
def test_groups_are_those_that_duckdb_finds_among_all_cells(simulated, by: str, where: str) -> None:
    connection = duckdb.connect()
    connection.register("arrow", cells())
    connection.execute("CREATE TABLE t AS SELECT a, b, c, CAST(d AS DATE) AS d FROM arrow")
    rows = connection.execute(f"SELECT DISTINCT {by} FROM t WHERE {where}").fetchall()
    names = {None: "(missing)", "else": "(other)"}
    wanted = {tuple(str(names.get(value, value)) for value in row) for row in rows}
    asked = parse_statement(f"SELECT {by}, COUNT(*) FROM t WHERE {where} GROUP BY {by}", DOMAIN)
    assert keys(simulated, asked) == wanted


# --- one table --------------------------------------------------------------------------------------------------------


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[Vault]:
    encoded = open_table(cells()).encode(DOMAIN)
    with open_ledger(f"sqlite:///{tmp_path}/q.ledger", dataset="cells", limit=Epsilon(9), create=True) as ledger:
        yield Vault(encoded, ledger, UNDECLARED)


def test_excluded_groups_are_in_no_form_of_an_answer(vault: Vault) -> None:
    answer = sql(vault, "SELECT a, COUNT(*), MEDIAN(c), AVG(c) FROM t WHERE a > 3 GROUP BY a", loss=Epsilon(1))
    assert answer.keys == (("4",), ("5",))
    assert (len(answer), len(answer.values), len(answer.rows)) == (2, 2, 2)
    assert answer.to_arrow().column("a").to_pylist() == [4, 5]
    assert [row["key"] for row in json.loads(b"".join(json_pieces(answer)))["rows"]] == [["4"], ["5"]]
    assert "(missing)" not in answer.to_html()


def test_the_whole_table_is_measured_charged_and_kept(vault: Vault) -> None:
    """The measurement is unchanged; the answer shows a part of it."""
    asked = query.table("a", where="a > 3").check(DOMAIN)
    answer = ask(vault, asked, loss=Epsilon(1))
    (stored,) = vault.ledger.answers([("query", "tally")], vault.version, analyst=None)
    assert len(decode(stored.body)["0"]) == DOMAIN["a"].size
    assert vault.remaining.spent.epsilon == 1
    assert ask(vault, asked, loss=Epsilon(1)).rows == answer.rows
    assert vault.remaining.spent.epsilon == 1


def test_counts_made_whole_keep_the_total_of_the_groups_shown(vault: Vault) -> None:
    answer = sql(vault, "SELECT a, COUNT(*) FROM t WHERE a > 3 GROUP BY a", loss=Epsilon("0.01"))
    whole = query.non_negative_integers(answer)
    total = sum(value.estimate for (value,) in answer.values)
    assert sum(value.estimate for (value,) in whole.values) == max(0, round(total))


@pytest.mark.parametrize(
    "where", ["a > 3 AND a < 2", "a = 1 AND NOT (a = 1 OR b = 'x')", "(a = 1 OR c = 1) AND a = 2 AND c = 2"]
)
def test_a_condition_that_leaves_no_group_is_refused_uncharged(vault: Vault, where: str) -> None:
    text = f"SELECT a, COUNT(*) FROM t WHERE {where} GROUP BY a"
    with pytest.raises(QueryError, match=r"line 1, column 8: no group can hold a row that meets the condition"):
        sql(vault, text, loss=Epsilon(1))
    with pytest.raises(QueryError, match="no group can hold a row"):
        query.accuracy(DOMAIN, query.table("a", where=where), Epsilon(1), confidence="0.95")
    with pytest.raises(QueryError, match="no group can hold a row"):
        ask(vault, query.table("a", where=where), loss=Epsilon(1))
    assert not [entry for entry in vault.ledger.journal() if entry.charge]
    assert ask(vault, query.count(where), loss=Epsilon(1)).keys == ((),)  # without groups it counts, around 0


# --- several tables ---------------------------------------------------------------------------------------------------

HOSPITAL = derived_schema()
JOINED = "FROM visits v JOIN patients p USING (patient_id)"
STATEMENTS: list[tuple[str, set[tuple[str, ...]]]] = [
    ("SELECT region, COUNT(*) FROM patients WHERE region > 0 GROUP BY region", {("1",), ("2",)}),
    (
        f"SELECT kind, region, COUNT(*) {JOINED} WHERE (kind = 1 AND region = 2) OR kind = 0 GROUP BY kind, region",
        {("1", "2"), ("0", "0"), ("0", "1"), ("0", "2")},
    ),
    (
        "SELECT month(admitted), COUNT(DISTINCT patient_id) FROM visits WHERE admitted >= DATE '2023-11-05' "
        "GROUP BY month(admitted)",
        {("2023-11",), ("2023-12",)},
    ),
    (
        "SELECT k, COUNT(*) FROM (SELECT patient_id, kind AS k, COUNT(*) AS n FROM visits WHERE kind > 0 "
        "GROUP BY patient_id, kind) t GROUP BY k",
        {("1",), ("2",)},
    ),
    (
        "SELECT m, k, COUNT(*) FROM (SELECT patient_id, month(admitted) AS m, MAX(kind) AS k FROM visits "
        "WHERE kind IN (0, 1) AND (kind = 1 OR admitted < DATE '2023-02-01') GROUP BY patient_id, month(admitted)) t "
        "WHERE m IN ('2023-01', '2023-02') GROUP BY m, k",
        {("2023-01", "0"), ("2023-01", "1"), ("2023-02", "1")},
    ),
    (
        "SELECT dearest, COUNT(*) FROM (SELECT patient_id, MAX(cost) AS dearest FROM visits WHERE cost >= 500 "
        "OR cost IS NULL GROUP BY patient_id) t GROUP BY dearest",
        {("500..1000",), ("(missing)",)},
    ),
    (
        "SELECT dearest, COUNT(*) FROM (SELECT patient_id, MAX(cost) AS dearest FROM visits WHERE cost >= 500 "
        "GROUP BY patient_id) t GROUP BY dearest",
        {("500..1000",)},
    ),
    (
        "SELECT CASE WHEN cost >= 500 THEN 'dear' ELSE 'cheap' END AS p, COUNT(*) FROM visits WHERE cost < 500 "
        "GROUP BY p",
        {("cheap",)},
    ),
    ("SELECT price, COUNT(*) FROM visits WHERE cost >= 500 GROUP BY price", {("dear",)}),
    ("SELECT region, COUNT(*) FROM patients WHERE 2 * region + 1 > 2 GROUP BY region", {("1",), ("2",)}),
    ("SELECT LEAST(region, 1) AS r, COUNT(*) FROM patients WHERE region <> 0 GROUP BY r", {("1",)}),
    ("SELECT kind - 1 AS k, COUNT(*) FROM visits WHERE kind >= 1 GROUP BY k", {("0",), ("1",)}),
    (
        "SELECT CASE WHEN spend > 100 THEN 'more' WHEN spend > 50 THEN 'some' ELSE 'few' END AS s, COUNT(*) "
        "FROM patients WHERE spend > 75 GROUP BY s",
        {("more",), ("some",)},
    ),
    (
        "SELECT CASE WHEN 2 * doses > 10.5 THEN 'more' ELSE 'few' END AS s, COUNT(*) FROM patients "
        "WHERE 2 * doses < 7.25 GROUP BY s",
        {("few",)},
    ),
    ("SELECT soon, COUNT(*) FROM visits WHERE price = 'dear' GROUP BY soon", {("both",), ("no",)}),
    ("SELECT price, COUNT(*) FROM visits WHERE soon = 'both' GROUP BY price", {("dear",)}),
    (
        "SELECT n, COUNT(*) FROM (SELECT p.patient_id, p.region AS n, COUNT(*) AS c FROM patients p LEFT JOIN visits v "
        "USING (patient_id) WHERE v.kind = 1 AND p.region < 2 GROUP BY p.patient_id, p.region) t GROUP BY n",
        {("0",), ("1",)},
    ),
]


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory):
    ledger = f"sqlite:///{tmp_path_factory.mktemp('groups')}/h.ledger"
    limit = EpsilonDelta(1000, "1e-9")
    opened = open_schema(frames(database(0)), schema=HOSPITAL, ledger=ledger, limit=limit, create=True)
    yield opened
    opened.ledger.close()


@pytest.mark.parametrize(("text", "wanted"), STATEMENTS)
def test_groups_of_several_tables_are_those_that_conditions_anywhere_leave(hospital, text: str, wanted: set) -> None:
    answer = sql(hospital, text, loss=Epsilon(1))
    assert len(answer) == len(wanted)
    assert set(answer.keys) == wanted


def test_order_limit_and_having_see_no_excluded_group(hospital) -> None:
    asked = f"SELECT region, kind, COUNT(*) AS n {JOINED} WHERE region = 1 AND kind < 2 GROUP BY region, kind"
    for more in ("ORDER BY n LIMIT 7", "HAVING n > -100000", "ORDER BY kind DESC LIMIT 2"):
        assert set(sql(hospital, f"{asked} {more}", loss=Epsilon(1)).keys) == {("1", "0"), ("1", "1")}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT region, COUNT(*) FROM patients WHERE region > 1 AND region < 2 GROUP BY region",
        "SELECT k, COUNT(*) FROM (SELECT patient_id, kind AS k, COUNT(*) AS n FROM visits WHERE kind > 0 "
        "GROUP BY patient_id, kind) t WHERE k = 0 GROUP BY k",
    ],
)
def test_statements_that_leave_no_group_are_refused_where_they_are_read(text: str) -> None:
    with pytest.raises(QueryError, match=r"line 1, column \d+: no group can hold a row that meets the condition"):
        parse_tables(text, HOSPITAL)


def test_a_view_that_leaves_no_group_is_refused_uncharged(hospital) -> None:
    over = query.view(hospital, "SELECT * FROM visits WHERE kind > 0")
    spent = over.remaining
    with pytest.raises(QueryError, match="no group can hold a row that meets the condition"):
        ask(over, query.table("kind", where="kind = 0"), loss=Epsilon(1))
    assert over.remaining == spent
    assert set(ask(over, query.table("kind"), loss=Epsilon(1)).keys) == {("1",), ("2",)}


def test_no_group_of_a_drawn_statement_that_has_rows_is_left_out() -> None:
    """Exact answers are nonzero in groups that are shown only, whatever the tables hold."""
    statements, _ = drawn(11, 120)
    tables = [open_tables(HOSPITAL, frames(database(seed))) for seed in (1, 2)]
    cut = 0
    for text, asked in statements:
        left = asked.query.possible_groups(asked.view.domain, asked.view)
        if left is None:
            continue
        cut += 1
        for each in tables:
            for exact in answers(each, asked):
                assert not exact.reshape(len(left), -1)[~left].any(), text
    assert cut >= 20
