"""Joins of FROM, on declared keys or by the unit.

ON, USING and WHERE are equivalent for an inner join, so their equalities are read together.  The first private table
comes first.  Each other table follows as soon as an equality ties it to the joined tables.  A LEFT JOIN keeps its
written place and uses its own ON alone.
"""

# ruff: noqa: S608 - messages show statements, and none is ever sent to an engine

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from sfumato.arguments import listed
from sfumato.domain.expression import Constant
from sfumato.domain.table_schema import Schema
from sfumato.domain.view import Computed, Join, KeyColumn
from sfumato.query.statements.sql_condition import chain, refuse
from sfumato.query.statements.unit_rows import Part, UnitRows, built

FromPart = tuple[Any, Part]
"""A node of FROM or of a join, and its part."""


@dataclass(frozen=True, eq=False)
class JoinCondition:
    """A part of ON, USING or WHERE.

    Attributes:
        node: the condition; the name of the column for USING.
        of: the part whose join has the condition; None for WHERE.
        named: true for a name of USING or of NATURAL JOIN, which both sides have.
        parts: the parts of FROM that may contain a column written without its table.
        outer: the rows outside a SELECT after EXISTS or IN.
    """

    node: Any
    of: Part | None = None
    named: bool = False
    parts: tuple[Part, ...] = ()
    outer: UnitRows | None = None

    def ends(self, rows: UnitRows, part: Part) -> list[tuple[Any, Any]]:
        """Return the pairs of columns, of the rows and of a part, that the condition may compare."""
        from sqlglot import exp

        if not self.named:
            node = self.node
            while isinstance(node, exp.Paren):
                node = node.this
            if not isinstance(node, exp.EQ):
                return []
            if not isinstance(node.this, exp.Column) or not isinstance(node.expression, exp.Column):
                return []
            outer = self.outer
            if outer is not None and any(is_outside(each, self.parts, outer) for each in (node.this, node.expression)):
                return []
            left, right = (self._qualified(each, rows) for each in (node.this, node.expression))
            return [(left, right), (right, left)]
        assert self.of is not None
        if part is self.of:
            return [(exp.Column(this=self.node), exp.Column(this=self.node))]
        if not any(self.of is part for part in rows.parts):
            return []
        return [(exp.column(self.node, table=self.of.alias), exp.Column(this=self.node))]

    def _qualified(self, column: Any, rows: UnitRows) -> Any:  # noqa: ANN401
        """Return a column with the name of the only part that has it; other parts may use its name for their unit."""
        from sqlglot import exp

        owners = [part for part in self.parts if column.name.casefold() in part.columns(rows.schema)]
        if column.table or len(owners) != 1:
            return column
        return exp.column(column.this.copy(), table=exp.to_identifier(owners[0].alias, quoted=True))


@dataclass(frozen=True)
class Tie:
    """The equalities that tie a part to rows.

    Attributes:
        pairs: indices of equal keys of the rows and of the part.
        by_unit: true if the units are equal.
        used: the conditions with these equalities.
    """

    pairs: tuple[tuple[int, int], ...]
    by_unit: bool
    used: tuple[JoinCondition, ...]

    @staticmethod
    def between(rows: UnitRows, part: Part, conditions: Sequence[JoinCondition]) -> Tie:
        """Return the equalities of keys, and of the unit, in conditions."""
        alone = UnitRows(rows.text, rows.schema, [part], part.view, {})
        pairs, by_unit, used = [], False, []
        for each in conditions:
            for left, right in each.ends(rows, part):
                if rows.is_unit(left) and alone.is_unit(right):
                    by_unit = True
                    used.append(each)
                    break
                one, other = rows.key(left), alone.key(right)
                if one is not None and other is not None and tied(rows.view.keys[one], part.view.keys[other], part):
                    pairs.append((one, other))
                    used.append(each)
                    break
        return Tie(tuple(pairs), by_unit, tuple(used))

    def is_sound(self, rows: UnitRows, part: Part) -> bool:
        """Return whether rows of two units cannot meet: by the unit, or by the key of rows of one unit."""
        if not part.view.private:
            return bool(self.pairs)
        private = (not rows.schema[rows.view.keys[one].of].public for one, _ in self.pairs)
        return self.by_unit or any(private)


