"""The command ``lab``, found by its entry point in the group ``sfumato-commands``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.app.cli.options import JsonOption
from sfumato.app.cli.output import columns, print_message, result, working
from sfumato.errors import InputError
from sfumato.extras import require

if TYPE_CHECKING:
    from sfumato_labs.lab import LabResult, LabSettings, Options

Numbers = list[str] | None


def lab(
    name: Annotated[str | None, typer.Argument(help="Which; without one, the labs are listed.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Run all labs as published, and write one page.")] = False,
    runs: Annotated[int | None, typer.Option(min=1, help="How often every procedure is repeated.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Repeat a simulation exactly; drawn without.")] = None,
    data: Annotated[str | None, typer.Option(help="File or database URL of a table in place of the lab's.")] = None,
    epsilon: Annotated[Numbers, typer.Option(help="Losses at which procedures run.")] = None,
    k: Annotated[Numbers, typer.Option("--k", help="Sizes of the smallest class.")] = None,
    max_suppression: Annotated[Numbers, typer.Option(help="Rows that may be suppressed.")] = None,
    queries: Annotated[Numbers, typer.Option(help="Number of queries, or of answers to one question.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of MWEM.")] = None,
    repetitions: Annotated[int | None, typer.Option(help="Repetitions of MWEM's replay.")] = None,
    mu: Annotated[Numbers, typer.Option(help="How often HierA uses a report.")] = None,
    budgets: Annotated[str | None, typer.Option(help="HierA's budgets as multiples of epsilon: 5,4,3,2,1.")] = None,
    people: Annotated[int | None, typer.Option(help="How many people are made.")] = None,
    threshold: Annotated[int | None, typer.Option(help="The least value that is counted.")] = None,
    target: Annotated[str | None, typer.Option(help="Column to predict: NAME or NAME=LOW:HIGH.")] = None,
    inputs: Annotated[Numbers, typer.Option(help="Columns to predict it from, with bounds or without.")] = None,
    columns_: Annotated[Numbers, typer.Option("--columns", help="Columns that the lab is about.")] = None,
    range_: Annotated[Numbers, typer.Option("--range", help="Ranges to count, LOW:HIGH, without their end.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for a page with the tables and plots.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a published experiment, as printed and done honestly, on published data.

    Each lab accepts the options that its source varies, and refuses the others.
    """
    from sfumato_labs.lab import MODULES, Options, load

    given: LabSettings = {
        "runs": runs,
        "seed": seed,
        "data": data,
        "epsilon": epsilon,
        "k": k,
        "max_suppression": max_suppression,
        "queries": queries,
        "rounds": rounds,
        "repetitions": repetitions,
        "mu": mu,
        "budgets": budgets,
        "people": people,
        "threshold": threshold,
        "target": target,
        "inputs": inputs,
        "columns": columns_,
        "range": range_,
    }
    if every:
        _all(name, Options.of(**given), out, as_json=as_json)
        return
    if name is None:
        titles = {known: load(known).title for known in MODULES}
        text = columns([{"lab": known, "shows": title} for known, title in titles.items()])
        result(titles, text, as_json=as_json)
        return
    experiment = load(name)
    options = Options.of(**given)
    experiment.refuse_others(options)
    require("plots", "a lab")
    if seed is None:
        print_message(f"seed {options.seed}")
    with working(f"Running {experiment.title}") as progress:
        outcome = experiment.run(replace(options, progress=progress))
    if out is not None:
        from sfumato.report.page import write

        print_message(f"Wrote {write(outcome.page(), out, outcome.to_json())}")
    result(outcome.to_json(), _text(outcome), as_json=as_json)


def _all(name: str | None, options: Options, out: Path | None, *, as_json: bool) -> None:
    from sfumato_labs.lab import hand_out

    if name is not None:
        raise InputError(f"--all runs every lab; leave {name!r} out", culprit=name)
    if out is None:
        raise InputError("--all writes a page: name its folder with --out", culprit="out")
    if options.given():
        option = min(options.given()).replace("_", "-")
        raise InputError(f"--all runs the labs as published; leave --{option} out", culprit=option)
    require("plots", "a page of all labs")
    print_message(f"seed {options.seed}")
    with working("Running all labs") as progress:
        outcome = hand_out(options, progress=progress)
    from sfumato.report.page import write

    page = write(outcome.page(), out, outcome.to_json())
    print_message(f"Wrote {page}")
    result(outcome.to_json(), columns(outcome.lines()), as_json=as_json)


def _text(outcome: LabResult) -> str:
    tables = [f"{name.replace('_', ' ')}\n{columns(rows)}" for name, rows in outcome.to_json()["tables"].items()]
    return "\n\n".join([outcome.title, *outcome.notes, *tables])
