"""Statements over several tables: what they ask, what one unit can move of it, and what is refused, where and why."""

# ruff: noqa: ISC004, E501 - statements are written out here

from __future__ import annotations

from fractions import Fraction
from functools import cache
from pathlib import Path

import duckdb
import numpy as np
import pytest
from tests.hospital import DOCUMENT, UNITS, Rows, database, derived_schema, frames, schema, without

import sfumato as sf
from sfumato.domain import Unit
from sfumato.domain.table_schema import parse_schema
from sfumato.domain.unit import GroupBound
from sfumato.domain.view import BoundedView
from sfumato.engine.exact import reveal
from sfumato.engine.views.joined import JoinedTables, open_tables
from sfumato.errors import QueryError
from sfumato.privacy.loss import Epsilon
from sfumato.query.plan import plan
from sfumato.query.statements.table_statement import TableStatement, parse_tables
from sfumato.vault.schema_vault import SchemaVault, open_schema

HOSPITAL = schema()
WITH_DERIVED = derived_schema()
BY_VISITS = "FROM visits v JOIN patients p USING (patient_id)"


def unit(rows: int, *per: GroupBound) -> Unit:
    return Unit("patient_id", rows=rows, per=per, schema="hospital")


# number, statement, bounds other than those of the listed table, L1, squared L2
STATEMENTS: list[tuple[int, str, Unit | None, int, int]] = [
    (1, "SELECT COUNT(*) FROM patients", None, 1, 1),
    (2, "SELECT sex, COUNT(*) FROM patients GROUP BY sex", None, 1, 1),
    (3, "SELECT COUNT(*) FROM visits", None, 6, 36),
    (4, "SELECT kind, COUNT(*) FROM visits GROUP BY kind", None, 6, 36),
    (5, "SELECT DATE_TRUNC('month', admitted) AS month, COUNT(*) FROM visits GROUP BY month", None, 6, 12),
    (6, "SELECT month(admitted), kind, COUNT(*) FROM visits GROUP BY month(admitted), kind", None, 6, 12),
    (7, "SELECT quarter(admitted), COUNT(*) FROM visits GROUP BY quarter(admitted)", None, 6, 36),
    (8, "SELECT COUNT(*) FROM visits WHERE admitted BETWEEN DATE '2023-03-01' AND DATE '2023-03-31'", None, 2, 4),
    (9, "SELECT COUNT(DISTINCT patient_id) FROM visits", None, 1, 1),
    (10, "SELECT month(admitted), COUNT(DISTINCT patient_id) FROM visits GROUP BY month(admitted)", None, 4, 4),
    (11, "SELECT region, COUNT(DISTINCT v.patient_id) " + BY_VISITS + " GROUP BY region", None, 3, 3),
    (12, "SELECT SUM(cost) FROM visits", None, 6000, 36_000_000),
    (13, "SELECT month(admitted), SUM(cost) FROM visits GROUP BY month(admitted)", None, 6000, 12_000_000),
    (14, "SELECT month(admitted), AVG(cost) FROM visits GROUP BY month(admitted)", None, 6000, 12_000_000),
    (15, "SELECT region, COUNT(*) " + BY_VISITS + " GROUP BY region", None, 6, 36),
    (
        16,
        "SELECT region, month(v.admitted), COUNT(*) " + BY_VISITS + " GROUP BY region, month(v.admitted)",
        None,
        6,
        12,
    ),
    (17, "SELECT drug, COUNT(*) FROM drugs JOIN visits USING (visit_id) GROUP BY drug", None, 8, 22),
    (18, "SELECT i.chapter, COUNT(*) FROM diagnoses d JOIN icd i ON d.code = i.code GROUP BY i.chapter", None, 5, 25),
    (19, "SELECT block, COUNT(*) FROM diagnoses JOIN icd_block USING (code) GROUP BY block", None, 5, 25),
    (
        20,
        "SELECT drug, code, COUNT(*) FROM drugs JOIN diagnoses USING (visit_id) GROUP BY drug, code",
        unit(6, GroupBound(("drug", "code"), rows=1)),
        6,
        6,
    ),
    (
        21,
        "SELECT SUM(spend) FROM (SELECT patient_id, LEAST(GREATEST(SUM(cost), 0), 2500) AS spend FROM visits "
        "GROUP BY patient_id) AS t",
        None,
        2500,
        6_250_000,
    ),
    (
        22,
        "WITH t AS (SELECT patient_id, DATE_TRUNC('month', admitted) AS month, LEAST(SUM(cost), 800) AS spend "
        "FROM visits GROUP BY patient_id, month) SELECT month, SUM(spend) FROM t GROUP BY month",
        unit(3, GroupBound(("month",), rows=1)),
        2400,
        1_920_000,
    ),
    (
        23,
        "SELECT n, COUNT(*) FROM (SELECT p.patient_id, LEAST(COUNT(v.visit_id), 39) AS n FROM patients p "
        "LEFT JOIN visits v USING (patient_id) GROUP BY p.patient_id) AS t GROUP BY n",
        None,
        1,
        1,
    ),
    (24, "SELECT COUNT(*) FROM patients WHERE patient_id NOT IN (SELECT patient_id FROM visits)", None, 1, 1),
    (
        25,
        "SELECT COUNT(*) FROM patients WHERE patient_id IN (SELECT patient_id FROM diagnoses WHERE code = 'I0') "
        "AND patient_id IN (SELECT patient_id FROM drugs WHERE drug = 'D0')",
        None,
        1,
        1,
    ),
    (26, "SELECT COUNT(*) FROM drug_era d JOIN patients p ON d.person_id = p.patient_id", None, 4, 16),
    (
        27,
        "SELECT CASE WHEN cost >= 500 THEN 'dear' ELSE 'cheap' END AS band, COUNT(*) FROM visits GROUP BY band",
        unit(6),
        6,
        36,
    ),
    (28, "SELECT COUNT(*) FROM visits WHERE gap <= 30", unit(5), 5, 25),
    (29, "SELECT soon, COUNT(*) FROM visits GROUP BY soon", unit(5), 5, 25),
    (30, "SELECT visits_n, COUNT(*) FROM patients GROUP BY visits_n", None, 1, 1),
    (31, "SELECT SUM(spend) FROM patients WHERE ever_i0", None, 2500, 6_250_000),
    (32, "SELECT last_kind, COUNT(*) FROM visits JOIN patients USING (patient_id) GROUP BY last_kind", None, 6, 36),
]
IDS = [str(number) for number, *_ in STATEMENTS]


