"""``sfumato hierarchy``: describe how values of a quasi-identifier may be generalised."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.app.cli.output import Json, Overwrite, columns, folder, remark, result

app = typer.Typer(no_args_is_help=True, help="Describe how values of a quasi-identifier may be generalised.")


@app.command()
def draft(
    domain: Annotated[Path, typer.Argument(help="Domain, a YAML file.")],
    attributes: Annotated[list[str], typer.Argument(help="Attributes to draft a hierarchy for.")],
    out: Annotated[Path | None, typer.Option(help="Folder for one file an attribute; standard output without.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Draft hierarchies from the declared domain, for their owner to edit.  No row is read."""
    from sfumato.anonymize.hierarchy import draft as drafted
    from sfumato.domain import load
    from sfumato.vault.rows import free, save_text

    described = load(domain)
    texts = {name: drafted(described[name]).dump() for name in attributes}
    if out is None:
        typer.echo("---\n".join(texts.values()), nl=False)
        return
    folder(out)
    for name in texts:
        free(out / f"{name}.yaml", overwrite=overwrite)
    for name, text in texts.items():
        save_text(out / f"{name}.yaml", text, overwrite=overwrite)
        remark(f"Wrote the draft {out / f'{name}.yaml'}. Edit it to cells that mean something.")


@app.command()
def check(
    path: Annotated[Path, typer.Argument(help="Hierarchy: CSV with levels as columns, YAML or JSON.")],
    attribute: Annotated[str | None, typer.Option(help="Attribute, where the file is not named after it.")] = None,
    domain: Annotated[Path | None, typer.Option(help="Also check that it covers the declared values.")] = None,
    as_json: Json = False,
) -> None:
    """Check that a hierarchy nests, misses no value and has one top."""
    from sfumato.anonymize import Hierarchy
    from sfumato.domain import load

    hierarchy = Hierarchy.read(path, attribute=attribute)
    if domain is not None:
        hierarchy.align(load(domain)[hierarchy.attribute].labels())
    lines = [
        {"level": number, "cells": level.size, "largest_loss": float(level.losses.max())}
        for number, level in enumerate(hierarchy.levels)
    ]
    fits = "" if domain is None else f" It covers {domain}."
    text = f"{path} is a hierarchy of {hierarchy.attribute} with {len(hierarchy.leaves)} values.{fits}"
    value = {"attribute": hierarchy.attribute, "values": len(hierarchy.leaves), "levels": lines}
    result(value, f"{text}\n{columns(lines)}", as_json=as_json)
