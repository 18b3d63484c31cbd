"""The WHERE clause: comparisons of attributes with literals, and how they are joined."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from sfumato.domain import Domain
from sfumato.errors import LossError, SfumatoError
from sfumato.privacy.loss import exact
from sfumato.query.condition import Comparison, Condition, Literal, compare, either, every, missing
from sfumato.query.sql_name import name as name_of
from sfumato.query.sql_place import refuse

_MIRRORED = {
    Comparison.LESS: Comparison.GREATER,
    Comparison.AT_MOST: Comparison.AT_LEAST,
    Comparison.GREATER: Comparison.LESS,
    Comparison.AT_LEAST: Comparison.AT_MOST,
}


def condition(text: str, node: Any, domain: Domain) -> Condition:  # noqa: ANN401  (sqlglot's own)
    """Where a parsed condition is true and where it is false.

    Raises:
        QueryError: anything outside the subset, with its place.
    """
    from sqlglot import exp

    match node:
        case exp.Paren(this=inner):
            return condition(text, inner, domain)
        case exp.And():
            return every([condition(text, part, domain) for part in _chain(node)])
        case exp.Or():
            return either([condition(text, part, domain) for part in _chain(node)])
        case exp.Not(this=inner):
            return ~condition(text, inner, domain)
        case exp.Between(this=column) if not node.args.get("symmetric"):
            low, high = node.args["low"], node.args["high"]
            return _compared(text, column, Comparison.AT_LEAST, low, domain) & _compared(
                text, column, Comparison.AT_MOST, high, domain
            )
        case exp.In(this=column, expressions=[_, *_] as listed) if not node.args.get("query"):
            return either([_compared(text, column, Comparison.EQUAL, item, domain) for item in listed])
        case exp.Is(this=column, expression=exp.Null()):
            return _checked(text, column, lambda: missing(domain, _column(text, column, domain)))
        case exp.Column():
            return _compared(text, node, Comparison.EQUAL, exp.true(), domain)
        case _:
            return _comparison(text, node, domain)


def number(text: str, node: Any) -> Fraction:  # noqa: ANN401
    """A numeric literal, exactly.

    Raises:
        QueryError: it is something else.
    """
    found = literal(text, node)
    if isinstance(found, bool) or not isinstance(found, Fraction):
        raise refuse(text, node, "a number stands here")
    return found


def literal(text: str, node: Any) -> Literal:  # noqa: ANN401
    """A number, text or truth value.

    Raises:
        QueryError: NULL, with which nothing compares, or an expression.
    """
    from sqlglot import exp

    match node:
        case exp.Literal(this=value) if node.is_string:
            return str(value)
        case exp.Literal(this=value):
            try:
                return exact(str(value))
            except LossError:
                raise refuse(text, node, "this is no number that can be compared with") from None
        case exp.Neg(this=exp.Literal() as inner) if not inner.is_string:
            return -number(text, inner)
        case exp.Boolean(this=value):
            return bool(value)
        case exp.Null():
            raise refuse(text, node, "nothing compares with NULL; write IS NULL")
        case exp.Column():
            raise refuse(
                text, node, "compare an attribute with a literal, not with another attribute; quote text in ''"
            )
        case _:
            raise refuse(text, node, "compare with a literal; expressions are not part of the subset")


def _chain(node: Any) -> list[Any]:  # noqa: ANN401
    """The parts that one operator joins, from left to right: the parser nests each within the next."""
    parts, waiting = [], [node]
    while waiting:
        part = waiting.pop()
        if type(part) is type(node):
            waiting += [part.expression, part.this]
        else:
            parts.append(part)
    return parts


def _comparison(text: str, node: Any, domain: Domain) -> Condition:  # noqa: ANN401
    from sqlglot import exp

    kinds = {
        exp.EQ: Comparison.EQUAL,
        exp.NEQ: Comparison.UNEQUAL,
        exp.LT: Comparison.LESS,
        exp.LTE: Comparison.AT_MOST,
        exp.GT: Comparison.GREATER,
        exp.GTE: Comparison.AT_LEAST,
    }
    how = kinds.get(type(node))
    if how is None:
        raise refuse(text, node, "a condition compares attributes with =, <>, <, <=, >, >=, IN, BETWEEN or IS NULL")
    left, right = node.this, node.expression
    if not isinstance(left, exp.Column) and isinstance(right, exp.Column):
        left, right, how = right, left, _MIRRORED.get(how, how)
    return _compared(text, left, how, right, domain)


def _compared(text: str, column: Any, how: Comparison, value: Any, domain: Domain) -> Condition:  # noqa: ANN401
    name = _column(text, column, domain)
    wanted = literal(text, value)
    at = value if name in domain else column
    return _checked(text, at, lambda: compare(domain, name, how, wanted))


def _column(text: str, column: Any, domain: Domain) -> str:  # noqa: ANN401
    name = name_of(column, domain.names)
    if name is None:
        raise refuse(text, column, "name an attribute; expressions are not part of the subset")
    return name


def _checked(text: str, node: Any, build: Any) -> Condition:  # noqa: ANN401
    try:
        found: Condition = build()
    except SfumatoError as error:
        raise refuse(text, node, str(error)) from None
    return found
