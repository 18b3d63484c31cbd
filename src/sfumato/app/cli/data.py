"""``sfumato data``: write a bundled table with its domain, to try things on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from sfumato.app.cli.output import Overwrite, columns, remark, result
from sfumato.errors import InputError

_TABLES = {
    "census": "a synthetic census of 32 573 people: a release of UCI Adult by aim, with its guarantee",
    "child_mental_health": "1 013 184 children by age and satisfaction, published counts",
    "medical": "2 182 patients by age band",
    "zoo": "216 animals and the carrots they eat a day",
}


def data(
    name: Annotated[str | None, typer.Argument(help="Which; without one, the tables are listed.")] = None,
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path(),
    overwrite: Overwrite = False,
) -> None:
    """Write a bundled table as NAME.parquet with its accepted domain NAME.yaml.

    The census is itself a release: census.json beside it says of what, under which promise, and by which command.
    """
    from sfumato import data as bundled
    from sfumato.vault.release import Rows, free, save_text

    if name is None:
        text = columns([{"table": table, "holds": content} for table, content in _TABLES.items()])
        result(_TABLES, text, as_json=False)
        return
    if name not in _TABLES:
        raise InputError(f"no bundled table {name!r}; there are {', '.join(_TABLES)}", culprit=name)
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
    Rows(tables[name]()).write(rows, overwrite=overwrite)
    save_text(description, bundled.domain_text(name), overwrite=overwrite)
    remark(f"Wrote {rows} and {description}.")
    if statement is not None:
        text = json.dumps(bundled.census_release(), indent=2, ensure_ascii=False)
        save_text(statement, text + "\n", overwrite=overwrite)
        remark(f"Wrote {statement}: what these rows are a release of, the promise made, and the command.")
        typer.echo(text)
