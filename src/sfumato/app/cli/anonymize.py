"""Commands around k-anonymous tables: ``sfumato anonymize``, ``apply``, ``risk`` and ``hierarchy``.

Not differential privacy.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.app.api.methods import AnonymizationMethod, CountOption, CutOption, MissingValues
from sfumato.app.cli.options import (
    CsvOptions,
    JsonOption,
    LedgerOptions,
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
from sfumato.errors import InputError, pluralize
from sfumato.extras import require

if TYPE_CHECKING:
    from sfumato.anonymize import Anonymized
    from sfumato.anonymize.reidentification import Risk, Uniques
    from sfumato.app.api.releases import Anonymization

hierarchies = typer.Typer(no_args_is_help=True, help="Describe how values of a quasi-identifier may be generalised.")

QuasiOption = Annotated[str, typer.Option("--quasi", help="Quasi-identifiers, comma-separated.")]
RecodedRowsOption = Annotated[Path, typer.Option("--out", help="Where to write the rows: .parquet or .csv.")]
KeepOption = Annotated[
    str, typer.Option("--keep", help="Columns to publish as they are, comma-separated; no direct identifiers.")
]
KeepAnywayOption = Annotated[
    list[str] | None,
    typer.Option(help="A column to publish as it is even if --keep refuses it; the statement names it."),
]
CountOptions = Annotated[
    CountOption, typer.Option(help="What classes are counted in: units that the domain names by an id, or rows.")
]
NearDomainOption = Annotated[
    Path | None,
    typer.Option("--domain", help="Accepted domain of the table; without, the YAML file named like the table."),
]

UnitDomainOption = Annotated[
    Path | None,
    typer.Option("--domain", help="Domain that names the units; without, the YAML file named like the table."),
]

PopulationOption = Annotated[
    int | None,
    typer.Option("--population", min=1, help="People of whom the table is a random sample: estimates uniques."),
]


@dataclass(frozen=True, kw_only=True)
class AnonymizeOptions:
    """The options of ``sfumato anonymize``."""

    table: TableArgument
    quasi: QuasiOption
    out: RecodedRowsOption
    k: Annotated[int, typer.Option(help="k of k-anonymity: least units (or rows) of a class, 1 or more.")]
    suppression: Annotated[
        str | None, typer.Option(help="Largest share of rows to suppress, 0 to 1; none without.")
    ] = None
    suppress_rows: Annotated[int | None, typer.Option(min=0, help="The same limit, as a number of rows.")] = None
    method: Annotated[AnonymizationMethod, typer.Option(help="How classes are found.")] = AnonymizationMethod.OPTIMAL
    criterion: Annotated[
        list[str] | None,
        typer.Option(help="A further criterion, such as t-closeness:t=0.2,sensitive=class,distance=equal."),
    ] = None
    keep: KeepOption = ""
    keep_anyway: KeepAnywayOption = None
    missing: Annotated[
        MissingValues, typer.Option(help="Missing quasi-identifiers: a category of their own, or suppress the row.")
    ] = MissingValues.CATEGORY
    recoding: Annotated[Path | None, typer.Option(help="Also save the recoding, to apply it again.")] = None
    html: Annotated[Path | None, typer.Option(help="Also write a report page.")] = None
    domain: NearDomainOption = None
    rows_of: ViewOptions
    hierarchies: Annotated[Path | None, typer.Option(help="Folder of hierarchies, one file an attribute.")] = None
    seconds: Annotated[float | None, typer.Option(min=0, help="Stop optimal or k-member after this long.")] = None
    cut: Annotated[CutOption | None, typer.Option(help="Where mondrian cuts; greedy, of least loss, without.")] = None
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


def anonymize(options: AnonymizeOptions) -> None:
    """Release a table in which every class of equal quasi-identifiers is large enough.

    No differential privacy: what is promised holds against the attacker that the statement names.
    """
    from sfumato.report.bar_pages import anonymized_page
    from sfumato.report.page import render
    from sfumato.vault.release import save_text

    out, overwrite = options.out, options.overwrite
    if options.html is not None:
        require("plots", "a report page")
    ready(out, overwrite=overwrite)
    published = {*names(options.keep), *(options.keep_anyway or [])}
    refuse_raw(options.rows_of.view, published - set(names(options.quasi)))
    source = _source(options.table, options.domain, options.rows_of, options.journal)
    inputs = [*source.files(), options.rows_of.view]
    refuse_clashes([out, options.recoding, options.html], inputs=inputs, overwrite=overwrite)
    request = options.request()
    vault = source.vault(first=None)
    request.check_columns(vault.domain)
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
    """Return the table or view, and the ledger, for a release that charges nothing.

    The domain is the given file, or else the YAML file that is named like the table.
    """
    described = beside_table(table, domain) if rows_of.schema is None else domain_or_schema(domain, rows_of.schema)
    return Source(table=table, domain=described, journal=journal, charge=None, view=rows_of.read())


def ready(out: Path, *, overwrite: bool) -> None:
    """Refuse an output that cannot be written, before anything is read."""
    from sfumato.vault.release import writable

    writable(out, overwrite=overwrite)
    if out.suffix not in (".parquet", ".csv"):
        raise InputError(f"cannot write {out}: end it in .parquet or .csv", culprit=out)


def names(text: str) -> tuple[str, ...]:
    """Split comma-separated names."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def refuse_raw(view: Path | None, keep: Collection[str]) -> None:
    """Refuse raw columns of a view, because its rows hold cells only."""
    if view is not None and keep:
        raise InputError(
            "--keep publishes columns as they lie in a table; rows of a view hold cells only: leave it out"
        )


