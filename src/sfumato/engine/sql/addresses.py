"""Addresses of databases: their parts in a canonical form, and their SQLAlchemy engines."""

from __future__ import annotations

from typing import Any

_DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql"}
_ELSEWHERE = frozenset({"host", "hostaddr", "port", "service", "servicefile", "unix_socket", "read_default_file"})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_PATIENCE = 10  # seconds for a server to answer


def database_engine(place: Any) -> Any:  # noqa: ANN401 - of SQLAlchemy, imported lazily
    """Return SQLAlchemy's engine of a database."""
    import sqlalchemy as sa

    patience = {} if "connect_timeout" in place.query else {"connect_timeout": _PATIENCE}
    return sa.create_engine(
        place.set(drivername=_DRIVERS[place.drivername]), poolclass=sa.NullPool, connect_args=patience
    )


def server_of(url: str) -> str | None:
    """Return the host of an address, with the port if there is one; None if the address does not show it.

    >>> server_of("postgresql://ann:pw@db.example:5433/census?table=people")
    'db.example:5433'
    >>> server_of("postgresql://db.example/census?table=people&host=other.example")
    """
    import sqlalchemy as sa

    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        return None
    if parsed.host is None or "," in parsed.host or _ELSEWHERE & {name.lower() for name in parsed.query}:
        return None
    return parsed.host if parsed.port is None else f"{parsed.host}:{parsed.port}"


def place_of(url: str) -> tuple[str, ...] | None:
    """Return server, database and table of an address in a canonical form; None if the address does not show them.

    Omitted parts get the drivers' defaults: this machine, the usual port, the usual schema.

    >>> place_of("postgres://ann@DB.example/census?table=people")
    ('postgresql', 'db.example', '5432', 'census', 'public', 'people')
    >>> place_of("postgresql://bob:pw@db.example:5432/census?table=public.people")
    ('postgresql', 'db.example', '5432', 'census', 'public', 'people')
    >>> place_of("mariadb://db/test?table=census.people"), place_of("mysql://db/census?table=people&ssl=1")
    (('mysql', 'db', '3306', 'census', 'people'), ('mysql', 'db', '3306', 'census', 'people'))
    """
    import sqlalchemy as sa

    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        return None
    options = {name.lower(): value for name, value in parsed.query.items()}
    elsewhere = _ELSEWHERE - {"host", "hostaddr", "port"}
    if elsewhere & set(options) or not all(isinstance(value, str) for value in options.values()):
        return None
    kind = "postgresql" if parsed.drivername.startswith("postgres") else "mysql"
    host = str(options.get("hostaddr") or options.get("host") or parsed.host or "localhost").lower().rstrip(".")
    port = str(options.get("port") or parsed.port or (5432 if kind == "postgresql" else 3306))
    server = (kind, "localhost" if host in _LOOPBACK else host, port)
    database = str(options.get("dbname") or parsed.database or parsed.username or "")
    schema, _, table = str(options.get("table", "")).rpartition(".")
    if kind == "mysql":  # there a schema is a database
        return (*server, schema or database, table)
    return (*server, database, schema or "public", table)
