"""FROM with its joins: tables of a schema, and statements of one row per unit, joined by keys or by the unit.

A statement of one row per unit is SELECT unit, keys, aggregates FROM ... GROUP BY unit, keys.
"""

# ruff: noqa: S608 - messages show statements, and none is ever sent to an engine

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

from sfumato.arguments import listed
from sfumato.domain import Integer, Real
from sfumato.domain.expression import may_lack_value
from sfumato.domain.table_schema import Schema, SchemaTable
from sfumato.domain.unit import Unit
from sfumato.domain.unit_views import AnyRow, EveryRow
from sfumato.domain.view import (
    Join,
    KeyColumn,
    OfUnits,
    PerUnit,
    Pick,
    RowCount,
    Scan,
    Taken,
    UnitAggregate,
    UnitSum,
    one_row_bounds,
)
from sfumato.query.statements.derived_columns import further_names, needed_names, with_derived, words_in, words_of
from sfumato.query.statements.sql_condition import refuse
from sfumato.query.statements.unit_rows import Part, UnitRows, built, clamp_parts, is_value

_OUTSIDE = {"limit": "LIMIT", "order": "ORDER BY", "distinct": "DISTINCT", "having": "HAVING", "offset": "OFFSET"}
_CLAUSES = {"expressions", "from_", "joins", "where", "group"}


def refuse_inside(text: str, select: Any) -> None:  # noqa: ANN401
    """Refuse clauses that look at all rows together.

    Raises:
        QueryError: there is one.
    """
    from sqlglot import exp

    if not isinstance(select, exp.Select):
        raise refuse(text, select, "UNION and the like are no part of the grammar")
    for clause, value in select.args.items():
        if value and clause in _OUTSIDE:
            at = value if isinstance(value, exp.Expression) and clause != "distinct" else select
            raise refuse(
                text, at, f"{_OUTSIDE[clause]} inside looks at rows of other units; put it outside, after the noise"
            )
        if value and clause not in _CLAUSES:
            raise refuse(text, select, f"{clause.rstrip('_').upper()} is no part of a statement of one row a unit")


def unit_rows(
    text: str,
    select: Any,  # noqa: ANN401  (sqlglot's own)
    schema: Schema,
    known: Mapping[str, Part] | None = None,
) -> UnitRows:
    """Return the rows that FROM and its joins have.

    Args:
        text: the statement.
        select: as it was parsed.
        schema: the public description of the tables.
        known: statements of one row per unit that WITH names outside.

    Raises:
        QueryError: what could let rows of two units meet, or is no table.
    """
    known = _with_named(text, select.args.get("with_"), schema, known or {})
    source = select.args.get("from_")
    if source is None:
        raise refuse(text, select, "say FROM which table")
    joins = select.args.get("joins") or []
    nodes = [source.this, *(join.this for join in joins)]
    drafts = [_drafted(text, node, schema, known) for node in nodes]
    if len({part.alias.casefold() for part in drafts}) != len(drafts):
        raise refuse(text, source, "two tables have one name; give one of them another by AS")
    parts = _named_apart(text, select, schema, nodes, drafts)
    if not parts[0].view.private:
        raise refuse(
            text, source.this, f"begin FROM a private table: a public row belongs to no unit{_swap(joins, parts)}"
        )
    rows = UnitRows(text, schema, parts[:1], parts[0].view, known)
    for join, part in zip(joins, parts[1:], strict=True):
        _join(rows, join, part)
    return rows


def _with_named(text: str, clause: Any, schema: Schema, known: Mapping[str, Part]) -> dict[str, Part]:  # noqa: ANN401
    """Return the statements that WITH names, and the known ones."""
    from sqlglot import exp

    named = dict(known)
    for each in [] if clause is None else clause.expressions:
        if clause.args.get("recursive") or not isinstance(each.this, exp.Select):
            raise refuse(text, each, "WITH names statements of one row a unit")
        if each.alias.casefold() in named or _table(schema, each.alias) is not None:
            raise refuse(text, each, f"there is a table {each.alias} already")
        named[each.alias.casefold()] = per_unit(text, each.this, schema, named, each.alias)
    return named


