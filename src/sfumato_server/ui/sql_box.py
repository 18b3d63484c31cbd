"""The SQL box of a dataset's page: the names that it completes, and a refused statement with its wrong place marked."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

from sfumato.domain.table_schema import Schema, SchemaTable
from sfumato.errors import QueryError
from sfumato.query.statements.sql_condition import Place, instead
from sfumato_server.problems import problem
from sfumato_server.tables import ServedDataset

_WORD = re.compile(r"""\w+ | "(?:[^"]|"")*" | '(?:[^']|'')*' | \S | $""", re.VERBOSE)
_CONTEXT = 60  # characters of a line before and after its wrong place


@dataclass(frozen=True)
class CompletedTable:
    """A table whose name the box completes, with its columns.  All names are as a statement writes them."""

    name: str
    columns: tuple[str, ...]


def completed_names(loaded: ServedDataset) -> list[dict[str, Any]]:
    """Return the names of tables and columns that are public, because the description of the dataset declares them."""
    if loaded.schema is not None:
        schema = loaded.schema
        return [asdict(CompletedTable(_written(each.name), _columns(each, schema))) for each in schema]
    domain = loaded.domain
    levels = [f"{level}({_written(each.attribute)})" for each in domain.hierarchies for level in each.level_names]
    unit = [] if domain.unit.column is None else [domain.unit.column]
    names = dict.fromkeys([*domain.names, *unit, *loaded.dataset.discoverable])
    return [asdict(CompletedTable(_written(loaded.dataset.called), (*map(_written, names), *levels)))]


def _columns(table: SchemaTable, schema: Schema) -> tuple[str, ...]:
    unit = schema.unit_column(table.name)
    keys = [*([] if unit is None else [unit]), *table.columns]
    described = [*(each.name for each in table.attributes), *(each.name for each in table.derived)]
    levels = [f"{level}({_written(each.attribute)})" for each in table.hierarchies for level in each.level_names]
    return (*map(_written, dict.fromkeys([*described, *keys])), *levels)


def _written(name: str) -> str:
    """Return a name as a statement writes it, in quotes if it needs them."""
    from sqlglot import exp

    return str(exp.to_identifier(name).sql(dialect="duckdb"))


@dataclass(frozen=True)
class WrongPlace:
    """A wrong word of a statement, with the text of its line around it."""

    line: int
    column: int
    before: str
    word: str
    after: str


def wrong_place(statement: str, place: Place) -> WrongPlace | None:
    """Return the word at a place of a statement; None if the statement has no such line."""
    lines = statement.split("\n")
    if place.line > len(lines):
        return None
    line, start = lines[place.line - 1].rstrip("\r"), place.column - 1
    match = _WORD.match(line, min(start, len(line)))
    word = line[start : start + 1] if match is None else match[0]
    before, after = line[:start], line[start + len(word) :]
    cut_before = f"...{before[-_CONTEXT:]}" if len(before) > _CONTEXT else before
    cut_after = f"{after[:_CONTEXT]}..." if len(after) > _CONTEXT else after
    return WrongPlace(place.line, place.column, cut_before, word or " ", cut_after)


def refusal(error: Exception, statement: str) -> dict[str, Any]:
    """Return a refusal for the template: the problem, the place in a typed statement, and statements to ask instead."""
    content = problem(error)
    if not isinstance(error, QueryError):
        return {"problem": content, "place": None, "statements": ()}
    content["detail"] = content["detail"].removesuffix(instead(error.statements))
    place = wrong_place(statement, error.culprit) if statement and isinstance(error.culprit, Place) else None
    return {"problem": content, "place": place, "statements": error.statements}


def sql_literal(value: object) -> str:
    """Return a value as a literal of SQL."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return str(value) if isinstance(value, int | float) else "'" + str(value).replace("'", "''") + "'"


def sql_end(text: str) -> str:
    """Return an end as a literal of SQL: a number, a date or a text."""
    try:
        float(text)
    except ValueError:
        pass
    else:
        return text
    try:
        date.fromisoformat(text)
    except ValueError:
        return sql_literal(text)
    return f"DATE '{text}'"
