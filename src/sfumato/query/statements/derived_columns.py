"""Derived columns and facts about units, as a schema describes them, become parts of the views that name them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from sfumato.domain import Categorical, Date, Integer
from sfumato.domain.derived import BetweenDates, Derived, FactOfUnit, FirstCase, OfUnit, SincePrevious
from sfumato.domain.domain import Domain
from sfumato.domain.expression import Clamp, DaysBetween, Labels, whole_number
from sfumato.domain.predicate import All, Among, Fold, Not, Predicate
from sfumato.domain.predicate import Any as AnyOf
from sfumato.domain.table_schema import Schema, SchemaTable, load_schema
from sfumato.domain.unit_views import Declared, WithFacts, WithGap
from sfumato.domain.view import (
    AnyRow,
    Computed,
    Filter,
    PerUnit,
    Pick,
    RowCount,
    Scan,
    Taken,
    UnitAggregate,
    UnitSum,
    View,
)
from sfumato.errors import DomainError, SfumatoError
from sfumato.privacy.loss import Loss
from sfumato.query.statements.sql_condition import Place, read_condition
from sfumato.vault import schema_vault
from sfumato.vault.schema_vault import SchemaVault
from sfumato.vault.vault_opening import DATASET, beside

_WORDS = re.compile(r"\w+")
_PICKS = {
    FactOfUnit.MIN: Pick.LEAST,
    FactOfUnit.MAX: Pick.GREATEST,
    FactOfUnit.FIRST: Pick.FIRST,
    FactOfUnit.LAST: Pick.LAST,
}


def further_names(schema: Schema, table: SchemaTable) -> tuple[str, ...]:
    """What may be asked of a table beside its own attributes: derived columns, and facts about units."""
    facts = schema.of_unit if table.name == schema.units else ()
    return (*(each.name for each in table.derived), *(each.name for each in facts))


def wanted(schema: Schema, table: SchemaTable, named: AbstractSet[str]) -> tuple[str, ...]:
    """Of :func:`further_names` those that are named or leave out rows, and those that these are computed of.

    Args:
        schema: of the table.
        table: whose columns they are.
        named: words of a statement, in lower case.
    """
    found = {name for name in further_names(schema, table) if name.casefold() in named}
    found |= {each.name for each in table.derived if each.drops}  # rows are left out whatever is asked
    for each in reversed(table.derived):  # what is derived is computed of what stands before it
        if each.name in found and isinstance(each.what, FirstCase):
            words = {word for when, _ in each.what.cases for word in words_in(when)}
            found |= {other.name for other in table.derived if other.name.casefold() in words}
    return tuple(name for name in further_names(schema, table) if name in found)


def with_derived(schema: Schema, scan: Scan, called: Mapping[str, str]) -> View:
    """A table with what a statement wants of its derived columns and facts.

    Args:
        schema: of the table.
        scan: the table.
        called: what its attributes and the columns wanted are called in the view, by their names in the schema.

    Raises:
        DomainError: the schema derives what cannot be computed; the message names the place in it.
    """
    view: View = scan
    table = scan.table
    own = [each.name for each in table.attributes]
    for column in table.derived:
        if column.name in called:
            with _placed(f"tables.{table.name}.derived.{column.name}"):
                view = _derived(view, column, own, called)
            own.append(column.name)
    if table.name != schema.units:
        return view
    for fact in schema.of_unit:
        if fact.name in called:
            view = WithFacts(view, _facts(schema, fact, called[fact.name]))
    return view


@contextmanager
def _placed(at: str) -> Iterator[None]:
    """What cannot be computed is refused with where the schema says it, and with the line of its condition."""
    try:
        yield
    except SfumatoError as error:
        joint = "," if isinstance(error.culprit, Place) else ":"
        raise DomainError(f"the schema is wrong at {at}{joint} {error}", culprit=at) from None


def _derived(view: View, column: Derived, own: list[str], called: Mapping[str, str]) -> View:
    name, what = called[column.name], column.what
    match what:
        case SincePrevious(date):
            day = view.domain[called[date]]
            assert isinstance(day, Date)
            low = 0 if what.minimum is None or column.drops else what.minimum
            high = (day.last - day.first).days if what.maximum is None or column.drops else what.maximum
            return _declared(WithGap(view, name, called[date], low, high), column)
        case BetweenDates(start, end):
            days = DaysBetween(called[end], called[start])
            ends = (None if each is None else Fraction(each) for each in (what.minimum, what.maximum))
            return _declared(Computed(view, name, days if column.drops else Clamp(days, *ends)), column)
        case FirstCase(cases, otherwise):
            met = tuple((_condition(when, view, own, called), then) for when, then in cases)
            return _declared(Computed(view, name, Labels(met, otherwise)), column)
    raise TypeError(what)  # what is derived is one of these


def _declared(view: Computed | WithGap, column: Derived) -> View:
    """The cells that the schema says of a derived column, which leave out rows where it says so."""
    if column.edges is None and not column.drops:
        return view
    computed, what = view.added, column.what
    nullable = computed.nullable and (column.nullable or not column.drops)
    if isinstance(computed, Categorical) or isinstance(what, FirstCase):
        assert isinstance(computed, Categorical)
        return Declared(view, replace(computed, nullable=nullable))
    assert isinstance(computed, Integer)
    low = computed.minimum if what.minimum is None else what.minimum
    high = computed.maximum if what.maximum is None else what.maximum
    number = whole_number(computed.name, low, high, nullable=nullable)
    return Declared(view, replace(number, edges=column.edges or number.edges, unknown=column.unknown))


def _facts(schema: Schema, fact: OfUnit, name: str) -> PerUnit:
    table = schema[fact.table]
    words = words_in(fact.where or "")
    words |= {each.casefold() for each in (fact.column, fact.by) if each is not None}
    own = [each.name for each in table.attributes]
    further = wanted(schema, table, words)
    called = {each: each for each in (*own, *further)}
    view = with_derived(schema, Scan(table, table.name, tuple(own)), called)
    with _placed(f"of_unit.{fact.name}"):
        if fact.where is not None and fact.how is not FactOfUnit.ANY:
            view = Filter(view, _condition(fact.where, view, [*own, *further], called))
        facts = PerUnit(view, (), ((name, _aggregate(fact, table, view, called)),))
        _ = facts.domain
    return facts


def _aggregate(fact: OfUnit, table: SchemaTable, view: View, called: Mapping[str, str]) -> UnitAggregate:
    match fact.how:
        case FactOfUnit.COUNT:
            most = table.rows if fact.maximum is None else int(fact.maximum)
            return RowCount(1 if most is None else most)  # None: a draft says it later
        case FactOfUnit.ANY:
            return AnyRow(All(()) if fact.where is None else _condition(fact.where, view, list(called), called))
        case FactOfUnit.SUM:
            assert fact.column is not None
            assert fact.minimum is not None
            assert fact.maximum is not None
            return UnitSum(fact.column, fact.minimum, fact.maximum)
        case _:
            assert fact.column is not None
            ordered = fact.how in (FactOfUnit.FIRST, FactOfUnit.LAST)
            return Taken(_PICKS[fact.how], fact.column, (fact.by or fact.column) if ordered else None)


def _condition(text: str, view: View, own: list[str], called: Mapping[str, str]) -> Predicate:
    """A condition in the names of the schema, as one in those of a view."""
    back = {called[name]: name for name in own}
    attributes = tuple(replace(each, name=back[each.name]) for each in view.attributes if each.name in back)
    hierarchies = tuple(
        replace(each, attribute=back[each.attribute]) for each in view.hierarchies if each.attribute in back
    )
    met = read_condition(text, Domain(attributes, hierarchies=hierarchies))
    return met.fold(
        Fold[Predicate](
            among=lambda part: Among(called[part.attribute], part.codes),
            every=lambda parts: All(tuple(parts)),
            some=lambda parts: AnyOf(tuple(parts)),
            negated=Not,
        )
    )


def check_derived(schema: Schema) -> None:
    """Refuse a schema whose derived columns or facts cannot be computed, before anybody asks for them.

    Raises:
        DomainError: one of them cannot be; the message names the place.
    """
    for table in schema:
        own = tuple(one.name for one in table.attributes)
        if table.derived:
            called = {each: each for each in (*own, *(one.name for one in table.derived))}
            view = with_derived(schema, Scan(table, table.name, own), called)
            with _placed(f"tables.{table.name}.derived"):
                _ = view.domain
    for fact in schema.of_unit:
        _facts(schema, fact, fact.name)


def open_schema(  # noqa: PLR0913  (keywords, each of which is one line of a call)
    tables: object,
    *,
    schema: Schema | str | Path,
    ledger: str | None = None,
    limit: Loss | None = None,
    dataset: str = DATASET,
    create: bool = False,
    new_version: bool = False,
) -> SchemaVault:
    """Open the tables of a schema for release, as :func:`sfumato.vault.schema_vault.open_schema` does.

    What the schema derives is looked at first, also where nothing asks for it.

    Args:
        tables: a folder of CSV or Parquet files called by the tables' names, or a mapping from these names to files and
            frames.
        schema: the accepted description, or the path of its YAML file.
        ledger: database URL of the journal.  Without, the file beside the schema, with the ending ``.ledger``.
        limit: the most that may ever be released of all tables together, for one unit.
        dataset: name of the journal, where one ledger keeps several.
        create: whether to make the ledger, with ``limit``, where there is none.
        new_version: whether the tables are declared as the next version, in which every question is charged again.
            Without it, tables that differ from the last version are refused.

    Raises:
        DomainError: the description is wrong, derives what cannot be computed, or is a draft that nobody accepted.
        TableError: a table cannot be read, does not fit it, or its keys are none.
        LedgerError: there is no ledger and none is to be made; or it cannot be opened, has another limit, or adds up
            losses of another unit.
        VersionError: the tables differ from the last version, and ``new_version`` is not set.
        UnitError: earlier releases say of a table that its rows are somebody else's than this schema does.
    """
    if isinstance(schema, str | Path):
        ledger = beside(schema) if ledger is None else ledger
        schema = load_schema(schema)
    if isinstance(schema, Schema):  # else the vault says what a schema is
        check_derived(schema)
    return schema_vault.open_schema(
        tables, schema=schema, ledger=ledger, limit=limit, dataset=dataset, create=create, new_version=new_version
    )


def words_in(text: str) -> set[str]:
    """The words of a text, in lower case."""
    return {word.casefold() for word in _WORDS.findall(text)}


def words_of(select: Any) -> frozenset[str]:  # noqa: ANN401  (sqlglot's own)
    """The names that a parsed statement has anywhere, in lower case."""
    from sqlglot import exp

    return frozenset(node.name.casefold() for node in select.find_all(exp.Identifier))
