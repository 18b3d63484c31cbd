"""``sfumato``: one command a task."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
import typer.main
from typer.core import TyperGroup

from sfumato.app.cli.output import print_message
from sfumato.errors import MissingExtraError, SfumatoError

_INTERRUPTED = 130
_TERMINATED = 143
_CHARGED = "what was charged before stays charged, and asking the same again completes it"
_CHARGING = (
    ["bound"],
    ["demo"],
    ["query"],
    ["regress"],
    ["serve"],
    ["synthesize"],
)  # others charge nothing

COMMANDS = {  # in the order of --help: the module and the name of each command
    "query": "query:query",
    "regress": "query:regress",
    "bound": "estimates:bound",
    "serve": "sfumato_server.commands.serve:serve",
    "synthesize": "synthesize:synthesize",
    "sample": "synthesize:sample",
    "describe": "synthesize_tables:describe",
    "interval": "estimates:interval",
    "anonymize": "anonymize:anonymize",
    "apply": "anonymize:apply",
    "risk": "anonymize:risk",
    "evaluate": "evaluate:evaluate",
    "attack": "evaluate:attack",
    "audit": "evaluate:audit",
    "frontier": "evaluate:frontier",
    "lab": "sfumato_labs.command:lab",
    "demo": "published_data:demo",
    "data": "published_data:data",
    "domain": "domain_file:app",
    "schema": "schema_file:app",
    "ledger": "ledger_file:app",
    "key": "sfumato_server.commands.keys:app",
    "local": "local:app",
    "hierarchy": "anonymize:hierarchies",
}
_OTHER_PACKAGES = {"serve": "server", "key": "server", "lab": "labs"}  # the extra that brings each command
_PATIENCE = 200_000  # new objects between searches for circles of them: loading modules makes many objects, few circles


class _Commands(Mapping[str, Any]):
    """The commands by name, each made when it is looked at: typer takes as long for all as a command for its work."""

    def __init__(self, made: Mapping[str, Any]) -> None:
        self._made = dict(made)

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401  (a command of typer's own copy of click)
        if name not in self._made:
            from sfumato.app.cli.options import flat

            (module, attribute), alone = place_of(name), typer.Typer(rich_markup_mode=None)
            package = module.partition(".")[0]
            if find_spec(package) is None:
                settings = {"allow_extra_args": True, "ignore_unknown_options": True}
                alone.command(name, context_settings=settings)(_refusal(name, package))
            elif isinstance(command := getattr(import_module(module), attribute), typer.Typer):
                alone.add_typer(command, name=name)
            else:
                alone.command(name)(flat(command))
            self._made[name] = typer.main.get_group(alone).commands[name]
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*COMMANDS, *self._made)))

    def __len__(self) -> int:
        return len(COMMANDS.keys() | self._made.keys())


def place_of(name: str) -> tuple[str, str]:
    """Return the module of a command, and its name there.

    A command of another package is found by its entry point, or in its known module if the installed metadata is older.
    """
    place = COMMANDS[name]
    if name in _OTHER_PACKAGES:
        place = installed_commands().get(name, place)
    module, _, attribute = place.partition(":")
    return module if name in _OTHER_PACKAGES else f"sfumato.app.cli.{module}", attribute


@cache
def installed_commands() -> dict[str, str]:
    """Return the places of the commands that installed packages declare, by name."""
    from importlib.metadata import entry_points  # it reads the metadata of every package: 20 ms

    return {entry.name: entry.value for entry in entry_points(group="sfumato-commands")}


def _refusal(name: str, package: str) -> Callable[[], None]:
    """Return what stands for a command of a package that is not installed."""
    advice = f"pip install 'sfumato[{_OTHER_PACKAGES[name]}]'"

    def refuse() -> None:
        raise MissingExtraError(f"{name} needs {package}, which is not installed; {advice}", culprit=package)

    refuse.__doc__ = f"Not installed: {advice}"
    return refuse


class _Group(TyperGroup):
    """All commands of the command line."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401  (typer's own)
        super().__init__(**settings)
        self.commands: Any = _Commands(self.commands)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  (typer's own)
        """Run a command; what typer's validator writes before the reason of a refusal is left out."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise


app = typer.Typer(
    name="sfumato",
    cls=_Group,
    help="Release sensitive tables with a privacy guarantee that can be stated, accounted for and attacked.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(value: bool) -> None:
    if value:
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


_UNUSED = ("numpy.f2py", "numpy.testing", "numpy.ctypeslib")  # SciPy imports all of NumPy, by a star


class _WithoutPandas:
    """Keeps Arrow and scikit-learn from importing pandas, which they do unasked: no command is handed a frame of it.

    Parts of NumPy that nobody may use either are loaded where somebody does.
    """

    def find_spec(self, name: str, path: Sequence[str] | None = None, *_: object) -> ModuleSpec | None:
        if name == "pandas" and _importer().partition(".")[0] in ("pyarrow", "sfumato", "sklearn"):
            raise ModuleNotFoundError("no command uses pandas", name=name)
        if name not in _UNUSED:
            return None
        from importlib.util import LazyLoader

        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


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
    without_pandas = _WithoutPandas()
    sys.meta_path.insert(0, without_pandas)
    gc.set_threshold(_PATIENCE)
    try:
        _interruptible()
    except SfumatoError as error:
        print_message(f"sfumato: {error}")
        if error.__cause__ is not None and os.environ.get("SFUMATO_TRACE"):
            print_message(f"sfumato: the reason: {error.__cause__}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print_message(f"sfumato: interrupted; {_CHARGED if sys.argv[1:2] in _CHARGING else 'nothing was charged'}")
        sys.exit(_INTERRUPTED)
    except Exception as error:
        if isinstance(error, OSError) and _while_printing(error):
            print_message(
                f"sfumato: standard output cannot be written: {error.strerror or 'the disk failed'}; {_charged_text()}"
            )
            sys.stdout = None  # what it still holds can be written nowhere
            sys.exit(1)
        if os.environ.get("SFUMATO_TRACE"):
            raise
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:  # outputs are looked at before any charge
            print_message("sfumato: the name of a file, or a path, is too long to be looked up")
            sys.exit(2)
        # the text of an unforeseen error may quote the protected table, so it is not shown unasked
        print_message(f"sfumato: failed with an internal {type(error).__name__}; set SFUMATO_TRACE=1 to see where")
        sys.exit(1)
    finally:
        sys.meta_path.remove(without_pandas)


def _while_printing(error: BaseException) -> bool:
    """Whether an error was raised while something was printed, as where the output goes to a file on a full disk."""
    place = error.__traceback__
    while place is not None and place.tb_frame.f_code.co_name != "echo":
        place = place.tb_next
    return place is not None


def _charged_text() -> str:
    charged = sys.argv[1:2] in _CHARGING
    return (
        "what was released is in the ledger, and asking the same again returns it at no cost"
        if charged
        else ("nothing was charged")
    )


class _End:
    """Ends the process as soon as everything that has to be done at its end is done.

    Taking all modules apart one by one, which Python does last, takes a quarter of a second and frees what the system
    frees by itself.  Threads were waited for before, and what modules do at exit was done: this is asked last.
    """

    def __init__(self) -> None:
        self.code: int | None = None

    def leave(self) -> None:
        if self.code is None:  # an error that Python itself will show
            return
        try:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:  # as where whoever started the program closed it
                    stream.flush()
        except (OSError, ValueError):  # whoever reads is gone, which Python says in its own way
            return
        os._exit(self.code)


def program() -> None:
    """The program ``sfumato``: :func:`run` as all that this process does."""
    end = _End()
    atexit.register(end.leave)  # before all others, so that it comes after them
    try:
        run()
    except SystemExit as left:
        end.code = left.code if isinstance(left.code, int) else 0 if left.code is None else None
        raise
    end.code = 0
