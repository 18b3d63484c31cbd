"""Files under a table: whether they were written since, whether two sources are one, and names in SQL."""

from __future__ import annotations

import glob
import stat
from collections.abc import Sequence
from pathlib import Path

from sfumato.engine.address import shown
from sfumato.errors import TableError

Stamps = tuple[tuple[str, int, int, int, int, int], ...]


def stamps(source: str) -> Stamps:
    """Name, size, times and number of every file of a source; nothing where it is not made of files on this machine.

    Equal stamps mean that no file was written, replaced, added or removed.
    """
    if "://" in source or source.startswith("spark:"):
        return ()
    one = _stamp(source)
    if one is not None and stat.S_ISREG(one[0]):  # the most usual: a server looks before every question
        return (one[1],)
    pattern = source if one is None else f"{literal_path(Path(source))}/*.parquet"
    found = map(_stamp, glob.iglob(pattern, recursive=True))  # noqa: PTH207 - Path.glob takes no absolute pattern
    return tuple(sorted(each[1] for each in found if each is not None))


def same_place(one: str, other: str) -> bool:
    """Whether two sources share a file, by whatever name, or are one table at one address.

    Addresses are compared by their text without user, password and options: aliases of a host are not seen through.
    """
    files = [{stamp[-2:] for stamp in stamps(each.removeprefix("spark:"))} for each in (one, other)]
    return bool(files[0] & files[1]) or (not any(files) and shown(one) == shown(other))


def refuse_repeats(names: Sequence[str], title: str) -> None:
    """Engines tell columns apart without regard to case, so names that differ in case only are one name.

    Raises:
        TableError: a name stands there twice.
    """
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            raise TableError(f"{title} has two columns called {name!r}", culprit=name)
        seen.add(name.casefold())


def _stamp(name: str) -> tuple[int, tuple[str, int, int, int, int, int]] | None:
    """Mode and stamp of what lies there; None where nothing does, or it has just gone."""
    try:
        found = Path(name).stat()
    except (OSError, ValueError):
        return None
    return found.st_mode, (name, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_dev, found.st_ino)


def literal_path(path: Path) -> str:
    """A path in which no character is a wildcard."""
    return glob.escape(str(path))


def quoted(text: str) -> str:
    """A DuckDB text literal."""
    return "'" + text.replace("'", "''") + "'"
