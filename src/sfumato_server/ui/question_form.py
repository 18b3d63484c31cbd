"""The form of a question over one table or a schema, in SQL or by the builder.

The builder offers declared values as boxes, and a least and a greatest value for numbers and dates.  An empty field
adds no condition.

Over a schema, the builder counts the rows of one private table.  It joins columns of other tables by keys or by the
unit.  Each row joins to one row of such a table, so no row counts twice.  The question becomes SQL, which the page
shows.
"""

# ruff: noqa: S608 - sfumato parses these statements itself; no engine gets them

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
from sfumato_server.ui.sql_box import sql_end, sql_literal

Short = Annotated[str, Field(max_length=200)]
Choice: TypeAlias = tuple[str, str]
"""The value that the form sends, and its label."""

AGGREGATES = {form.name: form.title for form in FORMS if form.takes is not Takes.NOTHING and not form.parameters}
"""The aggregates that the builder offers: all that need at most one attribute and no parameter."""
_BUILDER_FIELDS = {"table", "aggregate", "of", "by", "among", "ranged", "low", "high"}
_MAX_BOXES = 24  # values with a box each; more are in one list
_MAX_LISTED = 400  # ends of a range in a list; with more, a person types them
_MAX_LABELS = 40  # labels of cells in the description of an attribute
_MAX_RANGES = 600  # attributes with ends in one form


def stated_loss(epsilon: str, delta: str, rho: str) -> LossFields:
    """Return the loss that a form states.  A delta without an epsilon is ignored, because the budget may set it.

    Raises:
        InputError: a field is too long.
    """
    delta = delta if epsilon.strip() else ""
    fields = {"epsilon": epsilon, "delta": delta, "rho": rho}
    return validate_fields(LossFields, {name: text.strip() or None for name, text in fields.items()})


class QuestionForm(BaseModel):
    """The form of a question: SQL, or the fields of the builder, and the loss.

    Attributes:
        table: the table whose rows are counted, if there are several.
        among: the attribute and value of each ticked box, as JSON; null for missing values.
        rows: rows in a group that a preview supposes.
        confirmed: the cost that the analyst confirmed, as the page stated it; empty for none.
        ranged: attributes with ends; ``low`` and ``high`` have those ends in the same order, empty for none.
    """

    how: Literal["builder", "sql", "joined"] = "builder"
    table: Short = ""
    epsilon: Short = ""
    delta: Short = ""
    rho: Short = ""
    truncation: Short = ""
    rows: Short = ""
    confirmed: Short = ""
    sql: StatementField = ""
    aggregate: Short = "count"
    of: Short = ""
    by: Annotated[list[Short], Field(max_length=32)] = []
    among: Annotated[list[Annotated[str, Field(max_length=1200)]], Field(max_length=1000)] = []
    ranged: Annotated[list[Short], Field(max_length=_MAX_RANGES)] = []
    low: Annotated[list[Short], Field(max_length=_MAX_RANGES)] = []
    high: Annotated[list[Short], Field(max_length=_MAX_RANGES)] = []

    def request(self, loaded: ServedDataset) -> AskRequest:
        """Return the request as HTTP takes it.

        Raises:
            QueryError, InputError: a field is empty or invalid.
        """
        terms = {"loss": self.loss(), "truncation": self._truncation()}
        if terms["loss"] == LossFields():
            raise InputError("there is no epsilon yet; fill it in, and see the expected error before you ask")
        if self.how == "sql":
            return validate_fields(AskRequest, {"sql": self.sql, **terms})
        if self.aggregate != "count" and not self.of:
            name = AGGREGATES.get(self.aggregate, "this").lower()
            raise QueryError(f"choose the number that the {name} is of, next to 'Of which number'")
        aggregate = validate_fields(AggregateFields, {"aggregate": self.aggregate, "of": self.of or None})
        by, where = [name for name in self.by if name], self._conditions(loaded.domain)
        return validate_fields(AskRequest, {"query": QueryFields(aggregates=[aggregate], by=by, where=where), **terms})

    def sent_fields(self) -> dict[str, Any]:
        """Return the fields of the question that was sent, without those of the other way to write it."""
        others = _BUILDER_FIELDS if self.how == "sql" else {"sql"}
        return self.model_dump(exclude_defaults=True, exclude={*others, "confirmed"})

    def supposed(self) -> int | None:
        """Return the rows in a group that a preview supposes, if any are stated; refuse what is no positive integer."""
        text = self.rows.strip()
        if text and not (text.isascii() and text.isdigit() and int(text)):
            raise QueryError("the rows to suppose in a group are a whole number, such as 500")
        return int(text) if text else None

    def loss(self) -> LossFields:
        """Return the loss of the answer.

        Raises:
            InputError: a field is too long.
        """
        return stated_loss(self.epsilon, self.delta, self.rho)

    def ends(self) -> dict[str, tuple[str, str]]:
        """Return the two ends of each attribute, as text.

        Raises:
            QueryError: an end has no attribute.
        """
        if not len(self.ranged) == len(self.low) == len(self.high):
            raise QueryError("each attribute with ends has a least and a greatest value, which may be empty")
        both = zip(self.low, self.high, strict=True)
        return {name: (low.strip(), high.strip()) for name, (low, high) in zip(self.ranged, both, strict=True)}

    def chosen(self) -> dict[str, list[Any]]:
        """Return the ticked values of each attribute.

        Raises:
            QueryError: the form has no such box.
        """
        values: defaultdict[str, list[Any]] = defaultdict(list)
        for text in self.among:
            try:
                pair = read_json(text, name="a value")
            except InputError as error:
                raise QueryError("choose values that the form offers") from error
            if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)):  # noqa: PLR2004
                raise QueryError("choose values that the form offers")
            values[pair[0]].append(pair[1])
        return dict(values)

    def _truncation(self) -> int | None:
        """Return the bound on the rows of one unit beyond the declared one; None to leave such rows out.

        Raises:
            QueryError: the text is not an integer.
        """
        text = self.truncation.strip()
        if text and not (text.isascii() and text.isdigit()):
            raise QueryError("the rows of one unit that are counted beyond the bound are a whole number, such as 20")
        return int(text) if text else None

    def _conditions(self, domain: Domain) -> list[ConditionFields]:
        """Return all conditions, which hold together.

        Raises:
            QueryError: missing values are combined with others, or the form does not offer a value.
        """
        conditions: list[dict[str, Any]] = []
        for name, values in self.chosen().items():
            if values == [None]:
                conditions.append({"attribute": name, "comparison": "missing"})
                continue
            if None in values:
                raise QueryError(
                    f"{name}: choose missing values alone, or ask in SQL: {name} IN (..) OR {name} IS NULL"
                )
            conditions.append({"attribute": name, "comparison": "in", "values": values})
        for name, ends in self.ends().items():
            controls = Controls.for_attribute(domain[name])
            for comparison, text in zip((">=", controls.until), ends, strict=True):
                if text:
                    conditions.append({"attribute": name, "comparison": comparison, "values": [_number(text)]})
        return [validate_fields(ConditionFields, condition) for condition in conditions]