def _named_apart(
    text: str,
    select: Any,  # noqa: ANN401
    schema: Schema,
    nodes: Sequence[Any],
    drafts: Sequence[Part],
) -> list[Part]:
    """Return the parts of FROM with their derived columns; a name that several parts have begins with its table."""
    from sqlglot import exp

    words = words_of(select)
    every_column = any(isinstance(item, exp.Star) for item in select.expressions)
    further = [_further(schema, part, words, every_column=every_column) for part in drafts]
    columns = (
        name.casefold() for part, more in zip(drafts, further, strict=True) for name in (*part.view.names, *more)
    )
    uses = Counter(columns)
    return [
        built(text, node, partial(_renamed, schema, part, more, uses))
        for node, part, more in zip(nodes, drafts, further, strict=True)
    ]


def _swap(joins: Sequence[Any], parts: Sequence[Part]) -> str:
    """Say what to write if FROM begins with a public table and swapping the tables is enough."""
    side = (joins[0].args.get("side") or "").upper() if joins else "LEFT"
    if side in ("LEFT", "FULL") or not parts[1].view.private:
        return ""
    return f"; swap the tables: {parts[1].alias} {'LEFT ' if side else ''}JOIN {parts[0].alias}"


def _drafted(text: str, node: Any, schema: Schema, known: Mapping[str, Part]) -> Part:  # noqa: ANN401
    """Return a table or statement under its name in the statement, before it is distinguished from others."""
    from sqlglot import exp

    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Select):
        if not node.alias:
            raise refuse(text, node, "name a SELECT in FROM by AS")
        return per_unit(text, node.this, schema, known, node.alias)
    extra = [name for name, value in node.args.items() if value and name not in ("this", "alias")]
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier) or extra:
        raise refuse(text, node, "FROM takes tables of the schema, and statements of one row a unit")
    alias = node.alias or node.name
    if node.name.casefold() in known:
        made = known[node.name.casefold()]
        return Part(alias, made.view, made.names, made.keys, made.unit, None, made.bounds)
    table = _table(schema, node.name)
    if table is None:
        raise refuse(text, node, f"no table {node.name!r} in the schema; it has {listed(each.name for each in schema)}")
    view = Scan(table, alias, tuple(each.name for each in table.attributes))
    keys = {key.column.casefold(): place for place, key in enumerate(view.keys)}
    names = {name.casefold(): name for name in view.names}
    if table.public:
        return Part(alias, view, names, keys, None, table, None)
    unit = schema.unit_column(table.name) or schema.id  # a unit that is found through another table goes by its name
    return Part(alias, view, names, keys, unit, table, schema.bounds(table.name))


def _table(schema: Schema, name: str) -> SchemaTable | None:
    return next((each for each in schema if each.name.casefold() == name.casefold()), None)


def _further(schema: Schema, part: Part, words: frozenset[str], *, every_column: bool) -> tuple[str, ...]:
    """The derived columns and facts of a table that a statement names, or its bounds; all of them under ``*``."""
    if part.table is None or not isinstance(part.view, Scan):
        return ()
    if every_column:
        return further_names(schema, part.table)
    per = () if part.bounds is None else part.bounds.per
    bounded = {word for bound in per for name in bound.by for word in words_in(name)}
    return needed_names(schema, part.table, words | bounded)


def _renamed(schema: Schema, part: Part, further: Sequence[str], uses: Mapping[str, int]) -> Part:
    """Return a part in which a name that several parts have begins with the table's name."""
    if not isinstance(part.view, Scan):
        return part
    called = {
        name: f"{part.alias}.{name}" if uses[name.casefold()] > 1 else name for name in (*part.view.names, *further)
    }
    scan = Scan(part.view.table, part.alias, tuple(called[name] for name in part.view.names))
    view = with_derived(schema, scan, called)
    names = {name.casefold(): new for name, new in called.items()}
    return Part(part.alias, view, names, part.keys, part.unit, part.table, part.bounds)


