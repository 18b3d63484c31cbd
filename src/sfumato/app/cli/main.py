"""``sfumato``: one command a task."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Annotated, NoReturn

import typer

from sfumato.app.cli import domain_file, ledger_file, local
from sfumato.app.cli.anonymize import anonymize, apply, hierarchies, risk
from sfumato.app.cli.conventions import remark
from sfumato.app.cli.evaluate import attack, audit, evaluate, frontier
from sfumato.app.cli.interval import interval
from sfumato.app.cli.published_data import data, demo, lab
from sfumato.app.cli.query import query, serve
from sfumato.app.cli.synthesize import describe, sample, synthesize
from sfumato.errors import SfumatoError

_INTERRUPTED = 130
_TERMINATED = 143
_CHARGED = "what was charged before stays charged, and asking the same again completes it"
_CHARGING = (["demo"], ["query"], ["serve"], ["synthesize"])  # every other command charges nothing

app = typer.Typer(
    name="sfumato",
    help="Release sensitive tables with a privacy guarantee that can be stated, accounted for and attacked.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(domain_file.app, name="domain")
app.add_typer(ledger_file.app, name="ledger")
app.add_typer(local.app, name="local")
app.add_typer(hierarchies, name="hierarchy")
app.command()(query)
app.command()(serve)
app.command()(synthesize)
app.command()(sample)
app.command()(describe)
app.command()(interval)
app.command()(anonymize)
app.command()(apply)
app.command()(risk)
app.command()(evaluate)
app.command()(attack)
app.command()(audit)
app.command()(frontier)
app.command()(lab)
app.command()(demo)
app.command()(data)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"sfumato {version('sfumato')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Exit codes: 0 done, 1 failed, 2 wrong input, 3 budget refused."""


class _WithoutPandas:
    """Keeps Arrow from importing pandas, which it does at its first conversion: no command is handed a frame of it."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas" and _importer().partition(".")[0] in ("pyarrow", "sfumato"):
            raise ModuleNotFoundError("no command uses pandas", name=name)


def _importer() -> str:
    """The module whose code, or whose call of compiled code, runs the import."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - the only way to it
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("importlib"):
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals.get("__name__"))


def _interruptible() -> None:
    """Run the command line; a signal that ends it leads by way of every ``finally``, so nothing stays half-written.

    What raises inside a call of compiled code may come out as another error, or as a sentence about the table that
    could not be read: DuckDB makes a RuntimeError of it.  So the signals are noted as well.
    """
    noted: list[int] = []

    def end(number: int, _: FrameType | None) -> NoReturn:
        noted.append(number)
        _leave(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # as it is for what shells start in the background
            signal.signal(number, end)
    try:
        app()
    except BaseException as error:
        if isinstance(error, SystemExit) and error.code == _INTERRUPTED:  # what typer makes of Ctrl-C, without a word
            raise KeyboardInterrupt from None
        if noted:
            _leave(noted[0])
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int) -> NoReturn:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(_TERMINATED)


def run() -> None:
    """Run the command line and leave with its exit code; errors are one sentence on standard error."""
    sys.meta_path.insert(0, _WithoutPandas())
    try:
        _interruptible()
    except SfumatoError as error:
        remark(f"sfumato: {error}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        remark(f"sfumato: interrupted; {_CHARGED if sys.argv[1:2] in _CHARGING else 'nothing was charged'}")
        sys.exit(_INTERRUPTED)
    except Exception as error:
        if os.environ.get("SFUMATO_TRACE"):
            raise
        # the text of an unforeseen error may quote the protected table, so it is not shown unasked
        remark(f"sfumato: failed with an internal {type(error).__name__}; set SFUMATO_TRACE=1 to see where")
        sys.exit(1)
