"""Plain statements are read without the parser of SQL: to the same questions as with it, and no others."""

# ruff: noqa: S608 - statements are what is tested

from __future__ import annotations

import subprocess
import sys

import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot.dialects.duckdb import DuckDB
from tests.query.conftest import DOMAIN
from tests.query.test_sql import ATOMS, conditions

from sfumato.domain import Categorical, Domain, Integer, Unit, Unknown
from sfumato.errors import SfumatoError
from sfumato.query import select_statement, sql_condition
from sfumato.query.plain_statement import plain_condition
from sfumato.query.select_statement import plain_query
from sfumato.query.sql_condition import read_condition

AGGREGATES = [
    "COUNT(*)",
    "count( * ) AS everybody",
    "COUNT(INCOME) AS n",
    "COUNT(DISTINCT ID)",
    "SUM(age)",
    'avg(age) AS "mean of it"',
    "VAR_POP(age)",
    "STDDEV_POP(income)",
    "MEDIAN(age)",
    "QUANTILE(income, 0.9)",
    "MIN(age)",
    "Max(age)",
]
PEOPLE = Domain(DOMAIN.attributes, unit=Unit("id", rows=2))
NAMED = ["sex", "SEX", '"sex"', "member", "age"]


def by_the_parser(monkeypatch, text: str, domain: Domain):
    """What the parser of SQL makes of a statement; None where it refuses."""
    with monkeypatch.context() as alone:
        alone.setattr(select_statement, "plain_query", lambda *_: None)
        alone.setattr(select_statement, "_parse", select_statement._parse.__wrapped__)  # noqa: SLF001 - not a kept one
        try:
            return select_statement.parse(text, domain)
        except SfumatoError:
            return None


@pytest.fixture(scope="module")
def patched():
    with pytest.MonkeyPatch.context() as found:
        yield found


@pytest.mark.parametrize("where", ATOMS)
def test_an_atom_is_plain_and_means_what_the_parser_says(patched, where):
    found = plain_condition(where, DOMAIN)
    with patched.context() as alone:
        alone.setattr(sql_condition, "plain_condition", lambda *_: None)
        assert found is not None
        assert found == read_condition(where, DOMAIN)


@given(
    aggregates=st.lists(st.sampled_from(AGGREGATES), min_size=1, max_size=3, unique=True),
    where=st.none() | conditions(),
    by=st.lists(st.sampled_from(NAMED), max_size=2),
    shown=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_a_plain_statement_is_the_question_that_the_parser_reads(patched, aggregates, where, by, shown):
    columns = ", ".join((by if shown else []) + aggregates)
    text = f"SELECT {columns} FROM people"
    text += f" WHERE {where}" if where else ""
    text += f" GROUP BY {', '.join(by)}" if by else ""
    wanted = by_the_parser(patched, text, PEOPLE)
    assert plain_query(text, PEOPLE) == wanted  # None where it is refused: an attribute twice, for one
    if wanted is None and len({name.strip('"').lower() for name in by}) == len(by):
        with pytest.raises(SfumatoError, match="no group can hold a row that meets the condition"):
            select_statement.parse(text, PEOPLE)


PIECES = [
    *("SELECT", "FROM", "WHERE", "GROUP BY", "AS", "AND", "OR", "NOT", "IN", "BETWEEN", "IS"),
    *("NULL", "TRUE", "HAVING", "18", "1.5", "-", "1e2", "\\"),
    *(
        "COUNT(*)",
        "SUM(age)",
        "MEDIAN",
        "DISTINCT",
        "sex",
        "age",
        "member",
        "people",
        "'F'",
        "'it''s'",
        "18",
        "1.5",
        "-",
    ),
    *(
        "=",
        "<",
        ">=",
        "<>",
        "!=",
        "(",
        ")",
        ",",
        "*",
        ";",
        "--",
        "/*",
        "*/",
        ".",
        "\n",
        "\t",
        '"age"',
        "e'F'",
        "1e2",
        "\\",
    ),
]


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=9), st.sampled_from([" ", ""]))
@settings(max_examples=400, deadline=None)
def test_whatever_follows_a_statement_is_read_as_the_parser_reads_it(patched, pieces, between):
    text = "SELECT COUNT(*) FROM people WHERE age < 18 " + between.join(pieces)
    found = plain_query(text, DOMAIN)
    assert found is None or found == by_the_parser(patched, text, DOMAIN)


WORDS = {
    *map(str, DuckDB.Tokenizer.KEYWORDS),
    *map(str, DuckDB.Parser.FUNCTIONS),
    *(kind.name for kind in sqlglot.TokenType),
    *("E", "B", "X", "N", "U", "R"),
}
PLACES = [
    "SELECT {w}, COUNT(*) FROM t GROUP BY {w}",
    "SELECT COUNT({w}) AS {w} FROM t GROUP BY other, {w}",
    "SELECT SUM({w}), QUANTILE({w}, 0.5) FROM t",
    "SELECT other AS {w}, COUNT(*) FROM {w} GROUP BY other",
    "SELECT COUNT(*) FROM {w} WHERE {w} = 1 AND 1 < {w}",
    "SELECT COUNT(*) FROM t WHERE {w} IN (1, 2) OR NOT {w} NOT BETWEEN 1 AND 2",
    "SELECT COUNT(*) FROM t WHERE ({w} IS NOT NULL) AND {w} >= -1",
]


def test_no_word_is_taken_for_a_name_where_the_parser_takes_it_for_another(patched):
    words = {word.lower() for word in WORDS if word.isidentifier() and word.isascii()}
    assert len(words) > 900
    other = Integer(name="other", minimum=-1, maximum=5, unknown=Unknown.CLAMP)
    for word in words - {"other"}:
        named = Integer(name=word, minimum=-1, maximum=5, unknown=Unknown.CLAMP, nullable=True)
        domain = Domain((named, other))
        for place in PLACES:
            text = place.format(w=word)
            found = plain_query(text, domain)
            assert found is None or found == by_the_parser(patched, text, domain), text


def test_a_name_of_two_attributes_in_other_cases_is_left_to_the_parser():
    both = Domain(
        tuple(Categorical(name=name, values=("a", "b"), unknown=Unknown.DROP) for name in ("sex", "SEX", "city"))
    )
    assert plain_query("SELECT COUNT(*) FROM t WHERE Sex = 'a'", both) is None
    assert plain_query("SELECT COUNT(*) FROM t WHERE SEX = 'a'", both).where.attribute == "SEX"


@pytest.mark.parametrize("text", ["", " ", "SELECT", "SELECT COUNT(", "SELECT COUNT(*) FROM t WHERE -", "x" * 3000])
def test_what_ends_too_early_or_late_is_left_to_the_parser(text):
    assert plain_query(text, DOMAIN) is None
    assert plain_condition(text, DOMAIN) is None


def test_a_plain_statement_loads_no_parser():
    code = (
        "import sys, sfumato as sf\n"
        "from sfumato.domain import Domain, Integer, Unknown\n"
        "from sfumato.query.select_statement import parse\n"
        "ages = Domain((Integer(name='age', minimum=0, maximum=9, unknown=Unknown.CLAMP),))\n"
        "parse('SELECT AVG(age) FROM t WHERE NOT age IN (1, 2)', ages)\n"
        "print('sqlglot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
