"""The SELECT list of a statement: expressions over aggregates become numbers computed from noisy answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from fractions import Fraction
from functools import partial, reduce
from typing import Any, Final

import numpy as np

from sfumato.domain import Domain
from sfumato.domain.attribute import null_code, unknown_code
from sfumato.model.factor import FloatArray
from sfumato.query.aggregates import FORMS, Aggregate, AggregateForm, Average, Count, Takes, Total
from sfumato.query.answer_expression import (
    AnswerExpression,
    AnswerFunction,
    Linear,
    absolute,
    added,
    aggregate_at,
    greatest,
    half_away,
    least,
    null_if,
    otherwise,
    parts_of,
    product,
    quotient,
    raised,
    rounded,
    scaled,
)
from sfumato.query.statements.aggregate_calls import SPELLINGS
from sfumato.query.statements.sql_condition import number, refuse

NUMBERS = {form.function: form for form in FORMS if form.takes is Takes.NUMBER}
LARGEST_POWER: Final = 8
_DECIMAL: Final = (18, 3)  # default digits of a DECIMAL, as in DuckDB
COMPUTED: Final = (
    "compute with aggregates, numbers, + - * /, // by a number, ROUND, FLOOR, CEIL, TRUNC, ABS, SIGN, POWER to a whole "
    "exponent, COALESCE, NULLIF, LEAST, GREATEST and CAST to a number"
)


@dataclass(frozen=True)
class ExpressionReader:
    """A reader of expressions over aggregates.

    Attributes:
        text: the statement, for the places of refusals.
        leaf: returns the expression for a node that computes nothing, such as an aggregate; None if it computes.
        units: returns the unit of the aggregate at an index; see :func:`unit_of`.
    """

    text: str
    leaf: Callable[[Any], AnswerExpression | None]
    units: Callable[[int], Fraction]

    def read(self, node: Any) -> AnswerExpression:  # noqa: ANN401, C901, PLR0912 - one case a form
        """Return the expression of a node.

        Raises:
            QueryError: a part is neither an aggregate nor a number, or a function is not in :data:`COMPUTED`.
        """
        from sqlglot import exp

        known = self.leaf(node)
        if known is not None:
            return known
        match node:
            case exp.Literal():
                return Linear(number(self.text, node))
            case exp.Paren(this=inner):
                return self.read(inner)
            case exp.Neg(this=inner):
                return scaled(self.read(inner), Fraction(-1))
            case exp.Add() | exp.Sub():
                sign = Fraction(1 if isinstance(node, exp.Add) else -1)
                return added(self.read(node.this), scaled(self.read(node.expression), sign))
            case exp.Mul():
                return self._times(self.read(node.this), self.read(node.expression))
            case exp.Div():
                return self._divided(node)
            case exp.Abs(this=inner):
                return AnswerFunction(absolute, (self.read(inner),))
            case exp.Sign(this=inner):
                return AnswerFunction(partial(rounded, np.sign, 0), (self.read(inner),))
            case exp.Pow():
                return self._power(node)
            case exp.IntDiv():
                whole = self.read(node.this)
                cut = isinstance(whole, Linear) and self._is_rounded(whole, Fraction(1))
                ratio = self._divided(node)
                return AnswerFunction(partial(rounded, np.trunc, 0), (ratio,)) if cut else ratio
            case exp.Coalesce() | exp.Least() | exp.Greatest():
                return self._of_several(node)
            case exp.Nullif():
                return AnswerFunction(null_if, (self.read(node.this), self.read(node.expression)))
            case exp.Round() | exp.Floor() | exp.Ceil() | exp.Trunc() | exp.Cast():
                return self._rounded(node)
        raise refuse(self.text, node, COMPUTED)

    def _times(self, one: AnswerExpression, other: AnswerExpression) -> AnswerExpression:
        for left, right in ((one, other), (other, one)):
            if isinstance(left, Linear) and not left.weights:
                return scaled(right, left.constant)
        return AnswerFunction(product, (one, other))

    def _divided(self, node: Any) -> AnswerExpression:  # noqa: ANN401
        from sqlglot import exp

        divisor = node.expression.unnest()
        if isinstance(divisor, exp.Nullif) and isinstance(divisor.expression, exp.Literal):
            divisor = divisor.this if not number(self.text, divisor.expression) else divisor
        above, below = self.read(node.this), self.read(divisor)
        if isinstance(below, Linear) and not below.weights:
            if not below.constant:
                raise refuse(self.text, node.expression, "division by zero is not possible")
            return scaled(above, 1 / below.constant)
        return AnswerFunction(quotient, (above, below))

    def _power(self, node: Any) -> AnswerExpression:  # noqa: ANN401
        from sqlglot import exp

        exponent = node.expression.unnest()
        power = number(self.text, exponent) if isinstance(exponent, exp.Literal) else Fraction(0)
        if power.denominator != 1 or not 1 <= power <= LARGEST_POWER:
            raise refuse(self.text, exponent, f"POWER takes a whole exponent from 1 to {LARGEST_POWER}: POWER(x, 2)")
        return AnswerFunction(partial(raised, int(power)), (self.read(node.this),))

    def _of_several(self, node: Any) -> AnswerExpression:  # noqa: ANN401
        from sqlglot import exp

        parts = tuple(map(self.read, [node.this, *node.expressions]))
        if isinstance(node, exp.Coalesce):
            return reduce(lambda one, other: AnswerFunction(otherwise, (one, other)), parts)
        return AnswerFunction(least if isinstance(node, exp.Least) else greatest, parts)

    def _rounded(self, node: Any) -> AnswerExpression:  # noqa: ANN401
        from sqlglot import exp

        inner = self.read(node.this)
        kinds = {exp.Floor: np.floor, exp.Ceil: np.ceil, exp.Trunc: np.trunc}
        how: Callable[[FloatArray], FloatArray] = kinds.get(type(node), half_away)
        digits = 0
        if isinstance(node, exp.Cast):
            kind = node.to
            if kind.is_type(*exp.DataType.FLOAT_TYPES):
                return inner
            if kind.is_type(*exp.DataType.INTEGER_TYPES):
                how = np.rint
            elif kind.this is exp.DataType.Type.DECIMAL:
                stated = [int(number(self.text, each.this)) for each in kind.expressions]
                digits = (*stated, 0)[1] if stated else _DECIMAL[1]
            else:
                raise refuse(self.text, node, f"{COMPUTED}; {kind.sql(dialect='duckdb')} is no number")
        elif node.args.get("decimals") is not None:
            places = number(self.text, node.args["decimals"])
            if places.denominator != 1 or abs(places) > 18:  # noqa: PLR2004 - digits of a double
                raise refuse(self.text, node, "round to a whole number of digits, such as ROUND(AVG(x), 2)")
            digits = int(places)
        if isinstance(inner, Linear) and self._is_rounded(inner, Fraction(10) ** -digits):
            return inner
        return AnswerFunction(partial(rounded, how, digits), (inner,))

    def _is_rounded(self, linear: Linear, step: Fraction) -> bool:
        """Return whether every answer is a multiple of a step already; for counts the step is 1."""
        units = [self.units(place) for place in linear.places]
        parts = [weight * self.units(place) for place, weight in linear.weights]
        return all(units) and all(not each % step for each in (linear.constant, *parts))


@dataclass
class SelectList:
    """The items of a SELECT.

    Attributes:
        aggregates: the measured aggregates.
        items: for each selected column, its numbers, or -1 for the first group, -2 for the second.
        columns: the name, the numbers and a note of each column with numbers.
    """

    aggregates: list[Aggregate]
    items: list[int | AnswerExpression]
    columns: list[tuple[str, AnswerExpression, str]]

    def add(self, aggregate: Aggregate, *, repeats: bool) -> Linear:
        """Add an aggregate and return it; an equal aggregate is reused, unless ``repeats`` is set."""
        if repeats or aggregate not in self.aggregates:
            self.aggregates.append(aggregate)
            return aggregate_at(len(self.aggregates) - 1)
        return aggregate_at(self.aggregates.index(aggregate))

    @property
    def is_bare(self) -> bool:
        """True if the columns are the plain aggregates in their order."""
        places = [None if note else _bare(expression) for _, expression, note in self.columns]
        return places == list(range(len(self.aggregates)))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the aggregates: the names of their columns, if they have any."""
        names = {_bare(expression): name for name, expression, _ in reversed(self.columns)}
        return tuple(names.get(place, str(aggregate)) for place, aggregate in enumerate(self.aggregates))

    def use_means(self, domain: Domain, needed: AbstractSet[int]) -> dict[int, str]:
        """Measure a mean instead of a sum and a count if only their ratio is used.

        Args:
            domain: the domain of the rows.
            needed: indices of aggregates that clauses after GROUP BY name.

        Returns:
            A note for each index of such a mean.
        """
        expressions = [item for item in self.items if not isinstance(item, int)]
        pairs = {
            parts[:2]
            for expression in expressions
            for each in parts_of(expression)
            if (parts := ratio_parts(each)) and self._is_mean(*parts[:2], domain)
        }
        alone = partial(_with_means, dict.fromkeys(pairs, Linear()))
        others = frozenset(needed).union(*(each.rewrite(alone).places for each in expressions))
        means, notes = {}, {}
        for above, below in sorted(pairs):
            total, count = self.aggregates[above], self.aggregates[below]
            mean = Average(total.of) if isinstance(total, Total) else total
            if {above, below} <= others and mean not in self.aggregates:
                continue  # sum and count are measured anyway
            means[above, below] = self.add(mean, repeats=False)
            notes[self.aggregates.index(mean)] = f"{total} / {count} is measured as {mean}, which has a smaller error"
        if not means:
            return {}
        self.items = [x if isinstance(x, int) else x.rewrite(partial(_with_means, means)) for x in self.items]
        used = sorted(frozenset(needed).union(*(item.places for item in self.items if not isinstance(item, int))))
        moved = {place: new for new, place in enumerate(used)}
        self.aggregates = [self.aggregates[place] for place in used]
        self.items = [x if isinstance(x, int) else x.rewrite(partial(_moved, moved)) for x in self.items]
        return {moved[place]: note for place, note in notes.items()}

    def _is_mean(self, above: int, below: int, domain: Domain) -> bool:
        """Return whether a ratio is the sum and the number of the same values."""
        total, count = self.aggregates[above], self.aggregates[below]
        if not isinstance(total, Total) or not isinstance(count, Count) or unknown_code(domain[total.of]) is not None:
            return False
        return count.of == total.of or all(
            null_code(domain[name]) is None for name in (total.of, count.of) if name is not None
        )


