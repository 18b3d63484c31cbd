"""``sfumato synthesize`` and ``sample``: release a synthetic table, and draw more rows of its saved model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.app.cli.options import (
    JsonOption,
    LedgerOptions,
    LossOptions,
    OneDomainOption,
    OverwriteOption,
    Source,
    TableArgument,
    ViewOptions,
    domain_or_schema,
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
from sfumato.app.cli.synthesize_tables import (
    NO_COMBINING,
    LinkedFormatOption,
    LinkedOptions,
    is_folder,
    linked,
    refuse_of_one_table,
    sample_tables,
)
from sfumato.app.help_pages import HelpPage, help_page, missing_of_release
from sfumato.errors import InputError, pluralize
from sfumato.extras import require

if TYPE_CHECKING:
    from sfumato.app.api.questions import LossFields
    from sfumato.app.api.releases import SynthesizeRequest
    from sfumato.domain import Domain
    from sfumato.privacy.loss import Loss
    from sfumato.synthesize.codebook.codebook import Codebook
    from sfumato.synthesize.synthetic import Synthetic

_MOST_LISTED = 20

SyntheticRowsOption = Annotated[Path, typer.Option("--out", help="Where to write the rows: .parquet, .csv or .arrow.")]
AUTO = "auto"


def _list_methods(value: bool) -> None:
    if value:
        from sfumato.synthesize.auto import METHODS

        rows = [
            {"method": each.name, "measures": each.summary, "takes": " ".join(f"--{o}" for o in each.listed_options())}
            for each in METHODS
        ]
        typer.echo(columns(rows))
        raise typer.Exit


MethodOption = Annotated[
    str,
    typer.Option(
        "--method",
        metavar="METHOD",
        help="Method of synthesis. 'auto' takes the one with the smallest expected error. --methods lists all.",
    ),
]
MethodsOption = Annotated[
    bool,
    typer.Option(
        "--methods", callback=_list_methods, is_eager=True, help="List the methods and their options, and stop."
    ),
]


FormerOption = Annotated[list[str] | None, typer.Option(hidden=True)]
"""An option that ``synthesize linked`` has."""


@dataclass(frozen=True, kw_only=True)
class SynthesizeOptions:
    """The options of ``sfumato synthesize``."""

    table: TableArgument
    out: Annotated[Path | None, typer.Option(help="Where to write the rows: .parquet, .csv or .arrow. [required]")] = (
        None
    )
    domain: OneDomainOption = None
    view: ViewOptions
    loss: LossOptions
    method: MethodOption = AUTO
    methods: MethodsOption = False  # its callback stops
    marginals: Annotated[
        list[str] | None,
        typer.Option(
            metavar="A,B[@W]", help="Columns to keep accurate together; weight W. Repeatable. Default: all pairs."
        ),
    ] = None
    way: Annotated[
        int | None, typer.Option(min=1, help="Keep all marginals of N columns accurate, and --marginals. Default: 2.")
    ] = None
    rows: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of rows, if it is public. Default: measured, with a small part of the loss.",
        ),
    ] = None
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Queries that mwem measures. Default: 30, or all if there are fewer.")
    ] = None
    zeros: Annotated[
        Path | None,
        typer.Option(help="YAML file of impossible combinations, for auto and graphical methods."),
    ] = None
    reuse: Annotated[
        bool, typer.Option("--reuse/--no-reuse", help="Let batched use earlier releases of the same table, or not.")
    ] = True
    bound_pairs: Annotated[
        bool,
        typer.Option(
            "--bound-pairs",
            help="Let batched spend 3 % of the loss on error bounds for pairs of columns that it only models.",
        ),
    ] = False
    order: FormerOption = None
    most: FormerOption = None
    memory: FormerOption = None
    final: FormerOption = None
    file_format: Annotated[str, typer.Option("--format", hidden=True)] = "parquet"
    preview: Annotated[
        bool, typer.Option("--preview", help="Print the expected errors by column and pair, and stop. Free.")
    ] = False
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Release although noise hides the pairs of a table of so few --rows.")
    ] = False
    html: Annotated[Path | None, typer.Option(help="Also write the release report.")] = None
    model: Annotated[Path | None, typer.Option(help="Also save the model, for 'sfumato sample'.")] = None
    journal: LedgerOptions
    overwrite: OverwriteOption = False
    as_json: JsonOption = False

    def file(self) -> Path:
        """Return the file to write.

        Raises:
            InputError: it is not named.
        """
        if self.out is None:
            raise InputError("name the file of the rows by --out, or ask for the expected errors by --preview")
        return self.out

    def source(self, loss: Loss) -> Source:
        """Return the table and its ledger."""
        described = domain_or_schema(self.domain, self.view.schema, self.table)
        return Source(
            table=self.table, domain=described, journal=self.journal, view=self.view.read(), charge=loss.charge
        )

    def linked(self, schema: Path) -> LinkedOptions:
        """Return the options of ``synthesize linked``.  Its former spelling is a folder as ``--out``.

        Raises:
            InputError: an option is for one synthetic table.
        """
        single = {
            "domain": self.domain,
            "unit_rows": self.view.unit_rows,
            "per": self.view.per,
            "marginals": self.marginals,
            "way": self.way,
            "rounds": self.rounds,
            "zeros": self.zeros,
            "bound_pairs": self.bound_pairs,
            "no_reuse": not self.reuse,
            "method": self.method != AUTO,
        }
        refuse_of_one_table(single)
        shared: dict[str, Any] = {each.name: getattr(self, each.name, None) for each in fields(LinkedOptions)}
        return LinkedOptions(**shared | {"schema": schema, "out": self.file()})

    def request(self, loss: LossFields) -> SynthesizeRequest:
        """Return the request for one table.

        Raises:
            InputError: an option is for several tables, or the method does not take it.
        """
        from sfumato.app.api.questions import validate_fields
        from sfumato.app.api.releases import SynthesizeRequest, read_marginals

        if self.order or self.most or self.memory or self.final or self.file_format != "parquet":
            raise InputError("--order, --most, --memory, --final and --format are for 'sfumato synthesize linked'")
        if self.html is not None:
            require("plots", "--html")
        values = {
            "method": self.method,
            "loss": loss,
            **read_marginals(self.marginals or ()),
            "way": self.way,
            "rows": self.rows,
            "rounds": self.rounds,
            "zeros": self.zeros,
            "reuse": self.reuse,
            "bound_pairs": self.bound_pairs,
        }
        request = validate_fields(SynthesizeRequest, values)
        request.refuse_unused()
        return request


def _missing_of_synthesis(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the command line lacks.  A preview needs no file."""
    if not (given.get("out") or given.get("preview")):
        yield "--out FILE"
    yield from missing_of_release(given)


