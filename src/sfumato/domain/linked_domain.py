"""The public facts about a parent table and its child tables, as tables with one row per unit and one row per child.

From each child table the first ``most`` rows of a unit in a public order are used.  The *head* has one row per unit:
the parent's attributes and, for every child table, the number of children and the first child.  The *tail* of a child
table has one row per further child: the parent, the number of children, the child's position, the previous child, and
the child itself.  The rows of a unit in both depend on that unit alone.

A row of a tail weighs ``floor(WHOLE / max(tau, number - 1))``, so that all rows of a unit weigh at most ``WHOLE``
together.

Rows of a child table may have children themselves, such as the diagnoses of a visit of a patient.  Each row has at most
``most`` children, and each unit at most the number that the schema declares; the first in the order of the parent rows
are used.  The *head* of a nested table has one row per parent row: its known attributes, the number of its children,
and the first child.  The tail is as above, for each parent row.

A row of either weighs ``floor(WHOLE / max(tau, n))``, and n is at least the number of such rows of the unit.  So the
weight depends on one unit, and all rows of a unit weigh at most ``WHOLE``.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sfumato.arguments import expect_all
from sfumato.domain.attribute import Attribute, Categorical, Date, Integer, Timestamp
from sfumato.domain.derived import cells, coded, weight_classes
from sfumato.domain.domain import Domain
from sfumato.domain.raw_values import Unknown
from sfumato.domain.table_schema import Schema, SchemaTable
from sfumato.domain.unit import Unit
from sfumato.errors import DomainError

WHOLE = math.lcm(*range(1, 17))
"""What the rows of a unit in a tail weigh together, at most: 720720, which each number up to 16 divides."""

PLACES = 4
"""Places of a child that a tail tells apart: second, third, fourth, fifth and later."""

GAPS = (0, 1, 2, 7, 14, 30, 60, 90, 180, 365, 730, 1825, 3650)
"""Where the cells of a distance between two dates begin, in cells of their grain."""

BEFORE = (365, 90, 30, 7, 1)
"""By how many cells of their grain a first date is before that of the row above, at most, cell by cell."""

FIRSTS = 48
"""Cells of a first date, at most."""

_MOST_CHILDREN = 1 << 10
_MOST_ROWS = 1 << 16
_MEMORIES = (1, 2)


@dataclass(frozen=True)
class DerivedTable:
    """Weighted rows that are derived from one unit at a time.

    Attributes:
        name: name in the journal.
        domain: domain of the rows. Its unit has ``unit_weight`` rows, because a row of weight w counts as w equal rows.
        number: the attribute with the number of rows of the row's unit in the table.
        rows: the largest number of rows of a unit, by the code of that attribute.
        weights: the weight of each of these rows, by the same code.
        unit_weight: the largest total weight of the rows of a unit.
        described: the order, bounds and weights that define the rows, as JSON values.
    """

    name: str
    domain: Domain
    number: str
    rows: tuple[int, ...]
    weights: tuple[int, ...]
    unit_weight: int
    described: str

    def __post_init__(self) -> None:
        fitting = len(self.rows) == len(self.weights) == self.domain[self.number].size
        if not fitting or min(self.weights) < 0 or self.domain.unit.rows != self.unit_weight:
            raise DomainError("a derived table has a weight for each number of rows of its unit", culprit=self.name)
        if any(rows * weight > self.unit_weight for rows, weight in zip(self.rows, self.weights, strict=True)):
            raise DomainError(
                f"the rows of a unit would weigh more than {self.unit_weight} together", culprit=self.name
            )

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of the full description, hexadecimal; the domain of the head refers to the table by it."""
        identity = [self.name, self.domain.hash, self.number, self.rows, self.weights, self.unit_weight, self.described]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()

    @property
    def counted(self) -> Domain:
        """The domain of the rows if each is counted once, without its weight."""
        return Domain(self.domain.attributes, unit=self.domain.unit.bounded(rows=max(self.rows), per=()))


