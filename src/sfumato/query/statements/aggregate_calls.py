"""Translation of calls and clauses of other databases into the grammar."""

from __future__ import annotations

from typing import Any

from sfumato.privacy.loss import plain
from sfumato.query.statements.sql_condition import number, refuse, written_arguments

SPELLINGS = {
    "VAR": "VAR_SAMP",
    "VARIANCE": "VAR_SAMP",
    "VARIANCE_SAMP": "VAR_SAMP",
    "STDDEV": "STDDEV_SAMP",
    "STDEV": "STDDEV_SAMP",
    "STDEV_SAMP": "STDDEV_SAMP",
    "STDEV_POP": "STDDEV_POP",
    "STDEVP": "STDDEV_POP",
    "VARP": "VAR_POP",
    "MEAN": "AVG",
    "APPROX_PERCENTILE": "QUANTILE",
}
"""Other names of functions, and the name of the same function in the grammar."""
_ANONYMOUS = {*SPELLINGS, "IQR"}  # aggregates that the parser may read as functions of a row


def canonical_call(text: str, node: Any) -> Any:  # noqa: ANN401  (sqlglot's own)
    """Return a call of an aggregate in the grammar's own functions; return any other node unchanged.

    Quantiles of every name become ``QUANTILE(a, p)``: a noisy quantile does not distinguish between a value of a row
    and a value between two rows.  ``COUNT_IF(c)`` becomes ``COUNT(*) FILTER (WHERE c)``.

    Raises:
        QueryError: the call lacks an argument or has too many; or it is a MODE that :func:`without_mode` did not
            replace.
    """
    from sqlglot import exp

    match node:
        case exp.CountIf(this=where):
            return exp.Filter(this=exp.Count(this=exp.Star()), expression=exp.Where(this=where))
        case exp.WithinGroup(
            this=exp.PercentileCont(this=share, expression=None) | exp.PercentileDisc(this=share, expression=None),
            expression=exp.Order(expressions=[key]),
        ):
            rest = exp.Literal.number(plain(1 - number(text, share))) if key.args.get("desc") else share
            return exp.Quantile(this=key.this, quantile=rest)
        case exp.PercentileCont() | exp.PercentileDisc() if node.expression is not None:
            return _quantile(text, node, node.this, node.expression)
        case exp.ApproxQuantile():
            return _quantile(text, node, node.this, node.args.get("quantile"))
        case exp.Mode() | exp.WithinGroup(this=exp.Mode()):
            raise refuse(
                text,
                node,
                "MODE(a), of a column or a level, must be the only item of a SELECT without GROUP BY, HAVING, ORDER BY "
                "and LIMIT; otherwise count the rows of each value",
            )
    return node


def plain_forms(tree: Any) -> Any:  # noqa: ANN401
    """Return a parsed statement in the forms of the grammar.

    BETWEEN SYMMETRIC and IS DISTINCT FROM become plain comparisons.  Conditions of literals alone are computed, and
    conditions that are always true are removed.  GROUP BY ALL lists its keys.  A SELECT of groups without an aggregate
    gets one.
    """
    from sqlglot import exp

    if not isinstance(tree, exp.Query):
        return tree
    plain = tree.transform(_plain_condition)
    _fold_constants(plain)
    for select in plain.find_all(exp.Select):
        where, group = select.args.get("where"), select.args.get("group")
        if where is not None and where.this == exp.true():
            select.set("where", None)
        if group is not None and group.args.get("all"):
            keys = [
                item.unalias().copy() for item in select.expressions if not (_has_aggregate(item) or is_constant(item))
            ]
            select.set("group", exp.Group(expressions=keys) if keys else None)
    return _with_aggregate(without_mode(plain))


def _plain_condition(node: Any) -> Any:  # noqa: ANN401
    """Return a condition in the comparisons of the grammar; return any other node unchanged."""
    from sqlglot import exp

    match node:
        case exp.Between(this=value) if node.args.get("symmetric"):
            low, high = node.args["low"], node.args["high"]
            ends = ((low, high), (high, low))
            return exp.paren(
                exp.or_(*(exp.Between(this=value.copy(), low=one.copy(), high=other.copy()) for one, other in ends))
            )
        case exp.NullSafeEQ() | exp.NullSafeNEQ():
            equal = _equal_or_both_missing(node.this, node.expression)
            return equal if isinstance(node, exp.NullSafeEQ) else exp.not_(equal)
        case exp.EQ() | exp.NEQ() if isinstance(node.this, exp.Literal) and isinstance(node.expression, exp.Literal):
            if node.this.is_string == node.expression.is_string:
                return exp.Boolean(this=(node.this == node.expression) == isinstance(node, exp.EQ))
        case exp.Filter(this=inner, expression=exp.Where(this=exp.Boolean(this=True))):
            return inner
    return node