def _join(rows: UnitRows, join: Any, part: Part) -> None:  # noqa: ANN401
    text, side = rows.text, (join.args.get("side") or "").upper()
    if side:
        _refuse_side(rows, join, part, side)
    if join.args.get("method") or (join.args.get("kind") or "INNER").upper() not in ("INNER", "OUTER", "CROSS"):
        raise refuse(text, join.this, "join by JOIN or LEFT JOIN, with ON or USING")
    pairs, by_unit = _pairs(rows, join, part)
    last = rows.parts[-1].alias
    if part.view.private and not pairs and not by_unit:
        raise refuse(
            text,
            join.this,
            f"{last} and {part.alias} are not joined on a declared key: rows of two units would meet; add an equality "
            f"of {rows.schema.id}",
        )
    if not part.view.private and not pairs:
        raise refuse(text, join.this, f"{last} and {part.alias} are not joined on a declared key")
    before, units = rows.view.keys, rows.schema.units if by_unit else None
    rows.view = built(text, join.this, lambda: Join(rows.view, part.view, tuple(pairs), outer=side == "LEFT"))
    rows.parts = [*rows.parts, part]
    listed = rows.parts[rows.listed]
    met_once = _met_once(listed, [before[one] for one, _ in pairs], by_unit=by_unit, units=units)
    if (
        part.view.private
        and met_once
        and not _met_once(part, [part.view.keys[x] for _, x in pairs], by_unit=by_unit, units=units)
    ):
        rows.listed = len(rows.parts) - 1  # patients JOIN visits lists visits, as visits JOIN patients does


def _refuse_side(rows: UnitRows, join: Any, part: Part, side: str) -> None:  # noqa: ANN401
    """Refuse joins that keep rows of the joined table: rows of a public table would have no owner."""
    if side == "LEFT":
        return
    if not part.view.private:
        advice = f"{side} JOIN keeps every row of {part.alias}, and a public row belongs to no unit"
        raise refuse(rows.text, join.this, f"{advice}; write JOIN or LEFT JOIN")
    before = rows.parts[0].alias if len(rows.parts) == 1 else "..."
    advice = f"{part.alias} LEFT JOIN {before}"
    advice = f"swap the tables: {advice}" if side == "RIGHT" else f"ask {before} LEFT JOIN {part.alias}, and {advice}"
    raise refuse(rows.text, join.this, f"{side} JOIN is no part of the grammar; {advice}")


def _met_once(part: Part, keys: Sequence[KeyColumn], *, by_unit: bool, units: str | None) -> bool:
    """Return whether a join by these keys, or by the unit, finds at most one row of a part."""
    if part.table is None:
        return by_unit and isinstance(part.view, PerUnit) and not part.view.by  # by further keys there may be several
    own = KeyColumn(part.alias, part.table.key or "", part.table.name)
    return own in keys or part.table.name == units


def _pairs(rows: UnitRows, join: Any, part: Part) -> tuple[list[tuple[int, int]], bool]:  # noqa: ANN401
    """Return places of keys that a join finds equal, and whether it says that the units are."""
    from sqlglot import exp

    equal = []
    for name in join.args.get("using") or []:
        column = exp.Column(this=name)
        equal.append((name, column, column))
        rows.merged.add(name.name.casefold())
    on = join.args.get("on")
    for each in [] if on is None else _conjuncts(on):
        inner = each.this if isinstance(each, exp.Paren) else each
        if not isinstance(inner, exp.EQ) or not all(isinstance(x, exp.Column) for x in (inner.this, inner.expression)):
            raise refuse(rows.text, each, "tables are joined by equal columns: a.key = b.key, and by nothing else")
        ends = (inner.this, inner.expression)
        if ends[0].table.casefold() == part.alias.casefold():
            ends = (ends[1], ends[0])
        equal.append((each, *ends))
    alone = UnitRows(rows.text, rows.schema, [part], part.view, {})
    pairs, by_unit = [], False
    for node, left, right in equal:
        if rows.is_unit(left) and alone.is_unit(right):
            by_unit = True
            continue
        one, other = rows.key(left), alone.key(right)
        if one is None or other is None or not _tied(rows.view.keys[one], part.view.keys[other], part):
            raise refuse(
                rows.text,
                node,
                f"{left.name} of {rows.parts[-1].alias} and {right.name} of {part.alias} are not declared to be keys "
                "of one table",
            )
        pairs.append((one, other))
    return pairs, by_unit


