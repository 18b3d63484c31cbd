"""Databases of registered tables: their passwords, which are in a file, and the check for the ledger's own database.

What is registered is kept in the ledger, so that an address holds no password.  The operator writes passwords into a
file of lines ``HOST:PORT:DATABASE:USER:PASSWORD``, as PostgreSQL's clients read them, which is read for each opening.
"""

from __future__ import annotations

import re
import secrets
import stat
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from urllib.parse import quote

from sfumato.engine.table_files import shown
from sfumato.errors import EngineError, InputError
from sfumato.ledger.dbapi import Address, Postgresql

_POSTGRES = ("postgresql", "postgres")
_PORTS = {**dict.fromkeys(_POSTGRES, "5432"), "mysql": "3306", "mariadb": "3306"}
_ANY = "*"
_PARTS = 5
_SPLIT = re.compile(r"(?<!\\):")  # a colon after a backslash stands for itself
_SECRET = ("password", "passwd", "secret")
_OF_TABLES = ("table",)  # which no database knows


def has_password(source: str) -> bool:
    """Return whether the address of a table holds a password, before its host or among its options.

    >>> has_password("postgresql://ann@db.example/census?table=people"), has_password("people.csv")
    (False, False)
    >>> has_password("mysql://ann:pw@db.example/c?table=t"), has_password("postgresql://db/c?sslpassword=pw")
    (True, True)
    """
    place = Address.parse(source.removeprefix("spark:")) if "://" in source else None
    if place is None:
        return False
    return place.password is not None or any(word in name.lower() for name, _ in place.query for word in _SECRET)


def with_password(source: str, passwords: Path) -> str:
    """Return the address of a table with its password from a file; unchanged if the file has none.

    Raises:
        InputError: the file cannot be read, or a line of it is no such line.
    """
    place = Address.parse(source) if "://" in source else None
    if place is None or place.user is None:
        return source
    port = place.port or _PORTS.get(place.backend, "")
    asked = (place.host or "localhost", port, place.database or "", place.user)
    for *named, password in read_passwords(passwords):
        if all(pattern in (_ANY, part) for pattern, part in zip(named, asked, strict=True)):
            login, _, rest = source.partition("@")
            return f"{login}:{quote(password, safe='')}@{rest}"
    return source


def read_passwords(file: Path) -> list[list[str]]:
    """Return the lines of a file of passwords, each a host, a port, a database, a user and a password.

    Raises:
        InputError: it cannot be read, others than its owner can read it, or a line is no such line.
    """
    try:
        if stat.S_IMODE(file.stat().st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            raise InputError(f"others than its owner may open {file}: 'chmod 600 {file}'", culprit=file)
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise InputError(f"cannot read the passwords in {file}", culprit=file) from None
    found = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [re.sub(r"\\(.)", r"\1", part) for part in _SPLIT.split(line)]
        if len(parts) != _PARTS or parts[0] in ("", _ANY):
            raise InputError(
                f"line {number} of {file} is not HOST:PORT:DATABASE:USER:PASSWORD of a named host", culprit=file
            )
        found.append(parts)
    return found


def is_own_database(source: str, ledger: str) -> bool:
    """Return whether an address leads to the PostgreSQL database of the ledger, whichever names it uses.

    A lock that is taken through one address is seen through the other if, and only if, both lead to one database.

    Raises:
        EngineError: the source does not answer.
        InputError: its address sets what is no setting of a connection.
    """
    ours, theirs = Address.parse(ledger), Address.parse(source)
    if ours is None or theirs is None or ours.backend != "postgresql" or theirs.backend not in _POSTGRES:
        return False
    query = tuple((name, value) for name, value in theirs.query if name not in _OF_TABLES)
    database = Postgresql(Address(theirs.backend, *_login(theirs), theirs.database, query))
    key = {"key": secrets.randbits(62)}
    with ExitStack() as opened:
        try:
            other, own = (opened.enter_context(closing(each.connect())) for each in (database, Postgresql(ours)))
            own.execute("BEGIN")
            own.execute("SELECT pg_advisory_xact_lock(%(key)s)", key)
        except database.driver.Error as error:
            raise EngineError(f"{shown(source)} or the ledger does not answer", culprit=shown(source)) from error
        with suppress(database.driver.Error):  # what has no such lock is another kind of database
            other.execute("BEGIN")
            return not other.execute("SELECT pg_try_advisory_xact_lock(%(key)s)", key).fetchone()[0]
    return False


def _login(place: Address) -> tuple[str | None, str | None, str | None, str | None]:
    return place.user, place.password, place.host, place.port