def _fold_constants(tree: Any) -> None:  # noqa: ANN401
    """Compute AND and OR with TRUE and FALSE in place."""
    from sqlglot import exp

    waiting = list(tree.find_all(exp.Boolean))
    while waiting:
        constant = waiting.pop()
        joined = constant.parent
        if isinstance(joined, exp.Paren):
            waiting.append(joined.replace(constant))
        elif isinstance(joined, exp.And | exp.Or):
            other = joined.expression if constant is joined.this else joined.this
            rest = joined.replace(constant if constant.this == isinstance(joined, exp.Or) else other)
            waiting += [rest] if isinstance(rest, exp.Boolean) and rest not in waiting else []


def _equal_or_both_missing(left: Any, right: Any) -> Any:  # noqa: ANN401
    from sqlglot import exp

    if isinstance(left, exp.Null):
        left, right = right, left
    if isinstance(right, exp.Null):
        return exp.Is(this=left.copy(), expression=exp.Null())
    known = exp.Is(this=exp.paren(exp.EQ(this=left.copy(), expression=right.copy())), expression=exp.true())
    if isinstance(right, exp.Literal | exp.Boolean) or isinstance(left, exp.Literal | exp.Boolean):
        return known
    missing = [exp.Is(this=each.copy(), expression=exp.Null()) for each in (left, right)]
    return exp.paren(exp.or_(known, exp.and_(*missing)))


def is_constant(item: Any) -> bool:  # noqa: ANN401
    """Return whether a selected column is a number or text literal."""
    from sqlglot import exp

    node = item.unalias()
    return isinstance(node.this if isinstance(node, exp.Neg) else node, exp.Literal)


def _has_aggregate(node: Any) -> bool:  # noqa: ANN401
    from sqlglot import exp

    return any(
        isinstance(each, exp.AggFunc | exp.WithinGroup)
        or (isinstance(each, exp.Anonymous) and each.name.upper() in _ANONYMOUS)
        for each in node.walk()
    )


def _with_aggregate(select: Any) -> Any:  # noqa: ANN401
    """Return a SELECT of groups with an aggregate, if it has none: the first of HAVING or ORDER BY, or COUNT(*).

    SELECT DISTINCT of columns is a SELECT of the groups by these columns.
    """
    from sqlglot import exp

    if not isinstance(select, exp.Select) or any(map(_has_aggregate, select.expressions)):
        return select
    keys = [item.unalias() for item in select.expressions if not is_constant(item)]
    if not keys or any(key.is_star or isinstance(key, exp.Query | exp.Subquery) for key in keys):
        return select
    distinct = select.args.get("distinct")
    if not select.args.get("group"):
        if distinct is None or distinct.args.get("on"):
            return select
        select = select.copy()
        select.set("group", exp.Group(expressions=[key.copy() for key in keys]))
        select.set("distinct", None)
    clauses = [clause for name in ("having", "order") if (clause := select.args.get(name)) is not None]
    first = next((each for clause in clauses for each in clause.find_all(exp.AggFunc)), None)
    return select.select(exp.Count(this=exp.Star()) if first is None else first.copy())


def mode_column(node: Any) -> Any:  # noqa: ANN401
    """Return the argument of MODE, in both of its forms; None for another node."""
    from sqlglot import exp

    match node:
        case exp.Mode():
            return node.this
        case exp.WithinGroup(this=exp.Mode(this=None), expression=exp.Order(expressions=[key])):
            return key.this
    return None


def without_mode(select: Any) -> Any:  # noqa: ANN401
    """Return ``SELECT MODE(a) FROM ...`` as a count of rows by value that shows only its largest group.

    One noisy histogram is measured, with the noise of any count by groups.  A missing value is no value of MODE.  Other
    statements are returned unchanged.
    """
    from sqlglot import exp

    item = select.expressions[0] if isinstance(select, exp.Select) and len(select.expressions) == 1 else None
    column = None if item is None else mode_column(item.unalias())
    if not isinstance(column, exp.Column | exp.Func) or isinstance(column, exp.Case):
        return select
    if any(select.args.get(clause) for clause in ("group", "having", "order", "limit", "distinct")):
        return select
    one = exp.Literal.number(1)
    assert item is not None
    name = item.alias or f"mode({column.sql(dialect='duckdb', normalize_functions=False)})".replace('"', "")
    fresh = select.copy()
    fresh.set("expressions", [exp.alias_(column.copy(), name, quoted=True), exp.Count(this=exp.Star())])
    fresh.set("group", exp.Group(expressions=[one]))
    fresh.order_by("COUNT(*) DESC", copy=False, dialect="duckdb")
    fresh.set("limit", exp.Limit(expression=one.copy()))
    return fresh.where(exp.Not(this=exp.Is(this=column.copy(), expression=exp.Null())), copy=False)


def _quantile(text: str, node: Any, column: Any, share: Any) -> Any:  # noqa: ANN401
    from sqlglot import exp

    if share is None or written_arguments(text, node) != 2:  # noqa: PLR2004  (the parser drops a third)
        raise refuse(text, node, f"{node.sql_name()} takes an attribute and a probability")
    return exp.Quantile(this=column, quantile=share)
