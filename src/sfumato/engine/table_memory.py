"""How many bytes the tables of this process hold: in DuckDB, and in columns that are kept as arrays."""

from __future__ import annotations

from sfumato.engine.arrays import KeptColumns
from sfumato.engine.duckdb.duck_session import session_bytes


def held_bytes() -> int:
    """Bytes of all tables that are open in this process; of one in a database or on a cluster there are hardly any."""
    return session_bytes() + KeptColumns.bytes_in_all()
