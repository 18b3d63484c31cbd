"""Views as SQL over encoded tables: one text for every engine.

A relation has codes ``c0, c1, …`` and clamped numbers ``v…`` of its attributes by position, keys ``k0, k1, …`` as text
and, if it is private, the id of the unit ``u``.  All values were encoded before, so nothing here can fail: numbers lie
within declared bounds, whole numbers are added and compared as 64-bit integers, and a missing value is NULL.
"""

# ruff: noqa: S608 - this module writes SQL; every name and literal in it is quoted

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from sfumato.domain import Attribute, Categorical, Date, Domain, Integer, Real, Unknown
from sfumato.domain.attribute import null_code
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
from sfumato.domain.unit_views import (
    AnyRow,
    AtMost,
    Declared,
    EveryRow,
    PublicAggregate,
    Renamed,
    WithFacts,
    WithGap,
    WithPublicValue,
)
from sfumato.domain.view import (
    BoundedView,
    Computed,
    Filter,
    Join,
    OfUnits,
    PerUnit,
    Pick,
    RowCount,
    Scan,
    Taken,
    UnitAggregate,
    UnitSum,
    View,
)
from sfumato.engine.bounding import first_rows
from sfumato.engine.contingency import condition
from sfumato.engine.dialect import Dialect
from sfumato.engine.encoding import bin_number, real, stored_values

_TINY = "1e-140"  # products of smaller numbers could underflow a double, which fails on PostgreSQL
_LARGEST_DIVISOR = 10**100


