"""``sfumato describe``: what synthetic rows or linked tables are, from the codebook that they carry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.app.cli.options import JsonOption, OverwriteOption
from sfumato.app.cli.output import columns, refuse_clashes, remark, result
from sfumato.extras import require

if TYPE_CHECKING:
    from sfumato.synthesize.codebook.codebook import Codebook

_MOST_SHOWN = 100  # lines of a table of a codebook


def describe(
    file: Annotated[
        Path,
        typer.Argument(
            help="Synthetic rows that 'sfumato synthesize' wrote: .parquet or .arrow, or a folder of linked tables."
        ),
    ],
    html: Annotated[Path | None, typer.Option(help="Also write the codebook as a page.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Also write the codebook as Markdown.")] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Say what a synthetic file is, from the codebook that it carries: columns, guarantee, errors, uses.

    Of a folder of linked tables: what its release.json says of them.
    """
    say = _describe_tables if file.is_dir() else _describe_rows
    say(file, html=html, markdown=markdown, overwrite=overwrite, as_json=as_json)


def _describe_rows(file: Path, *, html: Path | None, markdown: Path | None, overwrite: bool, as_json: bool) -> None:
    """Say what a file of rows is, from the codebook in it."""
    from sfumato.synthesize.codebook.codebook import read_codebook
    from sfumato.synthesize.synthetic import STATED_BY_A_FILE
    from sfumato.vault.release import save_text

    if html is not None:
        require("plots", "the page of a codebook")
    refuse_clashes([html, markdown], inputs=[file], overwrite=overwrite)
    book = read_codebook(file)
    if markdown is not None:
        save_text(markdown, book.to_markdown(), overwrite=overwrite)
        remark(f"Wrote the codebook {markdown}.")
    if html is not None:
        from sfumato.report.page import render
        from sfumato.report.release_page import release_page

        save_text(html, render(release_page(f"Synthetic table {file.name}", book)), overwrite=overwrite)
        remark(f"Wrote the page {html}.")
    remark(STATED_BY_A_FILE)
    if book.measured:
        remark(f"For one question with an interval: sfumato interval {file} SELECT")
    result(book.to_json(), _codebook_text(book), as_json=as_json)


def _codebook_text(book: Codebook) -> str:
    """A codebook for a terminal, without its single values; nothing in it can move the cursor."""
    from sfumato.synthesize.codebook.codebook import COLUMNS_TEXT, PAIRS_TEXT, TABLES_TEXT, facts, pair_title, printable

    def lines(rows: Iterable[Mapping[str, object]]) -> str:
        every = [{name: printable(v) if isinstance(v, str) else v for name, v in row.items()} for row in rows]
        more = f"\n... and {len(every) - _MOST_SHOWN:,} more" if len(every) > _MOST_SHOWN else ""
        return columns(every[:_MOST_SHOWN]) + more

    said = [printable(book.notice), *(f"{printable(name)}: {printable(str(fact))}" for name, fact in facts(book))]
    said += ["", "Good for:", *(f"  {printable(each)}" for each in book.good_for)]
    said += ["", "Not good for:", *(f"  {printable(each)}" for each in book.not_for)]
    held = [
        {"column": c.name, "type": c.kind, "values": c.size, "cells": c.cells, "noise": c.deviation, "off by": c.worst}
        for c in book.columns
    ]
    tables = [
        {"measured": pair_title(t), "cells": t.cells, "noise": t.noise, "deviation": t.deviation} for t in book.measured
    ]
    pairs = [
        {
            "pair": pair_title(pair),
            "is": "measured" if pair.measured else "modelled",
            "strength": pair.strength,
            "cell off by": pair.worst,
            "single value off by": pair.worst_of_values,
            "misplaced": pair.share,
        }
        for pair in book.pairs
    ]
    said += ["", COLUMNS_TEXT, lines(held), "", TABLES_TEXT, lines(tables), "", PAIRS_TEXT, lines(pairs)]
    if book.pairs_left_out:
        said.append(f"{book.pairs_left_out:,} more pairs are not listed")
    return "\n".join([*said, "", "Every value with its error: --json, --markdown FILE or --html FILE."])


def _describe_tables(folder: Path, *, html: Path | None, markdown: Path | None, overwrite: bool, as_json: bool) -> None:
    """Say what linked tables are, from the codebook of their folder."""
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
    result(book, _tables_text(book), as_json=as_json)


def write_page(folder: Path, book: Mapping[str, Any], html: Path, *, overwrite: bool) -> None:
    """Write the codebook of the tables in a folder as a page."""
    from sfumato.report.linked_tables_page import linked_release_page
    from sfumato.report.page import render
    from sfumato.vault.release import save_text

    page = linked_release_page(f"Synthetic tables {folder.name}", book)
    save_text(html, render(page), overwrite=overwrite)
    remark(f"Wrote the page {html}.")


def _tables_text(book: Mapping[str, Any]) -> str:
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
