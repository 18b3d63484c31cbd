"""The form of a question over one table or over a schema: SQL, or what the builder offers.

Rows are chosen by what is declared: values are ticked, and numbers and dates have a least and a greatest one.  A field
that is left alone asks for nothing, so that no half of a condition can be sent.

Over a schema, the rows of one private table are counted.  Columns of the tables to which its rows lead, by keys or by
the unit, are joined to them, one row each, so a picked column never counts a row twice.  The question is written in
SQL, which is asked, shown and kept.
"""

# ruff: noqa: S608 - statements are parsed by the grammar of questions, and none is ever sent to an engine

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, Field

from sfumato.app.api.questions import (
    AggregateFields,
    AskRequest,
    ConditionFields,
    LossFields,
    QueryFields,
    StatementField,
    validate_fields,
)
from sfumato.domain import Attribute, Categorical, Date, Domain, Integer, Real, Timestamp
from sfumato.domain.attribute import EXTRA
from sfumato.domain.table_schema import Schema, SchemaTable
from sfumato.errors import InputError, QueryError
from sfumato.query.aggregates import FORMS, Takes
from sfumato.strict_documents import read_json
from sfumato_server.tables import ServedDataset

Short = Annotated[str, Field(max_length=200)]
Choice: TypeAlias = tuple[str, str]
"""What is sent, and what is shown."""

AGGREGATES = {form.name: form.title for form in FORMS if form.takes is not Takes.NOTHING and not form.parameters}
"""The aggregates that the builder offers: all that are asked by a choice and at most one attribute."""
_TICKED = 24  # values that have a box each; more are in one list
_LISTED = 400  # ends of ranges that are in a list; of more they are typed
_SHOWN = 40  # cells whose labels are in the description of the table
_MOST_ENDS = 600  # attributes of which ends are sent


class QuestionForm(BaseModel):
    """What the analyst's form sends: SQL, or the fields of the builder; and the loss.

    Attributes:
        table: whose rows are counted, where there are several tables.
        among: attribute and value of each box that is ticked, as JSON; the value null stands for missing ones.
        ranged: attributes that have ends, and beside each its ``low`` and ``high``; empty: no end.
    """

    how: Literal["builder", "sql", "joined"] = "builder"
    table: Short = ""
    epsilon: Short = ""
    delta: Short = ""
    rho: Short = ""
    truncation: Short = ""
    sql: StatementField = ""
    aggregate: Short = "count"
    of: Short = ""
    by: Annotated[list[Short], Field(max_length=32)] = []
    among: Annotated[list[Annotated[str, Field(max_length=1200)]], Field(max_length=1000)] = []
    ranged: Annotated[list[Short], Field(max_length=_MOST_ENDS)] = []
    low: Annotated[list[Short], Field(max_length=_MOST_ENDS)] = []
    high: Annotated[list[Short], Field(max_length=_MOST_ENDS)] = []

    def request(self, loaded: ServedDataset) -> AskRequest:
        """The request as HTTP takes it.

        Raises:
            QueryError, InputError: a field says nothing, or too much.
        """
        terms = {"loss": self.loss(), "truncation": self._truncation()}
        if self.how == "sql":
            return validate_fields(AskRequest, {"sql": self.sql, **terms})
        if self.aggregate != "count" and not self.of:
            name = AGGREGATES.get(self.aggregate, "this").lower()
            raise QueryError(f"choose the number that the {name} is of, beside 'Of which number'")
        aggregate = validate_fields(AggregateFields, {"aggregate": self.aggregate, "of": self.of or None})
        by, where = [name for name in self.by if name], self._conditions(loaded.domain)
        return validate_fields(AskRequest, {"query": QueryFields(aggregates=[aggregate], by=by, where=where), **terms})

    def loss(self) -> LossFields:
        """What the answer may cost.

        Raises:
            InputError: a field is too long.
        """
        return validate_fields(
            LossFields, {name: getattr(self, name).strip() or None for name in ("epsilon", "delta", "rho")}
        )

    def ends(self) -> dict[str, tuple[str, str]]:
        """Of each attribute with ends, both, as they were typed or chosen.

        Raises:
            QueryError: an end without an attribute.
        """
        if not len(self.ranged) == len(self.low) == len(self.high):
            raise QueryError("each attribute with ends has a least and a greatest value, which may be empty")
        both = zip(self.low, self.high, strict=True)
        return {name: (low.strip(), high.strip()) for name, (low, high) in zip(self.ranged, both, strict=True)}

    def chosen(self) -> dict[str, list[Any]]:
        """Of each attribute with boxes that are ticked, their values.

        Raises:
            QueryError: a box that the form does not have.
        """
        found: defaultdict[str, list[Any]] = defaultdict(list)
        for text in self.among:
            try:
                pair = read_json(text, name="a value")
            except InputError as error:
                raise QueryError("choose values that the form offers") from error
            if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)):  # noqa: PLR2004
                raise QueryError("choose values that the form offers")
            found[pair[0]].append(pair[1])
        return dict(found)

    def _truncation(self) -> int | None:
        """Of one unit at most so many of the rows that its bound leaves out are counted; None: they are not asked for.

        Raises:
            QueryError: no whole number.
        """
        text = self.truncation.strip()
        if text and not (text.isascii() and text.isdigit()):
            raise QueryError("the rows of one unit that are counted beyond the bound are a whole number, such as 20")
        return int(text) if text else None

    def _conditions(self, domain: Domain) -> list[ConditionFields]:
        """All conditions, which hold together.

        Raises:
            QueryError: missing values are chosen beside others, or what the form does not offer.
        """
        found: list[dict[str, Any]] = []
        for name, values in self.chosen().items():
            if values == [None]:
                found.append({"attribute": name, "comparison": "missing"})
                continue
            if None in values:
                raise QueryError(
                    f"{name}: choose missing values alone, or ask in SQL: {name} IN (..) OR {name} IS NULL"
                )
            found.append({"attribute": name, "comparison": "in", "values": values})
        for name, ends in self.ends().items():
            controls = Controls.of(domain[name])
            for comparison, text in zip((">=", controls.until), ends, strict=True):
                if text:
                    found.append({"attribute": name, "comparison": comparison, "values": [_number(text)]})
        return [validate_fields(ConditionFields, each) for each in found]


