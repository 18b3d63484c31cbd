"""The entries of releases in their ledger: budget, earlier and later releases, acceptance, and stored answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from sfumato.errors import InputError, budget_percent
from sfumato.ledger import Entry, Kind, Ledger, open_ledger
from sfumato.ledger.database import ledger_url
from sfumato.privacy.loss import NOTHING, Charge, Epsilon, Loss, Rho, total
from sfumato.report.drawing import BudgetShares
from sfumato.report.sign_off.sign_off_page import Budget, Check

if TYPE_CHECKING:
    from sfumato.ledger import Account

EntryChoice: TypeAlias = Callable[[Sequence[Entry]], Sequence[Entry]]
"""Chooses, among the releases of a journal, the entries that a page is about."""

_FROM_TABLE = {"values", "bounds", "days", "points", "bins"}  # kinds of findings that a draft takes from the table
NO_LEDGER = Check(
    "No ledger was given: guarantee, budget, earlier releases and accepted description are not checked", to_judge=True
)


@dataclass(frozen=True)
class LedgerRecord:
    """The entries of some releases in a verified ledger.

    Attributes:
        releases: the entries that the page is about.
        journal: all releases of the dataset.
        account: the account of the dataset.
        head: the last hash of the ledger.
        bodies: the stored answers of ``releases``, by number of the entry.
    """

    releases: tuple[Entry, ...]
    journal: tuple[Entry, ...]
    account: Account
    head: str
    bodies: Mapping[int, bytes]

    @property
    def entry(self) -> Entry:
        """The entry of the only release."""
        (entry,) = self.releases
        return entry

    @property
    def charge(self) -> Charge:
        """The loss of the releases together."""
        return total(each.charge or NOTHING for each in self.releases)

    def budget(self, *, confirmed: bool = True) -> Budget:
        """Return the shares of the limit, and name the entry if it was not confirmed for the release."""
        limit = self.account.limit
        assert limit is not None  # a dataset has a limit
        numbers = {each.number for each in self.releases}
        first = min(numbers)
        others = [each for each in self.journal if each.number not in numbers]
        earlier = _share(limit, [each.charge for each in others if each.number < first])
        later = _share(limit, [each.charge for each in others if each.number > first])
        own = _share(limit, [each.charge for each in self.releases])
        left = float(self.account.share_left or 0)
        why = self.account.why_none
        guarantee = f"none, because {why}" if why else self.account.guarantee
        sentences = (f"Limit for ever: {limit}.", f"Guarantee of all releases of this ledger together: {guarantee}.")
        release = "These answers" if len(numbers) > 1 else "This release"
        release = release if confirmed else f"Entry {first}"
        return Budget(BudgetShares(earlier, own, later, left), sentences, release)

    def share_of(self, entry: Entry) -> str:
        """Return the share of the limit that an entry took, in percent and rounded up."""
        assert self.account.limit is not None  # a dataset has a limit
        return budget_percent(_share(self.account.limit, [entry.charge]), up=True)

    def checks(self) -> tuple[Check, ...]:
        """Return the checks of the releases against the ledger."""
        numbers = [each.number for each in self.releases]
        named = f"entry {numbers[0]}" if len(numbers) == 1 else f"entries {numbers[0]} to {numbers[-1]}"
        charged = (
            Check(f"The ledger has the charge ({named})")
            if all(each.charge is not None for each in self.releases)
            else Check(f"Recorded as {named} of the ledger: no differential privacy, so no loss is charged")
        )
        verified = Check("Ledger verified: all its hashes and sums agree. Compare its last hash with one that you hold")
        acceptances = dict.fromkeys(check for each in self.releases for check in _acceptance(each))
        return (charged, verified, *acceptances)


def open_record(ledger: Ledger | str | Path, dataset: str, choose: EntryChoice) -> LedgerRecord:
    """Verify a ledger and return the entries that ``choose`` takes.

    Args:
        ledger: an open ledger, or the path of its file, or its URL.
        dataset: its dataset, if the ledger is not open.
        choose: takes the entries that the page is about, and refuses a journal without them.

    Raises:
        InputError: ``choose`` refuses the journal.
        LedgerError: there is no such ledger, or it is damaged.
    """
    if not isinstance(ledger, Ledger):
        with open_ledger(ledger_url(ledger), dataset=dataset, limit=None) as opened:
            return open_record(opened, dataset, choose)
    head = ledger.verified().head
    journal = tuple(each for each in ledger.journal() if each.kind is Kind.RELEASE)
    releases = tuple(choose(journal))
    bodies: dict[int, bytes] = {}
    for entry in releases:
        method = [(entry.family, entry.method)]
        stored = ledger.answers(method, entry.question.dataset_version, analyst=None)
        bodies |= {each.number: each.body for each in stored if each.number == entry.number}
    return LedgerRecord(releases, journal, ledger.remaining(), head, bodies)


def entry_numbered(journal: Sequence[Entry], number: int | None) -> Entry:
    """Return the release with a number.

    Raises:
        InputError: the ledger has no such release.
    """
    entry = next((each for each in journal if each.number == number), None)
    if entry is None:
        raise InputError(f"the ledger has no release as entry {number}; name the ledger of this file")
    return entry


def refuse_other_release(entry: Entry, statement: str, domain: object) -> None:
    """Refuse a file that states another guarantee, or another description of the table, than its entry.

    Raises:
        InputError: the guarantees or the descriptions differ.
    """
    if entry.statement != statement or entry.question.parameters.get("domain") != domain:
        raise InputError(
            f"entry {entry.number} of the ledger does not match the file: it states {entry.statement!r}, and the file "
            f"{statement!r}, or their descriptions of the table differ",
            culprit=entry.number,
        )


def promise_source(record: LedgerRecord | None, release: str) -> str:
    """Return who states a guarantee that was not confirmed, as the start of a sentence."""
    return f"The {release} states" if record is None else f"Entry {record.entry.number} of the ledger promises"


def right_guesses(charge: Charge) -> float:
    """Return (1 + advantage) / 2, which the loss bounds for every observer.

    >>> round(right_guesses(Epsilon(1).charge), 4)
    0.7311
    """
    bounds = [1.0]
    if charge.epsilon is not None:
        bounds.append(Epsilon(charge.epsilon).advantage_bound() if charge.epsilon else 0.0)
    bounds.append(Rho(charge.rho).advantage_bound() if charge.rho else 0.0)
    return (1 + min(1.0, min(bounds) + float(charge.delta))) / 2


def _share(limit: Loss, charges: Sequence[Charge | None]) -> float:
    amounts = [limit.amount(charge or NOTHING) or Fraction(0) for charge in charges]
    return float(sum(amounts, Fraction(0)) / limit.most) if limit.most else 0.0


def _acceptance(entry: Entry) -> tuple[Check, ...]:
    """Return checks on the acceptance: the person, the confirmed findings, and the state of the draft."""
    if entry.accepted in (None, "nobody"):
        return (Check("The journal names nobody who accepted the description of the table", to_judge=True),)
    name, _, time = str(entry.accepted).rpartition(", ")
    by = f"Description accepted by {name} on {time[:10]}" if name else f"Description accepted by {entry.accepted}"
    checks: tuple[Check, ...] = (Check(by, public_text="The description of the table was accepted"),)
    match entry.event.details:
        case {"accepted": {"by": str(person), "confirmed": [*kinds]}} if kinds:
            confirmed = f"confirmed {', '.join(map(str, kinds))}; nobody else checked that they are public"
            checks += (Check(f"{person} {confirmed}", to_judge=True, public_text=f"The same person {confirmed}"),)
        case {"accepted": {"edited": bool()}}:
            checks += (Check("The description had no finding that needs to be confirmed"),)
    match entry.event.details:
        case {"accepted": {"edited": True}}:
            return (*checks, Check("The draft of the description was edited before it was accepted"))
        case {"accepted": {"edited": False, "confirmed": [*kinds]}} if _FROM_TABLE & {*map(str, kinds)}:
            taken = ", ".join(kind for kind in map(str, kinds) if kind in _FROM_TABLE)
            draft = f"The draft took {taken} from the table, and nobody edited it before it was accepted"
            return (*checks, Check(draft, to_judge=True))
        case {"accepted": {"edited": False}}:
            return (*checks, Check("The draft of the description was accepted as it was drafted"))
        case _:
            return checks
