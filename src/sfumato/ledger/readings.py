"""Which version of a dataset's table its steward has confirmed: the one that every worker answers of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, RowMapping, insert, select, update

from sfumato.ledger import reading
from sfumato.ledger.enrolment import journalled_version
from sfumato.ledger.schema import service_reading
from sfumato.ledger.store import Store

_reading = service_reading


@dataclass(frozen=True)
class Reading:
    """A confirmed version, as the journal calls it, and how often the steward has had the table read."""

    version: str
    number: int


class Readings:
    """The confirmed version of each dataset of a server, over a store that is prepared."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def version_of(self, dataset: str, fingerprint: str) -> str:
        """What the dataset's journal calls a version of its data; it tells nothing without the ledger's secret."""
        with self._store.reading() as connection:
            return journalled_version(reading.secret(connection, dataset), fingerprint)

    def confirmed(self, dataset: str) -> Reading | None:
        """What the steward confirmed last; None where nobody has read the table yet."""
        with self._store.reading() as connection:
            return _as_reading(_row(connection, dataset))

    def first(self, dataset: str, version: str) -> Reading:
        """Confirm the version that is read first; where there is one already, that stands."""
        with self._store.founding() as connection:
            found = _as_reading(_row(connection, dataset))
            if found is not None:
                return found
            row = {"dataset": dataset, "number": 1, "version": version, "read": _now()}
            connection.execute(insert(_reading).values(row))
        return Reading(version, 1)

    def confirm(self, dataset: str, version: str) -> Reading:
        """Confirm a version in the place of the last one."""
        self.first(dataset, version)
        with self._store.founding() as connection:
            found = _as_reading(_row(connection, dataset))
            number = 1 if found is None else found.number + 1
            values = {"number": number, "version": version, "read": _now()}
            connection.execute(update(_reading).where(_reading.c.dataset == dataset).values(values))
        return Reading(version, number)


def _row(connection: Connection, dataset: str) -> RowMapping | None:
    return connection.execute(select(_reading).where(_reading.c.dataset == dataset)).mappings().one_or_none()


def _as_reading(row: RowMapping | None) -> Reading | None:
    return None if row is None else Reading(row["version"], row["number"])


def _now() -> str:
    return datetime.now(UTC).isoformat()
