"""The sign-off page of a release, a file, a folder or a ledger, by its kind."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from sfumato.domain import Domain, load
from sfumato.errors import DomainError, InputError
from sfumato.ledger import Ledger
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
    from sfumato.vault.release import ReleasedRows

_SQLITE = b"SQLite format 3\0"
_ENDINGS = (".parquet", ".csv", ".arrow")  # of files of rows


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The sources that a page is checked against.

    Attributes:
        ledger: an open ledger, or the path of its file, or its URL; None: the page states what the release states.
        dataset: its dataset, if the ledger is not open.
        evaluation: the output of ``sfumato evaluate --json`` about the file, or about a file of the release.
        table: the protected table of an anonymized file, for the risk before anonymization.
        domain: the accepted description of the table of a synthetic file, or its path; None: the file next to the
            ledger, if it describes that table.
    """

    ledger: Ledger | str | Path | None = None
    dataset: str = "default"
    evaluation: str | Path | None = None
    table: str | None = None
    domain: Domain | Path | None = None

    def described(self, digest: str) -> Domain | None:
        """Return the description with this hash; None if none is given and none lies next to the ledger.

        Raises:
            InputError: the given description has another hash.
            DomainError: the given file is no description.
        """
        given = load(self.domain) if isinstance(self.domain, str | Path) else self.domain
        if given is None:
            return next((each for each in self._near() if each.hash == digest), None)
        if given.hash != digest:
            raise InputError("the given domain is not the description of the table that the release states")
        return given

    def _near(self) -> Iterator[Domain]:
        """Yield the descriptions next to the file of the ledger."""
        if self.ledger is None or isinstance(self.ledger, Ledger) or "://" in str(self.ledger):
            return
        for suffix in (".yaml", ".yml"):
            with suppress(DomainError, InputError):  # there is none, or it describes linked tables
                yield load(Path(self.ledger).with_suffix(suffix))

    def record(self, choose: EntryChoice) -> LedgerRecord | None:
        """Return the entries that ``choose`` takes; None without a ledger."""
        return None if self.ledger is None else open_record(self.ledger, self.dataset, choose)

    def verdicts(self, name: str, digest: str) -> list[Judgement] | None:
        """Return the verdicts of the evaluation on a file; None without an evaluation."""
        return None if self.evaluation is None else verdicts_of_file(Path(self.evaluation), name, [digest])[1]

    def release_verdicts(self, rows: ReleasedRows) -> tuple[str, list[Judgement] | None]:
        """Return the hash of the evaluated file of these rows, and its verdicts; empty and None without an evaluation.

        Raises:
            InputError: the evaluation judges no file with these rows.
        """
        if self.evaluation is None:
            return "", None
        with TemporaryDirectory() as folder:
            places = [Path(folder) / f"release{ending}" for ending in _ENDINGS]
            for place in places:
                rows.write(place)
            digests = [hashlib.sha256(place.read_bytes()).hexdigest() for place in places]
        return verdicts_of_file(Path(self.evaluation), "the file of this release", digests)

    def refuse(self, what: str, *names: str) -> None:
        """Refuse evidence that a kind of release does not use.

        Raises:
            InputError: there is such evidence.
        """
        if given := [name for name in names if getattr(self, name) is not None]:
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
    record = evidence.record(partial(choose_entry, signed))
    return synthetic_sign_off(
        signed, purpose=purpose, record=record, table_domain=evidence.described(signed.book.domain), verdicts=verdicts
    )


def _folder(path: Path, purpose: Purpose, evidence: Evidence) -> SignOff:
    from sfumato.report.sign_off.linked_sign_off import choose_linked, linked_sign_off, signed_folder

    evidence.refuse("a folder of linked tables", "table", "domain")
    signed = signed_folder(path)
    verdicts = evidence.verdicts(signed.name, signed.digest)
    record = evidence.record(partial(choose_linked, signed))
    return linked_sign_off(signed, purpose=purpose, record=record, verdicts=verdicts)


