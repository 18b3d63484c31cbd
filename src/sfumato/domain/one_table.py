"""A single described table as a schema, so that statements about it may use all that statements about several may."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.domain.domain import Domain
from sfumato.domain.table_schema import Schema, SchemaTable
from sfumato.domain.unit import Unit

TABLE = "table"
"""The name of the one table, whatever statements call it."""


@dataclass(frozen=True, kw_only=True)
class OneTableSchema(Schema):
    """A schema of one private table.  Its unit is that of the table's domain, and may be a row.

    Attributes:
        unit: the unit of the domain, with its bounds.
    """

    unit: Unit

    def __post_init__(self) -> None:
        """Check nothing: the domain was checked."""

    def bounds(self, name: str) -> Unit:
        """Return the unit of the domain with its bounds."""
        del name
        return self.unit


def one_table_schema(domain: Domain) -> OneTableSchema:
    """Return the schema of a table with a domain.  The id of a unit that is a row is empty, and names no column."""
    unit = domain.unit
    table = SchemaTable(
        name=TABLE,
        attributes=domain.attributes,
        unit=unit.column,
        rows=unit.rows,
        per=unit.per,
        hierarchies=domain.hierarchies,
        csv=domain.csv,
    )
    return OneTableSchema(name=TABLE, id=unit.column or "", tables=(table,), unit=unit)
