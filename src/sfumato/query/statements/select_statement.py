"""A closed subset of SELECT, and every refusal with its place and reason.

    SELECT education, COUNT(*), AVG(income) FROM people WHERE age >= 18 AND sex IN ('F') GROUP BY education

GROUP BY, and the attributes of WHERE, may be levels of declared hierarchies, as ``chapter(diag)``.

Aggregates: COUNT(*), COUNT(a), COUNT(DISTINCT id of the unit), the functions of :data:`sfumato.query.aggregates.FORMS`,
PERCENTILE_CONT(p) WITHIN GROUP (ORDER BY a).  WHERE: comparisons of declared attributes with literals,
IN, BETWEEN, IS NULL, AND, OR, NOT.  Names that are not quoted are found in any case.  Everything that is not
listed is refused by construction: the tree that sqlglot parses is matched node by node, and nothing is ever sent
to an engine.  There is no expression whose failure could depend on data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sfumato.bounded_cache import cached
from sfumato.domain import Domain
from sfumato.domain.domain import numeric
from sfumato.errors import DomainError, QueryError, SfumatoError
from sfumato.query.aggregates import FORMS, Aggregate, AggregateForm, Count, Distinct, Takes
from sfumato.query.question import Query
from sfumato.query.statements.sql_condition import (
    Place,
    condition,
    level_of,
    name_of,
    number,
    parsed,
    refuse,
    refuse_clause,
)

_NUMBERS = {form.function: form for form in FORMS if form.takes is Takes.NUMBER}
_CLAUSES = {"expressions": "", "from_": "", "where": "", "group": ""}


def parse(text: str, domain: Domain, *, groupable_undeclared: Sequence[str] = ()) -> Query:
    """Read one SELECT statement.

    Args:
        text: the statement.  The name of the table after FROM is free.
        domain: the public description of the table.
        groupable_undeclared: columns outside the domain by whose values the owner lets analysts group.

    Raises:
        QueryError: anything outside the subset; ``culprit`` is its :class:`Place`.
    """
    if not isinstance(text, str) or isinstance(groupable_undeclared, str):
        raise QueryError("a statement is text, and the columns that may be discovered are a list", culprit=text)
    return _parse(text, domain, tuple(groupable_undeclared))


@cached(lambda key, query: 500 + len(key[0]) + query.held_bytes)  # a statement is usually previewed and then asked
def _parse(text: str, domain: Domain, groupable_undeclared: tuple[str, ...]) -> Query:
    from sqlglot import exp

    select = parsed(text)
    if not isinstance(select, exp.Select):
        raise QueryError(f"{Place(1, 1)}: ask one SELECT statement", culprit=Place(1, 1))
    try:
        return _Reader(text, domain, _Columns(text, domain, groupable_undeclared)).query(select)
    except RecursionError:
        raise QueryError(f"{Place(1, 1)}: this is nested too deeply", culprit=Place(1, 1)) from None


def read_select(text: str, select: Any, domain: Domain) -> Query:  # noqa: ANN401  (sqlglot's own)
    """What a parsed SELECT asks of the attributes of a domain; places in refusals are those of ``text``.

    Raises:
        QueryError: anything outside the subset.
    """
    return _Reader(text, domain, _Columns(text, domain, ())).query(select)


@dataclass(frozen=True)
class _Reader:
    text: str
    domain: Domain
    read: _Columns

    def query(self, select: Any) -> Query:  # noqa: ANN401  (sqlglot's own)
        for clause, value in select.args.items():
            if value and clause not in _CLAUSES:
                raise refuse_clause(self.text, clause, value)
        self._source(select)
        by = self._groups(select.args.get("group"))
        where = select.args.get("where")
        predicate = None if where is None else condition(self.text, where.this, self.domain).true
        aggregates, names = self._columns(select.expressions, by)
        found = tuple(name for name in by if name in self.read.groupable_undeclared and name not in self.domain)
        if found:
            aggregates = [self._of_units(aggregate, select) for aggregate in aggregates]
        try:
            return Query(
                tuple(aggregates),
                by=tuple(name for name in by if name not in found),
                where=predicate,
                data_dependent_groups=found,
                names=tuple(names),
            ).check(self.domain)
        except SfumatoError as error:
            raise refuse(self.text, select, str(error)) from None

    def _of_units(self, aggregate: Aggregate, select: Any) -> Aggregate:  # noqa: ANN401
        """By values found in the data units are counted, which are the rows where no column names units."""
        unit = self.domain.unit.column
        if aggregate == Distinct() or (unit is None and aggregate == Count()):
            return Distinct()
        ask = "COUNT(*)" if unit is None else f"COUNT(DISTINCT {unit})"
        raise refuse(self.text, select, f"by values found in the data only units can be counted: ask {ask}")

    def _source(self, select: Any) -> None:  # noqa: ANN401
        from sqlglot import exp

        source = select.args.get("from_")
        table = None if source is None else source.this
        if table is None:
            raise refuse(self.text, select, "say FROM which table")
        extra = [name for name, value in table.args.items() if value and name != "this"]
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier) or extra:
            raise refuse(self.text, table, "ask one table by its plain name")

    def _groups(self, group: Any) -> tuple[str, ...]:  # noqa: ANN401
        if group is None:
            return ()
        if any(value for name, value in group.args.items() if name != "expressions"):
            raise refuse(self.text, group, "group by attributes only")
        names = tuple(self.read.group(column) for column in group.expressions)
        if len(set(names)) != len(names):
            raise refuse(self.text, group, "an attribute stands twice in GROUP BY")
        return names

    def _columns(self, columns: Sequence[Any], by: tuple[str, ...]) -> tuple[list[Aggregate], list[str]]:
        from sqlglot import exp

        aggregates: list[Aggregate] = []
        names: list[str] = []
        for column in columns:
            node, name = (column.this, column.alias) if isinstance(column, exp.Alias) else (column, None)
            grouped = isinstance(node, exp.Column) or (
                _form(node) is None and level_of(self.text, node, self.domain) is not None
            )
            if grouped:
                if self.read.group(node) not in by:
                    raise refuse(self.text, node, "a plain attribute in SELECT also stands in GROUP BY")
                continue
            aggregate = self.read.aggregate(node)
            aggregates.append(aggregate)
            names.append(name or str(aggregate))
        if not aggregates:
            raise refuse(self.text, columns[0] if columns else None, "ask for an aggregate such as COUNT(*)")
        if len(set(names)) != len(names):
            raise refuse(self.text, columns[0], "two columns have one name; give one of them another by AS")
        return aggregates, names


@dataclass(frozen=True)
class _Columns:
    """Reads the columns of one statement."""

    text: str
    domain: Domain
    groupable_undeclared: tuple[str, ...]

    def group(self, column: Any) -> str:  # noqa: ANN401
        """What a node groups by: an attribute, a level of its hierarchy, or a column whose values are discovered.

        Raises:
            QueryError: none of them.
        """
        return level_of(self.text, column, self.domain) or self.attribute(column, undeclared=True)

    def attribute(self, column: Any, *, undeclared: bool = False) -> str:  # noqa: ANN401
        """The attribute that a node names; with ``undeclared``, also a column whose values may be discovered.

        Raises:
            QueryError: an expression, or no attribute.
        """
        name = name_of(column, (*self.domain.names, *(self.groupable_undeclared if undeclared else ())))
        if name is None:
            raise refuse(self.text, column, "name an attribute; expressions are not part of the subset")
        if name in self.domain or (undeclared and name in self.groupable_undeclared):
            return name
        try:
            self.domain.index(name)
        except DomainError as error:
            raise refuse(self.text, column, str(error)) from None
        return name

    def aggregate(self, node: Any) -> Aggregate:  # noqa: ANN401
        """The aggregate that a node asks for.

        Raises:
            QueryError: none of the subset.
        """
        from sqlglot import exp

        match node:
            case exp.Count():
                return self._count(node)
            case exp.WithinGroup(this=exp.PercentileCont(this=share), expression=exp.Order(expressions=[ordered])):
                if ordered.args.get("desc"):
                    raise refuse(self.text, ordered, "order ascending")
                return self._of_number(node, _NUMBERS["QUANTILE"], [ordered.this, share])
            case exp.Variance() | exp.Stddev() | exp.StddevSamp():
                raise refuse(self.text, node, "write VAR_POP or STDDEV_POP: the sample's own size is not known exactly")
        form = _form(node)
        if form is None:
            *others, last = dict.fromkeys(each.function for each in FORMS)
            raise refuse(self.text, node, f"ask {', '.join(others)} or {last} of an attribute")
        return self._of_number(node, form, list(node.iter_expressions()))

    def _count(self, node: Any) -> Aggregate:  # noqa: ANN401
        from sqlglot import exp

        if node.expressions:
            raise refuse(self.text, node, "count one thing")
        match node.this:
            case exp.Star() | exp.Literal(is_string=False):
                return Count()  # COUNT(1) counts rows, as COUNT(*) does
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

    def _of_number(self, node: Any, form: AggregateForm, given: Sequence[Any]) -> Aggregate:  # noqa: ANN401
        """Build an aggregate of a numeric attribute, which is given first; its parameters follow."""
        if len(given) != 1 + len(form.parameters):
            takes = " and ".join(["one attribute", *(f"a {name}" for name in form.parameters)])
            raise refuse(self.text, node, f"{form.function} takes {takes} and nothing else")
        column, *shares = given
        name, numbers = self.attribute(column), [number(self.text, share) for share in shares]
        try:
            numeric(self.domain, name)
        except QueryError as error:
            raise refuse(self.text, column, str(error)) from None
        try:
            return form.make(name, *numbers)
        except QueryError as error:
            raise refuse(self.text, shares[0] if shares else node, str(error)) from None


def _form(node: Any) -> AggregateForm | None:  # noqa: ANN401
    """Return the aggregate of a number that a function of SQL is; None if it is no such function."""
    from sqlglot import exp

    if not isinstance(node, exp.Func):
        return None
    names = [node.name.upper()] if isinstance(node, exp.Anonymous) else node.sql_names()
    return next((_NUMBERS[name] for name in names if name in _NUMBERS), None)
