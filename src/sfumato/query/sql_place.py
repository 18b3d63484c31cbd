"""Where in a statement something is, for refusals that point at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sfumato.errors import QueryError


@dataclass(frozen=True)
class Place:
    """Line and column of a statement, both from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


def refuse(text: str, node: Any, reason: str) -> QueryError:  # noqa: ANN401  (sqlglot's own)
    """The error to raise about a node of the parsed statement."""
    place = _place(text, node)
    return QueryError(f"{place}: {reason}", culprit=place)


def _place(text: str, node: Any) -> Place:  # noqa: ANN401
    """The first character that the parser remembers of the node or of anything in it, else of what holds it."""
    while isinstance(node, list):
        node = node[0] if node else None
    while node is not None and not isinstance(node, bool | str):
        starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
        if starts:
            before = text[: min(starts)]
            return Place(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
        node = node.parent
    return Place(1, 1)