def tied(one: KeyColumn, other: KeyColumn, part: Part) -> bool:
    """Return whether two columns hold keys of one table; a public table may be looked up by any key."""
    return one.of == other.of or not part.view.private


def equality(schema: Schema, one: Part, other: Part) -> str | None:
    """Return an equality that ties two parts, as text; None if they have no key of one table."""
    for left, place in one.keys.items():
        for right, at in other.keys.items():
            of = one.view.keys[place].of
            if of == other.view.keys[at].of and not (other.view.private and schema[of].public):
                return f"{one.alias}.{left} = {other.alias}.{right}"
    private = one.unit and other.unit and other.unit.casefold() in other.column_keys(schema)
    held = private and one.unit is not None and one.unit.casefold() in one.column_keys(schema)
    return f"{one.alias}.{one.unit} = {other.alias}.{other.unit}" if held else None


def conjuncts(node: Any) -> Iterator[Any]:  # noqa: ANN401  (sqlglot's own)
    """Yield the conditions joined by AND; an equality that all sides of an OR share is one of them."""
    from sqlglot import exp

    waiting = [] if node is None else [node]
    while waiting:
        part = waiting.pop()
        inner = part
        while isinstance(inner, exp.Paren):
            inner = inner.this
        if isinstance(inner, exp.And):
            waiting += [inner.expression, inner.this]
        elif isinstance(inner, exp.Or):
            yield from _without_common(part, inner)
        else:
            yield part


def _without_common(node: Any, either: Any) -> Iterator[Any]:  # noqa: ANN401
    """Yield the equalities that all sides of an OR share, and the rest of the OR."""
    from sqlglot import exp

    sides = [list(conjuncts(each)) for each in chain(either)]
    common = [
        each
        for each in sides[0]
        if isinstance(each, exp.EQ)
        and isinstance(each.this, exp.Column)
        and isinstance(each.expression, exp.Column)
        and all(each in other for other in sides)
    ]
    if not common:
        yield node
        return
    yield from common
    rest = [[each for each in side if each not in common] for side in sides]
    if all(rest):
        yield exp.paren(exp.or_(*(exp.and_(*side, copy=False) for side in rest), copy=False), copy=False)


def join_parts(
    rows: UnitRows, links: Sequence[FromPart], where: Sequence[Any], outer: UnitRows | None = None
) -> list[Any]:
    """Join the parts of FROM to rows that have no parts yet.

    Args:
        rows: the rows, without parts.
        links: the node after FROM, then the joins, with their parts.
        where: the conditions of WHERE.
        outer: the rows outside, which conditions may refer to.

    Returns:
        The conditions that remain to be checked for each row.

    Raises:
        QueryError: rows of two units could meet, or an outer join keeps public rows.
    """
    parts = tuple(part for _, part in links)
    pool = [JoinCondition(node, parts=parts, outer=outer) for node in where]
    on: list[JoinCondition] = []
    waiting = [links[0]]
    for place, (join, part) in enumerate(links[1:], start=1):
        own = _own_conditions(rows, join, part, parts[:place])
        if (join.args.get("side") or "").upper():
            _inner(rows, waiting, links, [*on, *pool])
            waiting = []
            _outer(rows, join, part, own)
        else:
            waiting.append((join, part))
            on += own
    _inner(rows, waiting, links, [*on, *pool])
    rest = [each for each in (*on, *pool) if each not in rows.joined_by]
    return [each.node for each in rest]


def swap_right_join(source: Any, joins: Sequence[Any], drafts: list[Part]) -> list[Part]:  # noqa: ANN401
    """Replace ``a RIGHT JOIN b`` at the start of FROM by ``b LEFT JOIN a``; return the parts in the new order."""
    if not joins or (joins[0].args.get("side") or "").upper() != "RIGHT" or not drafts[1].view.private:
        return drafts
    first, second = source.this, joins[0].this
    source.set("this", second)
    joins[0].set("this", first)
    joins[0].set("side", "LEFT")
    return [drafts[1], drafts[0], *drafts[2:]]