@cache
def read(text: str, bounds: Unit | None) -> TableStatement:
    return parse_tables(text, WITH_DERIVED, bounds=bounds)


def exact(tables: JoinedTables, asked: TableStatement) -> np.ndarray:
    encoded = tables.encode(asked.view)
    domain = asked.view.domain
    question = plan(asked.query, domain).questions[0]
    return np.asarray(question.finish(domain, reveal(question.table().count(encoded))))


def exact_answers(rows: Rows) -> list[np.ndarray]:
    tables = open_tables(HOSPITAL, frames(rows))
    return [exact(tables, read(text, bounds)) for _, text, bounds, _, _ in STATEMENTS]


@pytest.mark.parametrize(("text", "bounds", "l1", "l2"), [case[1:] for case in STATEMENTS], ids=IDS)
def test_what_one_unit_can_move_is_what_the_rule_says(text: str, bounds: Unit | None, l1: int, l2: int) -> None:
    asked = read(text, bounds)
    (question,) = plan(asked.query, asked.view.domain).questions
    assert question.sensitivity(asked.view.domain) == (l1, l2)


def _neighbours(seeds: range) -> None:
    seen = {number: (0, 0) for number, *_ in STATEMENTS}
    for seed in seeds:
        rows = database(seed)
        before = exact_answers(rows)
        for removed in range(UNITS):
            after = exact_answers(without(rows, removed, cascade=bool((seed + removed) % 2)))
            for (number, text, _, l1, l2), one, other in zip(STATEMENTS, before, after, strict=True):
                change = np.abs(one - other)
                moved = int(change.sum()), int((change**2).sum())
                assert moved[0] <= l1, (seed, removed, text)
                assert moved[1] <= l2, (seed, removed, text)
                seen[number] = max(seen[number][0], moved[0]), max(seen[number][1], moved[1])
    untouched = [number for number, moved in seen.items() if not moved[0]]
    assert len(untouched) <= len(STATEMENTS) // 4, untouched  # the pairs are no idle ones


