"""Aggregates of the rows of one unit, and the grouping keys of a statement of one row per unit."""

# ruff: noqa: S608 - messages show statements, and none is ever sent to an engine

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from sfumato.domain import Integer, Real
from sfumato.domain.expression import may_lack_value
from sfumato.domain.unit_views import AnyRow, EveryRow, PublicAggregate
from sfumato.domain.view import Pick, RowCount, Taken, UnitAggregate, UnitSum
from sfumato.errors import QueryError
from sfumato.query.statements.derived_columns import clamp_parts, is_value
from sfumato.query.statements.sql_condition import refuse, selected_at
from sfumato.query.statements.unit_rows import UnitRows, built


def unit_key(rows: UnitRows, node: Any, named: Mapping[str, Any]) -> str:  # noqa: ANN401
    """Return the attribute of a key, computed if the key is a period, a level or an expression."""
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


def is_unit_key(rows: UnitRows, node: Any, name: str, by: tuple[str, ...]) -> bool:  # noqa: ANN401
    """Return whether a selected node is one of the keys."""
    from sqlglot import exp

    if isinstance(node, exp.Column) and rows.has(node):
        attribute = rows.attribute(node)
        if attribute not in by:
            raise refuse(rows.text, node, "a plain attribute in SELECT must also be in GROUP BY")
        return True
    held = {each.casefold() for each in by}
    return (name or node.name).casefold() in held or node.sql(dialect="duckdb").casefold() in held


def unit_aggregate(rows: UnitRows, node: Any) -> UnitAggregate:  # noqa: ANN401, C901 - one case an aggregate
    """Return an aggregate of the rows of one unit.

    Raises:
        QueryError: the node is none, or reads rows of other units.
    """
    from sqlglot import exp

    clamps: list[dict[str, Fraction]] = []
    inner = node
    while isinstance(inner, exp.Least | exp.Greatest):
        inner, end = clamp_parts(rows.text, inner)
        clamps = [end, *clamps]
    ends = _tightest(clamps)
    match inner:
        case exp.Count():
            return _count(rows, inner, ends)
        case exp.Sum():
            return _sum(rows, inner, ends, clamps)
        case _ if ends:
            raise refuse(rows.text, node, "LEAST and GREATEST bound COUNT and SUM of a unit; bound others outside")
        case exp.Min() | exp.Max():
            pick = Pick.LEAST if isinstance(inner, exp.Min) else Pick.GREATEST
            return Taken(pick, _attribute(rows, inner.this))
        case exp.LogicalOr(this=where):
            return AnyRow(*rows.truth(where))
        case exp.LogicalAnd(this=where):
            return EveryRow(*rows.truth(where))
        case exp.First(this=exp.Order() as order) | exp.Last(this=exp.Order() as order):
            if len(order.expressions) != 1 or order.expressions[0].args.get("desc"):
                raise refuse(rows.text, order, "FIRST and LAST are by one date, ascending")
            pick = Pick.FIRST if isinstance(inner, exp.First) else Pick.LAST
            return Taken(pick, _attribute(rows, order.this), _attribute(rows, order.expressions[0].this))
        case exp.Window():
            raise refuse(rows.text, node, "a window uses rows of other units")
        case exp.Query() | exp.Subquery():
            raise refuse(rows.text, node, "a SELECT inside an expression uses rows of other units")
        case _:
            raise refuse(
                rows.text, node, "per unit ask COUNT, SUM, MIN, MAX, BOOL_OR, BOOL_AND, FIRST or LAST(x ORDER BY date)"
            )


def _tightest(clamps: Sequence[Mapping[str, Fraction]]) -> dict[str, Fraction]:
    """Return the largest lower bound and the smallest upper bound, if there are any."""
    ends: dict[str, Fraction] = {}
    for clamp in clamps:
        for side, end in clamp.items():
            ends[side] = (max if side == "low" else min)(end, ends.get(side, end))
    return ends


def public_aggregate(rows: UnitRows, select: Any) -> tuple[PublicAggregate, str]:  # noqa: ANN401
    """Return the only aggregate in a SELECT of a public table, and its attribute.

    Raises:
        QueryError: the SELECT contains something else.
    """
    from sqlglot import exp

    kinds = {exp.Min: PublicAggregate.LEAST, exp.Max: PublicAggregate.GREATEST, exp.Avg: PublicAggregate.MEAN}
    item = select.expressions[0].unalias()
    if len(select.expressions) != 1 or type(item) not in kinds or select.args.get("group") is not None:
        raise refuse(
            rows.text, item, "a SELECT of a public table gives MIN, MAX or AVG of a number; compute with it outside"
        )
    return kinds[type(item)], _attribute(rows, item.this)


