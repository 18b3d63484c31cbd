"""What a lab is: a name, a title, and a function from options to tables, plots and notes; and the labs by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from sfumato.errors import InputError
from sfumato.report.page import Page, Plot, Row, Table

__all__ = ["Lab", "LabResult", "Options", "Plot", "Row", "Table"]


def silent(_: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every lab can be told.

    Attributes:
        runs: how often every procedure is repeated; figures are averages over the runs.
        seed: of the simulation, so that a run of the lab can be repeated.
        data: a file to use in place of the bundled or fetched table, where the lab reads one.
        progress: is told each step of a long lab, in a few words, when it begins.
    """

    runs: int
    seed: int
    data: Path | None = None
    progress: Callable[[str], None] = field(default=silent, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.runs < 1:
            raise InputError(f"a lab needs at least one run, not {self.runs}", culprit=self.runs)
        if self.seed < 0:
            raise InputError(f"the seed of a lab must not be negative, not {self.seed}", culprit=self.seed)


@dataclass(frozen=True, kw_only=True)
class LabResult:
    """What a run of a lab found: tables by name, plots, and notes on how to read them."""

    lab: str
    title: str
    tables: Mapping[str, Table]
    plots: tuple[Plot, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The tables as plain JSON values: ``{"lab": name, "tables": {table: [{column: value}, ...]}}``."""
        return {"lab": self.lab, "tables": {name: [dict(row) for row in rows] for name, rows in self.tables.items()}}

    def page(self) -> Page:
        """The result as a page."""
        return Page(title=self.title, notes=self.notes, plots=self.plots, tables=self.tables)


@dataclass(frozen=True)
class Lab:
    """An experiment that can be run again.  It works on published data, and its procedures may not be private.

    ``reads_data``: whether it reads the file that the options may name.
    """

    name: str
    title: str
    run: Callable[[Options], LabResult]
    reads_data: bool = False


MODULES: Mapping[str, str] = {
    "samarati": "sfumato_labs.samarati",
    "mondrian": "sfumato_labs.mondrian",
    "mwem-1d": "sfumato_labs.mwem",
    "mwem-2d": "sfumato_labs.mwem",
    "hiera-mu": "sfumato_labs.hiera",
    "hiera-methods": "sfumato_labs.hiera",
    "ldp-sgd": "sfumato_labs.ldp_sgd",
    "synthetic-data": "sfumato_labs.synthetic_data",
    "interactive": "sfumato_labs.interactive",
}


def load(name: str) -> Lab:
    """The lab of that name.

    Raises:
        InputError: there is none.
    """
    if name not in MODULES:
        raise InputError(f"no lab {name!r}; there are {', '.join(MODULES)}", culprit=name)
    lab: Lab = import_module(MODULES[name]).LABS[name]
    return lab
