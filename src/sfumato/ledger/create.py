"""Opening the books of a new dataset, and what never changes about them afterwards."""

from __future__ import annotations

import hmac
import secrets
from functools import lru_cache

from sqlalchemy import Connection, insert, select

from sfumato.domain import Unit
from sfumato.errors import LimitError
from sfumato.ledger import schema
from sfumato.ledger.entry import genesis
from sfumato.ledger.loss_codec import limit_units, loss_from, loss_text, refuse_unit, unit_from, unit_text
from sfumato.ledger.transaction import now, spent_columns
from sfumato.privacy.accountant import NOTHING, Limit


def enrol(connection: Connection, name: str, limit: Limit, unit: Unit | None) -> None:
    """Open the books of a new dataset; one that is there already is left as it is."""
    present = select(schema.dataset.c.name).where(schema.dataset.c.name == name)
    if connection.execute(present).one_or_none() is not None:
        return
    opened, text = now(), loss_text(limit)
    units, delta_units = limit_units(limit)
    row = {
        "name": name,
        "opened": opened,
        "secret": secrets.token_hex(32),
        "limit_loss": text,
        "limit_units": units,
        "limit_delta_units": delta_units,
        **spent_columns(limit, NOTHING),
        "entries": 0,
        "head": genesis(name, text, opened, unit),
        "unit": None if unit is None else unit_text(unit),
    }
    connection.execute(insert(schema.dataset).values(row))


def found(connection: Connection, name: str, limit: Limit, unit: Unit | None) -> Limit:
    """Open the books of a dataset, or find that they are open under this limit and unit; returns the limit.

    Raises:
        LimitError: they have another limit.
        UnitError: they add up losses of another unit.
    """
    enrol(connection, name, limit, unit)
    row = connection.execute(select(schema.dataset).where(schema.dataset.c.name == name)).mappings().one()
    refuse_other_terms(name, loss_from(row["limit_loss"]), row["unit"], limit=limit, unit=unit)
    return limit


def refuse_other_terms(
    name: str, kept: Limit, kept_unit: str | None, *, limit: Limit | None, unit: Unit | None
) -> None:
    """Refuse another limit or unit than those of the books.

    Raises:
        LimitError, UnitError: which it is.
    """
    if limit is not None and limit != kept:
        raise LimitError(
            f"the ledger of {name!r} has the limit {kept}, not {limit}; a limit never changes", culprit=limit
        )
    refuse_unit(None if kept_unit is None else unit_from(kept_unit), unit)


@lru_cache(maxsize=256)  # one a dataset, and every question asks
def journalled_version(secret: str, fingerprint: str) -> str:
    """What the journal calls a version of the data: the same for the same, but nobody else can recompute it.

    A bare fingerprint would confirm a guess of the whole table to whoever sees a hash of the journal.

    Args:
        secret: of the dataset, drawn when its books were opened.
        fingerprint: of the data.
    """
    return hmac.digest(bytes.fromhex(secret), fingerprint.encode(), "sha256").hex()
