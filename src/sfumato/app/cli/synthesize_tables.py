"""``sfumato synthesize linked`` for linked tables, and ``sfumato show``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.app.cli.options import (
    JsonOption,
    LedgerOptions,
    LossOptions,
    OverwriteOption,
    Source,
    domain_or_schema,
    read_schema,
)
from sfumato.app.cli.output import (
    columns,
    cost_in_shares,
    error_lines,
    print_message,
    refuse_clashes,
    result,
    working,
)
from sfumato.app.help_pages import HelpPage, help_page, missing_of_release
from sfumato.errors import InputError, pluralize
from sfumato.extras import require

if TYPE_CHECKING:
    from sfumato.domain.linked_domain import ChildTable, LinkedTables
    from sfumato.domain.table_schema import Schema
    from sfumato.domain.unit import Acceptance
    from sfumato.synthesize import LinkedRelease
    from sfumato.synthesize.codebook.codebook import Codebook


NO_COMBINING = (
    "Copies differ by what drawing adds and by nothing else: combining rules for several copies, such as Rubin's, are "
    "not valid here, as they count neither the noise nor what the model leaves out; 'sfumato interval' gives intervals."
)
"""What is said of several files that were drawn of one model."""

_FALLING = ":falling"
_TABLES = {".parquet", ".csv", ".arrow"}
_FILES = re.compile(r"\.(csv|parquet|arrow|xlsx?|jsonl?|ya?ml|tsv|txt|pq|gz|zip|feather|html)", re.IGNORECASE)


LinkedFormatOption = Annotated[
    str, typer.Option("--format", metavar="parquet|csv", help="Format of the files in the folder.")
]


@dataclass(frozen=True, kw_only=True)
class LinkedOptions:
    """The options of ``sfumato synthesize linked``."""

    table: Annotated[str, typer.Argument(metavar="TABLES", help="Folder of the tables, or the URL of their database.")]
    schema: Annotated[
        Path | None,
        typer.Option("--schema", help="Accepted schema of the tables, a YAML file. Default: the file next to them."),
    ] = None
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="New folder for the tables.")]
    loss: LossOptions
    rows: Annotated[
        int | None, typer.Option(min=1, help="Number of units, such as people, if it is public. Default: measured.")
    ] = None
    order: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE=COLUMN",
            help="Column that orders the rows of a unit. TABLE=COLUMN:falling reverses it. Default: the first date.",
        ),
    ] = None
    most: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE=N", help="Keep the first N rows of a unit, in order. Default: the bound of the schema."
        ),
    ] = None
    memory: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N", help="Rows before it on which a row depends, 1 or 2. TABLE=N for one table. Default: 1."
        ),
    ] = None
    final: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE.COLUMN=VALUE",
            help="Value after which a unit has no more rows in the table, such as a death.",
        ),
    ] = None
    file_format: LinkedFormatOption = "parquet"
    html: Annotated[Path | None, typer.Option(help="Also write the release report.")] = None
    model: Annotated[Path | None, typer.Option(help="Also save the model, for 'sfumato sample'.")] = None
    journal: LedgerOptions
    overwrite: OverwriteOption = False
    as_json: JsonOption = False


def is_folder(out: Path) -> bool:
    """Return whether the output is a folder of tables instead of a file."""
    return out.suffix.lower() not in _TABLES


def refuse_of_one_table(given: Mapping[str, object]) -> None:
    """Refuse options that are for one synthetic table.

    Raises:
        InputError: such an option is given.  The message names it.
    """
    options = [f"--{name.replace('_', '-')}" for name, value in given.items() if value]
    if options:
        are = "is" if len(options) == 1 else "are"
        raise InputError(
            f"{' and '.join(options)} {are} for one synthetic table; a folder of tables "
            "that belong together takes --order, --most, --memory, --final, --format, --rows, --model and --html",
            culprit=options,
        )


@help_page(
    HelpPage(
        usage="--schema FILE --out FOLDER --epsilon E [--delta D]",
        sections={
            "Main options": "schema out epsilon delta html",
            "What to keep accurate": "order most memory final",
            "Ledger": "create limit",
        },
        missing=partial(missing_of_release, described="schema"),
    )
)
def linked(given: LinkedOptions) -> None:
    """Make linked synthetic tables with differential privacy: people, and what each of them has.

    Example: sfumato synthesize linked hospital --schema hospital.yaml --epsilon 1 --delta 1e-9 --out synthetic
    """
    from sfumato.domain.linked_domain import link_tables
    from sfumato.synthesize import NoisyTotal, PublicTotal, linked_without_delta, synthesize_linked
    from sfumato.synthesize.linked.linked_release import free_folder
    from sfumato.synthesize.linked.linked_synthesis import wide_child_columns

    loss = given.loss.fields().loss()
    schema_file = given.schema or domain_or_schema(None, None, given.table)
    source = Source(table=given.table, domain=schema_file, journal=given.journal, charge=loss.charge)
    if given.html is not None:
        require("plots", "--html")
    _refuse_file(given.out, ", or end it in .parquet, .csv or .arrow for one, with --view")
    target = free_folder(given.out, given.file_format)
    refuse_clashes([given.out], inputs=[*source.files()], overwrite=True)
    refuse_clashes([given.html, given.model], inputs=[*source.files(), given.out], overwrite=given.overwrite)
    schema = read_schema(source.domain)
    children = _children(schema, given)
    for note in link_tables(schema, children).left_out:
        print_message(f"{note} is not synthesized: it has no attributes, or its rows belong to a table that has none.")
    total = NoisyTotal() if given.rows is None else PublicTotal(given.rows)
    advice = linked_without_delta(schema, loss=loss, children=children, total=total)
    for sentence in (*wide_child_columns(schema, children=children), *advice):
        print_message(f"Before it is charged: {sentence}.")
    vault = source.schema(schema)
    with working("Making the release"):
        release = synthesize_linked(vault, loss=loss, children=children, total=total)
        cost = cost_in_shares(release.cost, source.charge, vault.remaining)
        del vault
        tables = release.tables
    rows = {name: table.num_rows for name, table in tables.items()}
    files = _write_tables(release, rows, target, given)
    for note in release.notes:
        print_message(f"Note: {note}.")
    value = {"out": str(given.out), "files": [path.name for path in files], "rows": rows, **release.statement()}
    result(value, _text(release, cost), as_json=given.as_json)


def _write_tables(
    release: LinkedRelease, rows: Mapping[str, int], target: Path, given: LinkedOptions
) -> Sequence[Path]:
    """Write the released tables, their model and their page, and return the files of the tables."""
    from sfumato.synthesize import save_linked
    from sfumato.synthesize.linked.linked_codebook import read_family_codebook

    files = release.write(given.out, file_format=given.file_format)
    for name, number in rows.items():
        print_message(f"Wrote {pluralize(number, 'row')} of {name}.")
    print_message(f"They are in {given.out}, and {given.out / 'release.json'} describes them.")
    if given.model is not None:
        save_linked(release, given.model, overwrite=given.overwrite)
        print_message(f"Wrote the model {given.model}.")
    if given.html is not None:
        book = read_family_codebook(target)
        write_page(target, book, given.html, accepted=release.accepted, overwrite=given.overwrite)
    return files


def _refuse_file(out: Path, otherwise: str = "") -> None:
    """Refuse a folder that is named like a file.

    Raises:
        InputError: it is named so.
    """
    if _FILES.fullmatch(out.suffix):
        raise InputError(f"{out} is named like a file; name a folder for several tables{otherwise}", culprit=out)


def sample_tables(model: Path, out: Path, *, copies: int | None, file_format: str, as_json: bool) -> None:
    """Draw linked tables again from a saved model into a new folder, or several."""
    from sfumato.synthesize import load_linked
    from sfumato.synthesize.codebook.codebook import printable
    from sfumato.synthesize.linked.linked_release import free_folder
    from sfumato.synthesize.synthetic import STATED_BY_A_FILE
    from sfumato.vault.release import checked_path

    checked_path(out)
    _refuse_file(out)
    folders = [out] if copies is None else [out.with_name(f"{out.name}-{number}") for number in range(1, copies + 1)]
    for folder in folders:
        free_folder(folder, file_format)
    refuse_clashes(folders, inputs=[model], overwrite=True)
    release = load_linked(model)
    rows = []
    for folder in folders:
        with working("Sampling"):
            drawn = release.redrawn()
            rows.append({name: table.num_rows for name, table in drawn.tables.items()})
        drawn.write(folder, file_format=file_format)
        for name, many in rows[-1].items():
            print_message(f"Wrote {pluralize(many, 'row')} of {name} to {folder}.")
    if copies is not None:
        print_message(NO_COMBINING)
    text = f"Guarantee: {printable(release.guarantee)}\n{STATED_BY_A_FILE}\nCost: nothing"
    written: dict[str, object] = {"out": str(out)}
    if copies is not None:
        written = {"copies": [str(folder) for folder in folders], "note": NO_COMBINING}
    value = {"rows": rows[0] if copies is None else rows, "guarantee": release.guarantee, "trust": STATED_BY_A_FILE}
    result({**written, **value}, text, as_json=as_json)


def _children(schema: Schema, given: LinkedOptions) -> list[ChildTable]:
    from sfumato.domain.linked_domain import link_tables

    children = {child.table.name: child for child in link_tables(schema).children}
    for name, text in _by_table(given.order or (), "--order", children).items():
        falling = text.endswith(_FALLING)
        children[name] = replace(children[name], order=text.removesuffix(_FALLING), falling=falling)
    for name, text in _by_table(given.most or (), "--most", children).items():
        if not text.isdecimal():
            raise InputError(f"--most takes TABLE=ROWS, not {name}={text}", culprit=text)
        if int(text) > (bound := schema.bounds(name).rows):
            raise InputError(f"--most keeps at most the {bound} rows of {name} that the schema bounds, not {text}")
        children[name] = replace(children[name], most=int(text))
    for name, end in _ends(given.final or (), children).items():
        children[name] = replace(children[name], final=end)
    memory = given.memory or ()
    of_all = [text for text in memory if text.isdecimal()]
    if len(of_all) > 1:
        raise InputError("--memory is said twice of all tables; say TABLE=ROWS of one", culprit=memory)
    of_each = dict.fromkeys(children, of_all[0] if of_all else "1")
    of_each |= _by_table([text for text in memory if not text.isdecimal()], "--memory", children)
    for name, text in of_each.items():
        if text not in ("1", "2"):
            raise InputError(f"--memory looks 1 or 2 rows back, not {text}", culprit=text)
        children[name] = replace(children[name], memory=int(text))
    return list(children.values())


def _ends(texts: Sequence[str], known: Mapping[str, ChildTable]) -> dict[str, tuple[str, str]]:
    """Return the column and the value that end each table.  Names may have a dot or an equals sign."""
    ends: dict[str, tuple[str, str]] = {}
    for text in texts:
        fitting = {
            (name, each.name): text.removeprefix(f"{name}.{each.name}=")
            for name, child in known.items()
            for each in child.plain
            if text.startswith(f"{name}.{each.name}=")
        }
        if not fitting:
            columns = ", ".join(f"{name}.{each.name}" for name, child in known.items() for each in child.plain)
            raise InputError(f"--final takes TABLE.COLUMN=VALUE of {columns}, not {text!r}", culprit=text)
        (name, column), value = max(fitting.items(), key=lambda each: len(each[0][0]) + len(each[0][1]))
        if name in ends:
            raise InputError(f"--final names two ends of {name}; a table has one", culprit=text)
        ends[name] = column, value
    return ends


def _by_table(texts: Sequence[str], option: str, known: Mapping[str, ChildTable]) -> dict[str, str]:
    values = {}
    for text in texts:
        name, mark, value = text.partition("=")
        if not mark or not value:
            raise InputError(
                f"{option} takes TABLE=VALUE, such as {next(iter(known), 'visits')}=..., not {text!r}", culprit=text
            )
        if name not in known:
            raise InputError(
                f"{option}: {name!r} is no child table here; the child tables are {', '.join(known)}", culprit=name
            )
        if name in values:
            raise InputError(f"{option} is said twice of {name}", culprit=name)
        values[name] = value
    return values


def _owner(related: LinkedTables, child: ChildTable) -> str:
    """Return the unit whose rows in a child table are counted."""
    above = related.parent_of(child)
    if above is None:
        return "a unit"
    return f"a row of {above.table.name} and {related.most_rows(child)} of a unit"


def _text(release: LinkedRelease, cost: str) -> str:
    from sfumato.ledger.entry import method_title

    children = "".join(
        f"\n  {child.table.name}: {'the first' if child.order else 'at most'} {child.most} of "
        f"{_owner(release.linked, child)}, "
        + (f"by {child.order}{', falling' if child.falling else ''}" if child.order else "in no order")
        + (f", none after {child.final[0]} = {child.final[1]}" if child.final else "")
        for child in release.linked.children
    )
    method = method_title(release.provenance["method"])
    errors = error_lines(release.expected_error)
    return f"Method: {method}{children}\nGuarantee: {release.guarantee}\nCost: {cost}\nExpected error:\n{errors}"


_MOST_SHOWN = 100  # lines of a table of a codebook


def show(
    file: Annotated[
        Path,
        typer.Argument(
            help="Synthetic file that 'sfumato synthesize' wrote, .parquet or .arrow, or a folder of linked tables."
        ),
    ],
    html: Annotated[Path | None, typer.Option(help="Also write the codebook as a page.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Also write the codebook as Markdown.")] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a synthetic file holds: guarantee, columns, errors, uses.

    Example: sfumato show synthetic.parquet --html synthetic.html

    The facts come from the codebook in the file. For a folder of linked tables, they come from its release.json.
    """
    show_release = _describe_tables if file.is_dir() else _describe_rows
    show_release(file, html=html, markdown=markdown, overwrite=overwrite, as_json=as_json)