@help_page(
    HelpPage(
        usage="--out FILE --epsilon E [--delta D]",
        sections={
            "Main options": "out epsilon delta html",
            "What to keep accurate": "marginals method",
            "Ledger": "create limit",
        },
        parts=("synthesize linked",),
        missing=_missing_of_synthesis,
    )
)
def synthesize(given: SynthesizeOptions) -> None:
    """Make a synthetic table with differential privacy.

    Example: sfumato synthesize people.csv --epsilon 1 --delta 1e-9 --out synthetic.parquet
    """
    loss = given.loss.fields()
    schema = given.view.schema
    if schema is not None and given.view.view is None and given.out is not None and is_folder(given.out):
        options = given.linked(schema)
        print_message(
            "'sfumato synthesize --schema' is the former spelling of 'sfumato synthesize linked' and will go."
        )
        linked(options)
        return
    _synthesize_table(given, given.request(loss), loss.loss())


def _synthesize_table(given: SynthesizeOptions, request: SynthesizeRequest, loss: Loss) -> None:
    from sfumato.synthesize.codebook.codebook import codebook_path
    from sfumato.vault.release import writable

    source = given.source(loss)
    if given.preview:
        preview = request.preview(source.described())
        result(preview.to_json(), str(preview), as_json=given.as_json)
        return
    out = given.file()
    writable(out, overwrite=given.overwrite)
    outputs = [out, codebook_path(out), given.html, given.model]
    refuse_clashes(outputs, inputs=[*source.files(), given.zeros, given.view.view], overwrite=given.overwrite)
    described = source.described()
    warnings = _warnings(described, given.rows, loss, request, anyway=given.anyway)
    vault = source.vault(described)
    for warning in warnings:
        print_message(f"Before it is charged: {warning}.")
    with working("Making the release"):
        release = request.release(vault)
        cost = cost_in_shares(release.cost, source.charge, vault.remaining)
        del vault  # and the tables that it keeps: rows are drawn without them
        sample = release.rows
    sample.write(out, overwrite=given.overwrite)
    _write_about(release, given)
    print_message(f"Wrote {pluralize(len(sample), 'row')} to {out}, and their codebook to {codebook_path(out)}.")
    if not len(sample):
        print_message(
            "The noisy number of rows came to 0: the noise at this loss is larger than the table, or few of its rows "
            "fit the domain, which 'sfumato domain check DOMAIN --table TABLE' shows to the owner only."
        )
    value = {"out": str(out), "rows": len(sample), **release.statement(), "codebook": release.codebook.to_json()}
    result(value, _text(release, cost), as_json=given.as_json)


