"""Privacy parameters on the command line: there is none by default, and text is read exactly."""

from __future__ import annotations

from typing import Annotated

import typer

EpsilonOption = Annotated[str | None, typer.Option("--epsilon", help="Pure epsilon, or with --delta approximate.")]
DeltaOption = Annotated[str | None, typer.Option("--delta", help="Delta, with --epsilon.")]
RhoOption = Annotated[str | None, typer.Option("--rho", help="Zero-concentrated loss, instead of --epsilon.")]
LimitOption = Annotated[
    str | None,
    typer.Option(
        "--limit", help="Most that may ever be released: EPSILON, EPSILON,DELTA or rho=RHO; for a new ledger."
    ),
]
