"""FROM: tables of a schema, and statements in parentheses or under WITH, joined by keys or by the unit.

A statement inside lists rows (SELECT columns FROM ... WHERE ...), or has one row per unit (SELECT unit, keys,
aggregates FROM ... GROUP BY unit, keys).
"""

# ruff: noqa: S608 - messages show statements, and none is ever sent to an engine

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sfumato.arguments import listed
from sfumato.domain.table_schema import Schema, SchemaTable
from sfumato.domain.unit_views import OneTableSchema, WithPublicValue
from sfumato.domain.view import KeyColumn, OfUnits, PerUnit, RowCount, Scan, one_row_bounds
from sfumato.query.aggregates import FORMS
from sfumato.query.statements.aggregate_calls import SPELLINGS
from sfumato.query.statements.derived_columns import (
    further_names,
    is_value,
    needed_names,
    with_derived,
    words_in,
    words_of,
)
from sfumato.query.statements.sql_condition import refuse
from sfumato.query.statements.table_joins import (
    JoinCondition,
    conjuncts,
    correlated_tie,
    correlation,
    is_never_missing,
    join_parts,
    keys_apart,
    swap_right_join,
    untied,
)
from sfumato.query.statements.unit_aggregates import (
    having_of_unit,
    is_unit_key,
    most_rows,
    public_aggregate,
    refuse_other_units,
    unit_aggregate,
    unit_group_keys,
    unit_key,
)
from sfumato.query.statements.unit_rows import Part, UnitRows, built, named_bounds

_OUTSIDE = {"limit": "LIMIT", "order": "ORDER BY", "distinct": "DISTINCT", "having": "HAVING", "offset": "OFFSET"}
_CLAUSES = {"expressions", "from_", "joins", "where", "group", "with_"}


def refuse_inside(text: str, select: Any) -> None:  # noqa: ANN401
    """Refuse clauses that depend on all rows together.

    Raises:
        QueryError: the SELECT has such a clause.
    """
    from sqlglot import exp

    if not isinstance(select, exp.Select):
        raise refuse(text, select, "UNION, INTERSECT and EXCEPT are not supported")
    for clause, value in select.args.items():
        if value and clause in _OUTSIDE:
            at = value if isinstance(value, exp.Expression) and clause != "distinct" else select
            raise refuse(
                text, at, f"{_OUTSIDE[clause]} inside uses rows of other units; put it outside, after the noise"
            )
        if value and clause not in _CLAUSES:
            raise refuse(text, select, f"{clause.rstrip('_').upper()} is not supported in a SELECT inside another")


def unit_rows(
    text: str,
    select: Any,  # noqa: ANN401  (sqlglot's own)
    schema: Schema,
    known: Mapping[str, Part] | None = None,
) -> UnitRows:
    """Return the rows of FROM and its joins, filtered by EXISTS and IN; the rest of WHERE is their ``where``.

    Args:
        text: the statement.
        select: the parsed statement.
        schema: the public description of the tables.
        known: the statements that WITH names outside.

    Raises:
        QueryError: rows of two units could meet, or FROM names no table.
    """
    rows, conditions = _joined_rows(text, select, schema, known or {})
    _matched(rows, conditions)
    if rows.view.private:
        for node in (rows.where, *select.expressions):
            _add_public_values(rows, node)
        _count_rows_by_key(rows, select)
    return rows


def _count_rows_by_key(rows: UnitRows, select: Any) -> None:  # noqa: ANN401
    """Replace a table's own key in COUNT by ``*``, because all rows have that key."""
    from sqlglot import exp

    if any(join.side for join in select.args.get("joins") or []):
        return  # some rows may lack it
    parts = [select.args.get("having"), select.args.get("order"), *select.expressions]
    for count in [count for part in parts if part is not None for count in part.find_all(exp.Count)]:
        distinct = isinstance(count.this, exp.Distinct)
        column = count.this.expressions[0] if distinct else count.this
        repeats = distinct and (len(rows.parts) > 1 or rows.repeated)
        if isinstance(column, exp.Column) and not count.expressions and not repeats and _is_own_key(rows, column):
            star, named = exp.Count(this=exp.Star()), f"count({'distinct ' if distinct else ''}{column.name.lower()})"
            count.replace(exp.alias_(star, named, quoted=True) if count.parent is select else star)


def _is_own_key(rows: UnitRows, column: Any) -> bool:  # noqa: ANN401
    if rows.is_unit(column) or rows.has(column):
        return False
    parts = [part for part in rows.parts if column.table.casefold() in ("", part.alias.casefold())]
    keys = [part.own.column.casefold() for part in parts if part.own is not None]
    return keys.count(column.name.casefold()) == 1


