"""CSV files: their format, their header, and the options for DuckDB's reader.

Nothing is guessed when a file is read.  The default format is a comma (tab for .tsv), double quotes, UTF-8, a header,
and every column as text, so "01" stays "01".  An empty field is missing, a quoted empty field is an empty text.  Only a
draft detects the format of a file from its content, and states it in the drafted domain.
"""

# ruff: noqa: S608 - this module writes SQL; every name and literal in it is quoted

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from sfumato.domain import CsvFormat
from sfumato.engine.dialect import numeral
from sfumato.engine.table_files import (
    CSV_SUFFIXES,
    Stamps,
    literal_path,
    name_columns,
    quoted,
    redacted_source,
    stamps,
)
from sfumato.errors import InputError, TableError

DELIMITERS = ",;\t|"
_HEADER = 1 << 20  # largest header in bytes: a file without line ends is no CSV
_CHUNK = 1 << 20
_SAMPLE = 2000  # records that a draft reads
_NAMES = {",": "a comma", "\t": "a tab", ";": "';'", "|": "'|'", " ": "a blank"}


@dataclass(frozen=True)
class CsvFile:
    """A CSV file with the names of its columns, and the header of each."""

    path: Path
    headers: Mapping[str, str]
    format: CsvFormat
    _copies: list[Any] = field(default_factory=list, compare=False, repr=False)

    @property
    def title(self) -> str:
        """The path."""
        return str(self.path)

    @property
    def form(self) -> str:
        """The format of the bytes: declared by the domain, or the usual one for the name."""
        return repr(("csv", delimiter(self.path, self.format), self.format))

    def relation(self, connection: Any) -> str:  # noqa: ANN401, ARG002 - part of the protocol
        """Return a ``read_csv`` with all options, so that DuckDB guesses nothing."""
        path, packed = (self.path, is_gzip(self.path)) if is_utf8(self.format) else (self._in_utf8, False)
        names = ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in self.headers)
        read = (
            f"read_csv({quoted(literal_path(path))}, auto_detect=false, header=true, columns={{{names}}}, "
            f"delim={quoted(delimiter(self.path, self.format))}, quote='\"', escape='\"', nullstr='', "
            f"allow_quoted_nulls=false, strict_mode=true, compression={quoted('gzip' if packed else 'none')})"
        )
        if not self.format.trim:
            return read
        quoted_names = [('"' + name.replace('"', '""') + '"') for name in self.headers]
        trimmed = ", ".join(f"NULLIF(TRIM({name}, {quoted(BLANKS)}), '') AS {name}" for name in quoted_names)
        return f"(SELECT {trimmed} FROM {read}) AS trimmed"

    def stamps(self) -> Stamps:
        """Return the stamps of the file."""
        return stamps(str(self.path))

    def odd_line_end(self) -> int | None:
        """Return the number of the first line that ends in another way than the header; None if there is none.

        DuckDB refuses such a file without the number of the line.  A line end within quotes is part of a value.
        """
        usual, within_quotes = "", False
        with suppress(UnicodeError, OSError, EOFError), opened(self.path, self.format.encoding) as text:
            for number, line in enumerate(text, 1):
                body = line.rstrip("\r\n")
                within_quotes ^= body.count('"') % 2 == 1
                end = "" if within_quotes else line[len(body) :]
                if end and usual and end != usual:
                    return number
                usual = usual or end
        return None

    @cached_property
    def _in_utf8(self) -> Path:
        """Return a copy in UTF-8 for this user only, which is deleted with the source.

        Raises:
            TableError: the file is not in the declared encoding.
        """
        folder = tempfile.TemporaryDirectory(prefix="sfumato-")
        self._copies.append(folder)
        weakref.finalize(self, folder.cleanup)
        path = Path(folder.name) / "utf8.csv"
        with path.open("w", encoding="utf-8", newline="") as copy, opened(self.path, self.format.encoding) as text:
            for part in iter(lambda: read_text(text, self.path, self.format.encoding), ""):
                copy.write(part)
        return path


BLANKS = " \t\u00a0"


def csv_file(path: Path, form: CsvFormat | None) -> CsvFile:
    """Return the CSV file at a path, read in the given format or in the usual one for its name.

    Raises:
        TableError: the file is no CSV, or has another format.
    """
    form = form or CsvFormat()
    header = csv_header(path, form)
    _refuse_other_delimiter(header, path, form)
    return CsvFile(path, name_columns(header), form)


