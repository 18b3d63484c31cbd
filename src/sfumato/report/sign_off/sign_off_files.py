"""The sign-off page of a release, a file, a folder or a ledger, by its kind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.errors import InputError
from sfumato.notebook_html import HtmlPage
from sfumato.report.sign_off.ledger_record import EntryChoice, LedgerRecord, open_record
from sfumato.report.sign_off.sign_off_page import (
    Check,
    Purpose,
    SignOff,
    ordered_checks,
    render_sign_off,
    verdicts_of_file,
)
from sfumato.synthesize.codebook.codebook import KEY

if TYPE_CHECKING:
    from sfumato.evaluate.verdicts import Judgement
    from sfumato.ledger import Ledger

_SQLITE = b"SQLite format 3\0"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The sources that a page is checked against.

    Attributes:
        ledger: an open ledger, or the path of its file, or its URL; None: the page states what the release states.
        dataset: its dataset, if the ledger is not open.
        evaluation: the output of ``sfumato evaluate --json`` about the file.
        table: the protected table of an anonymized file, for the risk before anonymization.
    """

    ledger: Ledger | str | Path | None = None
    dataset: str = "default"
    evaluation: Path | None = None
    table: str | None = None

    def record(self, choose: EntryChoice) -> LedgerRecord | None:
        """Return the entries that ``choose`` takes; None without a ledger."""
        return None if self.ledger is None else open_record(self.ledger, self.dataset, choose)

    def verdicts(self, name: str, digest: str) -> list[Judgement] | None:
        """Return the verdicts of the evaluation on a file; None without an evaluation."""
        return None if self.evaluation is None else verdicts_of_file(self.evaluation, name, digest)

    def refuse(self, what: str, *names: str) -> None:
        """Refuse evidence that a kind of release does not use.

        Raises:
            InputError: there is such evidence.
        """
        if given := [f"--{name}" for name in names if getattr(self, name) is not None]:
            raise InputError(f"{what} takes no {' and no '.join(given)}")


def file_sign_off(path: Path, purpose: Purpose, evidence: Evidence) -> SignOff:
    """Return the page of a synthetic file, a folder of linked tables, an anonymized file, an answer, or a ledger.

    Raises:
        InputError: the path is no release, or contradicts the evidence.
    """
    if path.is_dir():
        return _folder(path, purpose, evidence)
    if not path.is_file():
        raise InputError(f"there is no file {path}", culprit=path)
    if path.suffix.lower() == ".json":
        return _answer(path, purpose, evidence)
    with path.open("rb") as file:
        if file.read(len(_SQLITE)) == _SQLITE:
            return _answers(path, purpose, evidence)
    return _synthetic(path, purpose, evidence) if _has_codebook(path) else _anonymized(path, purpose, evidence)