def _add_public_values(rows: UnitRows, node: Any) -> None:  # noqa: ANN401
    """Compute each SELECT of a public table in an expression, and replace it by a column."""
    from sqlglot import exp

    for place in [] if node is None else list(node.find_all(exp.Subquery)):
        select = place.this
        if not isinstance(select, exp.Select) or isinstance(place.parent, exp.In):
            continue
        refuse_inside(rows.text, select)
        within, conditions = _joined_rows(rows.text, select, rows.schema, rows.known)
        if within.view.private:
            raise refuse(rows.text, place, "a SELECT inside an expression uses rows of other units")
        _matched(within, conditions)
        if within.where is not None:
            within.filter(within.where)
        name = place.sql(dialect="duckdb")
        if name not in rows.view.names:
            how, of = public_aggregate(within, select)
            rows.view = built(rows.text, place, partial(WithPublicValue, rows.view, name, within.view, of, how))
        place.replace(exp.column(exp.to_identifier(name, quoted=True)))


def _joined_rows(
    text: str,
    select: Any,  # noqa: ANN401
    schema: Schema,
    known: Mapping[str, Part],
    outer: UnitRows | None = None,
) -> tuple[UnitRows, list[Any]]:
    """Return the rows of FROM and its joins, and the remaining conditions of ON and WHERE."""
    known = _with_named(text, select.args.get("with_"), schema, known)
    source = select.args.get("from_")
    if source is None:
        raise refuse(text, select, "name a table after FROM")
    joins = select.args.get("joins") or []
    drafts = swap_right_join(source, joins, [_drafted(text, each.this, schema, known) for each in (source, *joins)])
    if len({part.alias.casefold() for part in drafts}) != len(drafts):
        raise refuse(text, source, "two tables have the same name; rename one with AS")
    parts = _named_apart(text, select, schema, [each.this for each in (source, *joins)], drafts)
    rows = UnitRows(text, schema, [], parts[0].view, known)
    where = None if select.args.get("where") is None else select.args["where"].this
    links = list(zip([source.this, *joins], parts, strict=True))
    return rows, join_parts(rows, links, list(conjuncts(where)), outer)


def _with_named(text: str, clause: Any, schema: Schema, known: Mapping[str, Part]) -> dict[str, Part]:  # noqa: ANN401
    """Return the known statements and the statements that WITH names."""
    from sqlglot import exp

    named = dict(known)
    own: set[str] = set()
    for each in [] if clause is None else clause.expressions:
        if clause.args.get("recursive") or not isinstance(each.this, exp.Select):
            raise refuse(text, each, "WITH names SELECT statements, and none of them is recursive")
        if each.alias.casefold() in own:
            raise refuse(text, each, f"WITH names two statements {each.alias}")
        own.add(each.alias.casefold())
        named[each.alias.casefold()] = inner_part(text, each, schema, named)
    return named


def _named_apart(
    text: str,
    select: Any,  # noqa: ANN401
    schema: Schema,
    nodes: Sequence[Any],
    drafts: Sequence[Part],
) -> list[Part]:
    """Return the parts of FROM with their derived columns; a shared name gets its table's name as a prefix."""
    from sqlglot import exp

    every_column = any(isinstance(each, exp.Star) or each.is_star for each in select.expressions)
    inside = every_column and select.parent is not None  # then the names of the whole statement are enough
    words = words_of(select.root() if inside else select)
    further = [_further(schema, part, words, every_column=every_column and not inside) for part in drafts]
    columns = (
        name.casefold() for part, more in zip(drafts, further, strict=True) for name in (*part.view.names, *more)
    )
    uses = Counter(columns)
    parts = [
        built(text, node, partial(_renamed, schema, part, more, uses))
        for node, part, more in zip(nodes, drafts, further, strict=True)
    ]
    taken = {name.casefold() for part in parts if part.table is not None for name in part.view.names}
    for place, part in enumerate(parts):
        if part.table is None:
            own = {name.casefold() for name in part.view.names}
            parts[place] = part.renamed(taken & own) if taken & own else part
            taken |= {name.casefold() for name in parts[place].view.names}
    return parts


