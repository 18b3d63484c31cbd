"""The shared options of commands: the loss, the table, its domain or schema, and the ledger.

A command over several tables takes :data:`SchemaOption`, :data:`ViewOption`, :data:`UnitRowsOption` and
:data:`PerOption`.  :func:`read_view` makes a :class:`TableView` of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.app.cli.output import AT_END, print_message, working
from sfumato.errors import InputError

if TYPE_CHECKING:
    from sfumato.app.api.questions import LossFields
    from sfumato.domain import Domain, GroupBound, Unit
    from sfumato.domain.table_schema import Schema
    from sfumato.domain.view import BoundedView
    from sfumato.engine.csv_file import Written
    from sfumato.engine.port import ProtectedTable, Recodable
    from sfumato.ledger import Ledger
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
ConfirmOption = Annotated[
    list[str] | None,
    typer.Option("--confirm", help="Kinds of findings that you confirm, such as bounds,bins; may be repeated."),
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


@dataclass(frozen=True, kw_only=True)
class LossOptions:
    """The options of the privacy loss."""

    epsilon: EpsilonOption = None
    delta: DeltaOption = None
    rho: RhoOption = None

    def fields(self) -> LossFields:
        """Return the fields of the loss, with each number checked.

        Raises:
            InputError: an option is no number.
        """
        from sfumato.app.api.questions import LossFields, validate_fields

        return validate_fields(LossFields, asdict(self))


@dataclass(frozen=True, kw_only=True)
class LedgerOptions:
    """The options of the ledger."""

    ledger: LedgerOption = None
    dataset: DatasetOption = "default"
    limit: LimitOption = None
    create: CreateOption = False
    new_version: NewVersionOption = False
    analyst: AnalystOption = None


@dataclass(frozen=True, kw_only=True)
class CsvOptions:
    """The dialect of the CSV files of a command.  A field of None is detected."""

    delimiter: DelimiterOption = None
    decimal: DecimalOption = None
    thousands: ThousandsOption = None
    encoding: EncodingOption = None
    trim: TrimOption = None

    def declared(self) -> dict[str, Any]:
        """Return the fields of a format that the command states."""
        options = asdict(self) | {"delimiter": "\t" if self.delimiter == "\\t" else self.delimiter}
        return {name: each for name, each in options.items() if each is not None}

    def written(self, table: str) -> Written:
        """Detect the dialect of a CSV file, and describe what differs from the usual one.

        Raises:
            InputError, DomainError, TableError: as :func:`sfumato.engine.csv_file.how_written` says.
        """
        from sfumato.engine.csv_file import how_written

        return how_written(table, self.declared())

    def for_file(self, table: str) -> CsvOptions:
        """Return the options for another table: none if it is no CSV file."""
        from sfumato.engine.table_files import CSV_SUFFIXES

        return self if table.lower().endswith(CSV_SUFFIXES) else CsvOptions()

    def open(self, table: str) -> ProtectedTable:
        """Open a table without a domain, and report an unusual dialect of its CSV file."""
        from sfumato.engine.open import open_table
        from sfumato.engine.table_files import redacted_source

        dialect = self.written(table)
        for detail in dialect.notes:
            print_message(f"{redacted_source(table)}: {detail}.")
        return open_table(table, csv=dialect.format)


@dataclass(frozen=True, kw_only=True)
class Source:
    """The table of a command, with its domain and its ledger.

    With ``view``, the rows are those of a view of several tables, and ``domain`` is the file of their schema.
    ``charge`` is the charge of the command, or None for a release that charges nothing.
    """

    table: str
    domain: Path
    journal: LedgerOptions
    charge: Charge | None
    view: TableView | None = None

    def files(self) -> tuple[str | Path, ...]:
        """Return the table, its domain and its ledger, which no output may replace."""
        from sfumato.vault.vault_opening import default_ledger_url

        return self.table, self.domain, self.journal.ledger or default_ledger_url(self.domain)

    def described(self) -> Domain:
        """Return the domain of the rows, from its file or of the view.

        Raises:
            DomainError: the file describes no domain, or it is a draft.
        """
        from sfumato.domain import load

        return load(self.domain) if self.view is None else self.view.domain

    def vault(self, *, first: Loss | None, described: Domain | None = None) -> Vault:
        """Open the table.  Its release opens the ledger, or creates it with ``limit`` or ``first`` as its budget.

        ``described`` is the domain if it was already read.
        """
        from sfumato.engine.table_files import redacted_source
        from sfumato.vault.vault_opening import open_vault_later

        if self.view is not None:
            return self.schema(self.view.schema, first=first).for_view(self.view.view)
        ledger = self._ledger(first)
        with working(f"Reading {redacted_source(self.table)}"):
            return open_vault_later(
                self.table,
                domain=described or self.domain,
                ledger=ledger,
                analyst=self.journal.analyst,
                new_version=self.journal.new_version,
            )

    def schema(self, schema: Schema, *, first: Loss | None) -> SchemaVault:
        """Open the tables of a schema, whose file is ``domain``."""
        from sfumato.engine.table_files import redacted_source
        from sfumato.engine.views.joined import open_tables_with_content
        from sfumato.vault.schema_vault import SchemaVault

        schema.refuse_draft()
        ledger = self._ledger(first)
        with working(f"Reading {redacted_source(self.table)}"):
            opened, content = open_tables_with_content(schema, self.table)
            ledger.declare_later(content, new=self.journal.new_version)
            return SchemaVault(opened, ledger, ledger.version, analyst=self.journal.analyst)

    def _ledger(self, first: Loss | None) -> Ledger:
        """Return the ledger, which the first release makes if need be, and the end of the command closes."""
        from sfumato.app.api.questions import limit_of
        from sfumato.ledger.ledger import Ledger
        from sfumato.vault.vault_opening import default_ledger_url

        url = default_ledger_url(self.domain) if self.journal.ledger is None else database(self.journal.ledger)
        warn_about_unmerged_log(url)
        limit = limit_of(self.journal.limit)
        create = self.journal.create
        ledger = Ledger(url, dataset=self.journal.dataset, limit=limit, limit_if_new=first, create=create)
        AT_END.callback(ledger.close)
        most = ledger.refuse_missing(self.charge)
        if self.charge is not None and (cheaper := most.remedy(self.charge)):
            print_message(f"Before it is charged: {cheaper}.")
        if create:
            warn_about_limit(most)
        return ledger


def domain_or_schema(domain: Path | None, schema: Path | None) -> Path:
    """Return the file that describes the table or tables.

    Raises:
        InputError: both files are named, or neither.
    """
    if domain is not None and schema is not None:
        raise InputError("name the domain of one table by --domain, or the schema of several by --schema, not both")
    if domain is None and schema is None:
        raise InputError(
            "name the accepted domain of the table by --domain, or the schema of several by --schema; 'sfumato domain "
            "draft' and 'sfumato schema draft' begin one"
        )
    path = schema or domain
    assert path is not None
    return path


def existing(ledger: str, dataset: str) -> Ledger:
    """Open a ledger that must exist."""
    from sfumato.ledger import open_ledger

    url = database(ledger)
    warn_about_unmerged_log(url)
    return open_ledger(url, dataset=dataset, limit=None)


def warn_about_limit(limit: Loss) -> None:
    """Warn that a new ledger with a limit of pure epsilon never takes other losses."""
    from sfumato.privacy.loss import Epsilon, plain

    if isinstance(limit, Epsilon):
        print_message(
            "The new ledger promises pure epsilon: it will never take --delta or --rho. One with --limit "
            f"{plain(limit.value)},1e-9 takes pure epsilon as well."
        )


def warn_about_unmerged_log(url: str) -> None:
    """Warn if a copy of the ledger's file alone would lack releases."""
    from sfumato.ledger.store import unmerged_wal

    log = unmerged_wal(url)
    if log is not None:
        print_message(
            f"{log.name} lies beside the ledger and may hold releases that the file lacks: another program has it "
            "open, or was killed. Copy a ledger with: sfumato ledger backup"
        )