@dataclass(frozen=True)
class Controls:
    """What the builder offers of an attribute, or of a level of its hierarchy.

    Attributes:
        name: as it is asked by.
        numeric: whether it has sums, means and quantiles.
        boxes: values that are ticked, as ``among`` has them.
        low: where a range may begin; empty where it has none, or its ends are typed.
        high: where it may end, likewise.
        until: how the greatest value compares.
        typed: the kind of the field in which ends are typed, where there are too many to list.
        least: the smallest end that is typed.
        most: the greatest.
        cells: labels of the cells in words, shortened if there are many.
    """

    name: str
    numeric: bool = False
    boxes: tuple[Choice, ...] = ()
    low: tuple[Choice, ...] = ()
    high: tuple[Choice, ...] = ()
    until: Literal["<", "<="] = "<"
    typed: Literal["number", "date", "text"] | None = None
    least: str = ""
    most: str = ""
    cells: str = ""

    @property
    def ranged(self) -> bool:
        """Whether it has ends."""
        return bool(self.low) or self.typed is not None

    @property
    def listed(self) -> bool:
        """Whether its values are in a list, as there are too many for boxes."""
        return len(self.boxes) > _TICKED

    @property
    def words(self) -> tuple[str, str]:
        """What stands before the least and the greatest value."""
        if self.typed == "number":
            return "at least", "at most"
        return ("from", "below") if self.numeric else ("from", "before" if self.typed else "up to")

    @staticmethod
    def of(attribute: Attribute) -> Controls:
        """Those of an attribute."""
        missing = ((_pair(attribute.name, None), "(missing)"),) if attribute.nullable else ()
        cells, name = _shown(attribute.label, attribute.size), attribute.name
        match attribute:
            case Categorical():
                values = tuple((_pair(name, value), str(value)) for value in attribute.values)
                return Controls(name, boxes=values + missing, cells=cells)
            case Integer(edges=None):
                least, most = str(attribute.minimum), str(attribute.maximum)
                return Controls(name, True, missing, until="<=", typed="number", least=least, most=most, cells=cells)
            case Integer() | Real():
                low, high = _of_numbers(attribute)
                return Controls(name, True, missing, low, high[1:], cells=cells)
            case Date() | Timestamp():
                return _of_dates(attribute, missing, cells)

    @staticmethod
    def of_level(domain: Domain, name: str) -> Controls:
        """Those of a level of a hierarchy."""
        labels = domain.grouping(name).labels
        offered = [(None if label == EXTRA[0] else label, label) for label in labels if label != EXTRA[1]]
        boxes = tuple((_pair(name, value), label) for value, label in offered)
        return Controls(name, boxes=boxes, cells=_shown(labels.__getitem__, len(labels)))


def controls(domain: Domain) -> tuple[list[Controls], list[Controls]]:
    """Those of all attributes, and of all levels of hierarchies."""
    levels = [f"{level}({each.attribute})" for each in domain.hierarchies for level in each.level_names]
    return [Controls.of(each) for each in domain], [Controls.of_level(domain, name) for name in levels]


def _of_numbers(attribute: Integer | Real) -> tuple[tuple[Choice, ...], tuple[Choice, ...]]:
    """Return where cells begin, as least and as greatest ends; behind a point, the end says if it holds the point."""
    begins = [str(attribute.bounds(code)[0]) for code in range(attribute.declared)]
    words = list(map(attribute.beginning, range(attribute.declared))) if isinstance(attribute, Real) else begins
    until = [
        each if each == begin else f"{each.removeprefix('above ')} (included)"
        for begin, each in zip(begins, words, strict=True)
    ]
    return tuple(zip(begins, words, strict=True)), tuple(zip(begins, until, strict=True))


def _shown(label: Callable[[int], str], size: int) -> str:
    """Return the labels of cells in words: of many the first and the last."""
    first = ", ".join(map(label, range(min(size, _SHOWN))))
    return first if size <= _SHOWN else f"{first}, .. {label(size - 1)}"


def _of_dates(attribute: Date | Timestamp, missing: tuple[Choice, ...], cells: str) -> Controls:
    if attribute.declared > _LISTED:
        kind: Literal["date", "text"] = "date" if isinstance(attribute, Date) else "text"
        least, most = attribute.first.isoformat(), attribute.last.isoformat()
        return Controls(attribute.name, False, missing, typed=kind, least=least, most=most, cells=cells)
    begins = [attribute.bounds(code)[0].isoformat() for code in range(attribute.declared)]
    labels = attribute.labels()
    low = tuple(zip(begins, labels, strict=False))
    return Controls(attribute.name, False, missing, low, tuple(zip(begins[1:], labels, strict=False)), cells=cells)


def _pair(name: str, value: object) -> str:
    return json.dumps([name, value])


def _number(text: str) -> str | int | float:
    """An end as a number; what is none stays text, as dates do, and is refused where a number stands."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


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
