"""``sfumato synthesize``, ``sample`` and ``describe``: release a synthetic table, draw more rows of its saved model,
and say what a file of synthetic rows is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.app.cli.options import (
    AnalystOption,
    CreateOption,
    DatasetOption,
    DeltaOption,
    EpsilonOption,
    JsonOption,
    LedgerOption,
    LimitOption,
    NewVersionOption,
    OneDomainOption,
    OverwriteOption,
    PerOption,
    RhoOption,
    SchemaOption,
    Source,
    TableArgument,
    UnitRowsOption,
    ViewOption,
    domain_or_schema,
    read_view,
)
from sfumato.app.cli.output import (
    columns,
    refuse_clashes,
    remark,
    result,
    working,
)
from sfumato.app.cli.synthesize_tables import (
    NO_COMBINING,
    TablesToMake,
    is_folder,
    refuse_of_one_table,
    sample_tables,
    synthesize_tables,
)
from sfumato.errors import InputError, counted
from sfumato.extras import require

if TYPE_CHECKING:
    from sfumato.domain import Domain
    from sfumato.synthesize.codebook.codebook import Codebook
    from sfumato.synthesize.synthetic import Synthetic

_MOST_LISTED = 20
_MOST_SHOWN = 100  # lines of a table of a codebook

SyntheticRowsOption = Annotated[Path, typer.Option("--out", help="Where to write the rows: .parquet, .csv or .arrow.")]
AUTO = "auto"


def _list_methods(asked: bool) -> None:
    if asked:
        from sfumato.synthesize.auto import METHODS

        rows = [
            {"method": each.name, "measures": each.summary, "takes": " ".join(f"--{o}" for o in each.listed_options())}
            for each in METHODS
        ]
        typer.echo(columns(rows))
        raise typer.Exit


MethodOption = Annotated[
    str, typer.Option("--method", help="Method; auto takes the one of least noise, --methods lists all.")
]
MethodsOption = Annotated[
    bool,
    typer.Option(
        "--methods", callback=_list_methods, is_eager=True, help="List the methods and their options, and stop."
    ),
]


def synthesize(
    table: TableArgument,
    out: SyntheticRowsOption,
    domain: OneDomainOption = None,
    schema: SchemaOption = None,
    view: ViewOption = None,
    unit_rows: UnitRowsOption = None,
    per: PerOption = None,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    rho: RhoOption = None,
    method: MethodOption = AUTO,
    methods: MethodsOption = False,  # noqa: ARG001  (its callback stops)
    marginals: Annotated[
        list[str] | None,
        typer.Option(help="Attributes that belong together, comma-separated; several times for several marginals."),
    ] = None,
    way: Annotated[
        int | None, typer.Option(min=1, help="Instead of --marginals: all marginals of so many attributes; 2 without.")
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of rows, if it is public; without, it comes from what is measured, of which graphical methods "
            "spend half a percent on a rough count, and mwem a twentieth on a better one.",
        ),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Queries that mwem measures; 30, or all if fewer, without.")
    ] = None,
    zeros: Annotated[
        Path | None, typer.Option(help="Impossible combinations, a YAML file, for auto and graphical methods.")
    ] = None,
    reuse: Annotated[
        bool, typer.Option("--reuse/--no-reuse", help="Let aim use what was released of the same table before, or not.")
    ] = True,
    bound_pairs: Annotated[
        bool,
        typer.Option(
            "--bound-pairs",
            help="Let aim also measure, for 3 % of the loss, how far each pair is from the table, for bounds of what "
            "it left to its model.",
        ),
    ] = False,
    order: Annotated[
        list[str] | None,
        typer.Option(
            help="TABLE=COLUMN or TABLE=COLUMN:falling: how the rows of a person follow each other; by the first date "
            "without. With --schema and a folder as --out."
        ),
    ] = None,
    most: Annotated[
        list[str] | None,
        typer.Option(
            help="TABLE=ROWS: rows of a person that are kept, the first in order; as the schema says without. With "
            "--schema and a folder as --out."
        ),
    ] = None,
    memory: Annotated[
        list[str] | None,
        typer.Option(
            help="Rows before it that a row is drawn by, 1 or 2, of all tables or TABLE=ROWS of one; 1 without. With a "
            "folder."
        ),
    ] = None,
    final: Annotated[
        list[str] | None,
        typer.Option(
            help="TABLE.COLUMN=VALUE: after such a row a person has no further one in that table, as after a death; "
            "with a folder."
        ),
    ] = None,
    file_format: Annotated[str, typer.Option("--format", help="Of the files in a folder: parquet or csv.")] = "parquet",
    html: Annotated[Path | None, typer.Option(help="Also write a report page.")] = None,
    model: Annotated[Path | None, typer.Option(help="Also save the model, for 'sfumato sample'.")] = None,
    ledger: LedgerOption = None,
    dataset: DatasetOption = "default",
    limit: LimitOption = None,
    create: CreateOption = False,
    new_version: NewVersionOption = False,
    analyst: AnalystOption = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Release a synthetic table under differential privacy.

    With --schema and a folder as --out: a table of people, and tables of what each of them has, that belong together.
    """
    from sfumato.app.api.questions import LossFields, filled
    from sfumato.app.api.releases import SynthesizeRequest
    from sfumato.synthesize import NoisyTotal, PublicTotal, drowned_totals
    from sfumato.synthesize.codebook.codebook import codebook_path
    from sfumato.synthesize.product import refuse_large
    from sfumato.vault.release import save_text, writable

    spent = filled(LossFields, {"epsilon": epsilon, "delta": delta, "rho": rho})
    loss = spent.loss()
    if schema is not None and view is None and is_folder(out):
        refuse_of_one_table(
            {"domain": domain, "unit_rows": unit_rows, "per": per, "marginals": marginals, "way": way, "rounds": rounds}
            | {"zeros": zeros, "bound_pairs": bound_pairs, "no_reuse": not reuse}
            | {"method": method != AUTO}
        )
        synthesize_tables(
            Source(
                table=table,
                domain=schema,
                ledger=ledger,
                dataset=dataset,
                limit=limit,
                create=create,
                new_version=new_version,
                analyst=analyst,
                charge=loss.charge,
            ),
            TablesToMake(
                out=out,
                file_format=file_format,
                orders=order or (),
                most=most or (),
                memory=memory or (),
                final=final or (),
                units=rows,
                html=html,
                model=model,
                overwrite=overwrite,
            ),
            loss,
            as_json=as_json,
        )
        return
    if order or most or memory or final or file_format != "parquet":
        raise InputError("--order, --most, --memory, --final and --format are for --schema with a folder as --out")
    if html is not None:
        require("plots", "--html")
    cliques = [[name.strip() for name in clique.split(",")] for clique in marginals or ()]
    asked = {"method": method, "loss": spent, "marginals": cliques, "way": way, "rows": rows, "rounds": rounds}
    request = filled(SynthesizeRequest, asked | {"zeros": zeros, "reuse": reuse, "bound_pairs": bound_pairs})
    request.refuse_unused()
    writable(out, overwrite=overwrite)
    source = Source(
        table=table,
        domain=domain_or_schema(domain, schema),
        ledger=ledger,
        dataset=dataset,
        limit=limit,
        create=create,
        new_version=new_version,
        analyst=analyst,
        view=read_view(schema, view, rows=unit_rows, per=per),
        charge=loss.charge,
    )
    outputs = [out, codebook_path(out), html, model]
    refuse_clashes(outputs, inputs=[*source.files(), zeros, view], overwrite=overwrite)
    vault = source.vault(first=loss)
    if rows is not None:
        refuse_large(rows, len(vault.domain))
    for warning in drowned_totals(vault.domain, loss, NoisyTotal() if rows is None else PublicTotal(rows)):
        remark(f"Before it is charged: {warning}.")
    for advice in request.without_delta(vault.domain):
        remark(f"Before it is charged: {advice}.")
    with working("Measuring and fitting"):
        release = request.release(vault)
        del vault  # and the tables that it keeps: rows are drawn without them
        sample = release.rows
    sample.write(out, overwrite=overwrite)
    save_text(codebook_path(out), release.codebook.to_markdown(), overwrite=overwrite)
    if model is not None:
        from sfumato.synthesize.synthetic import save

        save(release, model, overwrite=overwrite)
        remark(f"Wrote the model {model}.")
    if html is not None:
        from sfumato.report.page import render
        from sfumato.report.release_page import release_page

        save_text(html, render(release_page(f"Synthetic table {out.name}", release.codebook)), overwrite=overwrite)
        remark(f"Wrote the page {html}.")
    remark(f"Wrote {counted(len(sample), 'row')} to {out}, and what they are to {codebook_path(out)}.")
    if not len(sample):
        remark(
            "The noisy number of rows came to 0: the table is small beside its noise at this loss, or few of its rows "
            "fit the domain, which 'sfumato domain check DOMAIN --table TABLE' shows to the owner only."
        )
    said = {"out": str(out), "rows": len(sample), **release.statement(), "codebook": release.codebook.to_json()}
    result(said, _told(release), as_json=as_json)


