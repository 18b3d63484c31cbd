"""What databases say when they fail, in one sentence of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError, TimeoutError  # noqa: A004

from sfumato.errors import LedgerError

_SQLITE = {
    "SQLITE_BUSY": "is locked by another program; close it or try again later",
    "SQLITE_LOCKED": "is locked by another program; close it or try again later",
    "SQLITE_READONLY": "is read-only; make the file and its folder writable",
    "SQLITE_PERM": "may not be opened; check the permissions of the file and its folder",
    "SQLITE_CANTOPEN": "cannot be opened; check that its folder exists and is writable",
    "SQLITE_NOTADB": "is not a ledger but some other file; name another one",
    "SQLITE_CORRUPT": "is corrupted; restore it from a copy",
    "SQLITE_FULL": "cannot grow because the disk is full; free some space",
    "SQLITE_IOERR": "cannot be read or written; check the disk",
}
_LOST = "lost its connection; ask again, which never pays twice"
_POSTGRES = {  # by SQLSTATE, or its class of two letters
    "25P03": _LOST,  # the server ended a transaction that was silent for too long
    "55P03": "is locked by another program; close it or try again later",
    "25006": "is read-only; connect to a server that takes writes",
    "42501": "may not be written by this database user; grant the right to create and use tables",
    "53": "is on a server that is out of space, memory or connections; try again later",
}
_UNREACHABLE = (
    "cannot be reached; check that the server runs and has connections left, and database, user and password of the "
    "address"
)


@contextmanager
def spoken_plainly(place: str) -> Iterator[None]:
    """Turn what the driver raises into a :class:`LedgerError` about the ledger at ``place``.

    The database's own words are left out: they may quote what was being written.
    """
    try:
        yield
    except SQLAlchemyError as error:
        raise LedgerError(f"the ledger {place} {_reason(error)}", culprit=place) from error


def failed_for_all(error: Exception) -> bool:
    """Whether the database failed whoever writes to it, and did not refuse one of several entries.

    Trying each alone would be in vain then, and take as long again for every one: the patience for a lock, say.
    """
    return isinstance(error, LedgerError) and not isinstance(error.__cause__, IntegrityError | DataError)


def _reason(error: SQLAlchemyError) -> str:
    if isinstance(error, TimeoutError):
        return "has all its connections in use; try again later"
    if not isinstance(error, DBAPIError):
        return "cannot be used by this installation; check the address and that its driver is installed"
    if error.connection_invalidated:
        return _LOST
    origin = error.orig
    name = str(getattr(origin, "sqlite_errorname", ""))
    for code, reason in _SQLITE.items():
        if name.startswith(code):
            return reason
    state = str(getattr(origin, "sqlstate", None) or "")
    for code, reason in _POSTGRES.items():
        if state.startswith(code):
            return reason
    if isinstance(error, IntegrityError):
        return "refused an entry that would break its rules; verify the journal"
    if not name and not state:
        return _UNREACHABLE
    return f"failed ({name or state}); nothing was written"
