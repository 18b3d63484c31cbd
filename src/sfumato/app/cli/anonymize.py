"""Commands around k-anonymous tables: ``sfumato anonymize``, ``apply``, ``risk`` and ``hierarchy``.

Not differential privacy.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.app.api.methods import AnonymizationMethod, CountOption, CutOption, MissingValues, split_names
from sfumato.app.cli.domain_file import CsvOptions
from sfumato.app.cli.options import (
    JsonOption,
    LedgerOptions,
    OneDomainOption,
    OverwriteOption,
    Source,
    TableArgument,
    TableView,
    ViewOptions,
    domain_or_schema,
)
from sfumato.app.cli.output import (
    columns,
    exact_result,
    folder,
    print_message,
    refuse_clashes,
    result,
    working,
)
from sfumato.app.help_pages import HelpPage, files_next_to, help_page, missing_for_table
from sfumato.errors import InputError, pluralize
from sfumato.extras import require

if TYPE_CHECKING:
    from sfumato.anonymize import Anonymized
    from sfumato.anonymize.reidentification import Risk, Uniques
    from sfumato.app.api.releases import Anonymization

_NO_DP = "no DP guarantee: "
_LABELS = {
    _NO_DP: "Guarantee: ",
    "attacker: ": "Attacker: ",
    "at most ": "Limit: at most ",
    "published as they are: ": "Unchanged columns: ",
}
hierarchies = typer.Typer(no_args_is_help=True, help="Describe how the values of a column may be generalized.")

QuasiOption = Annotated[
    str, typer.Option("--quasi", metavar="A,B", help="Columns that an attacker may know, comma-separated.")
]
RecodedRowsOption = Annotated[Path, typer.Option("--out", help="Where to write the rows: .parquet or .csv.")]
KeepOption = Annotated[
    str,
    typer.Option(
        "--keep", metavar="A,B", help="Columns to publish unchanged, comma-separated. Direct identifiers are refused."
    ),
]
KeepAnywayOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN", help="Column to publish unchanged although --keep refuses it. The statement names it."
    ),
]
CountOptions = Annotated[
    CountOption, typer.Option(help="Count classes in units, which the domain names by an id, or in rows.")
]
UnitDomainOption = Annotated[
    Path | None,
    typer.Option("--domain", help="Domain that names the units. Default: the YAML file next to the table."),
]

PopulationTableOption = Annotated[
    str | None, typer.Option(metavar="TABLE", help="Larger table with the same columns, for the journalist attacker.")
]
ThresholdOption = Annotated[float, typer.Option(help="Count the units whose risk is above this number.")]
PopulationOption = Annotated[
    int | None,
    typer.Option("--population", min=1, help="Size of the population of which the table is a sample."),
]


@dataclass(frozen=True, kw_only=True)
class AnonymizeOptions:
    """The options of ``sfumato anonymize``."""

    table: TableArgument
    quasi: QuasiOption
    out: RecodedRowsOption
    k: Annotated[int, typer.Option(metavar="K", help="Smallest allowed group of people with equal values.")]
    suppression: Annotated[
        str | None, typer.Option(metavar="SHARE", help="Largest share of rows to drop, 0 to 1. Default: 0.")
    ] = None
    suppress_rows: Annotated[
        int | None, typer.Option(min=0, help="Largest number of rows to drop, instead of --suppression.")
    ] = None
    method: Annotated[AnonymizationMethod, typer.Option(help="Search method.")] = AnonymizationMethod.OPTIMAL
    criterion: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE",
            help="Protection beyond k, such as t-closeness:t=0.2,sensitive=class,distance=equal. Repeatable.",
        ),
    ] = None
    keep: KeepOption = ""
    keep_anyway: KeepAnywayOption = None
    missing: Annotated[
        MissingValues, typer.Option(help="Give missing values a category of their own, or drop their rows.")
    ] = MissingValues.CATEGORY
    recoding: Annotated[Path | None, typer.Option(help="Also save the recoding, for 'sfumato apply'.")] = None
    html: Annotated[Path | None, typer.Option(help="Also write a report page.")] = None
    domain: OneDomainOption = None
    rows_of: ViewOptions
    hierarchies: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of hierarchies, one file per column.")
    ] = None
    seconds: Annotated[
        float | None, typer.Option(metavar="S", min=0, help="Stop optimal or k-member after S seconds.")
    ] = None
    cut: Annotated[
        CutOption | None, typer.Option(help="Rule by which mondrian cuts. Default: greedy, the smallest loss.")
    ] = None
    count: CountOptions = CountOption.UNITS
    journal: LedgerOptions
    overwrite: OverwriteOption = False
    as_json: JsonOption = False

    def request(self) -> Anonymization:
        """Read the hierarchies, and check all options that do not depend on the table."""
        from sfumato.app.api.questions import validate_fields
        from sfumato.app.api.releases import AnonymizeRequest
        from sfumato.domain.hierarchy.levels import read_folder

        same = ("method", "k", "suppression", "suppress_rows", "missing", "seconds", "cut", "count")
        fields: dict[str, Any] = {name: getattr(self, name) for name in same}
        fields |= {"quasi": list(names(self.quasi)), "criteria": self.criterion or []}
        fields |= {"keep": list(names(self.keep)), "keep_anyway": self.keep_anyway or []}
        hierarchies = {} if self.hierarchies is None else read_folder(self.hierarchies)
        return validate_fields(AnonymizeRequest, fields).read_with(hierarchies)


@help_page(
    HelpPage(
        usage="--quasi A,B --k K --out FILE",
        sections={"Main options": "quasi k out keep suppression criterion html", "Ledger": "create limit"},
        missing=missing_for_table,
    )
)
def anonymize(options: AnonymizeOptions) -> None:
    """Make every row share its quasi-identifiers with at least K - 1 others.

    If the domain names a unit, at least K units share them.
    This is not differential privacy: it does not protect against attackers who know other columns.

    Example: sfumato anonymize people.csv --quasi age,education --k 5 --out k5.csv
    """
    from sfumato.report.bar_pages import anonymized_page
    from sfumato.report.page import render
    from sfumato.vault.release import save_text

    out, overwrite = options.out, options.overwrite
    if options.html is not None:
        require("plots", "a report page")
    ready(out, overwrite=overwrite)
    raw = {*names(options.keep), *(options.keep_anyway or [])} - set(names(options.quasi))
    refuse_raw(options.rows_of.view, raw)
    source = _source(options.table, options.domain, options.rows_of, options.journal)
    inputs = [*source.files(), options.rows_of.view]
    refuse_clashes([out, options.recoding, options.html], inputs=inputs, overwrite=overwrite)
    request, described = options.request(), source.described()
    request.check_columns(described)
    vault = source.vault(described, raw=sorted(raw))
    for each in request.criteria:
        if each.sensitive is not None and each.sensitive not in request.kept_names:
            print_message(f"Note: {each} costs utility and protects nothing, as {each.sensitive} is not among --keep.")
    with working("Searching") as step:
        release = request.release(vault, watch=step)
    release.write(out, overwrite=overwrite)
    if options.recoding is not None:
        release.save_recoding(options.recoding, overwrite=overwrite)
    if options.html is not None:
        save_text(options.html, render(anonymized_page(f"Anonymized table {out.name}", release)), overwrite=overwrite)
    report(release, out, as_json=options.as_json)


def _source(table: str, domain: Path | None, rows_of: ViewOptions, journal: LedgerOptions) -> Source:
    """Return the table or view, and the ledger, for a release that charges nothing."""
    described = domain_or_schema(domain, rows_of.schema, table)
    return Source(table=table, domain=described, journal=journal, charge=None, view=rows_of.read())


def ready(out: Path, *, overwrite: bool) -> None:
    """Refuse an output that cannot be written, before anything is read."""
    from sfumato.vault.release import writable

    writable(out, overwrite=overwrite)
    if out.suffix not in (".parquet", ".csv"):
        raise InputError(f"cannot write {out}: end it in .parquet or .csv", culprit=out)


def names(text: str) -> tuple[str, ...]:
    """Split comma-separated names."""
    return tuple(filter(None, split_names(text)))


def refuse_raw(view: Path | None, keep: Collection[str]) -> None:
    """Refuse raw columns of a view, because its rows hold cells only."""
    if view is not None and keep:
        raise InputError(
            "--keep publishes columns as they lie in a table; rows of a view hold cells only: leave it out"
        )


def report(release: Anonymized, out: Path, *, as_json: bool) -> None:
    """Print the facts of a release."""
    from sfumato.anonymize import DistinctDiversity

    facts = release.facts
    print_message(f"Wrote {pluralize(facts['rows'] - facts['suppressed'], 'row')} to {out}.")
    print_message(f"Suppressed rows: {facts['suppressed']:,} of {facts['rows']:,}.")
    if facts["left_out"]:
        print_message(f"{facts['left_out']:,} of them were left out by the domain, which drops one of their values.")
    if facts["over_bound"]:
        print_message(
            f"{facts['over_bound']:,} of them are beyond the rows that the domain allows one unit, or have no id."
        )
    if release.suppressed_columns:
        print_message(
            f"Every value of these columns is *: {', '.join(release.suppressed_columns)}. To keep coarser values, "
            "draft hierarchies ('sfumato hierarchy draft') and give them by --hierarchies, or raise --suppression."
        )
    for name, rows in facts["homogeneous"].items():
        if rows:
            cure = DistinctDiversity(2, name).spell()
            print_message(
                f"Warning: {rows / (facts['rows'] - facts['suppressed']):.1%} of the published rows are in a class with"
                f" a single value of {name}: who finds a person's class knows it. A criterion on {name} prevents that,"
                f" such as {cure}."
            )
    losses = [{"attribute": name, "loss": loss} for name, loss in facts["loss_metric"].items()]
    smallest = f"{facts['smallest_class']} {facts['counted']}"
    lines = [*labeled_guarantee(release.guarantee), f"Classes: {facts['classes']}, the smallest of {smallest}"]
    if "certificate" in facts:
        lines.append(_certificate(facts["certificate"]))
    if facts.get("search", {}).get("stopped"):
        lines.append(
            f"Search: stopped after {facts['search']['seconds']:g} s; more time may find classes that lose less"
        )
    value = {"out": str(out), "facts": dict(facts), **_in_short(release.statement())}
    result(value, "\n".join([*lines, columns(losses)]), as_json=as_json)


def labeled_guarantee(statement: str) -> list[str]:
    """Return the clauses of a guarantee as lines with labels.

    >>> labeled_guarantee(
    ...     "no DP guarantee: 5-anonymity over the quasi-identifiers age, counted in rows; attacker: prosecutor: knows "
    ...     "that a person is in the table; at most a share 0 of the rows is suppressed; 0 of 300 rows are suppressed, "
    ...     "the Loss Metric is 0.1 of 1; published as they are: none"
    ... )  # doctest: +NORMALIZE_WHITESPACE
    ['Guarantee: 5-anonymity over the quasi-identifiers age, counted in rows. This is not differential privacy.',
     'Attacker: prosecutor: knows that a person is in the table', 'Limit: at most a share 0 of the rows is suppressed',
     'Result: 0 of 300 rows are suppressed, the Loss Metric is 0.1 of 1', 'Unchanged columns: none']
    """
    lines = []
    for clause in statement.split("; "):
        prefix = next((each for each in _LABELS if clause.startswith(each)), "")
        end = ". This is not differential privacy." if prefix == _NO_DP else ""
        lines.append(f"{_LABELS.get(prefix, 'Result: ')}{clause.removeprefix(prefix)}{end}")
    return lines


def _in_short(statement: dict[str, Any]) -> dict[str, Any]:
    """Return the statement with the size of each hierarchy instead of its cells, which the journal has."""
    provenance = statement["provenance"]
    parameters = provenance["parameters"]
    if "quasi" not in parameters:
        return statement
    quasi = [each | {"hierarchy": _size(each["hierarchy"])} for each in parameters["quasi"]]
    return statement | {"provenance": provenance | {"parameters": parameters | {"quasi": quasi}}}


def _size(hierarchy: dict[str, Any] | None) -> dict[str, int] | None:
    return hierarchy and {"values": len(hierarchy["rows"]), "levels": len(hierarchy["rows"][0])}


def _certificate(certificate: dict[str, Any]) -> str:
    proof = "proven least" if certificate["proven"] else f"not proven least: at least {certificate['bound']:.6g}"
    return (
        f"Loss: {certificate['loss']:.6g} cells, {proof};"
        f" counted {certificate['evaluated']} of {certificate['nodes']} recodings"
    )


@help_page(
    HelpPage(
        usage="--out FILE",
        sections={"Main options": "out keep domain", "Ledger": "create limit"},
        missing=missing_for_table,
    )
)
def apply(
    recoding: Annotated[Path, typer.Argument(help="Recoding that 'sfumato anonymize --recoding' saved.")],
    table: Annotated[str, typer.Argument(help="New rows: CSV or Parquet file, or the URL of a database table.")],
    out: RecodedRowsOption,
    keep: KeepOption = "",
    keep_anyway: KeepAnywayOption = None,
    domain: OneDomainOption = None,
    *,
    rows_of: ViewOptions,
    journal: LedgerOptions,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Recode new rows by a saved recoding.

    Example: sfumato apply recoding.yaml new.csv --out k5-new.csv

    Classes that are too small among the new rows are dropped.
    """
    from sfumato import anonymize as methods
    from sfumato.app.api.releases import kept_columns

    ready(out, overwrite=overwrite)
    raw = [*names(keep), *(keep_anyway or [])]
    refuse_raw(rows_of.view, raw)
    source = _source(table, domain, rows_of, journal)
    refuse_clashes([out], inputs=[recoding, rows_of.view, *source.files()], overwrite=overwrite)
    saved, described = methods.load_recoding(recoding), source.described()
    for name in saved.quasi:
        described.index(name)
    vault = source.vault(described, raw=raw)
    with working("Rewriting"):
        release = methods.apply(vault, saved, keep=kept_columns(names(keep), keep_anyway or []))
    release.write(out, overwrite=overwrite)
    report(release, out, as_json=as_json)


