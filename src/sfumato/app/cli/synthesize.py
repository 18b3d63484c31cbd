"""``sfumato synthesize``: release a synthetic table."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.app.cli.losses import DeltaOption, EpsilonOption, LimitOption, RhoOption
from sfumato.app.cli.opening import (
    AnalystOption,
    DatasetOption,
    DomainOption,
    LedgerOption,
    TableArgument,
    vault_for,
)
from sfumato.app.cli.output import Json, Overwrite, remark, result, working
from sfumato.app.cli.outputs import refuse_clashes
from sfumato.app.losses import loss_of
from sfumato.errors import InputError

if TYPE_CHECKING:
    from sfumato.privacy.loss import Loss
    from sfumato.synthesize.synthetic import Synthetic
    from sfumato.synthesize.total import Total
    from sfumato.synthesize.workload import Marginals
    from sfumato.vault.vault import Vault


class Method(StrEnum):
    """How the table is made."""

    AUTO = "auto"
    HISTOGRAM = "histogram"
    MARGINALS = "marginals"
    MWEM = "mwem"
    MST = "mst"
    AIM = "aim"
    ANNEALED = "annealed"


def synthesize(
    table: TableArgument,
    domain: DomainOption,
    out: Annotated[Path, typer.Option(help="Where to write the rows: .parquet, .csv or .arrow.")],
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    rho: RhoOption = None,
    method: Annotated[Method, typer.Option(help="How; auto takes the least expected error.")] = Method.AUTO,
    marginals: Annotated[
        list[str] | None,
        typer.Option(help="Attributes that belong together, comma-separated; several times for several marginals."),
    ] = None,
    way: Annotated[int, typer.Option(min=1, help="Without --marginals: all marginals of so many attributes.")] = 2,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Number of rows, where it is public; otherwise a noisy count is charged.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Queries that MWEM measures.")] = 30,
    html: Annotated[Path | None, typer.Option(help="Also write a report page.")] = None,
    model: Annotated[Path | None, typer.Option(help="Also save the model, for 'sfumato sample'.")] = None,
    ledger: LedgerOption = None,
    dataset: DatasetOption = "default",
    limit: LimitOption = None,
    analyst: AnalystOption = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Release a synthetic table under differential privacy."""
    from sfumato.synthesize.rows import refuse_large
    from sfumato.vault.opening import beside
    from sfumato.vault.rows import save_text, writable

    loss = loss_of(epsilon, delta, rho)
    writable(out, overwrite=overwrite)
    refuse_clashes([out, html, model], inputs=[table, domain, ledger or beside(domain)], overwrite=overwrite)
    vault = vault_for(table, domain=domain, ledger=ledger, dataset=dataset, limit=limit, first=loss, analyst=analyst)
    cliques = _cliques(marginals or [])
    if rows is not None:
        refuse_large(rows, len(vault.domain))
    with working("Measuring and fitting"):
        release = _release(vault, loss, method, cliques or way, rows, rounds)
        sample = release.rows
    sample.write(out, overwrite=overwrite)
    if model is not None:
        from sfumato.synthesize.saved import save

        save(release, model, overwrite=overwrite)
        remark(f"Wrote the model {model}.")
    if html is not None:
        from sfumato.app.report.release import release_page
        from sfumato.report.page import render

        save_text(html, render(release_page(f"Synthetic table {out.name}", release)), overwrite=overwrite)
        remark(f"Wrote the page {html}.")
    remark(f"Wrote {len(sample):,} rows to {out}.")
    if not len(sample):
        remark("No row fits the domain; 'sfumato domain check DOMAIN --table TABLE' shows why, to the owner only.")
    errors = "".join(f"\n  {name}: {value:.4g}" for name, value in release.expected_error.items())
    text = f"Guarantee: {release.guarantee}\nCost: {release.cost}\nExpected error:{errors}"
    result({"out": str(out), "rows": len(sample), **release.statement()}, text, as_json=as_json)


def _cliques(marginals: list[str]) -> list[tuple[str, ...]]:
    cliques = [tuple(name.strip() for name in clique.split(",")) for clique in marginals]
    for clique in cliques:
        if not all(clique) or len(set(clique)) < len(clique):
            raise InputError(f"--marginals takes different attributes, comma-separated, not {','.join(clique)!r}")
    return cliques


def _release(
    vault: Vault, loss: Loss, method: Method, cliques: list[tuple[str, ...]] | int, rows: int | None, rounds: int
) -> Synthetic:
    from fractions import Fraction

    from sfumato import synthesize as methods
    from sfumato.synthesize.aim import aim
    from sfumato.synthesize.annealed import annealed
    from sfumato.synthesize.mst import mst

    counted: Total = methods.Summed() if rows is None else methods.Public(rows)
    workload = _workload(cliques)
    match method:
        case Method.AUTO:
            return methods.auto(vault, loss=loss, total=counted, workload=workload)
        case Method.HISTOGRAM:
            names = (
                None
                if isinstance(cliques, int)
                else tuple(dict.fromkeys(name for clique in cliques for name in clique))
            )
            return methods.histogram(vault, loss=loss, total=counted, attributes=names)
        case Method.MARGINALS:
            if isinstance(cliques, int):
                raise InputError("say which attributes belong together: --marginals age,occupation")
            return methods.marginals(vault, loss=loss, total=counted, cliques=cliques)
        case Method.MWEM:
            bought = methods.Charged(Fraction(1, 20)) if rows is None else methods.Public(rows)
            schedule = methods.Schedule(rounds=rounds, repetitions=20)
            return methods.mwem(vault, loss=loss, total=bought, workload=workload, schedule=schedule)
        case Method.MST:
            return mst(vault, loss=loss, total=counted)
        case Method.AIM:
            return aim(vault, loss=loss, total=counted, workload=workload)
        case Method.ANNEALED:
            return annealed(vault, loss=loss, total=counted, workload=workload)


def _workload(cliques: list[tuple[str, ...]] | int) -> Marginals:
    from sfumato.synthesize.workload import Marginals, all_marginals

    return all_marginals(cliques) if isinstance(cliques, int) else Marginals(cliques=tuple(cliques))
