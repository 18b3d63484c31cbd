"""What the command line says and writes, and where.

Results go to standard output, everything else to standard error; files are checked before anything is spent, and
never written over what is read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from sfumato.errors import InputError

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


def folder(path: Path) -> None:
    """Make a folder to write to, with those around it, unless it is there.

    Raises:
        InputError: a file is in its place, or permission is denied.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to the folder {path}: {error.strerror}", culprit=path) from None


def refuse_clashes(outputs: Sequence[Path | None], *, inputs: Sequence[str | Path | None], overwrite: bool) -> None:
    """Refuse outputs that cannot be written, that are one file, or that are the table, domain or ledger in use.

    ``inputs`` may be URLs; a SQLite ledger is the file behind its URL, and so is what Spark reads.

    Raises:
        InputError: as said; nothing was touched.
    """
    from sfumato.vault.release import free

    taken = {_file(place) for place in inputs if place is not None}
    for output in outputs:
        if output is None:
            continue
        free(output, overwrite=overwrite)
        place = output.resolve()
        if place in taken:
            raise InputError(f"{output} is read, or written already, by this command; choose another name")
        taken.add(place)


def _file(place: str | Path) -> Path:
    return Path(str(place).removeprefix("sqlite:///").removeprefix("spark:")).resolve()
