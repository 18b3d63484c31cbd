"""``sfumato evaluate``: what releases are good for, and what can be stolen from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.app.cli.evaluating import (
    ClaimOption,
    HierarchyOption,
    HoldoutOption,
    InternalOption,
    PageOption,
    RealArgument,
    ReleasesArgument,
    SeedOption,
    TargetOption,
    mention,
    sample_lines,
)
from sfumato.app.cli.ledger import existing
from sfumato.app.cli.opening import DatasetOption, DomainOption
from sfumato.app.cli.output import Json, Overwrite, columns, remark, result, working
from sfumato.app.cli.outputs import refuse_clashes
from sfumato.extras import require

if TYPE_CHECKING:
    from sfumato.app.report.pictures import Row


LedgerOption = Annotated[
    str | None, typer.Option("--ledger", help="Also show the budget journal of this ledger: a SQLite file or a URL.")
]


def evaluate(
    real: RealArgument,
    releases: ReleasesArgument,
    domain: DomainOption,
    holdout: HoldoutOption,
    out: PageOption,
    claim: ClaimOption,
    hierarchy: HierarchyOption = None,
    target: TargetOption = None,
    seed: SeedOption = 0,
    ledger: LedgerOption = None,
    dataset: DatasetOption = "default",
    internal: InternalOption = False,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Score and attack releases, and write one page with ten pictures that works offline.

    The results are computed from the protected table without noise: they are as secret as the table.
    """
    from sfumato.app.report.evaluation import evaluation_page
    from sfumato.app.report.journal import journal_rows
    from sfumato.domain import load
    from sfumato.engine.address import shown
    from sfumato.evaluate.files import open_panel, submissions
    from sfumato.evaluate.frontier import Contender, frontier, told
    from sfumato.vault.rows import save_text

    labels = [given.partition("=")[2] for given in hierarchy or []]
    require("plots", "the page")
    require("evaluate", "the learner")
    refuse_clashes([out], inputs=[real, *releases, domain, holdout, ledger, *labels], overwrite=overwrite)
    described = load(domain)
    with working("Reading the releases"):
        submitted = submissions(releases, claim, hierarchy or [], described)
    mention(submitted)
    with working(f"Reading {shown(real)} and {shown(holdout)}"):
        people = open_panel(real, holdout, described, seed=seed)
    journal: tuple[Row, ...] = ()
    if ledger is not None:
        with existing(ledger, dataset) as opened:
            journal = journal_rows(opened.journal())
    contenders = [Contender(each.name, "release", each.claim, each.made) for each in submitted]
    with working("Scoring and attacking"):
        found = frontier(
            contenders,
            people,
            target=described[target].name if target else described.names[-1],
            seed=seed,
            watch=lambda name, number, total: remark(f"[{number + 1}/{total}] {name}"),
            stage=lambda step: remark(f"      {step}"),
        )
    title = f"Evaluation of {len(submitted)} releases"
    page = evaluation_page(title, found.verdicts, described, journal=journal, internal=internal)
    save_text(out, page, overwrite=overwrite)
    lines = [
        {
            "release": verdict.name,
            "guarantee": verdict.claim,
            "U1": verdict.marginals[0],
            "U2": verdict.marginals[1],
            "U3": verdict.marginals[2],
            "query error": verdict.query_error,
            "learner": None if verdict.learning is None else verdict.learning[2],
            "worst attack": verdict.headline.attack,
            "advantage": verdict.headline.value,
            "low": verdict.headline.interval.low,
            "high": verdict.headline.interval.high,
        }
        for verdict in found.verdicts
    ]
    result(
        {"page": str(out), "releases": [told(each) for each in found.verdicts]},
        f"{columns(lines)}\n\n{sample_lines(found.verdicts)}\n\nPage: {out}",
        as_json=as_json,
    )
