"""``sfumato domain``: describe a table before anything is released from it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.app.cli.output import Json, Overwrite, columns, refuse_clashes, remark, result, working

app = typer.Typer(no_args_is_help=True, help="Describe a table before anything is released from it.")

DomainPath = Annotated[Path, typer.Argument(help="Domain, a YAML file.")]


@app.command()
def draft(
    table: Annotated[str, typer.Argument(help="CSV or Parquet file, or the URL of a table.")],
    out: Annotated[Path | None, typer.Option(help="Where to write it; standard output without.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Draft a domain from the data, for its owner to edit and accept.

    The draft is read off the protected table, so it is marked as one, and every release refuses it until
    somebody has replaced what the data says by what is publicly known, and set 'draft: false'.
    """
    from sfumato.domain import dump
    from sfumato.engine.address import shown
    from sfumato.engine.draft import draft_domain
    from sfumato.engine.open import open_table
    from sfumato.vault.rows import save_text

    refuse_clashes([out], inputs=[table], overwrite=overwrite)
    with working(f"Reading {shown(table)}"):
        drafted = draft_domain(open_table(table))
    text = dump(drafted.domain)
    for name, reason in drafted.left_out.items():
        remark(f"Left out {name}: {reason}.")
    for name, hint in drafted.hints.items():
        remark(f"Look at {name}: {hint}.")
    if out is None:
        typer.echo(text, nl=False)
    else:
        save_text(out, text, overwrite=overwrite)
        remark(f"Wrote the draft {out}. Edit it to what is publicly known, then set 'draft: false'.")


@app.command()
def check(
    path: DomainPath,
    table: Annotated[str | None, typer.Option(help="Also count how its values fit: for the owner's eyes only.")] = None,
    as_json: Json = False,
) -> None:
    """Check a domain file, and how the values of a table fit it."""
    from sfumato.domain import load

    domain = load(path)
    state = "a draft: releases refuse it" if domain.draft else "accepted"
    value = {"attributes": len(domain), "cells": str(domain.size), "draft": domain.draft, "hash": domain.hash}
    text = f"{path} is a domain of {len(domain)} attributes, {state}."
    if table is not None:
        from dataclasses import asdict

        from sfumato.engine.address import shown
        from sfumato.engine.fit import fit, truncation
        from sfumato.engine.open import open_table

        with working(f"Reading {shown(table)}"):
            found, cut = fit(open_table(table), domain), truncation(open_table(table), domain)
        lines = [asdict(each) | {"then": domain[each.attribute].unknown.value} for each in found]
        value["fit"] = lines
        text += f"\n\n{columns(lines)}"
        if cut is not None:
            value["truncation"] = asdict(cut)
            share = cut.dropped / max(cut.rows, 1)
            text += (
                f"\n\nThe bound of {domain.unit.rows} rows of one {domain.unit.column} leaves out {cut.dropped:,} of "
                f"{cut.rows:,} rows ({share:.1%}), of {cut.units:,} units. Answers are of the rest, and "
                "their intervals say nothing of it; a larger bound leaves out less and takes more noise."
            )
        text += "\n\nThese counts are exact: they are for the owner of the table only."
    result(value, text, as_json=as_json)


@app.command()
def show(
    path: DomainPath,
    cells: Annotated[str | None, typer.Option(help="List the cells of this attribute, as --given names them.")] = None,
    as_json: Json = False,
) -> None:
    """Show a domain: attributes, their cells, the unit of privacy."""
    from sfumato.domain import load
    from sfumato.domain.document import describe

    domain = load(path)
    if cells is not None:
        labels = domain[cells].labels()
        result({"attribute": cells, "cells": labels}, "\n".join(labels), as_json=as_json)
        return
    lines = [
        {
            "attribute": attribute.name,
            "type": type(attribute).__name__.lower(),
            "cells": attribute.size,
            "first": attribute.labels()[0],
            "last": attribute.labels()[attribute.declared - 1],
            "missing": "own cell" if attribute.nullable else "as unknown",
            "unknown": attribute.unknown.value,
        }
        for attribute in domain
    ]
    text = f"{columns(lines)}\n\nUnit: {domain.unit}\nCells of the full table: {domain.size:,}"
    result(describe(domain), text + ("\nThis is a draft." if domain.draft else ""), as_json=as_json)


@app.command()
def schema() -> None:
    """Print the JSON Schema of domain files, for editors."""
    from sfumato.domain.document import schema as published

    result(published(), "", as_json=True)
