"""Write the reference pages of the commands and of the Python API when mkdocs builds the documentation.

mkdocs loads this file as a hook (``hooks`` in mkdocs.yml).  The pages exist only in the site: their text comes from the
command tree and from ``__all__`` and the docstrings, so no page can become stale.  ``pages`` returns them all.
"""

from __future__ import annotations

import inspect
import re
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from typer.core import TyperGroup
from typer.main import get_command

from sfumato.app.cli.main import GROUPS, app
from sfumato_server.application import create
from sfumato_server.service import Service

COMMANDS, PYTHON = "reference/cli.md", "reference/python.md"  # the pages whose sections hold the generated ones
HTTP = "reference/http.md"
FAMILIES = ("anonymize", "data", "domain", "evaluate", "local", "query", "synthesize")
RETURNED = ("sfumato.description.draft.Draft", "sfumato.vault.vault.Vault")  # classes whose objects a function returns
_WIDTH = 100
_OPTIONS = """\
    options:
      heading: "{name}"
      toc_label: "{label}"
"""
_DOCTEST = re.compile(r"^( *)>>> .*(?:\n(?!\s*$).+)*", re.MULTILINE)  # to the next empty line
_ROLE = re.compile(r":(?:func|class|meth|mod|data|attr):(?=<code>)")


class DoctestFences(griffe.Extension):
    """An extension that shows the doctests of docstrings as code.  Markdown reads ``>>>`` as a quotation."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:  # noqa: ANN401  (the signature of griffe)
        """Fence the doctests of an object."""
        if obj.docstring:
            obj.docstring.value = _DOCTEST.sub(r"\1```pycon\n\g<0>\n\1```", obj.docstring.value)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """List the generated pages in the navigation, in the section of their first page."""
    _extend(
        config.nav or [],
        {page: [each for each in pages() if each.startswith(page[:-3])] for page in (COMMANDS, PYTHON)},
    )
    return config


def _extend(entries: list[Any], generated: Mapping[str, list[str]]) -> None:
    for entry in entries:
        for title, target in entry.items() if isinstance(entry, dict) else ():
            if isinstance(target, list):
                _extend(target, generated)
            elif target in generated:
                entry[title] = [target, *generated[target]]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to the site."""
    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: object) -> str:  # noqa: ANN401  (mkdocs' own)
    """List the generated pages, or the routes of the server, at the end of the page that introduces them.

    The fence of a stored output states its noise, which Markdown does not know.
    """
    markdown = re.sub(r"^```output .*$", "```text", markdown, flags=re.MULTILINE)
    lists = {COMMANDS: command_list, PYTHON: family_list, HTTP: route_list}
    return f"{markdown}\n{lists[page.file.src_uri]()}" if page.file.src_uri in lists else markdown


def on_page_content(html: str, **_: object) -> str:
    """Take Sphinx's roles out of docstrings, which Markdown does not know."""
    return _ROLE.sub("", html)


def pages() -> dict[str, str]:
    """Return the text of each generated page by its path below the documentation."""
    commands = {f"{COMMANDS[:-3]}/{name}.md": command_page(command, name) for name, command in top_commands()}
    return commands | {f"{PYTHON[:-3]}/{name.replace('.', '-')}.md": python_page(name) for name in packages()}


# The commands


def top_commands() -> Iterator[tuple[str, Any]]:
    """Yield the commands of ``sfumato`` that its help lists, by name."""
    return _subcommands(get_command(app))


