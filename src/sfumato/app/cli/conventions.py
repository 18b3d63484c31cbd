"""What commands share: options, the table, domain and ledger that they name, and what is said and written, and where.

Results go to standard output, everything else to standard error; files are checked before anything is spent, and
never written over what is read.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.app.api.methods import EXACT_FIGURES
from sfumato.errors import InputError

if TYPE_CHECKING:
    from sfumato.app.cli.schema_options import TableView
    from sfumato.domain import Domain
    from sfumato.domain.table_schema import Schema
    from sfumato.engine.csv_file import Written
    from sfumato.engine.port import ProtectedTable
    from sfumato.ledger import DeferredLedger, Ledger
    from sfumato.privacy.loss import Charge, Loss
    from sfumato.vault.schema_vault import SchemaVault
    from sfumato.vault.vault import Vault

EpsilonOption = Annotated[
    str | None, typer.Option("--epsilon", help="Epsilon of differential privacy: pure, or approximate with --delta.")
]
DeltaOption = Annotated[
    str | None, typer.Option("--delta", help="Delta of approximate differential privacy, with --epsilon.")
]
RhoOption = Annotated[
    str | None, typer.Option("--rho", help="Rho of zero-concentrated differential privacy, instead of --epsilon.")
]
LimitOption = Annotated[
    str | None,
    typer.Option(
        "--limit",
        help="Privacy budget of a new ledger, the most that may ever be released: EPSILON, EPSILON,DELTA or rho=RHO.",
    ),
]
TableArgument = Annotated[str, typer.Argument(help="CSV or Parquet file, or the URL of a table.")]
DomainOption = Annotated[Path, typer.Option("--domain", help="Accepted domain of the table, a YAML file.")]
OneDomainOption = Annotated[
    Path | None, typer.Option("--domain", help="Accepted domain of the table, a YAML file; or --schema.")
]
LedgerOption = Annotated[
    str | None, typer.Option("--ledger", help="Ledger, a SQLite file or a database URL; beside the domain without.")
]
DatasetOption = Annotated[
    str, typer.Option("--dataset", help="Dataset, where the ledger keeps the journals of several.")
]
AnalystOption = Annotated[str | None, typer.Option("--analyst", help="Who asks, where the ledger caps analysts.")]
CreateOption = Annotated[
    bool, typer.Option("--create", help="Begin the ledger, with --limit or the loss of this release as its limit.")
]
NewVersionOption = Annotated[
    bool,
    typer.Option(
        "--new-version",
        help="Declare the tables as the next version of the data, whether they differ from the last or not: every "
        "question is charged again.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace an output file that exists.")]


DelimiterOption = Annotated[
    str | None, typer.Option("--delimiter", help="What stands between the fields of CSV; else found out.")
]
DecimalOption = Annotated[
    str | None, typer.Option("--decimal", help="Decimal sign of CSV, '.' or ','; else found out.")
]
ThousandsOption = Annotated[
    str | None, typer.Option("--thousands", help="What divides thousands in CSV, '' for nothing; else found out.")
]
EncodingOption = Annotated[
    str | None, typer.Option("--encoding", help="Encoding of CSV, such as cp1252; else found out.")
]
TrimOption = Annotated[
    bool | None,
    typer.Option("--trim/--no-trim", help="Whether blanks around fields of CSV are left out; else found out."),
]


@dataclass(frozen=True)
class CsvOptions:
    """What a command was told of how its CSV files are written; what is None is found out."""

    delimiter: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None
    trim: bool | None = None

    def written(self, table: str) -> Written:
        """How a table's file is written, where it is not as usual, with what was found out in sentences.

        Raises:
            InputError, DomainError, TableError: as :func:`sfumato.engine.csv_file.how_written` says.
        """
        from sfumato.engine.csv_file import how_written

        said = asdict(self) | {"delimiter": "\t" if self.delimiter == "\\t" else self.delimiter}
        return how_written(table, {name: each for name, each in said.items() if each is not None})

    def of_csv(self, table: str) -> CsvOptions:
        """What is said of a further table: nothing where it is no CSV file."""
        from sfumato.engine.table_files import CSV_SUFFIXES

        return self if table.lower().endswith(CSV_SUFFIXES) else CsvOptions()

    def open(self, table: str) -> ProtectedTable:
        """Open a table that no domain describes, and say how its file is written, where it is not as usual."""
        from sfumato.engine.open import open_table
        from sfumato.engine.table_files import shown

        found = self.written(table)
        for told in found.remarks:
            remark(f"{shown(table)}: {told}.")
        return open_table(table, csv=found.format)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A table with its domain, and the ledger that its releases go to, as a command names them.

    With ``view`` the rows are those of a view of several tables, and ``domain`` is the file of their schema.
    ``charge`` is what the command charges, which the ledger must be able to take; None for a release that charges
    nothing.
    """

    table: str
    domain: Path
    ledger: str | None
    dataset: str
    limit: str | None
    create: bool
    new_version: bool
    analyst: str | None
    charge: Charge | None
    view: TableView | None = None

    def files(self) -> tuple[str | Path, ...]:
        """What no output may take the place of."""
        from sfumato.vault.vault_opening import beside

        return self.table, self.domain, self.ledger or beside(self.domain)

    def vault(self, *, first: Loss | None, described: Domain | None = None) -> Vault:
        """Open the table; its ledger is opened by the release; ``described`` is its domain, where it was read already.

        With ``create``, the release makes it, limited to ``limit`` or ``first``.
        """
        from sfumato.engine.table_files import shown
        from sfumato.vault.vault_opening import open_vault_later

        if self.view is not None:
            return self.schema(self.view.schema, first=first).over(self.view.view)
        deferred = self._ledger(first)
        with working(f"Reading {shown(self.table)}"):
            return open_vault_later(
                self.table,
                domain=described or self.domain,
                ledger=deferred,
                analyst=self.analyst,
                new_version=self.new_version,
            )

    def schema(self, schema: Schema, *, first: Loss | None) -> SchemaVault:
        """Open several tables; ``domain`` is the file of their schema, beside which the ledger lies."""
        from sfumato.engine.table_files import shown
        from sfumato.engine.views.joined import open_tables_with_content
        from sfumato.vault.schema_vault import SchemaVault

        schema.refuse_draft()
        deferred = self._ledger(first)
        with working(f"Reading {shown(self.table)}"):
            opened, content = open_tables_with_content(schema, self.table)
            journal = deferred.of_content(content, new=self.new_version)
            return SchemaVault(opened, journal, journal.version, analyst=self.analyst)

    def _ledger(self, first: Loss | None) -> DeferredLedger:
        """The ledger, which the first release opens, and makes if need be."""
        from sfumato.app.api.fields import limit_of
        from sfumato.ledger import DeferredLedger
        from sfumato.vault.vault_opening import beside

        url = beside(self.domain) if self.ledger is None else database(self.ledger)
        remark_log(url)
        limit = limit_of(self.limit)
        deferred = DeferredLedger(url, self.dataset, limit=limit, limit_if_new=first, create=self.create)
        most = deferred.refuse_missing(self.charge)
        if most is not None and self.charge is not None and (cheaper := most.remedy(self.charge)):
            remark(f"Before it is charged: {cheaper}.")
        if self.create and most is not None:
            remark_limit(most)
        return deferred


