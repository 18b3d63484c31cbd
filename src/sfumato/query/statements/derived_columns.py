"""Derived columns and facts about units of a schema, as parts of the views that name them."""

from __future__ import annotations

import math
import re
import sys
from calendar import monthrange
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, timedelta
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from sfumato.domain import Categorical, Date, Grouping, Integer, Real
from sfumato.domain.attribute import EXTRA
from sfumato.domain.derived import BetweenDates, Derived, FactOfUnit, FirstCase, OfUnit, SincePrevious
from sfumato.domain.domain import Domain
from sfumato.domain.expression import Clamp, DaysBetween, Labels, whole_number
from sfumato.domain.predicate import All, Among, Fold, Not, Predicate
from sfumato.domain.predicate import Any as AnyOf
from sfumato.domain.table_schema import Schema, SchemaTable, load_schema
from sfumato.domain.unit_views import AnyRow, Declared, Renamed, WithFacts, WithGap, WithPublicValue
from sfumato.domain.view import (
    Computed,
    Filter,
    Join,
    OverSource,
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
from sfumato.privacy.loss import Loss, exact
from sfumato.query.statements.declared_values import is_text_function, text_constant
from sfumato.query.statements.sql_condition import Place, number, read_condition, refuse
from sfumato.vault import schema_vault
from sfumato.vault.schema_vault import SchemaVault
from sfumato.vault.vault_opening import DATASET, default_ledger_url

_WORDS = re.compile(r"\w+")
_LABELS = 1000  # cells of a period or level as a key of a unit's rows
_PICKS = {
    FactOfUnit.MIN: Pick.LEAST,
    FactOfUnit.MAX: Pick.GREATEST,
    FactOfUnit.FIRST: Pick.FIRST,
    FactOfUnit.LAST: Pick.LAST,
}


def further_names(schema: Schema, table: SchemaTable) -> tuple[str, ...]:
    """Return the derived columns of a table, and the facts about units if it lists them."""
    facts = schema.of_unit if table.name == schema.units else ()
    return (*(each.name for each in table.derived), *(each.name for each in facts))


def needed_names(schema: Schema, table: SchemaTable, named: AbstractSet[str]) -> tuple[str, ...]:
    """Return the named :func:`further_names`, the ones that drop rows, and all that these depend on.

    Args:
        schema: the schema of the table.
        table: the table of the columns.
        named: words of a statement, in lower case.
    """
    names = {name for name in further_names(schema, table) if name.casefold() in named}
    names |= {each.name for each in table.derived if each.drops}  # these columns drop rows in every query
    for each in reversed(table.derived):  # a derived column depends on earlier columns only
        if each.name in names and isinstance(each.what, FirstCase):
            words = {word for when, _ in each.what.cases for word in words_in(when)}
            names |= {other.name for other in table.derived if other.name.casefold() in words}
    return tuple(name for name in further_names(schema, table) if name in names)


def with_derived(schema: Schema, scan: Scan, called: Mapping[str, str]) -> View:
    """Return a table with the derived columns and facts that a statement needs.

    Args:
        schema: the schema of the table.
        scan: the table.
        called: the view's names of the table's attributes and of the needed columns, by their names in the schema.

    Raises:
        DomainError: the schema derives a column that cannot be computed; the message names its place.
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
    """Add the place in the schema, and the line of the condition, to an error raised inside."""
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
            least, most = (None if each is None else Fraction(each) for each in (what.minimum, what.maximum))
            return _declared(Computed(view, name, days if column.drops else Clamp(days, least, most)), column)
        case FirstCase(cases, otherwise):
            met = tuple((_condition(when, view, own, called), then) for when, then in cases)
            return _declared(Computed(view, name, Labels(met, otherwise)), column)
    raise TypeError(what)  # unreachable: no other kind exists


def _declared(view: Computed | WithGap, column: Derived) -> View:
    """Return a view whose new column has the cells of the schema, without the rows that these cells drop."""
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
    further = needed_names(schema, table, words)
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
            return RowCount(1 if most is None else most)  # None: a draft adds the bound later
        case FactOfUnit.ANY:
            return AnyRow(All(()) if fact.where is None else _condition(fact.where, view, list(called), called))
        case FactOfUnit.SUM:
            assert fact.column is not None
            assert fact.minimum is not None
            assert fact.maximum is not None
            return UnitSum(fact.column, fact.minimum, fact.maximum, missing=True)
        case _:
            assert fact.column is not None
            by_date = fact.how in (FactOfUnit.FIRST, FactOfUnit.LAST)
            return Taken(_PICKS[fact.how], fact.column, (fact.by or fact.column) if by_date else None)


def _condition(text: str, view: View, own: list[str], called: Mapping[str, str]) -> Predicate:
    """Translate a condition from the schema's names to a view's names."""
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
    """Refuse a schema whose derived columns or facts cannot be computed, before any query.

    Raises:
        DomainError: a column or fact cannot be computed; the message names its place.
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
    ledger: str | Path | None = None,
    limit: Loss | None = None,
    dataset: str = DATASET,
    create: bool = False,
    new_version: bool = False,
) -> SchemaVault:
    """Open the tables of a schema for release, after a check of its derived columns and facts.

    For arguments and errors see :func:`sfumato.vault.schema_vault.open_schema`.

    Raises:
        DomainError: also, the schema derives a column that cannot be computed.
    """
    if isinstance(schema, str | Path):
        ledger = default_ledger_url(schema) if ledger is None else ledger
        schema = load_schema(schema)
    if isinstance(schema, Schema):  # otherwise the vault raises the error
        check_derived(schema)
    return schema_vault.open_schema(
        tables, schema=schema, ledger=ledger, limit=limit, dataset=dataset, create=create, new_version=new_version
    )


