"""``sfumato sign-off``: one page on which a privacy officer decides about a released file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.app.cli.options import DatasetOption, JsonOption, OverwriteOption
from sfumato.app.cli.output import print_message, refuse_clashes, result
from sfumato.app.help_pages import HelpPage, help_page
from sfumato.extras import require

if TYPE_CHECKING:
    from sfumato.report.sign_off.sign_off_page import SignOff


@help_page(
    HelpPage(usage="--html FILE", sections={"Main options": "html ledger evaluation table to purpose by public"})
)
def sign_off(
    file: Annotated[
        Path,
        typer.Argument(
            help="A synthetic or anonymized file, a folder of linked tables, an answer (.json), or a ledger."
        ),
    ],
    html: Annotated[Path, typer.Option("--html", "--out", help="Where to write the page.")],
    ledger: Annotated[
        str | None, typer.Option("--ledger", help="Ledger of the release: a SQLite file or a URL.")
    ] = None,
    dataset: DatasetOption = "default",
    evaluation: Annotated[
        Path | None, typer.Option("--evaluation", help="The output of 'sfumato evaluate --json' about this file.")
    ] = None,
    table: Annotated[
        str | None, typer.Option("--table", help="Protected table of an anonymized file, for the risk before.")
    ] = None,
    to: Annotated[str, typer.Option("--to", help="Who receives the file.")] = "",
    purpose: Annotated[str, typer.Option("--purpose", help="The purpose for which they may use it.")] = "",
    by: Annotated[str, typer.Option("--by", help="Who asks for the signature.")] = "",
    *,
    public: Annotated[
        bool, typer.Option("--public", help="Write the edition that may be published: no names, no decision.")
    ] = False,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write the sign-off page of a release: one A4 page for a privacy officer.

    Example: sfumato sign-off synthetic.parquet --ledger people.ledger --html sign-off.html

    FILE is what you give away: synthetic rows, an anonymized table, a folder of linked tables, or the output of
    'sfumato query --json'. For a ledger, the page is about all its answers. With --ledger the page is checked against
    the journal. With --evaluation or --table the page holds figures that were computed from the protected table.
    """
    from sfumato.report.sign_off.sign_off_files import Evidence, file_sign_off
    from sfumato.report.sign_off.sign_off_page import Purpose, render_sign_off
    from sfumato.vault.release import save_text

    require("plots", "the sign-off page")
    refuse_clashes([html], inputs=[file, ledger, evaluation, table], overwrite=overwrite)
    evidence = Evidence(ledger=ledger, dataset=dataset, evaluation=evaluation, table=table)
    described = file_sign_off(file, Purpose(to, purpose, by), evidence)
    described = described.published() if public else described
    save_text(html, render_sign_off(described), overwrite=overwrite)
    print_message(f"Wrote the page {html}.")
    result({"page": str(html)} | described.to_json(), _conclusions(described), as_json=as_json)


def _conclusions(page: SignOff) -> str:
    lines = [f"{tile.label}: {tile.conclusion}. {tile.sentence}" for tile in page.tiles]
    return "\n".join([*lines, *(f"To judge: {each.text}" for each in page.checks if each.to_judge)])
