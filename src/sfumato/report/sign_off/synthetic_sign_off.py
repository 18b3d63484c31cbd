"""The sign-off page of a synthetic table."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.domain import parse
from sfumato.errors import InputError, SfumatoError, percent, pluralize
from sfumato.evaluate.stated_claims import parse_stated_loss
from sfumato.evaluate.verdicts import COLUMN, Judgement, Threshold, Verdict
from sfumato.ledger.entry import method_title
from sfumato.privacy.loss import NOTHING, Loss, total
from sfumato.report.drawing import percent_up
from sfumato.report.sign_off.ledger_record import (
    NO_LEDGER,
    LedgerRecord,
    entry_numbered,
    promise_source,
    refuse_other_release,
    right_guesses,
)
from sfumato.report.sign_off.sign_off_page import (
    NOT_COPIED,
    NOT_PROTECTED,
    ONE_ROW,
    UNCONFIRMED_ROWS,
    Check,
    Purpose,
    SignOff,
    Tile,
    Tone,
    accuracy_tile,
    attack_tile,
    guaranteed_tile,
    guess_sentences,
    ordered_checks,
    points_to_judge,
    weakness,
)
from sfumato.strict_documents import read_yaml
from sfumato.synthesize.codebook.codebook import KEY, NOTICE_KEY, Guarantee, open_codebook
from sfumato.synthesize.graphical import Graphical
from sfumato.synthesize.product import Product
from sfumato.synthesize.synthetic import TABLES_KEY, Synthetic, read_release, reuse_clause
from sfumato.vault.interface import decode, encode
from sfumato.vault.vault import REUSED

if TYPE_CHECKING:
    import pyarrow as pa

    from sfumato.domain import Domain
    from sfumato.ledger import Entry
    from sfumato.synthesize.codebook.codebook import Codebook

PAIR = Threshold("Measured pairs of columns", 0.05, 0.2)
_NAMED = 3  # pairs that a line names
_OTHER_ROWS = "The rows are not those that"
_EXPLAIN = "Do not sign until the owner explains it"
_AGAIN = "the owner can write the file again from the ledger"
_OUR_KEYS = {KEY, NOTICE_KEY, TABLES_KEY}  # metadata of a file that Sfumato wrote
_DIGEST = 64  # characters before the noisy tables
_LOSS_FIELDS = ({"rho"}, {"epsilon"}, {"epsilon", "delta"})
_DAMAGED = (SfumatoError, KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, AssertionError)


@dataclass(frozen=True)
class SignedRows:
    """The rows that a sign-off page is about.

    Attributes:
        name: name of the file or of the release.
        digest: SHA-256 of the file; empty if there is none.
        book: the codebook.
        promise: the guarantee in the words of the ledger.
        reused: the earlier journal entries that the release also used.
        rows: the rows.
        metadata: the metadata of the file, or those that a file of the release gets.
        domain: the description of the columns; None if there is none that belongs to the codebook.
    """

    name: str
    digest: str
    book: Codebook
    promise: str
    reused: tuple[int, ...]
    rows: pa.Table
    metadata: Mapping[bytes, bytes]
    domain: Domain | None


def signed_file(path: Path) -> SignedRows:
    """Return the rows of a synthetic file.

    Raises:
        InputError: the file cannot be read, carries no codebook, or its parts contradict each other.
    """
    file = open_codebook(path)
    try:
        domain = read_release(path).model.domain
    except InputError:  # the file carries no noisy tables, or they do not belong to it
        domain = None
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    stated = stated_promise(file.book.guarantee)
    return SignedRows(path.name, digest, file.book, *stated, file.rows(file.columns), file.metadata, domain)


def signed_release(release: Synthetic) -> SignedRows:
    """Return the rows of a release that is not written to a file."""
    book = release.codebook
    name, rows = f"Release of {pluralize(book.rows, 'synthetic row')}", release.rows.to_arrow()
    stated = stated_promise(book.guarantee)
    return SignedRows(name, "", book, *stated, rows, rows.schema.metadata, release.model.domain)


def choose_entry(signed: SignedRows, journal: Sequence[Entry]) -> tuple[Entry]:
    """Return the entry of a release in the journal of its dataset.

    Raises:
        InputError: the ledger has no such release, or one with another guarantee, domain or method.
    """
    book = signed.book
    entry = entry_numbered(journal, book.journal_entry)
    refuse_other_release(entry, signed.promise, book.domain)
    if entry.method != book.method:  # the page names it
        raise InputError(
            f"entry {entry.number} of the ledger does not match the file: it is one of the method {entry.method}, and "
            f"the file states {book.method}",
            culprit=entry.number,
        )
    return (entry,)


def synthetic_sign_off(
    signed: SignedRows,
    *,
    purpose: Purpose,
    record: LedgerRecord | None = None,
    table_domain: Domain | None = None,
    verdicts: Sequence[Judgement] | None = None,
) -> SignOff:
    """Return the page of synthetic rows.

    Args:
        signed: the rows.
        purpose: the recipients and the purpose.
        record: their entry in the ledger; None: no ledger was given.
        table_domain: the description of the protected table, which part of its columns needs; None: unknown.
        verdicts: the verdicts of an evaluation of this file, computed from the protected table; None: not evaluated.

    Raises:
        InputError: the file states other sources than the entry.
    """
    book = signed.book
    attacks = [each for each in verdicts or () if each.is_risk]
    scores = [each for each in verdicts or () if not each.is_risk]
    accuracy = (*_stated_accuracy(book), *scores)
    right, compared = _right_guesses(signed, record), _compared_rows(signed, record, table_domain)
    confirmed = record is not None and not compared.to_judge
    privacy = privacy_tile(book.guarantee, record, compared, right, reused=signed.reused)
    tiles = (privacy, accuracy_tile(accuracy), attack_tile(attacks, "file", confirmed=confirmed))
    judged = points_to_judge(tiles, (*accuracy, *attacks), purpose=purpose, right=right, evaluated=verdicts is not None)
    rows = NOT_COPIED if confirmed else UNCONFIRMED_ROWS
    content = f"Rows from a model ({method_title(book.method)}) that was fitted to noisy counts. {rows}"
    return SignOff(
        title=signed.name,
        kind="Synthetic table",
        subtitle=f"{pluralize(book.rows, 'synthetic row')}, {pluralize(len(book.columns), 'column')}",
        requested_by=purpose.requested_by,
        tiles=tiles,
        content=(("Content", content), ("Source", _source(book)), *purpose.terms()),
        guarantee=_guarantee(signed, right, record, confirmed=confirmed),
        confirmed=confirmed,
        right_guesses=right,
        not_protected=(*_unit_limits(book.guarantee), *NOT_PROTECTED),
        budget=None if record is None else record.budget(confirmed=confirmed),
        accuracy=accuracy,
        risk=tuple(attacks),
        checks=ordered_checks(compared, *_checks(record, compared), *judged),
        digest=signed.digest,
        head="" if record is None else record.head,
        internal=verdicts is not None,
        takes_evaluation=True,
    )


def _source(book: Codebook) -> str:
    return f"A table of about {pluralize(book.table_rows, 'row')}, a noisy estimate"


def stated_promise(guarantee: Guarantee) -> tuple[str, tuple[int, ...]]:
    """Return a guarantee in the words of the ledger, and the earlier entries that the release also used.

    Raises:
        InputError: the fields and the text differ. Only the text is compared with a ledger.
    """
    loss, text = stated_loss(guarantee), guarantee.text
    bound = re.fullmatch(r"adding or removing all rows of one (.+) \(at most ([0-9]+)(.*)\)", guarantee.neighbours)
    unit = "one row" if bound is None else f"at most {pluralize(int(bound[2]), 'row')} of one {bound[1]}{bound[3]}"
    promise = text if loss is None else f"{loss.promise} for {guarantee.neighbours}"
    reused = tuple(map(int, re.findall("[0-9]{1,18}", text.removeprefix(promise))))
    if guarantee.unit != unit or text != promise + reuse_clause(reused):
        raise contradiction()
    if loss is None and text.endswith(guarantee.neighbours):
        raise contradiction()
    return promise, reused


def contradiction() -> InputError:
    """Return the error of a codebook whose parts state different guarantees."""
    return InputError("the codebook of the file contradicts itself about its guarantee: it is damaged or forged")


def stated_loss(guarantee: Guarantee) -> Loss | None:
    """Return the loss that a file states; None if it states none.

    Raises:
        InputError: the stated loss is not a loss.
    """
    if not guarantee.loss:
        return None
    known = set(guarantee.loss) in _LOSS_FIELDS  # the page shows every field
    try:
        return parse_stated_loss(guarantee.loss if known else {})
    except (KeyError, TypeError, ValueError, InputError):
        raise InputError("the codebook of the file states a loss that is none: it is damaged or forged") from None


def privacy_tile(
    guarantee: Guarantee,
    record: LedgerRecord | None,
    compared: Check,
    right: float | None,
    *,
    reused: Sequence[int] = (),
) -> Tile:
    """Return the tile of a guarantee, which is only stated until its content is that of the ledger's entry.

    ``compared`` is the check of the content.
    """
    if not guarantee.loss:
        return Tile("Privacy", "No guarantee", guarantee.text, Tone.BAD)
    loss = ", ".join(f"{name} {value}" for name, value in guarantee.loss.items())
    beyond = f", beyond what entries {', '.join(map(str, reused))} released" if reused else ""
    sentence = f"Differential privacy, {loss}, for {guarantee.unit}{beyond}."
    weak = f" {weakness(right)}" if weakness(right) else ""
    if record is None:
        return Tile("Privacy", "Stated, not checked", f"{sentence}{weak} No ledger was given.", Tone.CARE)
    if compared.to_judge:
        sentence += (
            f"{weak} Entry {record.entry.number} states the same guarantee. It was not confirmed for this content."
        )
        return Tile("Privacy", "Stated, not matched", sentence, Tone.BAD if compared.contradicts else Tone.CARE)
    return guaranteed_tile(sentence, right)


def _refuse_other_sources(signed: SignedRows, record: LedgerRecord) -> None:
    """Refuse a file that states other reused entries than the stored model of its entry, which the ledger holds.

    Raises:
        InputError: they differ.
    """
    body = record.bodies.get(record.entry.number)
    used = () if body is None else tuple(decode(body).get(REUSED, ()))
    if body is not None and used != signed.reused:
        raise InputError(
            f"entry {record.entry.number} of the ledger does not match the file: it was made of the earlier entries "
            f"{', '.join(map(str, used)) or '(none)'}, and the file states others",
            culprit=record.entry.number,
        )


def _right_guesses(signed: SignedRows, record: LedgerRecord | None) -> float | None:
    """Return the chance of a right guess; None without a loss, or if the losses of reused releases are unknown."""
    loss = stated_loss(signed.book.guarantee)
    if loss is None or not signed.reused:
        return None if loss is None else loss.right_guesses()
    if record is None:
        return None
    others = [entry_numbered(record.journal, number) for number in signed.reused]
    return right_guesses(total(each.charge or NOTHING for each in (*others, record.entry)))


def _guarantee(
    signed: SignedRows, right: float | None, record: LedgerRecord | None, *, confirmed: bool
) -> tuple[str, ...]:
    guarantee = signed.book.guarantee
    if right is None:
        return (guarantee.text,)
    entries = ", ".join(map(str, signed.reused))
    reused = (f"The figure includes entries {entries}, of which the file was also made.",) if entries else ()
    source = "" if confirmed else promise_source(record, "file")
    return (*guess_sentences(right, guarantee.unit, "file", unconfirmed=source), *reused)


def _unit_limits(guarantee: Guarantee) -> tuple[str, ...]:
    if "one row" in guarantee.unit:
        return (ONE_ROW,)
    return ()


def _stated_accuracy(book: Codebook) -> tuple[Judgement, ...]:
    """Return verdicts on the errors that the file itself states, with 95 % confidence."""
    rows = max(book.table_rows, 1)
    known = [column for column in book.columns if column.worst is not None]
    gap, name = max(((column.worst or 0) / rows, column.name) for column in known) if known else (math.nan, "")
    figure = "not measured" if math.isnan(gap) else f"within {percent_up(gap)} of rows with 95 % confidence: {name}"
    columns = Judgement(f"{COLUMN.question}, stated", figure, f"good up to {percent(COLUMN.good)}", COLUMN.verdict(gap))
    measured = [
        (pair.attributes, pair.misplaced) for pair in book.pairs if pair.measured and pair.misplaced is not None
    ]
    if measured:
        return columns, pair_judgement(measured)
    unknown = Judgement(f"{PAIR.question}, stated", "no pair was measured", "error unknown", Verdict.UNKNOWN)
    return (columns, unknown) if len(book.columns) > 1 else (columns,)


def pair_judgement(measured: Sequence[tuple[Sequence[str], float]]) -> Judgement:
    """Return the verdict on measured tables of several columns, by their shares of rows in the wrong cell."""
    wrong = [names for names, share in measured if share > PAIR.with_care]
    largest = max(share for _, share in measured)
    named = ", ".join(" \N{MULTIPLICATION SIGN} ".join(names) for names in wrong[:_NAMED])
    more = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
    compared = f"{len(wrong)} not for use: {named}{more}" if wrong else f"good up to {percent(PAIR.good)}"
    figure = f"within {percent_up(largest)} of rows in {pluralize(len(measured), 'pair')} with 95 % confidence"
    return Judgement(f"{PAIR.question}, stated", figure, compared, PAIR.verdict(largest))


def _checks(record: LedgerRecord | None, compared: Check) -> tuple[Check, ...]:
    if record is None:
        return (NO_LEDGER,)
    same = f"The stated guarantee and description equal those of entry {record.entry.number}"
    if compared.text.startswith(_OTHER_ROWS):
        same += "; its rows do not"
    return *record.checks(), Check(same)


def _compared_rows(signed: SignedRows, record: LedgerRecord | None, table_domain: Domain | None) -> Check:
    """Draw the rows of the ledger's entry again, and compare the content of the file with them.

    Raises:
        InputError: the file states other sources than the entry.
    """
    if record is None:
        below = "; the hash of their file stands below" if signed.digest else ""
        return Check(f"The rows were not compared with the ledger{below}", to_judge=True)
    number, book = record.entry.number, signed.book
    _refuse_other_sources(signed, record)
    known = (each for each in (signed.domain, table_domain) if each is not None)
    described = next((each for each in known if each.hash == book.domain), None)
    drawn = None if described is None else _drawn_again(signed, record, described)
    if drawn is None:
        why = "the ledger does not hold the model"
        if described is None:
            why = "that needs the description of all columns of the table. Name its file by --domain"
        return Check(f"The rows were not compared with the ledger: {why}. {_EXPLAIN}", to_judge=True)
    rows = drawn.rows.to_arrow()
    if not _same_rows(rows, signed.rows):
        why = "another sample, another version of NumPy, or an edited file"
        other = f"{_OTHER_ROWS} entry {number} draws: {why}. {_EXPLAIN}; {_AGAIN}"
        return Check(other, to_judge=True, contradicts=True)
    if _stated_errors(drawn.codebook) != _stated_errors(book):
        errors = f"The rows match entry {number}, and the errors that the file states do not"
        return Check(f"{errors}. {_EXPLAIN}; {_AGAIN}", to_judge=True, contradicts=True)
    if not _same_metadata(signed, rows.schema.metadata):
        carried = f"The rows match entry {number}, but the file carries another description, other noisy tables or more"
        return Check(f"{carried}. {_EXPLAIN}; {_AGAIN}", to_judge=True, contradicts=True)
    stated = (
        ". The methods that auto compared are only stated: the ledger does not hold them" if book.considered else ""
    )
    return Check(f"Rows and stated errors are those that entry {number} of the ledger draws{stated}")


def _drawn_again(signed: SignedRows, record: LedgerRecord, domain: Domain) -> Synthetic | None:
    """Return the release that the ledger holds; None if it cannot be restored with this description of the table."""
    body = record.bodies.get(record.entry.number)
    if body is None:
        return None
    kinds: tuple[type[Graphical | Product], ...] = (Graphical, Product)
    for kind in kinds:
        try:
            return Synthetic(
                guarantee=signed.book.guarantee.text,
                cost="",
                expected_error={},
                provenance={"parameters": record.entry.question.parameters},
                model=kind.restore(domain, dict(decode(body))),
                seed=int(hashlib.sha256(body).hexdigest()[:16], 16),
            )
        except _DAMAGED:
            continue
    return None


def _same_rows(drawn: pa.Table, rows: pa.Table) -> bool:
    plain = [table.replace_schema_metadata() for table in (drawn, rows)]
    return bool(plain[0].schema.equals(plain[1].schema, check_metadata=True) and plain[0].equals(plain[1]))


def _stated_errors(book: Codebook) -> tuple[object, ...]:
    uses = book.good_for, book.not_for
    return book.rows, book.table_rows, book.columns, book.measured, book.pairs, book.pairs_left_out, uses


def _same_metadata(signed: SignedRows, drawn: Mapping[bytes, bytes]) -> bool:
    """Return whether a file carries the description and the noisy tables of a release, or neither, and nothing else."""
    if signed.metadata.keys() - _OUR_KEYS or signed.metadata.get(NOTICE_KEY, drawn[NOTICE_KEY]) != drawn[NOTICE_KEY]:
        return False
    if TABLES_KEY not in signed.metadata:
        return True
    if signed.domain is None:  # the tables are damaged, or belong to another codebook
        return False
    return TABLES_KEY in drawn and _described_tables(signed.metadata) == _described_tables(drawn)


def _described_tables(metadata: Mapping[bytes, bytes]) -> tuple[str, bytes]:
    """Return the hash of the description in the metadata of a file, and its noisy tables.

    Texts of the description may differ for one hash, because it does not cover the person who accepted it.
    """
    tables = dict(decode(base64.b64decode(metadata[TABLES_KEY][_DIGEST:])))
    return parse(read_yaml(tables.pop("domain"))).hash, encode(tables)
