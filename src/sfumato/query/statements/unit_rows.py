"""Rows of units in SQL:  FROM with its joins, statements of one row per unit, and expressions over a row.

Every name is resolved to an attribute of the view, to a key or to the unit; every expression becomes one more
attribute.  The rest of a statement is then about attributes alone, like a statement about one table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, TypeVar

from sfumato.arguments import listed
from sfumato.domain import Date, Integer, Real, Timestamp
from sfumato.domain.expression import (
    Cases,
    Constant,
    DaysBetween,
    Expression,
    Field,
    Labels,
    computed,
    may_lack_value,
)
from sfumato.domain.predicate import All, Predicate, named
from sfumato.domain.predicate import Any as AnyOf
from sfumato.domain.table_schema import Schema, SchemaTable
from sfumato.domain.unit import GroupBound, Unit
from sfumato.domain.unit_views import Declared, Renamed
from sfumato.domain.view import Computed, Filter, KeyColumn, View
from sfumato.errors import QueryError, SfumatoError
from sfumato.query.statements.declared_values import is_text_function, text_value
from sfumato.query.statements.derived_columns import (
    cut_at,
    has_declared_cells,
    is_number,
    is_value,
    labels_of,
    mirrored,
    with_constants,
)
from sfumato.query.statements.row_numbers import RowNumbers, check_size
from sfumato.query.statements.select_list import is_computed
from sfumato.query.statements.sql_condition import Place, condition, level_of, number, refuse
from sfumato.query.statements.three_valued_logic import Condition, normal

T = TypeVar("T")


@dataclass(frozen=True)
class Part:
    """A table, or a statement of one row per unit, in FROM.

    Attributes:
        alias: its name.
        view: its rows.
        names: its attributes' names in it, and in the view.
        keys: its columns of keys, by index.
        unit: its column of the unit.
        table: the table of the schema; None for a statement.
        bounds: the bounds on the rows per unit in a view that lists its rows; None if it is public.
        own: its primary key, present in all rows and unique unless rows are repeated; None if it has none.
        single: true if it has at most one row per unit, unless rows are repeated.
        repeated: true if a join inside may have repeated its rows.
    """

    alias: str
    view: View
    names: Mapping[str, str]
    keys: Mapping[str, int]
    unit: str | None
    table: SchemaTable | None
    bounds: Unit | None
    own: KeyColumn | None = None
    single: bool = False
    repeated: bool = False

    def met_once(self, keys: Sequence[KeyColumn], *, by_unit: bool) -> bool:
        """Return whether a join by these keys, or by the unit, finds at most one row."""
        return not self.repeated and ((by_unit and self.single) or (self.own is not None and self.own in keys))

    def column_keys(self, schema: Schema) -> set[str]:
        """Return the names of its columns that hold keys, or the id of the unit."""
        held = self.unit is not None and (self.table is None or schema.unit_column(self.table.name) is not None)
        return {*self.keys, *([self.unit.casefold()] if held and self.unit is not None else [])}

    def columns(self, schema: Schema) -> set[str]:
        """Return the names of its columns."""
        return {*self.names, *self.column_keys(schema)}

    def renamed(self, taken: AbstractSet[str]) -> Part:
        """Return the part with its name as a prefix of each attribute whose name is taken."""
        new = {name: f"{self.alias}.{name}" if name.casefold() in taken else name for name in self.view.names}
        view = Renamed(self.view, tuple(new.values()))
        names = {called: new[name] for called, name in self.names.items()}
        return replace(self, view=view, names=names, bounds=named_bounds(self.bounds, new))


@dataclass
class UnitRows:
    """The rows of a statement, built step by step."""

    text: str
    schema: Schema
    parts: list[Part]
    view: View
    known: Mapping[str, Part]
    merged: set[str] = field(default_factory=set)
    listed: int = 0  # the index of the part whose rows are listed, each once unless repeated
    repeated: bool = False  # true if a join may have repeated a row of that part
    joined_by: list[Any] = field(default_factory=list)  # the conditions of the joins
    where: Any = None  # further conditions on each row
    presence: dict[str, str] = field(default_factory=dict)  # the column missing without a match, by part

    def begin_with(self, part: Part) -> None:
        """Take the part to which the others are joined."""
        self.parts, self.view, self.repeated = [part], part.view, part.repeated

    @property
    def bounds(self) -> Unit | None:
        """The bounds of the part whose rows a statement lists; None if it is public."""
        return self.parts[self.listed].bounds

    # --- names --------------------------------------------------------------------------------------------------------

    def is_unit(self, node: Any) -> bool:  # noqa: ANN401  (sqlglot's own)
        """Return whether a node is the id of the unit, named by any of its tables."""
        from sqlglot import exp

        if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
            return False
        return any(part.unit is not None and _same(part.unit, node) for part in self._named(node))

    def has(self, node: Any) -> bool:  # noqa: ANN401
        """Return whether a node names an attribute."""
        return any(_look_up(part.names, node) is not None for part in self._named(node))

    def attribute(self, node: Any) -> str:  # noqa: ANN401
        """Return the attribute of the view that a column names.

        Raises:
            QueryError: the column names no attribute, or several.
        """
        if self.is_unit(node):
            reason = f"{node.name} identifies a unit, so it is private: an answer by it would be about one unit"
            raise refuse(self.text, node, f"{reason}; count units by COUNT(DISTINCT {node.name})")
        names = [name for part in self._named(node) if (name := _look_up(part.names, node)) is not None]
        if not names and not node.table:
            own = {name for part in self.parts for name in part.view.names}
            alike = [name for name in self.view.names if name.casefold() == node.name.casefold() and name not in own]
            names = alike[:1]  # the first one has the computed value
        if not names:
            if self.key(node) is not None:
                reason = f"{node.name} is a key: it joins rows, and an answer by it would be about rows of one unit"
                raise refuse(self.text, node, reason)
            if not self._named(node):
                tables = listed([part.alias for part in self.parts])
                raise refuse(self.text, node, f"no table {node.table!r} in FROM, which has {tables}")
            declared = f"{', '.join(part.alias for part in self.parts)}, which declares {listed(self.view.names)}"
            raise refuse(self.text, node, f"no attribute {node.name!r} in {declared}; other columns are private")
        if len(names) > 1 and node.name.casefold() not in self.merged:
            raise refuse(self.text, node, f"{node.name!r} is in several tables; write table.{node.name}")
        return names[0]

    def key(self, node: Any) -> int | None:  # noqa: ANN401
        """Return the index of a key among the keys of the view; None if the node names none."""
        for part in self._named(node):
            place = _look_up(part.keys, node)
            if place is not None:
                return self.place(part, place)
        return None

    def place(self, part: Part, place: int) -> int:
        """Return the index among all keys of a key of one part."""
        before = takewhile(lambda each: each is not part, self.parts)
        return sum(len(each.view.keys) for each in before) + place

    def knows(self, node: Any) -> bool:  # noqa: ANN401
        """Return whether a column is an attribute, a key or the unit here."""
        return self.is_unit(node) or self.has(node) or self.key(node) is not None

    def _named(self, node: Any) -> list[Part]:  # noqa: ANN401
        return [part for part in self.parts if not node.table or part.alias.casefold() == node.table.casefold()]

    # --- rows ---------------------------------------------------------------------------------------------------------

    def filter(self, where: Any) -> None:  # noqa: ANN401
        """Keep the rows that meet a condition, before a bound drops any."""
        met = self.condition(where)
        self.view = built(self.text, where, lambda: Filter(self.view, met))

    def condition(self, node: Any) -> Predicate:  # noqa: ANN401
        """Return the predicate for the rows that make a condition true, in attributes of the view."""
        return self._condition(node).true

    def truth(self, node: Any) -> tuple[Predicate, Predicate | None]:  # noqa: ANN401
        """Return predicates for true and for false rows of a condition; None for false if it is never unknown."""
        condition, domain = self._condition(node), self.view.domain
        names = named(condition.true) | named(condition.false)
        known = not any(may_lack_value(domain[name]) for name in names)
        if known or normal(AnyOf((condition.true, condition.false)), domain) is None:
            return condition.true, None
        return condition.true, condition.false

    def _condition(self, node: Any) -> Condition:  # noqa: ANN401
        lowered = self.lowered(node)
        return built(self.text, node, lambda: condition(self.text, lowered, self.view.domain))

    # --- values computed from a row -----------------------------------------------------------------------------------

    def lowered(self, node: Any) -> Any:  # noqa: ANN401, C901 - one case a kind
        """Return a node over attributes of the view; expressions become computed columns."""
        from sqlglot import exp

        match node:
            case _ if is_computed(node):  # computed from answers: the aggregates inside are about rows
                return self._with_lowered_parts(node)
            case exp.Column() if isinstance(node.this, exp.Identifier):
                return _column(self.attribute(node), node)
            case exp.Paren() if is_value(node.this) or isinstance(node.this, exp.Column):
                return self.lowered(node.this)
            case exp.Is(this=exp.Column() as column) | exp.Count(this=exp.Column() as column) if self._present(column):
                fresh = node.copy()
                fresh.set("this", _column(self._present(column) or "", column))
                return fresh
            case exp.Window():
                raise refuse(self.text, node, "a window uses rows of other units")
            case exp.Query() | exp.Subquery():
                raise refuse(self.text, node, "a SELECT inside an expression uses rows of other units")
            case exp.Exists() | exp.In() if isinstance(node, exp.Exists) or node.args.get("query") is not None:
                given = "EXISTS" if isinstance(node, exp.Exists) else "a SELECT after IN"
                reason = f"{given} stands by itself in WHERE, joined to other conditions by AND"
                raise refuse(self.text, node, f"{reason}; of an OR, add the numbers of rows of two statements")
            case exp.Rand() | exp.CurrentDate() | exp.CurrentTimestamp() | exp.CurrentTime():
                raise refuse(self.text, node, "a row has no random numbers and no current time")
            case exp.Count(this=exp.Distinct(expressions=[column])) if self.is_unit(column):
                return exp.Count(this=exp.Distinct(expressions=[_column(self.schema.id, column)]))
            case exp.Count(this=exp.Distinct()) | exp.Distinct():
                return self._with_lowered_parts(node)
            case _ if is_value(node):
                return self.computed(node, None)
        if isinstance(node, exp.Predicate):
            node = self._with_differences(with_constants(node))
        cut = self._cut(node)
        return self._with_lowered_parts(node) if cut is None else cut

    def _present(self, column: Any) -> str | None:  # noqa: ANN401
        """Return the attribute that is missing if a LEFT JOIN finds no row, for a key or the unit of that row."""
        for part in self._named(column) if self.presence and not self.has(column) else ():
            alone = UnitRows(self.text, self.schema, [part], part.view, {})
            if part.alias.casefold() in self.presence and alone.knows(column):
                return self.presence[part.alias.casefold()]
        return None

    def _with_lowered_parts(self, node: Any) -> Any:  # noqa: ANN401
        from sqlglot import exp

        fresh = node.copy()
        for name, value in node.args.items():
            if isinstance(value, exp.Expression):
                fresh.set(name, self.lowered(value))
            elif isinstance(value, list):
                fresh.set(name, [self.lowered(each) if isinstance(each, exp.Expression) else each for each in value])
        return fresh

    def computed(self, node: Any, name: str | None) -> Any:  # noqa: ANN401
        """Return the column of the view for an expression."""
        value = self.expression(node)
        if isinstance(value, Field):  # a function that changes nothing
            return _column(value.name, node)
        check_size(self.text, node, value)
        return _column(self.add(node, name or node.sql(dialect="duckdb"), value), node)

    def constant(self, node: Any, name: str | None) -> Any:  # noqa: ANN401
        """Return a column of the view that has one value in all rows."""
        integer = not node.is_string and number(self.text, node).denominator == 1
        text = node.name if node.is_string else node.sql()
        value = Constant(number(self.text, node)) if integer else Labels(((All(()), text),), text)
        return _column(self.add(node, name or node.sql(dialect="duckdb"), value), node)

    def add(self, node: Any, name: str, value: Expression) -> str:  # noqa: ANN401
        """Add an attribute and return its name; reuse an attribute with an equal computation."""
        if any((at.name, at.value) == (name, value) for at in self._computed() if isinstance(at, Computed)):
            return name
        fresh, place = name, 2
        while fresh in self.view.names:  # an inner SELECT may use this name for something else
            fresh, place = f"{name} ({place})", place + 1
        self.view = built(self.text, node, lambda: Computed(self.view, fresh, value))
        return fresh

    def _computed(self) -> Iterator[Computed | Declared]:
        """Yield the expressions computed over the rows, the last first."""
        at: View = self.view
        while isinstance(at, Computed | Declared):
            yield at
            at = at.source

    def expression(self, node: Any) -> Expression:  # noqa: ANN401 - one case a kind
        """Return the computation of a value for each row.

        Raises:
            QueryError: no expression that is known never to fail.
        """
        from sqlglot import exp

        match node:
            case exp.Paren(this=inner):
                return self.expression(inner)
            case exp.Column():
                return Field(self.attribute(node))
            case exp.Sub() if self._is_date(node.this) and self._is_date(node.expression):
                return DaysBetween(self.attribute(node.this), self.attribute(node.expression))
            case exp.DateDiff(this=exp.Column() as later, expression=exp.Column() as earlier):
                return self._numbers.days(node, self.attribute(later), self.attribute(earlier))
            case exp.Case():
                return self._cases(node)
            case exp.If():
                branch = exp.If(this=node.this, true=node.args["true"])
                return self._cases(exp.Case(ifs=[branch], default=node.args.get("false")))
            case exp.Window():
                raise refuse(self.text, node, "a window uses rows of other units")
            case exp.Query() | exp.Subquery():
                raise refuse(self.text, node, "a SELECT inside an expression uses rows of other units")
        texts = self._level_labels(node) or built(self.text, node, lambda: text_value(self, node))
        return built(self.text, node, lambda: self._numbers.expression(node)) if texts is None else texts

    def _level_labels(self, node: Any) -> Labels | None:  # noqa: ANN401
        """Return the labels of a hierarchy's level that shares its name with a function of texts."""
        if not is_text_function(node):
            return None
        try:
            level = level_of(self.text, self._with_lowered_parts(node), self.view.domain)
        except QueryError:
            return None
        return None if level is None else labels_of(self.view.domain.grouping(level))

    @property
    def _numbers(self) -> RowNumbers:
        return RowNumbers(self.text, self.view.domain, self.expression)

    def labels(self, node: Any) -> Labels | None:  # noqa: ANN401
        """Return the cells of a hierarchy's level, or of a calendar map, as labels; None if a node is neither."""
        level = level_of(self.text, self.lowered(node), self.view.domain)
        if level is None:
            return None
        labels = labels_of(self.view.domain.grouping(level))
        if labels is None:
            raise refuse(self.text, node, f"{level} has too many cells to be a key of a unit's rows")
        return labels

    # --- conditions on numbers without declared cells -----------------------------------------------------------------

    def _cut(self, node: Any) -> Any:  # noqa: ANN401
        """Return a comparison of a computed number that has one cell, with cells that begin at the cut; None for
        others.

        The cuts of a statement are public, so any cut is possible.  Cells that a schema declares stay unchanged.
        """
        from sqlglot import exp

        if isinstance(node, exp.Between) and not node.args.get("symmetric"):
            ends = ((exp.GTE, node.args["low"]), (exp.LTE, node.args["high"]))
            parts = [kind(this=node.this.copy(), expression=end.copy()) for kind, end in ends]
            return exp.paren(exp.and_(*map(self.lowered, parts))) if self._uncut(node.this) is not None else None
        if isinstance(node, exp.In) and node.expressions:
            equal = [exp.EQ(this=node.this.copy(), expression=each.copy()) for each in node.expressions]
            return exp.paren(exp.or_(*map(self.lowered, equal))) if self._uncut(node.this) is not None else None
        if type(node) not in mirrored():
            return None
        kind, left, right = type(node), node.this, node.expression
        if is_number(left):
            kind, left, right = mirrored()[kind], right, left
        value = self._uncut(left) if is_number(right) else None
        if value is None:
            return None
        name, expression, attribute = value
        kind, literal, declared = cut_at(kind, number(self.text, right), attribute, name)
        if declared is None:
            return None  # all of its numbers are on one side
        made = (each.source for each in self._computed() if isinstance(each, Declared) and each.declared == declared)
        if not any(isinstance(each, Computed) and each.value == expression for each in made):
            self.view = built(
                self.text, node, lambda: Declared(Computed(self.view, declared.name, expression), declared)
            )
        return kind(this=_column(declared.name, left), expression=exp.Literal.number(literal))

    def _uncut(self, node: Any) -> tuple[str, Expression, Integer | Real] | None:  # noqa: ANN401
        """Return the name, computation and attribute of a computed number with one cell; None for anything else."""
        from sqlglot import exp

        while isinstance(node, exp.Paren):
            node = node.this
        if not isinstance(node, exp.Column) and not is_value(node):
            return None
        value = self.expression(node)
        if isinstance(value, Field):
            name = value.name
            attribute = None if has_declared_cells(self.view, name) else self.view.domain[name]
        else:
            check_size(self.text, node, value)
            name = node.sql(dialect="duckdb")
            attribute = built(self.text, node, lambda: computed(name, value, self.view.domain))
        if not isinstance(attribute, Integer | Real) or attribute.declared != 1:
            return None
        return (name, value, attribute) if attribute.minimum < attribute.maximum else None

    def _with_differences(self, node: Any) -> Any:  # noqa: ANN401
        """Return a comparison of two numbers, or days, of a row as a comparison of their difference with 0."""
        from sqlglot import exp

        if isinstance(node, exp.Between) and any(map(self._is_measured, (node.args["low"], node.args["high"]))):
            ends = ((exp.GTE, node.args["low"]), (exp.LTE, node.args["high"]))
            return exp.paren(exp.and_(*(kind(this=node.this.copy(), expression=end.copy()) for kind, end in ends)))
        if type(node) not in mirrored() or not (self._is_measured(node.this) and self._is_measured(node.expression)):
            return node
        difference = exp.Sub(this=node.this.copy(), expression=node.expression.copy())
        return type(node)(this=difference, expression=exp.Literal.number(0))

    def _is_measured(self, node: Any) -> bool:  # noqa: ANN401
        """Return whether a node is a number or a day of the row, and no literal."""
        from sqlglot import exp

        if isinstance(node, exp.Column):
            return isinstance(self.view.domain[self.attribute(node)], Integer | Real | Date)
        return is_value(node)

    def _is_date(self, node: Any) -> bool:  # noqa: ANN401
        from sqlglot import exp

        if not isinstance(node, exp.Column):
            return False
        return isinstance(self.view.domain[self.attribute(node)], Date | Timestamp)

    def _cases(self, node: Any) -> Expression:  # noqa: ANN401
        from sqlglot import exp

        rest = node.args.get("default")
        rest = None if isinstance(rest, exp.Null) else rest
        values = [each.args["true"] for each in node.args["ifs"]]
        of = node.this  # CASE x WHEN 1 is CASE WHEN x = 1
        met = [each.this if of is None else exp.EQ(this=of.copy(), expression=each.this) for each in node.args["ifs"]]
        where = [self.condition(each) for each in met]
        if all(isinstance(each, exp.Literal) and each.is_string for each in [*values, *([rest] if rest else [])]):
            labels = tuple((met, str(each.this)) for met, each in zip(where, values, strict=True))
            return Labels(labels, None if rest is None else str(rest.this))
        numbers = tuple((met, self.expression(each)) for met, each in zip(where, values, strict=True))
        return Cases(numbers, None if rest is None else self.expression(rest))