def _warnings(
    domain: Domain, rows: int | None, loss: Loss, request: SynthesizeRequest, *, anyway: bool
) -> tuple[str, ...]:
    """Return warnings of what noise hides, of what the rows lack, and of how a delta would lower the noise.

    Raises:
        SfumatoError: the request does not fit the domain.
        InputError: the public number of rows is too small for pairs of columns, and no --anyway is given.
    """
    from sfumato.synthesize import NoisyTotal, PublicTotal, drowned_totals
    from sfumato.synthesize.product import refuse_large

    preview = request.preview(domain)
    if preview.hides_pairs and not anyway:
        raise InputError(
            f"{preview.needed}, and the table has {preview.rows:,}; state a larger loss, describe fewer columns, or "
            "release it by --anyway. Nothing was charged"
        )
    if rows is not None:
        refuse_large(rows, len(domain))
    warnings = [f"{preview.needed}. In a smaller table {preview.in_smaller_tables}"]
    warnings = warnings if preview.rows_for_pairs and preview.rows is None else []
    warnings += drowned_totals(domain, loss, NoisyTotal() if rows is None else PublicTotal(rows))
    return (*preview.notes, *warnings, *request.without_delta(domain))


def _write_about(release: Synthetic, given: SynthesizeOptions) -> None:
    """Write the codebook, the model and the page of the released rows."""
    from sfumato.synthesize.codebook.codebook import codebook_path
    from sfumato.vault.release import save_text

    out = given.file()
    save_text(codebook_path(out), release.codebook.to_markdown(), overwrite=given.overwrite)
    if given.model is not None:
        from sfumato.synthesize.synthetic import save

        save(release, given.model, overwrite=given.overwrite)
        print_message(f"Wrote the model {given.model}.")
    if given.html is not None:
        from sfumato.report.page import render
        from sfumato.report.release_page import release_page

        page = render(release_page(f"Synthetic table {out.name}", release.codebook, accepted=release.accepted))
        save_text(given.html, page, overwrite=given.overwrite)
        print_message(f"Wrote the page {given.html}.")


def _text(release: Synthetic, cost: str) -> str:
    chosen = "".join(f"\n  {option}" for option in release.provenance.get("chosen_among", ()))
    return (
        f"Method: {release.method}"
        + (f"\nChosen without the data, among:{chosen}" if chosen else "")
        + f"\nGuarantee: {release.guarantee}\nCost: {cost}\nExpected error:\n{error_lines(release.expected_error)}\n"
        + _errors(release.codebook)
    )


