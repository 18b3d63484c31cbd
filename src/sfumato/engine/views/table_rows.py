"""Encoded rows of the tables of a schema, with their keys and their units, as SQL for every engine."""

# ruff: noqa: S608 - this module writes SQL; every name and literal in it is quoted

from __future__ import annotations

from collections.abc import Mapping

from sfumato.domain import Domain
from sfumato.domain.table_schema import SchemaTable
from sfumato.engine.dialect import Dialect, identity, missing
from sfumato.engine.encoding import Encoding, stored_values
from sfumato.engine.port import Column, ColumnKind


def keyed(dialect: Dialect, column: Column, *, integer: bool) -> str:
    """Return a key as text that only equal keys share, or its number; NULL if it is missing.

    Args:
        dialect: of the engine.
        column: of keys.
        integer: whether the engine takes the types of all integer keys of the schema unchanged.
    """
    if integer and column.kind is ColumnKind.INTEGER:
        return dialect.name(column.name)
    return f"CASE WHEN NOT {missing(dialect, column)} THEN {identity(dialect, column)} END"


def own_rows(
    table: SchemaTable,
    unit: str | None,
    columns: Mapping[str, Column],
    dialect: Dialect,
    relation: str,
    *,
    integer: bool,
) -> str:
    """The encoded rows of one table: codes, numbers, keys, and ``u`` where a column of its own names the unit.

    Args:
        table: of a schema.
        unit: its column that names the unit; None: it has none.
        columns: its columns.
        dialect: of the engine.
        relation: its raw rows, what stands after FROM.
        integer: see :func:`keyed`.
    """
    carried = [keyed(dialect, columns[column], integer=integer) for column in table.columns]
    carried += [keyed(dialect, columns[unit], integer=integer)] if unit is not None else []
    if table.attributes:
        domain = Domain(table.attributes, hierarchies=table.hierarchies, csv=table.csv)
        rows = Encoding(domain, columns, dialect).select(relation, carried)
    else:
        rows = f"SELECT {', '.join(f'{text} AS r{place}' for place, text in enumerate(carried))} FROM {relation}"
    names = [f"k{place}" for place in range(len(table.columns))] + (["u"] if unit is not None else [])
    cells = [*(f"c{place}" for place in range(len(table.attributes)))]
    cells += [f"v{place}" for place in stored_values(table.attributes)]
    listed = ", ".join([*cells, *(f"r{place} AS {name}" for place, name in enumerate(names))])
    condition = f" WHERE r{len(names) - 1} IS NOT NULL" if unit is not None else ""
    return f"SELECT {listed} FROM ({rows}) AS own_rows{condition}"


def owned_rows(table: SchemaTable, own: str, owners: str) -> str:
    """The encoded rows of a table whose units are found through another; rows without owner are left out.

    Args:
        table: such a table.
        own: its encoded rows.
        owners: of the other table, as :func:`own_owners` and :func:`found_owners` make them.
    """
    assert table.through is not None
    key = table.columns.index(table.through.column)
    listed = [*(f"c{place}" for place in range(len(table.attributes)))]
    listed += [f"v{place}" for place in stored_values(table.attributes)]
    listed += [f"own.k{place} AS k{place}" for place in range(len(table.columns))]
    joined = f"{own} AS own JOIN {owners} AS o ON own.k{key} = o.k"
    return f"SELECT {', '.join(listed)}, o.u AS u FROM {joined} WHERE o.u IS NOT NULL"  # part of a row that is nobody's


def own_owners(
    key: str, owner: str, columns: Mapping[str, Column], dialect: Dialect, relation: str, *, integer: bool
) -> str:
    """Of each row with a key that key ``k``, and ``u``: its unit, or the key of the row that it belongs to.

    Of all raw rows, so that whose a row is depends on no value beside the keys.

    Args:
        key: the column.
        owner: the column of the unit, or of the key of the row that a row belongs to.
        columns: columns of the table.
        dialect: of the engine.
        relation: its raw rows, what stands after FROM.
        integer: see :func:`keyed`.
    """
    texts = (
        f"{keyed(dialect, columns[column], integer=integer)} AS {name}" for column, name in ((key, "k"), (owner, "u"))
    )
    return f"SELECT k, u FROM (SELECT {', '.join(texts)} FROM {relation}) AS ties WHERE k IS NOT NULL"


def found_owners(own: str, above: str) -> str:
    """Return the owners of a table whose units are found through another table: the unit instead of the key."""
    return f"SELECT own.k AS k, o.u AS u FROM {own} AS own JOIN {above} AS o ON own.u = o.k"