def _attribute(rows: UnitRows, node: Any) -> str:  # noqa: ANN401
    """Return the aggregated attribute, computed if it is an expression."""
    from sqlglot import exp

    if isinstance(node, exp.Distinct):
        raise refuse(rows.text, node, "distinct values per unit are not supported")
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
            rows.attribute(node.this)  # raises an error for an unknown name
    elif not isinstance(node.this, exp.Star | exp.Literal):  # COUNT(1) counts rows, as COUNT(*) does
        of = _attribute(rows, node.this)
    most = int(ends["high"]) if "high" in ends else most_rows(rows, node.this)
    return built(rows.text, node, lambda: RowCount(most, of))


def most_rows(rows: UnitRows, node: Any) -> int:  # noqa: ANN401
    """Return the declared bound on rows of the counted table, or the largest bound of all tables."""
    from sqlglot import exp

    named = node.table.casefold() if isinstance(node, exp.Column) else ""
    bounds = {part.alias.casefold(): part.bounds.rows for part in rows.parts if part.bounds is not None}
    return bounds.get(named, max(bounds.values()))


def _sum(rows: UnitRows, node: Any, ends: Mapping[str, Fraction], clamps: Sequence[Mapping[str, Fraction]]) -> UnitSum:  # noqa: ANN401
    """Return a sum within the bounds of LEAST and GREATEST, or within the bounds for all rows of a unit.

    Args:
        rows: the rows of the unit.
        node: the SUM.
        ends: the combined bounds.
        clamps: the single bounds, the innermost first: it replaces an empty sum.
    """
    name = _attribute(rows, node.this)
    attribute = rows.view.domain[name]
    most, low, high = most_rows(rows, None), ends.get("low"), ends.get("high")
    if isinstance(attribute, Integer | Real):
        low = most * min(Fraction(attribute.minimum), Fraction(0)) if low is None else low
        high = most * max(Fraction(attribute.maximum), Fraction(0)) if high is None else high
    low, high = low or Fraction(0), high or Fraction(0)
    lacking = may_lack_value(attribute)
    empty: Fraction | None = None
    for move in clamps if lacking else ():
        (end,) = move.values()
        empty = end if empty is None else max(empty, end) if "low" in move else min(empty, end)
    plain = empty == min(max(Fraction(0), low), high)  # the default of an empty sum
    missing = lacking and empty is None
    return built(rows.text, node, lambda: UnitSum(name, low, high, missing, None if plain else empty))


def unit_group_keys(text: str, select: Any) -> list[Any]:  # noqa: ANN401
    """Return the keys of GROUP BY, with numbers replaced by the selected expressions."""
    from sqlglot import exp

    group = select.args.get("group")
    keys = [] if group is None else list(group.expressions)
    return [
        selected_at(text, select, key).unalias() if isinstance(key, exp.Literal) and not key.is_string else key
        for key in keys
    ]


def having_of_unit(rows: UnitRows, condition: Any, values: list[tuple[str, Any]], nodes: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Return a condition on the values of a unit, with each aggregate replaced by a column; add missing columns."""
    from sqlglot import exp

    def lowered(node: Any) -> Any:  # noqa: ANN401
        if not isinstance(node, exp.AggFunc):
            return node
        name = next((name for name, each in nodes.items() if each == node), None)
        if name is None:
            name = node.sql(dialect="duckdb")
            if name not in dict(values):
                values.append((name, unit_aggregate(rows, node)))
        return exp.column(exp.to_identifier(name, quoted=True))

    return condition.transform(lowered)


def refuse_other_units(rows: UnitRows, select: Any, node: Any) -> QueryError:  # noqa: ANN401
    """Return the error to raise about a SELECT in FROM that groups or aggregates rows of several units."""
    if not rows.schema.id:
        return refuse(
            rows.text,
            node,
            "it would add up rows of different units, because every row is a unit here; aggregate outside alone, or "
            "declare the column that identifies a person as the unit",
        )
    unit, source = rows.schema.id, select.args["from_"].sql(dialect="duckdb")
    return refuse(
        rows.text,
        node,
        f"it would add up rows of different units; a SELECT in FROM groups by the unit, {unit}",
        f"SELECT AVG(n) FROM (SELECT {unit}, COUNT(*) AS n {source} GROUP BY {unit}) AS t",
    )
