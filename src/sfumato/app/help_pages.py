"""The help of commands in sections, and the refusal of everything that is missing at once.

Typer draws sections with rich, which takes longer to import than a command takes to start.  These classes draw them as
plain text.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from sfumato.errors import InputError

_Command = TypeVar("_Command", bound=Callable[..., None])
_LONG_CHOICE = 44  # a longer list of values is in the explanation of its option
_OPTION_COLUMN, _COMMAND_COLUMN = 24, 12
_HIDDEN_OF_GROUPS = {"help", "install_completion", "show_completion"}
_READS_NOTHING = ("preview", "accuracy", "cost")  # options of commands that read no table then
WIDTH = 110


@dataclass(frozen=True, kw_only=True)
class HelpPage:
    """The layout of a command's help.

    Attributes:
        usage: the options of the usual case, for the first line.
        sections: the options of the short help, by the names of their parameters, under the title of each section.
        parts: commands of the command, such as ``preview`` of ``query``.
        missing: names what is missing among the values of the command line, besides required options.
    """

    usage: str = ""
    sections: Mapping[str, str] | None = None
    parts: Sequence[str] = ()
    missing: Callable[[Mapping[str, Any]], Iterable[str]] = lambda _: ()


_PAGES: dict[Callable[..., None], HelpPage] = {}


def help_page(page: HelpPage) -> Callable[[_Command], _Command]:
    """Declare the layout of a command's help."""

    def declare(command: _Command) -> _Command:
        _PAGES[command] = page
        return command

    return declare


def page_of(command: Callable[..., None]) -> HelpPage:
    """Return the layout of a command's help.  Without a declaration, the short help has all options."""
    return _PAGES.get(command, HelpPage())