@help_page(HelpPage(usage="--quasi A,B", sections={"Main options": "quasi domain threshold population"}))
def risk(
    table: TableArgument,
    quasi: QuasiOption,
    domain: UnitDomainOption = None,
    *,
    rows_of: ViewOptions,
    count: CountOptions = CountOption.UNITS,
    threshold: ThresholdOption = 0.2,
    population_table: PopulationTableOption = None,
    population: PopulationOption = None,
    csv: CsvOptions,
    as_json: JsonOption = False,
) -> None:
    """Compute how often a match by quasi-identifiers is right.

    Example: sfumato risk people.csv --quasi age,education

    The figures are exact and only for the owner of the table. The table may be original or anonymized.
    """
    from sfumato.anonymize.reidentification import assess_table, estimate_uniques
    from sfumato.engine.table_files import redacted_source

    quasi_names, view = names(quasi), rows_of.read()
    if view is not None and csv != CsvOptions():
        raise InputError("a schema says how its files are written; leave that to it")
    unit = None if count is CountOption.ROWS else unit_column(table, domain, view)
    with working(f"Reading {redacted_source(table)}"):
        opened, people = _quasi_columns(table, csv, view, quasi_names), None
        if population_table is not None:
            people = _quasi_columns(population_table, csv.for_file(population_table), view, quasi_names)
        if domain is None and unit is not None and not has_column(opened, unit):  # such as a released table
            unit = None
        assessed = assess_table(opened, quasi=quasi_names, threshold=threshold, population=people, unit=unit)
        uniques = None
        if population is not None:
            uniques = estimate_uniques(opened, quasi=quasi_names, population=population, unit=unit)
    if count is CountOption.ROWS:
        print_message("Classes are counted in rows, as --count rows asks.")
    elif unit is None:
        print_message(
            "Classes are counted in rows. If a domain names units by an id, they are counted in units (--domain)."
        )
    value = {**assessed.to_json(), "population_uniques": None if uniques is None else asdict(uniques)}
    exact_result(value, _risk_text(assessed, uniques, unit), as_json=as_json)