def _own_conditions(rows: UnitRows, join: Any, part: Part, before: Sequence[Part]) -> list[JoinCondition]:  # noqa: ANN401
    """Return the conditions of a join's ON, USING or NATURAL JOIN; refuse joins of other kinds."""
    method, side = (join.args.get("method") or "").upper(), (join.args.get("side") or "").upper()
    kinds = ("INNER", "OUTER", "CROSS")
    if side:
        _refuse_side(rows, join, part, side)
    if method not in ("", "NATURAL") or (join.args.get("kind") or "INNER").upper() not in kinds:
        raise refuse(rows.text, join.this, "join by JOIN, LEFT JOIN or RIGHT JOIN, with ON or USING")
    shared = _shared_names(rows, join, part, before) if method else join.args.get("using") or []
    rows.merged |= {name.name.casefold() for name in shared}
    named = [JoinCondition(name, part, named=True) for name in shared]
    return [*named, *(JoinCondition(node, part, parts=(*before, part)) for node in conjuncts(join.args.get("on")))]


def _shared_names(rows: UnitRows, join: Any, part: Part, before: Sequence[Part]) -> list[Any]:  # noqa: ANN401
    """Return the columns that NATURAL JOIN compares, which are declared keys."""
    from sqlglot import exp

    columns = {name for each in before for name in each.columns(rows.schema)}
    shared = sorted(columns & part.columns(rows.schema))
    others = [name for name in shared if name in part.names or name not in part.column_keys(rows.schema)]
    if others or not shared:
        keys = [name for name in shared if name not in others]
        using = f"; write JOIN {part.alias} USING ({', '.join(keys)})" if keys else "; write JOIN ... ON"
        what = f"compares {', '.join(others)}, which are no keys" if others else "finds no key of both"
        raise refuse(rows.text, join.this, f"NATURAL JOIN {part.alias} {what}{using}")
    return [exp.to_identifier(name) for name in shared]


def _inner(
    rows: UnitRows,
    waiting: Sequence[FromPart],
    links: Sequence[FromPart],
    conditions: Sequence[JoinCondition],
) -> None:
    """Join parts in any order, as soon as a condition ties them to the rows."""
    remaining = list(waiting)
    if not rows.parts:
        rows.begin_with(_taken_first(rows, remaining, links))
    while remaining:
        unused = [each for each in conditions if each not in rows.joined_by]
        ties = ((link, Tie.between(rows, link[1], unused)) for link in remaining)
        link, tie = next(((link, tie) for link, tie in ties if tie.is_sound(rows, link[1])), (None, None))
        if link is None or tie is None:
            raise _not_joined(rows, remaining[0], unused)
        remaining.remove(link)
        _add(rows, link[0], link[1], tie, outer=False)


def _taken_first(rows: UnitRows, remaining: list[FromPart], links: Sequence[FromPart]) -> Part:
    """Take the first private part out of the remaining parts; a public part if FROM has no private one."""
    private = (link for link in remaining if link[1].view.private)
    first = next(private, links[0] if len(links) == 1 else None)
    if first is None:
        node = links[0][0]
        names = listed(each.name for each in rows.schema if not each.public)
        advice = f"rows of units are in {names}; what is public alone needs no noise"
        raise refuse(
            rows.text, node, f"start FROM with a private table, because a public row belongs to no unit; {advice}"
        )
    remaining.remove(first)
    return first[1]


def _outer(rows: UnitRows, join: Any, part: Part, own: Sequence[JoinCondition]) -> None:  # noqa: ANN401
    """Add a LEFT JOIN, whose further conditions apply to the rows of the joined part alone."""
    from sqlglot import exp

    tie = Tie.between(rows, part, own)
    if not tie.is_sound(rows, part):
        raise _not_joined(rows, (join, part), own)
    alone = UnitRows(rows.text, rows.schema, [part], part.view, {})
    rest = [each.node for each in own if each not in tie.used]
    for node in rest:
        if not all(alone.has(column) for column in node.find_all(exp.Column)):
            reason = f"ON of a LEFT JOIN takes the key and conditions on {part.alias} alone"
            raise refuse(rows.text, node, f"{reason}; put others in WHERE, which leaves out rows, or in CASE WHEN")
    if rest:
        alone.filter(exp.and_(*rest))
    part = replace(part, view=alone.view)
    _add(rows, join, _with_presence(rows, alone, join, part), tie, outer=True)