def test_no_answer_moves_further_than_its_sensitivity() -> None:
    _neighbours(range(1))


@pytest.mark.slow
def test_no_answer_moves_further_over_many_pairs() -> None:
    _neighbours(range(1, 60))


PLAIN = {
    6: "SELECT month(admitted) - 1, kind, COUNT(*) FROM visits WHERE patient_id IS NOT NULL GROUP BY ALL",
    15: "SELECT region, COUNT(*) FROM visits JOIN patients USING (patient_id) GROUP BY ALL",
    17: "SELECT drug[2]::INT, COUNT(*) FROM drugs JOIN visits USING (visit_id) GROUP BY ALL",
    18: "SELECT chapter, COUNT(*) FROM diagnoses JOIN icd USING (code) JOIN visits USING (visit_id) GROUP BY ALL",
    23: "SELECT n, COUNT(*) FROM (SELECT LEAST(COUNT(visit_id), 39) AS n FROM patients LEFT JOIN visits "
    "USING (patient_id) GROUP BY patient_id) GROUP BY ALL",
    24: "SELECT COUNT(*) FROM patients ANTI JOIN visits USING (patient_id)",
    27: "SELECT CASE WHEN cost >= 500 THEN 0 ELSE 1 END, COUNT(*) FROM visits WHERE patient_id IS NOT NULL GROUP BY ALL",
}


@pytest.mark.parametrize("number", PLAIN)
def test_without_a_cut_the_answer_is_that_of_plain_sql(number: int) -> None:
    (text,) = (text for at, text, *_ in STATEMENTS if at == number)
    rows = database(5)
    asked = read(text, unit(10_000))
    cells = exact(open_tables(HOSPITAL, frames(rows)), asked)
    shape = [len(asked.view.domain.grouping(name).labels) for name in asked.query.by]
    table = cells.reshape(shape or [1])
    with duckdb.connect() as connection:
        for name, frame in frames(rows).items():
            connection.register(name, frame)
        expected = {tuple(map(int, row[:-1])) or (0,): row[-1] for row in connection.sql(PLAIN[number]).fetchall()}
    assert {tuple(map(int, at)): int(table[tuple(at)]) for at in np.argwhere(table)} == {
        at: count for at, count in expected.items() if count
    }


def test_a_bound_on_rows_hides_nobody_where_people_are_counted() -> None:
    rows = database(2)
    tables = open_tables(WITH_DERIVED, frames(rows))
    cells: dict[int, set[int]] = {}
    for row in rows["visits"]:
        if row["patient_id"] is not None:
            cells.setdefault(row["patient_id"], set()).add(row["kind"])
    assert any(len(held) > 2 for held in cells.values())
    one = read("SELECT COUNT(DISTINCT patient_id) FROM visits WHERE kind = 1", unit(1))
    assert exact(tables, one).tolist() == [sum(1 in held for held in cells.values())]
    by_kind = "SELECT kind, COUNT(DISTINCT patient_id) FROM visits GROUP BY kind"
    for most in (1, 2):
        found = exact(tables, read(by_kind, unit(most)))
        assert found.sum() == sum(min(most, len(held)) for held in cells.values())
    months = read("SELECT month(admitted), COUNT(DISTINCT patient_id) FROM visits GROUP BY month(admitted)", None)
    assert (months.query.by, months.query.labels) == (("month(admitted)",), ("count(distinct unit)",))
    assert months.view.unit == unit(4, GroupBound(("month(admitted)",), rows=1))
    both = read("SELECT kind, COUNT(*), COUNT(DISTINCT patient_id) FROM visits GROUP BY kind", None)
    assert both.view.unit == HOSPITAL.bounds("visits"), "rows are counted beside people"