def _acceptance_in(file: Path) -> Acceptance | None:
    """Return the acceptance of the domain in a file of rows; None if the file has none."""
    from sfumato.synthesize.synthetic import read_release

    try:
        return read_release(file).model.domain.accepted_by
    except InputError:
        return None


def _describe_rows(file: Path, *, html: Path | None, markdown: Path | None, overwrite: bool, as_json: bool) -> None:
    """Print the codebook of a file of rows."""
    from sfumato.synthesize.codebook.codebook import read_codebook
    from sfumato.synthesize.synthetic import STATED_BY_A_FILE
    from sfumato.vault.release import save_text

    if html is not None:
        require("plots", "the page of a codebook")
    refuse_clashes([html, markdown], inputs=[file], overwrite=overwrite)
    book = read_codebook(file)
    if markdown is not None:
        save_text(markdown, book.to_markdown(), overwrite=overwrite)
        print_message(f"Wrote the codebook {markdown}.")
    if html is not None:
        from sfumato.report.page import render
        from sfumato.report.release_page import release_page

        page = release_page(f"Synthetic table {file.name}", book, accepted=_acceptance_in(file))
        save_text(html, render(page), overwrite=overwrite)
        print_message(f"Wrote the page {html}.")
    print_message(STATED_BY_A_FILE)
    if book.measured:
        print_message(f"For one question with an interval: sfumato interval {file} SELECT")
    result(book.to_json(), _codebook_text(book), as_json=as_json)


