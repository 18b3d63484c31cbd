"""``sfumato describe FOLDER``: what linked synthetic tables are, from the codebook beside them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sfumato.app.cli.conventions import columns, refuse_clashes, remark, result
from sfumato.extras import require


def describe_tables(folder: Path, *, html: Path | None, markdown: Path | None, overwrite: bool, as_json: bool) -> None:
    """Say what the tables of a folder are."""
    from sfumato.synthesize.linked.linked_codebook import STATEMENT, family_lines, read_family_codebook
    from sfumato.synthesize.synthetic import STATED_BY_A_FILE
    from sfumato.vault.release import save_text

    if html is not None:
        require("plots", "the page of a codebook")
    refuse_clashes([html, markdown], inputs=[folder / STATEMENT], overwrite=overwrite)
    book = read_family_codebook(folder)
    if markdown is not None:
        save_text(markdown, "\n".join(family_lines(book)) + "\n", overwrite=overwrite)
        remark(f"Wrote the codebook {markdown}.")
    if html is not None:
        write_page(folder, book, html, overwrite=overwrite)
    remark(STATED_BY_A_FILE)
    result(book, _described(book), as_json=as_json)


def write_page(folder: Path, book: Mapping[str, Any], html: Path, *, overwrite: bool) -> None:
    """Write the codebook of the tables in a folder as a page."""
    from sfumato.report.linked_tables_page import linked_release_page
    from sfumato.report.page import render
    from sfumato.vault.release import save_text

    page = linked_release_page(f"Synthetic tables {folder.name}", book)
    save_text(html, render(page), overwrite=overwrite)
    remark(f"Wrote the page {html}.")


def _described(book: Mapping[str, Any]) -> str:
    """A codebook for a terminal; nothing in it can move the cursor."""
    from sfumato.synthesize.codebook.codebook import printable
    from sfumato.synthesize.linked.linked_codebook import (
        UNITS_TEXT,
        family_column_rows,
        family_facts,
        family_tie_rows,
    )

    def lines(rows: list[dict[str, Any]]) -> str:
        return columns([{name: printable(v) if isinstance(v, str) else v for name, v in row.items()} for row in rows])

    said = [
        printable(str(book["notice"])),
        *(f"{printable(name)}: {printable(fact)}" for name, fact in family_facts(book)),
    ]
    said += [f"Note: {printable(str(note))}" for note in book["notes"]]
    said += ["", UNITS_TEXT]
    for part in book["parts"]:
        said += ["", f"{printable(str(part['name']))}: {printable(str(part['says']))}", lines(family_column_rows(part))]
        if part["ties"]:
            said += ["", lines(family_tie_rows(part))]
    return "\n".join([*said, "", "Every value with its error: --json or --html FILE."])
