"""``sfumato apply``: rewrite new rows as a saved recoding says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.app.cli.anonymize import KeepOption, NearDomainOption, beside_table, names, ready, report
from sfumato.app.cli.losses import LimitOption
from sfumato.app.cli.opening import AnalystOption, CreateOption, DatasetOption, LedgerOption, vault_for
from sfumato.app.cli.output import Json, Overwrite, refuse_clashes, working


def apply(
    recoding: Annotated[Path, typer.Argument(help="Recoding that 'sfumato anonymize --recoding' saved.")],
    table: Annotated[str, typer.Argument(help="New rows: CSV or Parquet file, or the URL of a table.")],
    out: Annotated[Path, typer.Option(help="Where to write the rows: .parquet or .csv.")],
    keep: KeepOption = "",
    domain: NearDomainOption = None,
    ledger: LedgerOption = None,
    dataset: DatasetOption = "default",
    limit: LimitOption = None,
    create: CreateOption = False,
    analyst: AnalystOption = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Rewrite new rows as a saved recoding says; classes too small among the new rows are suppressed."""
    from sfumato import anonymize as methods
    from sfumato.vault.opening import beside

    ready(out, overwrite=overwrite)
    described = beside_table(table, domain)
    refuse_clashes([out], inputs=[recoding, table, described, ledger or beside(described)], overwrite=overwrite)
    saved = methods.load_recoding(recoding)
    vault = vault_for(
        table,
        domain=described,
        ledger=ledger,
        dataset=dataset,
        limit=limit,
        create=create,
        first=None,
        analyst=analyst,
    )
    with working("Rewriting"):
        release = methods.apply(vault, saved, keep=names(keep))
    release.write(out, overwrite=overwrite)
    report(release, out, as_json=as_json)
