"""The shared options of commands: the loss, the table, its domain or schema, and the ledger.

A command over several tables takes :data:`SchemaOption`, :data:`ViewOption`, :data:`UnitRowsOption` and
:data:`PerOption`.  :func:`read_view` makes a :class:`TableView` of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.app.cli.output import AT_END, print_message, working
from sfumato.app.help_pages import files_next_to
from sfumato.errors import InputError

if TYPE_CHECKING:
    from sfumato.app.api.questions import LossFields
    from sfumato.domain import Domain, GroupBound, Unit
    from sfumato.domain.table_schema import Schema
    from sfumato.domain.view import BoundedView
    from sfumato.engine.port import Recodable
    from sfumato.ledger import Ledger
    from sfumato.privacy.loss import Charge, Loss
    from sfumato.vault.schema_vault import SchemaVault
    from sfumato.vault.vault import Vault

_SURE = 0.99  # chance of a right guess from which a guarantee means nearly nothing
LEDGER, SEVERAL_TABLES = "Ledger", "Several tables"  # sections of --help

EpsilonOption = Annotated[
    str | None,
    typer.Option("--epsilon", metavar="E", help="Privacy loss. A smaller epsilon is more private and less accurate."),
]
DeltaOption = Annotated[
    str | None,
    typer.Option(
        "--delta", metavar="D", help="Usually 1e-9. Without it, epsilon takes far more of a budget that has a delta."
    ),
]
RhoOption = Annotated[
    str | None, typer.Option("--rho", metavar="R", help="Privacy loss in zCDP, instead of --epsilon and --delta.")
]
LimitOption = Annotated[
    str | None,
    typer.Option(
        "--limit",
        metavar="BUDGET",
        help="Privacy budget of a new ledger, such as 2,1e-9 (epsilon, delta). It can never be raised. Also 2 or "
        "rho=0.05.",
        rich_help_panel=LEDGER,
    ),
]
TableArgument = Annotated[str, typer.Argument(help="CSV or Parquet file, or the URL of a database table.")]
OneDomainOption = Annotated[
    Path | None,
    typer.Option("--domain", help="Accepted description of the table, a YAML file. Default: the file next to it."),
]
LedgerOption = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="LEDGER",
        help="SQLite file or database URL that records every release. Default: the file next to the domain.",
        rich_help_panel=LEDGER,
    ),
]
DatasetOption = Annotated[
    str,
    typer.Option("--dataset", metavar="NAME", help="Dataset, if the ledger holds several.", rich_help_panel=LEDGER),
]
AnalystOption = Annotated[
    str | None,
    typer.Option(
        "--analyst", metavar="NAME", help="Name of the analyst, if the ledger caps analysts.", rich_help_panel=LEDGER
    ),
]
CreateOption = Annotated[
    bool,
    typer.Option(
        "--create",
        help="Create the ledger, with --limit as its budget. Fails if there is one already.",
        rich_help_panel=LEDGER,
    ),
]
NewVersionOption = Annotated[
    bool,
    typer.Option(
        "--new-version",
        help="Declare that the data changed. Every query is then charged again.",
        rich_help_panel=LEDGER,
    ),
]
VerboseOption = Annotated[
    bool,
    typer.Option("--verbose", help="Print exact losses instead of shares of the budget.", rich_help_panel=LEDGER),
]
ConfirmOption = Annotated[
    list[str] | None,
    typer.Option(
        "--confirm", metavar="KINDS", help="Kinds of findings that you confirm, such as bounds,bins. Repeatable."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace an output file that exists.")]


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
    verbose: VerboseOption = False


@dataclass(frozen=True, kw_only=True)
class Source:
    """The table of a command, with its domain and its ledger.

    With ``view``, the rows are the rows of a view of several tables, and ``domain`` is the file of their schema.
    ``charge`` is the charge of the command, or None for a release that charges nothing.
    """

    table: str
    domain: Path
    journal: LedgerOptions
    charge: Charge | None
    view: TableView | None = None

    def files(self) -> tuple[str | Path, ...]:
        """Return the table, its domain and its ledger, which no output may replace."""
        return self.table, self.domain, self.ledger_url()

    def described(self) -> Domain:
        """Return the domain of the rows, from its file or of the view.

        Raises:
            DomainError: the file describes no domain, or it is a draft.
        """
        from sfumato.domain import load

        return load(self.domain) if self.view is None else self.view.domain

    def vault(self, described: Domain | None = None, *, raw: Sequence[str] = ()) -> Vault:
        """Open the table.  Its release opens the ledger, or creates it.

        ``described`` is the domain if it was already read.  ``raw`` are columns that the table must have.
        """
        from sfumato.engine.table_files import redacted_source
        from sfumato.vault.vault_opening import open_vault_later

        if self.view is not None:
            return self.schema(self.view.schema).for_view(self.view.view)
        ledger, domain = self._ledger(), described or self.described()
        with working(f"Reading {redacted_source(self.table)}"):
            return open_vault_later(
                self.table,
                domain=domain,
                ledger=ledger,
                analyst=self.journal.analyst,
                new_version=self.journal.new_version,
                raw=raw,
            )

    def schema(self, schema: Schema) -> SchemaVault:
        """Open the tables of a schema, whose file is ``domain``."""
        from sfumato.engine.table_files import redacted_source
        from sfumato.engine.views.joined import open_tables_with_content
        from sfumato.vault.schema_vault import SchemaVault

        schema.refuse_draft()
        ledger = self._ledger()
        with working(f"Reading {redacted_source(self.table)}"):
            opened, content = open_tables_with_content(schema, self.table)
            ledger.declare_later(content, new=self.journal.new_version)
            return SchemaVault(opened, ledger, ledger.version, analyst=self.journal.analyst)

    def ledger_url(self) -> str:
        """Return the database URL of the ledger: the given one, or the file next to the domain or to the table."""
        from sfumato.engine.open import file_path
        from sfumato.ledger.database import file_address
        from sfumato.vault.vault_opening import default_ledger_url

        if self.journal.ledger is not None:
            return database(self.journal.ledger)
        url, table = default_ledger_url(self.domain), Path(file_path(self.table) or "")
        if table.name and not Path(self.domain).with_suffix(".ledger").exists() and not self.journal.create:
            other = table.with_suffix(".ledger")
            url = file_address(other) if other.is_file() else url
        return url

    def _ledger(self) -> Ledger:
        """Return the ledger, which the first release creates if need be, and the end of the command closes."""
        from sfumato.app.api.questions import limit_of
        from sfumato.ledger.ledger import Ledger

        url, limit, create = self.ledger_url(), limit_of(self.journal.limit), self.journal.create
        warn_about_unmerged_log(url)
        ledger = Ledger(url, dataset=self.journal.dataset, limit=limit, create=create)
        AT_END.callback(ledger.close)
        most = ledger.refuse_missing(self.charge)
        if self.charge is not None and (cheaper := most.remedy(self.charge)):
            print_message(f"Before it is charged: {cheaper}.")
        if self.charge is not None:
            warn_about_weak_guarantee(self.charge)
        if create:
            warn_about_limit(most)
        if self.journal.ledger is None:
            print_message(f"Ledger: {url.removeprefix('sqlite:///')}")
        return ledger


def domain_or_schema(domain: Path | None, schema: Path | None, table: str | None = None) -> Path:
    """Return the file that describes the table or tables: the given one, or the YAML file next to ``table``.

    Raises:
        InputError: both files are named, or neither, and there is not exactly one file next to the table.
    """
    if domain is not None and schema is not None:
        raise InputError("name the domain of one table by --domain, or the schema of several by --schema, not both")
    if domain is None and schema is None and table is not None:
        near = described_by(table)
        print_message(f"Domain: {near}")
        return near
    if domain is None and schema is None:
        raise InputError(
            "name the accepted domain of the table by --domain, or the schema of several by --schema; 'sfumato domain "
            "draft' and 'sfumato schema draft' begin one"
        )
    path = schema or domain
    assert path is not None
    return path


def described_by(table: str) -> Path:
    """Return the YAML file that is named like the table.

    Raises:
        InputError: there is none, or there are two.
    """
    from sfumato.engine.table_files import redacted_source

    near = files_next_to(table, ".yaml", ".yml")
    if len(near) == 1:
        return near[0]
    if near:
        raise InputError(
            f"{near[0]} and {near[1]} both lie next to {table}; name one of them by --domain", culprit=table
        )
    raise InputError(f"no domain lies next to {redacted_source(table)}; name it by --domain", culprit=table)


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


def warn_about_weak_guarantee(charge: Charge) -> None:
    """Warn before a release after which an attack may tell nearly surely who is in the table."""
    from sfumato.privacy.loss import Epsilon, Rho

    loss = Rho(charge.rho) if charge.epsilon is None else Epsilon(charge.epsilon)
    if loss.right_guesses() >= _SURE:
        print_message(
            "Before it is charged: this loss protects nearly nothing. An attacker who guesses whether a person is in "
            f"the table may be right {100 * _SURE:g} % of the time, or more often."
        )


def warn_about_unmerged_log(url: str) -> None:
    """Warn if a copy of the ledger's file alone would lack releases."""
    from sfumato.ledger.store import unmerged_wal

    log = unmerged_wal(url)
    if log is not None:
        print_message(
            f"{log.name} is next to the ledger and may hold releases that the file lacks: another program has it "
            "open, or was killed. Copy a ledger with: sfumato ledger backup"
        )


def database(ledger: str) -> str:
    """Return the database URL of a ledger, from its file or its URL."""
    from sfumato.ledger.database import ledger_url

    return ledger_url(ledger)


SchemaOption = Annotated[
    Path | None,
    typer.Option(
        "--schema",
        help="Accepted schema of several tables, a YAML file. TABLE is then their folder or database.",
        rich_help_panel=SEVERAL_TABLES,
    ),
]
ViewOption = Annotated[
    Path | None,
    typer.Option(
        "--view",
        help="With --schema: file with a SELECT over the tables. Its rows are released.",
        rich_help_panel=SEVERAL_TABLES,
    ),
]
UnitRowsOption = Annotated[
    int | None,
    typer.Option(
        "--unit-rows",
        min=1,
        help="With --schema: the most rows that count for one person. Default: the bound of the schema.",
        rich_help_panel=SEVERAL_TABLES,
    ),
]
PerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--per",
        metavar="BOUND",
        help="With --schema: bound by groups, such as 'month(admitted)=2,4' (rows per group, groups). Repeatable. "
        "Replaces those of the schema.",
        rich_help_panel=SEVERAL_TABLES,
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
    _ = table_view.domain  # refuses bounds by groups that it does not have
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
