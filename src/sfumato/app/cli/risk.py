"""``sfumato risk``: how likely is somebody in a table re-identified?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from sfumato.app.cli.anonymize import QuasiOption, names
from sfumato.app.cli.opening import TableArgument
from sfumato.app.cli.output import Json, columns, remark, result, working


def risk(
    table: TableArgument,
    quasi: QuasiOption,
    threshold: Annotated[float, typer.Option(help="A row is at risk when its risk is above this.")] = 0.2,
    population_table: Annotated[
        str | None, typer.Option(help="A larger table with the same columns, for the journalist.")
    ] = None,
    population: Annotated[
        int | None,
        typer.Option(min=1, help="People of whom the table is a random sample: estimates uniques."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say how likely a match by quasi-identifiers is right, before or after anonymisation.

    The figures are exact: they are for the owner of the table.
    """
    from sfumato.anonymize.reidentification import assess_table, estimate_uniques
    from sfumato.engine.address import shown

    known = names(quasi)
    with working(f"Reading {shown(table)}"):
        found = assess_table(table, quasi=known, threshold=threshold, population=population_table)
        uniques = None if population is None else estimate_uniques(table, quasi=known, population=population)
    remark("Exact figures, for the owner of the table.")
    lines = [{"attacker": "prosecutor", **asdict(found.prosecutor)}]
    if found.journalist is not None:
        lines.append({"attacker": "journalist", **asdict(found.journalist)})
    text = (
        f"{found.rows} rows in {found.classes} classes, the smallest of {found.smallest_class};"
        f" {found.sample_uniques} rows are unique.\nMarketer: {found.marketer:.6g} of the rows\n{columns(lines)}"
    )
    if uniques is not None:
        text += (
            f"\nPopulation uniques: about {uniques.believed:.6g}, by {uniques.model.title()}'s model: {uniques.why}."
            f"\nBoth models: {uniques.zayatz:.6g} (Zayatz), {uniques.pitman:.6g} (Pitman)"
        )
    value = {**found.to_json(), "population_uniques": None if uniques is None else asdict(uniques)}
    result(value, text, as_json=as_json)
