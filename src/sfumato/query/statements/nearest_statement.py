"""Statements that resemble a refused one, the nearest first.  The caller tests whether they are accepted.

They are computed from the refused statement and the declared names alone.  Instead of a comparison that cuts a cell
they include the whole cell, exclude it, or compare the values themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from sfumato.domain import Attribute, Categorical
from sfumato.errors import SfumatoError
from sfumato.query.statements.aggregate_calls import mode_column
from sfumato.query.statements.cut_cells import CutCellError
from sfumato.query.statements.sql_condition import Place, parsed, place_at, place_of, texts_alike
from sfumato.query.statements.table_joins import conjuncts

_SPELLINGS = (
    (re.compile(r";\s*\S.*", re.DOTALL), ""),
    (re.compile(r"`([^`]*)`"), r'"\1"'),
    (re.compile(r"\[([A-Za-z_]\w*)\]"), r'"\1"'),
    (re.compile(r"\)\s+'([^']*)'"), r') AS "\1"'),
    (re.compile(r"&&"), "AND"),
)
"""What other databases write, and what the grammar writes for it."""
_PERIODS = {"%Y": "year", "%Y-%m": "month", "%Y-%m-%d": "day"}
_WORDS = ("SELECT", "COUNT", "FROM", "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "DISTINCT", "BETWEEN")
_DATE = re.compile(r"CAST\(('[^']*') AS (DATE|TIMESTAMP)\)")
Refusal: TypeAlias = Callable[[str], SfumatoError | None]
"""A function that returns why a statement is refused; None if it is read."""

_MOST = 20  # replaced comparisons per statement


def nearest(text: str, refusal: Refusal) -> Iterator[str]:
    """Yield statements that resemble a refused one, the nearest first; they may be refused as well."""
    from sqlglot import exp

    select = parsed(text)
    while isinstance(select, exp.SetOperation):
        select = select.this
    yield _with_left_joins(select)
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


def respelled(text: str) -> Iterator[str]:
    """Yield texts with SQL's quotes, signs and words instead of other databases' forms and misspellings."""
    from difflib import get_close_matches

    for pattern, fresh in _SPELLINGS:
        text = pattern.sub(fresh, text)
        yield text
    words = {word for word in re.findall(r"[A-Za-z]{4,}", text) if word.upper() not in _WORDS}
    for word in sorted(words, key=text.index):
        for near in get_close_matches(word.upper(), _WORDS, n=1, cutoff=0.75):
            yield re.sub(rf"\b{word}\b", near, text)


def compared_otherwise(text: str, attributes: Sequence[Attribute]) -> Iterator[str]:
    """Yield statements with IS NULL for a comparison with NULL, values for a pattern, and periods for formats.

    Args:
        text: the statement.
        attributes: the declared attributes.
    """
    from sqlglot import exp

    def change(node: Any) -> Any:  # noqa: ANN401
        match node:
            case exp.EQ(this=column, expression=exp.Null()):
                return exp.Is(this=column, expression=exp.Null())
            case exp.NEQ(this=column, expression=exp.Null()):
                return exp.not_(exp.Is(this=column, expression=exp.Null()))
            case exp.In(this=column, expressions=listed) if any(isinstance(each, exp.Null) for each in listed):
                rest = [each for each in listed if not isinstance(each, exp.Null)]
                missing = exp.Is(this=column.copy(), expression=exp.Null())
                return exp.paren(exp.or_(exp.In(this=column, expressions=rest), missing)) if rest else missing
            case exp.Like() | exp.ILike() | exp.SimilarTo() | exp.RegexpLike():
                own = (each for each in attributes if each.name.casefold() == node.this.name.casefold())
                values = [value for each in own if isinstance(each, Categorical) for value in each.values]
                texts = [each for each in values if isinstance(each, str)]
                met = texts_alike(node, node.expression.name, texts) if node.expression.is_string else []
                listed = [exp.Literal.string(each) for each in met]
                fresh = exp.In(this=node.this, expressions=listed) if met else node
                return exp.not_(fresh) if met and node.args.get("negate") else fresh
        return _calendar_form(node)

    with suppress(SfumatoError):
        select = parsed(text)
        fresh = select.transform(change)
        if fresh != select:
            yield str(fresh.sql(dialect="duckdb", normalize_functions=False))


def _calendar_form(node: Any) -> Any:  # noqa: ANN401
    """Return the period or part of a date that matches a cast, a format or a function of another database."""
    from sqlglot import exp

    match node:
        case exp.Cast(this=exp.Column() as column) if node.is_type("date"):
            return exp.func("DATE_TRUNC", exp.Literal.string("day"), column, dialect="duckdb")
        case exp.Anonymous(expressions=[exp.Column(this=part), exp.Column() as column]) if (
            node.name.upper() == "DATEPART"
        ):
            return exp.Extract(this=exp.var(part.name.upper()), expression=column)
        case exp.Date(this=exp.Column() as column) | exp.TsOrDsToDate(this=exp.Column() as column):
            return exp.func("DATE_TRUNC", exp.Literal.string("day"), column, dialect="duckdb")
        case exp.TimeToStr(this=column) if node.text("format") in _PERIODS:
            column = column.this if isinstance(column, exp.Cast | exp.TsOrDsToTimestamp) else column
            return exp.func("DATE_TRUNC", exp.Literal.string(_PERIODS[node.text("format")]), column, dialect="duckdb")
    return node


def corrected(text: str, place: object, names: Sequence[str], values: Sequence[str]) -> Iterator[str]:
    """Yield statements with the unknown name or value at a place replaced by a similar declared one.

    Args:
        text: the statement.
        place: the place of the refusal; anything else yields nothing.
        names: the declared names of columns and tables.
        values: the declared texts.
    """
    from difflib import get_close_matches

    from sqlglot import TokenType, tokenize

    if not isinstance(place, Place):
        return
    declared = {name.casefold(): name for name in names}
    texts = {value.casefold(): "'" + value.replace("'", "''") + "'" for value in values}
    tokens = list(tokenize(text, read="duckdb"))
    after = [each for each in tokens if place_at(text, each.start) >= place]
    for token in after[:3:2] if len(after) > 1 and after[1].text == "." else after[:1]:
        if token.text.casefold() in declared:
            continue
        for near in get_close_matches(token.text.casefold(), list(texts), n=2, cutoff=0.8):
            yield f"{text[: token.start]}{texts[near]}{text[token.end + 1 :]}"
        if token.token_type is TokenType.STRING:
            yield f"{text[: token.start]}{token.text}{text[token.end + 1 :]}"
            continue
        for near in get_close_matches(token.text.casefold(), list(declared), n=2):
            name = declared[near] if declared[near].isidentifier() else f'"{declared[near]}"'
            fresh = text
            for same in reversed([each for each in tokens if each.text == token.text]):
                fresh = f"{fresh[: same.start]}{name}{fresh[same.end + 1 :]}"
            yield fresh


def _with_left_joins(select: Any) -> str:  # noqa: ANN401
    """Return a statement whose outer joins are LEFT JOIN; conditions of ON about other tables move to WHERE."""
    from sqlglot import exp

    fresh = select.copy()
    moved = []
    for join in fresh.args.get("joins") or []:
        if not join.args.get("side"):
            continue
        join.set("side", "LEFT")
        parts = [] if join.args.get("on") is None else list(conjuncts(join.args["on"]))
        own = [each for each in parts if each.find(exp.Column) and _is_of(each, join.alias_or_name)]
        if own and len(own) < len(parts):
            join.set("on", exp.and_(*own))
            moved += [each for each in parts if each not in own]
    return str((fresh.where(*moved, copy=False) if moved else fresh).sql(dialect="duckdb", normalize_functions=False))


def _is_of(condition: Any, name: str) -> bool:  # noqa: ANN401
    """Return whether a condition is an equality of columns, or names columns of one table alone."""
    from sqlglot import exp

    columns = list(condition.find_all(exp.Column))
    if isinstance(condition, exp.EQ) and len(columns) == 2:  # noqa: PLR2004
        return True
    return all(column.table.casefold() in ("", name.casefold()) for column in columns)


def disjoint_sides(text: str, refusal: Refusal) -> list[str]:
    """Return two statements whose numbers of rows add up to the number for a statement with OR, if they are accepted.

    The first keeps the rows that a SELECT after EXISTS or IN matches.  The second keeps unmatched rows that meet the
    other side of OR.
    """
    from sqlglot import exp

    select = parsed(text)
    where = select.args.get("where") if isinstance(select, exp.Select) else None
    parts = [] if where is None else list(conjuncts(where.this))
    for place, part in enumerate(parts):
        sides = part.unnest().flatten() if isinstance(part.unnest(), exp.Or) else ()
        for matched in (each for each in sides if _is_match(each)):
            others = [each.copy() for each in part.unnest().flatten() if each is not matched]
            rest = [each.copy() for at, each in enumerate(parts) if at != place]
            apart = [exp.not_(matched.copy()), exp.or_(*others)]
            both = [_with_conditions(select, [*rest, matched.copy()]), _with_conditions(select, [*rest, *apart])]
            return [*both] if all(refusal(each) is None for each in both) else []
    return []


def _is_match(node: Any) -> bool:  # noqa: ANN401
    from sqlglot import exp

    return isinstance(node, exp.Exists) or (isinstance(node, exp.In) and node.args.get("query") is not None)


def _with_conditions(select: Any, conditions: Sequence[Any]) -> str:  # noqa: ANN401
    from sqlglot import exp

    fresh = select.copy()
    fresh.set("where", exp.Where(this=exp.and_(*conditions)))
    return str(fresh.sql(dialect="duckdb", normalize_functions=False))


def _with_groups(select: Any) -> tuple[list[Any], list[Any]]:  # noqa: ANN401
    """Return the aggregates of a refused statement and its keys, including keys of windows and plain columns."""
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
    """Return the statements that include the cut cells, exclude them, or compare values, if they are accepted.

    Args:
        text: the refused statement.
        refusal: tests a statement.
    """
    statements = (_replaced(text, refusal, how) for how in (_with_cell, _without_cell, _of_values))
    return list(dict.fromkeys(each for each in statements if each is not None))


def _replaced(text: str, refusal: Refusal, replacement: Callable[[Any, Any, CutCellError], Any]) -> str | None:
    """Replace every comparison of a statement that cuts a cell; return None if the result is still refused."""
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
    """Return the compared literal at a place; None if there is none."""
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
    """Return the same comparison for a computed number, which is independent of the column's cells."""
    from sqlglot import exp

    if not isinstance(cut.culprit, Place) or "'" in cut.first:  # a date, which has no arithmetic here
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
    """Return a sort key for the literals of one column: a number, or the text of a date."""
    from sqlglot import exp

    if isinstance(value, exp.Cast) or value.is_string:
        return (value.this if isinstance(value, exp.Cast) else value).name
    return float(value.sql())


def _literal(text: str | None) -> Any:  # noqa: ANN401
    from sqlglot import parse_one

    return None if text is None else parse_one(text, read="duckdb")
