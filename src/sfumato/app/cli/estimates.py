"""``sfumato bound``, how many rows of a person to keep, and ``sfumato interval``, what a saved release tells."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.app.cli.options import (
    SEVERAL_TABLES,
    JsonOption,
    LedgerOptions,
    LossOptions,
    OneDomainOption,
    OverwriteOption,
    SchemaOption,
    Source,
    TableArgument,
    TableView,
    ViewOption,
    domain_or_schema,
    read_schema,
    read_view,
)
from sfumato.app.cli.output import (
    columns,
    cost_in_shares,
    refuse_clashes,
    result,
    working,
)
from sfumato.app.help_pages import HelpPage, help_page, missing_of_release
from sfumato.errors import InputError, pluralize

if TYPE_CHECKING:
    from sfumato.domain import Domain, Unit
    from sfumato.query import Query, Share, SuggestedBound
    from sfumato.query.row_bound import NoisySizes
    from sfumato.synthesize import Synthetic, SyntheticFile

SavedReleaseArgument = Annotated[
    Path,
    typer.Argument(metavar="RELEASE", help="Synthetic file, .parquet or .arrow, or the model that --model saved."),
]
HalfWidthOption = Annotated[
    str | None,
    typer.Option(metavar="DISTANCE", help="Wanted half-width. If there is no interval, print the epsilon for it."),
]


@dataclass(frozen=True, kw_only=True)
class BoundOptions:
    """The options of ``sfumato bound``."""

    table: TableArgument
    domain: OneDomainOption = None
    schema: SchemaOption = None
    of: Annotated[
        str | None,
        typer.Option(
            "--of", metavar="TABLE", help="With --schema: the table to bound.", rich_help_panel=SEVERAL_TABLES
        ),
    ] = None
    view: ViewOption = None
    by: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column by which you will group, or month(admitted). Repeatable."),
    ] = None
    cells: Annotated[int | None, typer.Option(min=1, help="Number of groups, instead of --by.")] = None
    per: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUPS", help="Also suggest bounds by these groups, such as month(admitted). They share the loss."
        ),
    ] = None
    share: Annotated[
        str, typer.Option(metavar="PART", help="This loss as a part of all the loss that you plan for these tables.")
    ] = "0.1"
    loss: LossOptions
    journal: LedgerOptions
    out: Annotated[
        Path | None,
        typer.Option(help="Write the domain or schema with the bound, as a draft for you to accept."),
    ] = None
    overwrite: OverwriteOption = False
    as_json: JsonOption = False

    def table_size(self, domain: Domain) -> int:
        """Return the number of cells of the tables that the bound is for."""
        if (self.by is None) == (self.cells is None):
            raise InputError("say what the tables will be by, with --by, or how many cells they have, with --cells")
        return self.cells or math.prod(len(domain.grouping(name).labels) for name in self.by or ())

    def refuse_out(self, source: Source, domain: Domain) -> None:
        """Refuse a file that cannot be written, and bounds that a schema cannot state, before anything is charged."""
        from sfumato.domain import GroupBound, Unit

        if self.out is None:
            return
        refuse_clashes([self.out], inputs=source.files(), overwrite=self.overwrite)
        if source.view is not None:
            bounds = [GroupBound.named(name, rows=1) for name in self.per or ()]
            rebounded(source.view, str(self.of), Unit(domain.unit.column, per=bounds))


def _missing_of_bound(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the command line lacks."""
    if not (given.get("by") or given.get("cells")):
        yield "--by COLUMN (or --cells N)"
    yield from missing_of_release(given)