def _drafted(text: str, node: Any, schema: Schema, known: Mapping[str, Part]) -> Part:  # noqa: ANN401
    """Return a table or statement under its name in the statement, before shared names are resolved."""
    from sqlglot import exp

    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Select):
        return inner_part(text, node, schema, known)
    extra = [name for name, value in node.args.items() if value and name not in ("this", "alias", "db", "catalog")]
    alias = node.args.get("alias")
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier) or extra:
        raise refuse(text, node, "FROM takes tables of the schema, and SELECT statements in parentheses")
    if alias is not None and alias.args.get("columns"):
        raise refuse(text, node, f"columns are named in a SELECT: (SELECT a AS b FROM {node.name}) AS {node.alias}")
    name = node.alias or node.name
    if node.name.casefold() in known and not node.args.get("db"):
        return replace(known[node.name.casefold()], alias=name)
    table = _table(schema, node.name)
    if table is None:
        raise refuse(text, node, f"no table {node.name!r} in the schema; it has {listed(each.name for each in schema)}")
    view = Scan(table, name, tuple(each.name for each in table.attributes))
    keys = {key.column.casefold(): place for place, key in enumerate(view.keys)}
    names = {each.casefold(): each for each in view.names}
    own = KeyColumn(name, table.key or "", table.name)
    if table.public:
        return Part(name, view, names, keys, None, table, None, own)
    unit = schema.unit_column(table.name) or schema.id or None  # a unit from another table has that table's name for it
    single = table.name == schema.units
    return Part(name, view, names, keys, unit, table, schema.bounds(table.name), own, single)


def _table(schema: Schema, name: str) -> SchemaTable | None:
    if isinstance(schema, OneTableSchema):
        return schema.tables[0]
    return next((each for each in schema if each.name.casefold() == name.casefold()), None)


def _further(schema: Schema, part: Part, words: frozenset[str], *, every_column: bool) -> tuple[str, ...]:
    """Return the derived columns and facts of a table that a statement or its bounds name; all of them under ``*``."""
    if part.table is None or not isinstance(part.view, Scan):
        return ()
    if every_column:
        return further_names(schema, part.table)
    per = () if part.bounds is None else part.bounds.per
    bounded = {word for bound in per for name in bound.by for word in words_in(name)}
    return needed_names(schema, part.table, words | bounded)


def _renamed(schema: Schema, part: Part, further: Sequence[str], uses: Mapping[str, int]) -> Part:
    """Return a table in which a name that several parts share gets the table's name as a prefix."""
    if not isinstance(part.view, Scan) or part.table is None:
        return part
    called = {
        name: f"{part.alias}.{name}" if uses[name.casefold()] > 1 else name for name in (*part.view.names, *further)
    }
    scan = Scan(part.view.table, part.alias, tuple(called[name] for name in part.view.names))
    view = with_derived(schema, scan, called)
    names = {name.casefold(): new for name, new in called.items()}
    return replace(part, view=view, names=names, bounds=named_bounds(part.bounds, called | names))


# --- rows that match others, or match none ----------------------------------------------------------------------------


def _matched(rows: UnitRows, conditions: Sequence[Any]) -> UnitRows:
    """Keep the rows that EXISTS and IN select, in conditions joined by AND; the rest is their ``where``."""
    from sqlglot import exp

    rest = []
    for part in conditions:
        negated, inner = False, part
        while isinstance(inner, exp.Not | exp.Paren):
            negated, inner = negated != isinstance(inner, exp.Not), inner.this
        if isinstance(inner, exp.EQ):
            inner = _as_membership(rows, inner)
        if isinstance(inner, exp.Exists):
            _keep_matched(rows, inner, inner.this, None, without=negated)
        elif isinstance(inner, exp.In) and inner.args.get("query") is not None:
            _keep_matched(rows, inner, inner.args["query"].this, inner.this, without=negated)
        else:
            rest.append(part)
    rows.where = exp.and_(*rest, copy=False) if rest else None
    return rows


def _as_membership(rows: UnitRows, node: Any) -> Any:  # noqa: ANN401
    """Return key = (SELECT key ...) as IN, because such a SELECT has one row; return other comparisons unchanged."""
    from sqlglot import exp

    for column, other in ((node.this, node.expression), (node.expression, node.this)):
        if isinstance(column, exp.Column) and isinstance(other, exp.Subquery) and rows.key(column) is not None:
            return exp.In(this=column.copy(), query=other.copy())
    return node