def _bare(expression: AnswerExpression) -> int | None:
    return expression.bare if isinstance(expression, Linear) else None


def _with_means(means: Mapping[tuple[int, int], Linear], expression: AnswerExpression) -> AnswerExpression:
    """Return an expression, or the mean that replaces it."""
    parts = ratio_parts(expression)
    return expression if parts is None or parts[:2] not in means else scaled(means[parts[:2]], parts[2])


def _moved(places: Mapping[int, int], expression: AnswerExpression) -> AnswerExpression:
    return expression.moved(places) if isinstance(expression, Linear) else expression


def ratio_parts(expression: AnswerExpression) -> tuple[int, int, Fraction] | None:
    """Return the indices of dividend and divisor of a weighted ratio of two aggregates, and its weight."""
    match expression:
        case AnswerFunction(
            function, (Linear(constant=a, weights=[(above, one)]), Linear(constant=b, weights=[(below, two)]))
        ):
            return (above, below, one / two) if function is quotient and not a and not b and two else None
    return None


def is_aggregate(node: Any) -> bool:  # noqa: ANN401
    """Return whether a node is an aggregate."""
    from sqlglot import exp

    return isinstance(node, exp.AggFunc | exp.WithinGroup | exp.Filter | exp.Window) or form_of(node) is not None


def is_computed(node: Any) -> bool:  # noqa: ANN401
    """Return whether a node computes a value from aggregates inside."""
    return not is_aggregate(node) and any(is_aggregate(each) for each in node.walk())


def form_of(node: Any) -> AggregateForm | None:  # noqa: ANN401
    """Return the form of the aggregate for a function of SQL; None if it is no such function."""
    from sqlglot import exp

    if not isinstance(node, exp.Func):
        return None
    written = [node.name.upper()] if isinstance(node, exp.Anonymous) else node.sql_names()
    names = [SPELLINGS.get(name, name) for name in written]
    return next((NUMBERS[name] for name in names if name in NUMBERS), None)
