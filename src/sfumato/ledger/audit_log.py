"""The audit log of a server: the time, the actor and the subject of each change, with the states before and after.

Actions are one chain of hashes for the whole database, apart from the journals of its datasets.  An action is written
in the transaction that makes the change, so that neither exists without the other.  The head is in a row of its own, so
that a missing last action is detected.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from sfumato.errors import BrokenLedgerError, InputError, LedgerError
from sfumato.ledger.database import Driver
from sfumato.ledger.entry import digest, system_user
from sfumato.ledger.schema import AUDIT_GENESIS
from sfumato.ledger.store import Store
from sfumato.strict_documents import JSON, canonical

PAGE = 1000
_HEAD = "SELECT number, hash FROM service_action_head FOR UPDATE"
_STATES = ("state_before", "state_after")
_FACTS = {
    "let_in": "access",
    "most": "most per question",
    "approval_above": "approval needed above",
    "granted_only": "only granted analysts",
    "instead_of": "replaces key",
    "domain": "hash of the description",
}
_LONGEST = 2000  # characters of a text in an action


class ActionKind(StrEnum):
    """A kind of subject that an action changes."""

    DATASET = "dataset"
    NAME = "name"
    RETIREMENT = "retirement"
    TABLE = "table"
    TERMS = "terms"
    GRANT = "grant"
    CAP = "cap"
    APPROVAL = "approval"
    KEY = "key"
    LINK = "link"
    SESSIONS = "sessions"


@dataclass(frozen=True)
class Actor:
    """The actor of a change.

    Attributes:
        name: the name of the key's holder, of the identity that logged in, or of the system's user.
        through: the key or session of the request; ``machine`` for commands and programs on the machine.
    """

    name: str
    through: str = "machine"

    @classmethod
    def of_machine(cls) -> Actor:
        """Return the system's user who runs this program, and who became that user by sudo."""
        name, person = system_user(), os.environ.get("SUDO_USER")
        return cls(name) if person is None else cls(name, f"machine, sudo by {person}")


@dataclass(frozen=True)
class Change:
    """A change of one subject; ``before`` and ``after`` are public facts, or None if there is no such state."""

    kind: ActionKind
    subject: str
    before: JSON
    after: JSON


@dataclass(frozen=True)
class Action:
    """A change in its place: ``number`` counts from 1 within the database, ``time`` is UTC in ISO 8601."""

    number: int
    time: str
    actor: str
    through: str
    kind: str
    subject: str
    state_before: JSON
    state_after: JSON
    previous: str
    hash: str

    def to_json(self) -> str:
        """Return one line of JSON in canonical form."""
        return canonical(asdict(self))

    @property
    def expected_hash(self) -> str:
        """The hash that the action must have, given all actions before it."""
        fields = asdict(self)
        del fields["hash"]
        return digest(fields)


@dataclass(frozen=True)
class AuditHead:
    """The number of actions, and the hash of the last one."""

    number: int
    hash: str


def fact_words(state: JSON) -> list[tuple[str, str]]:
    """Return the facts of a state as names with their texts, without those that are not set.

    >>> fact_words({"analyst": "ana", "let_in": True, "default_cap": None})
    [('analyst', 'ana'), ('access', 'yes')]
    """
    if not isinstance(state, dict):
        return [] if state is None else [("", str(state))]
    words = {True: "yes", False: "no"}
    return [
        (_FACTS.get(name, name.replace("_", " ")), words[value] if isinstance(value, bool) else str(value))
        for name, value in state.items()
        if value is not None
    ]


def record(driver: Driver, change: Change, by: Actor | None = None) -> None:
    """Write a change into the audit log, as the last thing of the transaction that makes it.

    All who write an action wait for its head, so no lock may be taken after it.

    Args:
        driver: a driver in a transaction that writes.
        change: the change.
        by: who changes it; the system's user by default.

    Raises:
        BrokenLedgerError: the log has no head.
    """
    heads = driver.rows(_HEAD)
    if not heads:
        raise _broken("before its first action", 0)
    number, previous = heads[0]
    who = Actor.of_machine() if by is None else by
    action = Action(
        number=number + 1,
        time=datetime.now(UTC).isoformat(timespec="microseconds"),
        actor=who.name,
        through=who.through,
        kind=change.kind.value,
        subject=change.subject,
        state_before=_short(change.before),
        state_after=_short(change.after),
        previous=previous,
        hash="",
    )
    row = asdict(action) | {"hash": action.expected_hash} | {name: canonical(getattr(action, name)) for name in _STATES}
    driver.insert("service_action", [row])
    head = {"number": row["number"], "hash": row["hash"]}
    driver.run("UPDATE service_action_head SET number = :number, hash = :hash", head)