def domain_or_schema(domain: Path | None, schema: Path | None) -> Path:
    """The file that describes what is asked.

    Raises:
        InputError: none is named, or both.
    """
    if domain is not None and schema is not None:
        raise InputError("name the domain of one table by --domain, or the schema of several by --schema, not both")
    if domain is None and schema is None:
        raise InputError("name the accepted domain of the table by --domain, or the schema of several by --schema")
    found = schema or domain
    assert found is not None
    return found


def existing(ledger: str, dataset: str) -> Ledger:
    """Open a ledger that must exist."""
    from sfumato.ledger import open_ledger

    url = database(ledger)
    remark_log(url)
    return open_ledger(url, dataset=dataset, limit=None)


def remark_limit(limit: Loss) -> None:
    """Say what a new ledger with this limit never takes."""
    from sfumato.privacy.loss import Epsilon, plain

    if isinstance(limit, Epsilon):
        remark(
            "The new ledger promises pure epsilon: it will never take --delta or --rho. One with --limit "
            f"{plain(limit.value)},1e-9 takes pure epsilon as well."
        )


def remark_log(url: str) -> None:
    """Say that a copy of the ledger's file alone would lack releases, where that is so."""
    from sfumato.ledger.store import left_in_log

    log = left_in_log(url)
    if log is not None:
        remark(
            f"{log.name} lies beside the ledger and may hold releases that the file lacks: another program has it "
            "open, or was killed. Copy a ledger with: sfumato ledger backup"
        )