CUT = [
    "FROM visits WHERE cost / 2.0 >= 250",
    "FROM visits WHERE 100.5 < cost * 1.5 AND NOT (cost * 1.5 > 900)",
    "FROM visits WHERE cost / 4.0 BETWEEN 20 AND 200",
    "FROM visits WHERE cost / 2.0 >= 500",
    "FROM visits WHERE cost / 2.0 > 500",
    "FROM visits WHERE cost / 2.0 > 0",
    "FROM visits WHERE cost * 1000 IN (0, 1000000)",
    "FROM visits WHERE cost * 1000 <> 1000000",
    "FROM (SELECT patient_id, LEAST(SUM(dose), 20.0) AS total FROM drugs JOIN visits USING (visit_id) GROUP BY "
    "patient_id) AS t WHERE total > 4 AND total < 20",
    "FROM (SELECT patient_id, BOOL_OR(cost * 1.5 > 700) AS dear FROM visits GROUP BY patient_id) AS t WHERE dear",
]


@pytest.mark.parametrize("text", CUT, ids=range(len(CUT)))
def test_a_number_that_is_computed_may_be_cut_anywhere(text: str) -> None:
    rows = database(5)
    (found,) = exact(open_tables(HOSPITAL, frames(rows)), read(f"SELECT COUNT(*) {text}", unit(10_000))).ravel()
    with duckdb.connect() as connection:
        for name, frame in frames(rows).items():
            connection.register(name, frame)
        connection.execute("CREATE VIEW owned AS SELECT * FROM visits WHERE patient_id IS NOT NULL")
        plain = text.replace("FROM visits", "FROM owned").replace("JOIN visits", "JOIN owned")
        ((expected,),) = connection.sql(f"SELECT COUNT(*) {plain}").fetchall()
    assert found == expected


def test_cells_that_a_schema_declares_are_not_cut() -> None:
    for text in ("SELECT COUNT(*) FROM visits WHERE cost >= 250", "SELECT COUNT(*) FROM drugs WHERE dose > 2.5"):
        with pytest.raises(QueryError, match="cuts the cell"):
            read(text, None)
    with pytest.raises(QueryError, match="cuts the cell"):  # no cell tells which real numbers equal another
        read("SELECT COUNT(*) FROM visits WHERE cost / 2 = 250", None)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "SELECT region, COUNT(*) FROM visits JOIN patients USING (patient_id) GROUP BY region",
            "select P.REGION, count( * ) from VISITS as v inner join patients p on p.patient_id = v.patient_id group by P.region",
        ),
        (
            "SELECT COUNT(*) FROM visits WHERE cost >= 500 AND kind = 1",
            "SELECT COUNT(*) FROM visits WHERE kind = 1 AND NOT (cost < 500)",
        ),
    ],
)
def test_equal_statements_are_one_question(one: str, other: str) -> None:
    first, second = read(one, None), read(other, None)
    assert first.view.hash == second.view.hash
    parameters = [plan(each.query, each.view.domain).parameters for each in (first, second)]
    assert parameters[0] == parameters[1]


# --- answers ----------------------------------------------------------------------------------------------------------


def opened(folder: Path) -> SchemaVault:
    ledger = f"sqlite:///{folder / 'hospital.ledger'}"
    return open_schema(frames(database(0)), schema=HOSPITAL, ledger=ledger, limit=Epsilon(10**6), create=True)


