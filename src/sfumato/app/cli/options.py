"""Options that commands share, and what they open: losses, table, domain, ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.app.cli.output import remark, working
from sfumato.app.requests.fields import limit_of

if TYPE_CHECKING:
    from sfumato.ledger import Ledger
    from sfumato.privacy.loss import Loss
    from sfumato.vault.vault import Vault

EpsilonOption = Annotated[str | None, typer.Option("--epsilon", help="Pure epsilon, or with --delta approximate.")]
DeltaOption = Annotated[str | None, typer.Option("--delta", help="Delta, with --epsilon.")]
RhoOption = Annotated[str | None, typer.Option("--rho", help="Zero-concentrated loss, instead of --epsilon.")]
LimitOption = Annotated[
    str | None,
    typer.Option(
        "--limit", help="Most that may ever be released: EPSILON, EPSILON,DELTA or rho=RHO; for a new ledger."
    ),
]
TableArgument = Annotated[str, typer.Argument(help="CSV or Parquet file, or the URL of a table.")]
DomainOption = Annotated[Path, typer.Option("--domain", help="Accepted domain of the table, a YAML file.")]
LedgerOption = Annotated[
    str | None, typer.Option("--ledger", help="Ledger, a SQLite file or a database URL; beside the domain without.")
]
DatasetOption = Annotated[str, typer.Option("--dataset", help="Journal, where the ledger keeps several.")]
AnalystOption = Annotated[str | None, typer.Option("--analyst", help="Who asks, where the ledger caps analysts.")]

CreateOption = Annotated[
    bool, typer.Option("--create", help="Begin the ledger, with --limit or the loss of this release as its limit.")
]


def vault_for(
    table: str,
    *,
    domain: Path,
    ledger: str | None,
    dataset: str,
    limit: str | None,
    first: Loss | None,
    analyst: str | None = None,
    create: bool = False,
) -> Vault:
    """Open the table; its ledger is opened by the release.

    With ``create``, the release makes it, limited to ``limit`` or ``first``.
    """
    from sfumato.engine.table_files import shown
    from sfumato.ledger.deferred import DeferredLedger
    from sfumato.vault.vault import beside, open_vault_later

    url = beside(domain) if ledger is None else database(ledger)
    remark_log(url)
    deferred = DeferredLedger(url, dataset, limit=limit_of(limit), limit_if_new=first, create=create)
    deferred.refuse_missing()
    with working(f"Reading {shown(table)}"):
        return open_vault_later(table, domain=domain, ledger=deferred, analyst=analyst)


def existing(ledger: str, dataset: str) -> Ledger:
    """Open a ledger that must exist."""
    from sfumato.ledger import open_ledger

    url = database(ledger)
    remark_log(url)
    return open_ledger(url, dataset=dataset, limit=None)


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
    return ledger if "://" in ledger else f"sqlite:///{Path(ledger)}"