def _codebook_text(book: Codebook) -> str:
    """Return a codebook as text, without its single values and without control characters."""
    from sfumato.synthesize.codebook.codebook import COLUMNS_TEXT, PAIRS_TEXT, TABLES_TEXT, facts, pair_title, printable

    def lines(rows: Iterable[Mapping[str, object]]) -> str:
        every = [{name: printable(v) if isinstance(v, str) else v for name, v in row.items()} for row in rows]
        more = f"\n... and {len(every) - _MOST_SHOWN:,} more" if len(every) > _MOST_SHOWN else ""
        return columns(every[:_MOST_SHOWN]) + more

    paragraphs = [printable(book.notice), *(f"{printable(name)}: {printable(str(fact))}" for name, fact in facts(book))]
    paragraphs += ["", "Good for:", *(f"  {printable(each)}" for each in book.good_for)]
    paragraphs += ["", "Not good for:", *(f"  {printable(each)}" for each in book.not_for)]
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
            "is": "measured" if pair.measured else "modeled",
            "strength": pair.strength,
            "cell off by": pair.worst,
            "single value off by": pair.worst_of_values,
            "misplaced": pair.share,
        }
        for pair in book.pairs
    ]
    paragraphs += ["", COLUMNS_TEXT, lines(held), "", TABLES_TEXT, lines(tables), "", PAIRS_TEXT, lines(pairs)]
    if book.pairs_left_out:
        paragraphs.append(f"Not listed: {pluralize(book.pairs_left_out, 'pair')}")
    return "\n".join([*paragraphs, "", "Every value with its error: --json, --markdown FILE or --html FILE."])


