"""The statement of a release, its guarantee and privacy loss in words, and released rows."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from functools import cached_property
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from sfumato.domain import Unit
from sfumato.domain.unit import Acceptance
from sfumato.engine.table_files import discard
from sfumato.errors import InputError, SfumatoError, pluralize, short_deltas
from sfumato.extras import refuse_missing_library
from sfumato.ledger import Entry, Kind
from sfumato.ledger.entry import method_title
from sfumato.notebook_html import HtmlPage, html_note, html_table
from sfumato.privacy.loss import Charge, Loss, decimals, plain

if TYPE_CHECKING:
    import pyarrow as pa


def guarantee_text(loss: Loss | Charge, unit: Unit) -> str:
    """Return the guarantee of a release of the given loss, with its neighbor relation.

    >>> from sfumato.privacy.loss import Epsilon
    >>> guarantee_text(Epsilon("0.5"), Unit.row())
    'differential privacy with epsilon = 0.5 for adding or removing one row'
    """
    return f"{loss.promise} for {unit}"


def cost(charge: Charge | None) -> str:
    """Return the privacy loss of a release in words."""
    if charge is None:
        return "nothing that an accountant can count: no DP guarantee"
    parts = [
        f"rho {decimals(charge.rho, up=True)}"
        if charge.epsilon is None
        else f"epsilon {decimals(charge.epsilon, up=True)}"
    ]
    if charge.delta:
        parts.append(f"delta {decimals(charge.delta, up=True)}")
    return ", ".join(parts)


def charged_text(charge: Charge | None, *, dataset: bool, analyst: bool) -> str:
    """Return the privacy loss of an answer in words, by whether the dataset and the analyst were charged."""
    if charge is None or dataset:
        return cost(charge)
    if analyst:
        return f"nothing of the dataset; your account: {cost(charge)}"
    return "nothing: asked and answered before"


def entry_cost(entry: Entry) -> str:
    """Return the loss that an entry charged to the dataset, in words; these losses add up to its spent loss."""
    match entry.kind:
        case Kind.RELEASE:
            return cost(entry.charge)
        case Kind.REPEAT if entry.charge is not None:
            return f"nothing; the analyst's account: {cost(entry.charge)}"
        case Kind.REPEAT:
            return "nothing"
        case Kind.CAP | Kind.VERSION | Kind.RETRY | Kind.FAILED:
            return "no cost"


def loss_json(loss: Loss | Charge) -> Mapping[str, str | None]:
    """Return a loss, or an exact charge, as JSON values."""
    return {name: None if amount is None else plain(amount) for name, amount in loss.amounts.items()}


_RHO, _UP = re.compile(r"(?<=\brho )[0-9.e-]+"), Context(prec=6, rounding=ROUND_CEILING)  # exact in ``cost``
_MOST_LINES = 10  # rows, and errors, in a notebook
_ARROW_ROWS = 1 << 16  # rows of a record batch, as in Feather files
_LONGEST_NAME = 220  # bytes: file systems take 255, and the temporary file has a longer name
_SHOWN_NAME = 40  # characters of a name that is too long


@dataclass(frozen=True, kw_only=True, repr=False)
class Release:
    """The statement of a release.  Families add the thing itself (rows, answers, a recoding) as fields of their own.

    Attributes:
        guarantee: the promise in words and numbers, with its unit and neighbor relation.
        cost: the loss that this call added to the journal, in words; a repeated request is free.
        expected_error: expected size of the error by name, computed without the data.
        provenance: method, parameters, versions, domain hash and number of the journal entry.
        accepted: the acceptance of the description of the tables; None if it is unknown.
    """

    guarantee: str
    cost: str
    expected_error: Mapping[str, float]
    provenance: Mapping[str, Any]
    accepted: Acceptance | None = None

    def statement(self) -> dict[str, Any]:
        """Return the statement as plain JSON values."""
        return {
            "guarantee": self.guarantee,
            "cost": self.cost,
            "expected_error": dict(self.expected_error),
            "provenance": dict(self.provenance),
        }

    @property
    def method(self) -> str:
        """The method in words; empty if it is unknown."""
        return method_title(str(self.provenance.get("method", "")))

    @property
    def headline(self) -> str:
        """A few words about the released thing, for its text in a session."""
        return self.method

    @property
    def accuracy(self) -> str:
        """The largest expected error, in words."""
        name, error = max(self.expected_error.items(), key=lambda each: each[1], default=("", 0.0))
        return f"{error:.3g}, {name}" if name else "see its intervals"

    def summary(self) -> None:
        """Print five lines: the released thing, its guarantee, its cost, its accuracy, and its origin."""
        origin = filter(None, (self.method, str(self.provenance.get("journal_entry", ""))))
        lines = {
            type(self).__name__: self.headline,
            "Guarantee": self.guarantee,
            "Cost": _RHO.sub(lambda rho: f"{_UP.create_decimal(rho[0])}", self.cost),
            "Accuracy": self.accuracy,
            "Method and journal entry": ", ".join(origin),
        }
        print(short_deltas("\n".join(f"{term}: {text}" for term, text in lines.items())))  # noqa: T201  (what is asked for)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.headline}; {self.guarantee}; cost: {self.cost}>"

    def _repr_html_(self) -> str:
        return self.to_html()

    def to_html(self) -> str:
        """Return the statement as a table in HTML that any page and notebook can hold; ``provenance`` has the rest."""
        errors = [("Expected error", f"{value:.3g}: {name}") for name, value in self.expected_error.items()]
        more = len(errors) - _MOST_LINES
        if more > 0:
            errors[_MOST_LINES:] = [("Expected error", f"{more:,} more in .expected_error")]
        return html_table((), [*self.terms().items(), *errors], labels=1)

    def terms(self) -> dict[str, str]:
        """Return the guarantee, the cost and the origin of the release in words."""
        origin = {"Method": self.method, "Journal entry": self.provenance.get("journal_entry")}
        known = {name: str(value) for name, value in origin.items() if value not in (None, "")}
        described = {} if self.accepted is None else {"Description": f"accepted by {self.accepted}"}
        return {"Guarantee": self.guarantee, "Cost": self.cost, **known, **described}


def _cell_text(value: object) -> str:
    """Return a value of a table as a notebook shows it."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value).removesuffix(" 00:00:00")


