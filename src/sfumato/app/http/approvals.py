"""Looked at in the transaction that charges: that a dataset is not retired, its months, and approvals of dear releases.

Above a threshold that a dataset's terms state, a release needs the approval of a steward other than whoever asks; one
without differential privacy is above every threshold.  An approval is of one release: the question with its loss, of
one version of the table, for one name.  It is used up in the transaction that charges, and ends after a week, and with
the key of the steward who gave it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sfumato.app.http.periods import read_periods
from sfumato.app.http.problems import ApprovalNeededError, BudgetUsedUpError, RetiredError
from sfumato.app.http.registry import Key, Scope, spelled
from sfumato.app.requests.fields import limit_of
from sfumato.errors import BudgetError
from sfumato.ledger import Ledger
from sfumato.ledger.account import Account
from sfumato.ledger.audit_log import ActionKind, Actor, Change, record
from sfumato.ledger.dbapi import Driver
from sfumato.ledger.entry import Event
from sfumato.ledger.reservation import Admission
from sfumato.ledger.store import Store
from sfumato.privacy.loss import NOTHING, Loss

LASTS = timedelta(days=7)
"""How long a request waits, and how long an approval holds."""

_MOST_WAITING = 20  # requests of one name for one dataset
_LONGEST = 2000  # characters of a question that stewards are shown
_OPEN = """
    SELECT approval.*, held.expires AS key_expires, held.revoked AS key_revoked, held.scope AS key_scope,
    (SELECT COUNT(*) FROM service_session AS session WHERE session.ended IS NULL AND session.scope = 'steward'
    AND approval.key_id = session.id) AS sessions
    FROM service_approval AS approval LEFT JOIN service_key AS held ON held.id = approval.key_id
    WHERE approval.closed IS NULL"""


@dataclass(frozen=True)
class Approval:
    """A release that waits for an approval, or has one that nobody used yet."""

    id: str
    dataset: str
    asked_by: str
    asked: str
    question: str
    cost: str
    approved_by: str | None
    expires: str


def spent_by(ledger: Ledger) -> dict[str, str]:
    """What each analyst has spent, in words, by name.

    An analyst is charged for what others asked first as well, so that the amounts may sum to more than the dataset's.
    """
    return {name: ledger.limit.in_words(account.spent) for name, account in ledger.caps().items()}


@contextmanager
def explained(ledger: Ledger, key: Key) -> Iterator[None]:
    """Tell a steward who spent the budget, where it does not admit what is done inside.

    Raises:
        BudgetUsedUpError: it does not, and the key is a steward's.
        BudgetError: it does not, and the key is an analyst's.
    """
    try:
        yield
    except BudgetError as error:
        if key.scope is not Scope.STEWARD or isinstance(error, ApprovalNeededError | RetiredError):
            raise
        found = spent_by(ledger)
        shares = "; ".join(f"{name}: {spent}" for name, spent in found.items()) or "nobody by name"
        raise BudgetUsedUpError(f"{error}; spent so far by analyst: {shares}", found) from error


class Approvals:
    """Approvals of a server, over a store that is prepared."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def admission(self, dataset: str, analyst: str) -> Admission:
        """What admits a release of a dataset to somebody, in the transaction that charges for it.

        It raises :class:`RetiredError`, a :class:`BudgetError` where the months that have begun do not allow it, or
        :class:`ApprovalNeededError`, which leaves a request for stewards.
        """

        def admit(driver: Driver, event: Event, account: Account) -> None:
            held = _held(driver, dataset)
            if held is None:
                return
            limit, registered, above = held
            periods = read_periods(limit)
            if periods is not None and event.charge is not None:
                periods.refuse(account, event.charge, datetime.fromisoformat(registered), datetime.now(UTC))
            _approved(driver, event, limit_of(above), dataset=dataset, analyst=analyst)

        return admit

    def open_ones(self, asked_by: str | None = None) -> list[Approval]:
        """What waits for an approval, or has one that holds, oldest first: of everybody, or of one name."""
        with self._store.reading() as driver:
            rows = driver.records(f"{_OPEN} ORDER BY approval.asked, approval.id")
        return [_as_approval(row) for row in rows if _lives(row) and asked_by in (None, row["asked_by"])]

    def approve(self, approval_id: str, steward: Key) -> bool:
        """Approve a release; False where none of that id waits, or the steward asked for it.

        What a session without a key approves holds no longer than that very session, however it ends, whatever other
        sessions the same person has open.
        """
        if not approval_id.isalnum():  # PostgreSQL refuses to look for some characters
            return False
        now = datetime.now(UTC)
        with self._store.founding() as driver:
            row = driver.record(f"{_OPEN} AND approval.id = :id", {"id": approval_id})
            own = row is not None and spelled(steward.name, [row["asked_by"]]) == row["asked_by"]
            if row is None or own or row["approved_by"] is not None or not _lives(row):
                return False
            keyed = driver.value("SELECT COUNT(*) FROM service_key WHERE id = :id", {"id": steward.id})
            end = now + LASTS if keyed else min(now + LASTS, steward.expires)
            change = """
            UPDATE service_approval SET approved_by = :by, approved = :now, key_id = :key, expires = :end
            WHERE id = :id"""
            given_in = steward.id if keyed else steward.session or steward.id
            values = {"by": steward.name, "now": now.isoformat(), "key": given_in, "end": end.isoformat()}
            driver.run(change, {**values, "id": approval_id})
            after = _facts(row) | {"approved_by": steward.name, "expires": values["end"]}
            record(driver, Change(ActionKind.APPROVAL, approval_id, _facts(row), after), steward.actor)
        return True

    def close(self, approval_id: str, *, by: Actor | None = None) -> bool:
        """Refuse a request, or take an approval back that was not used; tells whether there was such a one."""
        if not approval_id.isalnum():  # see approve
            return False
        with self._store.founding() as driver:
            row = driver.record(f"{_OPEN} AND approval.id = :id", {"id": approval_id})
            if row is None or not _close(driver, approval_id):
                return False
            record(driver, Change(ActionKind.APPROVAL, approval_id, _facts(row), None), by)
        return True