def _errors(book: Codebook) -> str:
    """Return the worst stated errors of a file, and the pairs without a stated error."""
    from sfumato.synthesize.codebook.codebook import pair_title, printable

    known = [column for column in book.columns if column.worst is not None]
    pairs = [pair for pair in book.pairs if pair.worst_of_values is not None]
    lines = ["Error of the rows written, with 95 %, the worst:"]
    if known:
        worst = max(known, key=lambda column: column.worst or 0)
        lines.append(
            f"  single values: {worst.worst:,} of {pluralize(book.table_rows, 'row')}, in {printable(worst.name)}"
        )
    if pairs:
        one = max(pairs, key=lambda pair: pair.worst_of_values or 0)
        lines.append(
            f"  values of measured pairs: {pluralize(one.worst_of_values or 0, 'row')}, in {printable(pair_title(one))}"
        )
    modelled = [pair.misplaced for pair in book.pairs if not pair.measured]
    bounds = [share for share in modelled if share is not None]
    unknown, many = len(modelled) - len(bounds) + book.pairs_left_out, len(modelled) + book.pairs_left_out
    modelled_text = "their error is not known"
    if bounds:
        modelled_text = f"at most {100 * max(bounds):.1f} % of the rows would have to move to another cell of one"
        modelled_text += f", of {unknown:,} it is not known" if unknown else ""
    if many:
        lines.append(f"  {many:,} of {len(book.pairs) + book.pairs_left_out:,} pairs are modeled: {modelled_text}")
    return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """The options of ``sfumato sample``."""

    model: Annotated[Path, typer.Argument(help="Model that 'sfumato synthesize --model' saved.")]
    out: SyntheticRowsOption
    rows: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of rows. Default: as many as the release has, or with --given, as many as it expects."
        ),
    ] = None
    given: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=VALUE",
            help="Draw only such rows. 'sfumato domain show --cells COLUMN' lists the values. Repeatable. For "
            "graphical models, such as of batched.",
        ),
    ] = None
    copies: Annotated[
        int | None, typer.Option(min=1, max=100, help="Draw N files, NAME-1 and so on, independently.")
    ] = None
    file_format: LinkedFormatOption = "parquet"
    overwrite: OverwriteOption = False
    as_json: JsonOption = False

    def files(self) -> list[Path]:
        """Check the files to write, and return them.

        Raises:
            InputError: a file cannot be written.
        """
        from sfumato.synthesize.codebook.codebook import codebook_path
        from sfumato.vault.release import checked_path, writable

        out, copies = self.out, self.copies
        checked_path(out)
        files = [out] if copies is None else [out.with_stem(f"{out.stem}-{number}") for number in range(1, copies + 1)]
        for file in files:
            writable(file, overwrite=self.overwrite)
        refuse_clashes([*files, *map(codebook_path, files)], inputs=[self.model], overwrite=self.overwrite)
        return files


def sample(options: SampleOptions) -> None:
    """Draw more rows from a saved model. This is free.

    Example: sfumato sample model.json --out more.parquet

    The rows reveal nothing beyond the model. From a model of linked tables, all units are drawn into a new folder.
    """
    from sfumato.synthesize.linked import is_of_linked_tables

    if not is_of_linked_tables(options.model):
        _sample_table(options)
        return
    if options.rows is not None or options.given:
        raise InputError("--rows and --given are for models of one table; of linked tables all units are drawn")
    copies, file_format = options.copies, options.file_format
    sample_tables(options.model, options.out, copies=copies, file_format=file_format, as_json=options.as_json)


def _sample_table(options: SampleOptions) -> None:
    from sfumato.synthesize.codebook.codebook import codebook_path, printable
    from sfumato.synthesize.synthetic import STATED_BY_A_FILE, load
    from sfumato.vault.release import save_text

    release = load(options.model)
    if options.file_format != "parquet":
        raise InputError("--format is for models of linked tables; one table is written as the name of --out ends")
    files = options.files()
    restricted = _restricted(release, options.given) if options.given else release
    for file in files:
        with working("Sampling"):
            rows, book = restricted.sample_with_codebook(options.rows)
        rows.write(file, overwrite=options.overwrite)
        save_text(codebook_path(file), book.to_markdown(), overwrite=options.overwrite)
        print_message(f"Wrote {pluralize(len(rows), 'row')} to {file}, and their codebook to {codebook_path(file)}.")
    if options.copies is not None:
        print_message(NO_COMBINING)
    if not len(rows):
        among = f" among its {release.model.total:,}" if options.given else ""
        print_message(f"The model expects less than one such row{among}; --rows draws as many as you ask for.")
    text = f"Guarantee: {printable(release.guarantee)}\n{STATED_BY_A_FILE}\nCost: nothing"
    value: dict[str, object] = {"out": str(options.out)}
    if options.copies is not None:
        value = {"copies": [str(file) for file in files], "note": NO_COMBINING}
    value |= {"rows": len(rows), "guarantee": release.guarantee, "trust": STATED_BY_A_FILE}
    result(value, text, as_json=options.as_json)


def _restricted(release: Synthetic, given: list[str]) -> Synthetic:
    from dataclasses import replace

    from sfumato.synthesize.graphical import Graphical

    if not isinstance(release.model, Graphical):
        raise InputError(
            "--given needs a graphical model, such as of batched; sample and filter the rows of other models"
        )
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
