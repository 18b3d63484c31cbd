"""The adapter of databases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sfumato.domain import CsvFormat
from sfumato.domain.table_schema import SchemaTable
from sfumato.engine.adapter import EngineAdapter, ServedPlaces
from sfumato.engine.port import ProtectedTable
from sfumato.engine.table_files import redacted_source
from sfumato.errors import InputError

if TYPE_CHECKING:
    from sfumato.engine.adapter import JoinEngine


class SqlAdapter(EngineAdapter):
    """PostgreSQL, MySQL and MariaDB, by URLs such as ``postgresql://user@host/database?table=people``."""

    schemes = ("postgresql", "postgres", "mysql", "mariadb")
    extras = {"postgres": ("psycopg",), "mysql": ("pymysql",)}  # noqa: RUF012 - declared as a ClassVar by the contract
    folder = "a database URL"
    joinable_sources = "from one database"

    def extra_for(self, source: object) -> str:
        """Return the extra with the driver of the database."""
        return "postgres" if str(source).startswith("postgres") else "mysql"

    def open(self, source: object, csv: CsvFormat | None, *, empty: bool) -> ProtectedTable:
        """See :class:`EngineAdapter`."""
        from sfumato.engine.sql.sql_table import SqlTable

        del csv
        scheme, _, rest = str(source).partition(":")
        if not rest.startswith("//"):  # a path would be shown in full, with the password
            raise InputError(f"a database URL begins with {scheme}://", culprit=scheme)
        return SqlTable(f"{'postgresql' if scheme == 'postgres' else scheme}:{rest}", empty=empty)

    def place(self, table: SchemaTable, source: str) -> str:
        """Return the URL with the name of the table."""
        url, mark, options = source.partition("?")
        if self._table_options(source):
            raise InputError(
                "the schema names the tables; leave ?table= out of the address", culprit=redacted_source(source)
            )
        return f"{url}?{options}{'&' if mark and options else ''}table={table.name}"

    def join(self, tables: Mapping[str, ProtectedTable]) -> JoinEngine | None:
        """Join tables of one database."""
        from sfumato.engine.sql.sql_join import SqlJoin
        from sfumato.engine.sql.sql_table import SqlTable

        own = {name: table for name, table in tables.items() if isinstance(table, SqlTable)}
        return SqlJoin(own) if len(own) == len(tables) and len({each.address for each in own.values()}) == 1 else None

    def location(self, source: str) -> object:
        """See :func:`sfumato.engine.sql.addresses.place_of`."""
        from sfumato.engine.sql.addresses import place_of

        return place_of(source)

    def is_several(self, source: str) -> bool:
        """Return whether the URL names no table."""
        return "table=" not in source.partition("?")[2]

    def allowed(self, source: str, places: ServedPlaces) -> bool:
        """Return whether the operator named the host, with its port unless it is the usual one."""
        from sfumato.engine.sql.addresses import server_of

        server = server_of(source)
        return server is not None and places.names(server)

    @staticmethod
    def _table_options(source: str) -> list[str]:
        return [option for option in source.partition("?")[2].split("&") if option.startswith("table=")]
