"""The sign-off page of answers: one answer, or all answers of a ledger."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.errors import InputError, interval_digits, pluralize
from sfumato.evaluate.stated_claims import parse_stated_loss
from sfumato.report.evaluation_page import journal_rows
from sfumato.report.sign_off.ledger_record import (
    NO_LEDGER,
    LedgerRecord,
    entry_numbered,
    promise_source,
    refuse_other_release,
    right_guesses,
)
from sfumato.report.sign_off.sign_off_page import (
    NOT_EVALUATED,
    NOT_PROTECTED,
    ONE_ROW,
    Check,
    Overleaf,
    Purpose,
    SignOff,
    Tile,
    Tone,
    attack_tile,
    guaranteed_tile,
    guess_sentences,
    ordered_checks,
    points_to_judge,
)
from sfumato.strict_documents import read_json

if TYPE_CHECKING:
    from sfumato.ledger import Entry
    from sfumato.privacy.loss import Loss

_FAMILY = "query"
_MOST = 400  # lines overleaf


@dataclass(frozen=True)
class SignedAnswer:
    """An answer that a page is about.

    Attributes:
        name: name of the file or of the answer.
        digest: SHA-256 of the file; empty if there is none.
        guarantee: the guarantee that it states.
        loss: the loss that it states.
        provenance: method, parameters, domain and number of the journal entry.
        lines: key, column, estimate, and both ends of the interval, as text.
        widest: half of the widest interval.
        confidence: the confidence of the intervals.
    """

    name: str
    digest: str
    guarantee: str
    loss: Loss
    provenance: Mapping[str, Any]
    lines: tuple[tuple[str, ...], ...]
    widest: float
    confidence: float

    @property
    def unit(self) -> str:
        """The unit that the guarantee protects."""
        return self.guarantee.removeprefix(f"{self.loss.promise} for ").removeprefix("adding or removing ")


def answer_file(path: Path) -> SignedAnswer:
    """Return the answer that ``sfumato query --json`` printed.

    Raises:
        InputError: the file holds no answer, or its guarantee contradicts its loss.
    """
    try:
        content = path.read_bytes()
        return signed_answer(read_json(content), path.name, hashlib.sha256(content).hexdigest())
    except (OSError, KeyError, TypeError, ValueError, AttributeError, InputError) as error:
        reason = f": {error}" if isinstance(error, InputError) else ""
        raise InputError(f"{path} is no answer that 'sfumato query --json' printed{reason}", culprit=path) from None


def signed_answer(document: Mapping[str, Any], name: str, digest: str = "") -> SignedAnswer:
    """Return an answer from its JSON values.

    Raises:
        InputError: the guarantee contradicts the loss, or an interval is none.
        KeyError, TypeError, ValueError: the values are no answer.
    """
    guarantee, provenance = str(document["guarantee"]), document["provenance"]
    loss = parse_stated_loss(provenance["parameters"]["loss"])
    protects = guarantee.removeprefix(f"{loss.promise} for adding or removing ")
    if protects != "one row" and not protects.startswith("all rows of one "):
        raise InputError("its guarantee and its loss contradict each other")
    cells = [
        (", ".join(map(str, row["key"])) or "all rows", str(column), value)
        for row in document["rows"]
        for column, value in zip(document["columns"], row["values"], strict=True)
    ]
    numbers = [(float(value["estimate"]), float(value["low"]), float(value["high"])) for _, _, value in cells]
    lines = tuple(
        (key, column, *interval_digits(*three, ",")) for (key, column, _), three in zip(cells, numbers, strict=True)
    )
    widest, confidence = max((high - low) / 2 for _, low, high in numbers), float(document["confidence"])
    if not (0 < confidence < 1 and all(math.isfinite(number) for three in numbers for number in three)):
        raise InputError("it states an interval that is none")
    return SignedAnswer(name, digest, guarantee, loss, provenance, lines, widest, confidence)


def choose_answers(journal: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the answers of a journal.

    Raises:
        InputError: the journal has no answer to a query.
    """
    entries = tuple(each for each in journal if each.family == _FAMILY and each.charge is not None)
    if not entries:
        raise InputError("the ledger holds no answer to a query")
    return entries


def choose_answer(answer: SignedAnswer, journal: Sequence[Entry]) -> tuple[Entry]:
    """Return the entry of an answer.

    Raises:
        InputError: the ledger has no such answer, or one to another question.
    """
    entry = entry_numbered(journal, answer.provenance.get("journal_entry"))
    refuse_other_release(entry, answer.guarantee, answer.provenance.get("domain"))
    if entry.question.parameters != {"domain": answer.provenance.get("domain"), **answer.provenance["parameters"]}:
        raise InputError(f"entry {entry.number} of the ledger is another question than that of the file")
    return (entry,)