def _describe_tables(folder: Path, *, html: Path | None, markdown: Path | None, overwrite: bool, as_json: bool) -> None:
    """Print the codebook of a folder of linked tables."""
    from sfumato.synthesize.linked.linked_codebook import STATEMENT, family_lines, read_family_codebook
    from sfumato.synthesize.synthetic import STATED_BY_A_FILE
    from sfumato.vault.release import save_text

    if html is not None:
        require("plots", "the page of a codebook")
    refuse_clashes([html, markdown], inputs=[folder / STATEMENT], overwrite=overwrite)
    book = read_family_codebook(folder)
    if markdown is not None:
        save_text(markdown, "\n".join(family_lines(book)) + "\n", overwrite=overwrite)
        print_message(f"Wrote the codebook {markdown}.")
    if html is not None:
        write_page(folder, book, html, overwrite=overwrite)
    print_message(STATED_BY_A_FILE)
    result(book, _tables_text(book), as_json=as_json)


def write_page(
    folder: Path, book: Mapping[str, Any], html: Path, *, overwrite: bool, accepted: Acceptance | None = None
) -> None:
    """Write the codebook of the tables in a folder as a page."""
    from sfumato.report.linked_tables_page import linked_release_page
    from sfumato.report.page import render
    from sfumato.vault.release import save_text

    page = linked_release_page(f"Synthetic tables {folder.name}", book, accepted=accepted)
    save_text(html, render(page), overwrite=overwrite)
    print_message(f"Wrote the page {html}.")


def _tables_text(book: Mapping[str, Any]) -> str:
    """Return the codebook of linked tables as text without control characters."""
    from sfumato.synthesize.codebook.codebook import printable
    from sfumato.synthesize.linked.linked_codebook import (
        UNITS_TEXT,
        family_column_rows,
        family_facts,
        family_tie_rows,
    )

    def lines(rows: list[dict[str, Any]]) -> str:
        return columns([{name: printable(v) if isinstance(v, str) else v for name, v in row.items()} for row in rows])

    paragraphs = [
        printable(str(book["notice"])),
        *(f"{printable(name)}: {printable(fact)}" for name, fact in family_facts(book)),
    ]
    paragraphs += [f"Note: {printable(str(note))}" for note in book["notes"]]
    paragraphs += ["", UNITS_TEXT]
    for part in book["parts"]:
        paragraphs += [
            "",
            f"{printable(str(part['name']))}: {printable(str(part['says']))}",
            lines(family_column_rows(part)),
        ]
        if part["ties"]:
            paragraphs += ["", lines(family_tie_rows(part))]
    return "\n".join([*paragraphs, "", "Every value with its error: --json or --html FILE."])
