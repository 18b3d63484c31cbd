"""``sfumato schema``: describe several tables about the same people before anything is released from them."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.app.cli.options import (
    ConfirmOption,
    JsonOption,
    OverwriteOption,
)
from sfumato.app.cli.output import (
    columns,
    exact_result,
    print_message,
    refuse_clashes,
    result,
    working,
)
from sfumato.errors import InputError, pluralize
from sfumato.extras import require

if TYPE_CHECKING:
    from sfumato.description.schema_fit import CutRows
    from sfumato.domain.table_schema import Schema, SchemaTable
    from sfumato.engine.views.joined import JoinedTables

app = typer.Typer(no_args_is_help=True, help="Describe several tables before anything is released from them.")

SchemaPath = Annotated[Path, typer.Argument(help="Schema, a YAML file.")]
TablesOption = Annotated[
    str | None, typer.Option("--tables", metavar="TABLES", help="Folder of the tables, or the URL of their database.")
]

ViewsOption = Annotated[
    list[Path] | None,
    typer.Option("--view", help="With --tables: also count the rows of this view beyond its bounds. Repeatable."),
]


@app.command("draft")
def draft_tables(
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="TABLES", help="Folder of CSV or Parquet files, several files, or the URL of a database."
        ),
    ],
    unit: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column that identifies people. Default: guessed from the names."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the schema. Default: the name of the folder or database.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write the draft. Default: standard output.")] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Draft a schema from several tables: keys, owners of rows, references, types.

    Example: sfumato schema draft hospital --unit patient --out hospital.yaml

    The draft holds facts of the protected tables. Replace them by public facts, then accept the draft. Until then,
    every release refuses it. You also decide how many rows of a person are kept, and which tables are public.
    """
    from sfumato.description.findings import confirm_option
    from sfumato.description.tables_draft import describe_tables
    from sfumato.engine.table_files import redacted_source

    refuse_clashes([out], inputs=places, overwrite=overwrite)
    with working(f"Reading {', '.join(map(redacted_source, places))}"):
        drafted = describe_tables(places, name=name, unit=unit)
    for detail in drafted.notes:
        print_message(f"{detail}.")
    if out is None:
        typer.echo(drafted.text(), nl=False)
        return
    drafted.save(out, overwrite=overwrite)
    print_message(
        f"Wrote the draft {out}. Edit it to what is publicly known, say how many rows of one person to keep of each "
        f"private table (rows: N), then accept it: sfumato schema accept {out} --by NAME"
        f"{confirm_option(drafted.findings)}"
    )


