"""Statements over several tables: SQL becomes a view, whose rows each belong to one unit, and a query about it.

    SELECT region, DATE_TRUNC('month', admitted), COUNT(*) FROM visits JOIN patients USING (patient_id) GROUP BY ...

The grammar is closed, like that of :mod:`sfumato.query.statements.select_statement`.  Anything else is refused with its
place, and an engine never receives a statement.  FROM takes tables of the schema, statements of one row per unit in
parentheses or under WITH, and joins on declared keys or the unit.  HAVING, ORDER BY and LIMIT are about noisy answers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import chain, islice
from typing import Any

from sfumato.bounded_cache import cached
from sfumato.domain import Categorical, Integer, Real
from sfumato.domain.domain import Domain
from sfumato.domain.table_schema import Schema
from sfumato.domain.unit import GroupBound, Unit
from sfumato.domain.unit_views import OneTableSchema, one_table_schema
from sfumato.domain.view import BoundedView, Computed, Filter, PerUnit, RowCount, Scan
from sfumato.domain.view_words import may_cut
from sfumato.errors import QueryError, SfumatoError
from sfumato.privacy.loss import plain
from sfumato.query.aggregates import Count, Distinct
from sfumato.query.plan import plan
from sfumato.query.question import Query
from sfumato.query.statements.aggregate_calls import is_constant, plain_forms
from sfumato.query.statements.cut_cells import CutCellError
from sfumato.query.statements.derived_columns import has_declared_cells, is_value, labels_of
from sfumato.query.statements.from_clause import has_aggregates, per_unit, refuse_inside, unit_rows
from sfumato.query.statements.select_statement import group_keys, read_select
from sfumato.query.statements.sql_condition import Place, instead, parsed, refuse, refuse_clause
from sfumato.query.statements.unit_rows import UnitRows

_FEW_GROUPS = 20  # groups that a refusal suggests for a number
_LONGEST_REFUSED = 10_000  # a longer refused statement gets no suggestion (characters)
_CLAUSES = {
    "expressions",
    "from_",
    "joins",
    "where",
    "group",
    "having",
    "order",
    "limit",
    "offset",
    "with_",
    "distinct",
}


@dataclass(frozen=True)
class TableStatement:
    """A statement over several tables, as a query over a view.

    Attributes:
        view: the view whose rows are counted.
        query: the query over its rows.
    """

    view: BoundedView
    query: Query


def parse_tables(text: str, schema: Schema, *, bounds: Unit | None = None) -> TableStatement:
    """Read one SELECT statement over the tables of a schema.

    Args:
        text: the statement.
        schema: the public description of the tables.
        bounds: the bounds on the rows per unit in the view; None: the bounds of the table whose rows are listed.

    Raises:
        QueryError: anything outside the grammar; ``culprit`` is its :class:`Place`.
    """
    if not isinstance(text, str):
        raise QueryError("a statement is text", culprit=text)
    return _parsed(text, schema, bounds)


def parse_with_view(
    text: str, domain: Domain, refused: QueryError, *, groupable_undeclared: Sequence[str] = ()
) -> tuple[Query, BoundedView | None]:
    """Read a SELECT statement over a single table like a statement over a schema with this table alone.

    Args:
        text: the statement.  The names of the table and of its schema are free.
        domain: the public description of the table.
        refused: the error of :func:`sfumato.query.statements.select_statement.parse`, which reads most statements.
        groupable_undeclared: columns outside the domain that analysts may group by, if no view is needed.

    Returns:
        The query, and the view of the table whose rows it counts; None if these are the rows of the table.

    Raises:
        QueryError: anything outside the grammar; ``culprit`` is its :class:`Place`.
    """
    if not isinstance(refused.culprit, Place) or any(
        name.casefold() in text.casefold() for name in groupable_undeclared
    ):
        raise refused
    statement = parse_tables(text, one_table_schema(domain))
    return statement.query, None if isinstance(statement.view.view, Scan) else statement.view


@cached()  # a statement is usually previewed and then run
def _parsed(text: str, schema: Schema, bounds: Unit | None) -> TableStatement:
    from sqlglot import exp

    try:
        select = plain_forms(parsed(text))
    except QueryError as error:
        raise _with_remedy(error, text, schema) from None
    if isinstance(select, exp.SetOperation):
        raise _with_remedy(
            refuse(text, select, "UNION, INTERSECT and EXCEPT are not supported: each SELECT is a question of its own"),
            text,
            schema,
        )
    if not isinstance(select, exp.Select):
        one = QueryError(f"{Place(1, 1)}: write one SELECT statement", culprit=Place(1, 1))
        raise _with_remedy(one, text, schema)
    try:
        return _read(text, _without_outer_select(select), schema, bounds)
    except QueryError as error:
        raise _with_remedy(error, text, schema) from None
    except RecursionError:
        raise QueryError(f"{Place(1, 1)}: this is nested too deeply", culprit=Place(1, 1)) from None


def _refuse_public(rows: UnitRows, select: Any) -> None:  # noqa: ANN401
    if not rows.view.private:
        raise refuse(rows.text, select, "these tables are public: nothing of them is protected, so read them directly")


def _read(text: str, select: Any, schema: Schema, bounds: Unit | None) -> TableStatement:  # noqa: ANN401
    from sqlglot import exp

    for clause, value in select.args.items():
        if value and clause not in _CLAUSES:
            raise refuse_clause(text, clause, value)
    if isinstance(schema, OneTableSchema) and not schema.id:
        _refuse_matches(text, select)
    rows = unit_rows(text, select, schema)
    _refuse_public(rows, select)
    where = rows.where
    items, by = _items(rows, select)
    lowered = exp.Select(expressions=items, from_=exp.From(this=exp.Table(this=exp.to_identifier("view"))))
    if where is not None:
        lowered.set("where", exp.Where(this=rows.lowered(where)))
    if by:
        lowered.set("group", exp.Group(expressions=by))
    unit = bounds or rows.bounds
    assert unit is not None
    try:
        view = BoundedView(rows.view, unit)
        domain = view.domain
    except SfumatoError as error:
        raise refuse(text, select, str(error)) from None
    query = read_select(text, lowered, domain, written=select, lower=rows.lowered)
    if not (isinstance(schema, OneTableSchema) and isinstance(rows.view, Scan)):  # else it is about the table
        view, query = _of_people(rows, view, query) or (view, query)
    try:
        query.possible_groups(view.domain, view)
    except QueryError as error:
        raise refuse(text, select, str(error)) from None
    return TableStatement(view, query)


def _refuse_matches(text: str, select: Any) -> None:  # noqa: ANN401
    """Refuse a statement that matches rows with others if each row is a unit of its own."""
    from sqlglot import exp

    for node in select.find_all(exp.Join, exp.Exists, exp.In):
        if not isinstance(node, exp.In) or node.args.get("query") is not None:
            reason = (
                "every row is a unit of its own here, and no row is matched with rows of others; declare the column"
            )
            raise refuse(text, node, f"{reason} that identifies a person as the unit of the domain")


def _with_remedy(refused: QueryError, text: str, schema: Schema) -> QueryError:
    """Return a refusal with the nearest accepted statements, unless it names some already."""
    from sfumato.query.statements.nearest_statement import (
        at_edges,
        compared_otherwise,
        corrected,
        disjoint_sides,
        nearest,
        respelled,
    )  # most statements are accepted

    if len(text) > _LONGEST_REFUSED or refused.statements:
        return refused
    refusal = partial(_refusal, schema=schema)
    remedies = []
    if _is_readable(text):
        remedies = at_edges(text, refusal) if isinstance(refused, CutCellError) else disjoint_sides(text, refusal)
    attributes = [each for table in schema for each in table.attributes]
    names = [*(table.name for table in schema), *(each.name for each in attributes)]
    texts = [each for one in attributes if isinstance(one, Categorical) for each in one.values if isinstance(each, str)]
    statements = chain(respelled(text), compared_otherwise(text, attributes))
    if _is_readable(text):
        statements = chain(statements, corrected(text, refused.culprit, names, texts), nearest(text, refusal))
    remedies = remedies or list(islice((each for each in statements if refusal(each) is None), 1))
    return QueryError(f"{refused}{instead(remedies)}", culprit=refused.culprit, statements=remedies)


def _is_readable(text: str) -> bool:
    """Return whether a text is one SELECT, or several that UNION joins."""
    from sqlglot import exp

    try:
        return isinstance(parsed(text), exp.Query)
    except QueryError:
        return False


def _refusal(text: str, schema: Schema) -> SfumatoError | None:
    """Return why a statement is refused; None if it is read."""
    try:
        _read(text, _without_outer_select(plain_forms(parsed(text))), schema, None)
    except SfumatoError as error:
        return error
    except RecursionError:
        return QueryError(f"{Place(1, 1)}: this is nested too deeply", culprit=Place(1, 1))
    return None


def _of_people(rows: UnitRows, view: BoundedView, query: Query) -> tuple[BoundedView, Query] | None:
    """Return a count of distinct units as a count of rows: a unit has one row for each of its cells.

    The bound keeps as many of these rows as a unit can have cells, so that rows of one cell displace no other cell.

    Returns:
        None if the query has other aggregates as well, or the bounds drop nothing.
    """
    if any(each != Distinct() for each in query.aggregates) or not may_cut(view):
        return None
    (question,) = plan(query, view.domain).questions
    most, _ = question.sensitivity(view.domain)
    where = query.condition(view.domain)
    source = rows.view if where is None else Filter(rows.view, where)
    for name in query.by:
        if name not in source.domain:
            labels = labels_of(source.domain.grouping(name))
            if labels is None:
                return None
            source = Computed(source, name, labels)
    values = () if query.by else (("rows", RowCount(1)),)
    unit = view.unit.bounded(rows=int(most), per=[GroupBound(query.by, rows=1)] if query.by else [])
    people = BoundedView(PerUnit(source, query.by, values), unit)
    counts = (Count(),) * len(query.aggregates)
    return people, replace(query, aggregates=counts, where=None, names=query.labels)


def _called_inside(rows: UnitRows, key: Any) -> str | None:  # noqa: ANN401
    """Return the new name of a key in a SELECT of FROM."""
    from sqlglot import exp

    if not isinstance(key, exp.Column) or not rows.has(key):
        return None
    attribute = rows.attribute(key)
    return (
        key.name if key.name.casefold() not in (attribute.casefold(), attribute.casefold().rpartition(".")[2]) else None
    )


def _items(rows: UnitRows, select: Any) -> tuple[list[Any], list[Any]]:  # noqa: ANN401
    """Return the selected columns and the groups, in attributes of the view alone.

    Keys that are not selected come last, under the names that a SELECT in FROM gives them.
    """
    keys = group_keys(rows.text, select, rows.has)
    for node in (*keys, *(item.unalias() for item in select.expressions)):
        if rows.is_unit(node):
            rows.attribute(node)  # raises an error for an unknown name
    items = [_item(rows, item.unalias(), item.alias) for item in select.expressions]
    by = []
    for key in keys:
        same = (new for item, new in zip(select.expressions, items, strict=False) if item.unalias() == key)
        item = next(same, None)
        if item is None:
            item = _item(rows, key, "")
            items.append(item)
        by.append(item.unalias())
        if not is_constant(key):
            _refuse_one_cell(rows, select, key, item.unalias())
    constants = [new.unalias() for item, new in zip(select.expressions, items, strict=False) if is_constant(item)]
    return items, [*by, *dict.fromkeys(each for each in constants if each not in by)]  # a constant is one group


def _refuse_one_cell(rows: UnitRows, select: Any, key: Any, column: Any) -> None:  # noqa: ANN401
    """Refuse a computed key of GROUP BY that has one cell for all of its numbers.

    Args:
        rows: the rows of the statement.
        select: the parsed statement.
        key: the key.
        column: the key in attributes of the view.
    """
    from sqlglot import exp

    attribute = rows.view.domain[column.name] if isinstance(column, exp.Column) else None
    if (
        not isinstance(attribute, Integer | Real)
        or attribute.declared > 1
        or has_declared_cells(rows.view, column.name)
    ):
        return
    span = attribute.maximum - attribute.minimum
    width = Fraction(10) ** math.ceil(math.log10(span / _FEW_GROUPS)) if span else Fraction(1)
    number_ = key.copy() if isinstance(key, exp.Column) else exp.paren(key.copy())
    cells = exp.Floor(this=exp.Div(this=number_, expression=exp.Literal.number(plain(width))))
    items = [each.unalias() for each in select.expressions]
    nearest = select.copy()
    nearest.set("expressions", [cells.copy() if each == key else each.copy() for each in items])
    others = [each for each in group_keys(rows.text, select, rows.has) if each != key]
    nearest.set("group", exp.Group(expressions=[*(each.copy() for each in others), cells]))
    for clause in ("having", "order", "limit"):
        nearest.set(clause, None)
    raise refuse(
        rows.text,
        key,
        "this number has too many values to group by; group by FLOOR of a part of it",
        nearest.sql(dialect="duckdb", normalize_functions=False),
    )


def _item(rows: UnitRows, node: Any, name: str) -> Any:  # noqa: ANN401
    """Return a selected item in attributes of the view, under its name by AS or by a SELECT in FROM."""
    from sqlglot import exp

    if node.is_star:
        raise refuse(rows.text, node, "rows are private, and only noisy aggregates of them are answered")
    if is_constant(node):
        return rows.constant(node, name or None)
    if is_value(node) and not node.find(exp.AggFunc):
        return rows.computed(node, name or None)
    lowered, name = rows.lowered(node), name or _called_inside(rows, node) or ""
    return exp.alias_(lowered, name, quoted=True) if name else lowered


def parse_view(text: str, schema: Schema, *, bounds: Unit | None = None) -> BoundedView:
    """Read a view: ``SELECT *`` FROM tables and joins with a condition, or a statement of one row per unit.

    Args:
        text: the statement.
        schema: the public description of the tables.
        bounds: the bounds on the rows per unit in the view; None: the bounds of the table whose rows are listed.

    Raises:
        QueryError: anything outside the grammar; ``culprit`` is its :class:`Place`.
    """
    from sqlglot import exp

    select = parsed(text)
    if not isinstance(select, exp.Select):
        raise QueryError(f"{Place(1, 1)}: a view is one SELECT statement", culprit=Place(1, 1))
    if not (len(select.expressions) == 1 and isinstance(select.expressions[0], exp.Star)):
        part = per_unit(text, select, schema, {}, "view")
        assert part.bounds is not None
        return BoundedView(part.view, bounds or part.bounds)
    refuse_inside(text, select)
    rows = unit_rows(text, select, schema)
    _refuse_public(rows, select)
    unit = bounds or rows.bounds
    if rows.where is not None:
        rows.filter(rows.where)
    assert unit is not None
    return BoundedView(rows.view, unit)


def _without_outer_select(select: Any) -> Any:  # noqa: ANN401
    """Return the statement inside FROM if the outer one only selects, computes and orders its answers.

    WHERE outside is HAVING inside: both are about noisy answers.
    """
    from sqlglot import exp

    source = select.args.get("from_")
    inner = None if source is None else _named_select(select, source.this)
    plain = {name for name, value in select.args.items() if value} <= _CLAUSES - {"joins", "group", "having"}
    if inner is None or not plain or has_aggregates(select) or not has_aggregates(inner):
        return select
    if any(inner.args.get(name) for name in ("order", "limit", "distinct", "offset")):
        return select
    alias = source.this.args.get("alias")
    columns = [] if alias is None else alias.args.get("columns") or []
    names = [name.name for name in columns] or [item.alias_or_name for item in inner.expressions]
    items = {name.casefold(): item.unalias() for name, item in zip(names, inner.expressions, strict=False) if name}

    def inside(node: Any) -> Any:  # noqa: ANN401
        item = items.get(node.name.casefold()) if isinstance(node, exp.Column) else None
        return node if item is None else item.copy()

    merged = inner.copy()
    chosen = []
    for item in select.expressions:
        pairs = items.items() if item.is_star else [(item.alias_or_name, item.unalias().copy().transform(inside))]
        chosen += [exp.alias_(each.copy(), name, quoted=True) if name else each for name, each in pairs]
    merged.set("expressions", chosen)
    conditions = [each for each in (inner.args.get("having"), select.args.get("where")) if each is not None]
    met = [each.this.copy().transform(inside) for each in conditions]
    merged.set("having", exp.Having(this=exp.and_(*met)) if met else None)
    for clause in ("order", "limit", "offset"):
        value = select.args.get(clause)
        merged.set(clause, None if value is None else value.copy())
    clauses = [each.args["with_"] for each in (select, inner) if each.args.get("with_") is not None]
    named = [each.copy() for clause in clauses for each in clause.expressions if each.this is not inner]
    merged.set("with_", exp.With(expressions=named) if named else None)
    return merged


def _named_select(select: Any, source: Any) -> Any:  # noqa: ANN401
    """Return the SELECT in parentheses, or the one that WITH names; None for a table."""
    from sqlglot import exp

    if isinstance(source, exp.Subquery):
        return source.this if isinstance(source.this, exp.Select) else None
    clause = select.args.get("with_")
    for each in [] if clause is None else clause.expressions:
        if each.alias.casefold() == source.name.casefold() and not each.args["alias"].args.get("columns"):
            return each.this if isinstance(each.this, exp.Select) else None
    return None