def words_in(text: str) -> set[str]:
    """Return the words of a text, in lower case."""
    return {word.casefold() for word in _WORDS.findall(text)}


def words_of(select: Any) -> frozenset[str]:  # noqa: ANN401  (sqlglot's own)
    """Return all names in a parsed statement, in lower case."""
    from sqlglot import exp

    return frozenset(node.name.casefold() for node in select.find_all(exp.Identifier))


def has_declared_cells(view: View, name: str) -> bool:
    """Return whether a schema declares the cells of an attribute; otherwise one cell holds every computed number."""
    match view:
        case Join():
            return any(has_declared_cells(part, name) for part in (view.left, view.right) if name in part.names)
        case PerUnit():
            return name in view.by and has_declared_cells(view.source, name)
        case Renamed():
            return has_declared_cells(view.source, view.source.names[view.called.index(name)])
        case Computed() | WithPublicValue() if name == view.name:
            return False
        case WithFacts() if name in view.facts.names:
            return False
        case OverSource():
            return has_declared_cells(view.source, name)
    return True


@cache
def mirrored() -> Mapping[Any, Any]:
    """Return each comparison's counterpart with swapped sides."""
    from sqlglot import exp

    swapped = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.EQ: exp.EQ, exp.NEQ: exp.NEQ}
    return swapped | {other: kind for kind, other in swapped.items()}


def is_number(node: Any) -> bool:  # noqa: ANN401  (sqlglot's own)
    """Return whether a node is a number literal."""
    from sqlglot import exp

    inner = node.this if isinstance(node, exp.Neg) else node
    return isinstance(inner, exp.Literal) and not inner.is_string


