"""Opening the books of a new dataset, and what never changes about them afterwards."""

from __future__ import annotations

import hmac
import secrets
from functools import lru_cache

from sqlalchemy import Connection, insert, select

from sfumato.domain import Unit
from sfumato.ledger import schema
from sfumato.ledger.amounts import limit_units, loss_text, unit_text
from sfumato.ledger.books import now, spent_columns
from sfumato.ledger.entry import genesis
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


@lru_cache(maxsize=256)  # one a dataset, and every question asks
def journalled_version(secret: str, fingerprint: str) -> str:
    """What the journal calls a version of the data: the same for the same, but nobody else can recompute it.

    A bare fingerprint would confirm a guess of the whole table to whoever sees a hash of the journal.

    Args:
        secret: of the dataset, drawn when its books were opened.
        fingerprint: of the data.
    """
    return hmac.digest(bytes.fromhex(secret), fingerprint.encode(), "sha256").hex()