@app.command("show")
def show_schema(
    path: SchemaPath,
    html: Annotated[Path | None, typer.Option(help="Also write a page with a picture of the schema.")] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show a schema: tables, owners of their rows, and bounds per person.

    Example: sfumato schema show hospital.yaml --html hospital.html
    """
    from sfumato.domain.table_schema import load_schema
    from sfumato.report.linked_tables_page import schema_page, schema_rows
    from sfumato.vault.release import save_text

    if html is not None:
        require("plots", "the page of a schema")
    refuse_clashes([html], inputs=[path], overwrite=overwrite)
    schema = load_schema(path)
    if html is not None:
        from sfumato.report.page import render

        save_text(html, render(schema_page(schema, f"Schema {schema.name}")), overwrite=overwrite)
        print_message(f"Wrote the page {html}.")
    unit_text = f"Unit: one {schema.id} of {schema.name}, in all tables together\n{_state(schema)[0].upper()}"
    text = f"{columns(schema_rows(schema))}\n\n{unit_text}{_state(schema)[1:]}."
    result(schema.describe(), text, as_json=as_json)


@app.command("check")
def check_schema(
    path: SchemaPath,
    tables: TablesOption = None,
    view: ViewsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check a schema, and how the values of tables fit it.

    Example: sfumato schema check hospital.yaml --tables hospital

    With --tables, keys are checked, and rows beyond the bounds are counted. The counts are only for the owner.
    """
    from sfumato.domain.table_schema import load_schema
    from sfumato.query.statements.derived_columns import check_derived

    if tables is None and view:
        raise InputError("what the bounds of a view cut is counted in the tables: name them by --tables")
    schema = load_schema(path)
    check_derived(schema)
    private = sum(not table.public for table in schema)
    text = (
        f"{path} is a schema of {pluralize(len(schema.tables), 'table')}, {private} of them private, about one "
        f"{schema.id} of {schema.name}; {_state(schema)}."
    )
    unbounded = [table.name for table in schema if not table.public and not _bounded(schema, table)]
    if unbounded:
        text += (
            f"\n\nStill to be said of {', '.join(unbounded)}: how many rows of one {schema.id} to keep (rows: N), a "
            "number that is not taken from the data."
        )
    value: dict[str, Any] = {
        "schema": schema.name,
        "unit": schema.id,
        "tables": [table.name for table in schema],
        "draft": schema.draft,
        "rows_to_say": unbounded,
        "accepted": None if schema.acceptance is None else schema.acceptance.describe(),
        "changed": schema.changed,
        "hash": schema.hash,
    }
    if tables is None:
        result(value, text, as_json=as_json)
    else:
        fit, fit_text = _fit(schema, tables, view or [])
        exact_result(value | fit, f"{text}\n\n{fit_text}", as_json=as_json)


def _fit(schema: Schema, tables: str, views: list[Path]) -> tuple[dict[str, Any], str]:
    """Return how the values of tables fit their schema, and what its bounds cut, as JSON and as text."""
    from sfumato.description.schema_fit import schema_fit
    from sfumato.engine.table_files import redacted_source
    from sfumato.engine.views.joined import open_tables

    with working(f"Reading {redacted_source(tables)}"):
        opened = open_tables(schema, tables)  # keys first, as counts of what does not fit together say little
        fit = schema_fit(schema, tables)
        cut = _cut(schema, opened, views)
    lines = [
        {"table": name, **asdict(each), "then": attribute.unknown.value}
        for name, of_table in fit.items()
        for each, attribute in zip(of_table, schema[name].attributes, strict=True)
    ]
    shares = [{"view of": each.view, "rows": each.rows, "cut": each.cut, "of units": each.units} for each in cut]
    text = (
        f"Keys name one row each.\n\n{columns(lines)}\n\nWhat the bounds on the rows of one {schema.id} leave "
        f"out:\n{columns(shares)}\nAnswers and intervals do not cover these rows."
    )
    return {"fit": lines, "cut": [asdict(each) for each in cut]}, text


def _cut(schema: Schema, opened: JoinedTables, views: list[Path]) -> list[CutRows]:
    """Count the rows that bounds cut of views and of each private table with a bound."""
    from sfumato.app.cli.options import view_text
    from sfumato.description.schema_fit import cut_rows
    from sfumato.query.statements.table_statement import parse_view

    bounded = [table.name for table in schema if table.attributes and not table.public and _bounded(schema, table)]
    statements = {name: f'SELECT * FROM "{name}"' for name in bounded} | {str(path): view_text(path) for path in views}  # noqa: S608 - read by our parser, and by no database
    bounded_views = {name: parse_view(text, schema) for name, text in statements.items()}
    return [cut_rows(opened, view, name) for name, view in bounded_views.items()]


def _bounded(schema: Schema, table: SchemaTable) -> bool:
    """Return whether the rows of one unit in a private table have a bound."""
    return table.rows is not None or table.name == schema.units


@app.command("accept")
def accept_file(
    path: SchemaPath,
    by: Annotated[str, typer.Option(metavar="NAME", help="Your name. The file records it.")],
    tables: Annotated[
        str | None,
        typer.Option(
            "--tables", metavar="TABLES", help="Also check the keys, and search for facts taken from these tables."
        ),
    ] = None,
    confirm: ConfirmOption = None,
    as_json: JsonOption = False,
) -> None:
    """Accept a schema unchanged, and confirm its findings.

    Example: sfumato schema accept hospital.yaml --by "Ann Lee" --tables hospital --confirm bounds

    Confirm each kind of finding by name, or edit the file. The file then states who accepted the schema, when, what
    they confirmed, and if the draft was edited. After an edit, accept the file again.
    """
    from sfumato.description.findings import confirmed_kinds, refuse_unconfirmed
    from sfumato.description.schema_fit import schema_findings
    from sfumato.description.written_values import number_codes_note
    from sfumato.domain.table_schema import accept_schema, load_schema
    from sfumato.query.statements.derived_columns import check_derived
    from sfumato.vault.release import rewrite_text

    kinds = confirmed_kinds(confirm or [])
    accept_schema(path, by=by)  # refuses what a release cannot do without
    schema = load_schema(path)
    check_derived(replace(schema, draft=False, acceptance=None))
    findings = schema_findings(schema, tables)
    confirmed = refuse_unconfirmed(findings, kinds)
    document, acceptance = accept_schema(path, by=by, confirmed=confirmed, described=schema)
    rewrite_text(path, document)
    value = acceptance.describe() | {"risks": [str(finding) for finding in findings]}
    text = "".join(f"Confirmed {finding.kind}: {finding}.\n" for finding in findings)
    text += number_codes_note(
        replace(each, name=f"{table.name}.{each.name}") for table in schema.tables for each in table.attributes
    )
    if tables is None:
        text += "Without --tables, neither repeated keys nor facts that were taken from the data were looked for.\n"
    show_result = result if tables is None else exact_result
    show_result(value, f"{text}{path} is accepted by {acceptance.by}, {acceptance.at}.", as_json=as_json)


def _state(schema: Schema) -> str:
    """Return the state of a schema: a draft, accepted or changed."""
    if schema.draft:
        return "a draft: releases refuse it"
    if schema.acceptance is None:
        return "accepted by nobody"
    if schema.changed:
        return f"changed after {schema.acceptance.by} accepted it: releases refuse it"
    return f"accepted by {schema.acceptance.by}"
