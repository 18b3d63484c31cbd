"""``sfumato evaluate --schema``: a release of linked tables, compared with the protected tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sfumato.app.cli.output import (
    columns,
    exact_result,
    print_message,
    refuse_clashes,
    working,
)
from sfumato.errors import InputError, percent, pluralize
from sfumato.extras import require

if TYPE_CHECKING:
    from sfumato.evaluate.linked.linked_evaluation import LinkedResult
    from sfumato.evaluate.linked.table_tree import RowsRead


@dataclass(frozen=True, kw_only=True)
class TablesToJudge:
    """A release of linked tables to judge, and its options."""

    real: str
    releases: Sequence[Path]
    schema: Path
    holdout: str | None
    claims: Sequence[str]
    orders: Sequence[str]
    out: Path | None
    seed: int
    internal: bool


def evaluate_tables(given: TablesToJudge, *, overwrite: bool, as_json: bool) -> None:
    """Judge a folder of linked tables, and write a page if ``out`` is given."""
    from sfumato.domain.table_schema import load_schema
    from sfumato.evaluate.linked.linked_evaluation import judge_linked_tables
    from sfumato.evaluate.linked.table_tree import orders, read_table_tree
    from sfumato.evaluate.released import parse_claim
    from sfumato.evaluate.stated_claims import claim_of_folder, stated_orders

    if len(given.releases) != 1 or len(given.claims) > 1:
        raise InputError("with --schema one release is judged at a time: a folder with a file for each table")
    (folder,) = given.releases
    if given.out is not None:
        require("plots", "the page")
    if given.holdout is not None and Path(given.holdout).resolve() in (Path(given.real).resolve(), folder.resolve()):
        raise InputError(f"--holdout names others of the population, not {given.holdout} again", culprit=given.holdout)
    refuse_clashes([given.out], inputs=[given.real, folder, given.schema, given.holdout], overwrite=overwrite)
    schema = load_schema(given.schema)
    claim = claim_of_folder(folder, parse_claim(given.claims[0]) if given.claims else None)
    order = orders(schema, stated_orders(folder) | _given(given.orders))
    with working("Reading the tables"):
        release = read_table_tree(folder, schema, orders=order, only_files=True)
        names = [level.name for level in release.levels]
        real = read_table_tree(given.real, schema, orders=order, tables=names)
        controls = None if given.holdout is None else read_table_tree(given.holdout, schema, orders=order, tables=names)
    with working("Scoring"):
        judged = judge_linked_tables(real, release, claim=claim, controls=controls, seed=given.seed)
    _report_left_out(Path(given.real), judged.real)
    _report_left_out(folder, judged.released)
    _write_page(given, folder, judged, overwrite=overwrite)
    page = "" if given.out is None else f"\n\nPage: {given.out}"
    exact_result(_values(given, folder, judged), _text(judged) + page, as_json=as_json)


def _write_page(given: TablesToJudge, folder: Path, judged: LinkedResult, *, overwrite: bool) -> None:
    """Write the page of the evaluation; nothing without ``out``."""
    from sfumato.report.linked_tables_page import linked_evaluation_page
    from sfumato.report.page import render_interactive
    from sfumato.vault.release import save_text

    if given.out is not None:
        page = linked_evaluation_page(f"Evaluation of {folder.name}", judged, internal=given.internal)
        save_text(given.out, render_interactive(page), overwrite=overwrite)


def _values(given: TablesToJudge, folder: Path, judged: LinkedResult) -> dict[str, Any]:
    """Return the result as JSON values, with the verdicts and the hash that a sign-off page needs."""
    from sfumato.evaluate.verdicts import risk_verdicts
    from sfumato.synthesize.linked.linked_codebook import digest_of_folder

    page = {} if given.out is None else {"page": str(given.out)}
    verdicts = [{"release": folder.name} | each.to_json() for each in risk_verdicts(judged)]
    evaluated = {"verdicts": verdicts, "files": {folder.name: digest_of_folder(folder)}}
    return judged.to_json(internal=given.internal) | page | evaluated


def _given(orders: Sequence[str]) -> dict[str, str]:
    parts = [text.partition("=")[::2] for text in orders]
    for text, (name, by) in zip(orders, parts, strict=True):
        if not name or "=" not in text:
            raise InputError(f"{text!r} is no order: say TABLE=COLUMN, or TABLE=COLUMN:falling", culprit=by)
    return dict(parts)


def _report_left_out(folder: Path, tables: Mapping[str, RowsRead]) -> None:
    """Report which rows of each table are not judged, and why."""
    for name, read in tables.items():
        if read.judged < read.rows:
            print_message(
                f"{folder.name}/{name}: of {pluralize(read.rows, 'row')} these are not judged: {_left_out(read)}."
            )


def _left_out(read: RowsRead) -> str:
    words = {
        "undeclared": "with a cell that is not declared",
        "repeated": "with a key that was seen before",
        "ownerless": "without a parent",
        "beyond": "beyond the most of a parent",
    }
    return ", ".join(f"{number:,} {text}" for name, text in words.items() if (number := getattr(read, name)))


def _text(judged: LinkedResult) -> str:
    lines = []
    for edge in judged.edges:
        rows: list[dict[str, Any]] = [{"families": name, **asdict(each.scores)} for name, each in edge.compared.items()]
        text = f"{edge.parents} with {edge.children}: share in a wrong cell, on average\n{columns(rows)}"
        if edge.copies is not None:
            text += (
                f"\nOf families of three or more, {percent(edge.copies[0])} equal one of half of the real ones; of the "
                f"real ones of the other half {percent(edge.copies[1])} do."
            )
        lines.append(text)
    if judged.attacks:
        attacks = judged.to_json()["attacks"]
        lines.append(columns([{name: value for name, value in one.items() if "knows" not in name} for one in attacks]))
    else:
        lines.append("No attacks were made: they need others of the same population, by --holdout.")
    stated = "The release states no guarantee." if judged.claim is None else f"Stated guarantee: {judged.claim}."
    return "\n\n".join([*lines, stated])
