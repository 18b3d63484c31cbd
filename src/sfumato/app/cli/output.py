"""The output of commands: results on standard output, messages on standard error, and files.

Files are checked before anything is charged.  No command writes over a file that it reads.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sfumato.app.api.methods import EXACT_FIGURES
from sfumato.errors import InputError, budget_percent, short_deltas

if TYPE_CHECKING:
    from sfumato.ledger import Account
    from sfumato.privacy.loss import Charge

_OPTIONS = {"claims": "--claim"}  # options that are not named like the argument of the library
_AMOUNTS = {"with the limit ": "with --limit ", "a delta of ": "--delta "}
_PHRASES = re.compile(  # of the library; names and values of the caller are in quotes, and files have a suffix
    r"""(?<!\w)(?:'[^']*'|"[^"]*")|\b(?:with the limit|a delta of) (?=\d)|\bthe argument (?P<argument>\w+)(?!\.?\w)"""
)
_CLAUSE = re.compile(r"""(?:'[^'\n]*'(?!\w)|"[^"\n]*"|\([^()\n]*\)|(?!; )[\s\S])+(?:; |$)""")  # quotes may hold "; "
_FIRST_WORD = re.compile(r"([a-z][a-z-]*)(?=[ ,]|$)")  # a word before a colon is the name of a field
_WORD = re.compile(r"[\w-]+")
_ARTICLES = frozenset(
    {"a", "an", "the", "this", "no", "there", "it"}
)  # a message begins with them, whatever is named so
_COPIED = re.compile(
    r"(?:^|: |\b(?:[Aa]sk|[Oo]r|[Ww]rite|by) )(?:(?:SELECT|WITH|sfumato [a-z-]+) [^']*|pip install .*)$"
)
_EXACT = re.compile(r"(?<= is left): (?:the ledger|a new ledger|your cap) has .*?(?=; nothing was spent)", re.DOTALL)
_REMEDY = re.compile(
    r"Epsilon = (\S+) without a delta counts as rho = \S+; with a delta of (\S+) it asks for rho = \S+ \(([\d,]+ %)\)"
)
AT_END = ExitStack()
"""Callbacks of the command that runs, such as the closing of its ledger."""


def result(value: Mapping[str, Any] | Sequence[Any], text: str, *, as_json: bool) -> None:
    """Print a result: ``value`` as JSON, or ``text`` for people."""
    json_text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False, default=str) if as_json else ""
    typer.echo(json_text or short_deltas(text))


