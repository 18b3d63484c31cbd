"""How a schema and its tables fit: what is risky in it, and what bounds of its views cut, for their owner's eyes."""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.domain import Domain
from sfumato.domain.table_schema import Schema
from sfumato.domain.view import BoundedView
from sfumato.engine.description.domain_fit import AttributeFit, domain_fit, risks
from sfumato.engine.exact import reveal
from sfumato.engine.views.joined import JoinedTables, open_schema_table, open_tables

_ALL = 1 << 40  # more rows than any unit has


@dataclass(frozen=True)
class CutRows:
    """What the bounds of a view leave out, exactly: ``cut`` of its ``rows``, of so many ``units``."""

    view: str
    rows: int
    cut: int
    units: int


def cut_rows(tables: JoinedTables, view: BoundedView, name: str) -> CutRows:
    """Count the rows of a view that its bounds keep and leave out.

    Raises:
        EngineError: the tables can no longer be read.
    """
    encoded = tables.encode(view)
    kept, cut, units = (
        int(reveal(exact)[0]) for exact in (encoded.marginals([()])[0], encoded.dropped(_ALL), encoded.dropped(1))
    )
    return CutRows(name, kept + cut, cut, units)


def schema_fit(schema: Schema, source: object) -> dict[str, tuple[AttributeFit, ...]]:
    """Count the values of every attribute of every table, over all of its rows.

    Raises:
        TableError: a table is missing, or has no such columns.
    """
    return {
        table.name: domain_fit(open_schema_table(schema, table, source), Domain(table.attributes))
        for table in schema
        if table.attributes
    }


def schema_risks(schema: Schema, source: object | None) -> tuple[str, ...]:
    """What of a schema its owner should look at before accepting it, a sentence each.

    Args:
        schema: the description.
        source: where its tables lie, for keys that name several rows and facts that were read off; None: names are all
            there is to see.

    Raises:
        TableError: a table cannot be read, or a key names several rows: such a schema is not to be accepted.
    """
    if source is not None:
        open_tables(schema, source)
    found = []
    for table in schema:
        if not table.attributes or table.public:
            continue
        opened = None if source is None else open_schema_table(schema, table, source)
        told = risks(Domain(table.attributes), opened)
        found += [f"{table.name}: {each}" for each in told if not each.startswith("one row is the unit")]
    return tuple(found)