def answers_sign_off(name: str, record: LedgerRecord, *, purpose: Purpose) -> SignOff:
    """Return the page of all answers of a ledger.

    Args:
        name: name of the ledger.
        record: its entries that are answers.
        purpose: the recipients and the purpose.
    """
    account, charge, answers = record.account, record.charge, len(record.releases)
    assert account.limit is not None  # a dataset has a limit
    unit = next((each.unit for each in record.releases if each.unit is not None), None)
    protected = "one row" if unit is None else str(unit).removeprefix("adding or removing ")
    promise, right = account.limit.guarantee(charge), right_guesses(charge)
    listed = tuple(
        (str(entry.number), entry.time[:10], str(row["asked"]), record.share_of(entry))
        for entry, row in zip(record.releases, journal_rows(record.releases, account.limit), strict=True)
    )
    numbers = Check(
        "The ledger holds the noisy tables of these answers; the numbers as sent were not compared", to_judge=True
    )
    accuracy = Tile("Accuracy", NOT_EVALUATED, "The ledger holds no intervals: each answer states its own.", Tone.NONE)
    risk = attack_tile((), "set of answers")
    more = f"; the first {_MOST} of {answers:,}" if answers > _MOST else ""
    return SignOff(
        title=f"Answers of {name}",
        kind="Answers to queries",
        subtitle=f"{pluralize(answers, 'answer')} of a ledger",
        requested_by=purpose.requested_by,
        tiles=(
            guaranteed_tile(f"Differential privacy, {promise}, for {protected}.", right),
            accuracy,
            risk,
        ),
        content=(("Content", f"{pluralize(answers, 'answer')} with noise, listed overleaf"), *purpose.terms()),
        guarantee=guess_sentences(right, protected, "answers"),
        right_guesses=right,
        not_protected=(*((ONE_ROW,) if unit is None or unit.column is None else ()), *NOT_PROTECTED),
        budget=record.budget(),
        accuracy=(),
        checks=ordered_checks(
            *record.checks(), numbers, *points_to_judge((accuracy, risk), purpose=purpose, right=right)
        ),
        digest="",
        head=record.head,
        internal=False,
        overleaf=(Overleaf(f"Questions{more}", ("Entry", "Day", "Question", "Share of the budget"), listed[:_MOST]),),
    )


def answer_sign_off(answer: SignedAnswer, *, purpose: Purpose, record: LedgerRecord | None = None) -> SignOff:
    """Return the page of one answer.

    Args:
        answer: the answer.
        purpose: the recipients and the purpose.
        record: its entry in the ledger; None: no ledger was given.
    """
    right = answer.loss.right_guesses()
    sure = f"{100 * answer.confidence:g} %"
    (privacy, checks), risk = _checked(answer, record), attack_tile((), "answer")
    many = len(answer.lines)
    more = f"; the first {_MOST} of {many:,}" if many > _MOST else ""
    widest = f"\N{PLUS-MINUS SIGN} {answer.widest:,.4g}"
    intervals = f"The file states an interval with each number, {sure} each. The widest is {widest}."
    return SignOff(
        title=answer.name,
        kind="Answer to a query",
        subtitle=pluralize(many, "number"),
        requested_by=purpose.requested_by,
        tiles=(privacy, Tile("Accuracy", "Stated", intervals, Tone.NONE), risk),
        content=(("Content", f"{pluralize(many, 'number')} with noise, listed overleaf"), *purpose.terms()),
        guarantee=guess_sentences(right, answer.unit, "answer", unconfirmed=promise_source(record, "answer")),
        confirmed=False,
        right_guesses=right,
        not_protected=(*((ONE_ROW,) if answer.unit == "one row" else ()), *NOT_PROTECTED),
        budget=None if record is None else record.budget(confirmed=False),
        accuracy=(),
        checks=ordered_checks(*checks, *points_to_judge((risk,), purpose=purpose, right=right)),
        digest=answer.digest,
        head="" if record is None else record.head,
        internal=False,
        overleaf=(
            Overleaf(
                f"Numbers with {sure} intervals{more}",
                ("Group", "Column", "Estimate", "From", "To"),
                tuple(islice(answer.lines, _MOST)),
            ),
        ),
    )


def _checked(answer: SignedAnswer, record: LedgerRecord | None) -> tuple[Tile, tuple[Check, ...]]:
    """Return the tile of the guarantee, and the checks."""
    stated = f"Differential privacy, {answer.loss}, for {answer.unit}."
    numbers = Check("The numbers were not compared with the ledger", to_judge=True)
    if record is None:
        return Tile("Privacy", "Stated, not checked", f"{stated} No ledger was given.", Tone.CARE), (NO_LEDGER, numbers)
    number = record.entry.number
    matched = f"{stated} Entry {number} states the same guarantee; the numbers were not compared."
    same = Check(f"The stated guarantee, description and question equal those of entry {number}")
    return Tile("Privacy", "Stated, not matched", matched, Tone.CARE), (*record.checks(), same, numbers)