def database(ledger: str) -> str:
    """Return the database URL of a ledger, from its file or its URL."""
    from sfumato.ledger.database import ledger_url

    return ledger_url(ledger)


SchemaOption = Annotated[
    Path | None,
    typer.Option("--schema", help="Schema of several tables, a YAML file; the table then is their folder or database."),
]
ViewOption = Annotated[
    Path | None,
    typer.Option(
        "--view", help="With --schema: a file with the SELECT whose rows are taken, SELECT * or one row a person."
    ),
]
UnitRowsOption = Annotated[
    int | None,
    typer.Option(
        "--unit-rows", min=1, help="With --schema: rows of one person that are kept, in place of what the schema says."
    ),
]
PerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--per",
        help="With --schema: GROUPING=ROWS or GROUPING=ROWS,GROUPS, as 'month(admitted)=2,4', in place of all that "
        "the schema says by groups; several times.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class ViewOptions:
    """The options of a view of several tables, and of the bounds on its rows."""

    schema: SchemaOption = None
    view: ViewOption = None
    unit_rows: UnitRowsOption = None
    per: PerOption = None

    def read(self) -> TableView | None:
        """Read the view, as :func:`read_view` does."""
        return read_view(self.schema, self.view, rows=self.unit_rows, per=self.per)


@dataclass(frozen=True)
class TableView:
    """A bounded view of the tables of a schema.

    Attributes:
        path: file of the schema.
        schema: the accepted schema.
        view: the view with its bounds.
    """

    path: Path
    schema: Schema
    view: BoundedView

    @property
    def domain(self) -> Domain:
        """The domain of the rows of the view."""
        return self.view.domain

    def encoded(self, tables: str) -> Recodable:
        """Return the encoded rows of the view, for their owner.

        Raises:
            TableError: a table is missing, cannot be read, or a key names several rows.
        """
        from sfumato.engine.views.joined import open_tables

        return open_tables(self.schema, tables).encode(self.view)


