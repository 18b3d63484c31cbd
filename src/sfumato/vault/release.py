"""What every method returns beside the thing itself: its promise, cost, expected error and provenance."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Release:
    """The statement of a release.  Families add the thing itself (rows, answers, a recoding) as fields of their own.

    Attributes:
        guarantee: the promise in words and numbers, with its unit and neighbour relation.
        cost: what this call added to the journal, in words; a repeated question costs nothing.
        expected_error: expected size of the error by name, computed without the data.
        provenance: method, parameters, versions, domain hash and number of the journal entry.
    """

    guarantee: str
    cost: str
    expected_error: Mapping[str, float]
    provenance: Mapping[str, Any]

    def statement(self) -> dict[str, Any]:
        """The statement as plain JSON values."""
        return {
            "guarantee": self.guarantee,
            "cost": self.cost,
            "expected_error": dict(self.expected_error),
            "provenance": dict(self.provenance),
        }

    def to_html(self) -> str:
        """The statement as a fragment of HTML: a definition list that any page can hold."""
        terms = [
            ("Guarantee", self.guarantee),
            ("Cost", self.cost),
            *((f"Expected error: {name}", f"{value:.6g}") for name, value in self.expected_error.items()),
            *((name.replace("_", " ").capitalize(), str(value)) for name, value in self.provenance.items()),
        ]
        rows = "".join(f"<dt>{html.escape(term)}</dt><dd>{html.escape(text)}</dd>" for term, text in terms)
        return f'<dl class="statement">{rows}</dl>'
