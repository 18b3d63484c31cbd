"""``sfumato sign-off``: one page on which a privacy officer decides about a released file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.app.cli.options import DatasetOption, JsonOption, OverwriteOption
from sfumato.app.cli.output import print_message, refuse_clashes, result
from sfumato.app.help_pages import HelpPage, help_page
from sfumato.extras import require

if TYPE_CHECKING:
    from sfumato.report.sign_off.sign_off_page import SignOff


@dataclass(frozen=True, kw_only=True)
class SignOffOptions:
    """The options of ``sfumato sign-off``."""

    file: Annotated[
        Path,
        typer.Argument(
            help="A synthetic or anonymized file, a folder of linked tables, an answer (.json), or a ledger."
        ),
    ]
    html: Annotated[Path, typer.Option("--html", "--out", help="Where to write the page.")]
    ledger: Annotated[str | None, typer.Option("--ledger", help="Ledger of the release: a SQLite file or a URL.")] = (
        None
    )
    dataset: DatasetOption = "default"
    domain: Annotated[
        Path | None,
        typer.Option(
            "--domain",
            help="Accepted description of the table, for a file with part of its columns. Default: the file next to "
            "the ledger.",
        ),
    ] = None
    evaluation: Annotated[
        Path | None, typer.Option("--evaluation", help="The output of 'sfumato evaluate --json' about this file.")
    ] = None
    table: Annotated[
        str | None, typer.Option("--table", help="Protected table of an anonymized file, for the risk before.")
    ] = None
    to: Annotated[str, typer.Option("--to", help="Who receives the file.")] = ""
    purpose: Annotated[str, typer.Option("--purpose", help="The purpose for which they may use it.")] = ""
    by: Annotated[str, typer.Option("--by", help="Who asks for the signature.")] = ""
    public: Annotated[
        bool,
        typer.Option("--public", help="Write the edition that may be published: no names, no purpose, no decision."),
    ] = False
    overwrite: OverwriteOption = False
    as_json: JsonOption = False

    def page(self) -> SignOff:
        """Return the page of the file.

        Raises:
            InputError: the file is no release, or contradicts the other files.
        """
        from sfumato.report.sign_off.sign_off_files import Evidence, file_sign_off
        from sfumato.report.sign_off.sign_off_page import Purpose

        evidence = Evidence(
            ledger=self.ledger,
            dataset=self.dataset,
            evaluation=self.evaluation,
            table=self.table,
            domain=self.domain,
        )
        page = file_sign_off(self.file, Purpose(self.to, self.purpose, self.by), evidence)
        return page.published() if self.public else page


@help_page(
    HelpPage(usage="--html FILE", sections={"Main options": "html ledger domain evaluation table to purpose by public"})
)
def sign_off(given: SignOffOptions) -> None:
    """Write the sign-off page of a release: one A4 page for a privacy officer.

    Example: sfumato sign-off synthetic.parquet --ledger people.ledger --html sign-off.html

    FILE is what you give away: synthetic rows, an anonymized table, a folder of linked tables, or the output of
    'sfumato query --json'. For a ledger, the page is about all its answers. With --ledger the page is checked against
    the journal. With --evaluation or --table the page holds figures that were computed from the protected table.
    """
    from sfumato.report.sign_off.sign_off_page import render_sign_off
    from sfumato.vault.release import save_text

    require("plots", "the sign-off page")
    inputs = [given.file, given.ledger, given.domain, given.evaluation, given.table]
    refuse_clashes([given.html], inputs=inputs, overwrite=given.overwrite)
    page = given.page()
    save_text(given.html, render_sign_off(page), overwrite=given.overwrite)
    print_message(f"Wrote the page {given.html}.")
    result({"page": str(given.html)} | page.to_json(), _conclusions(page), as_json=given.as_json)


def _conclusions(page: SignOff) -> str:
    lines = [f"{tile.label}: {tile.conclusion}. {tile.sentence}" for tile in page.tiles]
    return "\n".join([*lines, *(f"To judge: {each.text}" for each in page.checks if each.to_judge)])