def _answer(path: Path, purpose: Purpose, evidence: Evidence) -> SignOff:
    from sfumato.report.sign_off.answers_sign_off import answer_file, answer_sign_off, choose_answer

    evidence.refuse("an answer", "evaluation", "table", "domain")
    answer = answer_file(path)
    return answer_sign_off(answer, purpose=purpose, record=evidence.record(partial(choose_answer, answer)))


def _answers(path: Path, purpose: Purpose, evidence: Evidence) -> SignOff:
    from sfumato.report.sign_off.answers_sign_off import answers_sign_off, choose_answers

    evidence.refuse("a ledger", "ledger", "evaluation", "table", "domain")
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

    evidence.refuse("an anonymized table", "domain")
    if evidence.ledger is None:
        raise InputError(
            f"{path} carries no codebook. If 'sfumato anonymize' wrote it, name its --ledger, which holds its "
            "criteria. Synthetic rows are signed off as a .parquet or .arrow file",
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
    from sfumato.anonymize.release.anonymized import Anonymized
    from sfumato.query.answer import Answer
    from sfumato.synthesize.linked.linked_release import LinkedRelease
    from sfumato.synthesize.synthetic import Synthetic

    pages: dict[type[Any], Callable[[Any, Purpose, Evidence], SignOff]] = {
        Synthetic: _synthetic_release,
        LinkedRelease: _linked_release,
        Answer: _answer_release,
        Anonymized: _anonymized_release,
    }
    return next(page for family, page in pages.items() if isinstance(release, family))(release, purpose, evidence)


def _synthetic_release(release: Any, purpose: Purpose, evidence: Evidence) -> SignOff:  # noqa: ANN401
    from sfumato.report.sign_off.synthetic_sign_off import choose_entry, signed_release, synthetic_sign_off

    evidence.refuse("a synthetic table", "table")
    signed = signed_release(release)
    digest, verdicts = evidence.release_verdicts(release.rows)
    return synthetic_sign_off(
        replace(signed, digest=digest),
        purpose=purpose,
        record=evidence.record(partial(choose_entry, signed)),
        table_domain=evidence.described(signed.book.domain),
        verdicts=verdicts,
    )


def _linked_release(release: Any, purpose: Purpose, evidence: Evidence) -> SignOff:  # noqa: ANN401
    from sfumato.report.sign_off.linked_sign_off import choose_linked, linked_sign_off, signed_tables

    evidence.refuse("a release of linked tables that is not written to files", "evaluation", "table", "domain")
    signed = signed_tables(release.codebook.to_json(), release.statement())
    return linked_sign_off(signed, purpose=purpose, record=evidence.record(partial(choose_linked, signed)))


def _answer_release(release: Any, purpose: Purpose, evidence: Evidence) -> SignOff:  # noqa: ANN401
    from sfumato.report.sign_off.answers_sign_off import answer_sign_off, choose_answer, signed_answer

    evidence.refuse("an answer", "evaluation", "table", "domain")
    answer = signed_answer(release.to_json(), "Answer")
    return answer_sign_off(answer, purpose=purpose, record=evidence.record(partial(choose_answer, answer)))


def _anonymized_release(release: Any, purpose: Purpose, evidence: Evidence) -> SignOff:  # noqa: ANN401
    from sfumato.report.sign_off.anonymized_sign_off import (
        PublishedTable,
        StatedAnonymization,
        anonymized_sign_off,
        candidates,
        matching,
        source_risk,
    )

    evidence.refuse("an anonymized table", "table", "domain")
    digest, verdicts = evidence.release_verdicts(release.rows)
    rows = release.to_arrow()
    table = PublishedTable("Anonymized table", digest, rows, tuple(rows.column_names))
    record = evidence.record(partial(candidates, table.columns))
    stated = StatedAnonymization.from_question(release.guarantee, release.provenance["parameters"], release.facts)
    after = table.risk(stated.quasi)
    if record is not None:
        stated, after, record = matching(table, record)
    risks = (source_risk(release, stated.quasi), after)
    return anonymized_sign_off(table, stated, risks, purpose=purpose, record=record, verdicts=verdicts)
