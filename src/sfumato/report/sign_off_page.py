"""The sign-off page of a release on which a privacy officer decides.

A tile without figures reads "Not evaluated".  Nothing on the page calls a release safe or anonymous.  All text is
escaped, because any program may have written the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from importlib import resources
from typing import TYPE_CHECKING, Any

from sfumato.errors import InputError, pluralize
from sfumato.evaluate.stated_claims import parse_stated_loss
from sfumato.evaluate.verdicts import COLUMN, THRESHOLD_SET, Judgement, Threshold, Verdict, worst
from sfumato.ledger import Entry, Kind
from sfumato.privacy.loss import NOTHING, Charge, Loss

if TYPE_CHECKING:
    from sfumato.ledger import Account
    from sfumato.synthesize.codebook.codebook import Codebook

PAIR = Threshold("Measured pairs of columns", 0.05, 0.2)
NOT_EVALUATED = "Not evaluated"
_BAR = 380  # width of a drawing
_EXACT = 1e-9  # error of a double, which is not rounded up
_NAMED = 3  # pairs that a line names
_NOT_PROTECTED = (
    "Facts about a whole group. The file is meant to show them.",
    "The description of the table (columns, values, bounds). It is published.",
    "People who are also in a release outside this ledger.",
)


class Tone(StrEnum):
    """The color of a tile or a verdict."""

    GOOD = "good"
    CARE = "care"
    BAD = "bad"
    NONE = "none"


_TONES = {
    Verdict.GOOD: Tone.GOOD,
    Verdict.NO_LEAK: Tone.GOOD,
    Verdict.WITH_CARE: Tone.CARE,
    Verdict.LEAK: Tone.CARE,
    Verdict.NOT_FOR_USE: Tone.BAD,
    Verdict.BROKEN: Tone.BAD,
    Verdict.UNKNOWN: Tone.NONE,
}


@dataclass(frozen=True)
class Tile:
    """A conclusion at the top of the page, with one sentence about it."""

    label: str
    conclusion: str
    sentence: str
    tone: Tone


@dataclass(frozen=True)
class Check:
    """A fact that was checked, or one that needs the officer's judgment."""

    text: str
    to_judge: bool = False


_EVALUATION = Check("The verdicts of the evaluation are those of its file; they were not computed again", to_judge=True)


@dataclass(frozen=True)
class Budget:
    """Shares of the limit, in its own measure, and the sentences beside them."""

    earlier: float
    release: float
    later: float
    left: float
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Purpose:
    """The words of the person who asks for the signature: recipients, purpose and the own name; each may be empty."""

    recipients: str = ""
    purpose: str = ""
    requested_by: str = ""


@dataclass(frozen=True)
class LedgerRecord:
    """The entry of a release in its ledger, with all entries of the dataset, its account and its last hash."""

    entry: Entry
    entries: Sequence[Entry]
    account: Account
    head: str


