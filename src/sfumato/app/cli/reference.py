"""The command line reference of the docs: the help of every command, as it prints it.

``python -m sfumato.app.cli.reference > docs/cli.md`` writes it; a test keeps it true.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from sfumato.app.cli.main import app

_WIDTH = 100


def reference() -> str:
    """The page ``docs/cli.md``."""
    root = get_command(app)
    sections = [
        f"## `{path}`\n\n```text\n{_help(command, path)}\n```\n" for path, command in _commands(root, "sfumato")
    ]
    return "# Command line\n\nMade from the commands themselves; `--help` prints the same.\n\n" + "\n".join(sections)


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401  (typer keeps its command type to itself)
    yield path, command
    if isinstance(command, TyperGroup):
        for name, child in sorted(command.commands.items()):
            yield from _commands(child, f"{path} {name}")


def _help(command: Any, path: str) -> str:  # noqa: ANN401
    context = command.context_class(command, info_name=path, terminal_width=_WIDTH, max_content_width=_WIDTH)
    return str(command.get_help(context)).rstrip()


if __name__ == "__main__":
    sys.stdout.write(reference())