def read_schema(path: Path) -> Schema:
    """Read an accepted schema.

    Raises:
        DomainError: the schema cannot be read, is a draft, was changed after its acceptance, or derives a column that
            cannot be computed.
    """
    from sfumato.domain.table_schema import load_schema
    from sfumato.query.statements.derived_columns import check_derived

    described = load_schema(path)
    described.refuse_draft()
    check_derived(described)
    return described


def read_view(
    schema: Path | None, view: Path | None, *, rows: int | None = None, per: Sequence[str] | None = None
) -> TableView | None:
    """Read the view of a command, or return None without a schema.

    Raises:
        InputError: a view without a schema or the reverse, a file that cannot be read, or a wrong bound.
        DomainError: the schema cannot be read, or is not accepted.
        QueryError: the statement is outside the grammar.
    """
    refuse_without_schema(schema, view=view is not None, unit_rows=rows is not None, per=bool(per))
    if schema is None:
        return None
    if view is None:
        raise InputError("say which rows of the tables are meant: --view FILE, a SELECT over the tables of --schema")
    from sfumato.query.statements.table_statement import parse_view

    described = read_schema(schema)
    bounded = parse_view(view_text(view), described)
    table_view = TableView(schema, described, replace(bounded, unit=other_bounds(bounded.unit, rows=rows, per=per)))
    _ = table_view.domain  # refuses bounds by what is no grouping of it
    return table_view


def refuse_without_schema(schema: Path | None, **given: bool) -> None:
    """Refuse options for several tables if no schema is given.

    Raises:
        InputError: an option is for several tables.  The message names it.
    """
    if schema is None and (named := [f"--{name.replace('_', '-')}" for name, is_given in given.items() if is_given]):
        is_or_are = "is" if len(named) == 1 else "are"
        raise InputError(
            f"{' and '.join(named)} {is_or_are} about several tables: name their schema by --schema", culprit=named
        )


def other_bounds(unit: Unit, *, rows: int | None, per: Sequence[str] | None) -> Unit:
    """Return a unit with the bounds of the options instead of its own.

    Raises:
        InputError: a bound by groups has another form than GROUPING=ROWS or GROUPING=ROWS,GROUPS.
    """
    if rows is None and not per:
        return unit
    return unit.bounded(rows=rows or unit.rows, per=tuple(map(_group_bound, per)) if per else unit.per)


def _group_bound(text: str) -> GroupBound:
    from sfumato.domain.unit import GroupBound

    name, _, most = text.rpartition("=")
    numbers = [part.strip() for part in most.split(",")]
    if not name.strip() or not 1 <= len(numbers) <= len(("rows", "groups")) or not all(map(str.isdecimal, numbers)):
        raise InputError(f"--per takes GROUPING=ROWS or GROUPING=ROWS,GROUPS, as 'month(admitted)=2,4', not {text!r}")
    rows, groups = int(numbers[0]), int(numbers[1]) if len(numbers) > 1 else None
    return GroupBound.named(name.strip(), rows=rows, groups=groups)


def view_text(path: Path) -> str:
    """Read the statement of a view from its file.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"cannot read the view {path}: {reason}", culprit=path) from None
    return text.strip().removesuffix(";")