def csv_header(path: Path, form: CsvFormat) -> tuple[str, ...]:
    """Return the headers of a CSV file, which may be blank or repeated.

    Raises:
        TableError: an empty file, one that is not text (or not gzip), or only blank headers.
    """
    records = csv.reader(_lines(path, form.encoding), delimiter=delimiter(path, form), strict=True)
    try:
        header = next(records, None)
    except UnicodeError:
        raise _not_text(path, form.encoding) from None
    except csv.Error:
        raise TableError(f"{path} is not CSV: lines end in a line feed, and quotes are doubled", culprit=path) from None
    except (OSError, EOFError):
        raise TableError(f"{path} is not a gzip file, or cannot be read", culprit=path) from None
    if header and header[0].startswith("sep="):
        raise TableError(f"{path} begins with a line for a spreadsheet, 'sep=': remove that line", culprit=path)
    first: Sequence[str] = ()
    with suppress(UnicodeError, csv.Error, OSError, EOFError):  # reading the rows reports the line
        first = next(records, ())
    names = tuple(name.strip(BLANKS) if form.trim else name for name in whole_header(header or (), first))
    refuse_header(names, str(path))
    return names


def whole_header(header: Sequence[str], first: Sequence[str]) -> tuple[str, ...]:
    """Return the header of all columns: R's ``write.table`` writes row names without a header for them.

    Args:
        header: the fields of the first line.
        first: the fields of the first record.

    >>> whole_header(["age", "sex"], ["1", "34", "F"]), whole_header(["age", "sex"], ["34", "F", ""])
    (('', 'age', 'sex'), ('age', 'sex'))
    """
    short = bool(header) and len(first) == len(header) + 1 and bool(first[-1])
    return ("", *header) if short else tuple(header)


def refuse_header(names: Sequence[str], title: str) -> None:
    """Refuse a header of CSV without any name.

    Raises:
        TableError: there is no name, all names are blank, or one holds the character NUL.
    """
    if not names:
        raise TableError(f"{title} is empty; it needs a header", culprit=title)
    if not any(names):
        raise TableError(f"{title} has no names in its first line: remove it, or write the names there", culprit=title)
    if any("\0" in name for name in names):
        raise TableError(f"{title} is not CSV: a name in its header has a NUL character", culprit=title)


def delimiter(path: str | Path, form: CsvFormat | None = None) -> str:
    """Return the separator of the fields of a CSV file: the given one, or the usual one for its name."""
    if form is not None and form.delimiter is not None:
        return form.delimiter
    return "\t" if ".tsv" in Path(path).name.lower()[-7:] else ","


def is_gzip(path: Path) -> bool:
    """Return whether the name is the name of a compressed file."""
    return path.suffix.lower() == ".gz"


def is_utf8(form: CsvFormat) -> bool:
    """Return whether the file can be read without a copy."""
    return codecs.lookup(form.encoding).name in ("utf-8", "utf-8-sig", "ascii")


def opened(path: Path, encoding: str) -> IO[str]:
    """Return the text of a file, without its byte order mark."""
    raw: Any = gzip.open(path, "rb") if is_gzip(path) else path.open("rb")  # noqa: SIM115 - closed with the text
    plain = codecs.lookup(encoding).name == "utf-8"
    return io.TextIOWrapper(raw, encoding="utf-8-sig" if plain else encoding, errors="strict", newline="")


def _lines(path: Path, encoding: str) -> Iterator[str]:
    """Yield line by line, so that an error further on has its line number."""
    if codecs.lookup(encoding).name.startswith(("utf-16", "utf-32")):
        with opened(path, encoding) as text:
            yield from iter(lambda: text.readline(_HEADER), "")
        return
    opener: Any = gzip.open if is_gzip(path) else open
    with opener(path, "rb") as stream:
        yield from (
            line.decode(encoding).removeprefix("\ufeff") for line in iter(lambda: stream.readline(_HEADER), b"")
        )


def read_text(stream: IO[str], path: Path, encoding: str) -> str:
    """Return the next part of a text.

    Raises:
        TableError: the text is not in that encoding.
    """
    try:
        return stream.read(_CHUNK)
    except UnicodeError:
        raise _not_text(path, encoding) from None


