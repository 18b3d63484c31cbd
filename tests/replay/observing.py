"""Everything that can be observed of a run, in texts that two runs can be compared by."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

_NAMED = re.compile(
    r"(?P<digest>\b[0-9a-f]{64}\b)"  # keyed by a secret of the ledger, or of other entries
    r"|(?P<identifier>\b(?:[0-9a-f]{32}|[0-9a-f]{24}|[0-9a-f]{12})\b)"
    r"|(?P<table>\b(?:encoded_|registered_|sfumato_table|sfumato_view)[0-9]+)"
    r"|(?P<address>\b0x[0-9a-f]{8,16}\b)"
    r"|(?P<time>\b20[0-9]{2}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.][0-9]+)?(?:[+]00:00|Z)?)"
)


_BESIDE = ("-wal", "-shm", "-journal")  # what SQLite keeps next to a database
_TABLES = "tables/"  # the protected files; what a server keeps of them is in a folder of snapshots
# of a server's tables stewards alone see these: whether the source changed
_STEWARDS = ("service_action", "service_action_head", "service_reading", "service_snapshot")


class Names:
    """Gives what differs between any two runs the name of its place: the first digest, the second, and so on.

    Equal ones get equal names, so that it is seen where a digest is that of before in one run and a new one in the
    other.  All times are called alike, and so are
    addresses of objects.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._known: dict[str, dict[str, str]] = {}

    def of(self, text: str) -> str:
        """The text with such names."""
        return _NAMED.sub(self._name, text.replace(self._folder, "<folder>"))

    def _name(self, found: re.Match[str]) -> str:
        kind = str(found.lastgroup)
        if kind in ("time", "address"):
            return f"<{kind}>"
        known = self._known.setdefault(kind, {})
        return known.setdefault(found[0], f"<{kind} {len(known)}>")


def files(folder: Path, names: Names) -> dict[str, str]:
    """Return the content of a folder: databases as their rows, other files as their bytes."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() or name.startswith(_TABLES) or ".snapshots/" in name or name.endswith(_BESIDE):
            continue
        if path.read_bytes()[:6] == b"SQLite":
            found |= {f"{name}: {table}": names.of(rows) for table, rows in _rows(path).items()}
        else:
            found[name] = names.of(path.read_bytes().decode("latin-1"))
    return found


def _rows(path: Path) -> dict[str, str]:
    with closing(sqlite3.connect(path)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        query = 'SELECT * FROM "{}"'
        return {
            table: "\n".join(map(_line, database.execute(query.format(table))))
            for table in sorted(tables)
            if table not in _STEWARDS
        }


def _line(row: tuple[Any, ...]) -> str:
    return " | ".join(repr(cell) for cell in row)
