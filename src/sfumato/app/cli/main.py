"""The command line ``sfumato``, with one command per task."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import cache, wraps
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from inspect import Parameter, Signature, signature
from types import FrameType
from typing import Annotated, Any, NoReturn, get_type_hints

import typer
import typer.main

from sfumato.app.cli.output import AT_END, print_error, print_message
from sfumato.app.help_pages import WIDTH, SectionedCommand, SectionedGroup, page_of, see_help
from sfumato.errors import InputError, MissingExtraError, SfumatoError

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

GROUPS = {  # in the order of --help
    "Describe": ("domain", "schema", "hierarchy", "bound"),
    "Release": ("synthesize", "query", "anonymize", "local", "regress"),
    "Use a release": ("show", "sample", "interval", "apply"),
    "Judge": ("evaluate", "attack", "audit", "risk", "frontier", "sign-off"),
    "Run": ("serve", "key", "ledger", "demo", "data", "lab"),
}
COMMANDS = {  # the module and the name of each command
    "domain": "domain_file:app",
    "schema": "schema_file:app",
    "hierarchy": "anonymize:hierarchies",
    "bound": "estimates:bound",
    "synthesize": "synthesize:synthesize",
    "synthesize linked": "synthesize_tables:linked",
    "query": "query:query",
    "query preview": "query:preview",
    "query price": "query:price",
    "anonymize": "anonymize:anonymize",
    "local": "local:app",
    "regress": "query:regress",
    "show": "synthesize_tables:show",
    "sample": "synthesize:sample",
    "interval": "estimates:interval",
    "apply": "anonymize:apply",
    "evaluate": "judge.evaluate:evaluate",
    "attack": "judge.evaluate:attack",
    "audit": "judge.audit_command:audit",
    "risk": "anonymize:risk",
    "frontier": "judge.evaluate:frontier",
    "sign-off": "judge.sign_off:sign_off",
    "serve": "sfumato_server.commands.serve:serve",
    "key": "sfumato_server.commands.keys:app",
    "ledger": "ledger_file:app",
    "demo": "published_data:demo",
    "data": "published_data:data",
    "lab": "sfumato_labs.command:lab",
}
_FORMER = {"describe": "show"}  # names that work in this version and not in the next
_OTHER_PACKAGES = {"serve": "server", "key": "server", "lab": "labs"}  # the extra that brings each command
_PATIENCE = 200_000  # new objects between searches for circles of them: loading modules makes many objects, few circles


def flat(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take options in dataclasses: typer sees one option per field, in order."""

    @wraps(command)
    def run(**values: Any) -> None:  # noqa: ANN401  (what typer read)
        command(**_grouped(command, values))

    options = list(_options(command))
    run.__signature__ = Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in options}
    return run


def _options(taker: Callable[..., object]) -> Iterator[Parameter]:
    kinds = get_type_hints(taker, include_extras=True)
    for parameter in signature(taker).parameters.values():
        kind = kinds[parameter.name]
        if isinstance(kind, type) and is_dataclass(kind):
            yield from _options(kind)
        else:
            yield parameter.replace(annotation=kind, kind=Parameter.KEYWORD_ONLY)


def _grouped(taker: Callable[..., object], values: Mapping[str, object]) -> dict[str, Any]:
    """Return the arguments of a command or dataclass, with its groups of options made."""
    kinds = get_type_hints(taker, include_extras=True)
    return {
        name: kinds[name](**_grouped(kinds[name], values)) if is_dataclass(kinds[name]) else values[name]
        for name in signature(taker).parameters
    }


def _load_command(name: str) -> Any:  # noqa: ANN401  (a command of typer's own copy of click)
    """Import the module of a command, or make a command that says what to install."""
    (module, attribute), alone = place_of(name), typer.Typer(rich_markup_mode=None)
    command: Any = None
    package = module.partition(".")[0]
    if find_spec(package) is None:
        settings = {"allow_extra_args": True, "ignore_unknown_options": True}
        alone.command(name, context_settings=settings)(_refusal(name, package))
    elif isinstance(command := getattr(import_module(module), attribute), typer.Typer):
        for each in command.registered_commands:
            each.cls = SectionedCommand
        alone.add_typer(command, name=name, cls=SectionedGroup)
    else:
        alone.command(name, cls=SectionedCommand)(flat(command))
    loaded = typer.main.get_group(alone).commands[name]
    if isinstance(loaded, SectionedCommand):
        loaded.page = page_of(command)
    return loaded


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
    """Return a command that says which package to install."""
    advice = f"pip install 'sfumato[{_OTHER_PACKAGES[name]}]'"

    def refuse() -> None:
        raise MissingExtraError(f"{name} needs {package}, which is not installed; {advice}", culprit=package)

    refuse.__doc__ = f"Not installed: {advice}"
    return refuse