def _tied(one: KeyColumn, other: KeyColumn, part: Part) -> bool:
    """Return whether two columns hold keys of one table; a public table may be looked up by any key."""
    return one.of == other.of or not part.view.private


def of_units(rows: UnitRows, where: Any) -> Any:  # noqa: ANN401
    """Keep the rows of units that another statement has or lacks; return the rest of the condition, or None."""
    from sqlglot import exp

    rest = []
    for part in [] if where is None else _conjuncts(where):
        negated, inner = (True, part.this) if isinstance(part, exp.Not) else (False, part)
        inner = inner.this if isinstance(inner, exp.Paren) else inner
        if isinstance(inner, exp.In) and inner.args.get("query") is not None and rows.is_unit(inner.this):
            _of_units(rows, inner, without=negated)
        else:
            rest.append(part)
    return exp.and_(*rest, copy=False) if rest else None


def _of_units(rows: UnitRows, node: Any, *, without: bool) -> None:  # noqa: ANN401
    text, schema = rows.text, rows.schema
    if without and schema.units is None:
        raise refuse(text, node, "units without rows are known where a table lists all: declare unit.table")
    select = node.args["query"].this
    refuse_inside(text, select)
    inner = unit_rows(text, select, schema, rows.known)
    items = select.expressions
    if len(items) != 1 or not inner.is_unit(items[0]) or select.args.get("group") is not None:
        raise refuse(text, node, f"after IN stands SELECT {schema.id} FROM ...")
    rest = of_units(inner, None if select.args.get("where") is None else select.args["where"].this)
    if rest is not None:
        inner.filter(rest)
    rows.view = built(text, node, lambda: OfUnits(rows.view, inner.view, without))


def _conjuncts(node: Any) -> Iterator[Any]:  # noqa: ANN401
    from sqlglot import exp

    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, exp.And):
            waiting += [part.expression, part.this]
        elif isinstance(part, exp.Paren) and isinstance(part.this, exp.And):
            waiting.append(part.this)
        else:
            yield part


def per_unit(text: str, select: Any, schema: Schema, known: Mapping[str, Part], alias: str) -> Part:  # noqa: ANN401
    """Return a statement of one row per unit, as FROM has it.

    Raises:
        QueryError: an expression reads rows of other units, or the statement is no such statement.
    """
    from sqlglot import exp

    refuse_inside(text, select)
    rows = unit_rows(text, select, schema, known)
    where = of_units(rows, None if select.args.get("where") is None else select.args["where"].this)
    if where is not None:
        rows.filter(where)
    group = select.args.get("group")
    keys = [] if group is None else list(group.expressions)
    if not any(rows.is_unit(key) for key in keys):
        raise refuse(text, group or select, f"a SELECT in FROM groups by the unit, {schema.id}")
    named = {each.alias.casefold(): each.this for each in select.expressions if isinstance(each, exp.Alias)}
    by = tuple(_key(rows, key, named) for key in keys if not rows.is_unit(key))
    called: dict[str, str] = {}
    unit, values = schema.id, []
    for item in select.expressions:
        node, name = (item.this, item.alias) if isinstance(item, exp.Alias) else (item, "")
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


def _key(rows: UnitRows, node: Any, named: Mapping[str, Any]) -> str:  # noqa: ANN401
    """Return the attribute that a key is, computed where it is a period, a level or an expression."""
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
    """Return whether a selected node is one of the keys."""
    from sqlglot import exp

    if isinstance(node, exp.Column) and rows.has(node):
        attribute = rows.attribute(node)
        if attribute not in by:
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
            return AnyRow(*rows.truth(where))
        case exp.LogicalAnd(this=where):
            return EveryRow(*rows.truth(where))
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
                rows.text, node, "of a unit ask COUNT, SUM, MIN, MAX, BOOL_OR, BOOL_AND, FIRST or LAST(x ORDER BY date)"
            )


def _attribute(rows: UnitRows, node: Any) -> str:  # noqa: ANN401
    """Return the attribute that is aggregated, computed where it is an expression."""
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
    """Return the bound on rows that the counted table declares, or the largest of all of them."""
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
    return built(rows.text, node, lambda: UnitSum(name, low, ends["high"], missing=may_lack_value(attribute)))