@dataclass(frozen=True, kw_only=True)
class SignOff:
    """The content of a sign-off page.

    Attributes:
        title: name of the file.
        subtitle: size of the release, and the person who asks.
        tiles: privacy, accuracy and measured risk.
        content: what is released to whom, as terms with their texts.
        guarantee: sentences.
        right_guesses: largest chance that an observer of the file guesses rightly whether a unit is in the table, which
            was even before; None: there is no guarantee.
        not_protected: sentences.
        budget: None without a ledger.
        accuracy: judged questions.
        risk: judged attacks; empty: none was run.
        checks: facts, those to judge last.
        digest: SHA-256 of the file.
        head: last hash of the ledger, or empty.
        version: of Sfumato that made the file.
        internal: whether it has figures that were computed from the protected table.
    """

    title: str
    subtitle: str
    tiles: tuple[Tile, ...]
    content: tuple[tuple[str, str], ...]
    guarantee: tuple[str, ...]
    right_guesses: float | None
    not_protected: tuple[str, ...]
    budget: Budget | None
    accuracy: tuple[Judgement, ...]
    risk: tuple[Judgement, ...]
    checks: tuple[Check, ...]
    digest: str
    head: str
    version: str
    internal: bool

    @property
    def to_judge(self) -> int:
        """The number of checks that need judgment."""
        return sum(check.to_judge for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """Return the conclusions as JSON values."""
        return {
            "file": self.title,
            "sha256": self.digest,
            "internal": self.internal,
            "tiles": {tile.label: tile.conclusion for tile in self.tiles},
            "right_guesses": self.right_guesses,
            "accuracy": [each.to_json() for each in self.accuracy],
            "risk": [each.to_json() for each in self.risk],
            "checks": [{"text": each.text, "to_judge": each.to_judge} for each in self.checks],
        }


def sign_off_page(
    name: str,
    digest: str,
    book: Codebook,
    *,
    purpose: Purpose,
    record: LedgerRecord | None = None,
    verdicts: Sequence[Judgement] | None = None,
) -> SignOff:
    """Return the page of a synthetic file.

    Args:
        name: name of the file.
        digest: its SHA-256.
        book: its codebook.
        purpose: for whom and what it is released.
        record: its entry in the ledger; None: no ledger was given.
        verdicts: those of an evaluation of this file, computed from the protected table; None: not evaluated.

    Raises:
        InputError: the codebook contradicts itself.
    """
    _refuse_contradiction(book)
    attacks = [each for each in verdicts or () if each.is_risk]
    scores = [each for each in verdicts or () if not each.is_risk]
    accuracy = (*_stated_accuracy(book), *scores)
    evaluation = () if verdicts is None else (_EVALUATION,)
    checks = sorted((*_checks(record), *evaluation), key=lambda check: check.to_judge)
    by = f", requested by {purpose.requested_by}" if purpose.requested_by else ""
    return SignOff(
        title=name,
        subtitle=f"{pluralize(book.rows, 'synthetic row')}, {pluralize(len(book.columns), 'column')}{by}",
        tiles=(_privacy_tile(book, checked=record is not None), _accuracy_tile(accuracy), _risk_tile(attacks)),
        content=_content(book, purpose),
        guarantee=_guarantee(book),
        right_guesses=_right_guesses(book),
        not_protected=(*_unit_limits(book), *_NOT_PROTECTED),
        budget=None if record is None else _budget(record),
        accuracy=accuracy,
        risk=tuple(attacks),
        checks=tuple(checks),
        digest=digest,
        head="" if record is None else record.head,
        version=book.version,
        internal=verdicts is not None,
    )


def record_of(book: Codebook, entries: Sequence[Entry], account: Account, head: str) -> LedgerRecord:
    """Return the entry of a release in the journal of its dataset.

    Raises:
        InputError: the ledger has no such release, or one with another guarantee or domain.
    """
    entry = next((each for each in entries if each.number == book.journal_entry and each.kind is Kind.RELEASE), None)
    if entry is None:
        raise InputError(f"the ledger has no release as entry {book.journal_entry}; name the ledger of this file")
    parameters = entry.question.parameters
    if entry.statement != book.guarantee.text or parameters.get("domain") != book.domain:
        raise InputError(
            f"entry {entry.number} of the ledger does not match the file: it states {entry.statement!r}, and the file "
            f"{book.guarantee.text!r}, or their descriptions of the table differ",
            culprit=entry.number,
        )
    return LedgerRecord(entry, entries, account, head)


def render_sign_off(page: SignOff) -> str:
    """Return the page as one HTML document that prints on one A4 page and runs no script.

    Raises:
        MissingExtraError: the extra ``plots`` is not installed.
    """
    from sfumato.extras import require

    require("plots", "the sign-off page")
    from jinja2 import Environment

    template = resources.files("sfumato.report").joinpath("sign_off_page.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["tone"] = lambda verdict: _TONES[verdict].value
    environment.filters["percent"] = _percent
    environment.filters["percent_up"] = _percent_up
    return environment.from_string(template).render(page=page, width=_BAR, thresholds=THRESHOLD_SET)


def _percent_up(share: float) -> str:
    """Return a share in percent, rounded up: a bound that is rounded down would be false.

    >>> _percent_up(0.7310586), _percent_up(0.99995), _percent_up(0.5)
    ('73.2 %', '100 %', '50 %')
    """
    return f"{math.ceil(1000 * share - _EXACT) / 10:g} %"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 or share == 0 else "< 1 %"  # noqa: PLR2004


def _refuse_contradiction(book: Codebook) -> None:
    """Refuse a codebook whose fields state another guarantee than its text, which alone is compared with a ledger.

    Raises:
        InputError: the fields and the text differ.
    """
    guarantee, loss = book.guarantee, _loss(book)
    promised = loss is None or guarantee.text == f"{loss.promise} for {guarantee.neighbours}"
    bound = re.fullmatch(r"adding or removing all rows of one (.+) \(at most ([0-9]+)(.*)\)", guarantee.neighbours)
    unit = "one row" if bound is None else f"at most {pluralize(int(bound[2]), 'row')} of one {bound[1]}{bound[3]}"
    if not promised or guarantee.unit != unit or (loss is None) is guarantee.text.endswith(guarantee.neighbours):
        raise InputError("the codebook of the file contradicts itself about its guarantee: it is damaged or forged")


def _privacy_tile(book: Codebook, *, checked: bool) -> Tile:
    if not book.guarantee.loss:
        return Tile("Privacy", "No guarantee", book.guarantee.text, Tone.BAD)
    loss = ", ".join(f"{name} {value}" for name, value in book.guarantee.loss.items())
    sentence = f"Differential privacy, {loss}, for {book.guarantee.unit}."
    if checked:
        return Tile("Privacy", "Guaranteed", sentence, Tone.GOOD)
    return Tile("Privacy", "Stated, not checked", f"{sentence} No ledger was given.", Tone.CARE)


def _accuracy_tile(judgements: Sequence[Judgement]) -> Tile:
    good = sum(each.verdict is Verdict.GOOD for each in judgements)
    verdict = worst(judgements)
    weakest = next((each.question for each in judgements if each.verdict is verdict), "")
    sentence = f"{good} of {pluralize(len(judgements), 'question')} answered well."
    if verdict is Verdict.GOOD:
        return Tile("Accuracy", verdict.value, sentence, Tone.GOOD)
    conclusion, tone = ("Good with limits", Tone.CARE) if good else (verdict.value, _TONES[verdict])
    return Tile("Accuracy", conclusion, f"{sentence} Weakest: {weakest[:1].lower()}{weakest[1:]}.", tone)


def _risk_tile(attacks: Sequence[Judgement]) -> Tile:
    if not attacks:
        return Tile("Risk measured", NOT_EVALUATED, "No attack was run on this file.", Tone.NONE)
    verdict = worst(attacks)
    sentence = {
        Verdict.NO_LEAK: "found no difference beyond chance between people in the table and others",
        Verdict.LEAK: "were run, and at least one did better on people in the table than on others",
        Verdict.BROKEN: "were run, and at least one did better than the guarantee allows",
    }.get(verdict, "were run on too few people to judge them")
    return Tile("Risk measured", verdict.value, f"{pluralize(len(attacks), 'attack')} {sentence}.", _TONES[verdict])


def _content(book: Codebook, purpose: Purpose) -> tuple[tuple[str, str], ...]:
    stated = [("Recipients", purpose.recipients), ("Purpose", purpose.purpose)]
    return (
        ("Content", f"Rows drawn from a model ({book.method}) that was fitted to noisy counts. No row is a person."),
        ("Source", f"A table of about {pluralize(book.table_rows, 'row')}"),
        *((term, text or "Not stated") for term, text in stated),
    )


def _loss(book: Codebook) -> Loss | None:
    """Return the loss that a file states; None if it states none.

    Raises:
        InputError: it states something else.
    """
    if not book.guarantee.loss:
        return None
    try:
        return parse_stated_loss(book.guarantee.loss)
    except (KeyError, TypeError, ValueError, InputError):
        raise InputError("the codebook of the file states a loss that is none: it is damaged or forged") from None


def _right_guesses(book: Codebook) -> float | None:
    """Return (1 + advantage) / 2, which the loss bounds for every observer."""
    loss = _loss(book)
    return None if loss is None else (1 + loss.advantage_bound()) / 2


def _guarantee(book: Codebook) -> tuple[str, ...]:
    right = _right_guesses(book)
    if right is None:
        return (book.guarantee.text,)
    return (
        f"The guarantee limits what the file tells about one unit of the table: {book.guarantee.unit}.",
        "Suppose that an observer guesses whether the unit is in the table, and that both are equally likely.",
        f"With the file, the guess is right with a chance of at most {_percent_up(right)}.",
        "This holds whatever else the observer knows.",
    )


def _unit_limits(book: Codebook) -> tuple[str, ...]:
    if "one row" in book.guarantee.unit:
        return ("A person with several rows: the guarantee is for one row.",)
    return ()


def _stated_accuracy(book: Codebook) -> tuple[Judgement, ...]:
    """Return verdicts on the errors that the file itself states, with 95 % confidence."""
    rows = max(book.table_rows, 1)
    known = [column for column in book.columns if column.worst is not None]
    gap, name = max(((column.worst or 0) / rows, column.name) for column in known) if known else (math.nan, "")
    figure = "not measured" if math.isnan(gap) else f"within {gap:.1%} of rows with 95 % confidence: {name}"
    columns = Judgement(f"{COLUMN.question}, stated", figure, f"good up to {COLUMN.good:.0%}", COLUMN.verdict(gap))
    measured = [pair for pair in book.pairs if pair.measured and pair.misplaced is not None]
    if not measured:
        unknown = Judgement(f"{PAIR.question}, stated", "no pair was measured", "error unknown", Verdict.UNKNOWN)
        return (columns, unknown) if len(book.columns) > 1 else (columns,)
    wrong = [pair for pair in measured if (pair.misplaced or 0) > PAIR.with_care]
    largest = max(pair.misplaced or 0 for pair in measured)
    named = ", ".join(" \N{MULTIPLICATION SIGN} ".join(pair.attributes) for pair in wrong[:_NAMED])
    more = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
    compared = f"{len(wrong)} not for use: {named}{more}" if wrong else f"good up to {PAIR.good:.0%}"
    figure = f"within {largest:.0%} of rows in {pluralize(len(measured), 'pair')} with 95 % confidence"
    return columns, Judgement(f"{PAIR.question}, stated", figure, compared, PAIR.verdict(largest))


def _budget(record: LedgerRecord) -> Budget:
    account, number = record.account, record.entry.number
    limit = account.limit
    assert limit is not None  # of a dataset
    charges = [(each.number, each.charge or NOTHING) for each in record.entries if each.kind is Kind.RELEASE]
    earlier = _share(limit, [charge for place, charge in charges if place < number])
    later = _share(limit, [charge for place, charge in charges if place > number])
    own = _share(limit, [record.entry.charge or NOTHING])
    left = float(account.share_left or 0)
    return Budget(
        earlier,
        own,
        later,
        left,
        (
            f"Limit for ever: {limit}.",
            f"All releases of this ledger together: {account.guarantee}.",
        ),
    )


def _share(limit: Loss, charges: Sequence[Charge]) -> float:
    amounts = [limit.amount(charge) or Fraction(0) for charge in charges]
    return float(sum(amounts, Fraction(0)) / limit.most) if limit.most else 0.0


def _checks(record: LedgerRecord | None) -> tuple[Check, ...]:
    """Return what was checked, and after it what the officer has to judge."""
    rows = Check("The rows were not compared with the ledger; their hash stands below", to_judge=True)
    if record is None:
        missing = "No ledger was given: guarantee, budget, earlier releases and accepted description are not checked"
        return Check(missing, to_judge=True), rows
    number = record.entry.number
    return (
        Check(f"Loss charged before anything was computed (entry {number} of the ledger)"),
        Check("Ledger verified: no entry was changed, removed or inserted"),
        Check(f"Guarantee and description of the table match entry {number}"),
        *_acceptance(record.entry),
        rows,
    )


def _acceptance(entry: Entry) -> tuple[Check, ...]:
    if entry.accepted in (None, "nobody"):
        return (Check("The journal names nobody who accepted the description of the table", to_judge=True),)
    accepted = Check(f"Description accepted by {entry.accepted}")
    if entry.confirmed is None:
        return (accepted,)
    judged = entry.confirmed.startswith("confirmed ") and entry.confirmed != "confirmed "
    return accepted, Check(f"The same person {entry.confirmed}", to_judge=judged)
