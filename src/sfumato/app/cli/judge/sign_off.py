"""``sfumato sign-off``: one page on which a privacy officer decides about a released file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfumato.app.cli.options import DatasetOption, JsonOption, OverwriteOption
from sfumato.app.cli.output import print_message, refuse_clashes, result
from sfumato.extras import require


def sign_off(
    file: Annotated[Path, typer.Argument(help="Synthetic rows that 'sfumato synthesize' wrote: .parquet or .arrow.")],
    html: Annotated[Path, typer.Option("--html", "--out", help="Where to write the page.")],
    ledger: Annotated[
        str | None, typer.Option("--ledger", help="Ledger of the release: a SQLite file or a URL.")
    ] = None,
    dataset: DatasetOption = "default",
    evaluation: Annotated[
        Path | None, typer.Option("--evaluation", help="The output of 'sfumato evaluate --json' about this file.")
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

    With --evaluation the page holds figures that were computed from the protected table, and says so across its top.
    Without, it holds only what the release states.
    """
    from sfumato.report.sign_off.sign_off_files import Evidence, file_sign_off
    from sfumato.report.sign_off.sign_off_page import Purpose, render_sign_off
    from sfumato.vault.release import save_text

    require("plots", "the sign-off page")
    refuse_clashes([html], inputs=[file, ledger, evaluation], overwrite=overwrite)
    evidence = Evidence(ledger=ledger, dataset=dataset, evaluation=evaluation)
    described = file_sign_off(file, Purpose(to, purpose, by), evidence)
    described = described.published() if public else described
    save_text(html, render_sign_off(described), overwrite=overwrite)
    print_message(f"Wrote the page {html}.")
    lines = [f"{tile.label}: {tile.conclusion}. {tile.sentence}" for tile in described.tiles]
    lines += [f"To judge: {each.text}" for each in described.checks if each.to_judge]
    result({"page": str(html)} | described.to_json(), "\n".join(lines), as_json=as_json)
