"""The codebook of a synthetic file: the meaning of its columns, its measured tables, its errors, and its uses.

It is in a Markdown file next to the rows, and inside Parquet and Arrow files. A codebook in a file is not trusted: its
size is bounded, and no part of it is executed.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

from sfumato.errors import InputError, pluralize
from sfumato.ledger.entry import method_title
from sfumato.strict_documents import read_json
from sfumato.synthesize.codebook.codebook_lines import FOLDED_TEXT, ColumnEntry, group_lines, value_lines

if TYPE_CHECKING:
    import pyarrow as pa

KEY, NOTICE_KEY = b"sfumato.codebook", b"sfumato.notice"
NOTICE = "synthetic: these rows were drawn from a model; none of them is a person"

_VERSION = 1
_LARGEST = 1 << 53  # largest number in a codebook
_MOST_BYTES = 16 << 20
MOST_TEXT = 200  # largest number of characters of a label


@dataclass(frozen=True)
class MeasuredTable:
    """A table that was measured: the noise on each of its cells, which may be groups of values."""

    attributes: tuple[str, ...]
    cells: int
    grouped: bool
    noise: str
    deviation: float


@dataclass(frozen=True)
class PairEntry:
    """A pair of attributes, measured together or modeled.

    Attributes:
        attributes: the two attributes.
        measured: True if a table with both was measured; otherwise no error is known.
        strength: strength of the association in the file, 0 to 1 (Cramer's V).
        cells: number of cells of the measured table.
        worst: largest error of a cell of the table, with 95 % confidence for all cells at once.
        worst_of_values: largest error of a combination of single values; it is larger if values share a group.
        misplaced: largest share of the rows that would have to move to another cell, with 95 % confidence. It is half
            of the sum of the differences of cells, for any numbers of rows of the file and the table.
    """

    attributes: tuple[str, ...]
    measured: bool
    strength: float
    cells: int | None = None
    worst: int | None = None
    worst_of_values: int | None = None
    misplaced: float | None = None

    @property
    def share(self) -> str | None:
        """The share of misplaced rows in percent."""
        return None if self.misplaced is None else f"{100 * self.misplaced:.1f} %"


@dataclass(frozen=True)
class Guarantee:
    """The guarantee in words, with the neighbor relation, unit and loss in separate fields."""

    text: str
    neighbours: str
    unit: str
    loss: Mapping[str, str]


@dataclass(frozen=True)
class Codebook:
    """The public description of a synthetic file for its readers.

    Attributes:
        notice: statement that the rows are synthetic.
        rows: number of rows of the file.
        table_rows: the model's number of rows of the protected table; the rows of the file represent these.
        method: the method of the release.
        version: the version of Sfumato.
        journal_entry: number of the release in the ledger's journal.
        domain: hash of the accepted description of the table.
        guarantee: the guarantee.
        considered: the methods among which ``auto`` chose.
        columns: columns with values, groups and errors.
        measured: the measured tables.
        pairs: pairs of attributes, measured ones first. ``pairs_left_out`` is the number of pairs that are not listed.
        good_for, not_for: sentences that follow from the other fields.
    """

    notice: str
    rows: int
    table_rows: int
    method: str
    version: str
    journal_entry: int | None
    domain: str
    guarantee: Guarantee
    considered: tuple[str, ...]
    columns: tuple[ColumnEntry, ...]
    measured: tuple[MeasuredTable, ...]
    pairs: tuple[PairEntry, ...]
    pairs_left_out: int
    good_for: tuple[str, ...]
    not_for: tuple[str, ...]

    @property
    def accuracy(self) -> str:
        """The largest error of counts by one column, and the number of measured pairs of columns, in words."""
        measured = sum(pair.measured for pair in self.pairs)
        every_pair = len(self.pairs) + self.pairs_left_out
        cut = measured == len(self.pairs) < every_pair  # pairs that are not listed may be measured, too
        pairs = f"{'at least ' if cut else ''}{measured:,} of {pluralize(every_pair, 'pair')} of columns measured"
        pairs += ", the others estimated" if measured < every_pair and not cut else ""
        known = [column.worst for column in self.columns if column.worst is not None]
        if not known:
            return pairs
        worst = max(known)
        measured_columns = pluralize(len(known), "measured column")
        by = "any one column" if len(known) == len(self.columns) else f"any one of {measured_columns}"
        share = f"{100 * worst / max(self.table_rows, 1):.2g} % of the rows"
        return f"counts by {by} within {pluralize(worst, 'row')} ({share}), with 95 % confidence; {pairs}"

    def to_json(self) -> dict[str, Any]:
        """Return the codebook as JSON values; :meth:`parse` reads them."""
        return {"codebook": _VERSION, **asdict(self)}

    def metadata(self) -> dict[bytes, bytes]:
        """Return the metadata of Parquet and Arrow files."""
        text = json.dumps(self.to_json(), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return {NOTICE_KEY: NOTICE.encode(), KEY: text.encode()}

    def to_markdown(self) -> str:
        """Return the codebook as Markdown, in which text of the file is escaped."""
        return "\n".join(_markdown(self)) + "\n"

    @staticmethod
    def parse(text: bytes) -> Codebook:
        """Parse the text of a codebook. Every field is checked, because files are not trusted.

        Raises:
            InputError: the text is no codebook, or is larger than any codebook.
        """
        if len(text) > _MOST_BYTES:
            raise InputError(f"its codebook is larger than the {_MOST_BYTES >> 20} MiB that one has at most")
        try:
            value = read_json(text)
            known = isinstance(value, dict) and value.pop("codebook", None) == _VERSION and value["notice"] == NOTICE
            sound = known and value["rows"] >= 0 and value["table_rows"] >= 0
            return read_typed(Codebook, value if sound else None)
        except (TypeError, KeyError, ValueError, RecursionError, InputError):
            raise InputError("its codebook is damaged, or of a later version") from None


@dataclass(frozen=True, eq=False)
class CodebookFile:
    """A Parquet or Arrow file with its codebook, and its rows on request.

    Attributes:
        path: path of the file.
        book: its codebook.
        metadata: all its metadata, which are not trusted.
        columns: names of its columns.
    """

    path: Path
    book: Codebook
    metadata: Mapping[bytes, bytes]
    columns: tuple[str, ...]

    @property
    def length(self) -> int:
        """The number of rows.

        Raises:
            InputError: the rows cannot be read.
        """
        import pyarrow.parquet as pq

        if self.path.suffix.lower() == ".parquet":
            return int(pq.read_metadata(self.path).num_rows)
        return int(self.rows(self.columns[:1]).num_rows)

    def rows(self, columns: Sequence[str]) -> pa.Table:
        """Return the given columns.

        Raises:
            InputError: the columns cannot be read.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq
        from pyarrow import feather

        try:
            if self.path.suffix.lower() == ".parquet":
                return pq.read_table(self.path, columns=list(columns))
            return feather.read_table(self.path, columns=list(columns))
        except (OSError, ValueError, pa.ArrowException) as error:
            raise InputError(f"cannot read the rows of {self.path}: the file is damaged", culprit=self.path) from error


def read_codebook(path: str | Path) -> Codebook:
    """Return the codebook in a Parquet or Arrow file; no part of it is executed.

    Raises:
        InputError: the file cannot be read, has another format, or contains no codebook.
    """
    return open_codebook(path).book


def open_codebook(path: str | Path) -> CodebookFile:
    """Return the file with its codebook; the rows are not read.

    Raises:
        InputError: :func:`read_codebook` refuses the file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    place = Path(path)
    kind = place.suffix.lower()
    if kind not in (".parquet", ".arrow"):
        markdown = codebook_path(place)
        where = (
            f"read {markdown.name} beside it"
            if markdown.is_file()
            else "that of a release stands in a .codebook.md file"
        )
        raise InputError(f"{place} is no Parquet or Arrow file, which carry a codebook; {where}", culprit=path)
    try:
        if kind == ".parquet":
            schema = pq.read_schema(place)
        else:
            with pa.memory_map(str(place)) as source:
                schema = pa.ipc.open_file(source).schema
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            f"cannot read {place}: no such file, or no {kind[1:].capitalize()} file", culprit=path
        ) from error
    metadata = schema.metadata or {}
    if KEY not in metadata:
        raise InputError(f"{place} carries no codebook: it is no release of sfumato synthesize", culprit=path)
    try:
        return CodebookFile(place, Codebook.parse(metadata[KEY]), metadata, tuple(schema.names))
    except InputError as error:
        raise InputError(f"{place}: {error}", culprit=path) from None


def codebook_path(rows: Path) -> Path:
    """Return the path of the codebook of a file of rows: next to it, as Markdown."""
    return rows.with_suffix(".codebook.md")


_Read = TypeVar("_Read")


def read_typed(kind: type[_Read], value: Any) -> _Read:  # noqa: ANN401 -- JSON
    """Return a dataclass from its JSON value; a value of a file is not trusted.

    Raises:
        TypeError: the fields differ, or a field has another type.
    """
    hints = get_type_hints(kind)
    if not isinstance(value, dict) or set(value) != {field.name for field in fields(kind)}:  # type: ignore[arg-type]
        raise TypeError
    return kind(**{name: _field(hints[name], each) for name, each in value.items()})


def _field(hint: Any, value: Any) -> Any:  # noqa: ANN401 -- types and JSON
    if get_origin(hint) is types.UnionType:
        return None if value is None else _field(get_args(hint)[0], value)
    if get_origin(hint) is tuple and isinstance(value, list):
        return tuple(_field(get_args(hint)[0], each) for each in value)
    if get_origin(hint) is Mapping and isinstance(value, dict):
        return {_field(str, key): _field(str, each) for key, each in value.items()}
    if is_dataclass(hint) and isinstance(hint, type):
        return read_typed(hint, value)
    if hint is float and type(value) is int:
        value = float(value) if abs(value) < _LARGEST else None
    if type(value) is not hint or (type(value) in (int, float) and not abs(value) < _LARGEST):
        raise TypeError
    return value


_NAMED = 8


def join_words(names: Iterable[str]) -> str:
    """Return the first names, and the number of further ones."""
    every = list(names)
    text = ", ".join(name[:MOST_TEXT] for name in every[:_NAMED])
    return text if len(every) <= _NAMED else f"{text} and {len(every) - _NAMED} more"


def pair_title(entry: PairEntry | MeasuredTable) -> str:
    """Return the attributes of a table as its title."""
    return " x ".join(entry.attributes)


def _markdown(book: Codebook) -> Iterator[str]:
    yield from ("# Codebook of a synthetic table", "", f"**{_plain(book.notice)}**", "")
    yield from _rows(("", ""), facts(book))
    yield from ("", "## What the file is good for", "", *(f"- {_plain(each)}" for each in book.good_for))
    yield from ("", "## What it is not good for", "", *(f"- {_plain(each)}" for each in book.not_for))
    yield from ("", "## Columns", "", COLUMNS_TEXT, "")
    yield from _rows(
        ("column", "type", "values", "cells", "noise", "off by at most"),
        [(c.name, c.kind, c.size, c.cells, c.deviation, c.worst) for c in book.columns],
    )
    for column in book.columns:
        yield from _column_markdown(column)
    yield from ("", "## Measured tables", "", TABLES_TEXT, "")
    yield from _rows(
        ("table", "cells", "of groups", "noise", "standard deviation"),
        [(pair_title(t), t.cells, "yes" if t.grouped else "no", t.noise, t.deviation) for t in book.measured],
    )
    yield from ("", "## Pairs of columns", "", PAIRS_TEXT, "")
    yield from _rows(
        ("pair", "is", "strength", "cells", "cell off by", "single value off by", "misplaced rows"),
        [
            (
                pair_title(p),
                "measured" if p.measured else "modeled",
                p.strength,
                p.cells,
                p.worst,
                p.worst_of_values,
                p.share,
            )
            for p in book.pairs
        ],
    )
    if book.pairs_left_out:
        yield from ("", f"Not listed: {pluralize(book.pairs_left_out, 'pair')}.")


def _column_markdown(column: ColumnEntry) -> Iterator[str]:
    yield from ("", f"### {_plain(column.name)}", "")
    lines = value_lines(column)
    yield from _rows(
        ("value", "rows", "table: from", "to", "off by", "group"),
        [(line.label, line.rows, line.low, line.high, line.error, line.group) for line in lines],
    )
    if any(line.several for line in lines):
        yield from ("", FOLDED_TEXT)
    if column.groups:
        yield from ("", "Groups in tables of several columns:", "")
        yield from _rows(
            ("group", "values", "rows", "sum off by"),
            [(g.label, g.values, g.rows, g.error) for g in group_lines(column)],
        )


COLUMNS_TEXT = (
    "'From' and 'to' enclose the number of rows of a value in the protected table, with 95 % confidence. 'Off by' is "
    "the largest error of the file's number, scaled to the table. 'Off by at most' holds for all listed values of a "
    "column at once, with 95 % confidence. A dash means that the column was not measured alone. 'Cells' is the number "
    "of cells of the column in tables of several columns; the values of a group share one cell."
)
TABLES_TEXT = "The noise on each measured cell, before the model was fitted."
PAIRS_TEXT = (
    "For a measured pair, the largest error of a cell holds for all cells at once, with 95 % confidence. Values inside "
    "a group were measured together only, so a combination of single values may be off by all rows of its group, or "
    "of one of its values. The share of misplaced rows is the largest share that would have to move to another cell, "
    "with 95 % confidence. A modeled pair was not measured. Its error is unknown unless it has a share of misplaced "
    "rows, which counts single values. Strength is Cramer's V of the file's rows."
)


def facts(book: Codebook) -> list[tuple[str, object]]:
    """Return the facts at the top of every form of a codebook."""
    loss = ", ".join(f"{name} = {value}" for name, value in book.guarantee.loss.items())
    return [
        ("Rows", f"{book.rows:,}, for {book.table_rows:,} of the table"),
        ("Guarantee", book.guarantee.text),
        ("Neighboring tables", book.guarantee.neighbours),
        ("Unit", book.guarantee.unit),
        *([("Loss", loss)] if loss else []),
        ("Method", method_title(book.method)),
        ("Sfumato", book.version or "-"),
        (
            "Journal entry",
            "-" if book.journal_entry is None else f"{book.journal_entry}, which confirms this page",
        ),
        ("Domain", book.domain or "-"),
    ]


def _rows(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + " --- |" * len(head)
    for row in rows:
        yield "| " + " | ".join(_plain(_shown(value)) for value in row) + " |"


def _shown(value: object) -> str:
    match value:
        case None:
            return "-"
        case float():
            return f"{value:.4g}"
        case int():
            return f"{value:,}"
        case _:
            return str(value)


_MARKS = re.compile(r"[\\`*{}\[\]<>#|~&]|(?<![^\W_])_|_(?![^\W_])")  # an underscore inside a word is no mark


def _plain(text: str) -> str:
    """Return the text with Markdown marks escaped."""
    return _MARKS.sub(lambda mark: f"&#{ord(mark[0])};", printable(text))


def printable(text: str) -> str:
    """Return the text in one line, with blanks instead of control characters."""
    return "".join(each if each.isprintable() else " " for each in text)
