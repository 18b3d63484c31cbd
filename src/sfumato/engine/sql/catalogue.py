"""The tables of a database, with the keys that its catalogue declares."""

from __future__ import annotations

from typing import Any

from sfumato.engine.description.schema_draft import DeclaredKeys
from sfumato.engine.sql.addresses import database_engine
from sfumato.engine.sql.sql_adapter import SqlAdapter
from sfumato.engine.sql.sql_session import DatabaseSession
from sfumato.engine.table_files import shown
from sfumato.errors import InputError, TableError


def declared_keys(url: str) -> dict[str, DeclaredKeys]:
    """The tables of a database by name, with keys and references of one column each; reads no row.

    Raises:
        InputError: no address of a database, or its driver is not installed.
        EngineError: it does not answer, or gives no permission.
        TableError: it has no tables.
    """
    import sqlalchemy as sa

    from sfumato.engine.open import require_engine

    scheme, _, rest = url.partition("://")
    if scheme not in SqlAdapter.schemes:
        raise InputError(
            f"a schema is drafted from files, or from a database of {', '.join(SqlAdapter.schemes)}, not {scheme!r}",
            culprit=shown(url),
        )
    require_engine(url)
    try:
        place = sa.make_url(f"{'postgresql' if scheme == 'postgres' else scheme}://{rest}")
    except (sa.exc.ArgumentError, ValueError):
        raise InputError("a database URL looks like postgresql://user@host/database", culprit=shown(url)) from None
    title = f"the tables of {shown(url).partition('?')[0]}"
    session = DatabaseSession(database_engine(place), title)
    try:
        found = session.inspected(_declared)
    finally:
        session.close()
    if not found:
        raise TableError(f"{title}: there are none", culprit=shown(url))
    return found


def _declared(inspector: Any) -> dict[str, DeclaredKeys]:  # noqa: ANN401 - of SQLAlchemy, imported lazily
    found = {}
    for table in sorted(inspector.get_table_names()):
        key = inspector.get_pk_constraint(table).get("constrained_columns") or []
        links = [
            (each["constrained_columns"][0], each["referred_table"])
            for each in inspector.get_foreign_keys(table)
            if len(each["constrained_columns"]) == 1
        ]
        found[table] = DeclaredKeys(key[0] if len(key) == 1 else None, tuple(links))
    return found
