"""Complete descriptions of views in words, for readers of the journal and stewards who approve a release.

The text has public facts only: names of a schema, declared values, and numbers of a statement.  It resembles SQL, but
no engine receives it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from fractions import Fraction
from typing import Any

from sfumato.domain.attribute import Attribute, Categorical, Integer, Real
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
)
from sfumato.domain.predicate import Predicate, describe_condition
from sfumato.domain.raw_values import Unknown
from sfumato.domain.unit import GroupBound, Unit
from sfumato.domain.unit_views import AnyRow, AtMost, Declared, EveryRow, Renamed, WithFacts, WithGap, WithPublicValue
from sfumato.domain.view import (
    BoundedView,
    Computed,
    Filter,
    Join,
    KeyColumn,
    OfUnits,
    OverSource,
    PerUnit,
    RowCount,
    Scan,
    Taken,
    UnitAggregate,
    UnitSum,
    View,
)
from sfumato.errors import pluralize

_LONGEST = 1500  # characters of a view


def describe_view(bounded: BoundedView) -> str:
    """Describe the rows of a view: tables, joins, conditions and computed columns, in at most 1500 characters."""
    words = _view(bounded.view, bounded.unit.column or "row")
    printable = "".join(letter if letter.isprintable() else "?" for letter in words[: _LONGEST + 1])
    more = f" ... and more (view {bounded.hash[:16]}, longer than can be shown)"
    return printable if len(printable) <= _LONGEST else f"{printable[: _LONGEST - len(more)]}{more}"


def _view(view: View, unit: str) -> str:  # noqa: C901, PLR0912 - one case a kind
    match view:
        case Scan():
            return view.table.name if view.alias == view.table.name else f"{view.table.name} AS {view.alias}"
        case Join():
            how = "LEFT JOIN" if view.outer else "JOIN"
            on = [f"{_key(view.left.keys[a])} = {_key(view.right.keys[b])}" for a, b in view.on]
            if view.right.private:
                on = [f"same {unit}", *on]
            return f"{_part(view.left, unit)} {how} {_part(view.right, unit)} ON {' AND '.join(on)}"
        case Filter():
            return f"{_part(view.source, unit)} WHERE {describe_condition(view.where, view.source.domain)}"
        case OfUnits():
            return f"{_part(view.source, unit)} WHERE {_of_units(view, unit)}"
        case WithPublicValue():
            value = f"{view.how.value} {view.of} of {_part(view.public, unit)}"
            return f"{_part(view.source, unit)} WITH {view.name} = {value}"
        case Renamed():
            pairs = zip(view.source.names, view.called, strict=True)
            names = ", ".join(f"{new} = {old}" for old, new in pairs if old != new)
            return f"{_part(view.source, unit)} WITH {names}"
        case Computed():
            return f"{_part(view.source, unit)} WITH {view.name} = {_value(view.value, view.source.domain)}"
        case Declared():
            source = _view(view.source, unit)
            return (
                f"({source}) WHERE {view.declared.name} {_within(view.declared)}" if _drops(view.declared) else source
            )
        case WithGap():
            gap = f"days since the row before by {view.date} of the same {unit}, within {view.low} and {view.high}"
            return f"{_part(view.source, unit)} WITH {view.name} = {gap}"
        case WithFacts():
            return f"{_part(view.source, unit)} WITH ({_view(view.facts, unit)})"
        case AtMost():
            return f"at most {pluralize(view.rows, 'row')} of each {unit} of {_part(view.source, unit)}"
        case PerUnit():
            values = ", ".join(f"{name} = {_aggregate(value, view.source)}" for name, value in view.values)
            by = ", ".join((unit, *view.by))
            return f"{values or 'a row'} of {_part(view.source, unit)} BY {by}"
    raise TypeError(view)  # unreachable: no other view exists


def _of_units(view: OfUnits, unit: str) -> str:
    if not view.on and not view.apart:
        return f"{unit} {'NOT IN' if view.without else 'IN'} ({unit} of {_view(view.units, unit)})"
    met = [f"same {unit}"] if view.units.private else []
    for pairs, sign in ((view.on, "="), (view.apart, "<>")):
        met += [f"{_key(view.source.keys[a])} {sign} {_key(view.units.keys[b])}" for a, b in pairs]
    exists = "NOT EXISTS" if view.without else "EXISTS"
    return f"{exists} (a row of {_part(view.units, unit)} with {' AND '.join(met)})"


def _drops(attribute: Attribute) -> bool:
    return attribute.unknown is Unknown.DROP


def _within(attribute: Integer | Real | Categorical) -> str:
    if isinstance(attribute, Categorical):
        return "is not missing"
    return f"within {attribute.minimum} and {attribute.maximum}{', or missing' if attribute.nullable else ''}"


def _part(view: View, unit: str) -> str:
    return _view(view, unit) if isinstance(view, Scan) else f"({_view(view, unit)})"


def _key(key: KeyColumn) -> str:
    return f"{key.alias}.{key.column}"


def _aggregate(value: UnitAggregate, source: View) -> str:
    match value:
        case RowCount():
            of = "*" if value.of is None else value.of if isinstance(value.of, str) else _key(source.keys[value.of])
            return f"COUNT({of}) up to {value.maximum}"
        case UnitSum():
            within = f"within {_number(value.low)} and {_number(value.high)}"
            empty = "" if value.empty is None else f", {_number(value.empty)} if missing"
            return f"SUM({value.of}) {within}{' or missing' if value.missing else empty}"
        case Taken():
            return f"{value.which.value} {value.of}" + ("" if value.by is None else f" by {value.by}")
        case AnyRow() | EveryRow():
            which = "any" if isinstance(value, AnyRow) else "all"
            missing = "" if value.false is None else " or missing"
            return f"{which} with {describe_condition(value.where, source.domain)}{missing}"
    raise TypeError(value)  # unreachable: no other kind exists


def _value(value: Expression, domain: Domain) -> str:
    match value:
        case Field():
            return value.name
        case Constant():
            return _number(value.value)
        case Arithmetic():
            return f"({_value(value.left, domain)} {value.how.value} {_value(value.right, domain)})"
        case DaysBetween():
            return f"days from {value.earlier} to {value.later}"
        case Clamp():
            ends = [f"{word} {_number(e)}" for word, e in (("from", value.low), ("up to", value.high)) if e is not None]
            ends += [f"{_number(value.replacement)} if missing"] if value.ignores_missing else []
            return f"({' '.join((_value(value.value, domain), *ends))})"
        case Applied():
            return f"{value.function.value}({_value(value.value, domain)})"
        case AppliedToPair():
            return f"{value.function.value}({_value(value.left, domain)}, {_value(value.right, domain)})"
        case Cases():
            cases = [(where, _value(then, domain)) for where, then in value.cases]
            return _cases(cases, None if value.otherwise is None else _value(value.otherwise, domain), domain)
        case Labels():
            return _cases(value.cases, value.otherwise, domain)
    raise TypeError(value)  # unreachable: no other kind exists


def _cases(cases: Sequence[tuple[Predicate, str]], otherwise: str | None, domain: Domain) -> str:
    branches = " ".join(f"WHEN {describe_condition(where, domain)} THEN {then}" for where, then in cases)
    return f"CASE {branches}{'' if otherwise is None else f' ELSE {otherwise}'} END"


def _number(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else str(float(value))


def may_cut(bounded: BoundedView) -> bool:
    """Return whether the bounds of a view may drop a row for any content of the tables; False is proven.

    Rows dropped before a join are not rows of the view:  :func:`left_out` describes them.
    """
    view, unit = bounded.view, bounded.unit
    most = _most_rows(view)
    if most == 1 or unit.column is None:
        return False
    while isinstance(view, OverSource):
        view = view.source
    if most is None or not isinstance(view, PerUnit):
        return True
    return most > unit.rows or unit.per != (GroupBound(view.by, rows=1),)


def _most_rows(view: View) -> int | None:
    """Return the largest number of rows of a unit in a view; None if that depends on the tables."""
    match view:
        case Scan(table=table):  # the key of the table is the unit itself
            listed = table.key is not None and table.through is None and table.unit in (None, table.key)
            return 1 if listed and view.private else None
        case PerUnit():
            return math.prod(view.source.domain[name].size for name in view.by)
        case Join():
            both = _most_rows(view.left), _most_rows(view.right)
            return math.prod(each for each in both if each is not None) if None not in both else None
        case OverSource():
            return _most_rows(view.source)
    return None


def left_out(bounded: BoundedView) -> tuple[str, ...]:
    """Describe the rows and values that an exact answer over a view lacks, besides rows beyond its bounds.

    Every table behind a column is named, even if the view does not show its attributes.
    """
    tables: dict[str, list[str]] = {}
    clamped: dict[str, None] = {}
    waiting: list[View] = [bounded.view]
    while waiting:
        view = waiting.pop(0)
        match view:
            case Scan(table=table):
                dropping = [each.name for each in table.attributes if _drops(each)]
                tables[table.name] = dropping + tables.get(table.name, [])
            case Declared() if _drops(view.declared):
                scan = view.source
                while isinstance(scan, OverSource):
                    scan = scan.source
                if isinstance(scan, Scan):
                    tables.setdefault(scan.table.name, []).append(view.declared.name.rpartition(".")[2])
            case PerUnit():
                clamped |= dict.fromkeys(_clamped(view, bounded.unit))
            case AtMost():
                of = " and ".join(sorted(each.name for each in view.tables if not each.public))
                most = f"at most {pluralize(view.rows, 'row')} of {of}"
                clamped[f"joins take {most} of each {bounded.unit.column}, and leave out others"] = None
        own: list[Any] = [getattr(view, each.name) for each in fields(view)] if is_dataclass(view) else []
        waiting += [each for each in own if isinstance(each, View)]
    named = {name: " or ".join(dict.fromkeys(dropping)) for name, dropping in tables.items() if dropping}
    described = "domain" if bounded.unit.schema is None else "schema"
    named_tables = {table: "" if described == "domain" else f"of {table} " for table in named}
    each_of = ", and ".join(f"{named_tables[table]}with an undeclared {dropped}" for table, dropped in named.items())
    return (*([f"rows {each_of} are left out, as the {described} says"] if named else []), *clamped)


def _clamped(view: PerUnit, unit: Unit) -> Iterator[str]:
    """Describe how counts, sums and added values of a unit are clamped to their bounds."""
    for name, value in view.values:
        if isinstance(value, RowCount):
            most = f"{value.maximum:,}"
            once = f"several rows of one {unit.column} count once"
            many = f"{name} counts rows of one {unit.column}: more than {most} count as {most}"
            yield once if value.maximum == 1 else many
        elif isinstance(value, UnitSum) and view.source.domain[value.of].unknown is Unknown.CLAMP:
            yield f"values of {value.of} beyond the declared bounds count as the bounds"
