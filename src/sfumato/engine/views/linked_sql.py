"""Heads and tails of linked tables as SQL windows over encoded tables: one text for every engine.

Rows of a unit are ordered by the cell of a public attribute, missing values last, and within a cell by the digest of
unit and codes.  Rows of one digest are equal, so their order and the engine's reading order do not matter.  Rows of one
digest that have different children are ordered by the digest of their key.  Every window is over the rows of one unit,
so the contribution of a unit depends on its own rows only.
"""

# ruff: noqa: S608 - this module writes SQL; every name and literal in it is quoted

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sfumato.domain import Domain
from sfumato.domain.linked_domain import PLACES, ChildTable, LinkedTables
from sfumato.engine.dialect import Dialect
from sfumato.engine.encoding import bin_number


@dataclass(frozen=True)
class DerivedEncoding:
    """A :class:`sfumato.engine.encoding.RowEncoding` over the head, or over a table derived from a child table.

    Attributes:
        related: the tables.
        child: the child table of the tail or head; None for the head of the units.
        opening: true for the head of a child table.
        relations: the FROM clauses of the encoded rows, by table.
        dialect: the dialect of their engine.
    """

    related: LinkedTables
    child: ChildTable | None
    opening: bool
    relations: Mapping[str, str]
    dialect: Dialect

    @property
    def domain(self) -> Domain:
        """The domain of the rows, with the most rows of a unit."""
        if self.child is None:
            return self.related.unit_domain
        table = self.related.first_child(self.child) if self.opening else self.related.next_child(self.child)
        assert table is not None
        return table.counted

    @property
    def named(self) -> str:
        """The beginning of its version."""
        part = " head" if self.opening else ""
        return f"{self.related.hash} {'' if self.child is None else self.child.table.name}{part}"

    @property
    def values(self) -> tuple[int, ...]:
        """No positions: no numbers are stored next to the codes."""
        return ()

    @property
    def stored(self) -> list[str]:
        """The names of the encoded columns."""
        return [*(f"c{place}" for place in range(len(self.domain))), "u"]

    def select(self, relation: str, raw: Sequence[str] = ()) -> str:
        """Return the rows, before a bound drops any; they have no raw columns."""
        del relation
        assert not raw
        if self.child is None:
            values, unit, source = self._head()
        else:
            values, unit, source = self._opening(self.child) if self.opening else self._tail(self.child)
        codes = (
            f"{self.dialect.code(value, attribute.size)} AS c{place}"
            for place, (value, attribute) in enumerate(zip(values, self.domain, strict=True))
        )
        return f"SELECT {', '.join(codes)}, {unit} AS u FROM {source}"

    def _head(self) -> tuple[list[str], str, str]:
        values, direct = self._parents(), self.related.direct
        children = [f"({self._bounded_rows(child)}) AS f{place}" for place, child in enumerate(direct)]
        for place, child in enumerate(direct):
            values += self._first(child, f"f{place}")
        if self.related.parent is None:
            return values, "f0.u", f"{children[0]} WHERE f0.t = 1"
        joins = "".join(
            f" LEFT JOIN {child} ON f{place}.u = p.u AND f{place}.t = 1" for place, child in enumerate(children)
        )
        return values, "p.u", f"{self.relations[self.related.parent.name]} AS p{joins}"

    def _first(self, child: ChildTable, at: str, day: str = "") -> list[str]:
        """Return the number of children and the first child, if any; ``day`` is the date of the parent row."""
        values = [f"COALESCE({at}.n, 0) - {self.related.least_children(child)}"]
        for place, attribute in enumerate(child.table.attributes):
            code, none = f"{at}.c{place}", attribute.size
            if child.dated and attribute.name == child.order:
                none = sum(self.related.first_cells(child))
                apart = self.related.periods_between(child)
                code = self._first_date(child, code) if apart is None else self._distance(child, code, day, apart)
            values.append(f"COALESCE({code}, {none})")
        return values

    def _opening(self, child: ChildTable) -> tuple[list[str], str, str]:
        above, table = self.related.parent_of(child), self.related.first_child(child)
        assert above is not None
        assert table is not None
        row_count = "d.n - 1" if self.related.parent_of(above) is None else _class_of("d.w", table.rows)
        values = [*(f"d.e{place}" for place in range(len(self.related.known_attributes(child)))), row_count]
        values += [_placed("d.t", above, first=1), *self._first(child, "f", "d.day")]
        joined = f"({self._with_evidence(above)}) AS d LEFT JOIN ({self._bounded_rows(child)}) AS f"
        return values, "d.u", f"{joined} ON f.u = d.u AND f.a = d.r AND f.t = 1"

    def _tail(self, child: ChildTable) -> tuple[list[str], str, str]:
        plain = [(child.table.attributes.index(each), each) for each in child.plain]
        nested = self.related.parent_of(child) is not None
        values = [
            *(
                [f"x.e{place}" for place in range(len(self.related.known_attributes(child)))]
                if nested
                else self._parents()
            ),
            "x.n - 2",
            _placed("x.t", child, first=2),
            "CASE WHEN x.t = x.n THEN 1 ELSE 0 END",
            *(f"x.z{place}" for place, _ in plain),
        ]
        if child.memory > 1:
            values += [f"COALESCE(x.y{place}, {attribute.size})" for place, attribute in plain]
        values += [f"x.c{place}" for place, _ in plain]
        if child.dated and child.order is not None:
            date = child.attribute(child.order)
            at, absent = child.table.attributes.index(date), len(child.gaps)
            before = (
                f"CASE WHEN x.t = 2 THEN {absent + child.undated} ELSE {self._gap(child, f'x.z{at}', f'x.y{at}')} END"
            )
            values.append(f"CASE WHEN x.z{at} >= {date.declared} THEN {absent} ELSE {before} END")
            gap = self._gap(child, f"x.c{at}", f"x.z{at}")
            values.append(f"CASE WHEN x.c{at} >= {date.declared} THEN {absent} ELSE {gap} END")
        if nested:
            table = self.related.next_child(child)
            assert table is not None
            further = f"SELECT *, COUNT(*) OVER (PARTITION BY u) AS f FROM ({self._bounded_rows(child)}) AS kept_rows"
            return [*values, _class_of("x.f", table.rows)], "x.u", f"({further} WHERE t > 1) AS x"
        source = f"({self._bounded_rows(child)}) AS x"
        if self.related.parent is not None:
            source += f" JOIN {self.relations[self.related.parent.name]} AS p ON p.u = x.u"
        return values, "x.u", f"{source} WHERE x.t > 1"

    def _first_date(self, child: ChildTable, code: str) -> str:
        """Return the cell of a first date; missing and other dates keep cells of their own."""
        assert child.order is not None
        declared, cells = child.attribute(child.order).declared, len(child.first_dates)
        integer = self.dialect.integer(code)
        inside = bin_number(integer, child.first_dates, range(cells))
        cell = f"CASE WHEN {code} < {declared} THEN {inside} ELSE {integer} - {declared - cells} END"
        return f"CASE WHEN {code} IS NOT NULL THEN {cell} END"

    def _distance(self, child: ChildTable, code: str, day: str, apart: int) -> str:
        """Return the cell of the distance from the parent row's date to a first date.

        Invalid dates and the dates of rows without a parent date have cells of their own.
        """
        above = self.related.parent_of(child)
        assert above is not None
        declared, starts = child.attribute(child.order or "").declared, self.related.distances(child)
        cells, further = self.related.first_cells(child)
        integer, since = self.dialect.integer(code), self.dialect.integer(day)
        inside = bin_number(f"({integer} - {since} + {apart})", starts, range(len(starts)))
        missing = f"WHEN {code} >= {declared} THEN {integer} - {declared - cells} "
        undated = f"WHEN {day} >= {above.attribute(above.order or '').declared} THEN {cells + further - 1} "
        return f"CASE WHEN {code} IS NULL THEN NULL {missing}{undated if above.undated else ''}ELSE {inside} END"

    def _gap(self, child: ChildTable, later: str, earlier: str) -> str:
        """Return the cell of the distance between two dates."""
        distance = f"({self.dialect.integer(later)} - {self.dialect.integer(earlier)})"
        return bin_number(distance, child.gaps, range(len(child.gaps)))

    def _parents(self) -> list[str]:
        parent = self.related.parent
        return [] if parent is None else [f"p.c{place}" for place in range(len(parent.attributes))]

    def _bounded_rows(self, child: ChildTable) -> str:
        """Return the bounded rows of each unit: codes, position ``t`` of ``n`` in a family, and codes of the rows
        before.

        Rows with children also have ``k``, their key, and ``r``, their position in the unit.  Child rows of another
        child table also have ``a``, the position of the parent row in its unit, ``e``, its known attributes, and ``w``,
        the number of such rows of the unit.
        """
        above, codes = self.related.parent_of(child), [f"c{place}" for place in range(len(child.table.attributes))]
        keyed = bool(self.related.children_of(child))
        relation, family, known = self.relations[child.table.name], "u", []
        if above is not None:
            family, known = "u, a", ["a", *self._known_columns(child)]
            relation = self._with_parent_rows(child, above, codes)
        text = ", ' ', ".join(self.dialect.text(code) for code in codes)
        carried, order = ["u", *codes, *known], [*self._sorting(child), "draw"]
        drawn = [*carried, f"{self._digest(text)} AS draw"]
        if keyed:
            key = f"k{child.table.columns.index(child.table.key or '')}"
            drawn += [f"{key} AS k", f"CASE WHEN {key} IS NULL THEN '' ELSE {self._digest(key)} END AS tie"]
            carried, order = [*carried, "k"], [*order, "tie"]
        place = f"ROW_NUMBER() OVER (PARTITION BY {family} ORDER BY {', '.join(order)})"
        placed = (
            f"SELECT {', '.join(carried)}, {place} AS t FROM (SELECT {', '.join(drawn)} FROM {relation}) AS drawn_rows"
        )
        cut = f"({placed}) AS placed_rows WHERE t <= {child.most}"
        more = [f"COUNT(*) OVER (PARTITION BY {family}) AS n"]
        if above is not None:
            within = "ROW_NUMBER() OVER (PARTITION BY u ORDER BY a, t)"
            cut = f"(SELECT {', '.join(carried)}, t, {within} AS r FROM {cut}) AS cut_rows"
            cut += f" WHERE r <= {self.related.schema.bounds(child.table.name).rows}"
            carried, more = [*carried, "r"], [*more, "COUNT(*) OVER (PARTITION BY u) AS w"]
        elif keyed:
            more.append("t AS r")
        for name, back in (("z", 1), ("y", 2)):
            if back <= child.memory or child.dated:
                more += [
                    f"LAG({code}, {back}) OVER (PARTITION BY {family} ORDER BY t) AS {name}{at}"
                    for at, code in enumerate(codes)
                ]
        return f"SELECT {', '.join(carried)}, t, {', '.join(more)} FROM {cut}"

    def _known_columns(self, child: ChildTable) -> list[str]:
        return [f"e{place}" for place in range(len(self.related.known_attributes(child)))]

    def _with_parent_rows(self, child: ChildTable, parent: ChildTable, codes: Sequence[str]) -> str:
        """Return the rows of a nested table, each with the position and the known attributes of its parent row."""
        link = child.table.through
        assert link is not None
        inside = ["g.u AS u", "d.r AS a", *(f"g.{code} AS {code}" for code in codes)]
        inside += [f"d.{e} AS {e}" for e in self._known_columns(child)]
        inside += [f"g.k{place} AS k{place}" for place in range(len(child.table.columns))]
        tied = f"d.u = g.u AND d.k = g.k{child.table.columns.index(link.column)}"
        rows = f"{self.relations[child.table.name]} AS g JOIN ({self._with_evidence(parent)}) AS d ON {tied}"
        return f"(SELECT {', '.join(inside)} FROM {rows}) AS linked_rows"

    def _digest(self, text: str) -> str:
        """Return the digest of a text of a row and its unit, which orders rows of equal rank."""
        return self.dialect.digest(f"CONCAT('{self.related.schema.hash[:16]}', u, '|', {text})")

    def _with_evidence(self, child: ChildTable) -> str:
        """Return the rows of a table with children: keys, positions, numbers, and ``e``, their known attributes."""
        own = [f"d.c{child.table.attributes.index(each)}" for each in child.plain]
        listed, source = (
            ["d.u AS u", "d.k AS k", "d.r AS r", "d.t AS t", "d.n AS n"],
            f"({self._bounded_rows(child)}) AS d",
        )
        known = self._parents()
        if self.related.parent_of(child) is not None:
            listed.append("d.w AS w")
            known = [f"d.{column}" for column in self._known_columns(child)]
        elif self.related.parent is not None:
            source += f" JOIN {self.relations[self.related.parent.name]} AS p ON p.u = d.u"
        listed += [f"{code} AS e{place}" for place, code in enumerate([*known, *own])]
        if child.dated:
            listed.append(f"d.c{child.table.attributes.index(child.attribute(child.order or ''))} AS day")
        return f"SELECT {', '.join(listed)} FROM {source}"

    def _sorting(self, child: ChildTable) -> list[str]:
        if child.order is None:
            return []
        attribute = child.attribute(child.order)
        code = f"c{child.table.attributes.index(attribute)}"
        return [f"CASE WHEN {code} < {attribute.declared} THEN 0 ELSE 1 END", f"{code}{' DESC' * child.falling}"]


def _placed(place: str, child: ChildTable, *, first: int) -> str:
    """Return the code of a position, counted from ``first``; all later positions share the last code."""
    last = min(child.most, PLACES + 1)
    return f"CASE WHEN {place} > {last} THEN {last} ELSE {place} END - {first}"


def _class_of(count: str, rows: Sequence[int]) -> str:
    """Return the class of a number of rows: the first class that is large enough."""
    held = " ".join(f"WHEN {count} <= {most} THEN {code}" for code, most in enumerate(rows[:-1]))
    return f"CASE {held} ELSE {len(rows) - 1} END" if held else "0"
