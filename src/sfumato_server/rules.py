"""Rules that the transaction of a charge checks: retired datasets, budgets by month, approvals and grants.

A dataset's terms may state a loss above which a release needs the approval of a steward who did not ask for it.  A
release without differential privacy always needs one.  An approval is for one release: the question with its loss, for
one version of the table and one name.  The charge uses it up.  It ends after a week, and with the key of the steward
who gave it.

A grant lets an analyst ask questions of a dataset, and a cap bounds what the analyst may spend.  A cap does not protect
the data, because a person with two names has two caps.  Only the dataset's limit does.

A budget by months is written as ``0.5 a month for 12 months``, or ``rho=0.1 a month for 24 months``.  The dataset's
ledger has the sum as its limit, which never changes.  The charge also refuses a release that would spend more than the
months begun so far allow; what earlier months left stays usable.  A month begins on the day of the month, and at the
time, of the registration, in UTC.  A wrong clock can allow no more than the sum, and a clock that is behind only
refuses more.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

from sfumato.app.api.questions import limit_of
from sfumato.errors import BudgetError, LossError
from sfumato.ledger import Ledger
from sfumato.ledger.account import Account
from sfumato.ledger.audit_log import ActionKind, Actor, Change, record
from sfumato.ledger.database import Driver
from sfumato.ledger.entry import Event
from sfumato.ledger.reservation import Admission
from sfumato.ledger.store import Store
from sfumato.privacy.loss import NOTHING, Charge, Epsilon, Loss, Rho, decimals
from sfumato_server.problems import ApprovalNeededError, BudgetUsedUpError, RefusalError, RetiredError
from sfumato_server.registry import Key, Scope, spelled

_SPELLED = re.compile(r"(?P<limit>.+) a month for (?P<months>[1-9][0-9]{0,2}) months?", re.ASCII)


@dataclass(frozen=True)
class Periods:
    """A limit a month, for a number of months.

    >>> from datetime import UTC
    >>> periods = Periods(Epsilon("0.5"), 12)
    >>> periods.total, periods.begun(datetime(2024, 1, 31, tzinfo=UTC), datetime(2024, 3, 1, tzinfo=UTC))
    (Epsilon('6'), 2)
    """

    each: Epsilon | Rho
    months: int

    @property
    def total(self) -> Loss:
        """The most that may ever be released: the limit of the ledger."""
        return self.each * self.months

    def begun(self, since: datetime, now: datetime) -> int:
        """How many months have begun; none where the clock is before the registration."""
        whole = 12 * (now.year - since.year) + now.month - since.month
        if (now.day, now.timetz()) < (since.day, since.timetz()):
            whole -= 1
        return min(max(whole + 1, 0), self.months)

    def left(self, account: Account, since: datetime, now: datetime) -> Fraction:
        """What the months begun so far still allow, in the measure of the limit."""
        spent = self.each.amount(account.spent)
        return Fraction(0) if spent is None else max(self.begun(since, now) * self.each.value - spent, Fraction(0))

    def refuse(self, account: Account, charge: Charge, since: datetime, now: datetime) -> None:
        """Refuse a charge that the months begun so far do not allow, however much is left of the sum.

        Raises:
            BudgetError: says how much they allow still.
        """
        after = self.each.amount(account.charged(charge).spent)
        begun = self.begun(since, now)
        if after is not None and after <= begun * self.each.value:
            return
        left = decimals(self.left(account, since, now), up=False)
        (measure,) = self.each.amounts
        raise BudgetError(
            f"{begun} of the {self.months} months of the budget have begun, which leaves {measure} = {left} now, and "
            f"this release asks for {self.each.in_words(charge)}; nothing was spent",
            culprit=charge,
        )

    def __str__(self) -> str:
        return f"{self.each} a month for {self.months} months"


def read_periods(limit: str) -> Periods | None:
    """The months that a dataset's limit declares; None where it declares none.

    Raises:
        LossError: months of what is neither epsilon nor rho, the losses that add up month by month; or months that
            are spelled otherwise.

    >>> read_periods("rho=0.5 a month for 3 months").total, read_periods("1,1e-9")
    (Rho('1.5'), None)
    """
    found = _SPELLED.fullmatch(limit.strip())
    if found is None and "month" in limit:
        raise LossError(
            "a limit by months is spelled '0.5 a month for 12 months' or 'rho=0.1 a month for 24 months', of 1 to 999 "
            "months"
        )
    if found is None:
        return None
    each = limit_of(found["limit"])
    if not isinstance(each, Epsilon | Rho):
        raise LossError("a limit a month is EPSILON or rho=RHO, as months of epsilon with delta do not add up to one")
    return Periods(each, int(found["months"]))


def total_of(limit: str) -> Loss | None:
    """The most that a dataset's limit comes to, over all the months that it declares.

    Raises:
        LossError: it is no limit.
    """
    found = read_periods(limit)
    return limit_of(limit) if found is None else found.total


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


_REMEMBERED = 2.0  # seconds for which a worker trusts what it has looked up


@dataclass(frozen=True)
class DatasetTerms:
    """On which terms a dataset is asked; limits are spelled as limits of ledgers are.

    Attributes:
        granted_only: whether only analysts may ask to whom it was granted; everybody with a key otherwise.
        default_cap: what an analyst may spend who has no account yet; None: no cap of their own.
        most: what one question or release may cost; None: what is left.
        approval_above: what one may cost that no second steward approved; None: anything.
    """

    granted_only: bool = False
    default_cap: str | None = None
    most: str | None = None
    approval_above: str | None = None


class Grants:
    """The terms of all datasets of a server, and to whom they are granted, over a store that is prepared."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[float, DatasetTerms, Mapping[str, bool]]] = {}

    def terms(self, dataset: str) -> DatasetTerms:
        """The terms of a dataset."""
        return self._look(dataset)[0]

    def set_terms(self, dataset: str, terms: DatasetTerms, *, by: Actor | None = None) -> None:
        """Change the terms of a dataset; other workers follow within two seconds."""
        row = {"dataset": dataset, "granted_only": int(terms.granted_only)}
        with self._store.founding() as driver:
            before = _terms(driver, dataset)
            driver.run("DELETE FROM service_terms WHERE dataset = :dataset", {"dataset": dataset})
            limits = {"default_cap": terms.default_cap, "most": terms.most, "approval_above": terms.approval_above}
            driver.insert("service_terms", [{**row, **limits}])
            record(driver, Change(ActionKind.TERMS, dataset, asdict(before), asdict(terms)), by)
        self._known.pop(dataset, None)

    def let_in(self, dataset: str, analyst: str, *, by: Actor | None = None) -> None:
        """Grant a dataset to an analyst."""
        self._write(dataset, analyst, shut_out=False, by=by)

    def shut_out(self, dataset: str, analyst: str, *, by: Actor | None = None) -> None:
        """Let an analyst ask a dataset no more, whoever else may."""
        self._write(dataset, analyst, shut_out=True, by=by)

    def let_back(self, dataset: str, analyst: str, *, by: Actor | None = None) -> None:
        """Let in an analyst who was shut out; others stay as they are."""
        change = (
            "UPDATE service_grant SET shut_out = 0 WHERE dataset = :dataset AND analyst = :analyst AND shut_out = 1"
        )
        with self._store.founding() as driver:  # this worker may not know of it yet
            if driver.run(change, {"dataset": dataset, "analyst": analyst}):
                record(driver, _change(dataset, analyst, False, True), by)
        self._known.pop(dataset, None)

    def named(self, dataset: str) -> Mapping[str, bool]:
        """Whether each analyst who is named for a dataset is let in (True) or shut out."""
        return self._look(dataset)[1]

    def admits(self, dataset: str, analyst: str) -> bool:
        """Whether an analyst may ask a dataset."""
        terms, named = self._look(dataset)
        return named.get(analyst, not terms.granted_only)

    def refuse(self, ledger: Ledger, analyst: str, loss: Loss | None = None) -> None:
        """Refuse an analyst, or what one question is to cost; a new analyst gets the cap of new ones.

        Raises:
            RefusalError: the dataset is not open to the analyst, or the loss is above the most of one question.
        """
        if not self.admits(ledger.dataset, analyst):
            raise RefusalError(
                "not-granted", "The dataset is not open to you", 403, "ask a steward to grant it to your name"
            )
        terms = self.terms(ledger.dataset)
        most = limit_of(terms.most)
        if loss is not None and most is not None and not most.admits(NOTHING, loss.charge):
            raise RefusalError(
                "question-too-dear",
                "One question may not cost that much",
                403,
                f"a question or release of this dataset costs at most {most}; ask at a smaller loss",
            )
        if loss is not None and terms.default_cap is not None and analyst not in ledger.caps():
            cap = limit_of(terms.default_cap)
            assert cap is not None  # as there is a text
            ledger.set_first_cap(analyst, cap)

    def _write(self, dataset: str, analyst: str, *, shut_out: bool, by: Actor | None) -> None:
        where = {"dataset": dataset, "analyst": analyst}
        with self._store.founding() as driver:
            before = _named(driver, dataset).get(analyst)
            driver.run("DELETE FROM service_grant WHERE dataset = :dataset AND analyst = :analyst", where)
            driver.insert("service_grant", [{**where, "shut_out": int(shut_out)}])
            record(driver, _change(dataset, analyst, before, not shut_out), by)
        self._known.pop(dataset, None)

    def _look(self, dataset: str) -> tuple[DatasetTerms, Mapping[str, bool]]:
        now = time.monotonic()
        seen, terms, named = self._known.get(dataset, (0.0, DatasetTerms(), {}))
        if dataset not in self._known or now - seen > _REMEMBERED:
            with self._store.reading() as driver:
                terms, named = _terms(driver, dataset), _named(driver, dataset)
            self._known[dataset] = (now, terms, named)
        return terms, named


def _change(dataset: str, analyst: str, before: bool | None, after: bool) -> Change:  # noqa: FBT001
    """Return what becomes of an analyst whom a dataset names: let in (True), shut out, or not named (None)."""
    former, new = ({"analyst": analyst, "let_in": each} for each in (before, after))
    return Change(ActionKind.GRANT, dataset, former, new)


def _terms(driver: Driver, dataset: str) -> DatasetTerms:
    row = driver.record("SELECT * FROM service_terms WHERE dataset = :dataset", {"dataset": dataset})
    if row is None:
        return DatasetTerms()
    return DatasetTerms(bool(row["granted_only"]), row["default_cap"], row["most"], row["approval_above"])


def _named(driver: Driver, dataset: str) -> dict[str, bool]:
    rows: list[tuple[Any, ...]] = driver.rows(
        "SELECT analyst, shut_out FROM service_grant WHERE dataset = :dataset ORDER BY analyst", {"dataset": dataset}
    )
    return {analyst: not shut_out for analyst, shut_out in rows}
