"""Reading the books without locking them: accounts, the journal, and whether it still hangs together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, RowMapping, select

from sfumato.errors import LedgerError
from sfumato.ledger import schema
from sfumato.ledger.account import Account
from sfumato.ledger.amounts import charge_from, loss_from, spent_units
from sfumato.ledger.entry import Entry, Event, Kind, entry_hash, genesis
from sfumato.ledger.question import Question
from sfumato.privacy.accountant import NOTHING, Charge

_PAGE = 1000


def dataset_account(connection: Connection, name: str) -> Account | None:
    """The dataset's limit and what was spent of it; None where the ledger does not hold it."""
    row = _dataset_row(connection, name)
    return None if row is None else Account(loss_from(row["limit_loss"]), _spent(row))


def datasets(connection: Connection) -> list[str]:
    """The names of all datasets that the ledger holds, in order."""
    return list(connection.execute(select(schema.dataset.c.name).order_by(schema.dataset.c.name)).scalars())


def analyst_accounts(connection: Connection, name: str) -> dict[str, Account]:
    """The account of each analyst who has spent or has a cap, by name."""
    table = schema.analyst
    query = select(table).where(table.c.dataset == name).order_by(table.c.name)
    return {row["name"]: _analyst_account(row) for row in connection.execute(query).mappings()}


def analyst_account(connection: Connection, name: str, analyst: str) -> Account:
    """The account of one analyst; empty and without a cap where there is none yet."""
    table = schema.analyst
    query = select(table).where(table.c.dataset == name, table.c.name == analyst)
    row = connection.execute(query).mappings().one_or_none()
    return Account(None, NOTHING) if row is None else _analyst_account(row)


def secret(connection: Connection, name: str) -> str:
    """What hides the fingerprints of a dataset in its journal.

    Raises:
        LedgerError: the ledger does not hold the dataset.
    """
    row = _dataset_row(connection, name)
    if row is None:
        raise LedgerError(f"the ledger holds no dataset {name!r}", culprit=name)
    found: str = row["secret"]
    return found


def entries(connection: Connection, name: str, *, after: int) -> list[Entry]:
    """The next page of the journal: up to a thousand entries with numbers above ``after``, in order."""
    return [_entry(row) for row in _stored(connection, name, after=after)]


def verify(connection: Connection, name: str) -> str:
    """Check the whole journal; returns the hash of its last entry.

    Raises:
        LedgerError: names the first entry that is missing, was changed, or does not follow the one before;
            or says which account does not agree with the journal.
    """
    row = _dataset_row(connection, name)
    if row is None:
        raise LedgerError(f"the ledger holds no dataset {name!r}", culprit=name)
    head = genesis(name, row["limit_loss"], row["opened"])
    count, spent = 0, NOTHING
    by_analyst = dict.fromkeys(analyst_accounts(connection, name), NOTHING)
    for entry in _checked(connection, name, head):
        count, head = entry.number, entry.hash
        if entry.charge is not None and entry.kind is Kind.RELEASE:
            spent += entry.charge
        if entry.charge is not None and entry.analyst is not None and entry.kind in (Kind.RELEASE, Kind.REPEAT):
            by_analyst[entry.analyst] = by_analyst.get(entry.analyst, NOTHING) + entry.charge
    if (count, head) != (row["entries"], row["head"]):
        raise LedgerError(f"the journal of {name!r} is broken after entry {count}: entries are missing", culprit=count)
    units = (row["spent_units"], row["spent_delta_units"])
    if spent != _spent(row) or units != spent_units(loss_from(row["limit_loss"]), spent):
        raise LedgerError(f"the account of {name!r} is not the sum of its journal", culprit=name)
    for analyst, account in analyst_accounts(connection, name).items():
        if account.spent != by_analyst.pop(analyst):
            raise LedgerError(f"the account of analyst {analyst!r} is not the sum of the journal", culprit=analyst)
    if by_analyst:
        raise LedgerError(f"the journal names analysts without an account: {sorted(by_analyst)}", culprit=by_analyst)
    return head


def _checked(connection: Connection, name: str, head: str) -> Iterator[Entry]:
    number = 0
    while page := _stored(connection, name, after=number):
        for row in page:
            number += 1
            entry = _readable(row)
            if (
                entry is None
                or entry.number != number
                or entry.previous != head
                or entry.hash != entry_hash(head, number, entry.time, entry.event)
                or (row["key"], row["family"], row["method"]) != (entry.event.key, entry.family, entry.method)
            ):
                raise LedgerError(f"the journal of {name!r} is broken at entry {number}", culprit=number)
            head = entry.hash
            yield entry


def _stored(connection: Connection, name: str, *, after: int) -> list[RowMapping]:
    table = schema.entry
    query = select(table).where(table.c.dataset == name, table.c.number > after)
    return list(connection.execute(query.order_by(table.c.number).limit(_PAGE)).mappings())


def _readable(row: RowMapping) -> Entry | None:
    try:
        return _entry(row)
    except (ValueError, TypeError, ZeroDivisionError):
        return None


def _entry(row: RowMapping) -> Entry:
    charge = None if row["rho"] is None else charge_from(row["epsilon"], row["rho"], row["delta"])
    event = Event(
        Kind(row["kind"]),
        Question.from_json(row["question"]),
        charge,
        row["analyst"],
        row["statement"],
        json.loads(row["details"]),
    )
    return Entry(row["number"], row["time"], event, row["previous"], row["hash"])


def _spent(row: RowMapping) -> Charge:
    return charge_from(row["epsilon"], row["rho"], row["delta"])


def _analyst_account(row: RowMapping) -> Account:
    return Account(None if row["cap_loss"] is None else loss_from(row["cap_loss"]), _spent(row))


def _dataset_row(connection: Connection, name: str) -> Any:  # noqa: ANN401  # a RowMapping or None
    query = select(schema.dataset).where(schema.dataset.c.name == name)
    return connection.execute(query).mappings().one_or_none()