@dataclass(frozen=True)
class ViewEncoding:
    """The encoding of a bounded view, like :class:`sfumato.engine.encoding.Encoding` for a table.

    Attributes:
        bounded: the view.
        relations: the FROM clauses of the encoded rows, by table.
        dialect: the dialect of their engine.
        whole_units: true if ids of units are integers there instead of text.
    """

    bounded: BoundedView
    relations: Mapping[str, str]
    dialect: Dialect
    whole_units: bool = False

    @property
    def domain(self) -> Domain:
        """The domain of the view, with its unit."""
        return self.bounded.domain

    @property
    def named(self) -> str:
        """The beginning of its version; two views differ even if they have the same rows."""
        return self.bounded.hash

    @property
    def values(self) -> tuple[int, ...]:
        """The positions of the attributes whose clamped number is stored next to the code."""
        return stored_values(self.domain)

    @property
    def stored(self) -> list[str]:
        """The names of the encoded columns."""
        unit = ["u"] if self.domain.unit.column is not None else []
        return [*(f"c{place}" for place in range(len(self.domain))), *(f"v{place}" for place in self.values), *unit]

    def select(self, relation: str, raw: Sequence[str] = ()) -> str:
        """Return the rows of the view, before a bound drops any; it has no raw columns."""
        del relation
        assert not raw
        codes = [
            f"{self.dialect.code(f'c{place}', attribute.size)} AS c{place}"
            for place, attribute in enumerate(self.domain)
        ]
        others = self.stored[len(codes) :]
        return f"SELECT {', '.join([*codes, *others])} FROM {self._relation(self.bounded.view)}"

    # --- nodes --------------------------------------------------------------------------------------------------------

    def _relation(self, view: View) -> str:
        return f"({self._selected(view)}) AS rows_of_view"

    def _selected(self, view: View) -> str:  # noqa: C901, PLR0912 - one case a kind
        match view:
            case Scan():
                return f"SELECT {', '.join(columns(view))} FROM {self.relations[view.table.name]}"
            case Join():
                return self._joined(view)
            case Filter():
                met = condition(view.where, view.source.domain)
                return f"SELECT {', '.join(columns(view))} FROM {self._relation(view.source)} WHERE {met}"
            case OfUnits():
                return self._of_units(view)
            case WithPublicValue():
                return self._with_public_value(view)
            case Renamed():
                return self._selected(view.source)  # columns are named by position
            case Computed():
                return self._computed(view)
            case Declared():
                return self._declared(view)
            case PerUnit():
                return self._per_unit(view)
            case WithGap():
                return self._with_gap(view)
            case WithFacts():
                return self._with_facts(view)
            case AtMost():
                return first_rows(self._relation(view.source), columns(view), view.attributes, self.dialect, view.rows)
            case _:
                raise TypeError(view)  # unreachable: no other kind exists

    def _joined(self, view: Join) -> str:
        left, right = view.left, view.right
        before = len(left.attributes)
        listed = [f"l.{name}" for name in columns(left)]
        for place, attribute in enumerate(right.attributes):
            listed.append(f"{_outer_code(attribute, place) if view.outer else f'r.c{place}'} AS c{before + place}")
        listed += [f"r.v{place} AS v{before + place}" for place in stored_values(right.attributes)]
        listed += [f"r.k{place} AS k{len(left.keys) + place}" for place in range(len(right.keys))]
        same = [f"l.k{one} = r.k{other}" for one, other in view.on]
        same += ["l.u = r.u"] if right.private else []  # under any condition, rows of two units never meet
        return (
            f"SELECT {', '.join(listed)} FROM ({self._selected(left)}) AS l {'LEFT ' if view.outer else ''}JOIN "
            f"({self._selected(right)}) AS r ON {' AND '.join(same)}"
        )

    def _of_units(self, view: OfUnits) -> str:
        listed = ", ".join(f"l.{name}" for name in columns(view))
        if view.on or view.apart:
            met = [f"l.k{one} = r.k{other}" for one, other in view.on]
            met += [f"l.k{one} <> r.k{other}" for one, other in view.apart]
            met += ["l.u = r.u"] if view.units.private else []  # rows of two units never match
            exists = "NOT EXISTS" if view.without else "EXISTS"
            return (
                f"SELECT {listed} FROM ({self._selected(view.source)}) AS l WHERE {exists} "
                f"(SELECT 1 FROM ({self._selected(view.units)}) AS r WHERE {' AND '.join(met)})"
            )
        units = f"SELECT DISTINCT u FROM {self._relation(view.units)}"
        test = "IS NULL" if view.without else "IS NOT NULL"
        return (
            f"SELECT {listed} FROM ({self._selected(view.source)}) AS l LEFT JOIN ({units}) AS r ON l.u = r.u "
            f"WHERE r.u {test}"
        )

    def _computed(self, view: Computed) -> str:
        domain, place, attribute = view.source.domain, len(view.source.attributes), view.added
        listed = ", ".join(columns(view.source))
        if isinstance(view.value, Labels):
            codes = {label: str(code) for code, label in enumerate(view.value.values)}
            whens = " ".join(
                f"WHEN {condition(where, domain)} THEN {codes[label]}" for where, label in view.value.cases
            )
            rest = "NULL" if view.value.otherwise is None else codes[view.value.otherwise]
            code = f"CASE {whens} ELSE {rest} END"
            value = f"COALESCE({code}, {null_code(attribute)})" if attribute.nullable else code
            return f"SELECT {listed}, {value} AS c{place} FROM {self._relation(view.source)}"
        assert isinstance(attribute, Integer | Real)
        value = self._number(view.value, domain)
        inner = f"SELECT {listed}, {value} AS x FROM {self._relation(view.source)}"
        # clamp numbers that rounding moved past the bounds
        moved = _clamped("x", self._literal(attribute, attribute.minimum), self._literal(attribute, attribute.maximum))
        inner = f"SELECT {listed}, {moved} AS x FROM ({inner}) AS computed_rows"
        return f"SELECT {listed}, {', '.join(self._coded('x', attribute, place))} FROM ({inner}) AS clamped_rows"

    def _declared(self, view: Declared) -> str:
        place, attribute = len(view.attributes) - 1, view.declared
        listed = [name for name in columns(view.source) if name not in (f"c{place}", f"v{place}")]
        if isinstance(attribute, Categorical):
            bound = f" WHERE c{place} < {attribute.declared}" if attribute.unknown is Unknown.DROP else ""
            return f"SELECT {', '.join([*listed, f'c{place}'])} FROM {self._relation(view.source)}{bound}"
        value = number_of(self.dialect, view.source.domain, attribute.name)
        inner = f"SELECT {', '.join([*listed, f'{value} AS x'])} FROM {self._relation(view.source)}"
        low, high = self._literal(attribute, attribute.minimum), self._literal(attribute, attribute.maximum)
        cut = f" WHERE x >= {low} AND x <= {high}" if attribute.unknown is Unknown.DROP else ""
        cut += " OR x IS NULL" if cut and attribute.nullable else ""
        return (
            f"SELECT {', '.join([*listed, *self._coded('x', attribute, place)])} FROM ({inner}) AS computed_rows{cut}"
        )

    def _coded(self, value: str, attribute: Integer | Real, place: int) -> list[str]:
        """Return the code of a value within its bounds or NULL, and its number if that is stored."""
        if isinstance(attribute, Integer) and attribute.edges is None:
            code = f"{value} - ({attribute.minimum})"
        else:
            edges = attribute.edges or () if isinstance(attribute, Integer) else attribute.edges[:-1]
            code = bin_number(value, [float(edge) for edge in edges])
        absent = null_code(attribute)
        coded = f"CASE WHEN {value} IS NULL THEN {'NULL' if absent is None else absent} ELSE {code} END AS c{place}"
        return [coded, *([f"{value} AS v{place}"] if place_is_stored(attribute) else [])]

    # --- numbers of a row ---------------------------------------------------------------------------------------------

    def _number(self, value: Expression, domain: Domain) -> str:
        """Return an expression as a whole number or a double; NULL if it is missing."""
        integer = value.interval(domain).integer
        match value:
            case Field():
                return number_of(self.dialect, domain, value.name)
            case Constant():
                return self.dialect.integer(str(int(value.value))) if integer else real(float(value.value))
            case DaysBetween():
                later, earlier = (number_of(self.dialect, domain, name) for name in (value.later, value.earlier))
                return f"({later} - {earlier})"
            case Arithmetic():
                return self._arithmetic(value, domain, integer=integer)
            case Clamp():
                return self._moved(value, domain, integer=integer)
            case Applied():
                return self._applied(value, domain)
            case AppliedToPair():
                return self._applied_to_pair(value, domain, integer=integer)
            case Cases():
                return self._case(value, domain, integer=integer)
            case _:
                raise TypeError(value)  # unreachable: no other kind exists

    def _moved(self, value: Clamp, domain: Domain, *, integer: bool) -> str:
        inner = self._as(self._number(value.value, domain), value.value, domain, integer=integer)
        low, high = (None if end is None else self._end(end, integer=integer) for end in (value.low, value.high))
        if value.ignores_missing:
            inner = f"COALESCE({inner}, {self._end(value.replacement, integer=integer)})"
        return _clamped(inner, low, high)

    def _case(self, value: Cases, domain: Domain, *, integer: bool) -> str:
        whens = [
            f"WHEN {condition(where, domain)} THEN "
            f"{self._as(self._number(each, domain), each, domain, integer=integer)}"
            for where, each in value.cases
        ]
        rest = value.otherwise
        other = "NULL" if rest is None else self._as(self._number(rest, domain), rest, domain, integer=integer)
        return f"CASE {' '.join(whens)} ELSE {other} END"

    def _applied_to_pair(self, value: AppliedToPair, domain: Domain, *, integer: bool) -> str:
        left, right = self._operands(value, domain, integer=integer)
        if value.function in (PairFunction.COALESCE, PairFunction.NULLIF):
            return f"{value.function.value}({left}, {right})"
        one, other = f"COALESCE({left}, {right})", f"COALESCE({right}, {left})"  # NULL only if both are
        return f"{value.function.value}({one}, {other})"

    def _applied(self, value: Applied, domain: Domain) -> str:
        number = self._number(value.value, domain)
        if value.function is NumberFunction.ABS:
            return f"ABS({number})"
        if value.value.interval(domain).integer:
            return number
        floor, ceil, nearest = f"FLOOR({number})", f"CEIL({number})", f"FLOOR({number} + 0.5e0)"
        made = {  # engines treat ties differently
            NumberFunction.CEIL: ceil,
            NumberFunction.FLOOR: floor,
            NumberFunction.TRUNC: f"CASE WHEN {number} < 0 THEN {ceil} ELSE {floor} END",
            NumberFunction.ROUND: f"CASE WHEN {number} < 0 THEN CEIL({number} - 0.5e0) ELSE {nearest} END",
            NumberFunction.ROUND_EVEN: f"CASE WHEN {number} - {floor} = 0.5e0 THEN 2e0 * FLOOR({nearest} / 2e0) "
            f"ELSE {nearest} END",
        }
        return self.dialect.integer(made[value.function])

    def _operands(self, value: Arithmetic | AppliedToPair, domain: Domain, *, integer: bool) -> list[str]:
        parts = (value.left, value.right)
        return [self._as(self._number(part, domain), part, domain, integer=integer) for part in parts]

    def _arithmetic(self, value: Arithmetic, domain: Domain, *, integer: bool) -> str:
        left, right = self._operands(value, domain, integer=integer)
        divisor = value.divisor
        if divisor is not None and not integer and abs(divisor) < _LARGEST_DIVISOR:  # a quotient, rounded once
            return f"((CASE WHEN ABS({left}) < {_TINY} THEN 0e0 ELSE {left} END) / {real(float(divisor))})"
        if value.how is Operator.TIMES and not integer:
            left, right = (f"(CASE WHEN ABS({part}) < {_TINY} THEN 0e0 ELSE {part} END)" for part in (left, right))
        return f"({left} {value.how.value} {right})"

    def _as(self, text: str, value: Expression, domain: Domain, *, integer: bool) -> str:
        return text if integer or not value.interval(domain).integer else self.dialect.double(text)

    def _end(self, end: Fraction, *, integer: bool) -> str:
        return str(int(end)) if integer else real(float(end))

    def _literal(self, attribute: Integer | Real, end: float) -> str:
        return self._end(Fraction(end), integer=isinstance(attribute, Integer))

    # --- more of a row's unit -----------------------------------------------------------------------------------------

    def _with_gap(self, view: WithGap) -> str:
        source, domain = view.source, view.source.domain
        listed, day = ", ".join(columns(source)), number_of(self.dialect, domain, view.date)
        # keys as text, so that their order is the same on every engine for any type
        keys = [f"COALESCE({self.dialect.text(f'k{place}')}, '')" for place in range(len(source.keys))]
        cells = [
            name if name.startswith("c") else f"COALESCE({name}, 0)" for name in columns(source) if name[0] in "cv"
        ]
        order = ", ".join(["day", *keys, *cells])
        # rows without a date are a partition of their own, because they come neither before nor after others
        before = f"LAG(day) OVER (PARTITION BY u, CASE WHEN day IS NULL THEN 1 ELSE 0 END ORDER BY {order})"
        inner = f"SELECT {listed}, {day} AS day FROM {self._relation(source)}"
        inner = f"SELECT {listed}, day - {before} AS x FROM ({inner}) AS dated_rows"
        inner = f"SELECT {listed}, {_clamped('x', str(view.low), str(view.high))} AS x FROM ({inner}) AS gaps"
        coded = ", ".join(self._coded("x", view.added, len(source.attributes)))
        return f"SELECT {listed}, {coded} FROM ({inner}) AS clamped_rows"

    def _with_facts(self, view: WithFacts) -> str:
        before, stored = len(view.source.attributes), set(stored_values(view.facts.attributes))
        listed = [f"l.{name}" for name in columns(view.source)]
        for place, attribute in enumerate(view.facts.attributes):
            code, number = view.of_no_rows(place)
            listed.append(f"COALESCE(r.c{place}, {code}) AS c{before + place}")
            if place in stored:
                other = f"r.v{place}"
                if isinstance(attribute, Integer | Real) and number is not None:
                    other = f"COALESCE({other}, {self._literal(attribute, number)})"
                listed.append(f"{other} AS v{before + place}")
        return (
            f"SELECT {', '.join(listed)} FROM ({self._selected(view.source)}) AS l LEFT JOIN "
            f"({self._selected(view.facts)}) AS r ON l.u = r.u"
        )

    def _with_public_value(self, view: WithPublicValue) -> str:
        domain, attribute, place = view.public.domain, view.added, len(view.source.attributes)
        number = number_of(self.dialect, domain, view.of)
        if view.how is PublicAggregate.MEAN:
            total, rows = UnitSum(view.of, Fraction(0), Fraction(0), missing=True), f"COUNT({number})"
            added = self._added(total, view.public)
            added = self.dialect.double(added) if isinstance(domain[view.of], Integer) else added
            number = f"CASE WHEN {rows} > 0 THEN {added} / {self.dialect.double(rows)} END"
        else:
            number = f"{'MIN' if view.how is PublicAggregate.LEAST else 'MAX'}({number})"
        value = f"SELECT {number} AS x FROM {self._relation(view.public)}"
        low, high = self._literal(attribute, attribute.minimum), self._literal(attribute, attribute.maximum)
        value = f"SELECT {_clamped('x', low, high)} AS x FROM ({value}) AS public_value"
        listed = ", ".join([*(f"l.{name}" for name in columns(view.source)), *self._coded("r.x", attribute, place)])
        return f"SELECT {listed} FROM ({self._selected(view.source)}) AS l CROSS JOIN ({value}) AS r"

    # --- one row of each unit -----------------------------------------------------------------------------------------

    def _per_unit(self, view: PerUnit) -> str:
        source, domain = view.source, None if not view.source.attributes else view.source.domain
        keys = [] if domain is None else [f"c{domain.index(name)}" for name in view.by]
        held = [] if domain is None else [f"v{domain.index(name)}" for name in view.by]
        stored = {f"v{place}" for place in stored_values(source.attributes)}
        rows = f"({self._with_date_codes(view, keys)}) AS ordered_rows"
        listed = [f"{key} AS c{place}" for place, key in enumerate(keys)]
        # a key has a number only if its cell is one number: then all rows of the cell share it
        listed += [f"MIN({name}) AS v{place}" for place, name in enumerate(held) if name in stored]
        for place, (name, value) in enumerate(view.values, start=len(view.by)):
            listed += self._aggregated(value, value.attribute(name, source), view, place)
        grouped = ", ".join(["u", *keys])
        return f"SELECT {', '.join([*listed, 'u'])} FROM {rows} GROUP BY {grouped}"

    def _with_date_codes(self, view: PerUnit, keys: Sequence[str]) -> str:
        """Return the rows, with the code of the first or last date of their unit as ``o…`` for each FIRST and LAST."""
        more = []
        for place, (_, value) in enumerate(view.values):
            if isinstance(value, Taken) and value.by is not None:
                date = view.source.domain[value.by]
                at = view.source.domain.index(value.by)
                among = ", ".join(["u", *keys])
                which = "MIN" if value.which is Pick.FIRST else "MAX"
                dated = f"CASE WHEN c{at} < {date.declared} THEN c{at} END"
                more.append(f"{which}({dated}) OVER (PARTITION BY {among}) AS o{place}")
        return f"SELECT {', '.join([*columns(view.source), *more])} FROM {self._relation(view.source)}"

    def _aggregated(self, value: UnitAggregate, attribute: Attribute, view: PerUnit, place: int) -> list[str]:
        source = view.source
        match value:
            case RowCount():
                row_count = self.dialect.integer(f"COUNT({self._row_count(value, source)})")
                return [f"{_clamped(row_count, None, str(value.maximum))} AS c{place}"]
            case AnyRow() | EveryRow():
                return [f"{self._truth(value, attribute, source)} AS c{place}"]
            case UnitSum():
                assert isinstance(attribute, Integer | Real)
                return self._coded(self._summed(value, attribute, source), attribute, place)
            case Taken():
                return self._taken(value, attribute, view, place)
            case _:
                raise TypeError(value)  # unreachable: no other kind exists

    def _row_count(self, value: RowCount, source: View) -> str:
        if value.of is None:
            return "*"
        if isinstance(value.of, int):
            return f"k{value.of}"
        at, attribute = source.domain.index(value.of), source.domain[value.of]
        return f"CASE WHEN c{at} <> {null_code(attribute)} THEN 1 END" if attribute.nullable else f"c{at}"

    def _truth(self, value: AnyRow | EveryRow, attribute: Attribute, source: View) -> str:
        which, met = "MAX" if isinstance(value, AnyRow) else "MIN", condition(value.where, source.domain)
        if value.false is None:
            return f"{which}(CASE WHEN {met} THEN 1 ELSE 0 END)"
        codes = f"CASE WHEN {met} THEN 1 WHEN {condition(value.false, source.domain)} THEN 0 END"
        return f"COALESCE({which}({codes}), {null_code(attribute)})"

    def _summed(self, value: UnitSum, attribute: Integer | Real, source: View) -> str:
        low, high = self._literal(attribute, attribute.minimum), self._literal(attribute, attribute.maximum)
        clamped = _clamped(self._added(value, source), low, high)
        if value.empty is None:
            return clamped
        return f"COALESCE({clamped}, {self._end(value.empty, integer=isinstance(attribute, Integer))})"

    def _added(self, value: UnitSum, source: View) -> str:
        number = number_of(self.dialect, source.domain, value.of)
        total = "SUM({})" if value.missing or value.empty is not None else "COALESCE(SUM({}), 0)"
        if isinstance(source.domain[value.of], Integer):
            return self.dialect.integer(total.format(number))
        step = value.step(source)
        # less than a quarter of a step is 0: a quotient too small for a double fails on PostgreSQL
        number = f"(CASE WHEN ABS({number}) < {real(step / 4)} THEN 0e0 ELSE {number} END)"
        steps = self.dialect.integer(f"FLOOR({number} / {real(step)} + 0.5e0)")  # exact: the step is a power of two
        added = self.dialect.double(self.dialect.integer(total.format(steps)))
        return f"({added} * {real(step)})"

    def _taken(self, value: Taken, attribute: Attribute, view: PerUnit, place: int) -> list[str]:
        domain = view.source.domain
        at, before = domain.index(value.of), domain[value.of]
        held = f"c{at} < {before.declared}"
        if value.by is not None:
            position = next(n for n, (_, each) in enumerate(view.values) if each is value)
            held += f" AND c{domain.index(value.by)} = o{position}"
        which = "MAX" if value.which is Pick.GREATEST else "MIN"
        code = f"COALESCE({which}(CASE WHEN {held} THEN c{at} END), {null_code(attribute)}) AS c{place}"
        if not place_is_stored(attribute):
            return [code]
        return [code, f"{which}(CASE WHEN {held} THEN v{at} END) AS v{place}"]


