"""What the command line says, and where: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an output file that exists.")]


def result(value: Mapping[str, Any] | Sequence[Any], text: str, *, as_json: bool) -> None:
    """Print a result: ``value`` as JSON, or ``text`` for people."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False, default=str) if as_json else text)


def remark(text: str) -> None:
    """Say something on standard error."""
    typer.echo(text, err=True)


def columns(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as an aligned plain-text table with a header."""
    if not rows:
        return "(none)"
    names = list(rows[0])
    cells = [names, *([_cell(row[name]) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


@contextmanager
def working(description: str) -> Iterator[Callable[[str], None]]:
    """Show that something is going on; what is yielded takes the step that begins, in a few words."""
    if not sys.stderr.isatty():
        remark(f"{description} ...")
        yield lambda step: remark(f"  {step} ...")
        return
    from rich.console import Console

    with Console(stderr=True).status(description) as status:
        yield lambda step: status.update(f"{description}: {step}")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
