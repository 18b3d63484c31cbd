"""What messages call a table: addresses hold passwords, and neither those nor options belong on a screen."""

from __future__ import annotations

from urllib.parse import parse_qs


def shown(source: object) -> str:
    """The address of a table without user, password and options; a path as it is.

    Where an odd password leaves open where the host begins, only the scheme is shown.

    >>> shown("postgresql://ann:secret@db.example/census?table=people&sslpassword=secret")
    'postgresql://db.example/census?table=people'
    >>> shown("spark:people.parquet"), shown("mysql://ann:what?@db/census?table=people")
    ('spark:people.parquet', 'mysql://...')
    """
    scheme, separator, rest = str(source).partition("://")
    if not separator:
        return str(source)
    login, _, place = rest.rpartition("@")
    if "?" in login:
        return f"{scheme}://..."
    place, _, options = place.partition("?")
    tables = parse_qs(options).get("table", ())
    return f"{scheme}://{place}" + "".join(f"?table={table}" for table in tables[:1])