@dataclass(frozen=True)
class Controls:
    """The controls of an attribute, or of a level of its hierarchy, in the builder.

    Attributes:
        name: the name in a query.
        numeric: whether it has sums, means and quantiles.
        boxes: the values with a box, in the form of ``among``.
        low: the starts of a range to choose from; empty if a person types them, or if there is no range.
        high: the ends of a range, in the same way.
        until: the comparison with the end of a range.
        typed: the kind of input for typed ends; None if ends are chosen from a list.
        least: the smallest typed end.
        most: the largest typed end.
        cells: the labels of the cells, shortened if there are many.
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
        """True if the attribute has ends."""
        return bool(self.low) or self.typed is not None

    @property
    def listed(self) -> bool:
        """True if the values are in a list, because there are too many for boxes."""
        return len(self.boxes) > _MAX_BOXES

    @property
    def words(self) -> tuple[str, str]:
        """The words before the least and the greatest value."""
        if self.typed == "number":
            return "at least", "at most"
        return ("from", "below") if self.numeric else ("from", "before" if self.typed else "up to")

    @staticmethod
    def for_attribute(attribute: Attribute) -> Controls:
        """Return the controls of an attribute."""
        missing = ((_pair(attribute.name, None), "(missing)"),) if attribute.nullable else ()
        cells, name = _cell_labels(attribute.label, attribute.size), attribute.name
        match attribute:
            case Categorical():
                values = tuple((_pair(name, value), str(value)) for value in attribute.values)
                return Controls(name, boxes=values + missing, cells=cells)
            case Integer(edges=None):
                least, most = str(attribute.minimum), str(attribute.maximum)
                return Controls(name, True, missing, until="<=", typed="number", least=least, most=most, cells=cells)
            case Integer() | Real():
                low, high = _number_ends(attribute)
                return Controls(name, True, missing, low, high[1:], cells=cells)
            case Date() | Timestamp():
                return _date_controls(attribute, missing, cells)

    @staticmethod
    def for_level(domain: Domain, name: str) -> Controls:
        """Return the controls of a level of a hierarchy."""
        labels = domain.grouping(name).labels
        values = [(None if label == EXTRA[0] else label, label) for label in labels if label != EXTRA[1]]
        boxes = tuple((_pair(name, value), label) for value, label in values)
        return Controls(name, boxes=boxes, cells=_cell_labels(labels.__getitem__, len(labels)))


def controls(domain: Domain) -> tuple[list[Controls], list[Controls]]:
    """Return the controls of all attributes, and of all levels of hierarchies."""
    levels = [f"{level}({each.attribute})" for each in domain.hierarchies for level in each.level_names]
    return [Controls.for_attribute(each) for each in domain], [Controls.for_level(domain, name) for name in levels]


def _number_ends(attribute: Integer | Real) -> tuple[tuple[Choice, ...], tuple[Choice, ...]]:
    """Return the starts of cells, as least and as greatest ends.

    The label of an end after a point says whether the range includes the point.
    """
    starts = [str(attribute.bounds(code)[0]) for code in range(attribute.declared)]
    labels = list(map(attribute.beginning, range(attribute.declared))) if isinstance(attribute, Real) else starts
    end_labels = [
        label if label == start else f"{label.removeprefix('above ')} (included)"
        for start, label in zip(starts, labels, strict=True)
    ]
    return tuple(zip(starts, labels, strict=True)), tuple(zip(starts, end_labels, strict=True))


def _cell_labels(label: Callable[[int], str], size: int) -> str:
    """Return the labels of cells, for many cells the first and the last."""
    first = ", ".join(map(label, range(min(size, _MAX_LABELS))))
    return first if size <= _MAX_LABELS else f"{first}, .. {label(size - 1)}"


def _date_controls(attribute: Date | Timestamp, missing: tuple[Choice, ...], cells: str) -> Controls:
    if attribute.declared > _MAX_LISTED:
        kind: Literal["date", "text"] = "date" if isinstance(attribute, Date) else "text"
        least, most = attribute.first.isoformat(), attribute.last.isoformat()
        return Controls(attribute.name, False, missing, typed=kind, least=least, most=most, cells=cells)
    starts = [attribute.bounds(code)[0].isoformat() for code in range(attribute.declared)]
    labels = attribute.labels()
    low = tuple(zip(starts, labels, strict=False))
    return Controls(attribute.name, False, missing, low, tuple(zip(starts[1:], labels, strict=False)), cells=cells)


def _pair(name: str, value: object) -> str:
    return json.dumps([name, value])


def _number(text: str) -> str | int | float:
    """Return an end as a number.  Any other text, such as a date, stays text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


