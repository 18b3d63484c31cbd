"""``sfumato attack``: the four attacks on released files."""

from __future__ import annotations

from typing import Annotated

import typer

from sfumato.app.cli.evaluating import (
    ClaimOption,
    HierarchyOption,
    HoldoutOption,
    RealArgument,
    ReleasesArgument,
    SeedOption,
    attack_lines,
    mention,
)
from sfumato.app.cli.opening import DomainOption
from sfumato.app.cli.output import Json, columns, result, working


def attack(
    real: RealArgument,
    releases: ReleasesArgument,
    domain: DomainOption,
    holdout: HoldoutOption,
    claim: ClaimOption,
    hierarchy: HierarchyOption = None,
    people: Annotated[int, typer.Option(min=40, help="Members attacked, and as many others.")] = 1000,
    seed: SeedOption = 0,
    as_json: Json = False,
) -> None:
    """Attack releases: membership, linkage, attribute inference, singling out.

    Success counts only beyond what works on people outside the table.  An attack that fails does not show
    that a release is private.
    """
    from sfumato.domain import load
    from sfumato.engine.address import shown
    from sfumato.evaluate.attacks.suite import attack_rows
    from sfumato.evaluate.files import open_panel, submissions

    described = load(domain)
    with working("Reading the releases"):
        submitted = submissions(releases, claim, hierarchy or [], described)
    mention(submitted)
    with working(f"Reading {shown(real)} and {shown(holdout)}"):
        panel = open_panel(real, holdout, described, seed=seed)
    lines = []
    for each in submitted:
        with working(f"Attacking {each.name}"):
            found = attack_rows(each.release, panel.members, panel.controls, claim=each.claim, people=people, seed=seed)
        lines += attack_lines(each.name, found.results, found.headline)
    result(lines, columns(lines), as_json=as_json)
