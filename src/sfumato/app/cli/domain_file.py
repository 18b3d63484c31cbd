"""``sfumato domain``: describe a table before anything is released from it.  It also has the options of CSV files."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.app.cli.main import flat
from sfumato.app.cli.options import (
    ConfirmOption,
    JsonOption,
    OverwriteOption,
    TableArgument,
)
from sfumato.app.cli.output import (
    columns,
    exact_result,
    print_message,
    refuse_clashes,
    result,
    working,
)
from sfumato.errors import pluralize

if TYPE_CHECKING:
    from sfumato.domain import Attribute, Domain
    from sfumato.engine.csv_file import Written
    from sfumato.engine.port import ProtectedTable

_SECTION = "CSV files (default: detected)"

DelimiterOption = Annotated[
    str | None,
    typer.Option("--delimiter", metavar="TEXT", help="Text between the fields.", rich_help_panel=_SECTION),
]
DecimalOption = Annotated[
    str | None, typer.Option("--decimal", metavar="SIGN", help="Decimal sign, '.' or ','.", rich_help_panel=_SECTION)
]
ThousandsOption = Annotated[
    str | None,
    typer.Option("--thousands", metavar="SIGN", help="Sign between thousands; '' for none.", rich_help_panel=_SECTION),
]
EncodingOption = Annotated[
    str | None,
    typer.Option("--encoding", metavar="NAME", help="Character encoding, such as cp1252.", rich_help_panel=_SECTION),
]
TrimOption = Annotated[
    bool | None,
    typer.Option("--trim/--no-trim", help="Remove blanks around fields, or keep them.", rich_help_panel=_SECTION),
]


@dataclass(frozen=True, kw_only=True)
class CsvOptions:
    """The dialect of the CSV files of a command.  A field of None is detected."""

    delimiter: DelimiterOption = None
    decimal: DecimalOption = None
    thousands: ThousandsOption = None
    encoding: EncodingOption = None
    trim: TrimOption = None

    def declared(self) -> dict[str, Any]:
        """Return the fields of a format that the command states."""
        options = asdict(self) | {"delimiter": "\t" if self.delimiter == "\\t" else self.delimiter}
        return {name: each for name, each in options.items() if each is not None}

    def written(self, table: str) -> Written:
        """Detect the dialect of a CSV file, and describe what differs from the usual one.

        Raises:
            InputError, DomainError, TableError: as :func:`sfumato.engine.csv_file.how_written` says.
        """
        from sfumato.engine.csv_file import how_written

        return how_written(table, self.declared())

    def for_file(self, table: str) -> CsvOptions:
        """Return the options for another table: none if it is no CSV file."""
        from sfumato.engine.table_files import CSV_SUFFIXES

        return self if table.lower().endswith(CSV_SUFFIXES) else CsvOptions()

    def open(self, table: str) -> ProtectedTable:
        """Open a table without a domain, and report an unusual dialect of its CSV file."""
        from sfumato.engine.open import open_table
        from sfumato.engine.table_files import redacted_source

        dialect = self.written(table)
        for detail in dialect.notes:
            print_message(f"{redacted_source(table)}: {detail}.")
        return open_table(table, csv=dialect.format)


app = typer.Typer(no_args_is_help=True, help="Describe a table before anything is released from it.")

CellsOption = Annotated[str | None, typer.Option(metavar="COLUMN", help="List the values and bins of this column.")]
DomainPath = Annotated[Path, typer.Argument(help="Domain, a YAML file.")]


@app.command()
@flat
def draft(
    table: TableArgument,
    out: Annotated[Path | None, typer.Option(help="Where to write the draft. Default: standard output.")] = None,
    *,
    csv: CsvOptions,
    overwrite: OverwriteOption = False,
) -> None:
    """Draft a domain from the data, for you to edit and accept.

    Example: sfumato domain draft people.csv --out people.yaml

    The draft holds facts of the protected table. Replace them by public facts, then accept the draft. Until then, every
    release refuses it. The draft also states the dialect of a CSV file, and commands read the file accordingly.
    """
    from sfumato.description.draft import describe
    from sfumato.description.findings import confirm_option
    from sfumato.engine.table_files import redacted_source

    refuse_clashes([out], inputs=[table], overwrite=overwrite)
    with working(f"Reading {redacted_source(table)}"):
        drafted = describe(table, csv=csv.declared())
    for detail in drafted.csv_notes:
        print_message(f"{redacted_source(table)}: {detail}; the draft says so under 'csv'.")
    for note in drafted.notes():
        print_message(note)
    if out is None:
        typer.echo(drafted.text(), nl=False)
    else:
        drafted.save(out, overwrite=overwrite)
        print_message(
            f"Wrote the draft {out}. Edit it to what is publicly known, then accept it: "
            f"sfumato domain accept {out} --by NAME{confirm_option(drafted.findings)}"
        )


@app.command()
def accept(
    path: DomainPath,
    by: Annotated[
        str, typer.Option(metavar="NAME", help="Your name. The file and the journal of each release record it.")
    ],
    table: Annotated[str | None, typer.Option(help="Also search for facts that were taken from this table.")] = None,
    confirm: ConfirmOption = None,
    as_json: JsonOption = False,
) -> None:
    """Accept a domain unchanged, and confirm its findings.

    Example: sfumato domain accept people.yaml --by "Ann Lee" --table people.csv --confirm bounds,bins

    Confirm each kind of finding by name, or edit the file. The file and the journal of each release then state who
    accepted the domain, when, what they confirmed, and if the draft was edited. After an edit, accept the file again.
    """
    from sfumato.description.findings import confirmed_kinds, domain_findings, refuse_unconfirmed
    from sfumato.description.written_values import number_codes_note
    from sfumato.domain import load
    from sfumato.domain.document import accept as accepted
    from sfumato.domain.document import parse
    from sfumato.engine.open import open_table
    from sfumato.strict_documents import read_yaml
    from sfumato.vault.release import rewrite_text

    kinds = confirmed_kinds(confirm or [])
    described = load(path)
    findings = domain_findings(described, None if table is None else open_table(table, csv=described.csv))
    document = accepted(path, by=by, confirmed=refuse_unconfirmed(findings, kinds), described=described)
    rewrite_text(path, document)
    acceptance = parse(read_yaml(document), folder=path.parent).accepted_by
    assert acceptance is not None
    value = acceptance.describe() | {"risks": [str(finding) for finding in findings]}
    text = "".join(f"Confirmed {finding.kind}: {finding}.\n" for finding in findings) + number_codes_note(described)
    if table is None:
        text += "Without --table, columns were not checked for values that identify people.\n"
    show_result = result if table is None else exact_result
    show_result(value, f"{text}{path} is accepted by {acceptance.by}, {acceptance.at}.", as_json=as_json)


@app.command()
def check(
    path: DomainPath,
    table: Annotated[
        str | None, typer.Option(help="Also count how its values fit. The counts are only for the owner of the table.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check a domain file, and how the values of a table fit it.

    Example: sfumato domain check people.yaml --table people.csv
    """
    from sfumato.domain import load

    domain = load(path)
    who = domain.accepted_by
    state = "a draft: releases refuse it" if domain.draft else f"accepted by {'nobody' if who is None else who.by}"
    if not domain.draft and who is None and domain.acceptance is not None:
        state = f"changed after {domain.acceptance.by} accepted it: releases refuse it"
    value = {
        "attributes": len(domain),
        "cells": str(domain.size),
        "draft": domain.draft,
        "accepted": None if who is None else who.journal_entry(),
        "hash": domain.hash,
    }
    text = f"{path} is a domain of {pluralize(len(domain), 'attribute')}, {state}."
    if table is None:
        result(value, text, as_json=as_json)
    else:
        fit, fit_text = _fit(domain, table)
        exact_result(value | fit, f"{text}\n\n{fit_text}", as_json=as_json)


