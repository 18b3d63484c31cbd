"""The sign-off page of a file, a folder or a ledger, by what it is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.report.sign_off.ledger_record import Choice, LedgerRecord, open_record
from sfumato.report.sign_off.sign_off_page import Purpose, SignOff, verdicts_of_file
from sfumato.report.sign_off.synthetic_sign_off import choose_entry, signed_file, synthetic_sign_off

if TYPE_CHECKING:
    from sfumato.ledger import Ledger


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a page is checked against.

    Attributes:
        ledger: an open ledger, or the path of its file, or its URL; None: the page states what the release states.
        dataset: its dataset, if the ledger is not open.
        evaluation: the output of ``sfumato evaluate --json`` about the file.
    """

    ledger: Ledger | str | Path | None = None
    dataset: str = "default"
    evaluation: Path | None = None

    def record(self, choose: Choice) -> LedgerRecord | None:
        """Return the entries that ``choose`` takes; None without a ledger."""
        return None if self.ledger is None else open_record(self.ledger, self.dataset, choose)


def file_sign_off(path: Path, purpose: Purpose, evidence: Evidence) -> SignOff:
    """Return the page of a released file.

    Raises:
        InputError: it is no release, or it and the evidence contradict each other.
    """
    signed = signed_file(path)
    verdicts = None
    if evidence.evaluation is not None:
        verdicts = verdicts_of_file(evidence.evaluation, signed.name, signed.digest)
    record = evidence.record(partial(choose_entry, signed.book))
    return synthetic_sign_off(signed, purpose=purpose, record=record, verdicts=verdicts)