def test_a_statement_is_answered_and_charged_once(tmp_path: Path) -> None:
    vault = opened(tmp_path)
    text = "SELECT sex, COUNT(*) AS visits FROM visits JOIN patients USING (patient_id) GROUP BY sex"
    answer = sf.query.sql(vault, text, loss=Epsilon(1000))
    assert answer.groups == ("sex",)
    assert answer.columns == ("visits",)
    assert vault.remaining.spent.epsilon == 1000
    assert sf.query.sql(vault, text, loss=Epsilon(1000)).values == answer.values
    assert vault.remaining.spent.epsilon == 1000


@pytest.mark.parametrize("named", ["w", "p.w", "W"])
def test_a_key_is_called_as_the_select_in_from_calls_it(tmp_path: Path, named: str) -> None:
    vault = opened(tmp_path)
    begun = "WITH p AS (SELECT patient_id, kind AS w, COUNT(*) AS n FROM visits GROUP BY patient_id, kind) SELECT"
    answer = sf.query.sql(vault, f"{begun} {named}, COUNT(*) FROM p GROUP BY {named}", loss=Epsilon(1000))
    assert answer.to_arrow().column_names[0] == named.removeprefix("p.")
    other = sf.query.sql(vault, f"{begun} w AS k, COUNT(*) FROM p GROUP BY w", loss=Epsilon(1000))
    assert other.to_arrow().column_names[0] == "k"
    assert other.values == answer.values
    assert vault.remaining.spent.epsilon == 1000


def test_having_order_and_limit_cost_nothing(tmp_path: Path) -> None:
    vault = opened(tmp_path)
    text = "SELECT kind, COUNT(*) AS n, SUM(cost) AS spent FROM visits GROUP BY kind"
    whole = sf.query.sql(vault, text, loss=Epsilon(1000))
    spent = vault.remaining.spent.epsilon
    falling = sf.query.sql(vault, f"{text} ORDER BY n DESC LIMIT 2", loss=Epsilon(1000))
    numbers = sorted((row[0].estimate for row in whole.values), reverse=True)
    assert [row[0].estimate for row in falling.values] == numbers[:2]
    most = numbers[1]
    held = sf.query.sql(vault, f"{text} HAVING n >= {most:.0f} AND SUM(cost) >= -1000000", loss=Epsilon(1000))
    assert sorted((row[0].estimate for row in held.values), reverse=True) == [n for n in numbers if n >= round(most)]
    by_label = sf.query.sql(vault, f"{text} ORDER BY kind DESC", loss=Epsilon(1000))
    assert by_label.keys == tuple(reversed(whole.keys))
    assert vault.remaining.spent.epsilon == spent
    assert any("ORDER BY n DESC LIMIT 2" in remark for remark in falling.notes)
    assert any("rows of visits with an undeclared admitted are" in remark for remark in falling.notes)


SAID = [
    (
        "SELECT COUNT(*) FROM patients WHERE patient_id NOT IN (SELECT patient_id FROM visits)",
        "rows of no patient_id are left out",
        "rows of patients with an undeclared sex or region, and of visits with an undeclared admitted are left out, as "
        "the schema says",
    ),
    (
        "WITH t AS (SELECT patient_id, LEAST(SUM(cost), 800) AS spend, COUNT(*) AS n FROM visits GROUP BY patient_id) "
        "SELECT n, SUM(spend) FROM t GROUP BY n",
        "rows of no patient_id are left out",
        "rows of visits with an undeclared admitted are left out, as the schema says",
        "values of cost beyond the declared bounds count as the bounds",
        "n counts rows of one patient_id: more than 6 count as 6",
        "values of spend beyond the declared bounds count as the bounds",
    ),
    (
        "SELECT price, COUNT(*) FROM drugs JOIN visits USING (visit_id) GROUP BY price",
        "intervals are of the bounded table: at most 8 rows of one patient_id, at most 3 in one drug, the rest is left "
        "out, and so are rows of no patient_id",
        "rows of drugs with an undeclared drug, and of visits with an undeclared admitted are left out, as the schema says",
    ),
    (
        "WITH t AS (SELECT patient_id, kind, BOOL_OR(cost >= 500) AS dear FROM visits GROUP BY patient_id, kind) "
        "SELECT dear, COUNT(*) FROM t GROUP BY dear",
        "rows of no patient_id are left out",
        "rows of visits with an undeclared admitted are left out, as the schema says",
    ),
    (
        "SELECT COUNT(DISTINCT patient_id) FROM visits",
        "rows of no patient_id are left out",
        "rows of visits with an undeclared admitted are left out, as the schema says",
        "several rows of one patient_id count once",
    ),
]