def columns(view: View) -> list[str]:
    """Return the columns of a view's relation."""
    return [
        *(f"c{place}" for place in range(len(view.attributes))),
        *(f"v{place}" for place in stored_values(view.attributes)),
        *(f"k{place}" for place in range(len(view.keys))),
        *(["u"] if view.private else []),
    ]


def place_is_stored(attribute: Attribute) -> bool:
    """Return whether the number of an attribute is stored next to its code."""
    return bool(stored_values([attribute]))


def number_of(dialect: Dialect, domain: Domain, name: str) -> str:
    """Return the number of an attribute, or the day of a date, from its encoded columns; NULL if it is missing."""
    attribute, place = domain[name], domain.index(name)
    if place_is_stored(attribute):
        return f"v{place}" if isinstance(attribute, Real) else dialect.integer(f"v{place}")
    assert isinstance(attribute, Integer | Date)
    first = attribute.minimum if isinstance(attribute, Integer) else attribute.first.toordinal()
    return f"(CASE WHEN c{place} < {attribute.declared} THEN {dialect.integer(f'c{place}')} + ({first}) END)"


def _outer_code(attribute: Attribute, place: int) -> str:
    """Return the code of an attribute that an outer join makes nullable; unknown values follow missing ones."""
    code, absent = f"r.c{place}", attribute.declared
    if attribute.nullable or attribute.unknown is not Unknown.CATEGORY:
        return f"COALESCE({code}, {absent})"
    return f"CASE WHEN {code} IS NULL THEN {absent} WHEN {code} >= {absent} THEN {code} + 1 ELSE {code} END"


def _clamped(value: str, low: str | None, high: str | None) -> str:
    """Return a value moved to its bounds; engines differ in LEAST and GREATEST of NULL."""
    whens = [f"WHEN {value} < {low} THEN {low}"] if low is not None else []
    whens += [f"WHEN {value} > {high} THEN {high}"] if high is not None else []
    return f"(CASE {' '.join(whens)} ELSE {value} END)" if whens else value