def built(text: str, node: Any, build: Callable[[], T]) -> T:  # noqa: ANN401
    """Build something from a node; an error gets the place of the node."""
    try:
        return build()
    except SfumatoError as error:
        if isinstance(error.culprit, Place):
            raise
        raise refuse(text, node, str(error)) from None


def named_bounds(bounds: Unit | None, names: Mapping[str, str]) -> Unit | None:
    """Return bounds with renamed attributes, also in groupings by levels.

    Args:
        bounds: None if there are none.
        names: the new name of each attribute, by its old name or its old name in lower case.
    """
    if bounds is None:
        return None
    per = []
    for bound in bounds.per:
        by = []
        for name in bound.by:
            level, _, of = name.rstrip(")").partition("(")
            named = names.get(name, names.get(name.casefold()))  # an attribute may have any name
            of = of.strip()
            by.append(named or f"{level}({names.get(of) or names[of.casefold()]})")
        per.append(GroupBound(tuple(by), rows=bound.rows, groups=bound.groups))
    return bounds.bounded(rows=bounds.rows, per=per)


def _same(name: str, node: Any) -> bool:  # noqa: ANN401
    return bool(name.casefold() == node.name.casefold())


def _look_up(names: Mapping[str, T], node: Any) -> T | None:  # noqa: ANN401
    return names.get(node.name.casefold())


def _column(name: str, at: Any) -> Any:  # noqa: ANN401
    """Return a quoted column at the place of ``at``."""
    from sqlglot import exp

    identifier = exp.to_identifier(name, quoted=True)
    first = min((part for part in at.walk() if "start" in part.meta), key=lambda part: part.meta["start"], default=None)
    if first is not None:
        identifier.meta.update(first.meta)
    return exp.Column(this=identifier)