def is_value(node: Any) -> bool:  # noqa: ANN401
    """Return whether a node computes a value of a row."""
    from sqlglot import exp

    kinds = exp.Add | exp.Sub | exp.Mul | exp.Div | exp.IntDiv | exp.Mod | exp.Pow | exp.Case | exp.If
    kinds |= exp.Least | exp.Greatest | exp.Coalesce | exp.Nullif | exp.Abs | exp.Sign | exp.DateDiff
    kinds |= exp.Round | exp.Floor | exp.Ceil | exp.Trunc | exp.Sqrt | exp.Exp | exp.Ln | exp.Log
    if isinstance(node, exp.Neg):
        return not isinstance(node.this, exp.Literal)
    if isinstance(node, exp.Cast):  # casts of texts to dates are literals
        return not isinstance(node.this, exp.Literal) and not node.is_type(*exp.DataType.TEMPORAL_TYPES)
    if isinstance(node, exp.Paren):
        return is_value(node.this)
    return isinstance(node, kinds) or is_text_function(node)


def constant(node: Any) -> Any:  # noqa: ANN401  (sqlglot's own)
    """Return the value of an expression of numbers, or of a date and an interval, as a literal; None if it is none.

    >>> from sqlglot import parse_one
    >>> constant(parse_one("DATE '1998-12-01' - INTERVAL '90' DAY")).sql()
    "CAST('1998-09-02' AS DATE)"
    """
    from sqlglot import exp

    if isinstance(node, exp.Paren):
        return constant(node.this)
    if is_number(node) or (isinstance(node, exp.Cast) and isinstance(node.this, exp.Literal) and node.is_type("date")):
        return node
    left, right = (constant(node.this), node.expression) if isinstance(node, exp.Binary) else (None, None)
    if left is None:
        return None
    if isinstance(left, exp.Cast) and isinstance(node, exp.Add | exp.Sub):
        day = _moved(left.this.name, right, -1 if isinstance(node, exp.Sub) else 1)
        return None if day is None else exp.cast(exp.Literal.string(day), "date")
    other = constant(right)
    if not (is_number(left) and other is not None and is_number(other)):
        return None
    value = _computed_constant(node, exact(left.sql()), exact(other.sql()))
    digits = None if value is None else _decimal(value)
    return None if digits is None else exp.Literal.number(digits)


def _computed_constant(node: Any, left: Fraction, right: Fraction) -> Fraction | None:  # noqa: ANN401
    from sqlglot import exp

    match node:
        case exp.Add():
            return left + right
        case exp.Sub():
            return left - right
        case exp.Mul():
            return left * right
        case exp.Div() if right:
            return left / right
    return None


