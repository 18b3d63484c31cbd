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
        QueryError: the call lacks an argument or has too many; or it is MODE, which the message rewrites.
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
            column = node.this if isinstance(node, exp.Mode) else node.expression.expressions[0].this
            of = "a" if column is None else column.sql(dialect="duckdb").replace('"', "")
            raise refuse(
                text,
                node,
                f"MODE is no function here; the most frequent value is SELECT {of}, COUNT(*) AS n ... GROUP BY {of} "
                "ORDER BY n DESC LIMIT 1",
            )
    return node


def _quantile(text: str, node: Any, column: Any, share: Any) -> Any:  # noqa: ANN401
    from sqlglot import exp

    if share is None or written_arguments(text, node) != 2:  # noqa: PLR2004  (the parser drops a third)
        raise refuse(text, node, f"{node.sql_name()} takes an attribute and a probability")
    return exp.Quantile(this=column, quantile=share)