def _subcommands(group: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401  (typer keeps its command type to itself)
    for name in group.list_commands(context := _context(group, "sfumato")):
        command = group.get_command(context, name)
        if not command.hidden:
            yield name, command


def _context(command: Any, path: str) -> Any:  # noqa: ANN401
    return command.context_class(command, info_name=path, terminal_width=_WIDTH, max_content_width=_WIDTH)


def command_list() -> str:
    """Return a table of the commands, by the groups of ``sfumato --help``."""
    rows = {name: f"| [`{name}`](cli/{name}.md) | {_cell(_help(command)[0])} |" for name, command in top_commands()}
    groups = (f"| **{group}** | |\n" + "\n".join(rows[name] for name in names) for group, names in GROUPS.items())
    return "## Commands\n\n| command | purpose |\n| --- | --- |\n" + "\n".join(groups) + "\n"


def command_page(command: Any, name: str) -> str:  # noqa: ANN401
    """Return the page of a command and of the commands below it."""
    return "\n".join(_section(command, f"sfumato {name}", 1))


def _section(command: Any, path: str, level: int) -> Iterator[str]:  # noqa: ANN401
    yield f"{'#' * level} `{path}`\n"
    summary, rest = _help(command)
    yield f"{summary}\n\n{rest}\n"
    context = _context(command, path)
    yield f"```text\n{' '.join([path, *command.collect_usage_pieces(context)])}\n```\n"
    if isinstance(command, TyperGroup):
        for name, below in _subcommands(command):
            yield from _section(below, f"{path} {name}", level + 1)
        return
    for section, records in command.sections(everything=True).items():
        rows = "\n".join(f"| `{_cell(left)}` | {_cell(right)} |" for left, right in records)
        yield f"| {section.lower()} | meaning |\n| --- | --- |\n{rows}\n"
    for part in command.page.parts:
        root = get_command(app)
        yield from _section(root.get_command(_context(root, "sfumato"), part), f"sfumato {part}", level + 1)


def _help(command: Any) -> tuple[str, str]:  # noqa: ANN401
    """Return the first paragraph of a command's help, and the rest, in which indented examples are code."""
    first, _, rest = inspect.cleandoc(command.help or "").replace("\b\n", "").partition("\n\n")
    return " ".join(first.split()), re.sub(r"^Example: +(.*)$", r"```text\n\1\n```", rest, flags=re.MULTILINE)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


# The server


def route_list() -> str:
    """Return a table of the server's routes."""
    with tempfile.TemporaryDirectory() as folder:
        service = Service(f"sqlite:///{Path(folder) / 'ledger'}", create=True)
        try:
            paths = create(service).openapi()["paths"]
        finally:
            service.close()
    rows = "\n".join(
        f"| `{method.upper()} {path}` | {_cell(route['description'].partition(chr(10) * 2)[0])} |"
        for path, routes in paths.items()
        for method, route in routes.items()
    )
    return f"## Routes\n\n| route | purpose |\n| --- | --- |\n{rows}\n"


# The Python API


def packages() -> list[str]:
    """Return the packages with public names."""
    return ["sfumato", *(f"sfumato.{family}" for family in FAMILIES)]


def public_names(package: str) -> dict[str, str]:
    """Return the public names of a package, families left out, with the dotted path where each is defined."""
    module = import_module(package)
    objects = {name: getattr(module, name) for name in module.__all__}
    return {
        name: f"{each.__module__}.{each.__qualname__}" if callable(each) else f"{package}.{name}"
        for name, each in objects.items()
        if not inspect.ismodule(each)
    }


def homes() -> dict[str, str]:
    """Return the package whose page documents each definition: the first that exports it, families first."""
    found: dict[str, str] = {}
    for package in [*packages()[1:], "sfumato"]:
        for path in public_names(package).values():
            found.setdefault(path, package)
    return found


def summary(path: str) -> str:
    """Return the first sentence or paragraph of what a dotted path documents, in one line."""
    module, _, name = path.rpartition(".")
    each = getattr(import_module(module), name)
    documented = inspect.getdoc(each) if callable(each) and inspect.getmodule(each) else _text_below(path)
    return " ".join((documented or "").partition("\n\n")[0].split())


def _text_below(path: str) -> str:
    """Return the docstring below an assignment, which only a reader of the source finds."""
    below = _source()[path.partition(".")[2]].docstring
    return below.value if below else ""


@cache
def _source() -> Any:  # noqa: ANN401
    return griffe.load("sfumato", search_paths=[str(Path(__file__).parent.parent / "src")], resolve_aliases=True)


def family_list() -> str:
    """Return a table of the packages with their public names."""
    rows = "\n".join(
        f"| [`{each}`](python/{each.replace('.', '-')}.md) | {summary_of_package(each)} |" for each in packages()
    )
    return f"## Packages\n\n| package | contents |\n| --- | --- |\n{rows}\n"


def summary_of_package(package: str) -> str:
    """Return the first paragraph of a package's docstring, in one line."""
    return " ".join((import_module(package).__doc__ or "").partition("\n\n")[0].split())


def python_page(package: str) -> str:
    """Return the page of a package: a table of its names, then each name with its docstring."""
    names, home = public_names(package), homes()
    if package == "sfumato":
        names |= {path.rpartition(".")[2]: path for path in RETURNED}
    rows, blocks = [], []
    for name, path in names.items():
        rows.append(f"| [`{name}`][{path}] | {_cell(summary(path))} |")
        if home.get(path, package) == package:
            label = f"{package.replace('sfumato', 'sf', 1)}.{name}"
            blocks.append(f"::: {path}\n{_OPTIONS.format(name=label, label=name)}")
    table = "\n".join(rows)
    return (
        f"# `{package}`\n\n{summary_of_package(package)}\n\n| name | summary |\n| --- | --- |\n{table}\n\n"
        + "\n".join(blocks)
    )
