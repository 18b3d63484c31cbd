"""The statements that are like a refused one, the nearest first: whether they are read is tried by the caller's reader.

Of a comparison that cuts a cell they have the whole cell in, the whole cell out, or compare the values themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from sfumato.errors import SfumatoError
from sfumato.query.statements.aggregate_calls import mode_column
from sfumato.query.statements.cut_cells import CutCellError
from sfumato.query.statements.sql_condition import Place, parsed, place_of

_DATE = re.compile(r"CAST\(('[^']*') AS (DATE|TIMESTAMP)\)")
Refusal: TypeAlias = Callable[[str], SfumatoError | None]
"""A function that returns why a statement is refused; None if it is read."""

_MOST = 20  # comparisons of a statement that are replaced


def nearest(text: str, refusal: Refusal) -> Iterator[str]:
    """Yield statements that are like a refused one, the nearest first.  Whether they are read is not known."""
    from sqlglot import exp

    select = parsed(text)
    while isinstance(select, exp.SetOperation):
        select = select.this
    select = select.copy()
    for clause in ("having", "order", "limit", "offset", "distinct", "qualify"):
        select.set(clause, None)
    yield select.sql(dialect="duckdb")
    items, keys = _with_groups(select)
    modes = [column for item in items if (column := mode_column(item)) is not None]
    if modes:
        count = exp.alias_(exp.Count(this=exp.Star()), "n")
        yield f"{_asking(select, [*keys, *modes, count], [*keys, *modes])} ORDER BY n DESC"
    for conditions in dict.fromkeys((select.args.get("where"), None)):
        select.set("where", conditions)
        working = [each for each in items if refusal(_asking(select, [each], [])) is None]
        if working:
            yield _asking(select, [*keys, *working], keys)
            yield _asking(select, working, [])
        yield _asking(select, [*keys, exp.Count(this=exp.Star())], keys)
        yield _asking(select, [exp.Count(this=exp.Star())], [])
    for table in select.find_all(exp.Table):
        yield exp.select("COUNT(*)").from_(table.copy()).sql(dialect="duckdb")


def _with_groups(select: Any) -> tuple[list[Any], list[Any]]:  # noqa: ANN401
    """Return the aggregates of a refused statement, and its keys: those of windows and plain columns as well."""
    from sqlglot import exp

    group = select.args.get("group")
    keys = [] if group is None else [key for key in group.expressions if not isinstance(key, exp.Literal)]
    items = []
    for item in (each.unalias() for each in select.expressions):
        window = item if isinstance(item, exp.Window) else None
        keys += [] if window is None else window.args.get("partition_by") or []
        keys += [item] if isinstance(item, exp.Column) and not item.is_star else []
        items += [item, *item.find_all(exp.AggFunc)] if window is None else [item.this]
    return list(dict.fromkeys(items)), list(dict.fromkeys(keys))


def _asking(select: Any, items: Sequence[Any], keys: Sequence[Any]) -> str:  # noqa: ANN401
    """Return a statement with other columns and groups, and the same FROM and WHERE."""
    from sqlglot import exp

    statement = select.copy()
    statement.set("expressions", [item.copy() for item in items])
    statement.set("group", exp.Group(expressions=[key.copy() for key in keys]) if keys else None)
    return str(statement.sql(dialect="duckdb"))


def at_edges(text: str, refusal: Refusal) -> list[str]:
    """Return the statements with the cut cells in, with them out, and with a comparison of values, if they are read.

    Args:
        text: the refused statement.
        refusal: tries a statement.
    """
    statements = (_replaced(text, refusal, how) for how in (_with_cell, _without_cell, _of_values))
    return list(dict.fromkeys(each for each in statements if each is not None))


def _replaced(text: str, refusal: Refusal, replacement: Callable[[Any, Any, CutCellError], Any]) -> str | None:
    """Return a statement in which every comparison that cuts a cell is replaced; None if it is still refused."""
    from sqlglot import exp

    for _ in range(_MOST):
        refused = refusal(text)
        if refused is None:
            return text
        value = _value_at(text, refused.culprit) if isinstance(refused, CutCellError) else None
        fresh = None if value is None else replacement(value.parent, value, refused)  # type: ignore[arg-type]
        if value is None or fresh is None:
            return None
        root = value.root()
        alone = isinstance(fresh, exp.Paren) and isinstance(value.parent.parent, exp.Where | exp.Paren)
        value.parent.replace(fresh.this if alone else fresh)
        text = _DATE.sub(r"\2 \1", root.sql(dialect="duckdb", normalize_functions=False))
    return None


def _value_at(text: str, place: object) -> Any:  # noqa: ANN401  (sqlglot's own)
    """Return the literal at a place that a comparison compares with; None if there is none."""
    from sqlglot import exp

    kinds = exp.GT | exp.GTE | exp.LT | exp.LTE | exp.EQ | exp.NEQ | exp.Between | exp.In
    for node in parsed(text).find_all(kinds):
        for value in node.iter_expressions():
            if isinstance(place, Place) and not isinstance(value, exp.Column) and place_of(text, value) == place:
                return value
    return None


def _with_cell(node: Any, value: Any, cut: CutCellError) -> Any:  # noqa: ANN401
    """Return a comparison that holds for the whole cell."""
    from sqlglot import exp

    first, last, after = map(_literal, cut.edges)
    match node:
        case exp.Between() if value is node.args["low"]:
            return _between(node.this, first, node.args["high"])
        case exp.Between():
            low = node.args["low"]
            return _between(node.this, low, last) if last else _range(node.this, low, after)
        case exp.In():
            rest = [each for each in node.expressions if each is not value]
            listed = [exp.In(this=node.this.copy(), expressions=[each.copy() for each in rest])] if rest else []
            return exp.paren(exp.or_(*listed, _cell(node.this, first, last, after)))
        case exp.EQ() | exp.NEQ():
            column = node.expression if value is node.this else node.this
            cell = _cell(column, first, last, after)
            return exp.not_(cell) if isinstance(node, exp.NEQ) else cell
    column, upward = _sides(node, value)
    if upward:
        return exp.GTE(this=column.copy(), expression=first)
    return exp.LT(this=column.copy(), expression=after) if after else exp.LTE(this=column.copy(), expression=last)


def _without_cell(node: Any, value: Any, cut: CutCellError) -> Any:  # noqa: ANN401
    """Return a comparison that holds for no value of the cell; None if there is none."""
    from sqlglot import exp

    first, _, after = map(_literal, cut.edges)
    match node:
        case exp.Between() if value is node.args["low"]:
            return None if after is None else _between(node.this, after, node.args["high"])
        case exp.Between():
            low = node.args["low"]
            return None if _order(low) >= _order(first) else _range(node.this, low, first)
        case exp.In() if len(node.expressions) > 1:
            rest = [each.copy() for each in node.expressions if each is not value]
            return exp.In(this=node.this.copy(), expressions=rest)
        case exp.In() | exp.EQ() | exp.NEQ():
            return None
    column, upward = _sides(node, value)
    if not upward:
        return exp.LT(this=column.copy(), expression=first)
    return None if after is None else exp.GTE(this=column.copy(), expression=after)


def _of_values(node: Any, _: Any, cut: CutCellError) -> Any:  # noqa: ANN401
    """Return the same comparison of a computed number, which the cells of the column do not bind."""
    from sqlglot import exp

    if not isinstance(cut.culprit, Place) or "'" in cut.first:  # a date, with which nothing is computed
        return None
    fresh = node.copy()
    for name, part in node.args.items():
        if isinstance(part, exp.Column):
            fresh.set(name, exp.Add(this=part.copy(), expression=exp.Literal.number(0)))
    return None if fresh == node else fresh


def _sides(node: Any, value: Any) -> tuple[Any, bool]:  # noqa: ANN401
    """Return the column of a comparison, and whether large values meet it."""
    from sqlglot import exp

    if value is node.this:
        return node.expression, isinstance(node, exp.LT | exp.LTE)
    return node.this, isinstance(node, exp.GT | exp.GTE)


def _cell(column: Any, first: Any, last: Any, after: Any) -> Any:  # noqa: ANN401
    return _range(column, first, after) if last is None else _between(column, first, last)


def _between(column: Any, low: Any, high: Any) -> Any:  # noqa: ANN401
    from sqlglot import exp

    return exp.Between(this=column.copy(), low=low.copy(), high=high.copy())


def _range(column: Any, low: Any, after: Any) -> Any:  # noqa: ANN401
    from sqlglot import exp

    start, end = exp.GTE(this=column.copy(), expression=low.copy()), exp.LT(this=column.copy(), expression=after.copy())
    return exp.paren(exp.and_(start, end))


def _order(value: Any) -> Any:  # noqa: ANN401
    """Return a number, or the text of a date, by which literals of one column are ordered."""
    from sqlglot import exp

    if isinstance(value, exp.Cast) or value.is_string:
        return (value.this if isinstance(value, exp.Cast) else value).name
    return float(value.sql())


def _literal(text: str | None) -> Any:  # noqa: ANN401
    from sqlglot import parse_one

    return None if text is None else parse_one(text, read="duckdb")
