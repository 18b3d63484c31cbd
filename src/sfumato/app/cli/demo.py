"""``sfumato demo``: the main job end to end on bundled data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.app.cli.output import Json, columns, result, working


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the rows, the ledger and the page.")] = Path("sfumato-demo"),
    as_json: Json = False,
) -> None:
    """Release the bundled table of a million children under epsilon 1, and show how wrong it is.

    A second run in the same folder returns the stored release and spends nothing.
    """
    from sfumato.labs.demonstration import demonstrate
    from sfumato.report.page import write

    out.mkdir(parents=True, exist_ok=True)
    with working("Releasing a synthetic table of a million children"):
        shown = demonstrate(out)
    rows = out / "synthetic.parquet"
    shown.release.rows.to_parquet(rows, overwrite=True)
    found = {**shown.release.statement(), "errors": list(shown.errors), "account": shown.account, "rows": str(rows)}
    page = write(shown.page, out, found)
    text = (
        f"Guarantee: {shown.release.guarantee}\n"
        f"Cost: {shown.release.cost}\n"
        f"Ledger: {shown.account}\n"
        f"Why this method: {shown.release.provenance['chosen_among'][0]}\n\n"
        f"Errors against the published truth, in people\n{columns(shown.errors)}\n\n"
        f"Rows: {rows}\nPage: {page}"
    )
    result({**found, "page": str(page)}, text, as_json=as_json)