def _told(release: Synthetic) -> str:
    chosen = "".join(f"\n  {option}" for option in release.provenance.get("chosen_among", ()))
    errors = "".join(f"\n  {name}: {value:.4g}" for name, value in release.expected_error.items())
    return (
        f"Method: {release.provenance['method']}"
        + (f"\nChosen without the data, among:{chosen}" if chosen else "")
        + f"\nGuarantee: {release.guarantee}\nCost: {release.cost}\nExpected error:{errors}\n"
        + _errors(release.codebook)
    )


def _errors(book: Codebook) -> str:
    """The worst of the stated errors of a file, and what has none."""
    from sfumato.synthesize.codebook.codebook import pair_title, printable

    known = [column for column in book.columns if column.worst is not None]
    pairs = [pair for pair in book.pairs if pair.worst_of_values is not None]
    lines = ["Error of the rows written, with 95 %, the worst:"]
    if known:
        worst = max(known, key=lambda column: column.worst or 0)
        lines.append(
            f"  single values: {worst.worst:,} of {counted(book.table_rows, 'row')}, in {printable(worst.name)}"
        )
    if pairs:
        one = max(pairs, key=lambda pair: pair.worst_of_values or 0)
        lines.append(
            f"  values of measured pairs: {counted(one.worst_of_values or 0, 'row')}, in {printable(pair_title(one))}"
        )
    modelled = [pair.misplaced for pair in book.pairs if not pair.measured]
    bounds = [share for share in modelled if share is not None]
    unknown, many = len(modelled) - len(bounds) + book.pairs_left_out, len(modelled) + book.pairs_left_out
    said = "their error is not known"
    if bounds:
        said = f"at most {100 * max(bounds):.1f} % of the rows would have to move to another cell of one"
        said += f", of {unknown:,} it is not known" if unknown else ""
    if many:
        lines.append(f"  {many:,} of {len(book.pairs) + book.pairs_left_out:,} pairs are modelled: {said}")
    return "\n".join(lines)


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
    if file.is_dir():
        from sfumato.app.cli.synthesize_tables import describe_tables

        describe_tables(file, html=html, markdown=markdown, overwrite=overwrite, as_json=as_json)
        return
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
    result(book.to_json(), _described(book), as_json=as_json)


