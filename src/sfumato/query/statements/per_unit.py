"""Statements of one row a unit: SELECT unit, keys, aggregates FROM ... GROUP BY unit, keys."""

# ruff: noqa: S608 - messages show statements, and none is ever sent to an engine

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from sfumato.domain import Integer, Real
from sfumato.domain.table_schema import Schema
from sfumato.domain.unit import Unit
from sfumato.domain.view import (
    AnyRow,
    PerUnit,
    Pick,
    RowCount,
    Taken,
    UnitAggregate,
    UnitSum,
    one_row_bounds,
)
from sfumato.query.statements.from_clause import of_units, refuse_inside, unit_rows
from sfumato.query.statements.sql_condition import refuse
from sfumato.query.statements.unit_rows import Part, UnitRows, built, clamp_parts, is_value


def per_unit(text: str, select: Any, schema: Schema, known: Mapping[str, Part], alias: str) -> Part:  # noqa: ANN401
    """A statement of one row a unit, as FROM has it.

    Raises:
        QueryError: what looks at rows of other units, or no such statement.
    """
    from sqlglot import exp

    refuse_inside(text, select)
    rows = unit_rows(text, select, schema, per_unit, known=known)
    where = of_units(rows, None if select.args.get("where") is None else select.args["where"].this)
    if where is not None:
        rows.filter(where)
    group = select.args.get("group")
    keys = [] if group is None else list(group.expressions)
    if not any(rows.is_unit(key) for key in keys):
        raise refuse(text, group or select, f"a SELECT in FROM groups by the unit, {schema.id}")
    named = {each.alias.casefold(): each.this for each in select.expressions if _is_named(each)}
    by = tuple(_key(rows, key, named) for key in keys if not rows.is_unit(key))
    called: dict[str, str] = {}
    unit, values = schema.id, []
    for item in select.expressions:
        node, name = (item.this, item.alias) if _is_named(item) else (item, "")
        if rows.is_unit(node):
            unit = name or node.name
        elif _is_key(rows, node, name, by):
            if name and isinstance(node, exp.Column) and rows.has(node):
                called[name.casefold()] = rows.attribute(node)
        else:
            if not name:
                raise refuse(text, node, "name what is computed of a unit, by AS")
            values.append((name, _aggregate(rows, node)))
    if not values and not by:
        values.append(("rows", RowCount(_most(rows, None))))
    view = built(text, select, lambda: PerUnit(rows.view, by, tuple(values)))
    named_again = {attribute.casefold() for attribute in called.values()}
    names = {name.casefold(): name for name in view.names if name.casefold() not in named_again} | called
    loose = Unit(schema.id, rows=_most(rows, None), schema=schema.name)
    return Part(alias, view, names, {}, unit, None, one_row_bounds(loose, view))


def _is_named(item: Any) -> bool:  # noqa: ANN401
    from sqlglot import exp

    return isinstance(item, exp.Alias)


def _key(rows: UnitRows, node: Any, named: Mapping[str, Any]) -> str:  # noqa: ANN401
    """The attribute that a key is, computed where it is a period, a level or an expression."""
    from sqlglot import exp

    name = node.name if isinstance(node, exp.Column) else node.sql(dialect="duckdb")
    plain = isinstance(node, exp.Column)
    if plain and not node.table and not rows.has(node) and node.name.casefold() in named:
        node = named[node.name.casefold()]
    elif not plain:
        name = next((alias for alias, each in named.items() if each == node), name)
    if isinstance(node, exp.Column):
        return rows.attribute(node)
    if is_value(node):
        return str(rows.computed(node, name).name)
    labels = rows.labels(node)
    if labels is None:
        raise refuse(rows.text, node, "a key is an attribute, a period of a date, or CASE WHEN condition THEN ... END")
    return rows.add(node, name, labels)


def _is_key(rows: UnitRows, node: Any, name: str, by: tuple[str, ...]) -> bool:  # noqa: ANN401
    """Whether a selected node is one of the keys."""
    from sqlglot import exp

    if isinstance(node, exp.Column) and rows.has(node):
        found = rows.attribute(node)
        if found not in by:
            raise refuse(rows.text, node, "a plain attribute in SELECT also stands in GROUP BY")
        return True
    held = {each.casefold() for each in by}
    return (name or node.name).casefold() in held or node.sql(dialect="duckdb").casefold() in held