def _quasi_columns(table: str, csv: CsvOptions, view: TableView | None, quasi: Sequence[str]) -> object:
    """Return a table with these columns, read from a file or as the cells of a view."""
    from sfumato.anonymize.release.request import cells_of_units

    return csv.open(table) if view is None else cells_of_units(view.encoded(table), quasi)


def _risk_text(risk: Risk, uniques: Uniques | None, unit: str | None) -> str:
    lines = [{"attacker": "prosecutor", **asdict(risk.prosecutor)}]
    if risk.journalist is not None:
        lines.append({"attacker": "journalist", **asdict(risk.journalist)})
    noun = "row" if unit is None else "unit"
    unique = f"{pluralize(risk.sample_uniques, noun)} {'is' if risk.sample_uniques == 1 else 'are'} unique"
    units = "" if risk.units is None else f" of {pluralize(risk.units, noun)}"
    text = (
        f"{pluralize(risk.rows, 'row')}{units} in {pluralize(risk.classes, 'class')}, the smallest of"
        f" {pluralize(risk.smallest_class, noun)}; {unique}.\nMarketer: {risk.marketer:.6g} of the {noun}s\n"
        f"{columns(lines)}"
    )
    if risk.left_out:
        missing = "a missing quasi-identifier" if unit is None else f"a missing quasi-identifier or no {unit}"
        text += f"\n{pluralize(risk.left_out, 'row')} with {missing} left out: in no class above."
    if uniques is not None:
        text += (
            f"\nPopulation uniques: about {uniques.believed:,.0f}, by {uniques.model.title()}'s model: {uniques.why}."
            f"\nBoth models: {uniques.zayatz:,.0f} (Zayatz), {uniques.pitman:,.0f} (Pitman)"
        )
    return text


