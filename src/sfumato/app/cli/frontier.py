"""``sfumato frontier``: releases of every family of one table, on one scale."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.app.cli.evaluating import InternalOption, PageOption, RealArgument, SeedOption, TargetOption
from sfumato.app.cli.opening import DomainOption
from sfumato.app.cli.output import Json, Overwrite, columns, remark, result, working
from sfumato.app.cli.outputs import refuse_clashes
from sfumato.extras import require

_AUDITED = ("laplace", "gaussian", "exponential", "permute-and-flip", "stability-known-key", "local-grr", "local-olh")


def frontier(
    table: RealArgument,
    domain: DomainOption,
    out: PageOption,
    holdout: Annotated[
        str | None,
        typer.Option(help="People who are not in the table; without, the table is split and a third is released."),
    ] = None,
    quasi: Annotated[
        str | None, typer.Option(help="Quasi-identifiers of k-anonymity, comma-separated, besides all columns.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder to go on from after an interruption; as secret as the table.")
    ] = None,
    target: TargetOption = None,
    seed: SeedOption = 0,
    internal: InternalOption = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Make releases of every family over a grid of privacy parameters, judge them, and draw the frontier.

    Nothing is published, so nothing is charged.  The results are as secret as the table.
    """
    from sfumato.app.report.evaluation import evaluation_page
    from sfumato.domain import load
    from sfumato.engine.address import shown
    from sfumato.evaluate.audit.audit import audit_all
    from sfumato.evaluate.audit.shipped import chosen
    from sfumato.evaluate.files import open_panel
    from sfumato.evaluate.frontier import frontier as run
    from sfumato.evaluate.grid import grid
    from sfumato.privacy.entropy import OsEntropy
    from sfumato.vault.rows import save_text

    require("plots", "the page")
    require("evaluate", "the learner")
    refuse_clashes([out], inputs=[table, domain, holdout], overwrite=overwrite)
    described = load(domain)
    names = tuple(described[name.strip()].name for name in quasi.split(",")) if quasi else ()
    with working(f"Reading {shown(table)}"):
        people = open_panel(table, holdout, described, seed=seed)
    found = run(
        grid(names),
        people,
        target=described[target].name if target else described.names[-1],
        seed=seed,
        cache=cache,
        watch=lambda name, number, total: remark(f"[{number + 1}/{total}] {name}"),
        stage=lambda step: remark(f"      {step}"),
    )
    for name, reason in found.failed:
        remark(f"Left out {name}: {reason}")
    with working("Auditing the mechanisms"):
        findings = audit_all(chosen(list(_AUDITED), OsEntropy()), draws=6400)
    page = evaluation_page(
        f"The utility-risk frontier of {Path(shown(table)).name}",
        found.verdicts,
        described,
        findings=findings,
        internal=internal,
    )
    save_text(out, page, overwrite=overwrite)
    lines = [
        {
            "release": verdict.name,
            "U2": verdict.marginals[1],
            "learner": None if verdict.learning is None else verdict.learning[2],
            "worst attack": verdict.headline.attack,
            "advantage": verdict.headline.value,
            "low": verdict.headline.interval.low,
            "high": verdict.headline.interval.high,
        }
        for verdict in found.verdicts
    ]
    result({"page": str(out), "releases": lines}, f"{columns(lines)}\n\nPage: {out}", as_json=as_json)
