"""A question over tables of a schema as a person picks it: whose rows, which columns of what they belong to.

The rows of one private table are counted; columns of tables to which its rows lead, by keys or by the unit, are joined
to them, one row each, so that picking a column never counts a row twice.  The question is written down in SQL, which is
what is asked, shown and kept.
"""

# ruff: noqa: S608 - statements are parsed by the grammar of questions, and none is ever sent to an engine

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

from sfumato.domain.table_schema import Schema, SchemaTable
from sfumato.errors import QueryError
from sfumato.query.aggregates import FORMS, Takes
from sfumato_server.ui.question_form import Controls

FUNCTIONS = {form.name: form.function for form in FORMS if form.takes is Takes.NUMBER and not form.parameters}


@dataclass(frozen=True)
class TableLink:
    """One table joined to another, by a column of each."""

    table: str
    column: str
    to: str
    key: str

    def __str__(self) -> str:
        return f"JOIN {self.to} ON {self.table}.{_quoted(self.column)} = {self.to}.{_quoted(self.key)}"


@dataclass(frozen=True)
class PickedTable:
    """A table as the page offers it: what is asked of its rows, and what they lead to.

    Attributes:
        name: of the table.
        counted: whether its rows can be counted, as they are somebody's.
        controls: of its columns, which are called by its name and theirs.
        leads: the tables whose columns can be joined to its rows.
    """

    name: str
    counted: bool
    controls: tuple[Controls, ...]
    leads: tuple[str, ...]


def picked_tables(schema: Schema) -> list[PickedTable]:
    """All tables of a schema."""
    return [
        PickedTable(
            table.name,
            not table.public,
            tuple(Controls.of(replace(each, name=f"{table.name}.{each.name}")) for each in table.attributes),
            tuple(_ways(schema, table)),
        )
        for table in schema
    ]


def control(schema: Schema, column: str) -> Controls:
    """What the page offers of a column that is called by its table and its name.

    Raises:
        QueryError: there is none.
    """
    table, _, name = column.partition(".")
    found = [each for each in schema if each.name == table]
    for each in found[0].attributes if found else ():
        if each.name == name:
            return Controls.of(replace(each, name=column))
    raise QueryError(f"there is no column {column!r} in these tables", culprit=column)


@dataclass(frozen=True)
class Picked:
    """What a person picked.

    Attributes:
        table: whose rows are counted.
        aggregate: as the form calls it, and ``of`` which column.
        of: empty for a count.
        by: columns by which rows are grouped.
        among: of columns the values that are ticked; None stands for missing ones.
        ends: of columns their least and greatest values, as text; empty: none.
    """

    table: str
    aggregate: str
    of: str
    by: Sequence[str]
    among: dict[str, list[object]]
    ends: dict[str, tuple[str, str]]

    def sql(self, schema: Schema) -> str:
        """The statement.

        Raises:
            QueryError: a column that is not there, or to whose table the rows do not lead.
        """
        base = next((each for each in schema if each.name == self.table and not each.public), None)
        if base is None:
            raise QueryError("choose the table whose rows are counted", culprit=self.table)
        ended = [name for name, both in self.ends.items() if any(both)]
        named = [*self.by, *([self.of] if self.of else []), *self.among, *ended]
        found = {name: control(schema, name) for name in named}
        ways, joins = _ways(schema, base), dict[str, TableLink]()
        for name in named:
            for join in _way(ways, base.name, name.partition(".")[0]):
                joins.setdefault(join.to, join)
        asked = "COUNT(*)" if self.aggregate == "count" and not self.of else self._aggregate()
        groups = [_column(name) for name in self.by]
        where = [*self._ticked(), *(part for name in ended for part in self._between(found[name]))]
        return " ".join(
            [
                f"SELECT {', '.join([*groups, asked])} FROM {base.name}",
                *map(str, joins.values()),
                *([f"WHERE {' AND '.join(where)}"] if where else []),
                *([f"GROUP BY {', '.join(groups)}"] if groups else []),
            ]
        )

    def _aggregate(self) -> str:
        if not self.of:
            raise QueryError(f"choose the number that the {self.aggregate} is of, beside 'Of which number'")
        if self.aggregate == "count":
            return f"COUNT({_column(self.of)})"
        if self.aggregate not in FUNCTIONS:
            raise QueryError("choose what is asked of the rows", culprit=self.aggregate)
        return f"{FUNCTIONS[self.aggregate]}({_column(self.of)})"

    def _ticked(self) -> list[str]:
        found = []
        for name, values in self.among.items():
            listed = ", ".join(_literal(value) for value in values if value is not None)
            parts = [f"{_column(name)} IN ({listed})"] if listed else []
            parts += [f"{_column(name)} IS NULL"] if None in values else []
            found.append(f"({' OR '.join(parts)})" if len(parts) > 1 else parts[0])
        return found

    def _between(self, of: Controls) -> list[str]:
        both = zip((">=", of.until), self.ends[of.name], strict=True)
        return [f"{_column(of.name)} {comparison} {_end(text)}" for comparison, text in both if text]


def _ways(schema: Schema, base: SchemaTable) -> dict[str, TableLink]:
    """How each table to which rows of a table lead is reached first, by its name; itself is not among them."""
    found: dict[str, TableLink] = {}
    waiting = deque([base])
    while waiting:
        table = waiting.popleft()
        for join in _joins(schema, table):
            if join.to != base.name and join.to not in found:
                found[join.to] = join
                waiting.append(schema[join.to])
    return found


def _joins(schema: Schema, table: SchemaTable) -> list[TableLink]:
    """The tables whose keys a table holds."""
    joins = [(link.column, schema[link.table]) for link in table.links]
    unit = schema.unit_column(table.name)
    if not table.public and unit is not None and schema.units is not None and schema[schema.units] is not table:
        joins.append((unit, schema[schema.units]))
    return [TableLink(table.name, column, other.name, other.key) for column, other in joins if other.key is not None]


def _way(ways: dict[str, TableLink], base: str, table: str) -> list[TableLink]:
    """The joins from the first table to another, in order."""
    found: list[TableLink] = []
    while table != base:
        join = ways.get(table)
        if join is None:
            raise QueryError(
                f"rows of {base} do not lead to one row of {table} each; count rows of another table, or ask in SQL",
                culprit=table,
            )
        found.insert(0, join)
        table = join.table
    return found


def _column(name: str) -> str:
    table, _, column = name.partition(".")
    return f"{table}.{_quoted(column)}"


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.isascii() and name.islower() else '"' + name.replace('"', '""') + '"'


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return str(value) if isinstance(value, int | float) else "'" + str(value).replace("'", "''") + "'"


def _end(text: str) -> str:
    """A number, or a date."""
    try:
        float(text)
    except ValueError:
        pass
    else:
        return text
    try:
        date.fromisoformat(text)
    except ValueError:
        return _literal(text)
    return f"DATE '{text}'"