def _not_text(path: Path, encoding: str) -> TableError:
    plain = codecs.lookup(encoding).name == "utf-8"
    advice = "; a domain says another encoding as csv: {encoding: cp1252}" if plain else ""
    return TableError(f"{path} is not CSV in {encoding.upper()}{advice}", culprit=path)


def _refuse_other_delimiter(header: Sequence[str], path: Path, form: CsvFormat) -> None:
    """Refuse a header of one name that contains another delimiter: the file was written with that delimiter.

    Raises:
        TableError: another delimiter divides the header.
    """
    if len(header) > 1 or form.delimiter is not None:
        return
    here = delimiter(path)
    other = max((each for each in DELIMITERS if each != here), key=header[0].count)
    if other in header[0]:
        escaped = "\\t" if other == "\t" else other
        raise TableError(
            f"{path} has one column: its fields are separated by {_NAMES[other]}, not by {_NAMES[here]}; declare it "
            f"in the domain, as csv: {{delimiter: \"{escaped}\"}}, or let 'sfumato domain draft' do it",
            culprit=path,
        )


# --- the format of a file, detected ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """The detected format of a CSV file, with None for usual parts, and notes for its owner."""

    format: CsvFormat | None
    notes: tuple[str, ...] = ()


def how_written(source: str, declared: Mapping[str, Any]) -> Written:
    """Detect the format of a table's file, except for the fields of ``CsvFormat`` that are ``declared``.

    The whole file is read to detect its encoding, and the first records for the rest.  The format of a file on a
    cluster is not detected.

    Raises:
        InputError: a format is declared for a table that is no CSV file.
        DomainError: the declared format is invalid.
        TableError: the file cannot be read.
    """
    form, path = CsvFormat(**declared), Path(source)
    if not source.lower().endswith(CSV_SUFFIXES):
        if declared:
            raise InputError(f"{redacted_source(source)} is no CSV file, so csv options do not apply")
        return Written(None)
    try:
        there = path.is_file()
    except OSError:  # for example, the name is too long; opening the file reports it
        there = False
    if there:
        form = _detected(path, form, frozenset(declared))
    return Written(None if form == CsvFormat() else form, tuple(_words(path, form)))


def _detected(path: Path, form: CsvFormat, declared: frozenset[str]) -> CsvFormat:
    if "encoding" not in declared:
        form = replace(form, encoding=_encoding(path))
    if "delimiter" not in declared:
        form = replace(form, delimiter=_delimiter(path, form))
    records = _records(path, form)
    if "trim" not in declared:
        form = replace(form, trim=_padded(records))
    return form if declared & {"decimal", "thousands"} else _numerals(records, form)


def _words(path: Path, form: CsvFormat) -> Iterator[str]:
    here = delimiter(path, form)
    if here != delimiter(path):
        yield f"its fields are separated by {_NAMES.get(here, repr(here))}"
    if form.decimal != ".":
        yield "its numbers have a decimal comma"
    if form.thousands:
        yield f"its thousands are divided by {form.thousands!r}"
    if not is_utf8(form):
        yield f"its text is {form.encoding}, not UTF-8"
    if form.trim:
        yield "blanks around its fields are left out"


def _encoding(path: Path) -> str:
    """Return UTF-16 by its mark or zeros, UTF-8 if the whole file is valid, else the Windows encoding, else Latin-1."""
    opener: Any = gzip.open if is_gzip(path) else open
    decoders = {name: codecs.getincrementaldecoder(name)() for name in ("utf-8", "cp1252")}
    try:
        with opener(path, "rb") as stream:
            for part in iter(lambda: stream.read(_CHUNK), b""):
                if "utf-8" in decoders and (encoding := _sixteen_bits(part)) is not None:
                    return encoding
                for name in tuple(decoders):
                    try:
                        decoders[name].decode(part)
                    except UnicodeDecodeError:
                        del decoders[name]
    except (OSError, EOFError):
        raise TableError(f"{path} is not a gzip file, or cannot be read", culprit=path) from None
    if "utf-8" in decoders:
        with suppress(UnicodeDecodeError):
            decoders["utf-8"].decode(b"", final=True)
            return "utf-8"
    return next((name for name in decoders if name != "utf-8"), "latin-1")


def _sixteen_bits(part: bytes) -> str | None:
    """Return the encoding of text in units of 16 bits: by its mark, or because every other byte is mostly zero."""
    if part.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    first, second = part[::2].count(0), part[1::2].count(0)
    if min(first, second) or max(first, second) <= len(part) / 4:
        return None
    return "utf-16-be" if first else "utf-16-le"


