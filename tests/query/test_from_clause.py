"""FROM, WITH, EXISTS and IN against DuckDB over the same rows, at a very large epsilon."""

# ruff: noqa: S608, E501, ISC004 - statements are written out here

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.query.test_against_duckdb import agree

from sfumato.domain.table_schema import parse_schema
from sfumato.domain.view import UnitSum
from sfumato.errors import QueryError
from sfumato.privacy.loss import Epsilon
from sfumato.query import sql
from sfumato.query.statements.table_statement import parse_tables
from sfumato.vault.schema_vault import SchemaVault, open_schema


def _integer(most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": 0, "maximum": most, "nullable": True, "unknown": "clamp"}


def _values(*values: str) -> dict[str, Any]:
    return {"type": "categorical", "values": list(values), "nullable": True, "unknown": "drop"}


DAY = {"type": "date", "by": "day", "first": "2024-01-01", "last": "2024-12-31", "nullable": True, "unknown": "drop"}
DOCUMENT: dict[str, Any] = {
    "sfumato": 2,
    "schema": "shop",
    "draft": False,
    "unit": {"id": "person", "table": "people"},
    "tables": {
        "people": {
            "key": "person",
            "references": {"home": "lands"},
            "attributes": {"sex": _values("F", "M"), "age": _integer(99)},
        },
        "buys": {
            "key": "buy",
            "unit": "person",
            "rows": 9,
            "attributes": {
                "paid": _integer(99),
                "weight": {"type": "real", "edges": [0.0, 50.0, 100.0], "nullable": True, "unknown": "clamp"},
                "day": DAY,
                "due": DAY,
                "sex": _values("F", "M"),
            },
        },
        "items": {
            "key": "item",
            "through": {"buy": "buys"},
            "references": {"ware": "wares"},
            "rows": 30,
            "attributes": {"pieces": _integer(9)},
        },
        "stays": {"key": "stay", "unit": "guest", "rows": 3, "attributes": {"nights": _integer(9)}},
        "notes": {
            "key": "note",
            "through": {"stay": "stays"},
            "rows": 6,
            "attributes": {
                "stars": {
                    "type": "real",
                    "edges": [0.0, 0.7, 0.7000000000000001, 1.0],
                    "nullable": True,
                    "unknown": "clamp",
                }
            },
        },
        "wares": {
            "public": True,
            "key": "ware",
            "references": {"maker": "makers"},
            "attributes": {"price": _integer(50), "sort": _values("ale", "rye", "tea")},
        },
        "makers": {
            "public": True,
            "key": "maker",
            "references": {"land": "lands"},
            "attributes": {"size": _integer(3)},
        },
        "lands": {"public": True, "key": "land", "attributes": {"name": _values("north", "south", "west")}},
    },
}


def tables() -> dict[str, pa.Table]:
    """People without rows, with many, and with rows that lack values."""
    chance = random.Random(7)  # noqa: S311 - of test data

    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.2 else value

    def day() -> date:
        return date(2024, 1, 1) + timedelta(days=chance.randrange(366))

    lands = [{"land": n, "name": name} for n, name in enumerate(["north", "south", "west"])]
    makers = [{"maker": n, "land": maybe(n % 3), "size": maybe(n % 4)} for n in range(6)]
    sorts = ["ale", "rye", "tea"]
    wares = [
        {"ware": n, "maker": maybe(n % 6), "price": maybe(chance.randrange(51)), "sort": maybe(sorts[n % 3])}
        for n in range(20)
    ]
    people, buys, items = [], [], []
    stays = [{"stay": n, "guest": n // 2, "nights": maybe(n % 10)} for n in range(120)]
    notes = [{"note": n, "stay": n % 100, "stars": maybe(n % 11 / 10)} for n in range(150)]
    for person in range(200):
        people.append({"person": person, "sex": maybe(chance.choice("FM")), "age": maybe(chance.randrange(100)),
                       "home": maybe(person % 3)})  # fmt: skip
        for _ in range(0 if person % 7 == 0 else 9 if person % 11 == 0 else chance.randrange(4)):
            empty = person % 5 == 0
            row = {"paid": chance.randrange(100), "weight": chance.randrange(400) / 4, "day": day(), "due": day(),
                   "sex": chance.choice("FM")}  # fmt: skip
            kept = {name: None if empty else maybe(value) for name, value in row.items()}
            buys.append({"buy": len(buys), "person": person, **kept})
            for _ in range(chance.randrange(4)):
                pieces = maybe(chance.randrange(10))
                items.append(
                    {"item": len(items), "buy": len(buys) - 1, "ware": maybe(chance.randrange(20)), "pieces": pieces}
                )
    every = {
        "people": people,
        "buys": buys,
        "items": items,
        "stays": stays,
        "notes": notes,
        "wares": wares,
        "makers": makers,
        "lands": lands,
    }
    return {name: pa.Table.from_pylist(rows) for name, rows in every.items()}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> SchemaVault:
    ledger = f"sqlite:///{tmp_path_factory.mktemp('shop') / 'shop.ledger'}"
    return open_schema(tables(), schema=parse_schema(DOCUMENT), ledger=ledger, limit=Epsilon(10**10), create=True)


@pytest.fixture(scope="module")
def plain() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        for name, rows in tables().items():
            connection.register(f"{name}_rows", rows)
            connection.sql(f"CREATE TABLE {name} AS SELECT * FROM {name}_rows")
        yield connection


INSIDE = [
    "SELECT COUNT(*), SUM(paid) FROM (SELECT * FROM buys) AS t",
    "SELECT COUNT(*) FROM (SELECT person, paid FROM buys WHERE paid >= 20)",
    "WITH t AS (SELECT sex, age FROM people WHERE age >= 30) SELECT sex, COUNT(*) FROM t GROUP BY sex",
    "WITH t AS (SELECT sex AS s, age AS a FROM people) SELECT s, COUNT(*) FROM t WHERE a < 50 GROUP BY s",
    "WITH t (s, a) AS (SELECT sex, age FROM people) SELECT s, SUM(a) FROM t GROUP BY s",
    "SELECT s, AVG(x) FROM (SELECT sex, paid + 1 FROM buys) AS t (s, x) GROUP BY s",
    "SELECT SUM(total) FROM (SELECT paid * 2 AS total FROM buys WHERE day >= DATE '2024-03-01') AS t",
    "SELECT SUM(paid) FROM (SELECT paid * 2 AS paid FROM buys) AS t",
    "SELECT SUM(b) FROM (SELECT paid + 1 AS b FROM (SELECT paid * 2 AS paid, person FROM buys) AS t WHERE paid > 10) AS u",
    "WITH t AS (SELECT person, paid FROM buys), u AS (SELECT person, MAX(paid) AS most FROM t GROUP BY person) "
    "SELECT COUNT(*), SUM(most) FROM u",
    "WITH t AS (SELECT person, paid AS p FROM buys WHERE paid > 10), u AS (SELECT p FROM t WHERE p < 60) SELECT SUM(p), COUNT(*) FROM u",
    "WITH t AS (SELECT person, paid FROM buys WHERE paid > 50) SELECT p.sex, COUNT(*) FROM people p JOIN t ON p.person = t.person GROUP BY p.sex",
    "WITH buys AS (SELECT * FROM buys WHERE paid > 50) SELECT COUNT(*) FROM buys",
    "WITH p AS (SELECT person, sex FROM people), b AS (SELECT person, sex FROM buys) "
    "SELECT p.sex, b.sex, COUNT(*) FROM p JOIN b USING (person) GROUP BY p.sex, b.sex",
    "WITH t AS (SELECT buy, person, paid FROM buys) SELECT COUNT(*) FROM t AS a JOIN t AS b ON a.buy = b.buy WHERE a.paid > 50",
    "WITH n AS (SELECT person, COUNT(*) AS n FROM buys GROUP BY person) SELECT COUNT(*) FROM n AS a JOIN n AS b USING (person) WHERE a.n > 1 AND b.n < 4",
    "WITH dear AS (SELECT ware, price FROM wares WHERE price >= 25) SELECT COUNT(*) FROM items JOIN dear ON items.ware = dear.ware",
    "SELECT y, COUNT(*) FROM (SELECT EXTRACT(quarter FROM day) AS y FROM buys) AS t GROUP BY y",
    "SELECT dear, COUNT(*) FROM (SELECT CASE WHEN paid >= 50 THEN 'dear' ELSE 'cheap' END AS dear FROM buys) AS t GROUP BY dear",
    "SELECT COUNT(*) FROM (SELECT DISTINCT person FROM buys) AS t",
    "SELECT s, COUNT(*) FROM (SELECT DISTINCT person, sex AS s FROM buys) AS t GROUP BY s",
    "SELECT n, COUNT(*) FROM (SELECT person, LEAST(COUNT(*), 9) AS n FROM buys GROUP BY 1) AS t GROUP BY n",
    "SELECT n, COUNT(*) FROM (SELECT sex AS s, person, COUNT(*) AS n FROM buys GROUP BY 1, 2) AS t GROUP BY n",
    "SELECT COUNT(*) FROM (SELECT person FROM buys GROUP BY person HAVING COUNT(*) > 2) AS t",
    "SELECT SUM(m) FROM (SELECT person, MAX(paid) AS m FROM buys GROUP BY person HAVING COUNT(*) >= 2 AND MAX(paid) > 30) AS t",
    "SELECT COUNT(*) FROM people WHERE person IN (SELECT person FROM buys GROUP BY person HAVING SUM(paid) > 100)",
    "SELECT AVG(t), COUNT(t) FROM (SELECT person, SUM(paid) AS t FROM buys GROUP BY person) AS x",
    "SELECT COUNT(t), SUM(t) FROM (SELECT person, LEAST(SUM(paid), 90) AS t FROM buys GROUP BY person) AS x",
    "SELECT COUNT(t), SUM(t) FROM (SELECT person, LEAST(GREATEST(SUM(paid), 5), 90) AS t FROM buys GROUP BY person) AS x",
    "SELECT COUNT(t), SUM(t) FROM (SELECT person, GREATEST(LEAST(SUM(weight), 90), 5) AS t FROM buys GROUP BY person) AS x",
    "SELECT COUNT(t), SUM(t) FROM (SELECT person, LEAST(LEAST(SUM(paid), 50), 90) AS t FROM buys GROUP BY person) AS x",
    "SELECT COUNT(t), SUM(t) FROM (SELECT person, GREATEST(GREATEST(SUM(paid), 50), 5) AS t FROM buys GROUP BY person) AS x",
    "SELECT SUM(t) FROM (SELECT person, LEAST(LEAST(COUNT(*), 2), 9) AS t FROM buys GROUP BY person) AS x",
    "WITH t AS (SELECT sex, COUNT(*) AS n FROM people WHERE sex IS NOT NULL GROUP BY sex) SELECT sex, n FROM t",
    "SELECT s, n FROM (SELECT sex AS s, COUNT(*) AS n, SUM(age) AS a FROM people GROUP BY sex) AS t WHERE n > 60 ORDER BY n DESC LIMIT 1",
    "WITH b AS (SELECT * FROM buys WHERE paid > 20), t AS (SELECT sex, COUNT(*) AS n FROM b GROUP BY 1) SELECT * FROM t WHERE n > 5",
    "SELECT m FROM (SELECT MAX(paid) FROM buys) AS t (m)",
    "SELECT COUNT(*) FROM (SELECT buys.*, people.age FROM buys JOIN people USING (person) WHERE buys.paid > 3) AS t WHERE age > 40",
]
JOINS = [
    "SELECT COUNT(*) FROM buys b RIGHT JOIN people p ON p.person = b.person AND b.paid > 50",
    "SELECT p.sex, COUNT(*), COUNT(b.buy) FROM buys b RIGHT OUTER JOIN people p USING (person) GROUP BY p.sex",
    "SELECT p.sex, COUNT(*) FROM buys b RIGHT JOIN people p USING (person) JOIN lands l ON l.land = p.home GROUP BY p.sex",
    "SELECT COUNT(*), SUM(price) FROM wares RIGHT JOIN items ON items.ware = wares.ware",
    "SELECT p.sex, COUNT(*) FROM people p, buys b WHERE p.person = b.person AND b.paid > 10 GROUP BY p.sex",
    "SELECT p.sex, COUNT(*) FROM people p CROSS JOIN buys b WHERE b.person = p.person GROUP BY p.sex",
    "SELECT name, SUM(pieces) FROM people, buys, items, wares, makers, lands WHERE people.person = buys.person AND buys.buy = items.buy "
    "AND items.ware = wares.ware AND home = makers.land AND wares.maker = makers.maker AND makers.land = lands.land GROUP BY name",
    "SELECT a.name, b.name, COUNT(*) FROM wares, items, buys, people, makers, lands a, lands b WHERE wares.maker = makers.maker AND items.ware = wares.ware "
    "AND items.buy = buys.buy AND people.person = buys.person AND makers.land = a.land AND home = b.land AND "
    "((a.name = 'north' AND b.name = 'south') OR (a.name = 'south' AND b.name = 'north')) GROUP BY a.name, b.name",
    "SELECT sort, COUNT(*) FROM wares JOIN items ON wares.ware = items.ware GROUP BY sort",
    "SELECT sort, COUNT(*) FROM wares JOIN items USING (ware) GROUP BY sort",
    "SELECT l.name, COUNT(*) FROM lands l JOIN makers m USING (land) JOIN wares w USING (maker) JOIN items i USING (ware) GROUP BY l.name",
    "SELECT COUNT(*) FROM items NATURAL JOIN wares",
    'SELECT COUNT(*) FROM main.items AS i JOIN "main"."wares" w ON w.ware = i.ware WHERE w.price > 10',
    'SELECT COUNT(*) FROM BUYS b JOIN "PEOPLE" p ON p.PERSON = b."Person" WHERE "AGE" > 30',
    "SELECT SUM(main.buys.paid) FROM main.buys WHERE main.buys.paid > 9",
    "SELECT COUNT(*) FROM buys b JOIN people p ON b.person = p.person AND p.age > 30 AND b.paid < 70",
    "SELECT COUNT(*) FROM people p LEFT JOIN buys b ON b.person = p.person AND b.paid > 50",
    "SELECT COUNT(*), COUNT(b.paid) FROM people p LEFT JOIN buys b ON p.person = b.person AND b.paid > 50 AND b.day >= DATE '2024-06-01'",
    "SELECT n, COUNT(*) FROM (SELECT p.person, COUNT(b.buy) AS n FROM people p LEFT OUTER JOIN buys b ON p.person = b.person AND b.paid > 50 "
    "GROUP BY p.person) AS c (person, n) GROUP BY n",
    "SELECT COUNT(*) FROM people p LEFT JOIN (SELECT person, MAX(paid) AS m FROM buys GROUP BY person) AS t ON p.person = t.person AND t.m > 40 WHERE t.m IS NULL",
    "SELECT SUM(pieces * price) FROM items, wares WHERE (items.ware = wares.ware AND sort = 'ale' AND pieces > 3) OR (items.ware = wares.ware AND sort = 'tea' AND price < 20)",
    "SELECT sex, COUNT(*) FROM notes, stays, people WHERE stays.stay = notes.stay AND person = guest GROUP BY sex",
    "SELECT COUNT(*) FROM notes WHERE stars <= 0.6 + 0.1",
    "SELECT COUNT(*) FROM notes WHERE stars = 0.7",
    "SELECT COUNT(*) FROM people p LEFT JOIN buys b ON p.person = b.person WHERE b.buy IS NULL",
    "SELECT COUNT(*) FROM people p LEFT JOIN buys b ON p.person = b.person WHERE b.person IS NULL",
    "SELECT COUNT(*) FROM people p LEFT JOIN buys b ON p.person = b.person AND b.paid > 40 WHERE b.buy IS NOT NULL",
    "SELECT p.sex, COUNT(b.buy), COUNT(*) FROM people p LEFT JOIN buys b ON p.person = b.person GROUP BY p.sex",
    "SELECT COUNT(w.ware) FROM items i LEFT JOIN wares w ON i.ware = w.ware AND w.price > 20",
    "SELECT n, COUNT(*) FROM (SELECT p.person, COUNT(b.buy) AS n FROM people p LEFT JOIN buys b USING (person) WHERE b.buy IS NULL GROUP BY p.person) AS t GROUP BY n",
    "SELECT COUNT(*) FROM lands, people WHERE home = land AND name LIKE '%out%'",
    "SELECT COUNT(*) FROM lands, people WHERE home = land AND name NOT LIKE '_o%'",
    "SELECT COUNT(*) FROM items, wares WHERE items.ware = wares.ware AND NOT (sort LIKE 'x%' OR sort ILIKE 'A__')",
    "SELECT SUM(CASE WHEN sort LIKE '%e%' THEN pieces ELSE 0 END) FROM items JOIN wares USING (ware)",
    "SELECT COUNT(*) FROM people p LEFT JOIN buys b ON p.person = b.person AND b.sex NOT LIKE 'F%'",
    "SELECT COUNT(*) FROM buys WHERE day < due",
    "SELECT COUNT(*) FROM buys WHERE NOT day >= due AND day <> due",
    "SELECT COUNT(*) FROM buys WHERE paid > weight",
    "SELECT COUNT(*) FROM items JOIN wares USING (ware) WHERE pieces = price",
    "SELECT COUNT(*) FROM buys WHERE day >= DATE '2024-01-31' + INTERVAL '1' month AND day < DATE '2024-12-01' - INTERVAL 90 DAY",
    "SELECT COUNT(*) FROM buys WHERE paid BETWEEN 10 + 5 AND 2 * 40 AND paid IN (20 + 1, 30, 40, 50)",
    "SELECT COUNT(*) FROM people p JOIN buys b ON p.person = b.person JOIN items i ON i.buy = b.buy JOIN wares w ON w.ware = i.ware AND w.sort = 'tea'",
]
MATCHED = [
    "SELECT COUNT(*) FROM people p WHERE EXISTS (SELECT * FROM buys b WHERE b.person = p.person AND b.paid > 50)",
    "SELECT COUNT(*) FROM people p WHERE NOT EXISTS (SELECT 1 FROM buys b WHERE p.person = b.person AND b.paid > 50)",
    "SELECT sex, COUNT(*) FROM buys WHERE EXISTS (SELECT * FROM items WHERE items.buy = buys.buy AND pieces > 5) GROUP BY sex",
    "SELECT COUNT(*) FROM buys b WHERE NOT EXISTS (SELECT * FROM items i, wares w WHERE i.buy = b.buy AND i.ware = w.ware AND w.sort = 'ale')",
    "SELECT COUNT(*) FROM items a WHERE EXISTS (SELECT * FROM items b WHERE a.buy = b.buy AND a.ware <> b.ware)",
    "SELECT COUNT(*) FROM people p WHERE EXISTS (SELECT * FROM notes, stays WHERE stays.stay = notes.stay AND guest = p.person AND stars >= 0.7)",
    "SELECT COUNT(*) FROM people WHERE NOT EXISTS (SELECT * FROM notes, stays WHERE guest = person AND notes.stay = stays.stay)",
    "SELECT COUNT(*) FROM people WHERE age > 20 AND EXISTS (SELECT * FROM stays WHERE person = guest AND nights > 3)",
    "SELECT COUNT(*) FROM items a WHERE EXISTS (SELECT * FROM items b WHERE a.buy = b.buy AND b.ware <> a.ware) "
    "AND NOT EXISTS (SELECT * FROM items c WHERE a.buy = c.buy AND c.ware <> a.ware AND c.pieces > 4)",
    "SELECT COUNT(*) FROM people WHERE person IN (SELECT person FROM buys WHERE paid > 50)",
    "SELECT COUNT(*) FROM people WHERE person NOT IN (SELECT DISTINCT person FROM buys)",
    "SELECT COUNT(*) FROM buys WHERE buy IN (SELECT buy FROM items WHERE pieces > 5)",
    "SELECT COUNT(*) FROM buys WHERE buy NOT IN (SELECT buy FROM items WHERE pieces > 5)",
    "SELECT COUNT(*) FROM items WHERE ware IN (SELECT ware FROM wares WHERE sort = 'ale')",
    "SELECT COUNT(*) FROM items WHERE EXISTS (SELECT 1 FROM wares WHERE wares.ware = items.ware AND price > 20)",
    "SELECT COUNT(*) FROM items WHERE NOT EXISTS (SELECT 1 FROM wares WHERE wares.ware = items.ware AND price > 20)",
    "SELECT COUNT(*) FROM buys b WHERE b.person IN (SELECT person FROM people WHERE age > 50) AND b.paid > 20",
    "SELECT COUNT(*) FROM items JOIN wares USING (ware) WHERE price > (SELECT AVG(price) FROM wares)",
    "SELECT COUNT(*) FROM items JOIN wares USING (ware) WHERE price >= 0.5 * (SELECT MAX(price) FROM wares WHERE sort = 'tea') AND pieces < 7",
    "SELECT SUM(pieces - (SELECT MIN(size) FROM makers)) FROM items",
    "SELECT COUNT(*) FROM items JOIN wares USING (ware) WHERE price > (SELECT AVG(price) FROM wares WHERE price < 0)",
    "SELECT COUNT(*) FROM people WHERE home = (SELECT land FROM lands WHERE name = 'south')",
    "SELECT COUNT(*) FROM (SELECT buy, price - (SELECT AVG(price) FROM wares) AS above FROM items JOIN wares USING (ware)) AS t WHERE above > 2",
    "WITH t AS (SELECT * FROM buys WHERE paid > 30) SELECT COUNT(*) FROM people p WHERE EXISTS (SELECT * FROM t WHERE t.person = p.person)",
    "SELECT n, COUNT(*) FROM (SELECT person, COUNT(*) AS n FROM buys b WHERE EXISTS (SELECT * FROM items i WHERE i.buy = b.buy) GROUP BY person) AS t GROUP BY n",
]


COUNTED = [
    "SELECT COUNT(buy) FROM buys",
    "SELECT COUNT(DISTINCT buy) FROM buys WHERE paid > 30",
    "SELECT sex, COUNT(b.buy) AS n FROM buys b GROUP BY sex HAVING COUNT(b.buy) > 3 ORDER BY COUNT(b.buy) DESC",
    "SELECT COUNT(buys.buy), COUNT(wares.ware) FROM buys JOIN items USING (buy) JOIN wares USING (ware)",
]
REFUSED = [
    (
        "SELECT COUNT(*) FROM items WHERE ware NOT IN (SELECT ware FROM wares)",
        "NOT IN finds no row if a key is missing; write NOT EXISTS",
    ),
    ("SELECT COUNT(*) FROM wares, makers WHERE wares.maker = makers.maker", "start FROM with a private table"),
    ("SELECT COUNT(*) FROM people, items, wares WHERE items.ware = wares.ware", "add an equality of person"),
    (
        "SELECT COUNT(*) FROM people NATURAL JOIN buys",
        "NATURAL JOIN buys compares sex, which are no keys; write JOIN buys USING (person)",
    ),
    (
        "WITH t AS (SELECT sex FROM people), t AS (SELECT sex FROM buys) SELECT COUNT(*) FROM t",
        "WITH names two statements t",
    ),
    ("SELECT COUNT(*) FROM buys WHERE paid > (SELECT AVG(paid) FROM buys)", "uses rows of other units"),
    ("SELECT COUNT(*) FROM items WHERE pieces > (SELECT COUNT(*) FROM wares)", "gives MIN, MAX or AVG of a number"),
    (
        "SELECT COUNT(*) FROM items, wares WHERE pieces < (SELECT AVG(pieces) FROM items WHERE items.ware = wares.ware) AND items.ware = wares.ware",
        "uses rows of other units",
    ),
    ("SELECT COUNT(*) FROM wares, makers WHERE wares.maker = makers.maker", "rows of units are in people, buys, items"),
    ("SELECT COUNT(*) FROM (SELECT sex, sex FROM people) AS t", "two columns of t are called sex"),
    ("SELECT COUNT(*) FROM (SELECT sex FROM people) AS t (a, b)", "t names 2 columns of 1"),
    ("SELECT COUNT(*) FROM people AS p (a, b)", "(SELECT a AS b FROM people) AS p"),
    (
        "SELECT COUNT(*) FROM people WHERE EXISTS (SELECT * FROM buys WHERE paid > 3)",
        "add an equality of the unit or of a key of its rows, as buys.person = people.person",
    ),
    ("SELECT COUNT(DISTINCT buys.buy) FROM buys JOIN items USING (buy)", "buy is a key"),
    (
        "SELECT COUNT(DISTINCT buy) FROM (SELECT buy, size FROM buys JOIN people USING (person) JOIN makers ON makers.land = people.home) AS t",
        "buy is a key",
    ),
    ("SELECT COUNT(items.buy) FROM items", "buy is a key"),
    (
        "SELECT weight * 2, COUNT(*) FROM buys GROUP BY 1",
        "ask SELECT FLOOR((weight * 2) / 10), COUNT(*) FROM buys GROUP BY FLOOR((weight * 2) / 10)",
    ),
    (
        "SELECT COUNT(*) FROM items a WHERE EXISTS (SELECT * FROM items b WHERE a.buy = b.buy AND a.pieces <> b.pieces)",
        "compared by keys only",
    ),
]


@pytest.mark.parametrize(("text", "words"), REFUSED)
def test_a_refusal_says_what_to_write(text: str, words: str) -> None:
    with pytest.raises(QueryError) as refused:
        parse_tables(text, parse_schema(DOCUMENT))
    assert words in str(refused.value)


def test_a_sum_of_no_value_lies_within_the_bounds_of_the_sum() -> None:
    with pytest.raises(QueryError, match="within the bounds"):
        UnitSum("paid", Fraction(0), Fraction(9), empty=Fraction(10))


@pytest.mark.parametrize("text", [*INSIDE, *JOINS, *MATCHED, *COUNTED])
def test_from_is_that_of_duckdb(shop: SchemaVault, plain: duckdb.DuckDBPyConnection, text: str) -> None:
    agree(shop, plain, text, text)


def test_two_statements_for_an_or_add_up(shop: SchemaVault, plain: duckdb.DuckDBPyConnection) -> None:
    """EXISTS inside OR is refused with two statements that have the same rows together, each once."""
    exists = "EXISTS (SELECT * FROM buys b WHERE b.person = p.person AND b.paid > 50)"
    text = f"SELECT COUNT(*) FROM people p WHERE (p.age > 70 OR {exists}) AND p.sex = 'F'"
    with pytest.raises(QueryError, match="add the numbers of rows") as refused:
        sql(shop, text, loss=Epsilon(10**6))
    assert len(refused.value.statements) == 2
    rows = [sql(shop, each, loss=Epsilon(10**6)).values[0][0].estimate for each in refused.value.statements]
    assert round(sum(rows)) == plain.sql(text).fetchall()[0][0]


@pytest.mark.parametrize(
    ("text", "works"),
    [
        (
            "SELECT COUNT(*) FROM people p FULL JOIN buys b ON p.person = b.person WHERE age > 3",
            "SELECT COUNT(*) FROM people AS p LEFT JOIN buys AS b ON p.person = b.person WHERE age > 3",
        ),
        (
            "SELECT COUNT(*) FROM people p LEFT JOIN buys b ON p.person = b.person AND p.sex = 'F' AND b.paid > 2",
            "SELECT COUNT(*) FROM people AS p LEFT JOIN buys AS b ON p.person = b.person AND b.paid > 2 WHERE p.sex = 'F'",
        ),
    ],
)
def test_an_outer_join_is_refused_with_a_left_join_that_works(shop: SchemaVault, text: str, works: str) -> None:
    with pytest.raises(QueryError) as refused:
        sql(shop, text, loss=Epsilon(1))
    assert refused.value.statements == (works,)
    sql(shop, works, loss=Epsilon(1))


def test_top_stands_after_with(shop: SchemaVault) -> None:
    rest = "sex, COUNT(*) AS n FROM t WHERE sex = 'F' GROUP BY sex ORDER BY n DESC"
    top = sql(shop, f"WITH t AS (SELECT sex FROM people) SELECT TOP 1 {rest}", loss=Epsilon(10**6))
    limit = sql(shop, f"WITH t AS (SELECT sex FROM people) SELECT {rest} LIMIT 1", loss=Epsilon(10**6))
    assert top.values == limit.values


def test_a_left_join_keeps_the_levels_of_the_joined_table(tmp_path: Path, plain: duckdb.DuckDBPyConnection) -> None:
    sort = DOCUMENT["tables"]["wares"] | {
        "hierarchies": {"sort": {"levels": ["drink"], "rows": [["ale", "wet"], ["rye", "dry"], ["tea", "wet"]]}}
    }
    schema = parse_schema(DOCUMENT | {"tables": DOCUMENT["tables"] | {"wares": sort}})
    ledger = f"sqlite:///{tmp_path}/shop.ledger"
    shop = open_schema(tables(), schema=schema, ledger=ledger, limit=Epsilon(10**10), create=True)
    case = "CASE WHEN sort IN ('ale', 'tea') THEN 'wet' WHEN sort = 'rye' THEN 'dry' END"
    text = "SELECT {0}, COUNT(*) FROM items LEFT JOIN wares USING (ware) GROUP BY {0}"
    agree(shop, plain, text.format("drink(sort)"), text.format(case))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT COUNT(*) FROM buys UNION SELECT COUNT(*) FROM people",
        "SELECT QUANTILE(paid, 0) FROM buys",
        "SELECT FOO(paid) FROM buys",
        "SELECT 1 FROM buys",
        "SELECT FIRST(paid) FROM buys",
        "SELECT sex FROM buys",
        "SELECT COUNT(*) FROM buys JOIN people ON buys.paid = people.age",
        "SELECT MEDIAN(sex) FROM buys",
    ],
)
def test_a_refusal_says_once_what_to_ask(text: str) -> None:
    schema = parse_schema(DOCUMENT)
    with pytest.raises(QueryError) as refused:
        parse_tables(text, schema)
    assert str(refused.value).count("ask ") == len(refused.value.statements) == 1
    parse_tables(refused.value.statements[0], schema)