def _aggregate(rows: UnitRows, node: Any) -> UnitAggregate:  # noqa: ANN401, C901 - one case an aggregate
    from sqlglot import exp

    ends: dict[str, Fraction] = {}
    inner = node
    while isinstance(inner, exp.Least | exp.Greatest):
        inner, end = clamp_parts(rows.text, inner)
        ends = end | ends
    match inner:
        case exp.Count():
            return _count(rows, inner, ends)
        case exp.Sum():
            return _sum(rows, inner, ends)
        case _ if ends:
            raise refuse(rows.text, node, "LEAST and GREATEST bound COUNT and SUM of a unit; bound others outside")
        case exp.Min() | exp.Max():
            pick = Pick.LEAST if isinstance(inner, exp.Min) else Pick.GREATEST
            return Taken(pick, _attribute(rows, inner.this))
        case exp.LogicalOr(this=where):
            return AnyRow(rows.condition(where))
        case exp.First(this=exp.Order() as order) | exp.Last(this=exp.Order() as order):
            if len(order.expressions) != 1 or order.expressions[0].args.get("desc"):
                raise refuse(rows.text, order, "FIRST and LAST are by one date, ascending")
            pick = Pick.FIRST if isinstance(inner, exp.First) else Pick.LAST
            return Taken(pick, _attribute(rows, order.this), _attribute(rows, order.expressions[0].this))
        case exp.Window():
            raise refuse(rows.text, node, "a window looks at rows of other units")
        case exp.Query() | exp.Subquery():
            raise refuse(rows.text, node, "a SELECT inside an expression looks at rows of other units")
        case _:
            raise refuse(
                rows.text, node, "of a unit ask COUNT, SUM, MIN, MAX, BOOL_OR, or FIRST or LAST(x ORDER BY date)"
            )


def _attribute(rows: UnitRows, node: Any) -> str:  # noqa: ANN401
    """The attribute that is aggregated, computed where it is an expression."""
    from sqlglot import exp

    if isinstance(node, exp.Distinct):
        raise refuse(rows.text, node, "distinct values of a unit are no part of the grammar")
    return str(rows.computed(node, None).name) if is_value(node) else rows.attribute(node)


def _count(rows: UnitRows, node: Any, ends: Mapping[str, Fraction]) -> RowCount:  # noqa: ANN401
    from sqlglot import exp

    if ends.get("low", 0) > 0 or ends.get("high", Fraction(1)).denominator != 1 or node.expressions:
        raise refuse(rows.text, node, "a number of rows lies between 0 and a whole number")
    of: str | int | None = None
    if isinstance(node.this, exp.Column) and not rows.has(node.this):
        of = rows.key(node.this)
        if of is None and rows.is_unit(node.this):
            raise refuse(rows.text, node, "count a key or an attribute of the joined table")
        if of is None:
            rows.attribute(node.this)  # refuses
    elif not isinstance(node.this, exp.Star | exp.Literal):  # COUNT(1) counts rows, as COUNT(*) does
        of = _attribute(rows, node.this)
    most = int(ends["high"]) if "high" in ends else _most(rows, node.this)
    return built(rows.text, node, lambda: RowCount(most, of))


def _most(rows: UnitRows, node: Any) -> int:  # noqa: ANN401
    """The bound on rows that the counted table declares, or the largest of all of them."""
    from sqlglot import exp

    named = node.table.casefold() if isinstance(node, exp.Column) else ""
    bounds = {part.alias.casefold(): part.bounds.rows for part in rows.parts if part.bounds is not None}
    return bounds.get(named, max(bounds.values()))


def _sum(rows: UnitRows, node: Any, ends: Mapping[str, Fraction]) -> UnitSum:  # noqa: ANN401
    name = _attribute(rows, node.this)
    attribute = rows.view.domain[name]
    low = ends.get("low")
    if low is None and isinstance(attribute, Integer | Real) and attribute.minimum >= 0:
        low = Fraction(0)
    if low is None or "high" not in ends:
        raise refuse(rows.text, node, f"say its bounds: LEAST(GREATEST({node.sql(dialect='duckdb')}, 0), 900)")
    return built(rows.text, node, lambda: UnitSum(name, low, ends["high"]))
