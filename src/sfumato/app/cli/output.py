"""The output of commands: results on standard output, messages on standard error, and files.

Files are checked before anything is charged.  No command writes over a file that it reads.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import typer

from sfumato.app.api.methods import EXACT_FIGURES
from sfumato.errors import InputError

_OPTIONS = {"claims": "--claim"}  # options that are not named like the argument of the library
_AMOUNTS = {"with the limit ": "with --limit ", "a delta of ": "--delta "}
_PHRASES = re.compile(  # of the library; names and values of the caller stand in quotes, and files have a suffix
    r"""(?<!\w)(?:'[^']*'|"[^"]*")|\b(?:with the limit|a delta of) (?=\d)|\bthe argument (?P<argument>\w+)(?!\.?\w)"""
)
AT_END = ExitStack()
"""Callbacks of the command that runs, such as the closing of its ledger."""


def result(value: Mapping[str, Any] | Sequence[Any], text: str, *, as_json: bool) -> None:
    """Print a result: ``value`` as JSON, or ``text`` for people."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False, default=str) if as_json else text)


def exact_result(value: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    """Print exact figures, with the notice that they are for the owner of the table alone."""
    result({"notice": EXACT_FIGURES, **value}, f"{text}\n\n{EXACT_FIGURES}", as_json=as_json)


def print_message(text: str) -> None:
    """Print a message on standard error, with options instead of the library's arguments."""
    typer.echo(_in_options(text), err=True)


def _in_options(message: str) -> str:
    """Return a message of the library with the options of the command line instead of arguments and amounts.

    >>> _in_options("with a delta of 1e-09 it asks for less; begin a ledger with the limit 1,1e-9")
    'with --delta 1e-09 it asks for less; begin a ledger with --limit 1,1e-9'
    >>> _in_options("name one by the argument unit_rows; give the argument claims for each release")
    'name one by --unit-rows; give --claim for each release'
    >>> _in_options("the table's column 'the argument unit' is not in the argument unit.csv")
    "the table's column 'the argument unit' is not in the argument unit.csv"
    """
    return _PHRASES.sub(_option, message)


def _option(phrase: re.Match[str]) -> str:
    argument = phrase["argument"]
    if argument is not None:
        return _OPTIONS.get(argument, f"--{argument.replace('_', '-')}")
    return _AMOUNTS.get(phrase[0], phrase[0])


def columns(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as an aligned plain-text table with a header."""
    if not rows:
        return "(none)"
    names = list(rows[0])
    cells = [names, *([_cell(row[name]) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


@contextmanager
def working(description: str) -> Iterator[Callable[[str], None]]:
    """Show the progress of a task.  Call the yielded function with the name of each step."""
    if "JPY_PARENT_PID" in os.environ:
        yield from _one_line(description)
        return
    if not sys.stderr.isatty():
        print_message(f"{description} ...")
        yield lambda step: print_message(f"  {step} ...")
        return
    from rich.console import Console

    with Console(stderr=True).status(description) as status:
        yield lambda step: status.update(f"{description}: {step}")


def _one_line(description: str) -> Iterator[Callable[[str], None]]:
    """Show the progress of a task in one line of a notebook, which knows a carriage return and no other control."""
    width = len(description)
    typer.echo(description, err=True, nl=False)

    def show(step: str) -> None:
        nonlocal width
        text = f"{description}: {step}"
        typer.echo(f"\r{text.ljust(width)}", err=True, nl=False)
        width = len(text)

    try:
        yield show
    finally:
        typer.echo("", err=True)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def folder(path: Path) -> None:
    """Create a folder and its parents if it does not exist.

    Raises:
        InputError: the path is a file, or permission is denied.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to the folder {path}: {error.strerror}", culprit=path) from None


def refuse_clashes(outputs: Sequence[Path | None], *, inputs: Sequence[str | Path | None], overwrite: bool) -> None:
    """Refuse outputs that cannot be written, that are one file, or that are the table, domain or ledger in use.

    ``inputs`` may be URLs of ledgers and tables.  If they lie in files, these files are protected.

    Raises:
        InputError: an output cannot be written, exists without ``overwrite``, is named twice, or is an input.
    """
    from sfumato.vault.release import refuse_occupied_path

    taken = {_file(place) for place in inputs if place is not None}
    for output in outputs:
        if output is None:
            continue
        refuse_occupied_path(output, overwrite=overwrite)
        place = output.resolve()
        if place in taken:
            raise InputError(f"{output} is read, or written already, by this command; choose another name")
        taken.add(place)


def _file(place: str | Path) -> Path:
    from sfumato.engine.open import file_path
    from sfumato.ledger.database import Address

    address = Address.parse(str(place)) if str(place).startswith("sqlite:") else None
    named = file_path(str(place)) or str(place) if address is None else address.database or ""
    return Path(named).resolve()