@help_page(
    HelpPage(
        usage="--by COLUMN --epsilon E",
        sections={"Main options": "by cells epsilon delta out", "Ledger": "create limit"},
        missing=_missing_of_bound,
    )
)
def bound(options: BoundOptions) -> None:
    """Suggest how many rows of one person to keep.

    Example: sfumato bound visits.csv --by clinic --epsilon 0.1

    A small bound leaves rows out, and a large bound adds noise. The suggestion balances both errors. It changes
    nothing: write the bound into the domain, or let --out write a draft.
    """
    from sfumato.domain import dump, load
    from sfumato.query import suggest_bound
    from sfumato.vault.release import save_text

    out, path = options.out, domain_or_schema(options.domain, options.schema, options.table)
    view = bounded_view(options.schema, options.of, options.view)
    if out is not None and options.view is not None:
        raise InputError("a schema says no bound of a view: leave --out out, and name the bound by --unit-rows")
    domain = load(path) if view is None else view.domain
    cells = options.table_size(domain)
    loss = options.loss.fields().loss()
    source = Source(table=options.table, domain=path, journal=options.journal, charge=loss.charge, view=view)
    options.refuse_out(source, domain)
    vault = source.vault(domain)
    with working("Making the release"):
        suggested = suggest_bound(vault, loss=loss, cells=cells, per=options.per or (), share=options.share)
    if out is not None:
        text = dump(suggested.applied(domain)) if view is None else rebounded(view, str(options.of), suggested.unit)
        save_text(out, text, overwrite=options.overwrite)
    text = _text(
        suggested,
        out,
        "domain" if view is None else "schema",
        cost_in_shares(suggested.cost, loss.charge, vault.remaining),
    )
    result(suggested.to_json() | {"out": None if out is None else str(out)}, text, as_json=options.as_json)


def bounded_view(schema: Path | None, of: str | None, view: Path | None) -> TableView | None:
    """Return the rows of several tables that need a bound, or None without a schema.

    Raises:
        InputError: neither a table of the schema nor a view is named, or each person has one row in it.
        DomainError: the schema has no such table.
        QueryError: the statement is outside the grammar, or its rows belong to no person.
    """
    from sfumato.domain.view import PerUnit
    from sfumato.query.statements.table_statement import parse_view

    if schema is None:
        read_view(schema, view)
        if of is not None:
            raise InputError("--of is about several tables: name their schema by --schema")
        return None
    if (of is None) == (view is None):
        raise InputError("say which rows are to be bounded: those of a table, --of TABLE, or of a view, --view FILE")
    if of is None:
        bounded = read_view(schema, view)
        assert bounded is not None
    else:
        described = read_schema(schema)
        name = described[of].name
        if name == described.units:
            raise InputError(f"{name} lists every {described.id} once, so there is nothing to bound", culprit=of)
        bounded = TableView(schema, described, parse_view(f'SELECT * FROM "{name}"', described))  # noqa: S608 - our parser
    if isinstance(bounded.view.view, PerUnit) and not bounded.view.view.by:
        raise InputError("this view has one row of each person, so there is nothing to bound", culprit=view)
    return bounded


def rebounded(view: TableView, of: str, unit: Unit) -> str:
    """Return a schema with other bounds on the rows of a table, as the text of a draft."""
    from sfumato.domain.table_schema import dump_schema

    schema, name = view.schema, view.schema[of].name
    tables = tuple(replace(table, rows=unit.rows, per=unit.per) if table.name == name else table for table in schema)
    return dump_schema(replace(schema, tables=tables, draft=True, acceptance=None))


def _text(suggested: SuggestedBound, out: Path | None, file: str, cost: str) -> str:
    unit = suggested.unit
    above, error = suggested.above
    above_text = (
        f"About {max(0.0, above):.0f} (noise {error:.0f}) of them have more, and would lose those."
        if error
        else "No line above that seems to hold anybody; a few people there would not be seen for the noise."
    )
    lines = _lines("rows", suggested.starts, suggested.units)
    groups = "".join(_by_groups(sizes) for sizes in suggested.by_groups)
    written = f"\nWrote {out}: a draft; accept it with 'sfumato {file} accept'." if out is not None else ""
    return (
        f"{columns(lines)}\n{groups}\nThe noise on each number has the standard deviation {suggested.deviation:.3g}.\n"
        f"Suggested for tables of {pluralize(suggested.cells, 'cell')}: rows: {unit.rows} of one {unit.column}. "
        f"{above_text}\n"
        f"{_per(unit) if suggested.by_groups else ''}"
        f"Guarantee: {suggested.guarantee}\nCost: {cost}\n"
        f"Note: the bound is public; write it into the {file}, which goes on saying what it said until then.{written}"
    )


def _lines(size: str, starts: Sequence[int], units: Sequence[int]) -> list[dict[str, str]]:
    ends = [*(start - 1 for start in starts[1:]), None]
    return [
        {size: _range(start, end), "units": str(count)} for start, end, count in zip(starts, ends, units, strict=True)
    ]


