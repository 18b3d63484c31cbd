"""Reading a ledger without locking it: accounts, entries a page at a time, and stored answers."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from sfumato.domain import Unit
from sfumato.errors import LedgerError
from sfumato.ledger.account import Account, charge_from, kept, loss_from, unit_from
from sfumato.ledger.answer_chain import FOLLOWERS, LINK, unchanged
from sfumato.ledger.dbapi import Driver
from sfumato.ledger.entry import Entry, Event, Kind, Question, StoredAnswer
from sfumato.privacy.loss import NOTHING, Charge
from sfumato.strict_documents import canonical

PAGE = 1000

StoredRow: TypeAlias = dict[str, Any]


def dataset_account(driver: Driver, name: str) -> Account | None:
    """The dataset's limit and what was spent of it; None where the ledger does not hold it."""
    row = dataset_row(driver, name)
    if row is None:
        return None
    exact = tuple(number for number, kind, _ in _exact(driver, name) if kind == Kind.RELEASE)
    return Account(loss_from(row["limit_loss"]), spent_of(row), exact)


def datasets(driver: Driver) -> list[str]:
    """The names of all datasets that the ledger holds, in order."""
    return [name for (name,) in driver.rows("SELECT name FROM ledger_dataset ORDER BY name")]


def analyst_accounts(driver: Driver, name: str) -> dict[str, Account]:
    """The account of each analyst who has spent or has a cap, by name."""
    exact: dict[str | None, list[int]] = {}
    for number, _, analyst in _exact(driver, name):
        exact.setdefault(analyst, []).append(number)
    found = {row["name"]: account_of(row) for row in analyst_rows(driver, name)}
    return {analyst: replace(account, exact=tuple(exact.get(analyst, ()))) for analyst, account in found.items()}


def analyst_account(driver: Driver, name: str, analyst: str) -> Account:
    """The account of one analyst; empty and without a cap where there is none yet."""
    query = "SELECT * FROM ledger_analyst WHERE dataset = :dataset AND name = :analyst"
    row = driver.record(query, {"dataset": name, "analyst": analyst})
    exact = tuple(number for number, _, asked_by in _exact(driver, name) if asked_by == analyst)
    return replace(Account(None, NOTHING) if row is None else account_of(row), exact=exact)


def _exact(driver: Driver, name: str) -> list[tuple[int, str, str | None]]:
    """Return releases without differential privacy, first or repeated: number, kind and analyst, in order."""
    query = """
    SELECT number, kind, analyst FROM ledger_entry
    WHERE dataset = :dataset AND rho IS NULL AND kind IN (:release, :repeat) ORDER BY number"""
    values = {"dataset": name, "release": Kind.RELEASE.value, "repeat": Kind.REPEAT.value}
    return [(int(number), kind, analyst) for number, kind, analyst in driver.rows(query, values)]


def dataset_unit(driver: Driver, name: str) -> Unit | None:
    """Whom the charges of a dataset are stated for; None in an old ledger that nothing was released from since."""
    text = driver.value("SELECT unit FROM ledger_dataset WHERE name = :name", {"name": name})
    return None if text is None else unit_from(text)


def secret(driver: Driver, name: str) -> str:
    """What hides the fingerprints of a dataset in its journal.

    Raises:
        LedgerError: the ledger does not hold the dataset, or what hides them was changed.
    """
    row = dataset_row(driver, name)
    if row is None:
        raise LedgerError(f"the ledger holds no dataset {name!r}", culprit=name)
    found: str = row["secret"]
    with kept("a secret"):
        bytes.fromhex(found)
    return found


def entries(driver: Driver, name: str, *, after: int = 0, most: int = PAGE, analyst: str | None = None) -> list[Entry]:
    """The next page of the journal: up to ``most`` entries with numbers above ``after``, in order."""
    return [entry_from(row) for row in stored(driver, name, after=after, most=most, analyst=analyst)]


def newest(
    driver: Driver, name: str, *, before: int | None = None, most: int, analyst: str | None = None
) -> list[Entry]:
    """The last ``most`` entries, in order: of all, of an analyst's, of those with numbers below ``before``."""
    which = "" if before is None else " AND number < :before"
    which += "" if analyst is None else " AND analyst = :analyst"
    query = f"SELECT * FROM ledger_entry WHERE dataset = :dataset{which} ORDER BY number DESC LIMIT :most"  # noqa: S608
    rows = driver.records(query, {"dataset": name, "before": before, "analyst": analyst, "most": most})
    return [entry_from(row) for row in reversed(rows)]