def database(ledger: str) -> str:
    """The database URL of a ledger named by a file or by a URL."""
    from sfumato.ledger.database import file_address

    return ledger if "://" in ledger else file_address(Path(ledger))


def result(value: Mapping[str, Any] | Sequence[Any], text: str, *, as_json: bool) -> None:
    """Print a result: ``value`` as JSON, or ``text`` for people."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False, default=str) if as_json else text)


def exact_result(value: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    """Print figures that were read off the rows without noise, and that they are for the owner of the table alone."""
    result({"notice": EXACT_FIGURES, **value}, f"{text}\n\n{EXACT_FIGURES}", as_json=as_json)


def remark(text: str) -> None:
    """Say something on standard error, with the options that state the amounts it asks for."""
    typer.echo(_in_options(text), err=True)


def _in_options(message: str) -> str:
    """Return a message with options of the command line for amounts, which other callers state in their own way.

    >>> _in_options("with a delta of 1e-09 it asks for less; begin a ledger with the limit 1,1e-9")
    'with --delta 1e-09 it asks for less; begin a ledger with --limit 1,1e-9'
    """
    return re.sub(r"\ba delta of (?=\d)", "--delta ", re.sub(r"\bwith the limit (?=\d)", "with --limit ", message))


def columns(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as an aligned plain-text table with a header."""
    if not rows:
        return "(none)"
    names = list(rows[0])
    cells = [names, *([_cell(row[name]) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


@contextmanager
def working(description: str) -> Iterator[Callable[[str], None]]:
    """Show that something is going on; what is yielded takes the step that begins, in a few words."""
    if not sys.stderr.isatty():
        remark(f"{description} ...")
        yield lambda step: remark(f"  {step} ...")
        return
    from rich.console import Console

    with Console(stderr=True).status(description) as status:
        yield lambda step: status.update(f"{description}: {step}")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def folder(path: Path) -> None:
    """Make a folder to write to, with those around it, unless it is there.

    Raises:
        InputError: a file is in its place, or permission is denied.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to the folder {path}: {error.strerror}", culprit=path) from None


def refuse_clashes(outputs: Sequence[Path | None], *, inputs: Sequence[str | Path | None], overwrite: bool) -> None:
    """Refuse outputs that cannot be written, that are one file, or that are the table, domain or ledger in use.

    ``inputs`` may be URLs; a SQLite ledger is the file behind its URL, and so is what an engine reads.

    Raises:
        InputError: an output cannot be written, exists and is not to be replaced, is named twice, or is one of the
            inputs; nothing was touched.
    """
    from sfumato.vault.release import free

    taken = {_file(place) for place in inputs if place is not None}
    for output in outputs:
        if output is None:
            continue
        free(output, overwrite=overwrite)
        place = output.resolve()
        if place in taken:
            raise InputError(f"{output} is read, or written already, by this command; choose another name")
        taken.add(place)


def _file(place: str | Path) -> Path:
    from sfumato.engine.open import file_path
    from sfumato.ledger.database import Address

    address = Address.parse(str(place)) if str(place).startswith("sqlite:") else None
    named = file_path(str(place)) or str(place) if address is None else address.database or ""
    return Path(named).resolve()