def _with_presence(rows: UnitRows, alone: UnitRows, join: Any, part: Part) -> Part:  # noqa: ANN401
    """Return a part with a column that is missing in rows without a match, if a statement tests a key for that."""
    from sqlglot import exp

    select = join.parent
    counts = [] if select.parent is not None else list(select.find_all(exp.Count))
    named = [node.this for node in (*select.find_all(exp.Is), *counts) if isinstance(node.this, exp.Column)]
    mine = [each for each in named if each.table.casefold() in ("", part.alias.casefold())]
    if not any(alone.knows(each) and not alone.has(each) for each in mine):
        return part
    name = f"a row of {part.alias}"
    rows.presence[part.alias.casefold()] = name
    return replace(part, view=Computed(part.view, name, Constant(Fraction(1))))


def _add(rows: UnitRows, join: Any, part: Part, tie: Tie, *, outer: bool) -> None:  # noqa: ANN401
    before, node = rows.view.keys, getattr(join, "this", join)
    rows.view = built(rows.text, node, lambda: Join(rows.view, part.view, tie.pairs, outer=outer))
    rows.parts = [*rows.parts, part]
    rows.joined_by += tie.used
    listed = rows.parts[rows.listed]
    met_once = listed.met_once([before[one] for one, _ in tie.pairs], by_unit=tie.by_unit)
    own_met_once = part.met_once([part.view.keys[other] for _, other in tie.pairs], by_unit=tie.by_unit)
    if own_met_once:
        return
    if part.view.private and met_once:
        rows.listed = len(rows.parts) - 1  # patients JOIN visits lists visits, like visits JOIN patients
    else:
        rows.repeated = True


def _not_joined(rows: UnitRows, link: FromPart, conditions: Sequence[JoinCondition]) -> Exception:
    """Return the refusal of a part without a tie to the rows."""
    from sqlglot import exp

    join, part = link
    last = rows.parts[-1].alias
    for each in conditions:
        compared = each.node if each.of is part and isinstance(each.node, exp.EQ) else None
        columns = [] if compared is None else [compared.this, compared.expression]
        if each.named and each.of is part:
            columns = [exp.Column(this=each.node)] * 2
        if columns and all(isinstance(column, exp.Column) for column in columns):
            names = [column.name for column in columns]
            if columns[0].table.casefold() == part.alias.casefold():
                names.reverse()
            declared = f"{names[0]} of {last} and {names[1]} of {part.alias} are not declared to be keys of one"
            if not Tie.between(rows, part, [each]).used:
                return refuse(rows.text, each.node, f"{declared} table")
    reason = f"{last} and {part.alias} are not joined on a declared key"
    example = next((words for other in rows.parts if (words := equality(rows.schema, other, part))), None)
    if part.view.private:
        reason += f": rows of two units would meet; add an equality of {rows.schema.id}"
        reason += f", or of a key of its rows: {example}" if example else ""
    elif example:
        reason += f": {example}"
    return refuse(rows.text, getattr(join, "this", join), reason)


def _refuse_side(rows: UnitRows, join: Any, part: Part, side: str) -> None:  # noqa: ANN401
    """Refuse joins that keep rows of the joined table: rows of a public table would have no owner."""
    if side == "LEFT":
        return
    if not part.view.private:
        advice = f"{side} JOIN keeps every row of {part.alias}, and a public row belongs to no unit"
        raise refuse(rows.text, join.this, f"{advice}; write JOIN or LEFT JOIN")
    if side == "RIGHT":
        raise refuse(rows.text, join.this, "RIGHT JOIN must be the first join of FROM")
    reason = "FULL JOIN lists rows of two tables, and an answer counts the rows of one"
    raise refuse(rows.text, join.this, f"{reason}; LEFT JOIN keeps all rows of the table before it")