def _decimal(value: Fraction) -> str | None:
    """Return a number exactly in decimal digits; None if it has no finite decimal form."""
    rest, digits = value.denominator, 0
    while (rest := value.denominator // math.gcd(value.denominator, 10**digits)) > 1 and digits < 40:  # noqa: PLR2004
        digits += 1
    if rest > 1:
        return None
    shifted = str(abs(int(value * 10**digits))).rjust(digits + 1, "0")
    text = shifted if not digits else f"{shifted[:-digits]}.{shifted[-digits:]}"
    return f"-{text}" if value < 0 else text


def _moved(day: str, by: Any, sign: int) -> str | None:  # noqa: ANN401
    """Return the day before or after another by an interval, or by a number of days."""
    from sqlglot import exp

    count, unit = constant(by), "day"
    if isinstance(by, exp.Interval):
        part = by.args.get("unit")
        unit = "" if part is None else (part.name if isinstance(part, exp.Var) else part.key).lower().removesuffix("s")
        count = by.this
    months = {"month": 1, "quarter": 3, "year": 12}.get(unit)
    days = {"day": 1, "week": 7}.get(unit)
    try:
        start, steps = date.fromisoformat(day), sign * int(count.name)
        if months is None:
            return None if days is None else (start + timedelta(days=days * steps)).isoformat()
        year, month = divmod(start.year * 12 + start.month - 1 + months * steps, 12)
        return date(year, month + 1, min(start.day, monthrange(year, month + 1)[1])).isoformat()
    except (ValueError, AttributeError, OverflowError):
        return None


def with_constants(node: Any) -> Any:  # noqa: ANN401
    """Return a comparison with its constant expressions replaced by literals; the comparison itself if it has none."""
    from sqlglot import exp

    fresh = None
    for name, value in node.args.items():
        for place, part in enumerate(value if isinstance(value, list) else [value]):
            literal = text_constant(part) or (constant(part) if isinstance(part, exp.Binary | exp.Paren) else None)
            if literal is not None:
                fresh = node.copy() if fresh is None else fresh
                old = fresh.args[name][place] if isinstance(value, list) else fresh.args[name]
                old.replace(literal.copy())
    return node if fresh is None else fresh


def clamp_parts(text: str, node: Any) -> tuple[Any, dict[str, Fraction]]:  # noqa: ANN401
    """Return the bounded expression of LEAST or GREATEST, and its bound.

    Raises:
        QueryError: the arguments are not one expression and one number.
    """
    from sqlglot import exp

    parts = [node.this, *node.expressions]
    ends = [
        part
        for part in parts
        if isinstance(part, exp.Literal) or (isinstance(part, exp.Neg) and isinstance(part.this, exp.Literal))
    ]
    if len(parts) != 2 or len(ends) != 1:  # noqa: PLR2004
        raise refuse(text, node, "LEAST and GREATEST take an expression and a number")
    end = number(text, ends[0])
    value = next(part for part in parts if part is not ends[0])
    return value, {"high" if isinstance(node, exp.Least) else "low": end}


def labels_of(grouping: Grouping) -> Labels | None:
    """Return the cells of a hierarchy's level, or of a calendar map, as labels; None if they are too many.

    A cell for missing values has no label here, because missing labels have such a cell of their own.
    """
    if grouping.groups is None or len(grouping.labels) > _LABELS:
        return None
    codes: dict[int, list[int]] = {}
    for code, cell in enumerate(grouping.groups):
        if grouping.labels[cell] != EXTRA[0]:
            codes.setdefault(cell, []).append(code)
    if not codes:
        return None
    return Labels(
        tuple((Among(grouping.attribute, held), grouping.labels[cell]) for cell, held in sorted(codes.items()))
    )


def cut_at(kind: Any, at: Fraction, attribute: Integer | Real, name: str) -> tuple[Any, str, Integer | Real | None]:  # noqa: ANN401
    """Return a comparison that cells decide, the compared number, and the attribute with these cells.

    Real numbers are doubles: the values above 1000 begin with the next double.  No cell decides equality with a number,
    because cells have a width.

    Args:
        kind: the kind of comparison, with the number on its right.
        at: the number.
        attribute: an attribute with one cell.
        name: the name of the compared attribute.

    Returns:
        None instead of the attribute if all of its numbers are on one side, or no cell decides.
    """
    if isinstance(attribute, Integer):
        return _integer_comparison(kind, at, attribute, name)
    from sqlglot import exp

    low, high = attribute.edges
    if kind in (exp.EQ, exp.NEQ) or abs(at) > sys.float_info.max:
        return kind, str(at), None
    start = float(at)
    if kind in (exp.GT, exp.LTE):
        start, kind = math.nextafter(start, math.inf), {exp.GT: exp.GTE, exp.LTE: exp.LT}[kind]
    if not low < start <= high:
        return kind, repr(start), None
    end = high if start < high else math.nextafter(high, math.inf)
    return kind, repr(start), replace(attribute, name=f"{name} from {start!r}", edges=(low, start, end))


def _integer_comparison(kind: Any, at: Fraction, attribute: Integer, name: str) -> tuple[Any, str, Integer | None]:  # noqa: ANN401
    from sqlglot import exp

    after, first = math.floor(at) + 1, math.ceil(at)
    starts = {first, after} if kind in (exp.EQ, exp.NEQ) else {after} if kind in (exp.GT, exp.LTE) else {first}
    within = sorted(each for each in starts if attribute.minimum < each <= attribute.maximum)
    literal = str(at.numerator) if at.denominator == 1 else repr(float(at))
    if not within:
        return kind, literal, None
    called = f"{name} from {' and '.join(map(str, within))}"
    return kind, literal, replace(attribute, name=called, edges=(attribute.minimum, *within))