def _by_groups(sizes: NoisySizes) -> str:
    """Return the noisy sizes as lines.  The list ends at the last size above the noise."""
    last = next(place for place, start in enumerate((*sizes.starts, math.inf)) if start > 2 * sizes.most)
    lines = columns(_lines(str(sizes.of), sizes.starts, sizes.units)[: last + 1])
    return f"\n{lines}\nBalanced at {sizes.most}.\n"


def _per(unit: Unit) -> str:
    """Return the bounds by groups in the form of a domain file."""
    bounds = {bound.name: bound.describe() for bound in unit.per}
    if not bounds:
        return "No bound by these groups leaves less noise than that on all rows does.\n"
    bounds_text = ", ".join(
        f"{name}: {most if isinstance(most, int) else '{' + ', '.join(f'{key}: {n}' for key, n in most.items()) + '}'}"
        for name, most in bounds.items()
    )
    return f"And per: {{{bounds_text}}}.\n"


def _range(start: int, end: int | None) -> str:
    return f"{start} and more" if end is None else str(start) if end == start else f"{start} to {end}"


@help_page(HelpPage(usage="[--among CONDITION]", sections={"Main options": "among minus confidence"}))
def interval(
    release: SavedReleaseArgument,
    statement: Annotated[
        str, typer.Argument(metavar="SELECT", help="Statement with one COUNT, SUM or AVG and no GROUP BY.")
    ],
    among: Annotated[
        str | None,
        typer.Option(metavar="CONDITION", help="Return the share of the counted rows among rows of this condition."),
    ] = None,
    minus: Annotated[
        str | None,
        typer.Option(metavar="SELECT", help="Another such SELECT, to return the difference of both answers."),
    ] = None,
    minus_among: Annotated[
        str | None, typer.Option(metavar="CONDITION", help="The condition of --among, for the statement of --minus.")
    ] = None,
    half_width: HalfWidthOption = None,
    confidence: Annotated[str, typer.Option(metavar="P", help="Probability with which the interval holds.")] = "0.95",
    as_json: JsonOption = False,
) -> None:
    """Answer one question from a synthetic file, with an interval.

    Example: sfumato interval synthetic.parquet "SELECT COUNT(*) FROM t WHERE age >= 65"

    This is free: the file and the model hold the noisy counts. Some questions have no interval, because the release
    did not measure them. Choose the question before you look at the rows.
    """
    from sfumato.query import interval as of_release
    from sfumato.synthesize.codebook.codebook import printable
    from sfumato.synthesize.synthetic import STATED_BY_A_FILE

    if minus_among is not None and minus is None:
        raise InputError("--minus-among belongs to --minus")
    saved = _read(release)
    domain = saved.model.domain
    answer = of_release(
        saved,
        _read_question(statement, among, domain),
        minus=None if minus is None else _read_question(minus, minus_among, domain),
        half_width=half_width,
        confidence=confidence,
    )
    notes = "".join(f"\nNote: {note}" for note in answer.notes)
    text = f"{answer}\nCost: nothing\nGuarantee: {printable(saved.guarantee)}\n{STATED_BY_A_FILE}{notes}"
    result({**answer.to_json(), "trust": STATED_BY_A_FILE}, text, as_json=as_json)


def _read(path: Path) -> SyntheticFile | Synthetic:
    """Read released rows with their noisy tables, or a saved model.

    Raises:
        InputError: the file is neither.
    """
    kind = path.suffix.lower()
    if kind in (".parquet", ".arrow"):
        from sfumato.synthesize.synthetic import read_release

        return read_release(path)
    if kind == ".csv":
        raise InputError(f"{path} is text without the noisy tables: ask of the .parquet file, or of the saved model")
    from sfumato.synthesize.synthetic import load

    return load(path)


def _read_question(statement: str, among: str | None, domain: Domain) -> Query | Share | str:
    """Return the statement, or the share that it counts among the rows of a condition.

    Raises:
        QueryError: the statement cannot be read.
        InputError: the statement of a share counts no rows.
    """
    if among is None:
        return statement
    from sfumato.query import Count, Share
    from sfumato.query.statements.select_statement import parse

    query = parse(statement, domain)
    if query.aggregates != (Count(),) or query.by or query.ordering.clauses or query.columns or query.where is None:
        raise InputError("a share is asked as SELECT COUNT(*) with a WHERE, without GROUP BY")
    return Share(query.where, among)