def exact_result(value: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    """Print exact figures, with the notice that they are for the owner of the table alone."""
    result({"notice": EXACT_FIGURES, **value}, f"{text}\n\n{EXACT_FIGURES}", as_json=as_json)


def print_message(text: str) -> None:
    """Print a message on standard error, with options instead of the library's arguments."""
    typer.echo(short_deltas(_in_options(text if is_verbose() else _in_shares(text))), err=True)


def _in_shares(message: str) -> str:
    """Return a message about a budget without exact losses, which stand next to the shares of the budget.

    >>> _in_shares(
    ...     "this release needs 892 % of the budget, and 73 % is left: the ledger has rho = 0.0411, and this release "
    ...     "asks for rho = 0.5; nothing was spent. Epsilon = 1 without a delta counts as rho = 0.5; with a delta of "
    ...     "1e-09 it asks for rho = 0.0149646 (27 %)"
    ... )
    'this release needs 892 % of the budget, and 73 % is left; nothing was spent; add --delta 1e-09, then epsilon = 1 \
needs 27 % of the budget'
    """
    return _REMEDY.sub(r"add --delta \2, then epsilon = \1 needs \3 of the budget", _EXACT.sub("", message)).replace(
        "spent. add", "spent; add"
    )


def is_verbose() -> bool:
    """Return whether the command line asks for exact losses."""
    return "--verbose" in sys.argv


def cost_in_shares(cost: str, charge: Charge | None, account: Account) -> str:
    """Return the cost of a release as a share of its budget, or ``cost`` if it is no rho or ``--verbose`` asks for it.

    >>> from sfumato.ledger import Account
    >>> from sfumato.privacy import EpsilonDelta
    >>> loss = EpsilonDelta("0.5", "1e-9")
    >>> cost_in_shares("rho 0.004", loss.charge, Account(EpsilonDelta(1, "1e-9"), loss.charge))
    '27 % of the budget; 73 % is left'
    """
    limit = account.limit
    needed = None if limit is None or charge is None else limit.amount(charge)
    if is_verbose() or not cost.startswith("rho") or limit is None or needed is None or account.share_left is None:
        return cost
    left = budget_percent(account.share_left, up=False)
    return f"{budget_percent(needed / limit.most, up=True)} of the budget; {left} is left"


def account_in_shares(account: Account) -> str:
    """Return the rest of a budget as a share, or in full if it is a pure epsilon or ``--verbose`` asks for it."""
    full, left = str(account), account.share_left
    if is_verbose() or left is None or not full.startswith("rho"):
        return full
    return f"{budget_percent(left, up=False)} of {account.limit} is left"


def print_error(text: str) -> None:
    """Print an error on standard error, as sentences: what is wrong, then what to do."""
    message = short_deltas(_in_options(text if is_verbose() else _in_shares(text)))
    typer.echo(f"sfumato: {sentences(message, names=set(_WORD.findall(' '.join(sys.argv))))}", err=True)


def sentences(message: str, names: Container[str] = ()) -> str:
    """Return a message of the library as sentences, each with a capital letter and a period.

    A part of the message that ends with a statement or a command gets no period, so that it can be copied.

    Args:
        message: clauses, divided by semicolons.
        names: words that keep their case, such as the arguments of the command line.

    >>> sentences("out.csv exists; choose another name, or overwrite it")
    'out.csv exists. Choose another name, or overwrite it.'
    >>> sentences("age is no number; use a column of numbers", names={"age"})
    'age is no number. Use a column of numbers.'
    >>> sentences("no delimiter '; ' is known; see 'sfumato query --help'")
    "No delimiter '; ' is known. See 'sfumato query --help'."
    >>> sentences("rows are private; ask SELECT COUNT(*) FROM people")
    'Rows are private. Ask SELECT COUNT(*) FROM people'
    """
    clauses = [message[place.start() : place.end()] for place in _CLAUSE.finditer(message)]
    starts = (_with_capital(clause.removesuffix("; "), names) for clause in clauses)
    return " ".join(
        text if text.endswith((".", "?", "!", "...")) or _COPIED.search(text) else f"{text}." for text in starts
    )


def _with_capital(clause: str, names: Container[str]) -> str:
    """Return a clause with a capital letter, unless it begins with a name, a file, an option or a command."""
    if clause.startswith(("pip install ", "sfumato ")):
        return f"Run: {clause}"
    word = _FIRST_WORD.match(clause)
    if word is None or (word[1] in names and word[1] not in _ARTICLES):
        return clause
    return f"{clause[0].upper()}{clause[1:]}"


def _in_options(message: str) -> str:
    """Return a message of the library with the options of the command line instead of arguments and amounts.

    >>> _in_options("with a delta of 1e-09 it asks for less; begin a ledger with the limit 1,1e-9")
    'with --delta 1e-09 it asks for less; begin a ledger with --limit 1,1e-9'
    >>> _in_options("name one by the argument unit_rows; give the argument claims for each release")
    'name one by --unit-rows; give --claim for each release'
    >>> _in_options("the table's column 'the argument unit' is not in the argument unit.csv")
    "the table's column 'the argument unit' is not in the argument unit.csv"
    """
    return _PHRASES.sub(_option, message).replace("(--overwrite, overwrite=True)", "(--overwrite)")


def _option(phrase: re.Match[str]) -> str:
    argument = phrase["argument"]
    if argument is not None:
        return _OPTIONS.get(argument, f"--{argument.replace('_', '-')}")
    return _AMOUNTS.get(phrase[0], phrase[0])


def error_lines(errors: Mapping[str, float]) -> str:
    """Return the expected errors of a synthetic table as indented lines.

    A table that was measured twice counts twice, so the lines call the tables of the keys measurements.

    >>> print(error_lines({"standard deviation, median of 35 2-way tables": 12.3}))
      standard deviation, median of 35 2-way measurements: 12.3
    """
    return "\n".join(
        f"  {name.replace('-way tables', '-way measurements')}: {value:.4g}" for name, value in errors.items()
    )


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