@dataclass(frozen=True, kw_only=True)
class ChildTable:
    """A table with several rows per unit, in a public order.

    Attributes:
        table: the table of the schema.
        order: the attribute that orders the rows of a unit, missing values last; None: a hash of the row. Rows of one
            cell are ordered by that hash. If it is a date, the first date and the gaps between dates are counted.
        falling: true for descending order.
        most: the number of rows per unit that are used, the first in order.
        memory: the number of earlier rows on which a row depends: 1 or 2.
        final: an attribute and the label of a cell after which a unit has no further row.
    """

    table: SchemaTable
    order: str | None = None
    falling: bool = False
    most: int
    memory: int = 1
    final: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        name = self.table.name
        if self.table.public or not self.table.attributes:
            raise DomainError(f"{name} has no private attributes to synthesize", culprit=name)
        if self.order is not None and self.order not in {each.name for each in self.table.attributes}:
            raise DomainError(f"{name} is to be ordered by {self.order!r}, which is none of its attributes")
        if self.order is not None and isinstance(self.attribute(self.order), Categorical):
            raise DomainError(f"{name} is to be ordered by {self.order!r}, which is no number and no date")
        if self.order is None and self.falling:
            raise DomainError(
                f"{name} cannot fall without an order: name the attribute that orders its rows", culprit=name
            )
        if self.falling and self.dated:
            raise DomainError(f"{name} is ordered by a date, which must rise", culprit=name)
        if self.final is not None:
            _ = self.final_code
        if type(self.most) is not int or not 1 <= self.most <= _MOST_CHILDREN:
            raise DomainError(f"of {name} 1 to {_MOST_CHILDREN} rows of a unit are kept, not {self.most}", culprit=name)
        if self.memory not in _MEMORIES:
            raise DomainError(f"a row of {name} depends on one or two rows before it, not {self.memory}", culprit=name)

    def attribute(self, name: str) -> Attribute:
        """Return an attribute of the table."""
        return next(each for each in self.table.attributes if each.name == name)

    @property
    def dated(self) -> bool:
        """True if the rows are ordered by a date."""
        return self.order is not None and isinstance(self.attribute(self.order), Date | Timestamp)

    @property
    def plain(self) -> tuple[Attribute, ...]:
        """The attributes of the table without the date that orders its rows."""
        return tuple(each for each in self.table.attributes if not (self.dated and each.name == self.order))

    @property
    def first_dates(self) -> tuple[int, ...]:
        """The code of the first date in each cell of a first date."""
        assert self.order is not None
        declared = self.attribute(self.order).declared
        return tuple(range(0, declared, -(-declared // FIRSTS)))

    @property
    def gaps(self) -> tuple[int, ...]:
        """The starts of the cells of a distance between two dates."""
        assert self.order is not None
        return tuple(gap for gap in GAPS if gap < self.attribute(self.order).declared)

    @property
    def undated(self) -> bool:
        """True if the date that orders the rows may be missing."""
        assert self.order is not None
        attribute = self.attribute(self.order)
        return attribute.size > attribute.declared

    @property
    def final_code(self) -> int:
        """The code of the final cell.

        Raises:
            DomainError: no such attribute, or no such cell.
        """
        assert self.final is not None
        name, label = self.final
        if name not in {each.name for each in self.plain} or label not in self.attribute(name).labels():
            raise DomainError(f"{self.table.name} cannot end with {name} = {label}: it has no such cell", culprit=name)
        return self.attribute(name).labels().index(label)

    @property
    def number(self) -> str:
        """The name of the number of rows of a unit in heads and tails."""
        return f"{self.table.name}.number"

    @property
    def rows(self) -> str:
        """The name of the class of the number of all rows of a unit, if these have several parent rows."""
        return f"{self.table.name}.rows"

    @property
    def place(self) -> str:
        """The name of the position of a row among its siblings."""
        return f"{self.table.name}.place"

    def named(self, where: str, name: str) -> str:
        """Return the name of an attribute of the ``first``, ``this``, ``previous`` or ``before`` row."""
        return f"{self.table.name}.{where}.{name}"

    def describe(self) -> dict[str, Any]:
        """Return the order, bounds and end of the rows as JSON values."""
        order = None if self.order is None else {"by": self.order, "falling": self.falling}
        document = {"table": self.table.name, "order": order, "most": self.most, "memory": self.memory}
        return document | ({} if self.final is None else {"final": list(self.final)})


@dataclass(frozen=True, kw_only=True)
class LinkedTables:
    """The public facts about a parent table and its child tables.

    Attributes:
        schema: the accepted schema.
        children: child tables, in the order in which they are synthesized.
        tau: the number of rows of a tail up to which the rows of a unit have equal weight.
    """

    schema: Schema
    children: tuple[ChildTable, ...]
    tau: int = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "children", tuple(self.children))
        expect_all(self.children, ChildTable, "child tables are a list of ChildTable")
        if not self.children:
            raise DomainError("name at least one child table; for the parent alone use a method for one table")
        if len({child.table.name for child in self.children}) != len(self.children):
            raise DomainError("a child table is named twice", culprit=self.children)
        if type(self.tau) is not int or not 1 <= self.tau <= WHOLE:
            raise DomainError(f"tau is a whole number from 1, not {self.tau}", culprit=self.tau)
        if self.parent is None and len(self.direct) > 1:
            raise DomainError("several child tables need a table that lists all units, which the schema does not name")
        for child in self.children:
            self._check(child)
            if self.most_rows(child) > _MOST_ROWS:
                raise DomainError(f"of {child.table.name} at most {_MOST_ROWS} rows of a unit are kept", culprit=child)

    def _check(self, child: ChildTable) -> None:
        table = child.table
        if self.schema[table.name] != table:
            raise DomainError(f"{table.name} is described otherwise than in the schema", culprit=table.name)
        if table.name == self.schema.units:
            raise DomainError(f"{table.name} lists the units: each has one row there", culprit=table.name)
        if (name := row_above(self.schema, table)) is not None:
            before = self.children[: self.children.index(child)]
            if name not in {each.table.name for each in before}:
                raise DomainError(
                    f"{table.name} belongs to rows of {name}, which is not synthesized before it; name {name} first, "
                    f"or leave {table.name} out",
                    culprit=table.name,
                )

    def parent_of(self, child: ChildTable) -> ChildTable | None:
        """Return the child table with the parent rows of this one; None for children of units."""
        name = row_above(self.schema, child.table)
        return None if name is None else next(each for each in self.children if each.table.name == name)

    def children_of(self, child: ChildTable) -> tuple[ChildTable, ...]:
        """Return the child tables whose rows belong to rows of this one."""
        return tuple(each for each in self.children if row_above(self.schema, each.table) == child.table.name)

    def most_rows(self, child: ChildTable) -> int:
        """Return the largest number of rows of one unit that are used."""
        parent = self.parent_of(child)
        if parent is None:
            return child.most
        return min(self.schema.bounds(child.table.name).rows, self.most_rows(parent) * child.most)

    @property
    def parent(self) -> SchemaTable | None:
        """The table that lists all units; None: the units are the owners of at least one child."""
        return None if self.schema.units is None else self.schema[self.schema.units]

    @property
    def direct(self) -> tuple[ChildTable, ...]:
        """The child tables whose rows belong to a unit, not to a row of another child table."""
        return tuple(child for child in self.children if row_above(self.schema, child.table) is None)

    @property
    def left_out(self) -> tuple[str, ...]:
        """The private tables of the schema that are neither the parent nor a child."""
        included = {self.schema.units, *(child.table.name for child in self.children)}
        return tuple(table.name for table in self.schema if not table.public and table.name not in included)

    @property
    def unit(self) -> Unit:
        """The unit of a head: one row, which represents bounded numbers of rows of each child table."""
        rows_kept = [(child.table.name, self.most_rows(child)) for child in self.children]
        return Unit(self.schema.id, rows=1, schema=self.schema.name, kept=rows_kept)

    def least_children(self, child: ChildTable | None = None) -> int:
        """Return the smallest number of children of a unit, or of a parent row of a child table."""
        return 1 if self.parent is None and (child is None or self.parent_of(child) is None) else 0

    @cached_property
    def unit_domain(self) -> Domain:
        """Return the domain of the *head*, the table with one row for each unit.

        A first child has one more code, the last, if a unit may have no child.  The domain names the linked tables and
        all derived tables, because no other tables are counted with its rows.
        """
        attributes = list(self._parents)
        for child in self.direct:
            attributes += self._first(child)
        return Domain(tuple(attributes), unit=self.unit, derives=(self.hash, *(table.hash for table in self.derived)))

    def _first(self, child: ChildTable) -> list[Attribute]:
        """Return the attributes for the number of children and the first child."""
        least = self.least_children(child)
        attributes: list[Attribute] = [
            Integer(name=child.number, minimum=least, maximum=child.most, unknown=Unknown.CLAMP),
        ]
        for each in child.table.attributes:
            name = child.named("first", each.name)
            if child.dated and each.name == child.order:
                declared, more = self.first_cells(child)
                attributes.append(cells(name, declared, more + (least == 0)))
            else:
                attributes.append(coded(each, name, none=least == 0))
        return attributes

    def periods_between(self, child: ChildTable) -> int | None:
        """Return the number of periods between the dates of a parent and the beginning of a child table's dates.

        None if a table has no date that orders it, or the grains differ: then first dates are counted without the
        parent's.
        """
        parent = self.parent_of(child)
        if parent is None or not parent.dated or not child.dated:
            return None
        assert parent.order is not None
        assert child.order is not None
        one, other = parent.attribute(parent.order), child.attribute(child.order)
        assert isinstance(one, Date | Timestamp)
        assert isinstance(other, Date | Timestamp)
        return other.periods[0] - one.periods[0] if one.by == other.by else None

    def distances(self, child: ChildTable) -> tuple[int, ...]:
        """Return the starts of the cells of the distance from a parent row's date to the first date, ascending."""
        above, apart = self.parent_of(child), self.periods_between(child)
        assert above is not None
        assert apart is not None
        least = apart + 1 - above.attribute(above.order or "").declared
        most = apart + child.attribute(child.order or "").declared - 1
        return least, *(each for each in (*(-before for before in BEFORE), *GAPS) if least < each <= most)

    def first_cells(self, child: ChildTable) -> tuple[int, int]:
        """Return the number of cells of a first date, and of other cells: missing, other, or below an undated row."""
        above, date = self.parent_of(child), child.attribute(child.order or "")
        if above is None or self.periods_between(child) is None:
            return len(child.first_dates), date.size - date.declared
        return len(self.distances(child)), date.size - date.declared + above.undated

    def known_attributes(self, child: ChildTable) -> tuple[Attribute, ...]:
        """Return the attributes of the unit and of all parent rows of the rows of a child table."""
        above = self.parent_of(child)
        if above is None:
            return self._parents
        own = (coded(each, above.named("this", each.name), none=False) for each in above.plain)
        return (*self.known_attributes(above), *own)

    def first_child(self, child: ChildTable) -> DerivedTable | None:
        """Return the *head* of a nested child table, or None for children of units, which are in the unit's head.

        It has one row for each parent row: the known attributes, the number of children, and the first child.
        """
        above = self.parent_of(child)
        if above is None:
            return None
        most = self.most_rows(above)
        number, rows = above.rows, weight_classes(most)
        row_count = cells(number, len(rows), 0)
        if self.parent_of(above) is None:  # then its number counts all rows of the unit
            number, rows = above.number, tuple(range(1, most + 1))
            row_count = Integer(name=number, minimum=1, maximum=most, unknown=Unknown.CLAMP)
        last = min(above.most, PLACES + 1)
        place = Integer(name=above.place, minimum=1, maximum=last, unknown=Unknown.CLAMP)
        attributes = (*self.known_attributes(child), row_count, place, *self._first(child))
        return self._derived(f"{child.table.name}.head", attributes, number, rows)

    def next_child(self, child: ChildTable) -> DerivedTable | None:
        """Return the *tail* of a child table: one row for each child after the first; None with at most one child."""
        if child.most == 1:
            return None
        last = min(child.most, PLACES + 1)
        attributes = [
            *self.known_attributes(child),
            Integer(name=child.number, minimum=2, maximum=child.most, unknown=Unknown.CLAMP),
            Integer(name=child.place, minimum=2, maximum=last, unknown=Unknown.CLAMP),
            Integer(name=f"{child.table.name}.last", minimum=0, maximum=1, unknown=Unknown.CLAMP),
            *(coded(each, child.named("previous", each.name), none=False) for each in child.plain),
            *(coded(each, child.named("before", each.name), none=True) for each in child.plain if child.memory > 1),
            *(coded(each, child.named("this", each.name), none=False) for each in child.plain),
        ]
        if child.dated and child.order is not None:
            absent = int(child.undated)
            attributes.append(cells(child.named("previous", child.order), len(child.gaps), absent + 1))
            attributes.append(cells(child.named("this", child.order), len(child.gaps), absent))
        number, rows = child.number, tuple(range(1, child.most))
        if self.parent_of(child) is not None:
            number, rows = child.rows, weight_classes(max(self.most_rows(child) - 1, 1))
            attributes.append(cells(number, len(rows), 0))
        return self._derived(f"{child.table.name}.tail", tuple(attributes), number, rows)

    def _derived(
        self, name: str, attributes: tuple[Attribute, ...], number: str, rows: tuple[int, ...]
    ) -> DerivedTable:
        return DerivedTable(
            name=name,
            domain=Domain(attributes, unit=self.unit.bounded(rows=WHOLE, per=())),
            number=number,
            rows=rows,
            weights=tuple(WHOLE // max(self.tau, further) for further in rows),
            unit_weight=WHOLE,
            described=json.dumps(self.describe(), sort_keys=True),
        )

    @property
    def derived(self) -> tuple[DerivedTable, ...]:
        """The derived tables besides the head: for each child table its own head, if it has one, and its tail."""
        both = (table for child in self.children for table in (self.first_child(child), self.next_child(child)))
        return tuple(table for table in both if table is not None)

    def describe(self) -> dict[str, Any]:
        """Return order, bounds and weights as JSON values for the journal."""
        return {
            "schema": self.schema.hash,
            "parent": None if self.parent is None else self.parent.name,
            "children": [child.describe() for child in self.children],
            "tau": self.tau,
            "whole": WHOLE,
        }

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of the description, hexadecimal."""
        return hashlib.sha256(json.dumps(self.describe(), sort_keys=True).encode()).hexdigest()

    @cached_property
    def _parents(self) -> tuple[Attribute, ...]:
        if self.parent is None:
            return ()
        name = self.parent.name
        return tuple(coded(each, f"{name}.{each.name}", none=False) for each in self.parent.attributes)


def row_above(schema: Schema, table: SchemaTable) -> str | None:
    """Return the table with the parent rows of a private table; None if its rows belong to a unit."""
    if table.unit is not None or table.through is None:
        return None
    above = schema[table.through.table].name
    return None if above == schema.units else above


def _chained(schema: Schema) -> list[SchemaTable]:
    """Return the private tables with attributes that reach their unit through such tables, each after its parent."""
    held = [each for each in schema if not each.public and each.name != schema.units and each.attributes]
    chained = [each for each in held if row_above(schema, each) is None]
    for above in chained:
        chained += [each for each in held if row_above(schema, each) == above.name]
    return chained


def link_tables(schema: Schema, children: Sequence[ChildTable] = (), *, tau: int = 2) -> LinkedTables:
    """Return the linked tables of a schema; by default all private tables, each after its parent table.

    Rows are ordered by their first date if they have one.  The number of rows per unit is the bound of the schema.

    Raises:
        DomainError: a table does not exist or cannot be linked.
    """
    schema.refuse_draft()
    if not children:
        chained = _chained(schema)
        dated = {
            table.name: next((each.name for each in table.attributes if isinstance(each, Date | Timestamp)), None)
            for table in chained
        }
        children = [
            ChildTable(table=table, order=dated[table.name], most=schema.bounds(table.name).rows) for table in chained
        ]
    found_tables = LinkedTables(schema=schema, children=tuple(children), tau=tau)
    for child in found_tables.children:
        if child.most > (bound := schema.bounds(child.table.name).rows):
            raise DomainError(
                f"of {child.table.name} at most the {bound} rows that the schema bounds are kept, not {child.most}",
                culprit=child,
            )
    return found_tables
