"""``sfumato sample``: rows of a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.app.cli.output import Json, Overwrite, remark, result, working
from sfumato.app.cli.outputs import refuse_clashes
from sfumato.errors import InputError

if TYPE_CHECKING:
    from sfumato.domain import Domain
    from sfumato.synthesize.synthetic import Synthetic


_MOST_LISTED = 20


def sample(
    model: Annotated[Path, typer.Argument(help="Model that 'sfumato synthesize --model' saved.")],
    out: Annotated[Path, typer.Option(help="Where to write the rows: .parquet, .csv or .arrow.")],
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
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Draw rows from a saved model: they cost nothing, and say nothing that the model does not."""
    from sfumato.synthesize.saved import load
    from sfumato.vault.rows import writable

    writable(out, overwrite=overwrite)
    refuse_clashes([out], inputs=[model], overwrite=overwrite)
    release = load(model)
    with working("Sampling"):
        drawn = (_restricted(release, given) if given else release).sample(rows)
    drawn.write(out, overwrite=overwrite)
    remark(f"Wrote {len(drawn):,} rows to {out}.")
    if not len(drawn):
        remark(
            "The model expects less than one such row"
            + (f" among its {release.model.total:,}" if given else "")
            + "; --rows draws as many as you ask for."
        )
    text = f"Guarantee: {release.guarantee}\nCost: nothing"
    result({"out": str(out), "rows": len(drawn), "guarantee": release.guarantee}, text, as_json=as_json)


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
