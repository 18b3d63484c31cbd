"""FROM with its joins: tables of a schema, and statements of one row a unit, whose rows meet by keys or by the unit."""

# ruff: noqa: S608 - messages show statements, and none is ever sent to an engine

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from sfumato.arguments import listed
from sfumato.domain.table_schema import Schema, SchemaTable
from sfumato.domain.view import Join, KeyColumn, OfUnits, PerUnit, Scan
from sfumato.query.statements.derived_columns import further_names, wanted, with_derived, words_in, words_of
from sfumato.query.statements.sql_condition import refuse
from sfumato.query.statements.unit_rows import Inner, Part, UnitRows, built

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
    inner: Inner,
    *,
    known: Mapping[str, Part] | None = None,
) -> UnitRows:
    """The rows that FROM and its joins have, those of WITH before them.

    Raises:
        QueryError: what could let rows of two units meet, or is no table.
    """
    from sqlglot import exp

    known = dict(known or {})
    together = select.args.get("with_")
    for each in [] if together is None else together.expressions:
        if together.args.get("recursive") or not isinstance(each.this, exp.Select):
            raise refuse(text, each, "WITH names statements of one row a unit")
        if each.alias.casefold() in known or _table(schema, each.alias) is not None:
            raise refuse(text, each, f"there is a table {each.alias} already")
        known[each.alias.casefold()] = inner(text, each.this, schema, known, each.alias)
    source = select.args.get("from_")
    if source is None:
        raise refuse(text, select, "say FROM which table")
    joins = select.args.get("joins") or []
    nodes = [source.this, *(join.this for join in joins)]
    drafts = [_drafted(text, node, schema, known, inner) for node in nodes]
    if len({part.alias.casefold() for part in drafts}) != len(drafts):
        raise refuse(text, source, "two tables have one name; give one of them another by AS")
    words = words_of(select)
    whole = any(isinstance(item, exp.Star) for item in select.expressions)
    further = [_further(schema, part, words, whole=whole) for part in drafts]
    taken: dict[str, int] = {}
    for part, more in zip(drafts, further, strict=True):
        for name in (*part.view.names, *more):
            taken[name.casefold()] = taken.get(name.casefold(), 0) + 1
    parts = [
        built(text, node, partial(_named_apart, schema, part, more, taken))
        for node, part, more in zip(nodes, drafts, further, strict=True)
    ]
    if not parts[0].view.private:
        raise refuse(
            text, source.this, f"begin FROM a private table: a public row belongs to no unit{_swap(joins, parts)}"
        )
    rows = UnitRows(text, schema, parts[:1], parts[0].view, known, inner)
    for join, part in zip(joins, parts[1:], strict=True):
        _join(rows, join, part)
    return rows


def _swap(joins: Sequence[Any], parts: Sequence[Part]) -> str:
    """What to write where FROM begins with a public table, if the tables need only be swapped for it."""
    side = (joins[0].args.get("side") or "").upper() if joins else "LEFT"
    if side in ("LEFT", "FULL") or not parts[1].view.private:
        return ""
    return f"; swap the tables: {parts[1].alias} {'LEFT ' if side else ''}JOIN {parts[0].alias}"


def _drafted(text: str, node: Any, schema: Schema, known: Mapping[str, Part], inner: Inner) -> Part:  # noqa: ANN401
    """A table or statement under the name that it is given, before it is told apart from others."""
    from sqlglot import exp

    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Select):
        if not node.alias:
            raise refuse(text, node, "name a SELECT in FROM by AS")
        return inner(text, node.this, schema, known, node.alias)
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


def _further(schema: Schema, part: Part, words: frozenset[str], *, whole: bool) -> tuple[str, ...]:
    """The derived columns and facts of a table that a statement names, or its bounds; all of them under ``*``."""
    if part.table is None or not isinstance(part.view, Scan):
        return ()
    if whole:
        return further_names(schema, part.table)
    per = () if part.bounds is None else part.bounds.per
    bounded = {word for bound in per for name in bound.by for word in words_in(name)}
    return wanted(schema, part.table, words | bounded)


def _named_apart(schema: Schema, part: Part, further: Sequence[str], taken: Mapping[str, int]) -> Part:
    """Attributes that several tables have under one name are called by the table's name and theirs."""
    if not isinstance(part.view, Scan):
        return part
    called = {
        name: f"{part.alias}.{name}" if taken[name.casefold()] > 1 else name for name in (*part.view.names, *further)
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
    """Refuse joins that keep rows of the table that is joined: of a public one they would belong to nobody."""
    if side == "LEFT":
        return
    if not part.view.private:
        told = f"{side} JOIN keeps every row of {part.alias}, and a public row belongs to no unit"
        raise refuse(rows.text, join.this, f"{told}; write JOIN or LEFT JOIN")
    before = rows.parts[0].alias if len(rows.parts) == 1 else "..."
    told = f"{part.alias} LEFT JOIN {before}"
    told = f"swap the tables: {told}" if side == "RIGHT" else f"ask {before} LEFT JOIN {part.alias}, and {told}"
    raise refuse(rows.text, join.this, f"{side} JOIN is no part of the grammar; {told}")


def _met_once(part: Part, keys: Sequence[KeyColumn], *, by_unit: bool, units: str | None) -> bool:
    """Whether a join by these keys, or by the unit, finds at most one row of a part."""
    if part.table is None:
        return by_unit and isinstance(part.view, PerUnit) and not part.view.by  # by further keys there may be several
    own = KeyColumn(part.alias, part.table.key or "", part.table.name)
    return own in keys or part.table.name == units


def _pairs(rows: UnitRows, join: Any, part: Part) -> tuple[list[tuple[int, int]], bool]:  # noqa: ANN401
    """Places of keys that a join finds equal, and whether it says that the units are."""
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
    alone = UnitRows(rows.text, rows.schema, [part], part.view, {}, rows.inner)
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
    """Whether two columns hold keys of one table; a public table may be looked up by any key."""
    return one.of == other.of or not part.view.private


def of_units(rows: UnitRows, where: Any) -> Any:  # noqa: ANN401
    """Keep the rows of units that another statement has or has not; what is left of the condition, or None."""
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
    inner = unit_rows(text, select, schema, rows.inner, known=rows.known)
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