class _Group(SectionedGroup):
    """The commands of the command line.

    A command is loaded when it is looked up, because loading all is slow.  A command can have parts, such as ``query
    preview`` of ``query``.  A table that is named like a part is written ``./preview``.
    """

    groups = GROUPS

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401  (typer's own)
        super().__init__(**settings)
        self.commands: dict[str, Any] = dict.fromkeys(COMMANDS) | dict(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401  (typer's own)
        """Return a command, or None for an unknown name."""
        if cmd_name in COMMANDS and self.commands[cmd_name] is None:
            self.commands[cmd_name] = _load_command(cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401  (typer's own)
        """Return the command of the first word, and its arguments.  A former name is noted on standard error."""
        if args and args[0] in _FORMER:
            new = _FORMER[args[0]]
            if not ctx.resilient_parsing:
                print_message(f"'sfumato {args[0]}' is the former name of 'sfumato {new}' and will go.")
            args = [new, *args[1:]]
        elif (part := " ".join(args[:2])) in COMMANDS:
            args = [part, *args[2:]]
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401  (typer's own)
        """Return the names of the commands, without the parts of commands."""
        return [name for name in super().list_commands(ctx) if " " not in name]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  (typer's own)
        """Parse the options before the command.

        Raises:
            InputError: there is no such option.
        """
        with _refusal_in_words(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401  (typer's own)
        """Run a command, and close its ledger.

        Raises:
            InputError: the command line is wrong.
        """
        try:
            with _refusal_in_words(ctx):
                return super().invoke(ctx)
        finally:
            AT_END.close()


@contextmanager
def _refusal_in_words(ctx: Any) -> Iterator[None]:  # noqa: ANN401  (typer's own)
    """Turn typer's refusal of a command line into one of ours.  The prefix of typer's validator is left out."""
    try:
        yield
    except typer.TyperException as error:
        if isinstance(error, typer.BadParameter):
            error.message = error.message.removeprefix("Value error, ")
        message = error.format_message().removesuffix(".")
        raise InputError(f"{message}; {see_help(getattr(error, 'ctx', None) or ctx)}") from None


app = typer.Typer(
    name="sfumato",
    cls=_Group,
    help="Release sensitive tables with a privacy guarantee that can be stated, accounted for and attacked.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": WIDTH},
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
    """A finder of modules that hides pandas from Arrow and scikit-learn, because no command uses its frames.

    Parts of NumPy that are rarely used are loaded when they are used.
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
    """Return the name of the module that runs the import, by its own code or by compiled code."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - the only way to it
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("importlib"):
        frame = frame.f_back
    return "" if frame is None else str(frame.f_globals.get("__name__"))


def _interruptible() -> None:
    """Run the command line.  A signal raises, so that every ``finally`` runs and no file stays half-written.

    Compiled code may replace the exception of a signal by another error: DuckDB raises a RuntimeError.  So the signals
    are also recorded.
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
    """Run the command line and exit with its code.  An error is one sentence on standard error."""
    without_pandas = _WithoutPandas()
    sys.meta_path.insert(0, without_pandas)
    gc.set_threshold(_PATIENCE)
    try:
        _interruptible()
    except SfumatoError as error:
        print_error(str(error))
        if error.__cause__ is not None and os.environ.get("SFUMATO_TRACE"):
            print_error(f"the reason: {error.__cause__}")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print_error(f"interrupted; {_CHARGED if sys.argv[1:2] in _CHARGING else 'nothing was charged'}")
        sys.exit(_INTERRUPTED)
    except Exception as error:
        if isinstance(error, OSError) and _while_printing(error):
            print_error(f"standard output cannot be written: {error.strerror or 'the disk failed'}; {_charged_text()}")
            sys.stdout = None  # what it still holds can be written nowhere
            sys.exit(1)
        if os.environ.get("SFUMATO_TRACE"):
            raise
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:  # outputs are looked at before any charge
            print_error("the name of a file, or a path, is too long to be looked up")
            sys.exit(2)
        # the text of an unforeseen error may quote the protected table, so it is not shown unasked
        print_error(f"failed with an internal {type(error).__name__}; set SFUMATO_TRACE=1 to see where")
        sys.exit(1)
    finally:
        sys.meta_path.remove(without_pandas)


def _while_printing(error: BaseException) -> bool:
    """Return whether printing raised the error, such as output to a file on a full disk."""
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


def _end_process(exit_codes: list[int]) -> None:
    """End the process at once with its exit code, after threads and all other functions for the exit of modules.

    Python would then take all modules apart one by one.  That takes a quarter of a second, and frees only memory that
    the system frees anyway.  Without an exit code, Python ends the process and shows its error.
    """
    if not exit_codes:
        return
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # the caller of the program may have closed it
                stream.flush()
    except (OSError, ValueError):  # the reader is gone, which Python reports
        return
    os._exit(exit_codes[0])


def program() -> None:
    """Run the command line as the program ``sfumato``, and end the process."""
    exit_codes: list[int] = []
    atexit.register(_end_process, exit_codes)  # registered first, so it runs last
    try:
        run()
    except SystemExit as exit_:
        if exit_.code is None or isinstance(exit_.code, int):
            exit_codes.append(exit_.code or 0)
        raise
    exit_codes.append(0)