@pytest.mark.parametrize(("text", "said"), [(text, said) for text, *said in SAID], ids=range(len(SAID)))
def test_an_answer_says_what_it_leaves_out_of_every_table_and_of_no_other(text: str, said: list[str]) -> None:
    asked = parse_tables(text, WITH_DERIVED)
    assert list(asked.query.population_notes(asked.view.domain, asked.view)) == said


def test_a_view_is_opened_for_other_families(tmp_path: Path) -> None:
    vault = opened(tmp_path)
    view = sf.query.view(vault, "SELECT patient_id, sex, COUNT(visit_id) AS n FROM patients LEFT JOIN visits USING "
                                "(patient_id) GROUP BY patient_id, sex")  # fmt: skip
    assert view.domain.names == ("sex", "n")
    assert view.domain.unit.rows == 2  # one in each cell of sex
    plain = sf.query.view(vault, "SELECT * FROM visits JOIN patients USING (patient_id)")
    assert plain.domain.names == ("admitted", "kind", "cost", "sex", "region")


# --- refusals ---------------------------------------------------------------------------------------------------------

WALL = "rows of two units would meet; add an equality of patient_id"
REFUSED: list[tuple[str, str, str]] = [
    ("SELECT COUNT(*) FROM visits v, visits w", "line 1, column 32", f"v and w are not joined on a declared key: {WALL}"),
    ("SELECT COUNT(*) FROM visits v CROSS JOIN visits w", "line 1, column 42", f"not joined on a declared key: {WALL}"),
    ("SELECT COUNT(*) FROM visits v JOIN visits w ON v.kind = w.kind", "line 1, column 48", "not declared to be keys"),
    ("SELECT COUNT(*) FROM visits v JOIN visits w ON v.cost < w.cost", "line 1, column 36", WALL),
    ("SELECT COUNT(*) FROM diagnoses d JOIN drugs e ON d.code = e.code", "line 1, column 50", "code of d and code of e are not"),
    (
        "SELECT COUNT(*) FROM diagnoses d JOIN diagnoses e ON d.code = e.code",
        "line 1, column 39",
        f"d and e are not joined on a declared key: {WALL}",
    ),
    ("SELECT COUNT(*) FROM visits v NATURAL JOIN drugs d NATURAL JOIN visits w", "line 1, column 65", "NATURAL JOIN w"),
    (
        "SELECT COUNT(*) FROM patients p LEFT JOIN visits v ON p.patient_id = v.patient_id AND p.sex = 'F'",
        "line 1, column 87",
        "ON of a LEFT JOIN takes the key and conditions on v alone; put others in WHERE",
    ),
    (
        "SELECT COUNT(*) FROM diagnoses d WHERE EXISTS (SELECT * FROM diagnoses e WHERE e.code = d.code)",
        "line 1, column",
        "it would look at rows of other units; add an equality of the unit or of a key of its rows, as e.dx_id = d.dx_id",
    ),
    (
        "SELECT COUNT(*) FROM visits WHERE kind IN (SELECT kind FROM drugs JOIN visits USING (visit_id))",
        "line 1, column",
        "rows are matched by the unit or a key of its rows: patient_id IN (SELECT patient_id FROM drugs ...)",
    ),
    (
        "SELECT COUNT(*) FROM patients p WHERE p.sex = 'F' OR EXISTS (SELECT * FROM visits v WHERE v.patient_id = p.patient_id)",
        "line 1, column",
        "EXISTS stands by itself in WHERE",
    ),
    ("SELECT COUNT(*) FROM (SELECT kind FROM visits) t WHERE cost > 5", "line 1, column", "no attribute 'cost' in t"),
    (
        "SELECT COUNT(*) FROM (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id LIMIT 5) t",
        "line 1, column",
        "LIMIT inside uses rows of other units; put it outside, after the noise",
    ),
    (
        "SELECT COUNT(*) FROM (SELECT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id ORDER BY n) t",
        "line 1, column",
        "ORDER BY inside uses rows of other units",
    ),
    (
        "SELECT COUNT(*) FROM (SELECT DISTINCT patient_id, COUNT(*) AS n FROM visits GROUP BY patient_id) t",
        "line 1, column",
        "DISTINCT inside uses rows of other units",
    ),
    (
        "SELECT COUNT(*) FROM (SELECT kind, COUNT(*) AS n FROM visits GROUP BY kind HAVING COUNT(*) > 2) t",
        "line 1, column",
        "a SELECT in FROM groups by the unit, patient_id",
    ),
    (
        "SELECT COUNT(*) FROM visits WHERE cost > (SELECT AVG(cost) FROM visits)",
        "line 1, column",
        "a SELECT inside an expression uses rows of other units",
    ),
    (
        "SELECT ROW_NUMBER() OVER (ORDER BY cost), COUNT(*) FROM visits",
        "line 1, column",
        "a window uses rows of other units",
    ),
    (
        "SELECT COUNT(*) FROM (SELECT kind, COUNT(*) AS n FROM visits GROUP BY kind) t",
        "line 1, column",
        "a SELECT in FROM groups by the unit, patient_id",
    ),
    (
        "SELECT COUNT(*) FROM icd LEFT JOIN diagnoses USING (code)",
        "line 1, column 22",
        "start FROM with a private table, because a public row belongs to no unit",
    ),
    ("SELECT COUNT(*) FROM diagnoses RIGHT JOIN icd USING (code)", "line 1, column 43", "RIGHT JOIN keeps every row of icd"),
    ("SELECT COUNT(*) FROM diagnoses FULL JOIN icd USING (code)", "line 1, column 42", "FULL JOIN keeps every row of icd"),
    (
        "SELECT COUNT(*) FROM visits FULL JOIN patients USING (patient_id)",
        "line 1, column 39",
        "FULL JOIN lists rows of two tables, and an answer counts the rows of one",
    ),
    ("SELECT patient_id, COUNT(*) FROM visits GROUP BY patient_id", "line 1, column", "about one unit"),
    ("SELECT SUM(cost / kind) FROM visits", "line 1, column 19", "a division by a column could fail, depending on the data"),
    ("SELECT COUNT(*) FROM visits WHERE cost > RANDOM()", "line 1, column 42", "no random numbers"),
    ("SELECT COUNT(*) FROM visits WHERE admitted > CURRENT_DATE", "line 1, column", "no random numbers"),
    ("SELECT COUNT(*) FROM visits UNION SELECT COUNT(*) FROM drugs", "line 1, column", "UNION"),
    ("SELECT COUNT(*) FROM stays", "line 1, column 22", "no table 'stays' in the schema"),
    ("SELECT COUNT(*) FROM visits v JOIN visits w USING (visit_id) WHERE cost > 500", "line 1, column 68", "several tables"),
    ("SELECT dose, COUNT(*) FROM visits GROUP BY dose", "line 1, column", "no attribute 'dose'"),
    ("SELECT COUNT(*) FROM visits OFFSET 1.5", "line 1, column", "OFFSET takes a whole number"),
    ("SELECT COUNT(*) FROM visits LIMIT 1.5", "line 1, column", "whole number"),
    ("SELECT COUNT(*) FROM visits HAVING kind > 1", "line 1, column", "HAVING compares"),
    ("SELECT kind, COUNT(*) FROM visits GROUP BY kind ORDER BY cost", "line 1, column 58", "ORDER BY names"),
    ("SELECT\nCOUNT(*)\nFROM visits v,\n patients p", "line 4, column 2", "not joined on a declared key"),
    (
        "SELECT COUNT(*) FROM visits WHERE patient_id IN (SELECT patient_id FROM drugs LIMIT 3)",
        "line 1, column",
        "LIMIT inside uses rows of other units",
    ),
    (
        "SELECT COUNT(*) FROM visits WHERE patient_id IN (SELECT patient_id FROM drugs) OR kind = 1",
        "line 1, column",
        "SELECT after IN stands by itself",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "place", "words"), REFUSED, ids=[str(n) for n in range(len(REFUSED))])
