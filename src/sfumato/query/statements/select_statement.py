"""A closed subset of SELECT, and every refusal with its place and reason.

    SELECT education, COUNT(*), AVG(income) FROM people WHERE age >= 18 AND sex IN ('F') GROUP BY education

GROUP BY, and the attributes of WHERE, may be levels of declared hierarchies, as ``chapter(diag)``.

Aggregates: COUNT(*), COUNT(a), COUNT(DISTINCT id of the unit), COUNT(DISTINCT a), the functions of
:data:`sfumato.query.aggregates.FORMS` and their other names (:mod:`sfumato.query.statements.aggregate_calls`), each
with FILTER (WHERE ...).  WHERE: comparisons of declared attributes with literals,
IN, BETWEEN, IS NULL, AND, OR, NOT.  Unquoted names match in any case.  GROUP BY takes attributes, places in SELECT and
names given by AS.  HAVING, ORDER BY and LIMIT are about noisy answers (:mod:`sfumato.query.answer_ordering`), and so is
arithmetic with aggregates (:mod:`sfumato.query.answer_expression`).

Everything else is refused by construction: the reader matches the tree of sqlglot node by node, and an engine never
receives a statement.  No expression can fail because of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from sfumato.bounded_cache import cached
from sfumato.domain import Domain
from sfumato.domain.domain import numeric
from sfumato.errors import DomainError, QueryError, SfumatoError
from sfumato.query.aggregates import FORMS, Aggregate, AggregateForm, Count, Distinct, DistinctValues, Filtered
from sfumato.query.answer_expression import AnswerColumn, AnswerExpression, Linear, unit_of
from sfumato.query.answer_ordering import UNORDERED, Ordering, OrderingReader
from sfumato.query.question import Query
from sfumato.query.statements.aggregate_calls import canonical_call, plain_forms
from sfumato.query.statements.select_list import (
    COMPUTED,
    ExpressionReader,
    SelectList,
    form_of,
    is_aggregate,
    is_computed,
)
from sfumato.query.statements.sql_condition import (
    Place,
    condition,
    level_of,
    name_of,
    number,
    parsed,
    refuse,
    refuse_clause,
    selected_at,
    written_arguments,
)

_CLAUSES = {"expressions", "from_", "where", "group", "having", "order", "limit", "offset", "distinct"}


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


@cached(lambda key, query: 500 + len(key[0]) + query.held_bytes)  # without it 500 equal statements take 7 % longer
def _parse(text: str, domain: Domain, groupable_undeclared: tuple[str, ...]) -> Query:
    from sqlglot import exp

    select = plain_forms(parsed(text))
    if not isinstance(select, exp.Select):
        raise QueryError(f"{Place(1, 1)}: write one SELECT statement", culprit=Place(1, 1))
    try:
        return _SelectReader(text, domain, groupable_undeclared, select, lambda node: node).query(select)
    except RecursionError:
        raise QueryError(f"{Place(1, 1)}: this is nested too deeply", culprit=Place(1, 1)) from None


def read_select(text: str, select: Any, domain: Domain, *, written: Any, lower: Callable[[Any], Any]) -> Query:  # noqa: ANN401
    """Read a SELECT over the attributes of a view.

    Args:
        text: the statement, for the places of refusals.
        select: the statement in attributes of the view, without HAVING, ORDER BY and LIMIT.
        domain: the domain of the view.
        written: the parsed statement, unchanged.
        lower: translates a node of ``written`` to attributes of the view.

    Raises:
        QueryError: anything outside the subset.
    """
    return _SelectReader(text, domain, (), written, lower).query(select)


def group_keys(text: str, select: Any, has: Callable[[Any], bool]) -> list[Any]:  # noqa: ANN401
    """Return the keys of GROUP BY; numbers and names given by AS are replaced by the selected expression.

    Args:
        text: the statement.
        select: the parsed statement.
        has: returns whether a column names an attribute, which takes precedence over a name given by AS.

    Raises:
        QueryError: GROUP BY has no plain list of keys, or a number refers to no column.
    """
    from sqlglot import exp

    group = select.args.get("group")
    if group is None:
        return []
    if any(value for name, value in group.args.items() if name != "expressions"):
        raise refuse(text, group, "group by attributes only")
    keys = []
    for key in group.expressions:
        item = key
        if isinstance(key, exp.Literal) and not key.is_string:
            item = selected_at(text, select, key)
        elif isinstance(key, exp.Column) and not key.table and not has(key):
            named = (each for each in select.expressions if each.alias and each.alias.casefold() == key.name.casefold())
            item = next(named, key)
        if item is not key and item.find(exp.AggFunc):
            raise refuse(text, key, f"GROUP BY {key.sql()} is an answer; group by an attribute")
        keys.append(item.unalias())
    return keys


@dataclass(frozen=True)
class _SelectReader:
    """A reader of one parsed statement."""

    text: str
    domain: Domain
    groupable_undeclared: tuple[str, ...]
    written: Any
    lower: Callable[[Any], Any]

    def query(self, select: Any) -> Query:  # noqa: ANN401  (sqlglot's own)
        """Return the query of a SELECT.

        Raises:
            QueryError: anything outside the subset.
        """
        for clause, value in select.args.items():
            if value and clause not in _CLAUSES:
                raise refuse_clause(self.text, clause, value)
        self._refuse_source(select)
        by = self._groups(select)
        where = select.args.get("where")
        predicate = None if where is None else condition(self.text, where.this, self.domain).true
        selected = self._columns(select.expressions, by)
        self._refuse_distinct(by, selected)
        ordering, aggregates = self._ordering(select, by, selected), selected.aggregates
        undeclared = tuple(name for name in by if name not in self.domain and name in self.groupable_undeclared)
        if undeclared:
            aggregates = [self._of_units(aggregate, select) for aggregate in aggregates]
        try:
            return Query(
                tuple(aggregates),
                by=tuple(name for name in by if name not in undeclared),
                where=predicate,
                data_dependent_groups=undeclared,
                names=selected.names,
                ordering=ordering,
                columns=() if selected.is_bare else tuple(AnswerColumn(*each) for each in selected.columns),
            ).check(self.domain)
        except SfumatoError as error:
            raise refuse(self.text, select, str(error)) from None

    def _refuse_distinct(self, by: tuple[str, ...], selected: SelectList) -> None:
        """Refuse a SELECT DISTINCT that would drop equal rows."""
        distinct = self.written.args.get("distinct")
        if distinct is None:
            return
        left_out = [name for place, name in enumerate(by) if -1 - place not in selected.items]
        if distinct.args.get("on") or left_out:
            named = f"select {', '.join(left_out)} as well" if left_out else "write SELECT DISTINCT without ON"
            raise refuse(self.text, self.written, f"DISTINCT would drop answers that are equal by chance; {named}")

    def _ordering(self, select: Any, by: tuple[str, ...], selected: SelectList) -> Ordering:  # noqa: ANN401
        """Read HAVING, ORDER BY and LIMIT, and the names that AS gives to groups."""
        called, aggregates, items = list(by), selected.aggregates, tuple(selected.items)
        for item, place in zip(select.expressions, items, strict=False):
            if isinstance(place, int) and item.alias:
                called[-1 - place] = item.alias
        names = tuple(called) if called != list(by) and len(set(called)) == len(called) else ()
        if not names and not any(self.written.args.get(clause) for clause in ("having", "order", "limit", "offset")):
            return UNORDERED

        def place_of(node: Any) -> int | None:  # noqa: ANN401
            lowered = self.lower(node)
            if self._is_group(lowered):
                name = self._group(lowered)
                return -1 - by.index(name) if name in by else None
            aggregate = self._aggregate(lowered)
            return aggregates.index(aggregate) if aggregate in aggregates else None

        return OrderingReader(self.text, self.written, self.domain, by, tuple(aggregates), items, place_of).read(names)

    def _of_units(self, aggregate: Aggregate, select: Any) -> Aggregate:  # noqa: ANN401
        """Return the count of units by values found in the data; without a column of units every row is a unit."""
        unit = self.domain.unit.column
        if aggregate == Distinct() or (unit is None and aggregate == Count()):
            return Distinct()
        function = "COUNT(*)" if unit is None else f"COUNT(DISTINCT {unit})"
        raise refuse(self.text, select, f"by values found in the data only units can be counted: ask {function}")

    def _refuse_source(self, select: Any) -> None:  # noqa: ANN401
        from sqlglot import exp

        source = select.args.get("from_")
        table = None if source is None else source.this
        if table is None:
            raise refuse(self.text, select, "name a table after FROM")
        extra = [name for name, value in table.args.items() if value and name != "this"]
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier) or extra:
            raise refuse(self.text, table, "ask one table by its plain name")

    def _groups(self, select: Any) -> tuple[str, ...]:  # noqa: ANN401
        known = (*self.domain.names, *self.groupable_undeclared)
        keys = group_keys(self.text, select, lambda key: name_of(key, known) in known)
        names = tuple(map(self._group, keys))
        if len(set(names)) != len(names):
            raise refuse(self.text, select.args["group"], "an attribute is repeated in GROUP BY")
        return names

    def _columns(self, columns: Sequence[Any], by: tuple[str, ...]) -> SelectList:
        """Return the selected columns.  An aggregate that an expression repeats is measured once."""
        repeats = not any(is_computed(column.unalias()) for column in columns)
        selected = SelectList([], [], [])
        for column in columns:
            node = column.unalias()
            if is_computed(node):
                reader = ExpressionReader(self.text, partial(self._leaf, selected), partial(self._unit, selected))
                selected.items.append(reader.read(node))
            elif not self._is_group(node):
                selected.items.append(selected.add(self._aggregate(node), repeats=repeats))
            elif (name := self._group(node)) in by:
                selected.items.append(-1 - by.index(name))
            else:
                raise refuse(self.text, node, "a plain attribute in SELECT must also be in GROUP BY")
        if not selected.aggregates:
            raise refuse(
                self.text, columns[0] if columns else None, "a statement selects an aggregate, such as COUNT(*)"
            )
        more = self._add_ordering(selected)
        needed = frozenset(selected.aggregates.index(each) for each in self._ordering_aggregates())
        means = selected.use_means(self.domain, needed)
        for column, written, item in zip(columns, self.written.expressions, selected.items, strict=False):
            if not isinstance(item, int):
                place = item.bare if isinstance(item, Linear) else None
                notes = [note for mean, note in means.items() if mean in item.places]
                computes = place is None or notes
                text = written.unalias().sql(dialect="duckdb") if computes else str(selected.aggregates[place or 0])
                name = column.alias or text
                note = f"{name}: {'; '.join(notes)}" if notes else ""
                selected.columns.append((name, item, "; ".join(filter(None, (note, more)))))
                more = ""
        named = [name for name, _, _ in selected.columns]
        named += [each.alias for each, item in zip(columns, selected.items, strict=False) if item in range(-len(by), 0)]
        named = [name for name in named if name]
        if len(set(named)) != len(named):
            raise refuse(self.text, columns[0], "two columns have the same name; rename one with AS")
        return selected

    def _add_ordering(self, selected: SelectList) -> str:
        """Measure the aggregates of HAVING and ORDER BY that are not selected; return a note that names them."""
        more = [each for each in dict.fromkeys(self._ordering_aggregates()) if each not in selected.aggregates]
        for each in more:
            selected.add(each, repeats=False)
        names = ", ".join(map(str, more))
        return f"for HAVING or ORDER BY {names} took a part of the loss, as if it were selected" if more else ""

    def _ordering_aggregates(self) -> Iterator[Aggregate]:
        """Yield the aggregates of HAVING and ORDER BY, except inside selected expressions."""
        items = [item.unalias() for item in self.written.expressions]
        waiting = [clause for name in ("having", "order") if (clause := self.written.args.get(name)) is not None]
        while waiting:
            node = waiting.pop()
            if not is_aggregate(node):
                waiting += [part for part in node.iter_expressions() if part not in items]
                continue
            with suppress(QueryError):  # the reader of the clause raises the error
                yield self._aggregate(self.lower(node))

    def _leaf(self, selected: SelectList, node: Any) -> AnswerExpression | None:  # noqa: ANN401
        """Return the aggregate of a node; None for a computation or a number."""
        from sqlglot import exp

        if is_computed(node) or isinstance(node, exp.Literal | exp.Neg | exp.Paren):
            return None
        if isinstance(node, exp.Column):
            raise refuse(self.text, node, f"{COMPUTED}; {node.sql()} is no aggregate")
        return selected.add(self._aggregate(node), repeats=False) if is_aggregate(node) else None

    def _unit(self, selected: SelectList, place: int) -> Fraction:
        return unit_of(selected.aggregates[place], self.domain)

    def _is_group(self, node: Any) -> bool:  # noqa: ANN401
        """Return whether a node is a column, or a level of one."""
        from sqlglot import exp

        return isinstance(node, exp.Column) or (form_of(node) is None and self._is_level(node))

    def _is_level(self, node: Any) -> bool:  # noqa: ANN401
        """Return whether a node is a level of an attribute; refuse a name of neither a level nor an aggregate."""
        from sqlglot import exp

        try:
            return level_of(self.text, node, self.domain) is not None
        except QueryError as error:
            if not isinstance(node, exp.Anonymous):
                raise
            reason = str(error).partition(": ")[2]
            raise refuse(self.text, node, f"{_functions()}, or a level: {reason}") from None

    def _group(self, column: Any) -> str:  # noqa: ANN401
        """Return the attribute, the level of its hierarchy, or the undeclared column that a node groups by."""
        return level_of(self.text, column, self.domain) or self._attribute(column, self.groupable_undeclared)

    def _attribute(self, column: Any, undeclared: tuple[str, ...] = ()) -> str:  # noqa: ANN401
        """Return the attribute that a node names, or one of the ``undeclared`` columns."""
        name = name_of(column, (*self.domain.names, *undeclared))
        if name is None:
            raise refuse(self.text, column, "name an attribute or one of its levels; expressions are not allowed here")
        if name not in self.domain and name not in undeclared:
            try:
                self.domain.index(name)
            except DomainError as error:
                raise refuse(self.text, column, str(error)) from None
        return name

    def _aggregate(self, node: Any) -> Aggregate:  # noqa: ANN401
        from sqlglot import exp

        call = canonical_call(self.text, node)
        match call:
            case exp.Filter(this=inner, expression=exp.Where(this=where)):
                met = condition(self.text, where, self.domain).true
                return Filtered(self._aggregate(inner), met, where.sql(dialect="duckdb").replace('"', ""))
            case exp.Count():
                return self._count(call)
        form = form_of(call)
        if form is None:
            raise refuse(self.text, node, _functions())
        dropped = call is node and isinstance(node, exp.Quantile)
        given = list(call.iter_expressions())
        return self._of_number(
            node, form, given, complete=not dropped or written_arguments(self.text, node) == len(given)
        )

    def _count(self, node: Any) -> Aggregate:  # noqa: ANN401
        from sqlglot import exp

        if node.expressions:
            raise refuse(self.text, node, "COUNT takes one argument")
        unit = self.domain.unit.column
        match node.this:
            case exp.Star() | exp.Literal(is_string=False):
                return Count()  # COUNT(1) counts rows, as COUNT(*) does
            case exp.Distinct(expressions=[column]) if not node.this.args.get("on"):
                if unit is not None and name_of(column, [unit]) == unit:
                    return Distinct()
                return self._distinct_values(column)
            case exp.Column() as column if unit is not None and name_of(column, [unit]) == unit not in self.domain:
                return Count()  # rows without a unit id are never counted
            case exp.Column():
                return Count(self._attribute(node.this))
            case _:
                raise refuse(self.text, node, "count *, an attribute, or DISTINCT an attribute or the id of the unit")

    def _distinct_values(self, column: Any) -> Aggregate:  # noqa: ANN401
        """Return the number of distinct values of an attribute, or of a level of it."""
        if not self._is_group(column):
            raise refuse(self.text, column, "count distinct values of one attribute, of a level or of the unit's id")
        unit = self.domain.unit.column
        try:
            aggregate = DistinctValues(self._group(column))
            aggregate.check(self.domain)
        except SfumatoError as error:
            if isinstance(error.culprit, Place):
                rows = "each row is a unit of its own: ask COUNT(*)" if unit is None else f"units are counted by {unit}"
                known = name_of(column, self.domain.names) in self.domain
                raise (
                    error if known else refuse(self.text, column, f"{str(error).partition(': ')[2]}; {rows}")
                ) from None
            raise refuse(self.text, column, str(error)) from None
        return aggregate

    def _of_number(self, node: Any, form: AggregateForm, given: Sequence[Any], *, complete: bool) -> Aggregate:  # noqa: ANN401
        """Build an aggregate of a numeric attribute from its arguments: the attribute, then the parameters."""
        if len(given) != 1 + len(form.parameters) or not complete:
            takes = " and ".join(["one attribute", *(f"a {name}" for name in form.parameters)])
            raise refuse(self.text, node, f"{form.function} takes {takes} and nothing else")
        column, *shares = given
        name, numbers = self._attribute(column), [number(self.text, share) for share in shares]
        try:
            numeric(self.domain, name)
        except QueryError as error:
            raise refuse(self.text, column, str(error)) from None
        try:
            return form.make(name, *numbers)
        except QueryError as error:
            raise refuse(self.text, shares[0] if shares else node, str(error)) from None


def _functions() -> str:
    """Return a suggestion to use instead of an unknown function."""
    *others, last = dict.fromkeys(each.function for each in FORMS)
    return f"the aggregates are {', '.join(others)} and {last} of an attribute"
