"""One table answers like a schema of that table: computed values, aliases and SELECT inside FROM."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

import sfumato as sf
from sfumato.domain import Categorical, Date, Domain, Integer, Real, Unit, Unknown
from sfumato.domain.calendar import Grain
from sfumato.domain.unit_views import one_table_schema
from sfumato.domain.view import BoundedView, Computed, PerUnit, RowCount, Scan
from sfumato.engine.duckdb.duck_table import DuckTable
from sfumato.engine.exact import reveal
from sfumato.engine.open import open_table
from sfumato.engine.views.joined import TableViews
from sfumato.errors import BudgetError, EngineError, QueryError
from sfumato.query import sql
from sfumato.query.statements.select_statement import parse
from sfumato.query.statements.table_statement import parse_with_view

SURE = sf.Epsilon(10**6)  # so little noise that answers are exact after rounding


def people(rows: int = 400) -> pa.Table:
    days = [f"2020-{1 + place % 12:02d}-{1 + place % 28:02d}" for place in range(rows)]
    return pa.table(
        {
            "pid": [place // 2 for place in range(rows)],
            "age": [place * 7 % 100 for place in range(rows)],
            "sex": ["F" if place % 3 else "M" for place in range(rows)],
            "income": [None if place % 11 == 0 else float(place * 13 % 5000) for place in range(rows)],
            "day": pa.array(days).cast(pa.date32()),
        }
    )


def domain(unit: Unit) -> Domain:
    first, last = (pa.scalar(text).cast(pa.date32()).as_py() for text in ("2020-01-01", "2020-12-31"))
    return Domain(
        (
            Integer(name="age", minimum=0, maximum=99, unknown=Unknown.CLAMP),
            Categorical(name="sex", values=("F", "M"), unknown=Unknown.DROP),
            Real(name="income", edges=(0.0, 1000.0, 5000.0), unknown=Unknown.CLAMP, nullable=True),
            Date(name="day", first=first, last=last, unknown=Unknown.DROP, by=Grain.DAY),
        ),
        unit=unit,
    )


def view_of(statement: str, described: Domain) -> BoundedView | None:
    try:
        parse(statement, described)
    except QueryError as error:
        return parse_with_view(statement, described, error)[1]
    return None


UNITS = {"row": Unit.row(), "pid": Unit("pid", rows=2)}


@pytest.fixture(params=UNITS)
def vault(request, tmp_path):
    ledger = f"sqlite:///{tmp_path}/people.ledger"
    return sf.open(people(), domain=domain(UNITS[request.param]), ledger=ledger, limit=sf.Epsilon(10**9), create=True)


OF_ROWS = [
    "SELECT COUNT(*) FROM people p WHERE p.age > 50",
    "SELECT COUNT(*) FROM people AS p WHERE P.AGE > 50",
    'SELECT COUNT(*) FROM "main"."people" WHERE "people"."age" > 50',
    "SELECT COUNT(*) FROM people.people",
    "SELECT AVG(CASE WHEN age > 50 THEN 1 ELSE 0 END), SUM(age * 2 + 1), COUNT(*) FROM people",
    "SELECT SUM(CASE WHEN sex = 'F' THEN income END) FROM people",
    "SELECT CASE WHEN age < 18 THEN 'child' ELSE 'adult' END AS band, COUNT(*) FROM people GROUP BY band",
    "SELECT COUNT(*), MAX(age + 1) FROM people WHERE age + 1 > 20",
    "SELECT COUNT(*) FROM (SELECT sex, age FROM people WHERE age > 10) t WHERE t.sex = 'F'",
    "WITH t AS (SELECT age + 1 AS a, sex FROM people WHERE sex = 'F') SELECT AVG(a) FROM t",
    "WITH people AS (SELECT age FROM people WHERE age < 30) SELECT COUNT(*) FROM people",
]
OF_UNITS = [
    "SELECT COUNT(DISTINCT p.pid) FROM people p WHERE p.age > 50",
    "SELECT COUNT(DISTINCT pid) FROM people WHERE age + 1 > 50",
    "SELECT AVG(n) FROM (SELECT pid, COUNT(*) AS n FROM people GROUP BY pid)",
    "SELECT AVG(t) FROM (SELECT pid, LEAST(SUM(income), 9000) AS t FROM people GROUP BY pid)",
    "SELECT COUNT(*) FROM people WHERE pid IN (SELECT pid FROM people WHERE age > 90)",
    "SELECT MAX(a) FROM (SELECT pid, MAX(age) AS a FROM people GROUP BY pid)",
]


def exact(statement: str) -> list[tuple[object, ...]]:
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA people")
        connection.register("rows", people())
        connection.execute("CREATE TABLE main.people AS SELECT * FROM rows")
        connection.execute("CREATE TABLE people.people AS SELECT * FROM rows")
        return connection.execute(statement).fetchall()


def compare(vault, statement: str) -> None:
    answer = sql(vault, statement, loss=SURE)
    answered = sorted(
        ((*key, *row) for key, row in zip(answer.keys, answer.values, strict=True)), key=lambda row: str(row[0])
    )
    expected = sorted(exact(statement), key=lambda row: str(row[0]))
    assert len(answered) == len(expected)
    for ours, theirs in zip(answered, expected, strict=True):
        for value, truth in zip(ours, theirs, strict=True):
            assert value == truth or value.estimate == pytest.approx(truth, rel=1e-3, abs=1e-3), statement


@pytest.mark.parametrize("statement", OF_ROWS)
def test_statements_about_rows_are_answered(vault, statement):
    compare(vault, statement)


@pytest.mark.parametrize("statement", OF_UNITS)
def test_statements_about_units_are_answered_or_refused(vault, statement):
    if vault.domain.unit.column is None:
        with pytest.raises(QueryError):
            sql(vault, statement, loss=SURE)
        assert vault.remaining.spent.epsilon == 0
    else:
        compare(vault, statement)


def test_a_repeated_statement_is_free(vault):
    statement = "SELECT AVG(age + 1) FROM people"
    first = sql(vault, statement, epsilon=1)
    again = sql(vault, statement.replace("people", "other.people AS p"), epsilon=1)
    assert again.value == first.value
    assert vault.remaining.spent.epsilon == 1


def test_an_alias_alone_asks_the_same_question(vault):
    first = sql(vault, "SELECT sex, AVG(age) FROM people WHERE age > 3 GROUP BY sex", epsilon=1)
    again = sql(vault, "SELECT p.sex, AVG(p.age) FROM public.people p WHERE p.age > 3 GROUP BY p.sex", epsilon=1)
    assert again.values == first.values
    assert vault.remaining.spent.epsilon == 1


def test_a_view_is_charged_before_it_is_encoded(vault, monkeypatch):
    encoded = []
    store = DuckTable.store
    monkeypatch.setattr(DuckTable, "store", lambda *given: (encoded.append(spent()), store(*given))[1])

    def spent():
        return vault.remaining.spent.epsilon

    sql(vault, "SELECT AVG(age + 1) FROM people", epsilon=1)
    assert encoded == [1]
    with pytest.raises(BudgetError):
        sql(vault, "SELECT AVG(age + 2) FROM people", epsilon=10**9)
    assert encoded == [1]


def test_a_file_that_was_written_is_refused_before_the_charge(tmp_path):
    import pyarrow.parquet as pq

    path, ledger = tmp_path / "people.parquet", f"sqlite:///{tmp_path}/people.ledger"
    pq.write_table(people(), path)
    vault = sf.open(path, domain=domain(Unit.row()), ledger=ledger, limit=sf.Epsilon(9), create=True)
    pq.write_table(people(399), path)
    with pytest.raises(EngineError, match="written"):
        sql(vault, "SELECT AVG(age + 1) FROM people", epsilon=1)
    assert vault.remaining.spent.epsilon == 0


def test_a_frame_that_was_changed_is_refused_before_the_charge(tmp_path):
    frame = people().to_pandas()
    ledger = f"sqlite:///{tmp_path}/people.ledger"
    vault = sf.open(frame, domain=domain(Unit.row()), ledger=ledger, limit=sf.Epsilon(9), create=True)
    frame.loc[3, "age"] = 98
    try:
        answer = sql(vault, "SELECT SUM(age + 0) FROM people", epsilon=8)
    except EngineError:
        assert vault.remaining.spent.epsilon == 0
    else:  # the engine has a copy of the frame
        assert abs(answer.value.estimate - sum(people()["age"].to_pylist())) < 3000


def test_a_row_as_unit_makes_at_most_one_row():
    """Removing a row changes at most one row of a view, whatever is computed."""
    described = domain(Unit.row())
    statements = [*OF_ROWS, "SELECT AVG(age * age - 3) FROM people WHERE income + age > 9"]
    table = people(12)
    for statement in statements:
        view = view_of(statement, described)
        if view is None:
            continue
        names = [view.domain.names]

        def counts(rows: pa.Table, view=view, names=names):
            return reveal(TableViews().encoded(open_table(rows).encode(described), view, None).groups(*names))

        def cells(sparse):
            return {tuple(map(int, codes)): int(n) for codes, n in zip(sparse.codes, sparse.counts, strict=True)}

        whole = cells(counts(table))
        for place in range(len(table)):
            rest = cells(counts(pa.concat_tables([table.slice(0, place), table.slice(place + 1)])))
            assert sum(abs(whole.get(key, 0) - rest.get(key, 0)) for key in whole | rest) <= 1


def test_a_row_as_unit_has_no_rows_of_a_unit():
    (table,) = one_table_schema(domain(Unit.row())).tables
    scan = Scan(table, "people", tuple(each.name for each in table.attributes))
    with pytest.raises(QueryError, match="one row"):
        BoundedView(PerUnit(scan, (), (("n", RowCount(3)),)), Unit.row())


def test_a_view_of_another_table_or_unit_is_refused(vault):
    view = view_of("SELECT AVG(age + 1) FROM people", vault.domain)
    other = domain(Unit("who", rows=3))
    foreign = view_of("SELECT AVG(age + 1) FROM people", other)
    for refused in (foreign, BoundedView(view.view, Unit("who", rows=3))):
        with pytest.raises(QueryError, match=r"another table|other units"):
            vault.for_view(refused)
    with pytest.raises(QueryError, match="only a table"):
        vault.for_view(view).for_view(view)
    assert isinstance(view.view, Computed)


REFUSED = [  # a statement, its unit, and a word of the reason
    ("SELECT * FROM people", "row", "private"),
    ("SELECT age FROM people", "row", "GROUP BY"),
    ("SELECT p.age AS a, p.sex FROM people p ORDER BY a LIMIT 3", "row", "GROUP BY"),
    ("SELECT AVG(pid) FROM people", "row", "other columns are private"),
    ("SELECT AVG(nobody) FROM people WHERE age > 9", "row", "other columns are private"),
    ("SELECT AVG(pid) FROM people", "pid", "pid identifies a unit, so it is private"),
    ("SELECT pid, COUNT(*) FROM people GROUP BY pid", "pid", "private"),
    ("SELECT COUNT(*) FROM people WHERE pid = 7", "pid", "private"),
    ("SELECT SUM(age) OVER (PARTITION BY sex) FROM people", "row", "other units"),
    ("SELECT RANK() OVER (ORDER BY age) FROM people", "pid", "other units"),
    ("SELECT COUNT(*) FROM people UNION ALL SELECT COUNT(*) FROM people", "row", "UNION"),
    ("SELECT AVG(n) FROM (SELECT sex, COUNT(*) AS n FROM people GROUP BY sex) t", "row", "different units"),
    ("SELECT AVG(n) FROM (SELECT sex, COUNT(*) AS n FROM people GROUP BY sex) t", "pid", "groups by the unit, pid"),
    ("SELECT AVG(n) FROM (SELECT sex, COUNT(*) AS n FROM people p GROUP BY 1) t", "pid", "groups by the unit, pid"),
    ("SELECT COUNT(*) FROM people a JOIN people b ON a.age = b.age", "row", "a unit of its own"),
    ("SELECT COUNT(*) FROM people a JOIN people b ON a.age = b.age", "pid", "declared to be keys"),
    ("SELECT COUNT(*) FROM people WHERE age IN (SELECT age FROM people)", "row", "a unit of its own"),
    ("SELECT COUNT(*) FROM people WHERE EXISTS (SELECT * FROM people)", "row", "a unit of its own"),
    ("SELECT AVG(income / age) FROM people WHERE sex = 'F'", "row", "depending on the data"),
    ("SELECT SUM(age * RANDOM()) FROM people", "row", "compute with attributes"),
    ("SELECT COUNT(*) FROM people WHERE sex = 'X'", "row", "not a declared value"),
]


@pytest.mark.parametrize(("statement", "unit", "reason"), REFUSED)
def test_a_refusal_says_why_and_shows_a_statement_that_works(statement, unit, reason, tmp_path):
    ledger = f"sqlite:///{tmp_path}/people.ledger"
    vault = sf.open(people(40), domain=domain(UNITS[unit]), ledger=ledger, limit=sf.Epsilon(10), create=True)
    with pytest.raises(QueryError) as refused:
        sql(vault, statement, epsilon=1)
    assert vault.remaining.spent.epsilon == 0
    assert reason in str(refused.value)
    assert refused.value.statements
    for remedy in refused.value.statements:
        assert f"; ask {remedy}" in str(refused.value)
        assert len(sql(vault, remedy, epsilon=1))


@pytest.mark.parametrize(
    ("statement", "remedy"),
    [
        ("SELECT AVG(ag) FROM people", "SELECT AVG(age) FROM people"),
        ("SELECT p.sx, COUNT(*) FROM people p GROUP BY p.sx", "SELECT p.sex, COUNT(*) FROM people p GROUP BY p.sex"),
        ("SELECT COUNT(*) FROM people WHERE Sexx = 'F'", "SELECT COUNT(*) FROM people WHERE sex = 'F'"),
    ],
)
def test_a_misspelled_name_is_answered_with_the_nearest_declared_one(statement, remedy, tmp_path):
    ledger = f"sqlite:///{tmp_path}/people.ledger"
    vault = sf.open(people(40), domain=domain(UNITS["row"]), ledger=ledger, limit=sf.Epsilon(10), create=True)
    with pytest.raises(QueryError) as refused:
        sql(vault, statement, epsilon=1)
    assert list(refused.value.statements) == [remedy]
    assert len(sql(vault, remedy, epsilon=1))


def test_a_column_named_like_a_word_of_sql_is_to_be_quoted():
    with pytest.raises(QueryError, match='write it in double quotes, as it is a word of SQL: "Alter"'):
        view_of("SELECT COUNT(*) FROM people WHERE Alter > 3", domain(UNITS["row"]))