FUNCTIONS = {form.name: form.function for form in FORMS if form.takes is Takes.NUMBER and not form.parameters}


@dataclass(frozen=True)
class TableLink:
    """A table that is joined to another, by a column of each."""

    table: str
    column: str
    to: str
    key: str

    def __str__(self) -> str:
        return f"JOIN {self.to} ON {self.table}.{_quoted(self.column)} = {self.to}.{_quoted(self.key)}"


@dataclass(frozen=True)
class OfferedTable:
    """A table in the builder.

    Attributes:
        name: the name of the table.
        countable: whether its rows can be counted, because it is private.
        controls: the controls of its columns, named by table and column.
        leads: the tables whose columns can be joined to its rows.
    """

    name: str
    countable: bool
    controls: tuple[Controls, ...]
    leads: tuple[str, ...]


def offered_tables(schema: Schema) -> list[OfferedTable]:
    """Return all tables of a schema."""
    return [
        OfferedTable(
            table.name,
            not table.public,
            tuple(Controls.for_attribute(_qualified(table, each)) for each in table.attributes),
            tuple(_reachable(schema, table)),
        )
        for table in schema
    ]


def control(schema: Schema, column: str) -> Controls:
    """Return the controls of a column, named by table and column.

    Raises:
        QueryError: there is no such column.
    """
    for table in schema:
        for attribute in table.attributes:
            if f"{table.name}.{attribute.name}" == column:
                return Controls.for_attribute(_qualified(table, attribute))
    raise QueryError(f"there is no column {column!r} in these tables", culprit=column)


