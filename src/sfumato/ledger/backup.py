"""Copies of a ledger in SQLite, whole while it is in use, and their way back."""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from sfumato.errors import InputError, LedgerError
from sfumato.ledger import reading
from sfumato.ledger.store import Store


def back_up(url: str, copy: Path) -> dict[str, str]:
    """Copy a ledger by SQLite's own means, which take in what its write-ahead log holds.

    Returns:
        The last hash of each dataset in the copy.

    Raises:
        InputError: the copy exists already, or the ledger is not in SQLite.
        LedgerError: there is no ledger, or it is not whole.
    """
    with closing(Store(url)) as store:
        if store.file is None:
            raise InputError(
                "a ledger in PostgreSQL is copied by PostgreSQL's own means, such as pg_dump",
                culprit=url,
            )
        store.prepare(create=False)
        _refuse_existing(copy)
        _copy(store.file, copy)
    try:
        return heads(copy)
    except BaseException:
        copy.unlink(missing_ok=True)
        raise


def restore(copy: Path, url: str, *, kept: Sequence[str]) -> dict[str, str]:
    """Put a copy in the place of a ledger that is gone.

    Args:
        copy: what :func:`back_up` made.
        url: where the ledger was; nothing may lie there.
        kept: hashes that the copy's journals must go through, each one of them.

    Returns:
        The last hash of each dataset.

    Raises:
        InputError: there is a file at the address, or it is not in SQLite.
        LedgerError: the copy is not a whole ledger, or lacks a hash that was kept.
    """
    if not copy.is_file():
        raise InputError(f"there is no copy {copy}", culprit=copy)
    with closing(Store(url)) as store:
        if store.file is None:
            raise InputError("a ledger in PostgreSQL is restored by the means of PostgreSQL", culprit=url)
        for suffix in ("", "-wal", "-journal"):
            _refuse_existing(store.file.with_name(store.file.name + suffix))
        found = heads(copy, kept=kept)
        _copy(copy, store.file)
    return found


def heads(file: Path, *, kept: Sequence[str] = ()) -> dict[str, str]:
    """Verify every journal of a file, and that each hash that was kept is in one of them.

    Raises:
        LedgerError: one is broken, or no journal goes through a hash.
    """
    missing = set(kept)
    with closing(Store(f"sqlite:///{file}")) as store:
        store.prepare(create=False)
        with store.reading() as connection:
            found = {name: reading.verify(connection, name, kept=None) for name in reading.datasets(connection)}
            for name in found:
                missing -= reading.hashes(connection, name, missing)
    if missing:
        raise LedgerError(
            f"no journal in {file} goes through the hash {min(missing)}: the copy is older, or of another ledger",
            culprit=file,
        )
    return found


def _refuse_existing(file: Path) -> None:
    if file.exists():
        raise InputError(f"{file} exists; move it away, or name another file", culprit=file)


def _copy(source: Path, target: Path) -> None:
    """Copy page by page into a file beside the target, make it durable, and give it the name in one step."""
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=rw", uri=True)) as origin,
            closing(sqlite3.connect(draft)) as made,
        ):
            origin.backup(made)
        with draft.open("rb") as written:
            os.fsync(written.fileno())
        os.link(draft, target)  # unlike a rename, this refuses to replace a file that came meanwhile
    except FileExistsError:
        raise InputError(f"{target} exists; move it away, or name another file", culprit=target) from None
    except (sqlite3.Error, OSError) as error:
        raise LedgerError(
            f"{source} cannot be copied to {target}; check the disk and the folder", culprit=target
        ) from error
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()
