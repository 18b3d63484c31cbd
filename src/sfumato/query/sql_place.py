"""Where in a statement something is, for refusals that point at it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from sfumato.errors import QueryError

_QUOTED = re.compile(
    r"""'(?:[^']|'')*+' | "(?:[^"]|"")*+" | --[^\n]* | /\*.*?\*/ | \$(\w*)\$.*?\$\1\$ | (?P<open>['"]|/\*|\$\w*\$)""",
    re.DOTALL | re.VERBOSE,
)
_KEYWORDS = {"joins": "JOIN", "order": "ORDER BY", "windows": "WINDOW", "locks": "FOR", "sample": "USING SAMPLE"}


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


def refuse_clause(text: str, clause: str, node: Any) -> QueryError:  # noqa: ANN401
    """The error to raise about a clause, by the parser's name of it: it points at the clause's keyword."""
    from sqlglot import tokenize

    keyword = _KEYWORDS.get(clause, clause.rstrip("_").upper())
    at = _start(node)
    words = [token.start for token in tokenize(text, read="duckdb") if token.text.upper() == keyword]
    place = _at(text, max((start for start in words if start <= at), default=at))
    reason = "ask one table, without JOIN" if clause == "joins" else f"{keyword} is no clause of the subset"
    return QueryError(f"{place}: {reason}", culprit=place)


def unclosed(text: str) -> Place:
    """Where the first quote or comment opens that is not closed; the start, where all are."""
    opened = (found.start() for found in _QUOTED.finditer(text) if found["open"])
    return _at(text, next(opened, 0))


def unreadable(error: Any) -> Place:  # noqa: ANN401
    """The first character of the word that the parser stumbled over; it remembers the last."""
    first = error.errors[0] if error.errors else {}
    return Place(first.get("line") or 1, max((first.get("col") or 1) - len(first.get("highlight") or " ") + 1, 1))


def _place(text: str, node: Any) -> Place:  # noqa: ANN401
    return _at(text, _start(node))


def _start(node: Any) -> int:  # noqa: ANN401
    """The first character that the parser remembers of the node or of anything in it, else of what holds it."""
    while isinstance(node, list):
        node = node[0] if node else None
    while node is not None and not isinstance(node, bool | str):
        starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
        if starts:
            return int(min(starts))
        node = node.parent
    return 0


def _at(text: str, start: int) -> Place:
    before = text[:start]
    return Place(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
