"""Arithmetic and functions of the numbers of one row, as expressions that cannot fail.

Functions follow DuckDB: CAST to a whole number rounds ties to the even number, ROUND rounds them away from zero, and
``%`` and ``//`` cut towards zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any, Final

from sfumato.domain import Categorical, Date, Integer
from sfumato.domain.domain import Domain
from sfumato.domain.expression import (
    Applied,
    AppliedToPair,
    Arithmetic,
    Cases,
    Clamp,
    Constant,
    DaysBetween,
    Expression,
    Field,
    Labels,
    NumberFunction,
    Operator,
    PairFunction,
)
from sfumato.domain.predicate import Among
from sfumato.query.statements.derived_columns import constant, is_number
from sfumato.query.statements.select_list import LARGEST_POWER
from sfumato.query.statements.sql_condition import number, refuse

_DECIMAL: Final = (18, 3)  # default digits of a DECIMAL, as in DuckDB
_LABELS: Final = 1000  # numbers that become texts
_MOST_COPIES: Final = 20_000  # parts of the SQL of an expression: about a megabyte
_MOST_DIGITS: Final = 18
_NUMERAL: Final = re.compile(r"[+-]?[0-9]{1,15}([.][0-9]{1,15})?")
COMPUTED_OF_ROW: Final = (
    "of a row compute with attributes, numbers, + - *, / // % by a number, CASE, IF, COALESCE, NULLIF, LEAST, "
    "GREATEST, ABS, SIGN, ROUND, FLOOR, CEIL, TRUNC, POWER to a whole exponent, CAST to a number, and "
    "DATEDIFF('day', a, b)"
)


_NO_TEXT = "this must be a number; choose texts by CASE WHEN a = 1 THEN 'x' ELSE 'y' END"
_OPERATORS = {"add": Operator.PLUS, "sub": Operator.MINUS, "mul": Operator.TIMES}


@dataclass(frozen=True)
class RowNumbers:
    """A reader of arithmetic and functions over the numbers of one row.

    Attributes:
        text: the statement, for the places of refusals.
        domain: the domain of the rows.
        operand: reads a part of an expression.
    """

    text: str
    domain: Domain
    operand: Callable[[Any], Expression]

    def expression(self, node: Any) -> Expression:  # noqa: ANN401, C901, PLR0912 - one case a form
        """Return the value of an expression for a row.

        Raises:
            QueryError: the node is no such function, or it could fail.
        """
        from sqlglot import exp

        match node:
            case exp.Literal() if node.is_string:
                raise refuse(self.text, node, _NO_TEXT)
            case exp.Cast(this=exp.Literal()) if node.is_type(*exp.DataType.TEMPORAL_TYPES):
                raise refuse(self.text, node, "days are counted between two dates of a row: DATEDIFF('day', a, b)")
            case exp.Literal() | exp.Neg(this=exp.Literal()):
                return Constant(number(self.text, node))
            case exp.Neg(this=inner):
                return Arithmetic(Operator.MINUS, Constant(Fraction(0)), self.operand(inner))
            case exp.Add() | exp.Sub() | exp.Mul():
                return Arithmetic(_OPERATORS[node.key], self.operand(node.this), self.operand(node.expression))
            case exp.Div():
                return times(self.operand(node.this), 1 / self._divisor(node))
            case exp.IntDiv():
                return self._whole_quotient(self.operand(node.this), self._divisor(node))
            case exp.Mod():
                return self._remainder(self.operand(node.this), self._divisor(node))
            case exp.Pow():
                return self._power(node)
            case exp.Least() | exp.Greatest():
                return self._extreme(node)
            case exp.Coalesce():
                given = [part for part in (node.this, *node.expressions) if not isinstance(part, exp.Null)]
                return reduce(self._coalesced, map(self.operand, given))
            case exp.Nullif():
                return AppliedToPair(PairFunction.NULLIF, self.operand(node.this), self.operand(node.expression))
            case exp.Abs(this=inner):
                value = self.operand(inner)
                return value if value.interval(self.domain).low >= 0 else Applied(NumberFunction.ABS, value)
            case exp.Sign(this=inner):
                return self._sign(self.operand(inner))
            case exp.Floor() | exp.Ceil() | exp.Round() | exp.Trunc():
                function = NumberFunction(node.key.upper())
                return self._rounded(function, self.operand(node.this), self._digits(node))
            case exp.Cast():
                return self._cast(node)
        raise refuse(self.text, node, COMPUTED_OF_ROW)

    # --- quotients and powers -----------------------------------------------------------------------------------------

    def _divisor(self, node: Any) -> Fraction:  # noqa: ANN401
        divisor = constant(node.expression)
        if divisor is None or not is_number(divisor):
            raise refuse(
                self.text,
                node.expression,
                "a division by a column could fail, depending on the data; divide by a number",
            )
        value = number(self.text, divisor)
        if not value:
            raise refuse(self.text, node.expression, "division by zero is not possible")
        return value

    def _is_whole(self, value: Expression) -> bool:
        return value.interval(self.domain).integer

    def _whole_quotient(self, value: Expression, divisor: Fraction) -> Expression:
        """Return a quotient truncated towards zero; DuckDB truncates quotients of integers alone."""
        quotient = times(value, 1 / divisor)
        return self._cut(quotient) if self._is_whole(value) and divisor.denominator == 1 else quotient

    def _cut(self, value: Expression) -> Expression:
        positive = value.interval(self.domain).low >= 0
        return self._rounded(NumberFunction.FLOOR if positive else NumberFunction.TRUNC, value, 0)

    def _remainder(self, value: Expression, divisor: Fraction) -> Expression:
        """Return the remainder of a division, with the sign of the dividend."""
        divisor, inner = abs(divisor), value.interval(self.domain)
        if -divisor < inner.low and inner.high < divisor:
            return value
        rest = Arithmetic(Operator.MINUS, value, times(self._cut(times(value, 1 / divisor)), divisor))
        most = divisor - 1 if inner.integer and divisor.denominator == 1 else divisor
        return Clamp(rest, max(-most, min(inner.low, Fraction(0))), min(most, max(inner.high, Fraction(0))))

    def _power(self, node: Any) -> Expression:  # noqa: ANN401
        exponent = node.expression.unnest()
        if is_number(exponent):
            raised = number(self.text, exponent)
            if raised.denominator == 1 and 1 <= raised <= LARGEST_POWER:
                return self._to_power(self.operand(node.this), int(raised))
        raise refuse(
            self.text, node.expression, f"POWER of a row takes a whole exponent from 1 to {LARGEST_POWER}: POWER(x, 2)"
        )

    def _to_power(self, value: Expression, exponent: int) -> Expression:
        if exponent == 1:
            return value
        if exponent % 2:
            return Arithmetic(Operator.TIMES, self._to_power(value, exponent - 1), value)
        root = self._to_power(value, exponent // 2)
        square = Arithmetic(Operator.TIMES, root, root)
        return Clamp(square, Fraction(0)) if square.interval(self.domain).low < 0 else square

    # --- one of several -----------------------------------------------------------------------------------------------

    def _coalesced(self, value: Expression, other: Expression) -> Expression:
        return AppliedToPair(PairFunction.COALESCE, value, other) if value.interval(self.domain).nullable else value

    def _extreme(self, node: Any) -> Expression:  # noqa: ANN401
        """Return the smallest or largest of expressions, bounded by the numbers among them."""
        parts = [part.unnest() for part in (node.this, *node.expressions)]
        least = type(node).__name__ == "Least"
        ends = [number(self.text, part) for part in parts if is_number(part)]
        end = (min if least else max)(ends) if ends else None
        values = [self.operand(part) for part in parts if not is_number(part)]
        if not values:
            assert end is not None
            return Constant(end)
        function = PairFunction.LEAST if least else PairFunction.GREATEST
        value = reduce(lambda one, other: AppliedToPair(function, one, other), values)
        if end is None:
            return value
        nullable = value.interval(self.domain).nullable
        return Clamp(value, **{"high" if least else "low": end}, ignores_missing=nullable)

    # --- rounding and types -------------------------------------------------------------------------------------------

    def _digits(self, node: Any) -> int:  # noqa: ANN401
        digits = node.args.get("decimals")
        value = Fraction(0) if digits is None else number(self.text, digits)
        if value.denominator != 1 or abs(value) > _MOST_DIGITS:
            raise refuse(self.text, node, "round to a whole number of digits, such as ROUND(x, 2)")
        return int(value)

    def _rounded(self, function: NumberFunction, value: Expression, digits: int) -> Expression:
        if digits >= 0 and self._is_whole(value):
            return value
        if not digits:
            return Applied(function, value)
        step = Fraction(10) ** -digits
        return times(Applied(function, times(value, 1 / step)), step)

    def _sign(self, value: Expression) -> Expression:
        one = Fraction(1)
        if self._is_whole(value):
            return Clamp(value, -one, one)
        up, down = (Applied(function, value) for function in (NumberFunction.CEIL, NumberFunction.FLOOR))
        return Arithmetic(Operator.PLUS, Clamp(up, Fraction(0), one), Clamp(down, -one, Fraction(0)))

    def _cast(self, node: Any) -> Expression:  # noqa: ANN401
        from sqlglot import exp

        kind, value = node.to, self.operand(node.this)
        attribute = self.domain[value.name] if isinstance(value, Field) else None
        if kind.is_type(*exp.DataType.TEXT_TYPES):
            return self._as_text(node, value)
        if isinstance(attribute, Categorical):
            value = self._numbers_of(node, attribute)
        if kind.is_type(*exp.DataType.INTEGER_TYPES):
            return self._rounded(NumberFunction.ROUND_EVEN, value, 0)
        if kind.is_type(*exp.DataType.FLOAT_TYPES):
            return value
        if kind.this is exp.DataType.Type.DECIMAL:
            stated = [int(number(self.text, each.this)) for each in kind.expressions]
            return self._rounded(NumberFunction.ROUND, value, (*stated, 0)[1] if stated else _DECIMAL[1])
        raise refuse(self.text, node, f"{COMPUTED_OF_ROW}; {kind.sql(dialect='duckdb')} is no number")

    def _as_text(self, node: Any, value: Expression) -> Expression:  # noqa: ANN401
        """Return the numbers of an attribute as texts; declared texts are texts already."""
        attribute = self.domain[value.name] if isinstance(value, Field) else None
        if isinstance(attribute, Categorical) and all(isinstance(each, str) for each in attribute.values):
            return value
        if isinstance(attribute, Categorical) and all(isinstance(each, bool) for each in attribute.values):
            texts = [str(each).lower() for each in attribute.values]
        elif isinstance(attribute, Integer) and attribute.edges is None and attribute.declared <= _LABELS:
            texts = [str(attribute.minimum + code) for code in range(attribute.declared)]
        else:
            raise refuse(self.text, node, f"only whole numbers with at most {_LABELS} cells become texts")
        assert attribute is not None
        return Labels(tuple((Among(attribute.name, (code,)), each) for code, each in enumerate(texts)))

    def _numbers_of(self, node: Any, attribute: Categorical) -> Expression:  # noqa: ANN401
        """Return the declared values of an attribute as numbers."""
        texts = [str(int(each) if isinstance(each, bool) else each).strip() for each in attribute.values]
        if not all(map(_NUMERAL.fullmatch, texts)):
            raise refuse(
                self.text, node, f"the declared values of {attribute.name!r} are not all numbers; use CASE WHEN"
            )
        numbers = tuple((Among(attribute.name, (code,)), Constant(Fraction(each))) for code, each in enumerate(texts))
        return Cases(numbers)

    def days(self, node: Any, later: str, earlier: str) -> Expression:  # noqa: ANN401
        """Return the number of days between two dates."""
        unit = node.args.get("unit")
        if unit is not None and unit.name.lower().rstrip("s") not in ("day", "d"):
            raise refuse(self.text, node, "only days are counted between dates: DATEDIFF('day', a, b)")
        for name in (later, earlier):
            if not isinstance(self.domain[name], Date):
                raise refuse(self.text, node, f"{name!r} is no date whose cells are days")
        return DaysBetween(later, earlier)


def check_size(text: str, node: Any, value: Expression) -> None:  # noqa: ANN401
    """Refuse an expression whose SQL would repeat its parts too often.

    Raises:
        QueryError: it is nested too deeply.
    """
    if _copies(value) > _MOST_COPIES:
        inside = "compute a part of it in a SELECT in FROM: SELECT ... FROM (SELECT ..., ... AS part FROM ...) AS t"
        raise refuse(text, node, f"this is nested too deeply; {inside}")


def _copies(value: Expression) -> int:
    """Return the largest number of columns and numbers in the SQL of an expression."""
    match value:
        case Applied():
            single = (NumberFunction.ABS, NumberFunction.CEIL, NumberFunction.FLOOR)
            return (1 if value.function in single else 4) * _copies(value.value)
        case Clamp():
            return 3 * _copies(value.value)
        case AppliedToPair():
            twice = value.function in (PairFunction.LEAST, PairFunction.GREATEST)
            return (2 if twice else 1) * (_copies(value.left) + _copies(value.right))
        case Arithmetic():
            return (2 if value.how is Operator.TIMES else 1) * (_copies(value.left) + _copies(value.right))
        case Cases():
            parts = [each for _, each in value.cases] + ([] if value.otherwise is None else [value.otherwise])
            return sum(map(_copies, parts))
    return 1


def times(value: Expression, factor: Fraction) -> Expression:
    """Return the product of an expression and a number."""
    return Arithmetic(Operator.TIMES, value, Constant(factor))