def answers(
    driver: Driver, name: str, *, methods: Collection[tuple[str, str]], version: str, analyst: str | None
) -> list[StoredAnswer]:
    """Stored answers by some methods, each a family and its method, about one version of the data, in order.

    Args:
        driver: in a transaction that reads.
        name: of the dataset.
        methods: whose answers.
        version: of the data, as the journal calls it.
        analyst: whose account was charged for each; None for answers to anybody.

    Raises:
        BrokenLedgerError: one of them was changed by other hands.
    """
    beginning = f'{{"dataset_version":{canonical(version)},'  # of a question as it is spelled in the journal
    values: dict[str, Any] = {"dataset": name, "release": Kind.RELEASE.value, "repeat": Kind.REPEAT.value}
    values |= {"beginning": beginning, "length": len(beginning), "analyst": analyst}
    either = []
    for place, (family, method) in enumerate(methods):
        either.append(f"(entry.family = :family_{place} AND entry.method = :method_{place})")
        values |= {f"family_{place}": family, f"method_{place}": method}
    query = f"""
    SELECT entry.question, entry.number, {LINK} FROM ledger_entry AS entry
    JOIN ledger_answer AS answer ON answer.dataset = entry.dataset AND answer.number = entry.number{FOLLOWERS}
    WHERE entry.dataset = :dataset AND entry.kind = :release AND ({" OR ".join(either) or "1 = 0"})
    AND substr(entry.question, 1, :length) = :beginning"""  # noqa: S608  (values never stand in it)
    if analyst is not None:
        query += """
    AND EXISTS (SELECT 1 FROM ledger_entry AS shown WHERE shown.dataset = :dataset AND shown.key = entry.key
        AND shown.analyst = :analyst AND shown.kind IN (:release, :repeat))"""
    rows = driver.rows(f"{query} ORDER BY entry.number", values)
    head = driver.value("SELECT head FROM ledger_dataset WHERE name = :dataset", {"dataset": name}) if rows else ""
    return [
        StoredAnswer(Question.from_json(question), number, unchanged(tuple(link), head))
        for question, number, *link in rows
    ]


def told_owners(driver: Driver, name: str, *, after: int = 0) -> tuple[int, list[dict[str, str]]]:
    """The last entry's number, and what entries above ``after`` say of tables: whose their rows are, by table."""
    last = driver.value("SELECT entries FROM ledger_dataset WHERE name = :name", {"name": name})
    query = """
    SELECT DISTINCT details FROM ledger_entry
    WHERE dataset = :dataset AND number > :after AND details LIKE :telling"""
    rows = driver.rows(query, {"dataset": name, "after": after, "telling": '%"owners":{%'})
    with kept("an entry"):
        return int(last), [owners for (text,) in rows if isinstance(owners := json.loads(text).get("owners"), dict)]


def stored(driver: Driver, name: str, *, after: int, most: int = PAGE, analyst: str | None = None) -> list[StoredRow]:
    """Rows of the journal with numbers above ``after``, in order."""
    which = "" if analyst is None else " AND analyst = :analyst"
    query = f"""
    SELECT * FROM ledger_entry WHERE dataset = :dataset AND number > :after{which}
    ORDER BY number LIMIT :most"""  # noqa: S608
    return driver.records(query, {"dataset": name, "after": after, "most": most, "analyst": analyst})


def entry_from(row: StoredRow) -> Entry:
    """An entry as it is stored.

    Raises:
        LedgerError: somebody else wrote it.
    """
    amounts = row["epsilon"], row["rho"], row["delta"]
    charge = None if amounts == (None, None, None) else charge_from(*amounts)
    with kept("an entry"):
        event = Event(
            Kind(row["kind"]),
            Question.from_json(row["question"]),
            charge,
            row["analyst"],
            row["statement"],
            json.loads(row["details"]),
            **_stated(row["stated"]),
        )
    return Entry(row["number"], row["time"], event, row["previous"], row["hash"])


def _stated(text: str | None) -> dict[str, Any]:
    """What :attr:`Event.stated` says, as the fields of an event."""
    if text is None:
        return {}
    said = json.loads(text)
    unit, charge = said.get("unit"), said.get("counted")
    return {
        "unit": None if unit is None else unit_from(unit),
        "neighbours": said.get("neighbours"),
        "counted": None if charge is None else charge_from(*charge),
        "fixes_unit": said.get("fixes_unit", False),
    }


def spent_of(row: StoredRow) -> Charge:
    """What an account says was spent."""
    return charge_from(row["epsilon"], row["rho"], row["delta"])


def account_of(row: StoredRow) -> Account:
    """The account of an analyst as it is stored."""
    return Account(None if row["cap_loss"] is None else loss_from(row["cap_loss"]), spent_of(row))


def analyst_rows(driver: Driver, name: str) -> Sequence[StoredRow]:
    """The accounts of all analysts as they are stored, by name."""
    return driver.records("SELECT * FROM ledger_analyst WHERE dataset = :dataset ORDER BY name", {"dataset": name})


def dataset_row(driver: Driver, name: str) -> StoredRow | None:
    """The account of a dataset as it is stored."""
    return driver.record("SELECT * FROM ledger_dataset WHERE name = :name", {"name": name})