def _fit(domain: Domain, table: str) -> tuple[dict[str, Any], str]:
    """Return how the values of a table fit its domain, and what its bounds cut, as JSON and as text."""
    from sfumato.description.domain_fit import domain_fit, dropped_rows
    from sfumato.engine.open import open_table
    from sfumato.engine.table_files import redacted_source

    with working(f"Reading {redacted_source(table)}"):
        opened = open_table(table, csv=domain.csv)
        fit, cut = domain_fit(opened, domain), dropped_rows(opened, domain)
    lines = [asdict(each) | {"then": domain[each.attribute].unknown.value} for each in fit]
    if cut is None:
        return {"fit": lines}, columns(lines)
    share, unit = cut.dropped / max(cut.rows, 1), domain.unit
    text = (
        f"{columns(lines)}\n\nThe bound of {pluralize(unit.rows, 'row')} of one {unit.column}"
        f"{unit.by_groups}{',' if unit.per else ''} leaves out "
        f"{cut.dropped:,} of {pluralize(cut.rows, 'row')} ({share:.1%}), of {pluralize(cut.units, 'unit')}. "
        "Answers and intervals do not cover these rows. A larger bound leaves out fewer rows, and needs more noise."
    )
    if cut.without_id:
        text += f" Left out of everything, without a {unit.column}: {pluralize(cut.without_id, 'row')}."
    return {"fit": lines, "truncation": asdict(cut)}, text


