"""Options that the evaluating commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.app.cli.output import remark

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sfumato.evaluate.attacks.advantage import Advantage
    from sfumato.evaluate.files import Submitted
    from sfumato.evaluate.verdict import Verdict

RealArgument = Annotated[str, typer.Argument(help="The protected table: a CSV or Parquet file.")]
ReleasesArgument = Annotated[list[Path], typer.Argument(help="Released files, by us or by another tool.")]
HoldoutOption = Annotated[
    str, typer.Option("--holdout", help="People of the same population who are not in the protected table.")
]
ClaimOption = Annotated[
    list[str],
    typer.Option(
        "--claim", help="What a release promises, once for each in order: epsilon=1, rho=0.5, k=5, none and the like."
    ),
]
HierarchyOption = Annotated[
    list[str] | None,
    typer.Option("--hierarchy", help="column=file of a generalisation hierarchy, where cells are its labels."),
]
TargetOption = Annotated[str | None, typer.Option("--target", help="Attribute to predict; the last one without.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Of targets, queries and learners; never of a release.")]
PageOption = Annotated[Path, typer.Option("--out", help="Where to write the page.")]
InternalOption = Annotated[
    bool, typer.Option("--internal", help="Also show exact shares of the table; says so across the page.")
]


def mention(submitted: Sequence[Submitted]) -> None:
    """Say what of the releases was not read as it stands."""
    for each in submitted:
        if each.oddities.ignored:
            columns = ", ".join(each.oddities.ignored)
            remark(f"{each.name}: columns that the domain does not have are ignored: {columns}.")
        for name, cells in each.oddities.unknown.items():
            remark(f"{each.name}: {cells} cells of {name!r} are not declared and were read as unknown.")


def attack_lines(release: str, results: Sequence[Advantage], headline: Advantage) -> list[dict[str, Any]]:
    """One line an attack, and one for the worst of them."""
    named = [(result.attack, result) for result in results] + [(f"worst of {len(results)}", headline)]
    return [
        {
            "release": release,
            "attack": name,
            "members": result.members.value,
            "controls": result.controls.value,
            "advantage": result.value,
            "low": result.interval.low,
            "high": result.interval.high,
            "bound": result.bound,
            "attacker knows": result.knowledge,
        }
        for name, result in named
    ]


def sample_lines(verdicts: Sequence[Verdict]) -> str:
    """A line for each release: where all was looked at and where a sample, and the standard errors."""
    lines = []
    for verdict in verdicts:
        taken = ", ".join(f"{share} of {what}" for what, share in verdict.sampled.items())
        errors = ", ".join(f"{what} {error:.2g}" for what, error in verdict.standard_errors.items())
        lines.append(f"{verdict.name}: {taken}; standard errors: {errors}.")
    return "\n".join(lines)