class Tabular:
    """A released thing with rows that other libraries of tables read."""

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        raise NotImplementedError

    def to_pandas(self) -> Any:  # noqa: ANN401  (pandas is optional)
        """Return the rows as a pandas DataFrame.

        Raises:
            MissingExtraError: pandas is not installed.
        """
        refuse_missing_library("pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:  # noqa: ANN401  (polars is optional)
        """Return the rows as a polars DataFrame.

        Raises:
            MissingExtraError: polars is not installed.
        """
        refuse_missing_library("polars")
        import polars as pl

        return pl.from_arrow(self.to_arrow())


class Reported:
    """A release with a report: a page with pictures, and the picture of each column.

    A class names its report: the module of :mod:`sfumato.report` and the kind of release, such as
    ``"bar_pages.answer"``.  Modules are loaded by name, because reports import the families.
    """

    _report: ClassVar[str]

    def __init_subclass__(cls, *, report: str = "", **more: Any) -> None:  # noqa: ANN401
        super().__init_subclass__(**more)
        if report:
            cls._report = report

    def page(self) -> HtmlPage:
        """Return the full report with pictures; outside a notebook, also open it in a browser.

        Raises:
            MissingExtraError: the extra ``plots`` is not installed.
            SizeError: there are more rows than are sampled at once.
        """
        return self._drawn_page("", self)

    def plot(self, column: str | None = None) -> HtmlPage:
        """Return the picture of one column with its errors; outside a notebook, also open it in a browser.

        Args:
            column: the name of the column; None: all columns.

        Raises:
            InputError: there is no such column.
            MissingExtraError: the extra ``plots`` is not installed.
            SizeError: there are more rows than are sampled at once.
        """
        return self._drawn_page("_columns", self, column)

    def sign_off(  # noqa: PLR0913  (keywords, each of which is one line of a call)
        self,
        ledger: object = None,
        *,
        to: str = "",
        purpose: str = "",
        by: str = "",
        dataset: str = "default",
        evaluation: object = None,
        domain: object = None,
    ) -> HtmlPage:
        """Return the page on which a privacy officer decides; outside a notebook, also open it in a browser.

        Args:
            ledger: the path or URL of the ledger, or the open ledger, against which the page is checked.
            to: the people who receive the release.
            purpose: the purpose for which they may use it.
            by: the person who asks for the signature.
            dataset: the dataset of the ledger, if the ledger is given by its path or URL.
            evaluation: the path of the output of ``sfumato evaluate --json`` about a file of ``rows``.
            domain: the description of the table, for rows with part of its columns.  Default: next to the ledger.

        Raises:
            InputError: the ledger holds another release, or the evaluation judges other rows.
            MissingExtraError: the extra ``plots`` is not installed.
        """
        files, words = (import_module(f"sfumato.report.sign_off.sign_off_{name}") for name in ("files", "page"))
        evidence = files.Evidence(ledger=ledger, dataset=dataset, evaluation=evaluation, domain=domain)
        page: HtmlPage = files.draw_release_sign_off(self, words.Purpose(to, purpose, by), evidence)
        return page.opened()

    def _drawn_page(self, part: str, *content: object) -> HtmlPage:
        page: HtmlPage = self._report_part(part, *content)
        return page.opened()

    def _report_part(self, part: str, *content: object) -> Any:  # noqa: ANN401  (a page, or its part as HTML)
        module, _, kind = self._report.partition(".")
        return getattr(import_module(f"sfumato.report.{module}"), f"draw_{kind}{part}")(*content)


class RowBlocks(Protocol):
    """Rows that are made a block at a time, the same ones each time: a file of them takes the memory of a block."""

    @property
    def num_rows(self) -> int:
        """The number of rows of all blocks."""
        ...

    @property
    def column_names(self) -> Sequence[str]:
        """The names of the columns."""
        ...

    def __iter__(self) -> Iterator[pa.Table]:
        """At least one table, all with one schema."""
        ...


@dataclass(frozen=True, repr=False)
class ReleasedRows(Tabular):
    """A released table: it has rows and columns, and polars, pandas, DuckDB and Arrow read it directly.

    A file is written completely or not at all.  An existing file is replaced only on request.
    """

    made: pa.Table | RowBlocks

    @cached_property
    def table(self) -> pa.Table:
        """The table of all rows."""
        import pyarrow as pa

        return self.made if isinstance(self.made, pa.Table) else pa.concat_tables(self.made)

    def __len__(self) -> int:
        return int(self.made.num_rows)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.made.column_names)

    def __getitem__(self, column: str) -> pa.ChunkedArray:
        return self.table.column(column)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows through the Arrow stream interface."""
        return self.table.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<ReleasedRows: {pluralize(len(self), 'row')} of {', '.join(self.columns)}>"

    def _repr_html_(self) -> str:
        return self.to_html()

    def to_html(self, caption: str = "") -> str:
        """Return the first rows as a table in HTML, below a caption."""
        cells = zip(*self.table.slice(0, _MOST_LINES).to_pydict().values(), strict=True)
        table = html_table(self.columns, [list(map(_cell_text, row)) for row in cells], caption=caption)
        return table + html_note(f"{min(len(self), _MOST_LINES)} of {pluralize(len(self), 'row')}")

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self.table

    def to_parquet(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write a Parquet file."""
        self.write(_suffixed(path, ".parquet"), overwrite=overwrite)

    def to_csv(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write a CSV file with a header; missing values are empty."""
        self.write(_suffixed(path, ".csv"), overwrite=overwrite)

    def write(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write a file in the format of its ending: .parquet, .csv or .arrow.

        Raises:
            InputError: another ending, a folder that does not exist, or a file that does.
        """
        import pyarrow as pa

        writer = writable(path, overwrite=overwrite)
        blocks = [self.made] if isinstance(self.made, pa.Table) else self.made
        write_atomically(path, lambda partial: writer(iter(blocks), partial))


TableWriter = Callable[["Iterator[pa.Table]", Path], None]


def writable(path: str | Path, *, overwrite: bool) -> TableWriter:
    """Return the writer for ``path`` after a check that the file can be written, before anything is spent.

    Raises:
        InputError: an unknown ending, a folder that does not exist, or a file that does.
    """
    target = Path(path)
    writer = _WRITERS.get(target.suffix.lower())
    if writer is None:
        raise InputError(f"cannot write {target}: end it in .parquet, .csv or .arrow", culprit=target)
    refuse_occupied_path(target, overwrite=overwrite)
    return writer


def checked_path(path: str | Path) -> Path:
    """Refuse a path that names no file, or a name that is too long for its temporary file.

    Raises:
        InputError: it has no name, or too long a one.
    """
    target = Path(path)
    if not target.name:
        raise InputError(f"cannot write {target}: it names a folder and no file in it", culprit=target)
    if len(os.fsencode(target.name)) > _LONGEST_NAME:
        raise InputError(
            f"cannot write {target.name[:_SHOWN_NAME]}...: shorten the name to at most {_LONGEST_NAME} bytes",
            culprit=target,
        )
    return target


def refuse_occupied_path(path: str | Path, *, overwrite: bool) -> None:
    """Refuse a path whose folder does not exist, or an existing file without ``overwrite``.

    Raises:
        InputError: no such folder, no name that a file can have, or the file exists and ``overwrite`` is not set.
    """
    target = checked_path(path)
    try:
        above, is_folder, exists = target.parent.is_dir(), target.is_dir(), target.exists()
    except OSError as error:  # for example, the whole path is too long
        raise InputError(f"cannot write {target.name}: {error.strerror}", culprit=target) from None
    if not above:
        raise InputError(f"cannot write {target}: the folder {target.parent} does not exist", culprit=target)
    if not os.access(target.parent, os.W_OK) or is_folder:
        raise InputError(f"cannot write {target}: permission denied or a folder", culprit=target)
    if exists and not overwrite:
        raise InputError(
            f"{target} exists; choose another name, or overwrite it (--overwrite, overwrite=True)", culprit=target
        )


def write_atomically(path: str | Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a temporary file next to ``path``, then move it there in one step.

    Raises:
        SfumatoError: for example, the disk is full; no file remains.
    """
    target = Path(path)
    partial = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        partial.touch(exist_ok=False)  # with the process's permissions for new files
        write(partial)
        if partial.is_dir():
            target.unlink(missing_ok=True)  # a directory cannot replace a file
        partial.replace(target)
    except OSError as error:
        raise SfumatoError(f"cannot write {target}: {error.strerror or 'the disk failed'}", culprit=target) from error
    finally:
        discard(partial)


def save_text(path: str | Path, text: str, *, overwrite: bool) -> None:
    """Write a text file completely or not at all.

    Raises:
        InputError: see :func:`refuse_occupied_path`.
    """
    refuse_occupied_path(path, overwrite=overwrite)
    write_atomically(path, lambda partial: partial.write_bytes(text.encode()))


def rewrite_text(path: str | Path, text: str) -> None:
    """Replace the content of a text file completely or not at all; a link to it and its permissions stay.

    Raises:
        SfumatoError: see :func:`write_atomically`.
    """
    target = Path(path).resolve()
    mode = stat.S_IMODE(target.stat().st_mode)

    def fill(partial: Path) -> None:
        partial.chmod(mode)
        partial.write_bytes(text.encode())

    write_atomically(target, fill)


def _suffixed(path: str | Path, suffix: str) -> Path:
    if Path(path).suffix.lower() != suffix:
        raise InputError(f"{path} does not end in {suffix}", culprit=path)
    return Path(path)


def _parquet(blocks: Iterator[pa.Table], path: Path) -> None:
    import pyarrow.parquet as pq

    first = next(blocks)
    with pq.ParquetWriter(path, first.schema, compression="zstd") as file:
        for block in chain([first], blocks):
            file.write_table(block)


def _csv(blocks: Iterator[pa.Table], path: Path) -> None:
    from pyarrow import csv

    first = next(blocks)
    with csv.CSVWriter(path, first.schema) as file:
        for block in chain([first], blocks):
            file.write_table(block)


def _arrow(blocks: Iterator[pa.Table], path: Path) -> None:
    import pyarrow as pa

    first = next(blocks)
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, first.schema, options=options) as file:
        for block in chain([first], blocks):
            file.write_table(block, max_chunksize=_ARROW_ROWS)


_WRITERS: dict[str, TableWriter] = {".parquet": _parquet, ".csv": _csv, ".arrow": _arrow}