def actions(driver: Driver, *, after: int = 0, most: int = PAGE) -> list[Action]:
    """Return the first ``most`` actions with numbers above ``after``, in order."""
    query = "SELECT * FROM service_action WHERE number > :after ORDER BY number LIMIT :most"
    return [_action(row) for row in driver.records(query, {"after": after, "most": most})]


def newest_actions(driver: Driver, *, before: int | None = None, most: int = PAGE) -> list[Action]:
    """Return the last ``most`` actions, newest first, optionally only actions with numbers below ``before``."""
    which = "" if before is None else " WHERE number < :before"
    query = f"SELECT * FROM service_action{which} ORDER BY number DESC LIMIT :most"  # noqa: S608
    return [_action(row) for row in driver.records(query, {"before": before, "most": most})]


def every_action(store: Store, *, after: int = 0) -> Iterator[Action]:
    """Yield all actions with numbers above ``after``, in order, a page for each transaction."""
    while True:
        with store.reading() as driver:
            page = actions(driver, after=after)
        if not page:
            return
        yield from page
        after = page[-1].number


def verify_actions(driver: Driver, *, earlier_head: str | None = None) -> AuditHead:
    """Check that no action was changed, removed or inserted.

    Args:
        driver: a driver in a transaction that reads.
        earlier_head: the hash of an earlier head, which the log must still contain.

    Returns:
        The head of the log.

    Raises:
        BrokenLedgerError: names the first action that is missing, was changed, or does not follow the one before.
    """
    number, head, passed = 0, AUDIT_GENESIS, earlier_head in (None, AUDIT_GENESIS)
    while page := actions(driver, after=number):
        for action in page:
            if (action.number, action.previous) != (number + 1, head) or action.hash != action.expected_hash:
                raise _broken(f"at action {number + 1}", number + 1)
            number, head = action.number, action.hash
            passed = passed or head == earlier_head
    if [(number, head)] != driver.rows("SELECT number, hash FROM service_action_head"):
        raise _broken(f"after action {number}: actions are missing", number)
    if not passed:
        raise LedgerError(
            "the audit log does not contain the kept hash: it is an older copy of the ledger, or was "
            "written anew, so that actions of stewards are missing",
            culprit=earlier_head,
        )
    return AuditHead(number, head)


def action_hashes(driver: Driver, hashes: Collection[str]) -> set[str]:
    """Return the hashes among ``hashes`` that actions have."""
    query = "SELECT COUNT(*) FROM service_action WHERE hash = :hash"
    return {each for each in hashes if driver.value(query, {"hash": each})}


def verified_actions(url: str, *, earlier_head: str | None = None) -> AuditHead:
    """Check the audit log of a ledger's database; see :func:`verify_actions`.

    Raises:
        LedgerError: as for :func:`verify_actions`, or the database cannot be read.
    """
    with closing(Store(url)) as store:
        store.prepare(create=False)
        with store.reading() as driver:
            return verify_actions(driver, earlier_head=earlier_head)


def _action(row: dict[str, Any]) -> Action:
    """Return the action of a row."""
    try:
        action = Action(**row | {name: json.loads(row[name]) for name in _STATES})
        _ = action.expected_hash
    except (ValueError, TypeError, InputError):  # another program wrote it
        raise _broken(f"at action {row['number']}", row["number"]) from None
    return action


def _short(value: JSON) -> JSON:
    """Return a value with its long texts cut, so that a statement of a megabyte is not stored twice."""
    if isinstance(value, str) and len(value) > _LONGEST:
        return f"{value[: _LONGEST - 4]} ..."
    if isinstance(value, dict):
        return {name: _short(each) for name, each in value.items()}
    return value


def _broken(where: str, number: int) -> LedgerError:
    return BrokenLedgerError(f"the audit log of stewards' actions is broken {where}", culprit=number)