def _records(path: Path, form: CsvFormat) -> list[list[str]]:
    """Return the header and the first records; empty after the first record that is no CSV."""
    records: list[list[str]] = []
    try:
        with opened(path, form.encoding) as stream:
            reader = csv.reader(stream, delimiter=delimiter(path, form), strict=True)
            for record in islice(reader, _SAMPLE):
                records.append(record)
                if len(records) == 2 and len(records[0]) > 1:  # noqa: PLR2004 - the header and the first record
                    records[0] = list(whole_header(*records))
    except (UnicodeError, csv.Error):
        pass
    except (OSError, EOFError):
        raise TableError(f"{path} is not a gzip file, or cannot be read", culprit=path) from None
    return records


def _delimiter(path: Path, form: CsvFormat) -> str | None:
    """Return a separator that divides nearly all records into as many fields as the header; None: the usual one.

    Blanks are also within texts, so they divide fields only if no other separator does.
    """
    usual = delimiter(path)
    even: dict[str, int] = {}
    for each in (usual, *DELIMITERS.replace(usual, ""), " "):
        records = [] if even and each == " " else _records(path, replace(form, delimiter=each))
        wide = len(records[0]) if records else 0
        if wide > 1 and sum(len(record) == wide for record in records) > 0.9 * len(records):
            even[each] = wide
    best = max(even, key=lambda each: even[each], default=usual)  # on a tie the usual one, which is first
    return None if best == usual else best


def _padded(records: list[list[str]]) -> bool:
    """Return whether the names, or most fields after the first, begin or end with a blank."""
    if not records:
        return False
    fields = [field for record in records[1:] for field in record[1:] if field]
    padded = sum(field != field.strip(BLANKS) for field in fields)
    return any(name != name.strip(BLANKS) for name in records[0]) or padded > len(fields) / 2


_NUMERALS = ((".", ""), (".", ","), (",", ""), (",", "."), *((d, t) for t in " \u00a0\u202f'\u2019_" for d in ",."))


def _numerals(records: list[list[str]], form: CsvFormat) -> CsvFormat:
    """Return the format whose decimal sign and thousands separator make most columns numeric."""
    rows = [record for record in records[1:] if len(record) == len(records[0])]
    columns = [{text.strip(BLANKS) for text in column} - {""} for column in zip(*rows, strict=True)]
    # in 1,234 the comma is a decimal sign if it does not separate fields
    order = sorted(_NUMERALS, key=lambda pair: pair == (".", ",") and form.delimiter is not None)
    patterns = {pair: re.compile(numeral(*pair)) for pair in order}
    held = {
        pair: sum(bool(texts) and all(map(pattern.fullmatch, texts)) for texts in columns)
        for pair, pattern in patterns.items()
    }
    decimal, thousands = max(held, key=lambda pair: held[pair])  # on a tie the first
    return replace(form, decimal=decimal, thousands=thousands)


def in_numbers(texts: pa.ChunkedArray, form: CsvFormat) -> pa.ChunkedArray:
    """Return a column of text as numbers if every value is a numeral in the format; return other text unchanged.

    >>> in_numbers(pa.chunked_array([["1.234,5", "7", None]]), CsvFormat(decimal=",", thousands=".")).to_pylist()
    [1234.5, 7.0, None]
    >>> in_numbers(pa.chunked_array([["1.234", " 7"]]), CsvFormat(decimal=",", thousands=".")).to_pylist()
    [1234, 7]
    >>> in_numbers(pa.chunked_array([["1.234", "7b"]]), CsvFormat(decimal=",", thousands=".")).to_pylist()
    ['1.234', '7b']
    """
    import pyarrow.compute as pc

    digits = pc.utf8_trim(texts, BLANKS)
    numerals = pc.match_substring_regex(digits, f"^({numeral(form.decimal, form.thousands)})$")
    if not pc.all(numerals).as_py():  # also if there is no value at all
        return texts
    digits = pc.utf8_ltrim(digits, "+")
    digits = pc.replace_substring(digits, form.thousands, "") if form.thousands else digits
    digits = pc.replace_substring(digits, form.decimal, ".")
    try:
        return digits.cast(pa.int64())
    except pa.ArrowInvalid:
        return digits.cast(pa.float64())
