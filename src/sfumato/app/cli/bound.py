"""``sfumato bound``: how many rows of a person to keep, for tables of a size."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.app.cli.conventions import (
    AnalystOption,
    CreateOption,
    DatasetOption,
    DeltaOption,
    DomainOption,
    EpsilonOption,
    JsonOption,
    LedgerOption,
    LimitOption,
    OverwriteOption,
    RhoOption,
    Source,
    TableArgument,
    columns,
    refuse_clashes,
    result,
    working,
)
from sfumato.errors import InputError, counted

if TYPE_CHECKING:
    from sfumato.query import SuggestedBound


def bound(
    table: TableArgument,
    domain: DomainOption,
    by: Annotated[
        list[str] | None,
        typer.Option(help="What the tables will be by: an attribute, or month(admitted); several times."),
    ] = None,
    cells: Annotated[int | None, typer.Option(min=1, help="Cells of the tables, in place of --by.")] = None,
    share: Annotated[
        str, typer.Option(help="What part this loss is of what it and the tables will cost together.")
    ] = "0.1",
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    rho: RhoOption = None,
    ledger: LedgerOption = None,
    dataset: DatasetOption = "default",
    limit: LimitOption = None,
    create: CreateOption = False,
    analyst: AnalystOption = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File for the domain with the bound, as a draft to accept; else none is written."),
    ] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Suggest a bound on the rows of one person, by noisy numbers of people with so many rows.

    A small bound leaves rows out, a large one takes more noise.  The suggestion is where both are about even for tables
    of so many cells.  Nothing is changed: write the bound into the domain, or let --out write a draft with it.
    """
    from sfumato.app.requests.fields import LossFields, filled
    from sfumato.domain import dump, load
    from sfumato.query import suggest_bound
    from sfumato.vault.release import save_text

    described = load(domain)
    if (by is None) == (cells is None):
        raise InputError("say what the tables will be by, with --by, or how many cells they have, with --cells")
    size = cells or math.prod(len(described.grouping(name).labels) for name in by or ())
    loss = filled(LossFields, {"epsilon": epsilon, "delta": delta, "rho": rho}).loss()
    source = Source(
        table=table, domain=domain, ledger=ledger, dataset=dataset, limit=limit, create=create, analyst=analyst
    )
    if out is not None:
        refuse_clashes([out], inputs=source.files(), overwrite=overwrite)
    vault = source.vault(first=loss, described=described)
    with working("Counting"):
        found = suggest_bound(vault, loss=loss, cells=size, share=share)
    if out is not None:
        save_text(out, dump(found.applied(described)), overwrite=overwrite)
    result(found.to_json() | {"out": None if out is None else str(out)}, _text(found, out), as_json=as_json)


def _text(found: SuggestedBound, out: Path | None) -> str:
    unit = found.unit
    above, error = found.above
    ends = [*(start - 1 for start in found.starts[1:]), None]
    lines = [
        {"rows": _range(start, end), "units": str(units)}
        for start, end, units in zip(found.starts, ends, found.units, strict=True)
    ]
    written = f"\nWrote {out}: a draft; accept it with 'sfumato domain accept'." if out is not None else ""
    return (
        f"{columns(lines)}\n\nThe noise on each number has the standard deviation {found.deviation:.3g}.\n"
        f"Suggested for tables of {counted(found.cells, 'cell')}: rows: {unit.rows} of one {unit.column}. About "
        f"{max(0.0, above):.0f} (noise {error:.0f}) of them have more, and would lose those.\n"
        f"Guarantee: {found.guarantee}\nCost: {found.cost}\n"
        f"Note: the bound is public; write it into the domain, which goes on saying what it said until then.{written}"
    )


def _range(start: int, end: int | None) -> str:
    return f"{start} and more" if end is None else str(start) if end == start else f"{start} to {end}"
