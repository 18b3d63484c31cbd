"""``sfumato ledger``: what has been released, what it cost, and what is left."""

from __future__ import annotations

from typing import Annotated

import typer

from sfumato.app.cli.losses import Delta, EpsilonOption, Rho, loss_from
from sfumato.app.cli.output import Json, columns, result

app = typer.Typer(no_args_is_help=True, help="What has been released, what it cost, and what is left.")

Url = Annotated[str, typer.Argument(help="Ledger: a SQLite file, or a database URL.")]
Dataset = Annotated[str, typer.Option(help="Journal, where the ledger keeps several.")]