def _facts(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the audit log says of a request that is open."""
    return {name: row[name] for name in ("dataset", "asked_by", "question", "cost", "approved_by", "expires")}


_HELD = """
    SELECT held.retired, held.limit_text, held.registered, terms.approval_above FROM service_dataset AS held
    LEFT JOIN service_terms AS terms ON terms.dataset = held.name WHERE held.name = :key"""


def _held(driver: Driver, dataset: str) -> tuple[str, str, str | None] | None:
    """A dataset's limit, when it was registered, and above which loss approvals are needed; None: it is not registered.

    Raises:
        RetiredError: it is retired.
    """
    row = driver.first(_HELD, dataset)
    if row is None:
        return None
    retired, limit, registered, above = row
    if retired is not None:
        raise RetiredError("nothing more is released of this dataset, nor shown again: it is retired")
    return limit, registered, above


def _approved(driver: Driver, event: Event, above: Loss | None, *, dataset: str, analyst: str) -> None:
    """Use up the approval of a release that costs more than a threshold, or leave a request for one and refuse.

    Raises:
        ApprovalNeededError: there is no approval that holds.
    """
    if above is None or (event.charge is not None and above.admits(NOTHING, event.charge)):
        return
    mine = {"dataset": dataset, "release": event.key, "by": analyst}
    which = "AND approval.dataset = :dataset AND approval.asked_by = :by"
    waiting = driver.records(f"{_OPEN} {which}", {"dataset": dataset, "by": analyst})
    found = [each for each in waiting if each["release"] == mine["release"]]
    for each in found:
        if each["approved_by"] is not None and _lives(each) and _close(driver, each["id"]):
            return
        if not _lives(each):
            _close(driver, each["id"])
    living = [each for each in waiting if _lives(each)]
    known = next((each["id"] for each in living if each["release"] == mine["release"]), None)
    if known is None and len(living) >= _MOST_WAITING:
        raise ApprovalNeededError(f"this needs an approval, and {_MOST_WAITING} of your questions wait for one already")
    number = known or _ask(driver, event, dataset=dataset, analyst=analyst)
    raise ApprovalNeededError(
        f"a release of this dataset that costs more than {above} needs the approval of a second steward; "
        f"it is asked for by the number {number}: ask again when it is there"
    )


def _ask(driver: Driver, event: Event, *, dataset: str, analyst: str) -> str:
    details = event.details if isinstance(event.details, dict) else {}
    row = {
        "id": secrets.token_hex(6),
        "dataset": dataset,
        "release": event.key,
        "asked_by": analyst,
        "asked": datetime.now(UTC).isoformat(),
        "question": str(details.get("asked") or f"{event.question.family}, {event.question.method}")[:_LONGEST],
        "cost": event.statement,
    }
    driver.insert("service_approval", [row])
    return str(row["id"])


def _close(driver: Driver, approval_id: str) -> bool:
    end = "UPDATE service_approval SET closed = :now WHERE id = :id AND closed IS NULL"
    return bool(driver.run(end, {"id": approval_id, "now": datetime.now(UTC).isoformat()}))


def _lives(row: Mapping[str, Any]) -> bool:
    """Whether a request still waits, or an approval still holds: its steward's key has to be valid."""
    now = datetime.now(UTC)
    if row["approved_by"] is None:
        return now - datetime.fromisoformat(row["asked"]) < LASTS
    if now >= datetime.fromisoformat(row["expires"]):
        return False
    if row["key_scope"] is None:  # given in a session without a key
        return bool(row["sessions"])
    return (
        row["key_revoked"] is None
        and row["key_scope"] == Scope.STEWARD
        and now < datetime.fromisoformat(row["key_expires"])
    )


def _as_approval(row: Mapping[str, Any]) -> Approval:
    end = row["expires"] or (datetime.fromisoformat(row["asked"]) + LASTS).isoformat()
    return Approval(
        row["id"], row["dataset"], row["asked_by"], row["asked"], row["question"], row["cost"], row["approved_by"], end
    )