@dataclass(frozen=True)
class JoinedQuestion:
    """A question over joined tables, from the builder.

    Attributes:
        table: the table whose rows are counted.
        aggregate: the name of the aggregate in the form.
        of: the column of the aggregate; empty for a count.
        by: the columns of the groups.
        among: the ticked values by column; None for missing ones.
        ends: the least and greatest value by column, as text; empty for none.
    """

    table: str
    aggregate: str
    of: str
    by: Sequence[str]
    among: dict[str, list[object]]
    ends: dict[str, tuple[str, str]]

    def sql(self, schema: Schema) -> str:
        """Return the question as SQL.

        Raises:
            QueryError: a column does not exist, or its table cannot be joined.
        """
        base = next((each for each in schema if each.name == self.table and not each.public), None)
        if base is None:
            raise QueryError("choose the table whose rows are counted", culprit=self.table)
        ranged = [name for name, ends in self.ends.items() if any(ends)]
        columns = [*self.by, *([self.of] if self.of else []), *self.among, *ranged]
        controls = {name: control(schema, name) for name in columns}
        links, joins = _reachable(schema, base), dict[str, TableLink]()
        for name in columns:
            for join in _joins_to(links, base.name, name.partition(".")[0]):
                joins.setdefault(join.to, join)
        aggregate = "COUNT(*)" if self.aggregate == "count" and not self.of else self._aggregate()
        groups = [_column(name) for name in self.by]
        where = [
            *self._value_conditions(),
            *(part for name in ranged for part in self._range_conditions(controls[name])),
        ]
        return " ".join(
            [
                f"SELECT {', '.join([*groups, aggregate])} FROM {base.name}",
                *map(str, joins.values()),
                *([f"WHERE {' AND '.join(where)}"] if where else []),
                *([f"GROUP BY {', '.join(groups)}"] if groups else []),
            ]
        )

    def _aggregate(self) -> str:
        if not self.of:
            raise QueryError(f"choose the number that the {self.aggregate} is of, next to 'Of which number'")
        if self.aggregate == "count":
            return f"COUNT({_column(self.of)})"
        if self.aggregate not in FUNCTIONS:
            raise QueryError("choose what is asked of the rows", culprit=self.aggregate)
        return f"{FUNCTIONS[self.aggregate]}({_column(self.of)})"

    def _value_conditions(self) -> list[str]:
        conditions = []
        for name, values in self.among.items():
            listed = ", ".join(sql_literal(value) for value in values if value is not None)
            parts = [f"{_column(name)} IN ({listed})"] if listed else []
            parts += [f"{_column(name)} IS NULL"] if None in values else []
            conditions.append(f"({' OR '.join(parts)})" if len(parts) > 1 else parts[0])
        return conditions

    def _range_conditions(self, controls: Controls) -> list[str]:
        ends = zip((">=", controls.until), self.ends[controls.name], strict=True)
        return [f"{_column(controls.name)} {comparison} {sql_end(text)}" for comparison, text in ends if text]


def _qualified(table: SchemaTable, attribute: Attribute) -> Attribute:
    """Return an attribute with the name of its table in its own name."""
    return replace(attribute, name=f"{table.name}.{attribute.name}")


def _reachable(schema: Schema, base: SchemaTable) -> dict[str, TableLink]:
    """Return, by name, the link over which each table is first reached from another one."""
    links: dict[str, TableLink] = {}
    queue = deque([base])
    while queue:
        table = queue.popleft()
        for link in _links(schema, table):
            if link.to != base.name and link.to not in links:
                links[link.to] = link
                queue.append(schema[link.to])
    return links


def _links(schema: Schema, table: SchemaTable) -> list[TableLink]:
    """Return the links of a table to the tables whose keys it has."""
    targets = [(link.column, schema[link.table]) for link in table.links]
    unit = schema.unit_column(table.name)
    if not table.public and unit is not None and schema.units is not None and schema[schema.units] is not table:
        targets.append((unit, schema[schema.units]))
    return [TableLink(table.name, column, other.name, other.key) for column, other in targets if other.key is not None]


def _joins_to(links: dict[str, TableLink], base: str, table: str) -> list[TableLink]:
    """Return the joins from the base table to another one, in order."""
    joins: list[TableLink] = []
    while table != base:
        link = links.get(table)
        if link is None:
            raise QueryError(
                f"rows of {base} do not lead to one row of {table} each; count rows of another table, or ask in SQL",
                culprit=table,
            )
        joins.insert(0, link)
        table = link.table
    return joins


def _column(name: str) -> str:
    table, _, column = name.partition(".")
    return f"{table}.{_quoted(column)}"


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.isascii() and name.islower() else '"' + name.replace('"', '""') + '"'
