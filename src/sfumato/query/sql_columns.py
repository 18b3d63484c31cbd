"""The aggregates and attributes that a statement may name, matched node by node in the tree that sqlglot parses."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sfumato.domain import Domain
from sfumato.errors import DomainError, QueryError
from sfumato.query.question import Aggregate, Count, Distinct, Extreme, Mean, Quantile, Total, Variance, numeric
from sfumato.query.sql_name import name as name_of
from sfumato.query.sql_place import refuse
from sfumato.query.sql_where import number


@dataclass(frozen=True)
class Columns:
    """Reads the columns of one statement."""

    text: str
    domain: Domain
    discoverable: tuple[str, ...]

    def attribute(self, column: Any, *, discovered: bool = False) -> str:  # noqa: ANN401
        """The attribute that a node names; with ``discovered``, also a column whose values may be discovered.

        Raises:
            QueryError: an expression, or no attribute.
        """
        name = name_of(column, (*self.domain.names, *(self.discoverable if discovered else ())))
        if name is None:
            raise refuse(self.text, column, "name an attribute; expressions are not part of the subset")
        if name in self.domain or (discovered and name in self.discoverable):
            return name
        try:
            self.domain.index(name)
        except DomainError as error:
            raise refuse(self.text, column, str(error)) from None
        return name

    def aggregate(self, node: Any) -> Aggregate:  # noqa: ANN401, C901  (one case an aggregate)
        """The aggregate that a node asks for.

        Raises:
            QueryError: none of the subset.
        """
        from sqlglot import exp

        match node:
            case exp.Count():
                return self._count(node)
            case exp.Sum():
                return Total(self._number(node, node.this))
            case exp.Avg():
                return Mean(self._number(node, node.this))
            case exp.VariancePop():
                return Variance(self._number(node, node.this))
            case exp.StddevPop():
                return Variance(self._number(node, node.this), root=True)
            case exp.Min() | exp.Max():
                self._only(node, "this")
                return Extreme(self._number(node, node.this), isinstance(node, exp.Max))
            case exp.Median():
                return self._quantile(node, node.this, None)
            case exp.Quantile():
                return self._quantile(node, node.this, node.args["quantile"])
            case exp.WithinGroup(this=exp.PercentileCont(this=share), expression=exp.Order(expressions=[ordered])):
                if ordered.args.get("desc"):
                    raise refuse(self.text, ordered, "order ascending")
                return self._quantile(node, ordered.this, share)
            case exp.Variance() | exp.Stddev() | exp.StddevSamp():
                raise refuse(self.text, node, "write VAR_POP or STDDEV_POP: the sample's own size is not known exactly")
            case _:
                raise refuse(
                    self.text,
                    node,
                    "ask COUNT, SUM, AVG, VAR_POP, STDDEV_POP, MEDIAN, QUANTILE, MIN or MAX of an attribute",
                )

    def _count(self, node: Any) -> Aggregate:  # noqa: ANN401
        from sqlglot import exp

        if node.expressions:
            raise refuse(self.text, node, "count one thing")
        match node.this:
            case exp.Star():
                return Count()
            case exp.Distinct(expressions=[exp.Column() as column]) if not node.this.args.get("on"):
                unit = self.domain.unit.column
                if unit is None or name_of(column, [unit]) != unit:
                    named = "which is a row here: ask COUNT(*)" if unit is None else f"{unit!r}"
                    raise refuse(
                        self.text, column, f"distinct values can be counted of the unit of privacy only, {named}"
                    )
                return Distinct()
            case exp.Column():
                return Count(self.attribute(node.this))
            case _:
                raise refuse(self.text, node, "count *, an attribute, or DISTINCT the id of the unit of privacy")

    def _quantile(self, node: Any, column: Any, share: Any) -> Aggregate:  # noqa: ANN401
        if share is None:
            self._only(node, "this")
        probability = Fraction(1, 2) if share is None else number(self.text, share)
        name = self._number(None, column)
        try:
            return Quantile(name, probability)
        except QueryError as error:
            raise refuse(self.text, share or node, str(error)) from None

    def _number(self, node: Any, column: Any) -> str:  # noqa: ANN401
        """A numeric attribute; ``node`` takes nothing else."""
        if node is not None:
            self._only(node, "this")
        name = self.attribute(column)
        try:
            numeric(self.domain, name)
        except QueryError as error:
            raise refuse(self.text, column, str(error)) from None
        return name

    def _only(self, node: Any, *allowed: str) -> None:  # noqa: ANN401
        if any(value for name, value in node.args.items() if name not in allowed):
            raise refuse(self.text, node, "an aggregate takes one attribute and nothing else")