# --- rows inside EXISTS and IN, and those outside ---------------------------------------------------------------------


def is_outside(column: Any, parts: Sequence[Part], rows: UnitRows) -> bool:  # noqa: ANN401
    """Return whether a column in a SELECT of some parts belongs to the rows outside."""
    name = column.name.casefold()
    if column.table:
        return column.table.casefold() not in {part.alias.casefold() for part in parts}
    if any(name in part.columns(rows.schema) for part in parts):
        return False
    return any(name in part.columns(rows.schema) for part in rows.parts)


def correlation(rows: UnitRows, within: UnitRows, node: Any) -> tuple[Any, Any] | None:  # noqa: ANN401
    """Return the outer and the inner column that a condition compares; None for other conditions."""
    from sqlglot import exp

    ends = (node.this, node.expression) if isinstance(node, exp.EQ | exp.NEQ) else ()
    if not ends or not all(isinstance(each, exp.Column) for each in ends):
        return None
    outside = [is_outside(each, within.parts, rows) for each in ends]
    if all(outside):  # the unit from another table has that table's name for it
        outside = [bool(each.table) or not within.is_unit(each) for each in ends]
    if outside.count(True) != 1:
        return None
    column, inside = ends if outside[0] else reversed(ends)
    return (column, inside) if rows.knows(column) else None


def correlated_tie(
    rows: UnitRows, within: UnitRows, equal: Sequence[JoinCondition], pair: tuple[Any, Any] | None
) -> Tie:
    """Return the keys that a correlated SELECT equates with outer keys."""
    from sqlglot import exp

    ends = [(each, *(correlation(rows, within, each.node) or ())) for each in equal]
    if pair is not None:
        ends.append((JoinCondition(exp.EQ(this=pair[0], expression=pair[1])), *pair))
    pairs, used, by_unit = [], [], False
    for condition, outside, inside in ends:
        if rows.is_unit(outside) and within.is_unit(inside):
            by_unit = True
            used.append(condition)
            continue
        one, other = rows.key(outside), within.key(inside)
        if one is not None and other is not None and _same_table(rows, within, one, other):
            pairs.append((one, other))
            used.append(condition)
    return Tie(tuple(pairs), by_unit, tuple(used))


def _same_table(rows: UnitRows, within: UnitRows, one: int, other: int) -> bool:
    return rows.view.keys[one].of == within.view.keys[other].of or not within.view.private


def is_never_missing(rows: UnitRows, within: UnitRows, pair: tuple[int, int]) -> bool:
    """Return whether two keys have a value in all rows of a view: own keys of private tables, and ties to an owner."""
    return all(
        any(
            key.column in (table.key, None if table.through is None else table.through.column)
            for table in view.tables
            if not table.public
        )
        for view, key in ((rows.view, rows.view.keys[pair[0]]), (within.view, within.view.keys[pair[1]]))
    )


def keys_apart(rows: UnitRows, within: UnitRows, node: Any) -> tuple[int, int]:  # noqa: ANN401
    """Return the indices of two keys that a correlated SELECT requires to differ."""
    outside, inside = correlation(rows, within, node) or (node, node)
    one, other = rows.key(outside), within.key(inside)
    if one is None or other is None:
        raise refuse(rows.text, node, "columns inside and outside are compared by keys only")
    return one, other


def untied(rows: UnitRows, within: UnitRows, node: Any) -> str:  # noqa: ANN401
    """Return a description of the missing tie between a SELECT after EXISTS or IN and the rows outside."""
    inner, unit = within.parts[0], rows.schema.id
    if not within.view.private:
        return f"rows of {inner.alias} are matched by a declared key of it"
    if type(node).__name__ == "In":
        return f"rows are matched by the unit or a key of its rows: {unit} IN (SELECT {unit} FROM {inner.alias} ...)"
    pairs = ((one, other) for one in within.parts for other in rows.parts)
    example = next((words for one, other in pairs if (words := equality(rows.schema, one, other))), None)
    tie = "an equality of the unit or of a key of its rows"
    return f"it would look at rows of other units; add {tie}{f', as {example}' if example else ''}"
