"""The rules that a charge checks in its transaction: retired datasets, budgets by month, approvals and grants.

A dataset's terms may state a loss above which a release needs the approval of a second steward.  A release without
differential privacy always needs one.  An approval is for one release: a question with its loss, one version of the
table, and one name.  The charge uses it up.  It expires after a week, or with the key of the steward who gave it.

A grant lets an analyst ask questions of a dataset, and a cap bounds what the analyst may spend.  A cap does not protect
the data, because a person with two names has two caps.  Only the dataset's limit does.

A budget by months is written as ``0.5 a month for 12 months``, or ``rho=0.1 a month for 24 months``.  The dataset's
ledger has the sum as its limit, which never changes.

The charge also refuses a release that exceeds the amounts of the months begun.  A month's rest stays usable later.  A
month begins on the day and at the time of the registration, in UTC.  A wrong clock never allows more than the sum.
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
from sfumato.ledger.entry import Event, method_title
from sfumato.ledger.reservation import Admission
from sfumato.ledger.store import Store
from sfumato.privacy.loss import NOTHING, Charge, Epsilon, Loss, Rho, decimals
from sfumato_server.problems import ApprovalNeededError, BudgetUsedUpError, RefusalError, RetiredError
from sfumato_server.registry import Key, Scope, registered_name

_MONTHLY = re.compile(r"(?P<limit>.+) a month for (?P<months>[1-9][0-9]{0,2}) months?", re.ASCII)


@dataclass(frozen=True)
class MonthlyBudget:
    """A budget that grows by the same limit each month, for a number of months.

    >>> from datetime import UTC
    >>> budget = MonthlyBudget(Epsilon("0.5"), 12)
    >>> budget.total, budget.months_begun(datetime(2024, 1, 31, tzinfo=UTC), datetime(2024, 3, 1, tzinfo=UTC))
    (Epsilon('6'), 2)
    """

    monthly: Epsilon | Rho
    months: int

    @property
    def total(self) -> Loss:
        """The sum over all months: the limit of the ledger."""
        return self.monthly * self.months

    def months_begun(self, since: datetime, now: datetime) -> int:
        """Return the number of months that have begun; 0 if the clock is before the registration."""
        months_over = 12 * (now.year - since.year) + now.month - since.month
        if (now.day, now.timetz()) < (since.day, since.timetz()):
            months_over -= 1
        return min(max(months_over + 1, 0), self.months)

    def left(self, account: Account, since: datetime, now: datetime) -> Fraction:
        """Return the amount that the months begun still allow, in the measure of the limit."""
        spent = self.monthly.amount(account.spent)
        allowed = self.months_begun(since, now) * self.monthly.value
        return Fraction(0) if spent is None else max(allowed - spent, Fraction(0))

    def refuse(self, account: Account, charge: Charge, since: datetime, now: datetime) -> None:
        """Refuse a charge that exceeds the amounts of the months begun.

        Raises:
            BudgetError: the message has the amount that is left.
        """
        after = self.monthly.amount(account.charged(charge).spent)
        months = self.months_begun(since, now)
        if after is not None and after <= months * self.monthly.value:
            return
        left = decimals(self.left(account, since, now), up=False)
        (measure,) = self.monthly.amounts
        raise BudgetError(
            f"{months} of the {self.months} months of the budget have begun, which leaves {measure} = {left} now, and "
            f"this release asks for {self.monthly.in_words(charge)}; nothing was spent",
            culprit=charge,
        )

    def __str__(self) -> str:
        return f"{self.monthly} a month for {self.months} months"


def parse_monthly_budget(limit: str) -> MonthlyBudget | None:
    """Return the budget by months that a limit states; None if it states none.

    Raises:
        LossError: the months are not in the expected form, or the loss is neither epsilon nor rho.

    >>> parse_monthly_budget("rho=0.5 a month for 3 months").total, parse_monthly_budget("1,1e-9")
    (Rho('1.5'), None)
    """
    match = _MONTHLY.fullmatch(limit.strip())
    if match is None and "month" in limit:
        raise LossError(
            "a limit by months is spelled '0.5 a month for 12 months' or 'rho=0.1 a month for 24 months', of 1 to 999 "
            "months"
        )
    if match is None:
        return None
    monthly = limit_of(match["limit"])
    if not isinstance(monthly, Epsilon | Rho):
        raise LossError("a limit a month is EPSILON or rho=RHO, as months of epsilon with delta do not add up to one")
    return MonthlyBudget(monthly, int(match["months"]))


def total_of(limit: str) -> Loss | None:
    """Return the loss of a dataset's limit, or the sum of its months.

    Raises:
        LossError: the text is not a limit.
    """
    budget = parse_monthly_budget(limit)
    return limit_of(limit) if budget is None else budget.total


LIFETIME = timedelta(days=7)
"""A request and an approval each end after this time."""

_MAX_PENDING = 20  # requests per analyst and dataset
_MAX_QUESTION = 2000  # characters of a question that stewards see
_OPEN = """
    SELECT approval.*, held.expires AS key_expires, held.revoked AS key_revoked, held.scope AS key_scope,
    (SELECT COUNT(*) FROM service_session AS session WHERE session.ended IS NULL AND session.scope = 'steward'
    AND approval.key_id = session.id) AS sessions
    FROM service_approval AS approval LEFT JOIN service_key AS held ON held.id = approval.key_id
    WHERE approval.closed IS NULL"""


@dataclass(frozen=True)
class Approval:
    """A request for the approval of a release, or an approval that is not used."""

    id: str
    dataset: str
    asked_by: str
    asked: str
    question: str
    cost: str
    approved_by: str | None
    expires: str


def spent_by(ledger: Ledger) -> dict[str, str]:
    """Return each analyst's spending in words, by name.

    A stored answer is charged to each analyst who asks for it.  So the amounts may sum to more than the dataset's.
    """
    return {name: ledger.limit.in_words(account.spent) for name, account in ledger.caps().items()}


@contextmanager
def naming_spenders(ledger: Ledger, key: Key) -> Iterator[None]:
    """Add each analyst's spending to a refusal of the budget, if a steward gets it.

    Raises:
        BudgetUsedUpError: the budget refused a steward's release.
        BudgetError: the budget refused an analyst's release.
    """
    try:
        yield
    except BudgetError as error:
        if key.scope is not Scope.STEWARD or isinstance(error, ApprovalNeededError | RetiredError):
            raise
        spent = spent_by(ledger)
        shares = "; ".join(f"{name}: {amount}" for name, amount in spent.items()) or "nobody by name"
        raise BudgetUsedUpError(f"{error}; spent so far by analyst: {shares}", spent) from error


class Approvals:
    """The approvals of a server, in a prepared store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def admission(self, dataset: str, analyst: str) -> Admission:
        """Return the check of a release that its charge runs in its transaction.

        It raises :class:`RetiredError`, a :class:`BudgetError` if the months begun do not allow the charge, or
        :class:`ApprovalNeededError`, which leaves a request for stewards.
        """

        def admit(driver: Driver, event: Event, account: Account) -> None:
            rules = _charge_rules(driver, dataset)
            if rules is None:
                return
            limit, registered, approval_above = rules
            budget = parse_monthly_budget(limit)
            if budget is not None and event.charge is not None:
                budget.refuse(account, event.charge, datetime.fromisoformat(registered), datetime.now(UTC))
            _use_approval(driver, event, limit_of(approval_above), dataset=dataset, analyst=analyst)

        return admit

    def pending(self, asked_by: str | None = None) -> list[Approval]:
        """Return open requests and unused approvals, oldest first, of one analyst or of all."""
        with self._store.reading() as driver:
            rows = driver.records(f"{_OPEN} ORDER BY approval.asked, approval.id")
        return [_as_approval(row) for row in rows if _is_open(row) and asked_by in (None, row["asked_by"])]

    def approve(self, approval_id: str, steward: Key) -> bool:
        """Approve a release; return False if no request has the id, or the steward made it.

        An approval from a session without a key ends with this session, even if the person has others.
        """
        if not approval_id.isalnum():  # PostgreSQL refuses some characters, such as NUL
            return False
        now = datetime.now(UTC)
        with self._store.founding() as driver:
            row = driver.record(f"{_OPEN} AND approval.id = :id", {"id": approval_id})
            own = row is not None and registered_name(steward.name, [row["asked_by"]]) == row["asked_by"]
            if row is None or own or row["approved_by"] is not None or not _is_open(row):
                return False
            has_key = driver.value("SELECT COUNT(*) FROM service_key WHERE id = :id", {"id": steward.id})
            end = now + LIFETIME if has_key else min(now + LIFETIME, steward.expires)
            change = """
            UPDATE service_approval SET approved_by = :by, approved = :now, key_id = :key, expires = :end
            WHERE id = :id"""
            key_id = steward.id if has_key else steward.session or steward.id
            values = {"by": steward.name, "now": now.isoformat(), "key": key_id, "end": end.isoformat()}
            driver.run(change, {**values, "id": approval_id})
            after = _facts(row) | {"approved_by": steward.name, "expires": values["end"]}
            record(driver, Change(ActionKind.APPROVAL, approval_id, _facts(row), after), steward.actor)
        return True

    def close(self, approval_id: str, *, by: Actor | None = None) -> bool:
        """Refuse a request, or withdraw an unused approval; return False if there is none."""
        if not approval_id.isalnum():  # see approve
            return False
        with self._store.founding() as driver:
            row = driver.record(f"{_OPEN} AND approval.id = :id", {"id": approval_id})
            if row is None or not _close(driver, approval_id):
                return False
            record(driver, Change(ActionKind.APPROVAL, approval_id, _facts(row), None), by)
        return True