def _keep_matched(rows: UnitRows, node: Any, select: Any, column: Any, *, without: bool) -> None:  # noqa: ANN401
    """Keep the rows that have a match in another SELECT, or that have none.

    Args:
        rows: the rows.
        node: EXISTS, or IN.
        select: the SELECT in it.
        column: the column before IN; None for EXISTS.
        without: true to keep the rows without a match.
    """
    from sqlglot import exp

    text, schema = rows.text, rows.schema
    if not isinstance(select, exp.Select):
        raise refuse(text, select, "UNION, INTERSECT and EXCEPT are not supported")
    within, item, conditions = _inner_rows(rows, select, node)
    correlated = [each for each in conditions if correlation(rows, within, each)]
    equal = [JoinCondition(each) for each in correlated if isinstance(each, exp.EQ)]
    _matched(within, [each for each in conditions if not any(each is other for other in correlated)])
    if within.where is not None:
        within.filter(within.where)
    part = Part("", within.view, {}, {}, None, None, None)
    tie = correlated_tie(rows, within, equal, None if column is None else (column, item))
    unused = [each.node for each in equal if not any(each is used for used in tie.used)]
    apart = [keys_apart(rows, within, each) for each in correlated if not isinstance(each, exp.EQ)]
    if unused or not tie.is_sound(rows, part):
        raise refuse(text, unused[0] if unused else node, untied(rows, within, node))
    if without and column is not None and not all(is_never_missing(rows, within, pair) for pair in tie.pairs):
        raise refuse(
            text, node, "NOT IN finds no row if a key is missing; write NOT EXISTS (SELECT * ... WHERE key = other.key)"
        )
    if without and not tie.pairs and schema.units is None:
        raise refuse(text, node, "units without rows are known only if a table lists all units: declare unit.table")
    rows.view = built(text, node, lambda: OfUnits(rows.view, within.view, without, tie.pairs, tuple(apart)))


def _inner_rows(rows: UnitRows, select: Any, node: Any) -> tuple[UnitRows, Any, list[Any]]:  # noqa: ANN401
    """Return the rows of a SELECT after EXISTS or IN, its selected column, and its conditions."""
    from sqlglot import exp

    text, schema = rows.text, rows.schema
    exists = isinstance(node, exp.Exists)
    if not exists and len(select.expressions) != 1:
        raise refuse(text, node, f"IN needs a SELECT of one column, such as SELECT {schema.id} FROM ...")
    if select.args.get("group") is None and not has_aggregates(select):
        select.set("distinct", None)  # several matches count as one
        refuse_inside(text, select)
        within, conditions = _joined_rows(text, select, schema, rows.known, rows)
        return within, None if exists else select.expressions[0].unalias(), conditions
    if exists:
        raise refuse(text, node, f"EXISTS needs rows; for groups ask {schema.id} IN (SELECT {schema.id} ...)")
    part = inner_part(text, node.args["query"], schema, rows.known)
    item = select.expressions[0]
    return UnitRows(text, schema, [part], part.view, rows.known), exp.column(item.alias or item.unalias().name), []


# --- SELECT inside ----------------------------------------------------------------------------------------------------


def has_aggregates(select: Any) -> bool:  # noqa: ANN401
    """Return whether a SELECT itself has an aggregate."""
    from sqlglot import exp

    calls = (each for item in select.expressions for each in item.find_all(exp.AggFunc, exp.Anonymous))
    own = {form.function for form in FORMS} | SPELLINGS.keys()  # the parser has no function for IQR and MEAN
    return any(
        each.parent_select is select and (isinstance(each, exp.AggFunc) or each.name.upper() in own) for each in calls
    )


def inner_part(text: str, node: Any, schema: Schema, known: Mapping[str, Part]) -> Part:  # noqa: ANN401
    """Return a SELECT in parentheses, or one that WITH names, as a part of FROM.

    Raises:
        QueryError: it combines rows of several units.
    """
    from sqlglot import exp

    select, alias = node.this, node.alias or "unnamed_subquery"
    columns = [] if node.args.get("alias") is None else node.args["alias"].args.get("columns") or []
    if columns:
        if len(columns) != len(select.expressions):
            raise refuse(text, node, f"{alias} names {len(columns)} columns of {len(select.expressions)}")
        items = [exp.alias_(item.unalias(), name) for item, name in zip(select.expressions, columns, strict=True)]
        select.set("expressions", items)
    grouped = select.args.get("group") is not None or has_aggregates(select)
    if select.args.get("distinct") and not grouped:
        rows = _joined_rows(text, select.copy(), schema, known)[0]
        if any(rows.is_unit(item.unalias()) for item in select.expressions):  # then the unit is a group
            select.set("distinct", None)
            keys = [exp.Literal.number(place) for place in range(1, len(select.expressions) + 1)]
            select.set("group", exp.Group(expressions=keys))
            grouped = True
    return (per_unit if grouped else _listed_rows)(text, select, schema, known, alias)


