"""Heads and tails of related tables as SQL windows over encoded tables: one text for every engine.

Rows of a unit are ordered by the cell of a public attribute, missing values last, and within a cell by the digest of
unit and codes: rows of one digest are equal, so that it does not matter which of them comes first, nor in which order
the engine reads.  Every window is over the rows of one unit, so what a unit adds depends on its own rows only.
"""

# ruff: noqa: S608 - this module writes SQL; every name and literal in it is quoted

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sfumato.domain import Domain
from sfumato.domain.related_tables import PLACES, ChildTable, RelatedTables
from sfumato.engine.dialect import Dialect
from sfumato.engine.encoding import bin_number


@dataclass(frozen=True)
class DerivedEncoding:
    """Implements :class:`sfumato.engine.encoding.RowEncoding` over the head, or over the tail of a child table.

    Attributes:
        related: the tables.
        child: of whose tail the rows are; None: of the head.
        relations: where the encoded rows of each table are, by its name.
        dialect: of the engine that has them.
    """

    related: RelatedTables
    child: ChildTable | None
    relations: Mapping[str, str]
    dialect: Dialect

    @property
    def domain(self) -> Domain:
        """Of the rows, with the most that a unit has of them."""
        if self.child is None:
            return self.related.head
        tail = self.related.tail(self.child)
        assert tail is not None
        return tail.counted

    @property
    def named(self) -> str:
        """What its version begins with."""
        return f"{self.related.hash} {'' if self.child is None else self.child.table.name}"

    @property
    def values(self) -> tuple[int, ...]:
        """No numbers beside the codes."""
        return ()

    @property
    def stored(self) -> list[str]:
        """Names of the encoded columns."""
        return [*(f"c{place}" for place in range(len(self.domain))), "u"]

    def select(self, relation: str, raw: Sequence[str] = ()) -> str:
        """The rows, before any is left out; they have no raw columns."""
        del relation
        assert not raw
        values, unit, source = self._head() if self.child is None else self._tail(self.child)
        codes = (
            f"{self.dialect.code(value, attribute.size)} AS c{place}"
            for place, (value, attribute) in enumerate(zip(values, self.domain, strict=True))
        )
        return f"SELECT {', '.join(codes)}, {unit} AS u FROM {source}"

    def _head(self) -> tuple[list[str], str, str]:
        values, least = self._parents(), self.related.least()
        children = [f"({self._chained(child)}) AS f{place}" for place, child in enumerate(self.related.children)]
        for place, child in enumerate(self.related.children):
            values.append(f"COALESCE(f{place}.n, 0) - {least}")
            for at, attribute in enumerate(child.table.attributes):
                code, none = f"f{place}.c{at}", attribute.size
                if child.dated and attribute.name == child.order:
                    code, none = self._first_date(child, code), len(child.first_dates) + none - attribute.declared
                values.append(f"COALESCE({code}, {none})")
        if self.related.parent is None:
            return values, "f0.u", f"{children[0]} WHERE f0.t = 1"
        joins = "".join(
            f" LEFT JOIN {child} ON f{place}.u = p.u AND f{place}.t = 1" for place, child in enumerate(children)
        )
        return values, "p.u", f"{self.relations[self.related.parent.name]} AS p{joins}"

    def _tail(self, child: ChildTable) -> tuple[list[str], str, str]:
        plain = [(child.table.attributes.index(each), each) for each in child.plain]
        last = min(child.most, PLACES + 1)
        values = [
            *self._parents(),
            "x.n - 2",
            f"CASE WHEN x.t > {last} THEN {last} ELSE x.t END - 2",
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
        source = f"({self._chained(child)}) AS x"
        if self.related.parent is not None:
            source += f" JOIN {self.relations[self.related.parent.name]} AS p ON p.u = x.u"
        return values, "x.u", f"{source} WHERE x.t > 1"

    def _first_date(self, child: ChildTable, code: str) -> str:
        """The cell of a first date; missing and other ones keep cells of their own."""
        assert child.order is not None
        declared, cells = child.attribute(child.order).declared, len(child.first_dates)
        whole = self.dialect.integer(code)
        inside = bin_number(whole, child.first_dates, range(cells))
        cell = f"CASE WHEN {code} < {declared} THEN {inside} ELSE {whole} - {declared - cells} END"
        return f"CASE WHEN {code} IS NOT NULL THEN {cell} END"

    def _gap(self, child: ChildTable, later: str, earlier: str) -> str:
        """The cell of the distance between two dates."""
        distance = f"({self.dialect.integer(later)} - {self.dialect.integer(earlier)})"
        return bin_number(distance, child.gaps, range(len(child.gaps)))

    def _parents(self) -> list[str]:
        parent = self.related.parent
        return [] if parent is None else [f"p.c{place}" for place in range(len(parent.attributes))]

    def _chained(self, child: ChildTable) -> str:
        """The rows that are kept of each unit: place ``t``, number ``n``, codes, and those of the rows before."""
        codes = [f"c{place}" for place in range(len(child.table.attributes))]
        listed = ", ".join(["u", *codes])
        spelled = ", ' ', ".join(self.dialect.text(code) for code in codes)
        draw = self.dialect.digest(f"CONCAT('{self.related.schema.hash[:16]}', u, '|', {spelled})")
        drawn = f"SELECT {listed}, {draw} AS draw FROM {self.relations[child.table.name]}"
        order = [*self._sorting(child), "draw"]
        place = f"ROW_NUMBER() OVER (PARTITION BY u ORDER BY {', '.join(order)})"
        placed = f"SELECT {listed}, {place} AS t FROM ({drawn}) AS drawn_rows"
        lags = ["COUNT(*) OVER (PARTITION BY u) AS n"]
        for name, back in (("z", 1), ("y", 2)):
            if back <= child.memory or child.dated:
                lags += [
                    f"LAG({code}, {back}) OVER (PARTITION BY u ORDER BY t) AS {name}{at}"
                    for at, code in enumerate(codes)
                ]
        return f"SELECT {listed}, t, {', '.join(lags)} FROM ({placed}) AS placed_rows WHERE t <= {child.most}"

    def _sorting(self, child: ChildTable) -> list[str]:
        if child.order is None:
            return []
        attribute = child.attribute(child.order)
        code = f"c{child.table.attributes.index(attribute)}"
        return [f"CASE WHEN {code} < {attribute.declared} THEN 0 ELSE 1 END", f"{code}{' DESC' * child.falling}"]