def _described(book: Codebook) -> str:
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


def sample(
    model: Annotated[Path, typer.Argument(help="Model that 'sfumato synthesize --model' saved.")],
    out: SyntheticRowsOption,
    rows: Annotated[
        int | None,
        typer.Option(
            min=1, help="How many; without, as many as the release has, or with --given as many of them as it expects."
        ),
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option(
            help="Only rows with ATTRIBUTE=CELL, a label of 'sfumato domain show --cells'; several times for more. "
            "For graphical models, such as of aim."
        ),
    ] = None,
    copies: Annotated[
        int | None, typer.Option(min=1, max=100, help="So many files, NAME-1 and so on, each drawn by itself.")
    ] = None,
    file_format: Annotated[
        str, typer.Option("--format", help="Of the files in a folder of linked tables: parquet or csv.")
    ] = "parquet",
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Draw rows from a saved model: they cost nothing, and say nothing that the model does not.

    Of a model of linked tables: into a new folder, as many units as were released.
    """
    from sfumato.synthesize.codebook.codebook import codebook_path, printable
    from sfumato.synthesize.linked import is_of_linked_tables
    from sfumato.synthesize.synthetic import STATED_BY_A_FILE, load
    from sfumato.vault.release import named, save_text, writable

    if is_of_linked_tables(model):
        if rows is not None or given:
            raise InputError("--rows and --given are for models of one table; of linked tables all units are drawn")
        sample_tables(model, out, copies=copies, file_format=file_format, as_json=as_json)
        return
    release = load(model)
    if file_format != "parquet":
        raise InputError("--format is for models of linked tables; one table is written as the name of --out ends")
    named(out)
    files = [out] if copies is None else [out.with_stem(f"{out.stem}-{number}") for number in range(1, copies + 1)]
    for file in files:
        writable(file, overwrite=overwrite)
    refuse_clashes([*files, *map(codebook_path, files)], inputs=[model], overwrite=overwrite)
    drawing = _restricted(release, given) if given else release
    for file in files:
        with working("Sampling"):
            drawn, book = drawing.sample_with_codebook(rows)
        drawn.write(file, overwrite=overwrite)
        save_text(codebook_path(file), book.to_markdown(), overwrite=overwrite)
        remark(f"Wrote {counted(len(drawn), 'row')} to {file}, and what they are to {codebook_path(file)}.")
    if copies is not None:
        remark(NO_COMBINING)
    if not len(drawn):
        remark(
            "The model expects less than one such row"
            + (f" among its {release.model.total:,}" if given else "")
            + "; --rows draws as many as you ask for."
        )
    text = f"Guarantee: {printable(release.guarantee)}\n{STATED_BY_A_FILE}\nCost: nothing"
    written = {"out": str(out)} if copies is None else {"copies": [str(file) for file in files], "note": NO_COMBINING}
    said = {"rows": len(drawn), "guarantee": release.guarantee, "trust": STATED_BY_A_FILE}
    result({**written, **said}, text, as_json=as_json)


def _restricted(release: Synthetic, given: list[str]) -> Synthetic:
    from dataclasses import replace

    from sfumato.synthesize.graphical import Graphical

    if not isinstance(release.model, Graphical):
        raise InputError("--given needs a graphical model, such as of aim; sample and filter the rows of other models")
    codes: dict[str, list[int]] = {}
    for condition in given:
        name, separator, label = condition.partition("=")
        if not separator:
            raise InputError(f"--given takes ATTRIBUTE=CELL, not {condition!r}")
        codes.setdefault(name, []).append(_code(release.model.domain, name, label))
    return replace(release, model=release.model.given(codes))


def _code(domain: Domain, name: str, label: str) -> int:
    labels = domain[name].labels()
    if label not in labels:
        few = labels if len(labels) <= _MOST_LISTED else (*labels[: _MOST_LISTED // 2], "...", labels[-1])
        from sfumato.synthesize.codebook.codebook import printable

        raise InputError(f"{name} has no cell {label!r}; it has {len(labels)}: {printable(', '.join(few))}")
    return labels.index(label)
