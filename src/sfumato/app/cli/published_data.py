"""Commands on bundled and published data: ``sfumato demo``, ``data`` and ``lab``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.app.cli.conventions import JsonOption, OverwriteOption, columns, folder, remark, result, working
from sfumato.errors import InputError
from sfumato.extras import missing, require

if TYPE_CHECKING:
    from sfumato.app.demonstration import Demonstration
    from sfumato_labs.lab import LabResult, LabSettings, Options

_TABLES = {
    "census": "a synthetic census of 32 573 people: a release of UCI Adult by aim, with its guarantee",
    "child_mental_health": "1 013 184 children by age and satisfaction, published counts",
    "hospital": "5 957 synthetic patients and their 9 489 visits, two tables: a release, with its guarantee",
    "medical": "2 182 patients by age band",
    "zoo": "182 animals and the carrots they eat a day",
}
Numbers = list[str] | None


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the rows, the ledger and the page.")] = Path("sfumato-demo"),
    as_json: JsonOption = False,
) -> None:
    """Release two bundled tables, a million children and a census of 15 columns, and show how wrong the releases are.

    Both go out under epsilon 1.  A second run in the same folder returns the stored releases and spends nothing.
    """
    from sfumato.app.demonstration import demonstrate_census, demonstrate_children
    from sfumato.report.page import write

    folder(out)
    with working("Releasing a synthetic table of a million children"):
        children = demonstrate_children(out)
    rows = out / "synthetic.parquet"
    children.release.rows.to_parquet(rows, overwrite=True)
    with working("Releasing a synthetic census"):
        census = demonstrate_census(out)
    found = {**_found(children), "rows": str(rows)}
    of_census = {**_found(census), "rows": str(out / "census-synthetic.parquet")}
    page: Path | None = None
    census_page: Path | None = None
    if absent := missing("plots"):
        remark(f"No pages are written: {absent[0]} is not installed; pip install 'sfumato[plots]'")
    else:
        page = write(children.page(), out, found)
        census_page = write(census.page(), out / "census", of_census)
    text = (
        f"A million children\n{_shown(children)}\n"
        f"Why this method: {children.release.provenance['chosen_among'][0]}\n\n"
        f"Errors against the published truth, in people\n{columns(children.errors)}\n\n"
        f"Rows: {rows}{_line(page)}\n\n"
        f"A census of 15 columns\n{_shown(census)}\n\n"
        f"Share of people in the wrong cell\n{columns(census.errors)}\n\n"
        f"Rows: {of_census['rows']}{_line(census_page)}"
    )
    pages = [None if each is None else str(each) for each in (page, census_page)]
    result({**found, "page": pages[0], "census": {**of_census, "page": pages[1]}}, text, as_json=as_json)


def _found(shown: Demonstration) -> dict[str, Any]:
    return {**shown.release.statement(), "errors": list(shown.errors), "account": shown.account}


def _line(page: Path | None) -> str:
    return "" if page is None else f"\nPage: {page}"


def _shown(shown: Demonstration) -> str:
    return f"Guarantee: {shown.release.guarantee}\nCost: {shown.release.cost}\nLedger: {shown.account}"


def data(
    name: Annotated[str | None, typer.Argument(help="Which; without one, the tables are listed.")] = None,
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path(),
    overwrite: OverwriteOption = False,
) -> None:
    """Write a bundled table as NAME.parquet with its accepted domain NAME.yaml.

    The census is itself a release: census.json beside it says of what, under which promise, and by which command.  So
    is the hospital, whose two tables are written to a folder, with their schema beside it.
    """
    from sfumato import data as bundled
    from sfumato.vault.release import ReleasedRows, free, save_text

    if name is None:
        text = columns([{"table": table, "holds": content} for table, content in _TABLES.items()])
        result(_TABLES, text, as_json=False)
        return
    if name not in _TABLES:
        raise InputError(f"no bundled table {name!r}; there are {', '.join(_TABLES)}", culprit=name)
    if name == "hospital":
        _hospital(out, overwrite=overwrite)
        return
    tables = {
        "census": bundled.census,
        "child_mental_health": bundled.child_mental_health,
        "medical": bundled.medical,
        "zoo": bundled.zoo,
    }
    rows, description = out / f"{name}.parquet", out / f"{name}.yaml"
    statement = out / f"{name}.json" if name == "census" else None
    for path in (rows, description, statement):
        if path is not None:
            free(path, overwrite=overwrite)
    ReleasedRows(tables[name]()).write(rows, overwrite=overwrite)
    save_text(description, bundled.domain_text(name), overwrite=overwrite)
    remark(f"Wrote {rows} and {description}.")
    if statement is not None:
        text = json.dumps(bundled.census_release(), indent=2, ensure_ascii=False)
        save_text(statement, text + "\n", overwrite=overwrite)
        remark(f"Wrote {statement}: what these rows are a release of, the promise made, and the command.")
        typer.echo(text)


def _hospital(out: Path, *, overwrite: bool) -> None:
    """Write the two tables to a folder of their own, with their schema and what they promise beside it."""
    from sfumato import data as bundled
    from sfumato.vault.release import ReleasedRows, free, save_text

    tables, target = bundled.hospital(), out / "hospital"
    files = {name: target / f"{name}.parquet" for name in tables}
    schema, statement = out / "hospital.yaml", out / "hospital.json"
    folder(target)
    for path in (*files.values(), schema, statement):
        free(path, overwrite=overwrite)
    for name, table in tables.items():
        ReleasedRows(table).write(files[name], overwrite=overwrite)
    save_text(schema, bundled.hospital_schema(), overwrite=overwrite)
    text = json.dumps(bundled.hospital_release(), indent=2, ensure_ascii=False)
    save_text(statement, text + "\n", overwrite=overwrite)
    remark(
        f"Wrote the tables to {target}, their schema {schema}, and {statement}: what they are a release of, and how."
    )
    typer.echo(text)


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

    An option that a lab's source does not vary is refused.
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
        remark(f"seed {options.seed}")
    with working(f"Running {experiment.title}") as progress:
        found = experiment.run(replace(options, progress=progress))
    if out is not None:
        from sfumato.report.page import write

        remark(f"Wrote {write(found.page(), out, found.to_json())}")
    result(found.to_json(), _text(found), as_json=as_json)


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
    remark(f"seed {options.seed}")
    with working("Running all labs") as progress:
        found = hand_out(options, progress=progress)
    from sfumato.report.page import write

    page = write(found.page(), out, found.to_json())
    remark(f"Wrote {page}")
    result(found.to_json(), columns(found.lines()), as_json=as_json)


def _text(found: LabResult) -> str:
    tables = [f"{name.replace('_', ' ')}\n{columns(rows)}" for name, rows in found.to_json()["tables"].items()]
    return "\n\n".join([found.title, *found.notes, *tables])
