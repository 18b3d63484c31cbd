"""What a server lets in: tables of the places that its operator named, and so many requests of a key.

A steward registers tables over the network and need not be whoever runs the server, whose files and neighbours in the
network are not all for release.
"""

from __future__ import annotations

import glob
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sfumato.app.http.problems import RefusalError, unreadable
from sfumato.app.http.sources import has_password, is_own_database, with_password
from sfumato.engine.sql.addresses import server_of
from sfumato.engine.table_files import shown
from sfumato.errors import EngineError

CATALOGUE = "spark"
_SPARK = "spark:"
_ODD = frozenset(":*?[]{}\\")  # by which Spark finds files that the path does not show


@dataclass(frozen=True)
class TablePlaces:
    """Where tables may lie that stewards register: in folders, on hosts of databases; anywhere where none is named.

    Attributes:
        named: folders and hosts.
        passwords: the file with passwords of databases, see :mod:`.sources`; None for none.
        ledger: the address of the ledger, whose own database is never served.

    A host is named as in addresses, with its port where that is not the usual one; ``spark`` stands for the tables of
    Spark's catalogue.

    >>> TablePlaces(("/srv/tables", "db.example")).admits("postgresql://db.example/census?table=people")
    True
    >>> TablePlaces(("/srv/tables",)).admits("spark:/etc/passwd")
    False
    """

    named: tuple[str, ...] = ()
    passwords: str | None = None
    ledger: str | None = None

    def address(self, source: str) -> str:
        """Return the address by which a table is opened, with the password that the operator keeps for it.

        Args:
            source: the address as it is registered.

        Raises:
            RefusalError: the table lies elsewhere, or in the ledger's own database, which does not answer, or the
                address holds a password.
        """
        if not self.admits(source):
            raise RefusalError(
                "place-refused",
                "Tables of that place are not served",
                403,
                f"the server does not serve {shown(source)}: whoever runs it names folders and hosts by --tables",
            )
        if has_password(source):
            raise RefusalError(
                "password-in-address",
                "An address of a table holds no password",
                422,
                "what is registered is kept in the ledger: leave the password out, and have the operator write it into "
                "the file of 'serve --source-passwords'",
            )
        address = source if self.passwords is None else with_password(source, Path(self.passwords))
        try:
            own = self.ledger is not None and is_own_database(address, self.ledger)
        except EngineError as error:
            raise unreadable(error) from error
        if own:
            raise RefusalError(
                "place-refused",
                "Tables of that place are not served",
                403,
                f"{shown(source)} is the database of the server's own ledger, whose tables are never released",
            )
        return address

    def admits(self, source: str) -> bool:
        """Whether a table of this address may be registered."""
        if not self.named:
            return True
        if "://" in source:
            return server_of(source) in self.named
        path = source.removeprefix(_SPARK)
        if path != source and _ODD & set(path):
            return False
        if path != source and "/" not in path and "." not in path:
            return CATALOGUE in self.named
        folders = [Path(each).resolve() for each in self.named]
        try:
            return all(any(file.is_relative_to(folder) for folder in folders) for file in _files(path))
        except (OSError, ValueError):  # no path, or one beyond all length
            return False


def _files(path: str) -> Sequence[Path]:
    """What a path leads to now, links followed: of a folder, all that is in it; of a pattern, what stands before its
    first sign, and all matches.
    """
    if not glob.has_magic(path):
        return (Path(path).resolve(), *(each.resolve() for each in Path(path).rglob("*")))
    if ".." in Path(path).parts:  # after a sign, it may lead anywhere later
        return (Path("/"),)
    plain = Path(path).parts
    first = next(place for place, part in enumerate(plain) if glob.has_magic(part))
    matching = glob.iglob(path, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
    return (Path(*plain[:first]).resolve(), *(Path(each).resolve() for each in matching))
