"""The page of the demonstration: a real table next to its releases at several privacy losses, on one screen.

The page runs no script.  Its slider is a group of radio buttons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

from sfumato.extras import require
from sfumato.report.drawing import Bar, BarWidths, bar_drawing, palette, percent_up
from sfumato.report.page import ShownTable, figure

if TYPE_CHECKING:
    from markupsafe import Markup

_WIDTHS = BarWidths(labels=24, bars=180, numbers=60, step=16, intervals=False)
COMMANDS = (
    "sfumato domain draft people.csv --out people.yaml",
    'sfumato domain accept people.yaml --by "Your Name" --table people.csv --confirm values,bounds,bins',
    "sfumato synthesize people.csv --domain people.yaml --epsilon 1 --delta 1e-9 --limit 2,1e-9 --create --out new.csv",
)
"""The commands that release the reader's own table."""


@dataclass(frozen=True)
class PeopleByColumn:
    """The people of a table by each of its columns: the label and the number of each value."""

    by_column: Mapping[str, Mapping[str, int]]

    def drawn(self, title: str, span: tuple[float, float] | None = None) -> Markup:
        """Return a picture for each column."""
        from markupsafe import Markup

        parts = [
            f"<h3>by {column}</h3>"
            + bar_drawing(f"{title} by {column}", [Bar(*each) for each in values.items()], _WIDTHS, span=span)
            for column, values in self.by_column.items()
        ]
        return Markup("".join(parts))  # noqa: S704  (columns and labels of a bundled table)

    def minus(self, other: PeopleByColumn) -> PeopleByColumn:
        """Return the differences between these numbers and ``other``."""
        return PeopleByColumn(
            {
                column: {label: number - other.by_column[column][label] for label, number in values.items()}
                for column, values in self.by_column.items()
            }
        )

    @property
    def widest(self) -> int:
        """The largest size of a number."""
        return max(abs(number) for values in self.by_column.values() for number in values.values())

    @property
    def span(self) -> tuple[float, float]:
        """The ends of a scale that shows every number, with zero in its middle."""
        return float(-self.widest), float(self.widest)


@dataclass(frozen=True)
class DemoRelease:
    """A release at a privacy loss.

    Attributes:
        epsilon: the loss, as text.
        right_guesses: largest probability of a right guess whether a person is in the table.
        numbers: the number of released numbers.
        worst: the largest error of a released number, in people.
        marginals: the people by each column: sums of released numbers.
    """

    epsilon: str
    right_guesses: float
    numbers: int
    worst: int
    marginals: PeopleByColumn

    def sentences(self, people: str, worst_sum: int) -> tuple[str, ...]:
        """Return the sentences of the page about a table of ``people``; a bar is off by at most ``worst_sum``."""
        chance = f"right with a chance of at most {percent_up(self.right_guesses)}, instead of 50 %"
        return (
            f"{people}.",
            f"{self.numbers} numbers are released. None is off by more than {self.worst:,}.",
            f"The bars below are sums of them. None is off by more than {worst_sum:,}.",
            f"From this release alone, a guess whether a child is in the table is {chance}.",
        )


def render_demo(
    people: str, real: PeopleByColumn, releases: Sequence[DemoRelease], *, first: int, details: Mapping[str, ShownTable]
) -> str:
    """Return the page as one HTML document.

    Args:
        people: the number and the kind of the people, for the first sentence.
        real: the people of the real table by each column, which is published.
        releases: from the smallest loss to the largest.
        first: place of the release that is shown first, from 1.
        details: tables that are folded away, by their summaries.

    Raises:
        MissingExtraError: the extra ``plots`` is not installed.
    """
    require("plots", "the page of the demonstration")
    from jinja2 import Environment
    from markupsafe import Markup

    differences = [each.marginals.minus(real) for each in releases]
    steps = [
        {
            "epsilon": each.epsilon,
            "sentences": each.sentences(people, difference.widest),
            "widest": f"{difference.widest:,}",
            "synthetic": each.marginals.drawn(f"Synthetic people at epsilon {each.epsilon}"),
            "difference": difference.drawn(f"Synthetic minus real at epsilon {each.epsilon}", difference.span),
        }
        for each, difference in zip(releases, differences, strict=True)
    ]
    page = {
        "title": "A million children, released with a guarantee",
        "lead": (
            "The real table is published, so this page can show it next to a synthetic table. The synthetic table "
            "protects every child by differential privacy. No synthetic row is a child."
        ),
        "steps": steps,
        "first": first,
        "real": real.drawn("Real people"),
        "commands": COMMANDS,
        "more": "census/index.html",
        "details": details,
    }
    template = resources.files("sfumato.report").joinpath("demo_page.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["figure"] = figure
    return environment.from_string(template).render(page=page, palette=Markup(palette()))  # noqa: S704  (no text)