def test_what_could_mix_units_is_refused_and_not_charged(text: str, place: str, words: str, vault: SchemaVault) -> None:
    with pytest.raises(QueryError) as refused:
        sf.query.sql(vault, text, loss=Epsilon(1))
    assert place in str(refused.value)
    assert words in str(refused.value)
    assert vault.remaining.spent.epsilon == 0


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> SchemaVault:
    return opened(tmp_path_factory.mktemp("hospital"))


def test_units_without_rows_take_a_table_that_lists_all() -> None:
    document = dict(DOCUMENT) | {"unit": {"id": "patient_id"}}
    document["tables"] = dict(DOCUMENT["tables"]) | {
        "patients": DOCUMENT["tables"]["patients"] | {"unit": "patient_id", "rows": 1}
    }
    unlisted = parse_schema(document)
    with pytest.raises(QueryError, match=r"declare unit\.table"):
        parse_tables(STATEMENTS[23][1], unlisted)


def test_a_view_takes_other_bounds() -> None:
    asked = parse_tables("SELECT COUNT(*) FROM visits", HOSPITAL, bounds=unit(3))
    assert isinstance(asked.view, BoundedView)
    assert plan(asked.query, asked.view.domain).questions[0].sensitivity(asked.view.domain) == (3, 9)
    assert Fraction(asked.view.unit.rows) == 3