def _reading(attribute: Attribute) -> str:
    """Return how the raw values of an attribute are read; empty if nothing is declared."""
    body = attribute.describe()
    parts = [part for part in ("missing", "format", "spellings") if part in body]
    words = (f"{part} {json.dumps(body[part], ensure_ascii=False)}" for part in parts)
    return f"Read in {attribute.name}: {', '.join(words)}" if parts else ""


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(help="Domain, a YAML file.")],
    new: Annotated[Path, typer.Argument(help="Another version of it.")],
    as_json: JsonOption = False,
) -> None:
    """Show the changes between two versions of a domain.

    Example: sfumato domain diff old.yaml new.yaml

    The output says what the changes mean for past releases.
    """
    from sfumato.description.domain_fit import domain_changes
    from sfumato.domain import load

    compared = domain_changes(load(old), load(new))
    lines = compared.changes or ("Nothing changed that releases depend on.",)
    result(asdict(compared), "\n".join([*lines, "", *compared.meaning]), as_json=as_json)


@app.command()
def show(
    path: DomainPath,
    cells: CellsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a domain: columns, their values or bins, and the privacy unit.

    Example: sfumato domain show people.yaml
    """
    from sfumato.domain import Integer, Real, load

    domain = load(path)
    if cells is not None:
        labels = domain[cells].labels()
        result({"attribute": cells, "cells": labels}, "\n".join(labels), as_json=as_json)
        return
    lines = [
        {
            "attribute": attribute.name,
            "type": type(attribute).__name__.lower(),
            "cells": attribute.size,
            "first": attribute.label(0),
            "last": attribute.label(attribute.declared - 1),
            "missing": "own cell" if attribute.nullable else "as unknown",
            "unknown": attribute.unknown.value,
        }
        for attribute in domain
    ]
    details = [f"{attribute.role.capitalize()}: {attribute.name}" for attribute in domain if attribute.role is not None]
    details += [
        f"Open last cell of {attribute.name}: rows of it are given {attribute.typical}"
        for attribute in domain
        if isinstance(attribute, Integer | Real) and attribute.typical is not None
    ]
    details += [
        f"Points of {attribute.name}, each with a cell of its own: {', '.join(map(str, attribute.points))}"
        for attribute in domain
        if isinstance(attribute, Real) and attribute.points
    ]
    details += [words for attribute in domain if (words := _reading(attribute))]
    text = "\n".join(
        [f"{columns(lines)}\n", f"Unit: {domain.unit}", f"Cells of the full table: {domain.size:,}", *details]
    )
    result(domain.describe(), text + ("\nThis is a draft." if domain.draft else ""), as_json=as_json)


@app.command()
def schema() -> None:
    """Print the JSON Schema of domain files, for editors.

    Example: sfumato domain schema > domain.schema.json
    """
    from sfumato.domain.document import schema as published

    result(published(), "", as_json=True)
