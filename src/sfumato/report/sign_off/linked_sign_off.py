"""The sign-off page of linked synthetic tables: a folder with a file for each table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.engine.open import open_table
from sfumato.errors import InputError, percent, pluralize
from sfumato.evaluate.verdicts import COLUMN, Judgement
from sfumato.report.drawing import percent_up
from sfumato.report.sign_off.ledger_record import (
    NO_LEDGER,
    LedgerRecord,
    entry_numbered,
    promise_source,
    refuse_other_release,
)
from sfumato.report.sign_off.sign_off_page import (
    NOT_PROTECTED,
    UNCONFIRMED_ROWS,
    Check,
    Purpose,
    SignOff,
    accuracy_tile,
    attack_tile,
    guess_sentences,
    ordered_checks,
    points_to_judge,
)
from sfumato.report.sign_off.synthetic_sign_off import (
    contradiction,
    pair_judgement,
    privacy_tile,
    stated_loss,
)
from sfumato.strict_documents import read_json
from sfumato.synthesize.codebook.codebook import Guarantee
from sfumato.synthesize.linked.linked_codebook import CODEBOOK, STATEMENT, digest_of_folder, read_family_codebook

if TYPE_CHECKING:
    from sfumato.ledger import Entry

_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError, OverflowError)
_UNCOMPARED = Check("The rows and the stated errors were not compared with the ledger", to_judge=True)
_CONTENT = f"Rows drawn from models that were fitted to noisy counts. {UNCONFIRMED_ROWS}"
_FORMATS = (".parquet", ".csv")


@dataclass(frozen=True)
class SignedTables:
    """The linked tables that a page is about.

    Attributes:
        name: name of the folder or of the release.
        digest: SHA-256 of the hashes of all files; empty if they are not written.
        book: the codebook as JSON values.
        guarantee: its guarantee, whose unit is read from its text.
        domain: the hash of the description that the release states.
        files_match: whether each table has the columns and the number of rows that the codebook states, and
            the folder holds nothing else.
    """

    name: str
    digest: str
    book: Mapping[str, Any]
    guarantee: Guarantee
    domain: str
    files_match: bool


def signed_folder(folder: Path) -> SignedTables:
    """Return the linked tables of a folder.

    Raises:
        InputError: the folder holds no release, or the release contradicts itself or its files.
    """
    book = read_family_codebook(folder)
    try:
        statement = read_json((folder / STATEMENT).read_bytes())
        return _signed(folder.name, digest_of_folder(folder), book, statement, matches=_files_match(folder, book))
    except _UNREADABLE:
        raise InputError(f"{folder / STATEMENT} is damaged, or of a later version", culprit=folder) from None


def signed_tables(book: Mapping[str, Any], statement: Mapping[str, Any]) -> SignedTables:
    """Return the linked tables of a release that is not written to files."""
    return _signed("Release of linked tables", "", book, statement, matches=True)


def _signed(
    name: str, digest: str, book: Mapping[str, Any], statement: Mapping[str, Any], *, matches: bool
) -> SignedTables:
    given = book["guarantee"]
    text, neighbours = str(given["text"]), str(given["neighbours"])
    unit = neighbours.removeprefix("adding or removing ")
    guarantee = Guarantee(text, neighbours, unit, {str(key): str(value) for key, value in given["loss"].items()})
    loss = stated_loss(guarantee)
    promised = loss is None or text == f"{loss.promise} for {neighbours}"
    if not promised or statement["guarantee"] != text or (loss is None) is text.endswith(neighbours):
        raise contradiction()
    return SignedTables(name, digest, book, guarantee, str(statement["provenance"]["domain"]), matches)


def _files_match(folder: Path, book: Mapping[str, Any]) -> bool:
    named = {STATEMENT, CODEBOOK}
    for each in book["files"]:
        paths = [path for ending in _FORMATS if (path := folder / f"{each['name']}{ending}").is_file()]
        if len(paths) != 1 or paths[0].parent != folder:
            return False
        columns = [column.name for column in open_table(str(paths[0])).schema()]
        if columns != list(each["columns"]) or _rows(paths[0]) != each["rows"]:
            return False
        named.add(paths[0].name)
    return {each.name for each in folder.iterdir()} <= named


def _rows(path: Path) -> int:
    import pyarrow.csv
    import pyarrow.parquet as pq

    if path.suffix == ".parquet":
        return int(pq.read_metadata(path).num_rows)
    return int(pyarrow.csv.read_csv(path).num_rows)


def choose_linked(signed: SignedTables, journal: Sequence[Entry]) -> tuple[Entry]:
    """Return the entry of linked tables.

    Raises:
        InputError: the ledger has no such release, or one with another guarantee or description.
    """
    entry = entry_numbered(journal, signed.book["journal_entry"])
    refuse_other_release(entry, signed.guarantee.text, signed.domain)
    return (entry,)


def linked_sign_off(
    signed: SignedTables,
    *,
    purpose: Purpose,
    record: LedgerRecord | None = None,
    verdicts: Sequence[Judgement] | None = None,
) -> SignOff:
    """Return the page of linked synthetic tables.

    Args:
        signed: the tables.
        purpose: the recipients and the purpose.
        record: their entry in the ledger; None: no ledger was given.
        verdicts: the verdicts of an evaluation on attacks, computed from the protected tables; None: not evaluated.

    Raises:
        InputError: the codebook is damaged.
    """
    book, loss = signed.book, stated_loss(signed.guarantee)
    try:
        accuracy = _stated_accuracy(book)
        tables = [f"{each['name']}: {each['rows']:,} rows" for each in book["files"]]
        units = int(book["units"])
    except _UNREADABLE:
        raise InputError("the codebook of the tables is damaged, or of a later version") from None
    right = None if loss is None else loss.right_guesses()
    compared = replace(_UNCOMPARED, contradicts=not signed.files_match)
    privacy = privacy_tile(signed.guarantee, record, compared, right)
    attacks = tuple(verdicts or ())
    tiles = (privacy, accuracy_tile(accuracy), attack_tile(attacks, "release", confirmed=False))
    judged = points_to_judge(tiles, (*accuracy, *attacks), purpose=purpose, right=right, evaluated=verdicts is not None)
    return SignOff(
        title=signed.name,
        kind="Linked synthetic tables",
        subtitle=f"{pluralize(len(tables), 'linked table')}, {pluralize(units, 'synthetic unit')}",
        requested_by=purpose.requested_by,
        tiles=tiles,
        content=(("Content", _CONTENT), ("Tables", "; ".join(tables)), *purpose.terms()),
        guarantee=_guarantee(signed.guarantee, right, record),
        right_guesses=right,
        confirmed=False,
        not_protected=NOT_PROTECTED,
        budget=None if record is None else record.budget(confirmed=False),
        accuracy=accuracy,
        risk=attacks,
        checks=ordered_checks(*_checks(signed, record), *judged),
        digest=signed.digest,
        head="" if record is None else record.head,
        internal=verdicts is not None,
        takes_evaluation=True,
    )


def _guarantee(guarantee: Guarantee, right: float | None, record: LedgerRecord | None) -> tuple[str, ...]:
    if right is None:
        return (guarantee.text,)
    return guess_sentences(right, guarantee.unit, "tables", unconfirmed=promise_source(record, "release"))


def _stated_accuracy(book: Mapping[str, Any]) -> tuple[Judgement, ...]:
    """Return verdicts on the errors that the release states, in units, with 95 % confidence."""
    gaps = [
        (float(column["worst"]) / float(part["units"]), str(column["name"]))
        for part in book["parts"]
        for column in part["columns"]
        if column["worst"] is not None and part["units"]
    ]
    gap, name = max(gaps, default=(float("nan"), ""))
    figure = "not measured" if not gaps else f"within {percent_up(gap)} of units with 95 % confidence: {name}"
    columns = Judgement(f"{COLUMN.question}, stated", figure, f"good up to {percent(COLUMN.good)}", COLUMN.verdict(gap))
    ties = [
        (tuple(map(str, tie["attributes"])), float(tie["misplaced"])) for part in book["parts"] for tie in part["ties"]
    ]
    return (columns, pair_judgement(ties)) if ties else (columns,)


def _checks(signed: SignedTables, record: LedgerRecord | None) -> tuple[Check, ...]:
    wrong = "The folder has other tables, columns, rows or files than the release states: they were edited"
    files: tuple[Check, ...] = (Check("Each table has the columns and the number of rows that the release states"),)
    if not signed.files_match:
        files = (Check(wrong, to_judge=True),)
    if not signed.digest:  # tables that are not written
        files = ()
    if record is None:
        return _UNCOMPARED, NO_LEDGER, *files
    same = Check(f"The stated guarantee and description equal those of entry {record.entry.number}")
    return _UNCOMPARED, *record.checks(), same, *files
