"""Options by which every releasing command names its table, description and ledger."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.app.cli.ledger import database, remark_log
from sfumato.app.cli.output import working
from sfumato.app.requests.fields import limit_of

if TYPE_CHECKING:
    from sfumato.privacy.loss import Loss
    from sfumato.vault.vault import Vault

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
    from sfumato.engine.address import shown
    from sfumato.ledger.deferred import DeferredLedger
    from sfumato.vault.opening import beside, open_vault_later

    url = beside(domain) if ledger is None else database(ledger)
    remark_log(url)
    deferred = DeferredLedger(url, dataset, limit=limit_of(limit), limit_if_new=first, create=create)
    deferred.refuse_missing()
    with working(f"Reading {shown(table)}"):
        return open_vault_later(table, domain=domain, ledger=deferred, analyst=analyst)
