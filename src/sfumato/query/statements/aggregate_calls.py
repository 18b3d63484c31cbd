"""Calls of aggregates as other databases write them, rewritten as the functions of the grammar."""

from __future__ import annotations

from typing import Any

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


def canonical_call(text: str, node: Any) -> Any:  # noqa: ANN401  (sqlglot's own)
    """Return a call of an aggregate in the grammar's own functions; a node that is none stays as it is.

    Quantiles of every name are ``QUANTILE(a, p)``: a noisy quantile has no use for the difference between a value of a
    row and one between two rows.  ``COUNT_IF(c)`` is ``COUNT(*) FILTER (WHERE c)``.

    Raises:
        QueryError: the call lacks an argument or has too many; or it is MODE, which :func:`without_mode` left.
    """
    from sqlglot import exp

    match node:
        case exp.CountIf(this=where):
            return exp.Filter(this=exp.Count(this=exp.Star()), expression=exp.Where(this=where))
        case exp.WithinGroup(
            this=exp.PercentileCont(this=share, expression=None) | exp.PercentileDisc(this=share, expression=None),
            expression=exp.Order(expressions=[key]),
        ):
            rest = exp.Literal.number(str(1 - float(number(text, share)))) if key.args.get("desc") else share
            return exp.Quantile(this=key.this, quantile=rest)
        case exp.PercentileCont() | exp.PercentileDisc() if node.expression is not None:
            return _quantile(text, node, node.this, node.expression)
        case exp.ApproxQuantile():
            return _quantile(text, node, node.this, node.args.get("quantile"))
        case exp.Mode() | exp.WithinGroup(this=exp.Mode()):
            raise refuse(
                text,
                node,
                "MODE(a), of a column or a level, is the only thing in a SELECT without GROUP BY, HAVING, ORDER BY and "
                "LIMIT; otherwise count the rows of each value",
            )
    return node


def mode_column(node: Any) -> Any:  # noqa: ANN401
    """Return what MODE is asked of, in both of its forms; None of another node."""
    from sqlglot import exp

    match node:
        case exp.Mode():
            return node.this
        case exp.WithinGroup(this=exp.Mode(this=None), expression=exp.Order(expressions=[key])):
            return key.this
    return None


def without_mode(select: Any) -> Any:  # noqa: ANN401
    """Return ``SELECT MODE(a) FROM ...`` as a count of rows by value, of which the largest is kept.

    One noisy histogram is measured, whose noise is that of any count by groups.  A missing value is no value of MODE.
    Other statements stay as they are.
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