@pytest.mark.parametrize(
    ("statement", "rows"),
    [
        ("SELECT COUNT(*) FROM visits JOIN patients USING (patient_id)", 6),
        ("SELECT COUNT(*) FROM patients JOIN visits USING (patient_id)", 6),
        ("SELECT COUNT(*) FROM patients LEFT JOIN visits USING (patient_id)", 6),
        ("SELECT COUNT(*) FROM visits v JOIN drugs d ON v.visit_id = d.visit_id", 8),
        (
            "SELECT COUNT(*) FROM patients p JOIN visits v ON p.patient_id = v.patient_id JOIN drugs d ON v.visit_id = d.visit_id",
            8,
        ),
        (
            "SELECT COUNT(*) FROM drugs d JOIN visits v ON v.visit_id = d.visit_id JOIN patients p ON p.patient_id = v.patient_id",
            8,
        ),
        (
            "SELECT COUNT(*) FROM visits v JOIN visits w ON v.patient_id = w.patient_id JOIN drugs d ON w.visit_id = d.visit_id",
            6,
        ),
        (
            "SELECT COUNT(*) FROM patients JOIN (SELECT patient_id, kind, COUNT(*) AS n FROM visits "
            "GROUP BY patient_id, kind) k USING (patient_id)",
            4,
        ),
        (
            "SELECT COUNT(*) FROM (SELECT patient_id, kind, COUNT(*) AS n FROM visits GROUP BY patient_id, kind) k "
            "JOIN patients USING (patient_id)",
            4,
        ),
        (
            "SELECT COUNT(*) FROM visits JOIN (SELECT patient_id, COUNT(*) AS n FROM drugs GROUP BY patient_id) d "
            "USING (patient_id)",
            6,
        ),
        (
            "SELECT COUNT(*) FROM (SELECT patient_id, COUNT(*) AS n FROM drugs GROUP BY patient_id) d JOIN visits "
            "USING (patient_id)",
            6,
        ),
    ],
)
def test_a_view_has_the_bounds_of_the_table_whose_rows_it_lists(statement, rows):
    assert parse_tables(statement, HOSPITAL).view.unit.rows == rows