def beside_table(table: str, domain: Path | None) -> Path:
    """Return the given domain, or the YAML file that is named like the table."""
    if domain is not None:
        return domain
    from sfumato.engine.open import file_path
    from sfumato.engine.table_files import redacted_source

    path = file_path(table)
    if path is None:
        raise InputError(
            f"name the domain of {redacted_source(table)} with --domain; 'sfumato domain draft' drafts one"
        )
    place = Path(path)
    if not place.name:
        raise InputError(f"{table or 'an empty name'} is no table; name its file or its folder", culprit=table)
    near = place.with_suffix(".yaml")
    if not near.is_file():
        raise InputError(f"describe {table} first: sfumato domain draft {table} --out {near.name}", culprit=table)
    return near


def report(release: Anonymized, out: Path, *, as_json: bool) -> None:
    """Print the facts of a release."""
    from sfumato.anonymize import DistinctDiversity

    facts = release.facts
    print_message(f"Wrote {pluralize(facts['rows'] - facts['suppressed'], 'row')} to {out}.")
    print_message(f"{facts['suppressed']:,} of {facts['rows']:,} rows are suppressed.")
    if facts["left_out"]:
        print_message(f"{facts['left_out']:,} of them were left out by the domain, which drops one of their values.")
    if facts["over_bound"]:
        print_message(
            f"{facts['over_bound']:,} of them are beyond the rows that the domain allows one unit, or have no id."
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
    lines = [f"Guarantee: {release.guarantee}", f"Classes: {facts['classes']}, the smallest of {smallest}"]
    if "certificate" in facts:
        lines.append(_certificate(facts["certificate"]))
    if facts.get("search", {}).get("stopped"):
        lines.append(
            f"Search: stopped after {facts['search']['seconds']:g} s; more time may find classes that lose less"
        )
    value = {"out": str(out), "facts": dict(facts), **_in_short(release.statement())}
    result(value, "\n".join([*lines, columns(losses)]), as_json=as_json)


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


def apply(
    recoding: Annotated[Path, typer.Argument(help="Recoding that 'sfumato anonymize --recoding' saved.")],
    table: Annotated[str, typer.Argument(help="New rows: CSV or Parquet file, or the URL of a table.")],
    out: RecodedRowsOption,
    keep: KeepOption = "",
    keep_anyway: KeepAnywayOption = None,
    domain: NearDomainOption = None,
    *,
    rows_of: ViewOptions,
    journal: LedgerOptions,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Recode new rows by a saved recoding.  Classes that are too small among the new rows are suppressed."""
    from sfumato import anonymize as methods
    from sfumato.app.api.releases import kept_columns

    ready(out, overwrite=overwrite)
    refuse_raw(rows_of.view, [*names(keep), *(keep_anyway or [])])
    source = _source(table, domain, rows_of, journal)
    refuse_clashes([out], inputs=[recoding, rows_of.view, *source.files()], overwrite=overwrite)
    saved = methods.load_recoding(recoding)
    vault = source.vault(first=None)
    with working("Rewriting"):
        release = methods.apply(vault, saved, keep=kept_columns(names(keep), keep_anyway or []))
    release.write(out, overwrite=overwrite)
    report(release, out, as_json=as_json)


def risk(
    table: TableArgument,
    quasi: QuasiOption,
    domain: UnitDomainOption = None,
    *,
    rows_of: ViewOptions,
    count: CountOptions = CountOption.UNITS,
    threshold: Annotated[float, typer.Option(help="A unit (or row) is at risk when its risk is above this.")] = 0.2,
    population_table: Annotated[
        str | None, typer.Option(help="A larger table with the same columns, for the journalist.")
    ] = None,
    population: PopulationOption = None,
    csv: CsvOptions,
    as_json: JsonOption = False,
) -> None:
    """Say how likely a match by quasi-identifiers is right, before or after anonymization.

    The figures are exact: they are for the owner of the table.
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
            f"\nPopulation uniques: about {uniques.believed:.6g}, by {uniques.model.title()}'s model: {uniques.why}."
            f"\nBoth models: {uniques.zayatz:.6g} (Zayatz), {uniques.pitman:.6g} (Pitman)"
        )
    return text


def unit_column(table: str, domain: Path | None, view: TableView | None) -> str | None:
    """Return the column that names units: from the view, the given domain, or the YAML file named like the table."""
    from sfumato.domain import load
    from sfumato.engine.open import file_path

    if view is not None:
        return view.domain.unit.column
    if domain is not None:
        return load(domain).unit.column
    path = file_path(table)
    near = Path(path or "")
    if path is None or not near.name or not near.with_suffix(".yaml").is_file():
        return None
    return load(near.with_suffix(".yaml")).unit.column


def has_column(table: object, name: str) -> bool:
    """Return whether a table has a column of this name."""
    from sfumato.engine.open import open_table

    return any(column.name == name for column in open_table(table).schema())


@hierarchies.command("draft")
def draft_hierarchy(
    domain: Annotated[Path, typer.Argument(help="Domain, a YAML file.")],
    attributes: Annotated[list[str], typer.Argument(help="Attributes to draft a hierarchy for.")],
    out: Annotated[Path | None, typer.Option(help="Folder for one file an attribute; standard output without.")] = None,
    overwrite: OverwriteOption = False,
) -> None:
    """Draft hierarchies from the declared domain, for their owner to edit.  No row is read."""
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
    attribute: Annotated[str | None, typer.Option(help="Attribute, where the file is not named after it.")] = None,
    domain: Annotated[Path | None, typer.Option(help="Also check that it covers the declared values.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Check that a hierarchy nests, misses no value and has one top."""
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