class SectionedCommand(TyperCommand):
    """A command whose help has sections.  The short help shows the options of its page; ``--help-all`` shows all."""

    page = HelpPage()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  (typer's own)
        """Parse the command line.

        Raises:
            InputError: required arguments or options are missing.  The message names all of them.
        """
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        if "--help-all" in args:
            typer.echo(self.help_all(ctx))
            ctx.exit()
        values, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        if not any(parameter.is_eager and values.get(parameter.name) for parameter in self.get_params(ctx)):
            required = (each for each in self.params if getattr(each, "required", False))
            missing = [_display(each) for each in required if not values.get(each.name)]
            missing += self.page.missing(values)
            charges = {"create", "limit"} <= {each.name for each in self.params}
            absent = missing_files(values) if charges else []
            if missing and charges:
                missing += missing_ledger(values)
            if missing:
                missing += [f"the file {file}" for file in absent]
                raise InputError(f"Missing: {', '.join(missing)}; {see_help(ctx)}", culprit=missing)
            if absent:
                raise InputError(f"there is no file {' and no file '.join(absent)}", culprit=absent)
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002  (typer's own)
        """Return the arguments, then the options of the usual case."""
        arguments = [_usage(each) for each in self.params if each.param_type_name == "argument"]
        required = [
            _display(each)
            for each in self.params
            if each.param_type_name == "option" and getattr(each, "required", False)
        ]
        return [*arguments, self.page.usage or " ".join([*required, "[OPTIONS]"])]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002  (typer's own)
        """Write the paragraphs of the docstring.  An example is not wrapped."""
        for paragraph in _paragraphs(self.help):
            formatter.write_paragraph()
            with formatter.indentation():
                if paragraph.startswith("Example:"):
                    formatter.write(f"{'':>{formatter.current_indent}}{paragraph}\n")
                else:
                    formatter.write_text(paragraph)

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401  (typer's own)
        """Write the options of the short help, by section."""
        self._write_sections(ctx, formatter, everything=self.page.sections is None)
        if self.page.sections is not None:
            formatter.write("\nMore options: --help-all\n")

    def help_all(self, ctx: Any) -> str:  # noqa: ANN401  (typer's own)
        """Return the help with all options."""
        formatter = ctx.make_formatter()
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        self._write_sections(ctx, formatter, everything=True)
        return str(formatter.getvalue()).rstrip("\n")

    def sections(self, *, everything: bool) -> dict[str, list[tuple[str, str]]]:
        """Return the arguments and options with their explanations, by section: all, or the options of the page."""
        visible = [each for each in self.params if not getattr(each, "hidden", False)]
        arguments = [each for each in visible if each.param_type_name == "argument"]
        by_name = {each.name: each for each in visible if each.param_type_name == "option"}
        sections = {
            title: [by_name.pop(name) for name in names.split()] for title, names in (self.page.sections or {}).items()
        }
        for each in by_name.values() if everything else ():
            title = getattr(each, "rich_help_panel", None) or ("More options" if sections else "Options")
            sections.setdefault(title, []).append(each)
        return {
            title: [(_display(each), _explanation(each)) for each in parameters]
            for title, parameters in {"Arguments": arguments, **sections}.items()
            if parameters
        }

    def _write_sections(self, ctx: Any, formatter: Any, *, everything: bool) -> None:  # noqa: ANN401  (typer's own)
        group = ctx.find_root().command
        parts = [_summary(group, ctx, part) for part in self.page.parts] if isinstance(group, TyperGroup) else []
        _write_section(formatter, "Commands", parts, _COMMAND_COLUMN)
        for title, rows in self.sections(everything=everything).items():
            _write_section(formatter, title, rows)


class SectionedGroup(TyperGroup):
    """A group of commands whose help has sections."""

    groups: Mapping[str, Sequence[str]] | None = None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401  (typer's own)
        """Parse the command line.  Without arguments, print the help on standard error."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            typer.echo(self.get_help(ctx), err=True)
            ctx.exit(2)
        if args[:1] == ["--help-all"]:
            args = ["--help"]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002  (typer's own)
        """Return the form of the command line."""
        return ["COMMAND ..."]

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401  (typer's own)
        """Write the commands by group, then the options."""
        for title, names in (self.groups or {"Commands": self.list_commands(ctx)}).items():
            _write_section(formatter, title, [_summary(self, ctx, name) for name in names], _COMMAND_COLUMN)
        options = [each for each in self.params if each.name not in _HIDDEN_OF_GROUPS]
        _write_section(formatter, "Options", [(_display(each), _explanation(each)) for each in options])
        formatter.write(f"\nHelp of a command: {ctx.command_path} COMMAND --help\n")


def see_help(ctx: Any) -> str:  # noqa: ANN401  (typer's own)
    """Say where the options of a command are explained."""
    return f"see 'sfumato{ctx.command_path.removeprefix(ctx.find_root().info_name or '')} --help'"


def _summary(group: Any, ctx: Any, name: str) -> tuple[str, str]:  # noqa: ANN401  (typer's own)
    """Return the name of a command, and the first sentence of its help."""
    command = group.get_command(ctx, name)
    first = next(iter(_paragraphs(command.help)), "")
    return name.rpartition(" ")[2], first.partition(". ")[0].removesuffix(".") + "."


def _write_section(
    formatter: Any,  # noqa: ANN401  (typer's own)
    title: str,
    rows: Sequence[tuple[str, str]],
    column: int = _OPTION_COLUMN,
) -> None:
    """Write a title and its rows, whose first column is ``column`` characters wide in every section."""
    if rows:
        formatter.write(f"\n{title}\n")
        with formatter.indentation():
            formatter.write_dl([(first.ljust(column), text) for first, text in rows], col_max=column)


def _paragraphs(text: str | None) -> list[str]:
    """Return the paragraphs of a docstring, each in one line."""
    return [" ".join(paragraph.split()) for paragraph in (text or "").split("\n\n")]


def _value(parameter: Any) -> str:  # noqa: ANN401  (typer's own)
    """Return the placeholder for the value of an option: FILE, N, or its choices."""
    if parameter.metavar is not None:
        return str(parameter.metavar)
    kind = parameter.type_descriptor
    choices = "|".join(str(getattr(each, "value", each)) for each in kind.choices or ())
    if kind.is_choice and len(choices) <= _LONG_CHOICE:
        return choices
    if kind.is_path:
        return "FILE"
    return {int: "N", float: "NUMBER"}.get(kind.annotation, str(parameter.name).upper())


def _display(parameter: Any) -> str:  # noqa: ANN401  (typer's own)
    """Return an argument or an option with its value, as it is typed."""
    if parameter.param_type_name == "argument":
        return f"{_word(parameter)}{' ...' if parameter.nargs != 1 else ''}"
    names = "/".join([*parameter.opts[:1], *parameter.secondary_opts])
    return names if parameter.is_flag else f"{names} {_value(parameter)}"


def _word(argument: Any) -> str:  # noqa: ANN401  (typer's own)
    return str(argument.metavar or argument.name).upper()


def _usage(argument: Any) -> str:  # noqa: ANN401  (typer's own)
    return _display(argument) if argument.required else f"[{_display(argument)}]"


def _explanation(parameter: Any) -> str:  # noqa: ANN401  (typer's own)
    """Return the help of an argument or option, with its default."""
    text = parameter.help or ""
    kind, default = parameter.type_descriptor, parameter.default
    if kind.is_choice and len(choices := [str(each.value) for each in kind.choices or ()]) > 1:
        text += f" One of {', '.join(choices)}." if len("|".join(choices)) > _LONG_CHOICE else ""
    if isinstance(parameter.show_default, str):
        return f"{text} Default: {parameter.show_default}."
    if default not in (None, False, True, "", ()) and "Default:" not in text:
        text += f" Default: {getattr(default, 'value', default)}."
    return f"{text} [required]" if parameter.required and parameter.param_type_name == "option" else text


def files_next_to(table: str, *suffixes: str) -> list[Path]:
    """Return the files with the name of a table and these suffixes.  A table of a database has none."""
    from sfumato.engine.open import file_path

    place = Path(file_path(table) or "")
    return [each for each in map(place.with_suffix, suffixes) if each.is_file()] if place.name else []


def missing_of_release(given: Mapping[str, Any], *, described: str = "domain") -> Iterator[str]:
    """Yield what the command line of a charged release lacks.

    A new ledger needs a budget: otherwise, the loss of its first release would be its budget for ever.
    """
    if not (given.get("epsilon") or given.get("rho") or given.get("delta")):
        yield "--epsilon E --delta D (or --rho R)"
    why = "; without it, the loss of this release would be the budget for ever"
    yield from missing_for_table(given, why=why, described=described)


def missing_for_table(given: Mapping[str, Any], *, why: str = "", described: str = "domain") -> Iterator[str]:
    """Yield what the command line lacks to open a table, whose domain may lie next to it, and a new ledger."""
    from sfumato.engine.table_files import redacted_source

    if _description(given) is None:
        table = given.get("table")
        named = redacted_source(table) if table else "TABLE"
        yield f"--{described} FILE ('sfumato {described} draft {named}' drafts one)"
    if given.get("create") and not given.get("limit"):
        yield f"--limit BUDGET (such as 2,1e-9{why})"


def missing_ledger(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options for a new ledger if none is named, and none lies next to the description or the table."""
    path, free = _description(given), ("ledger", "create", *_READS_NOTHING)
    if path is None or any(given.get(name) for name in free):
        return
    ledger = path.resolve().with_suffix(".ledger")
    if not (ledger.exists() or files_next_to(given.get("table") or "", ".ledger")):
        yield f"--create --limit BUDGET (there is no ledger {ledger.name})"


def missing_files(given: Mapping[str, Any]) -> list[str]:
    """Return the files of a table, its description, its view and its rules that do not exist.

    A preview reads no table, and a table of a database is no file.
    """
    table = "" if any(given.get(name) for name in _READS_NOTHING) else given.get("table") or ""
    if table and not os.path.exists(table):  # noqa: PTH110  (it takes any text)
        from sfumato.engine.open import file_path

        table = file_path(table) or ""
    named = ("" if "*" in table else table, *map(given.get, ("domain", "schema", "view", "zeros")))
    return [str(each) for each in named if each and not Path(each).exists()]


def _description(given: Mapping[str, Any]) -> Path | None:
    """Return the domain or schema of a command line, or the first file next to its table."""
    named, table = given.get("domain") or given.get("schema"), given.get("table")
    near = files_next_to(table, ".yaml", ".yml") if table and not named else []
    return Path(named) if named else near[0] if near else None
