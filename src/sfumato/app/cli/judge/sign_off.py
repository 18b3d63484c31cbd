"""``sfumato sign-off``: one page on which a privacy officer decides about a released file."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.app.cli.options import DatasetOption, JsonOption, OverwriteOption, existing
from sfumato.app.cli.output import print_message, refuse_clashes, result
from sfumato.errors import InputError
from sfumato.extras import require

if TYPE_CHECKING:
    from sfumato.evaluate.verdicts import Judgement
    from sfumato.report.sign_off_page import LedgerRecord
    from sfumato.synthesize.codebook.codebook import Codebook


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
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write the sign-off page of a synthetic file: one A4 page for a privacy officer.

    With --evaluation the page holds figures that were computed from the protected table, and says so across its top.
    Without, it holds only what the release states, and may be published.
    """
    from sfumato.report.sign_off_page import Purpose, render_sign_off, sign_off_page
    from sfumato.synthesize.codebook.codebook import read_codebook
    from sfumato.vault.release import save_text

    require("plots", "the sign-off page")
    refuse_clashes([html], inputs=[file, ledger, evaluation], overwrite=overwrite)
    book = read_codebook(file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    described = sign_off_page(
        file.name,
        digest,
        book,
        purpose=Purpose(to, purpose, by),
        record=None if ledger is None else _record(book, ledger, dataset),
        verdicts=None if evaluation is None else _verdicts(evaluation, file.name, digest),
    )
    save_text(html, render_sign_off(described), overwrite=overwrite)
    print_message(f"Wrote the page {html}.")
    lines = [f"{tile.label}: {tile.conclusion}. {tile.sentence}" for tile in described.tiles]
    lines += [f"To judge: {each.text}" for each in described.checks if each.to_judge]
    result({"page": str(html)} | described.to_json(), "\n".join(lines), as_json=as_json)


def _record(book: Codebook, ledger: str, dataset: str) -> LedgerRecord:
    from sfumato.report.sign_off_page import record_of

    with existing(ledger, dataset) as opened:
        head = opened.verified().head
        return record_of(book, list(opened.journal()), opened.remaining(), head)


def _verdicts(path: Path, name: str, digest: str) -> list[Judgement]:
    """Return the verdicts of an evaluation on the file with this hash.

    Raises:
        InputError: the file is no evaluation, or it is one of another file.
    """
    from sfumato.evaluate.verdicts import Judgement
    from sfumato.strict_documents import read_json

    try:
        document: Any = read_json(path.read_bytes())
        files, lines = document["files"], document["verdicts"]
        judgements = [Judgement.from_json(each) for each in lines if files.get(each["release"]) == digest]
    except (OSError, KeyError, TypeError, ValueError, AttributeError, InputError):
        raise InputError(f"{path} is not what 'sfumato evaluate --json' prints", culprit=path) from None
    if not judgements:
        raise InputError(f"{path} evaluates other files than {name}; evaluate this one", culprit=path)
    return judgements