def _has_codebook(path: Path) -> bool:
    """Return whether a file is of a kind that carries a codebook, and carries one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if path.suffix.lower() == ".parquet":
            return KEY in (pq.read_schema(path).metadata or {})
    except (OSError, pa.ArrowException):
        return True  # the reader of codebooks says what is wrong
    return path.suffix.lower() == ".arrow"


def _synthetic(path: Path, purpose: Purpose, evidence: Evidence) -> SignOff:
    from sfumato.report.sign_off.synthetic_sign_off import choose_entry, signed_file, synthetic_sign_off

    evidence.refuse("a synthetic file", "table")
    signed = signed_file(path)
    verdicts = evidence.verdicts(signed.name, signed.digest)
    record = evidence.record(partial(choose_entry, signed.book))
    return synthetic_sign_off(signed, purpose=purpose, record=record, verdicts=verdicts)


def _folder(path: Path, purpose: Purpose, evidence: Evidence) -> SignOff:
    from sfumato.report.sign_off.linked_sign_off import choose_linked, linked_sign_off, signed_folder

    evidence.refuse("a folder of linked tables", "evaluation", "table")
    signed = signed_folder(path)
    return linked_sign_off(signed, purpose=purpose, record=evidence.record(partial(choose_linked, signed)))


def _answer(path: Path, purpose: Purpose, evidence: Evidence) -> SignOff:
    from sfumato.report.sign_off.answers_sign_off import answer_file, answer_sign_off, choose_answer

    evidence.refuse("an answer", "evaluation", "table")
    answer = answer_file(path)
    return answer_sign_off(answer, purpose=purpose, record=evidence.record(partial(choose_answer, answer)))


def _answers(path: Path, purpose: Purpose, evidence: Evidence) -> SignOff:
    from sfumato.report.sign_off.answers_sign_off import answers_sign_off, choose_answers

    evidence.refuse("a ledger", "ledger", "evaluation", "table")
    record = open_record(path, evidence.dataset, choose_answers)
    return answers_sign_off(path.name, record, purpose=purpose)


def _anonymized(path: Path, purpose: Purpose, evidence: Evidence) -> SignOff:
    from sfumato.anonymize.reidentification import assess_table
    from sfumato.report.sign_off.anonymized_sign_off import (
        THRESHOLD,
        anonymized_sign_off,
        candidates,
        matching,
        published_file,
    )

    if evidence.ledger is None:
        raise InputError(
            f"{path} carries no codebook, so it is no synthetic file. If 'sfumato anonymize' wrote it, name its "
            "--ledger, which holds its criteria",
            culprit=path,
        )
    table = published_file(path)
    record = open_record(evidence.ledger, evidence.dataset, partial(candidates, table.columns))
    stated, after, record = matching(table, record)
    before = None
    if evidence.table is not None:
        before = assess_table(evidence.table, quasi=stated.quasi, threshold=THRESHOLD)
    verdicts = evidence.verdicts(table.name, table.digest)
    page = anonymized_sign_off(table, stated, (before, after), purpose=purpose, record=record, verdicts=verdicts)
    if before is None:
        return page
    rows, of = before.rows + before.left_out, stated.facts["rows"]
    text = "Only the number of rows of the table was compared; the risk before may be that of another table"
    if rows != of:
        text = f"The risk before is that of another table: it has {rows:,} rows, and the release was made of {of:,}"
    return replace(page, checks=ordered_checks(*page.checks, Check(text, to_judge=True)))


def draw_release_sign_off(release: Any, purpose: Purpose, evidence: Evidence) -> HtmlPage:  # noqa: ANN401  (any family)
    """Return the page of a release that a method returned.

    Raises:
        InputError: the release and the ledger contradict each other.
        MissingExtraError: the extra ``plots`` is not installed.
    """
    return HtmlPage(render_sign_off(release_sign_off(release, purpose, evidence)), height=1200)


def release_sign_off(release: Any, purpose: Purpose, evidence: Evidence) -> SignOff:  # noqa: ANN401  (any family)
    """Return the content of the page of a release that a method returned."""
    kind = type(release)._report.rpartition(".")[2]  # noqa: SLF001  (the families do not know pages)
    return {"synthetic": _made, "linked": _linked, "answer": _answered, "anonymized": _recoded}[kind](
        release, purpose, evidence
    )


def _made(release: Any, purpose: Purpose, evidence: Evidence) -> SignOff:  # noqa: ANN401
    from sfumato.report.sign_off.synthetic_sign_off import choose_entry, signed_release, synthetic_sign_off

    signed = signed_release(release)
    return synthetic_sign_off(signed, purpose=purpose, record=evidence.record(partial(choose_entry, signed.book)))


def _linked(release: Any, purpose: Purpose, evidence: Evidence) -> SignOff:  # noqa: ANN401
    from sfumato.report.sign_off.linked_sign_off import choose_linked, linked_sign_off, signed_tables

    signed = signed_tables(release.codebook.to_json(), release.statement())
    return linked_sign_off(signed, purpose=purpose, record=evidence.record(partial(choose_linked, signed)))


def _answered(release: Any, purpose: Purpose, evidence: Evidence) -> SignOff:  # noqa: ANN401
    from sfumato.report.sign_off.answers_sign_off import answer_sign_off, choose_answer, signed_answer

    answer = signed_answer(release.to_json(), "Answer")
    return answer_sign_off(answer, purpose=purpose, record=evidence.record(partial(choose_answer, answer)))


def _recoded(release: Any, purpose: Purpose, evidence: Evidence) -> SignOff:  # noqa: ANN401
    from sfumato.report.sign_off.anonymized_sign_off import (
        PublishedTable,
        StatedAnonymization,
        anonymized_sign_off,
        candidates,
        matching,
        source_risk,
    )

    rows = release.to_arrow()
    table = PublishedTable("Anonymized table", "", rows, tuple(rows.column_names))
    record = evidence.record(partial(candidates, table.columns))
    stated = StatedAnonymization.from_question(release.guarantee, release.provenance["parameters"], release.facts)
    after = table.risk(stated.quasi)
    if record is not None:
        stated, after, record = matching(table, record)
    risks = (source_risk(release, stated.quasi), after)
    return anonymized_sign_off(table, stated, risks, purpose=purpose, record=record)
