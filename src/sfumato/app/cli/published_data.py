"""Commands on bundled and published data: ``sfumato demo`` and ``data``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.app.cli.options import (
    JsonOption,
    OverwriteOption,
)
from sfumato.app.cli.output import (
    account_in_shares,
    columns,
    cost_in_shares,
    folder,
    print_message,
    result,
    working,
)
from sfumato.errors import InputError
from sfumato.extras import missing

if TYPE_CHECKING:
    from sfumato.app.demonstration import Demonstration

_TABLES = {
    "census": "a synthetic census of 32 573 people: a release of UCI Adult by batched, with its guarantee",
    "child_mental_health": "1 013 184 children by age and satisfaction, published counts",
    "hospital": "5 957 synthetic patients and their 9 489 visits, two tables: a release, with its guarantee",
    "medical": "2 182 patients by age band",
    "zoo": "182 animals and the carrots they eat a day",
}


def demo(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the rows, the ledger and the pages.")] = Path(
        "sfumato-demo"
    ),
    as_json: JsonOption = False,
) -> None:
    """Release two bundled tables and show the errors of the releases.

    Example: sfumato demo

    The tables are a million children and a census of 15 columns. Both are released with epsilon 1. A second run in the
    same folder returns the stored releases and spends nothing.
    """
    from sfumato.app.demonstration import demonstrate_census, demonstrate_children

    folder(out)
    with working("Releasing a synthetic table of a million children"):
        children = demonstrate_children(out)
    rows = out / "synthetic.parquet"
    children.release.rows.to_parquet(rows, overwrite=True)
    with working("Releasing a synthetic census"):
        census = demonstrate_census(out)
    children_json = {**_to_json(children), "rows": str(rows)}
    census_json = {**_to_json(census), "rows": str(out / "census-synthetic.parquet")}
    page: Path | None = None
    census_page: Path | None = None
    if absent := missing("plots"):
        print_message(f"No pages are written: {absent[0]} is not installed; pip install 'sfumato[plots]'")
    else:
        page = children.write(out, children_json)
        census_page = census.write(out / "census", census_json)
    text = (
        f"A million children\n{_text(children)}\n"
        f"Why this method: {children.release.provenance['chosen_among'][0]}\n\n"
        f"Errors against the published truth, in people\n{columns(_rounded(children))}\n\n"
        f"Rows: {rows}{_line(page)}\n\n"
        f"A census of 15 columns\n{_text(census)}\n\n"
        f"Share of people in the wrong cell\n{columns(_rounded(census))}\n\n"
        f"Rows: {census_json['rows']}{_line(census_page)}"
    )
    pages = [None if each is None else str(each) for each in (page, census_page)]
    result({**children_json, "page": pages[0], "census": {**census_json, "page": pages[1]}}, text, as_json=as_json)


def _to_json(demonstration: Demonstration) -> dict[str, Any]:
    return {
        **demonstration.release.statement(),
        "errors": list(demonstration.errors),
        "account": str(demonstration.account),
    }


def _rounded(demonstration: Demonstration) -> list[dict[str, Any]]:
    """Return the errors with three digits, and the names of their columns in words."""
    return [
        {
            name.replace("_", " "): float(f"{value:.3g}") if isinstance(value, float) else value
            for name, value in row.items()
        }
        for row in demonstration.errors
    ]


def _line(page: Path | None) -> str:
    return "" if page is None else f"\nPage: {page}"


def _text(demonstration: Demonstration) -> str:
    release = demonstration.release
    account = demonstration.account
    cost = cost_in_shares(release.cost, account.limit.charge if account.limit else None, account)
    return f"Guarantee: {release.guarantee}\nCost: {cost}\nLedger: {account_in_shares(account)}"


def data(
    name: Annotated[str | None, typer.Argument(help="Name of the table. Default: list the tables.")] = None,
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder to write to.", show_default="the current folder")
    ] = Path(),
    overwrite: OverwriteOption = False,
) -> None:
    """Write a bundled table with its accepted domain.

    Example: sfumato data census

    The files are NAME.parquet and NAME.yaml. The census and the hospital are releases themselves: NAME.json states
    their guarantee and the command that made them. The hospital has two tables, in a folder, and a schema.
    """
    from sfumato import data as bundled
    from sfumato.vault.release import ReleasedRows, refuse_occupied_path, save_text

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
            refuse_occupied_path(path, overwrite=overwrite)
    ReleasedRows(tables[name]()).write(rows, overwrite=overwrite)
    save_text(description, bundled.domain_text(name), overwrite=overwrite)
    print_message(f"Wrote {rows} and {description}.")
    if statement is not None:
        text = json.dumps(bundled.census_release(), indent=2, ensure_ascii=False)
        save_text(statement, text + "\n", overwrite=overwrite)
        print_message(f"Wrote {statement}: what these rows are a release of, the promise made, and the command.")
        typer.echo(text)


def _hospital(out: Path, *, overwrite: bool) -> None:
    """Write the two tables to a folder, and their schema and statement next to it."""
    from sfumato import data as bundled
    from sfumato.vault.release import ReleasedRows, refuse_occupied_path, save_text

    tables, target = bundled.hospital(), out / "hospital"
    files = {name: target / f"{name}.parquet" for name in tables}
    schema, statement = out / "hospital.yaml", out / "hospital.json"
    folder(target)
    for path in (*files.values(), schema, statement):
        refuse_occupied_path(path, overwrite=overwrite)
    for name, table in tables.items():
        ReleasedRows(table).write(files[name], overwrite=overwrite)
    save_text(schema, bundled.hospital_schema(), overwrite=overwrite)
    text = json.dumps(bundled.hospital_release(), indent=2, ensure_ascii=False)
    save_text(statement, text + "\n", overwrite=overwrite)
    print_message(
        f"Wrote the tables to {target}, their schema {schema}, and {statement}: what they are a release of, and how."
    )
    typer.echo(text)
