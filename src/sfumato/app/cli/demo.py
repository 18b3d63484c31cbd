"""``sfumato demo``: the main job end to end on bundled data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.app.cli.output import Json, columns, folder, remark, result, working
from sfumato.extras import missing

if TYPE_CHECKING:
    from sfumato.app.demonstration import Demonstration


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the rows, the ledger and the page.")] = Path("sfumato-demo"),
    as_json: Json = False,
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
        f"A million children\n{_text(children)}\n"
        f"Why this method: {children.release.provenance['chosen_among'][0]}\n\n"
        f"Errors against the published truth, in people\n{columns(children.errors)}\n\n"
        f"Rows: {rows}{_line(page)}\n\n"
        f"A census of 15 columns\n{_text(census)}\n\n"
        f"Share of people in the wrong cell\n{columns(census.errors)}\n\n"
        f"Rows: {of_census['rows']}{_line(census_page)}"
    )
    pages = [None if each is None else str(each) for each in (page, census_page)]
    result({**found, "page": pages[0], "census": {**of_census, "page": pages[1]}}, text, as_json=as_json)


def _found(shown: Demonstration) -> dict[str, Any]:
    return {**shown.release.statement(), "errors": list(shown.errors), "account": shown.account}


def _line(page: Path | None) -> str:
    return "" if page is None else f"\nPage: {page}"


def _text(shown: Demonstration) -> str:
    return f"Guarantee: {shown.release.guarantee}\nCost: {shown.release.cost}\nLedger: {shown.account}"