def unit_column(table: str, domain: Path | None, view: TableView | None) -> str | None:
    """Return the column that names units: from the view, the given domain, or the YAML file named like the table."""
    from sfumato.domain import load

    if view is not None:
        return view.domain.unit.column
    if domain is not None:
        return load(domain).unit.column
    near = files_next_to(table, ".yaml", ".yml")
    return load(near[0]).unit.column if len(near) == 1 else None


def has_column(table: object, name: str) -> bool:
    """Return whether a table has a column of this name."""
    from sfumato.engine.open import open_table

    return any(column.name == name for column in open_table(table).schema())


@hierarchies.command("draft")
def draft_hierarchy(
    domain: Annotated[Path, typer.Argument(help="Domain, a YAML file.")],
    attributes: Annotated[list[str], typer.Argument(metavar="COLUMN", help="Columns to draft a hierarchy for.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder for one file per column. Default: standard output.")
    ] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Draft hierarchies from a domain, for you to edit.

    Example: sfumato hierarchy draft people.yaml age education --out hierarchies

    It reads no rows.
    """
    from sfumato.domain import load
    from sfumato.domain.hierarchy import draft as drafted
    from sfumato.vault.release import refuse_occupied_path, save_text

    described = load(domain)
    texts = {name: drafted(described[name]).dump() for name in attributes}
    if out is None:
        typer.echo("---\n".join(texts.values()), nl=False)
        return
    folder(out)
    for name in texts:
        refuse_occupied_path(out / f"{name}.yaml", overwrite=overwrite)
    for name, text in texts.items():
        save_text(out / f"{name}.yaml", text, overwrite=overwrite)
        print_message(f"Wrote the draft {out / f'{name}.yaml'}. Edit it to cells that mean something.")


@hierarchies.command("check")
def check_hierarchy(
    path: Annotated[Path, typer.Argument(help="Hierarchy: CSV with levels as columns, YAML or JSON.")],
    attribute: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column, if the file is not named after it.")
    ] = None,
    domain: Annotated[Path | None, typer.Option(help="Also check that it covers the declared values.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check that a hierarchy nests, misses no value and has one top.

    Example: sfumato hierarchy check hierarchies/age.yaml --domain people.yaml
    """
    from sfumato.anonymize import Hierarchy
    from sfumato.domain import load

    hierarchy = Hierarchy.read(path, attribute=attribute)
    if domain is not None:
        hierarchy.align(load(domain)[hierarchy.attribute].labels())
    lines = [
        {"level": number, "cells": level.size, "largest_loss": float(level.losses.max())}
        for number, level in enumerate(hierarchy.levels)
    ]
    fits = "" if domain is None else f" It covers {domain}."
    text = f"{path} is a hierarchy of {hierarchy.attribute} with {pluralize(len(hierarchy.leaves), 'value')}.{fits}"
    value = {"attribute": hierarchy.attribute, "values": len(hierarchy.leaves), "levels": lines}
    result(value, f"{text}\n{columns(lines)}", as_json=as_json)
