"""Which version of a dataset's table its steward has confirmed: the one that every worker answers of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, RowMapping, insert, select, update

from sfumato.ledger import reading, schema
from sfumato.ledger.create import journalled_version
from sfumato.ledger.schema import service_reading
from sfumato.ledger.store import Store

_reading = service_reading
_AND = ":"  # between the version of the rows and that of the columns whose values may be discovered


@dataclass(frozen=True)
class Read:
    """A table as it was read: the names of its version under its domain, and its content, which no domain decides."""

    versions: tuple[str, ...]
    content: str

    def version(self, secret: str) -> str:
        """What the journal of that secret calls the version."""
        return _AND.join(journalled_version(secret, version) for version in self.versions)


@dataclass(frozen=True)
class Reading:
    """A confirmed version, as the journal calls it, and how often the steward has had the table read."""

    version: str
    number: int


class Readings:
    """The confirmed version of each dataset of a server, over a store that is prepared."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def version_of(self, dataset: str, versions: tuple[str, ...]) -> str:
        """What the dataset's journal calls a version of its data; it tells nothing without the ledger's secret."""
        with self._store.reading() as connection:
            return Read(versions, "").version(reading.secret(connection, dataset))

    def confirmed(self, dataset: str) -> Reading | None:
        """What the steward confirmed last; None where nobody has read the table yet."""
        with self._store.reading() as connection:
            return _as_reading(_row(connection, dataset))

    def first(self, dataset: str, read: Read) -> Reading:
        """Confirm what is read first; where something is confirmed already, that stands."""
        with self._store.founding() as connection:
            return _as_reading(_row(connection, dataset)) or confirm(connection, dataset, read)

    def confirm(self, dataset: str, read: Read) -> Reading:
        """Confirm what was read in the place of what was confirmed last."""
        with self._store.founding() as connection:
            return confirm(connection, dataset, read)


def confirm(connection: Connection, dataset: str, read: Read) -> Reading:
    """Confirm what was read, in a transaction that no other of its kind overlaps."""
    secret, before = reading.secret(connection, dataset), _as_reading(_row(connection, dataset))
    found = Reading(read.version(secret), 1 if before is None else before.number + 1)
    values = {
        "number": found.number,
        "version": found.version,
        "read": datetime.now(UTC).isoformat(),
        "content": journalled_version(secret, read.content),
    }
    if before is None:
        connection.execute(insert(_reading).values({"dataset": dataset, **values}))
    else:
        connection.execute(update(_reading).where(_reading.c.dataset == dataset).values(values))
    return found


def same_content(connection: Connection, read: Read) -> set[str]:
    """Datasets that hold what was read, as far as they were read.

    Where old code read a table, only its version under its domain is known.
    """
    journalled = schema.dataset.c
    joined = select(_reading.c.dataset, _reading.c.version, _reading.c.content, journalled.secret).join(
        schema.dataset, journalled.name == _reading.c.dataset
    )
    return {
        dataset
        for dataset, version, content, secret in connection.execute(joined)
        if version == read.version(secret) or content == journalled_version(secret, read.content)
    }


def _row(connection: Connection, dataset: str) -> RowMapping | None:
    return connection.execute(select(_reading).where(_reading.c.dataset == dataset)).mappings().one_or_none()


def _as_reading(row: RowMapping | None) -> Reading | None:
    return None if row is None else Reading(row["version"], row["number"])