def _listed_rows(text: str, select: Any, schema: Schema, known: Mapping[str, Part], alias: str) -> Part:  # noqa: ANN401
    """Return a SELECT that lists rows, with its columns alone."""
    from sqlglot import exp

    refuse_inside(text, select)
    rows = unit_rows(text, select, schema, known)
    if rows.where is not None:
        rows.filter(rows.where)
    names: dict[str, str] = {}
    keys: dict[str, int] = {}
    units: list[str] = []
    for item in select.expressions:
        node = item.unalias()
        if item.is_star:
            for part in rows.parts:
                if not isinstance(node, exp.Column) or part.alias.casefold() == node.table.casefold():
                    names |= part.names
                    keys |= {name: rows.place(part, place) for name, place in part.keys.items()}
                    units += [part.unit] if part.unit is not None else []
            continue
        name = (item.alias or (node.name if isinstance(node, exp.Column) else node.sql(dialect="duckdb"))).casefold()
        if name in names or name in keys or name in {unit.casefold() for unit in units}:
            raise refuse(text, item, f"two columns of {alias} are called {name}; rename one with AS")
        key = rows.key(node) if isinstance(node, exp.Column) else None
        keys |= {} if key is None else {name: key}
        if rows.is_unit(node):
            units.append(name)
        elif key is None or rows.has(node):
            names[name] = rows.attribute(node) if isinstance(node, exp.Column) else _row_value(rows, node, name)
    unit, part = units[0] if units else None, rows.parts[rows.listed]
    return Part(alias, rows.view, names, keys, unit, None, rows.bounds, part.own, part.single, rows.repeated)


def _row_value(rows: UnitRows, node: Any, name: str) -> str:  # noqa: ANN401
    """Return the attribute for an expression over one row."""
    labels = None if is_value(node) else rows.labels(node)
    return str(rows.computed(node, name).name) if labels is None else rows.add(node, name, labels)


def per_unit(text: str, select: Any, schema: Schema, known: Mapping[str, Part], alias: str) -> Part:  # noqa: ANN401
    """Return a statement of one row per unit as a part of FROM.

    Raises:
        QueryError: an expression reads rows of other units, or the statement is no such statement.
    """
    from sqlglot import exp

    having = select.args.get("having")
    select.set("having", None)
    refuse_inside(text, select)
    rows = unit_rows(text, select, schema, known)
    if rows.where is not None:
        rows.filter(rows.where)
    keys = unit_group_keys(text, select)
    if not any(rows.is_unit(key) for key in keys):
        group = select.args.get("group")
        raise refuse_other_units(rows, select, group or select)
    named = {each.alias.casefold(): each.this for each in select.expressions if isinstance(each, exp.Alias)}
    by = tuple(unit_key(rows, key, named) for key in keys if not rows.is_unit(key))
    unit, values = schema.id, []
    called: dict[str, str] = {}
    nodes: dict[str, Any] = {}
    for item in select.expressions:
        node, name = item.unalias(), item.alias
        if rows.is_unit(node):
            unit = name or node.name
        elif is_unit_key(rows, node, name, by):
            if name and isinstance(node, exp.Column) and rows.has(node):
                called[name.casefold()] = rows.attribute(node)
        else:
            if not name:
                raise refuse(text, node, "name each value computed per unit with AS")
            values.append((name, unit_aggregate(rows, node)))
            nodes[name] = node
    condition = None if having is None else having_of_unit(rows, having.this, values, nodes)
    if not values and not by:
        values.append(("rows", RowCount(most_rows(rows, None))))
    view = built(text, select, lambda: PerUnit(rows.view, by, tuple(values)))
    named_again = {attribute.casefold() for attribute in called.values()}
    names = {name.casefold(): name for name in view.names if name.casefold() not in named_again} | called
    assert rows.bounds is not None
    loose = rows.bounds.bounded(rows=most_rows(rows, None), per=())
    part = Part(alias, view, names, {}, unit, None, one_row_bounds(loose, view), None, not view.by)
    return part if condition is None else _filtered(rows, part, condition)


def _filtered(rows: UnitRows, part: Part, condition: Any) -> Part:  # noqa: ANN401
    within = UnitRows(rows.text, rows.schema, [part], part.view, rows.known)
    within.filter(condition)
    return replace(part, view=within.view)
