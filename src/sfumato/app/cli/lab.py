"""``sfumato lab``: run a published experiment, as printed and done honestly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.app.cli.output import Json, columns, remark, result, working
from sfumato.errors import InputError
from sfumato.extras import require

if TYPE_CHECKING:
    from sfumato_labs.lab import LabResult, Options

_RUNS = 10


def lab(
    name: Annotated[str | None, typer.Argument(help="Which; without one, the labs are listed.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="How often every procedure is repeated.")] = _RUNS,
    seed: Annotated[int | None, typer.Option(min=0, help="Repeat a simulation exactly; drawn without.")] = None,
    data: Annotated[Path | None, typer.Option(help="File of the published table, where the lab reads one.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for a page with the tables and plots.")] = None,
    as_json: Json = False,
) -> None:
    """Run a published experiment, as printed and done honestly, on published data."""
    from sfumato_labs.lab import MODULES, load

    if name is None:
        titles = {known: load(known).title for known in MODULES}
        text = columns([{"lab": known, "shows": title} for known, title in titles.items()])
        result(titles, text, as_json=as_json)
        return
    experiment = load(name)
    if data is not None and not experiment.reads_data:
        raise InputError(f"the lab {name!r} reads no file; leave --data out", culprit=data)
    require("plots", "a lab")
    options = _options(runs, seed, data)
    with working(f"Running {experiment.title}") as progress:
        found = experiment.run(replace(options, progress=progress))
    if out is not None:
        from sfumato.report.page import write

        remark(f"Wrote {write(found.page(), out, found.to_json())}")
    result(found.to_json(), _text(found), as_json=as_json)


def _options(runs: int, seed: int | None, data: Path | None) -> Options:
    import secrets

    from sfumato_labs.lab import Options

    drawn = secrets.randbits(31) if seed is None else seed
    if seed is None:
        remark(f"seed {drawn}")
    return Options(runs=runs, seed=drawn, data=data)


def _text(found: LabResult) -> str:
    tables = [f"{name.replace('_', ' ')}\n{columns(rows)}" for name, rows in found.tables.items()]
    return "\n\n".join([found.title, *found.notes, *tables])
