"""Statements drawn from a grammar: answers at a very large epsilon equal DuckDB's over the declared tables."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.query.declared_tables import ONE_TABLE, TABLES, VIEWS, data
from tests.query.statement_grammar import Statement, statement

import sfumato as sf
from sfumato.domain import parse
from sfumato.domain.table_schema import parse_schema
from sfumato.errors import SfumatoError
from sfumato.privacy.loss import Epsilon
from sfumato.query.aggregates import FORMS
from sfumato.query.statements.aggregate_calls import SPELLINGS
from sfumato.vault.schema_vault import open_schema

LOSS = Epsilon(10**7)
SURE = "0.999999999"
STATEMENTS = 1000  # for each set of tables
PARTS = 25  # of `make slow`, each for each set of tables: half a CPU minute
REFUSED: dict[str, str] = {  # the beginning of a refusal, and why a drawn statement may meet it
    "no group": "its condition leaves no declared cell",
    "cells, more than the": "a quantile of each group of two large groupings",
    "are not counted by groups of itself": "the distinct values of a column within its own cells",
    "is repeated in GROUP BY": "two names of one period",
}
BIN = 100 / 4096
REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


@pytest.fixture(scope="module")
def vaults(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Any]:
    place, rows = tmp_path_factory.mktemp("drawn"), data()
    given: dict[str, Any] = {"limit": Epsilon(10**13), "create": True}
    one = sf.open(rows["trips"], domain=parse(ONE_TABLE), ledger=f"sqlite:///{place}/one.ledger", **given)
    return {
        False: one,
        True: open_schema(rows, schema=parse_schema(TABLES), ledger=f"sqlite:///{place}/l.ledger", **given),
    }


@pytest.fixture(scope="module")
def plain() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        for name, rows in data().items():
            connection.register(f"raw_{name}", rows)
        for view in VIEWS:
            connection.execute(view)
        yield connection


def labels(row: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple("(missing)" if each is None else str(each) for each in row)


def fault_of_value(check: str, share: float, ours: Any, theirs: Any) -> str:
    """Return what is wrong with an answer; nothing if it is right."""
    if theirs is None or (isinstance(theirs, float) and math.isnan(theirs)):
        return ""  # of no values: a sum is 0, and other answers have an interval that excludes nothing
    value = ours.estimate
    if check in ("order", "bins", "iqr"):
        ranked, width = sorted(each for each in theirs if each is not None), BIN if check == "bins" else 0.0
        if not ranked:
            return ""

        def ends(at: float) -> tuple[float, float]:
            return ranked[max(math.floor(at * len(ranked)) - 1, 0)], ranked[
                min(math.ceil(at * len(ranked)), len(ranked) - 1)
            ]

        low, high = ends(share)
        if check == "iqr":
            (one, two), (three, four), width = ends(0.25), ends(0.75), 2 * BIN
            low, high = max(three - two, 0), four - one
        right = low - width - 1e-6 <= value <= high + width + 1e-6
        return "" if right else f"{value} is not from {low} to {high}"
    if check == "rounded":  # a half may be rounded either way
        return "" if abs(value - theirs) <= 0.0101 else f"{value} is not {theirs}"
    rounding = {"exact": 1e-6, "real": 0.2, "spread": 1.0}[check]
    right = math.isclose(value, theirs, rel_tol=1e-6 if check == "exact" else 1e-3, abs_tol=rounding)
    covered = ours.low - 1e-6 * abs(theirs) - 1e-6 <= theirs <= ours.high + 1e-6 * abs(theirs) + 1e-6
    return "" if right and covered else f"{value} ({ours.low} to {ours.high}) is not {theirs}"


def fault(vault: Any, connection: duckdb.DuckDBPyConnection, asked: Statement) -> str | None:
    """Return what is wrong with the answer of a statement; None if it is refused for a reason that holds."""
    try:
        answer = sf.query.sql(vault, asked.text, loss=LOSS, confidence=SURE)
    except SfumatoError as error:
        return None if any(reason in str(error) for reason in REFUSED) else f"refused: {error}"
    width = len(asked.keys)
    whole = {labels(row[:width]): row[width:] for row in connection.sql(asked.plain).fetchall()}
    chosen = connection.sql(asked.chosen).fetchall() if asked.having or asked.order else whole
    expected = [labels(row[:width]) for row in chosen]
    keys = [labels(key) for key in answer.keys] if asked.keys else [()]
    if len(set(keys)) != len(keys):
        return f"groups are not unique: {keys}"
    return fault_of_groups(asked, dict(zip(keys, answer.values, strict=True)), whole, expected)


def fault_of_groups(
    asked: Statement, answered: dict[Any, Any], whole: dict[Any, Any], expected: list[tuple[str, ...]]
) -> str:
    """Return what is wrong with the groups of an answer, which DuckDB gives as ``expected`` and all as ``whole``."""
    for key, values in answered.items():
        if key not in whole:
            if any(
                item.text.startswith("COUNT(") and item.text.endswith(")") and abs(value.estimate) > 1e-6
                for item, value in zip(asked.items, values, strict=True)
            ):
                return f"{key} has no rows, and {values}"
            continue
        for item, value, other in zip(asked.items, values, whole[key], strict=True):
            wrong = fault_of_value(item.check, item.share, value, other)
            if wrong:
                return f"{item.text} of {key}: {wrong}"
    shown = [key for key in answered if key in whole]
    if sorted(expected) != sorted(shown) and asked.limit is None:
        return f"groups differ: {set(expected) ^ set(shown)}"
    if any("NULLS" in each.text for each in asked.order) and shown != expected:
        return f"the order is {shown}, not {expected}"
    if asked.order:
        ours = [whole[key][0] for key in shown]
        theirs = [whole[key][0] for key in expected]
        if ours != theirs:
            return f"the order is {ours}, not {theirs}"
    return ""


def shrunk(vault: Any, connection: duckdb.DuckDBPyConnection, asked: Statement) -> str:
    """Return the smallest statement that fails as well, with what is wrong."""
    smaller = next((each for each in asked.smaller() if fault(vault, connection, each)), None)
    return shrunk(vault, connection, smaller) if smaller else f"{asked.text}\n    {fault(vault, connection, asked)}"


def compare(vaults: dict[bool, Any], connection: Any, seeds: range, *, linked: bool) -> None:
    """Compare the statements of seeds, and require an answer for every form."""
    failed, drawn, forms, refused = [], set[str](), set[str](), 0
    for seed in seeds:
        asked = statement(seed, linked=linked)
        drawn |= asked.forms
        wrong = fault(vaults[linked], connection, asked)
        refused += wrong is None
        if wrong == "":
            forms |= asked.forms
        elif wrong:
            failed.append(shrunk(vaults[linked], connection, asked))
    smallest = sorted(set(failed), key=len)
    assert not failed, f"{len(failed)} of {len(seeds)} statements differ:\n" + "\n".join(smallest[:25])
    assert refused <= len(seeds) // 10
    assert forms == drawn, f"drawn, and never answered: {drawn - forms}"


@pytest.mark.parametrize("linked", [False, True], ids=["one table", "linked tables"])
def test_drawn_statements_are_answered_as_duckdb_does(vaults, plain, linked) -> None:
    compare(vaults, plain, range(STATEMENTS), linked=linked)


@pytest.mark.slow
@pytest.mark.parametrize("linked", [False, True], ids=["one table", "linked tables"])
@pytest.mark.parametrize("part", range(1, PARTS + 1))
def test_drawn_statements_are_answered_as_duckdb_does_in_parts(vaults, plain, part, linked) -> None:
    compare(vaults, plain, range(part * STATEMENTS, (part + 1) * STATEMENTS), linked=linked)


def reference() -> str:
    return "".join((REFERENCE / page).read_text(encoding="utf-8") for page in ("sql.md", "sql-functions.md"))


def drawn_statements() -> Iterator[Statement]:
    return (statement(seed, linked=linked) for seed in range(STATEMENTS) for linked in (False, True))


def test_every_documented_form_is_drawn() -> None:
    """The first columns of the tables in the SQL reference, and the forms of drawn statements, are the same."""
    documented = set(re.findall(r"^\| `([^`]+)` \|", reference(), re.MULTILINE))
    drawn = {form for each in drawn_statements() for form in each.forms}
    assert drawn == documented


def test_a_drawn_statement_has_the_words_of_its_forms() -> None:
    """A form that a part only claims to have would pass for drawn."""
    for each in drawn_statements():
        words = set(re.findall(r"[A-Z_]+", each.text))
        for form in each.forms:
            assert set(re.findall(r"[A-Z_]{2,}", form)) <= words, (form, each.text)


def test_every_function_of_the_grammar_is_documented() -> None:
    page = reference()
    functions = {form.function for form in FORMS} | SPELLINGS.keys()
    assert {each for each in functions if f"`{each}(" not in page} == set()
