"""``sfumato synthesize`` and ``sfumato sample``: release a synthetic table, and draw more rows of its saved model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.app.cli.conventions import (
    AnalystOption,
    CreateOption,
    DatasetOption,
    DeltaOption,
    DomainOption,
    EpsilonOption,
    JsonOption,
    LedgerOption,
    LimitOption,
    OverwriteOption,
    RhoOption,
    Source,
    TableArgument,
    refuse_clashes,
    remark,
    result,
    working,
)
from sfumato.app.requests.methods import SynthesisMethod
from sfumato.errors import InputError
from sfumato.extras import require

if TYPE_CHECKING:
    from sfumato.domain import Domain
    from sfumato.synthesize.synthetic import Synthetic

_MOST_LISTED = 20
_NO_COMBINING = (
    "Copies differ by what drawing adds and by nothing else: combining rules for several copies, such as Rubin's, are "
    "not valid here, as they count neither the noise nor what the model leaves out; 'sfumato interval' gives intervals."
)

SyntheticRowsOption = Annotated[Path, typer.Option("--out", help="Where to write the rows: .parquet, .csv or .arrow.")]
MethodOption = Annotated[SynthesisMethod, typer.Option("--method", help="How; auto takes the least expected error.")]


def synthesize(
    table: TableArgument,
    domain: DomainOption,
    out: SyntheticRowsOption,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    rho: RhoOption = None,
    method: MethodOption = SynthesisMethod.AUTO,
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
            help="Number of rows, where it is public; without, it comes from what is measured, of which aim, annealed "
            "and mst spend half a percent on a rough count, and mwem a twentieth on a better one.",
        ),
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Queries that mwem measures; 30, or all if fewer, without.")
    ] = None,
    zeros: Annotated[
        Path | None, typer.Option(help="Impossible combinations, a YAML file, for aim, annealed and mst.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Also write a report page.")] = None,
    model: Annotated[Path | None, typer.Option(help="Also save the model, for 'sfumato sample'.")] = None,
    ledger: LedgerOption = None,
    dataset: DatasetOption = "default",
    limit: LimitOption = None,
    create: CreateOption = False,
    analyst: AnalystOption = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Release a synthetic table under differential privacy."""
    from sfumato.app.requests.fields import LossFields, filled
    from sfumato.app.requests.releases import SynthesizeRequest
    from sfumato.synthesize import NoisyTotal, PublicTotal, drowned_totals
    from sfumato.synthesize.product import refuse_large
    from sfumato.vault.release import save_text, writable

    spent = filled(LossFields, {"epsilon": epsilon, "delta": delta, "rho": rho})
    loss = spent.loss()
    if html is not None:
        require("plots", "--html")
    cliques = [[name.strip() for name in clique.split(",")] for clique in marginals or ()]
    asked = {"method": method, "loss": spent, "marginals": cliques, "way": way, "rows": rows, "rounds": rounds}
    request = filled(SynthesizeRequest, asked | {"zeros": zeros})
    request.refuse_unused()
    writable(out, overwrite=overwrite)
    source = Source(
        table=table, domain=domain, ledger=ledger, dataset=dataset, limit=limit, create=create, analyst=analyst
    )
    refuse_clashes([out, html, model], inputs=[*source.files(), zeros], overwrite=overwrite)
    vault = source.vault(first=loss)
    if rows is not None:
        refuse_large(rows, len(vault.domain))
    for warning in drowned_totals(vault.domain, loss, NoisyTotal() if rows is None else PublicTotal(rows)):
        remark(f"Before it is charged: {warning}.")
    with working("Measuring and fitting"):
        release = request.release(vault)
        sample = release.rows
    sample.write(out, overwrite=overwrite)
    if model is not None:
        from sfumato.synthesize.synthetic import save

        save(release, model, overwrite=overwrite)
        remark(f"Wrote the model {model}.")
    if html is not None:
        from sfumato.report.page import release_page, render

        save_text(html, render(release_page(f"Synthetic table {out.name}", release)), overwrite=overwrite)
        remark(f"Wrote the page {html}.")
    remark(f"Wrote {len(sample):,} rows to {out}.")
    if not len(sample):
        remark(
            "The noisy number of rows came to 0: the table is small beside its noise at this loss, or few of its rows "
            "fit the domain, which 'sfumato domain check DOMAIN --table TABLE' shows to the owner only."
        )
    result({"out": str(out), "rows": len(sample), **release.statement()}, _told(release), as_json=as_json)


def _told(release: Synthetic) -> str:
    chosen = "".join(f"\n  {option}" for option in release.provenance.get("chosen_among", ()))
    errors = "".join(f"\n  {name}: {value:.4g}" for name, value in release.expected_error.items())
    return (
        f"Method: {release.provenance['method']}"
        + (f"\nChosen without the data, by the least expected error, among:{chosen}" if chosen else "")
        + f"\nGuarantee: {release.guarantee}\nCost: {release.cost}\nExpected error:{errors}"
    )


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
            "For models of aim, annealed and mst."
        ),
    ] = None,
    copies: Annotated[
        int | None, typer.Option(min=1, max=100, help="So many files, NAME-1 and so on, each drawn by itself.")
    ] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Draw rows from a saved model: they cost nothing, and say nothing that the model does not."""
    from sfumato.synthesize.synthetic import load
    from sfumato.vault.release import writable

    files = [out] if copies is None else [out.with_stem(f"{out.stem}-{number}") for number in range(1, copies + 1)]
    for file in files:
        writable(file, overwrite=overwrite)
    refuse_clashes(files, inputs=[model], overwrite=overwrite)
    release = load(model)
    drawing = _restricted(release, given) if given else release
    for file in files:
        with working("Sampling"):
            drawn = drawing.sample(rows)
        drawn.write(file, overwrite=overwrite)
        remark(f"Wrote {len(drawn):,} rows to {file}.")
    if copies is not None:
        remark(_NO_COMBINING)
    if not len(drawn):
        remark(
            "The model expects less than one such row"
            + (f" among its {release.model.total:,}" if given else "")
            + "; --rows draws as many as you ask for."
        )
    text = f"Guarantee: {release.guarantee}\nCost: nothing"
    written = {"out": str(out)} if copies is None else {"copies": [str(file) for file in files], "note": _NO_COMBINING}
    result({**written, "rows": len(drawn), "guarantee": release.guarantee}, text, as_json=as_json)


def _restricted(release: Synthetic, given: list[str]) -> Synthetic:
    from dataclasses import replace

    from sfumato.synthesize.graphical import Graphical

    if not isinstance(release.model, Graphical):
        raise InputError("--given needs a model of aim, annealed or mst; sample and filter the rows of other models")
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
        raise InputError(f"{name} has no cell {label!r}; it has {len(labels)}: {', '.join(few)}")
    return labels.index(label)
