"""A closed subset of SELECT, and every refusal with its place and reason.

    SELECT education, COUNT(*), AVG(income) FROM people WHERE age >= 18 AND sex IN ('F') GROUP BY education

Aggregates: COUNT(*), COUNT(a), COUNT(DISTINCT id of the unit), SUM, AVG, VAR_POP, STDDEV_POP, MEDIAN, QUANTILE(a, p),
PERCENTILE_CONT(p) WITHIN GROUP (ORDER BY a), MIN, MAX.  WHERE: comparisons of declared attributes with literals,
IN, BETWEEN, IS NULL, AND, OR, NOT.  Names that are not quoted are found in any case.  Everything that is not
listed is refused by construction: the tree that sqlglot parses is matched node by node, and nothing is ever sent
to an engine.  There is no expression whose failure could depend on data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sfumato.domain import Domain
from sfumato.errors import QueryError, SfumatoError
from sfumato.query.question import Aggregate, Count, Distinct, Query
from sfumato.query.sql_columns import Columns
from sfumato.query.sql_place import Place, refuse, refuse_clause, unclosed, unreadable
from sfumato.query.sql_where import condition

LONGEST = 10_000
_CLAUSES = {"expressions": "", "from_": "", "where": "", "group": ""}


def parse(text: str, domain: Domain, *, discoverable: Sequence[str] = ()) -> Query:
    """Read one SELECT statement.

    Args:
        text: the statement.  The name of the table after FROM is free.
        domain: the public description of the table.
        discoverable: columns outside the domain by whose values the owner lets analysts group.

    Raises:
        QueryError: anything outside the subset; ``culprit`` is its :class:`Place`.
    """
    if not isinstance(text, str) or isinstance(discoverable, str):
        raise QueryError("a statement is text, and the columns that may be discovered are a list", culprit=text)
    return _parse(text, domain, tuple(discoverable))


@lru_cache(maxsize=1024)  # a statement is usually previewed and then asked
def _parse(text: str, domain: Domain, discoverable: tuple[str, ...]) -> Query:
    import sqlglot
    from sqlglot import exp

    if len(text) > LONGEST:
        raise QueryError(f"a statement has at most {LONGEST} characters", culprit=Place(1, 1))
    try:
        statements = sqlglot.parse(text, read="duckdb")
    except sqlglot.errors.ParseError as error:
        place = unreadable(error)
        raise QueryError(f"{place}: this is not SQL that can be read", culprit=place) from None
    except sqlglot.errors.TokenError:
        place = unclosed(text)
        raise QueryError(f"{place}: a quote or comment is not closed", culprit=place) from None
    except RecursionError:
        raise QueryError(f"{Place(1, 1)}: this is nested too deeply", culprit=Place(1, 1)) from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Select):
        raise QueryError(f"{Place(1, 1)}: ask one SELECT statement", culprit=Place(1, 1))
    try:
        return _Reader(text, domain, Columns(text, domain, discoverable)).query(statements[0])
    except RecursionError:
        raise QueryError(f"{Place(1, 1)}: this is nested too deeply", culprit=Place(1, 1)) from None


@dataclass(frozen=True)
class _Reader:
    text: str
    domain: Domain
    read: Columns

    def query(self, select: Any) -> Query:  # noqa: ANN401  (sqlglot's own)
        for clause, value in select.args.items():
            if value and clause not in _CLAUSES:
                raise refuse_clause(self.text, clause, value)
        self._source(select)
        by = self._groups(select.args.get("group"))
        where = select.args.get("where")
        predicate = None if where is None else condition(self.text, where.this, self.domain).true
        aggregates, names = self._columns(select.expressions, by)
        found = tuple(name for name in by if name not in self.domain)
        if found:
            aggregates = [self._of_units(aggregate, select) for aggregate in aggregates]
        try:
            return Query(
                tuple(aggregates),
                by=tuple(name for name in by if name in self.domain),
                where=predicate,
                discovered=found,
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
        names = tuple(self.read.attribute(column, discovered=True) for column in group.expressions)
        if len(set(names)) != len(names):
            raise refuse(self.text, group, "an attribute stands twice in GROUP BY")
        return names

    def _columns(self, columns: Sequence[Any], by: tuple[str, ...]) -> tuple[list[Aggregate], list[str]]:
        from sqlglot import exp

        aggregates: list[Aggregate] = []
        names: list[str] = []
        for column in columns:
            node, name = (column.this, column.alias) if isinstance(column, exp.Alias) else (column, None)
            if isinstance(node, exp.Column):
                if self.read.attribute(node, discovered=True) not in by:
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
