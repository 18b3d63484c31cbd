"""All labs on one page, so that a course can hand it out: a line an experiment, every figure, every table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sfumato.report.page import Page
from sfumato_labs.lab import MODULES, LabResult, Options, Plot, Row, load

TITLE = "The labs: published experiments, as printed and done honestly"
_SAID = (
    "One line an experiment: what the source prints, what its program gives when it is run again, what an honest "
    "procedure gives for the same question, and the lesson. The figures follow, and every table stands folded below "
    "the lines."
)


@dataclass(frozen=True)
class Handout:
    """The results of all labs by name."""

    results: Mapping[str, LabResult]

    def lines(self) -> tuple[Row, ...]:
        """The index: one line an experiment."""
        return tuple({"lab": name, **line} for name, result in self.results.items() for line in result.summary)

    def to_json(self) -> dict[str, Any]:
        """All tables as plain JSON values, by lab."""
        labs = {name: result.to_json()["tables"] for name, result in self.results.items()}
        return {"experiments": [dict(line) for line in self.lines()], "labs": labs}

    def page(self) -> Page:
        """The page."""
        details: dict[str, tuple[Row, ...]] = {}
        plots: list[Plot] = []
        for name, result in self.results.items():
            details[f"{name}: {result.title}"] = tuple({"note": note} for note in result.notes)
            details |= {f"{name}: {table.replace('_', ' ')}": rows for table, rows in result.tables.items()}
            plots += [
                replace(plot, name=f"{name}-{plot.name}", title=f"{name}: {plot.name.replace('_', ' ')}")
                for plot in result.plots
            ]
        said = tuple(f"{name}: {result.notes[0]}" for name, result in self.results.items())
        return Page(
            title=TITLE,
            notes=(_SAID, *said),
            overview={"experiments": self.lines()},
            details=details,
            plots=tuple(plots),
        )


def hand_out(options: Options, *, progress: Callable[[str], None]) -> Handout:
    """Run every lab as published, with the runs and the seed of ``options``.

    Raises:
        InputError: any other option: which of them apply differs from lab to lab.
    """
    results = {}
    for name in MODULES:
        progress(name)
        results[name] = load(name).run(replace(options, progress=progress))
    return Handout(results)