def _facts(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of an open request for the audit log."""
    return {name: row[name] for name in ("dataset", "asked_by", "question", "cost", "approved_by", "expires")}


_CHARGE_RULES = """
    SELECT dataset.retired, dataset.limit_text, dataset.registered, terms.approval_above
    FROM service_dataset AS dataset LEFT JOIN service_terms AS terms ON terms.dataset = dataset.name
    WHERE dataset.name = :key"""


def _charge_rules(driver: Driver, dataset: str) -> tuple[str, str, str | None] | None:
    """Return a dataset's limit, registration time and approval threshold; None if it is not registered.

    Raises:
        RetiredError: the dataset is retired.
    """
    row = driver.first(_CHARGE_RULES, dataset)
    if row is None:
        return None
    retired, limit, registered, approval_above = row
    if retired is not None:
        raise RetiredError("nothing more is released of this dataset, nor shown again: it is retired")
    return limit, registered, approval_above


def _use_approval(driver: Driver, event: Event, threshold: Loss | None, *, dataset: str, analyst: str) -> None:
    """Use up the approval of a release above a threshold; without one, leave a request and refuse.

    Raises:
        ApprovalNeededError: there is no valid approval.
    """
    if threshold is None or (event.charge is not None and threshold.admits(NOTHING, event.charge)):
        return
    of_analyst = f"{_OPEN} AND approval.dataset = :dataset AND approval.asked_by = :by"
    rows = driver.records(of_analyst, {"dataset": dataset, "by": analyst})
    of_release = [row for row in rows if row["release"] == event.key]
    for row in of_release:
        if row["approved_by"] is not None and _is_open(row) and _close(driver, row["id"]):
            return
        if not _is_open(row):
            _close(driver, row["id"])
    pending = [row for row in rows if _is_open(row)]
    known = next((row["id"] for row in pending if row["release"] == event.key), None)
    if known is None and len(pending) >= _MAX_PENDING:
        raise ApprovalNeededError(f"this needs an approval, and {_MAX_PENDING} of your questions wait for one already")
    number = known or _request_approval(driver, event, dataset=dataset, analyst=analyst)
    raise ApprovalNeededError(
        f"a release of this dataset that costs more than {threshold} needs the approval of a second steward; "
        f"it is asked for by the number {number}: ask again when it is there"
    )


def _request_approval(driver: Driver, event: Event, *, dataset: str, analyst: str) -> str:
    details = event.details if isinstance(event.details, dict) else {}
    question = details.get("asked") or f"{event.question.family}, {method_title(event.question.method)}"
    row = {
        "id": secrets.token_hex(6),
        "dataset": dataset,
        "release": event.key,
        "asked_by": analyst,
        "asked": datetime.now(UTC).isoformat(),
        "question": str(question)[:_MAX_QUESTION],
        "cost": event.statement,
    }
    driver.insert("service_approval", [row])
    return str(row["id"])


def _close(driver: Driver, approval_id: str) -> bool:
    end = "UPDATE service_approval SET closed = :now WHERE id = :id AND closed IS NULL"
    return bool(driver.run(end, {"id": approval_id, "now": datetime.now(UTC).isoformat()}))


def _is_open(row: Mapping[str, Any]) -> bool:
    """Return whether a request or approval has not expired.  An approval also needs its steward's key to be valid."""
    now = datetime.now(UTC)
    if row["approved_by"] is None:
        return now - datetime.fromisoformat(row["asked"]) < LIFETIME
    if now >= datetime.fromisoformat(row["expires"]):
        return False
    if row["key_scope"] is None:  # approved in a session without a key
        return bool(row["sessions"])
    return (
        row["key_revoked"] is None
        and row["key_scope"] == Scope.STEWARD
        and now < datetime.fromisoformat(row["key_expires"])
    )


def _as_approval(row: Mapping[str, Any]) -> Approval:
    end = row["expires"] or (datetime.fromisoformat(row["asked"]) + LIFETIME).isoformat()
    return Approval(
        row["id"], row["dataset"], row["asked_by"], row["asked"], row["question"], row["cost"], row["approved_by"], end
    )


_CACHE_SECONDS = 2.0  # a worker sees new terms and grants within this time


@dataclass(frozen=True)
class DatasetTerms:
    """The terms of a dataset.  Losses are texts in the form of a ledger's limit.

    Attributes:
        granted_only: whether only analysts with a grant may ask; otherwise every holder of a key may.
        default_cap: the cap of an analyst without one; None: no cap.
        most: the largest loss of one question or release; None: the rest of the budget.
        approval_above: the largest loss without the approval of a second steward; None: any loss.
    """

    granted_only: bool = False
    default_cap: str | None = None
    most: str | None = None
    approval_above: str | None = None


class Grants:
    """The terms and grants of all datasets, in a prepared store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cache: dict[
            str, tuple[float, DatasetTerms, Mapping[str, bool]]
        ] = {}  # the first is the time of the lookup

    def terms(self, dataset: str) -> DatasetTerms:
        """Return the terms of a dataset."""
        return self._find(dataset)[0]

    def set_terms(self, dataset: str, terms: DatasetTerms, *, by: Actor | None = None) -> None:
        """Replace the terms of a dataset; other workers follow within two seconds."""
        row = {"dataset": dataset, "granted_only": int(terms.granted_only)}
        with self._store.founding() as driver:
            before = _terms(driver, dataset)
            driver.run("DELETE FROM service_terms WHERE dataset = :dataset", {"dataset": dataset})
            limits = {"default_cap": terms.default_cap, "most": terms.most, "approval_above": terms.approval_above}
            driver.insert("service_terms", [{**row, **limits}])
            record(driver, Change(ActionKind.TERMS, dataset, asdict(before), asdict(terms)), by)
        self._cache.pop(dataset, None)

    def let_in(self, dataset: str, analyst: str, *, by: Actor | None = None) -> None:
        """Grant a dataset to an analyst."""
        self._write(dataset, analyst, shut_out=False, by=by)

    def shut_out(self, dataset: str, analyst: str, *, by: Actor | None = None) -> None:
        """Exclude an analyst from a dataset under any terms."""
        self._write(dataset, analyst, shut_out=True, by=by)

    def let_back(self, dataset: str, analyst: str, *, by: Actor | None = None) -> None:
        """End the exclusion of an analyst; do nothing for others."""
        change = (
            "UPDATE service_grant SET shut_out = 0 WHERE dataset = :dataset AND analyst = :analyst AND shut_out = 1"
        )
        with self._store.founding() as driver:  # this worker may not know of it yet
            if driver.run(change, {"dataset": dataset, "analyst": analyst}):
                record(driver, _change(dataset, analyst, False, True), by)
        self._cache.pop(dataset, None)

    def analysts(self, dataset: str) -> Mapping[str, bool]:
        """Return the analysts with a grant (True) or an exclusion (False)."""
        return self._find(dataset)[1]

    def admits(self, dataset: str, analyst: str) -> bool:
        """Return whether an analyst may ask a dataset."""
        terms, grants = self._find(dataset)
        return grants.get(analyst, not terms.granted_only)

    def refuse(self, ledger: Ledger, analyst: str, loss: Loss | None = None) -> None:
        """Refuse an analyst, or the loss of one question.  A new analyst gets the default cap.

        Raises:
            RefusalError: the dataset is not granted to the analyst, or one question may not cost that much.
        """
        if not self.admits(ledger.dataset, analyst):
            raise RefusalError(
                "not-granted", "You have no access to this dataset", 403, "ask a steward to grant it to your name"
            )
        terms = self.terms(ledger.dataset)
        most = limit_of(terms.most)
        if loss is not None and most is not None and not most.admits(NOTHING, loss.charge):
            raise RefusalError(
                "question-too-dear",
                "The question costs more than is allowed",
                403,
                f"a question or release of this dataset may cost at most {most}; state a smaller loss",
            )
        if loss is not None and terms.default_cap is not None and analyst not in ledger.caps():
            cap = limit_of(terms.default_cap)
            assert cap is not None  # only an empty text has none
            ledger.set_first_cap(analyst, cap)

    def _write(self, dataset: str, analyst: str, *, shut_out: bool, by: Actor | None) -> None:
        key = {"dataset": dataset, "analyst": analyst}
        with self._store.founding() as driver:
            before = _grants(driver, dataset).get(analyst)
            driver.run("DELETE FROM service_grant WHERE dataset = :dataset AND analyst = :analyst", key)
            driver.insert("service_grant", [{**key, "shut_out": int(shut_out)}])
            record(driver, _change(dataset, analyst, before, not shut_out), by)
        self._cache.pop(dataset, None)

    def _find(self, dataset: str) -> tuple[DatasetTerms, Mapping[str, bool]]:
        now = time.monotonic()
        time_read, terms, grants = self._cache.get(dataset, (0.0, DatasetTerms(), {}))
        if dataset not in self._cache or now - time_read > _CACHE_SECONDS:
            with self._store.reading() as driver:
                terms, grants = _terms(driver, dataset), _grants(driver, dataset)
            self._cache[dataset] = (now, terms, grants)
        return terms, grants


def _change(dataset: str, analyst: str, before: bool | None, after: bool) -> Change:  # noqa: FBT001
    """Return the change of a grant for the audit log: admitted (True), excluded (False) or neither (None)."""
    former, new = ({"analyst": analyst, "let_in": admitted} for admitted in (before, after))
    return Change(ActionKind.GRANT, dataset, former, new)


def _terms(driver: Driver, dataset: str) -> DatasetTerms:
    row = driver.record("SELECT * FROM service_terms WHERE dataset = :dataset", {"dataset": dataset})
    if row is None:
        return DatasetTerms()
    return DatasetTerms(bool(row["granted_only"]), row["default_cap"], row["most"], row["approval_above"])


def _grants(driver: Driver, dataset: str) -> dict[str, bool]:
    rows: list[tuple[Any, ...]] = driver.rows(
        "SELECT analyst, shut_out FROM service_grant WHERE dataset = :dataset ORDER BY analyst", {"dataset": dataset}
    )
    return {analyst: not shut_out for analyst, shut_out in rows}
