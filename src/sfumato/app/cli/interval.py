"""``sfumato interval``: what a saved synthetic release says about one question, and how sure that is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.app.cli.conventions import JsonOption, result
from sfumato.errors import InputError

if TYPE_CHECKING:
    from sfumato.domain import Domain
    from sfumato.query import Query, Share
    from sfumato.synthesize import Synthetic, SyntheticFile


def interval(
    release: Annotated[
        Path,
        typer.Argument(
            metavar="RELEASE", help="Synthetic rows, .parquet or .arrow, or the model that was saved with --model."
        ),
    ],
    statement: Annotated[
        str, typer.Argument(metavar="SELECT", help="One COUNT, SUM or AVG of the synthetic table, without GROUP BY.")
    ],
    among: Annotated[
        str | None, typer.Option(help="Ask for the share of the rows counted among those that meet this condition.")
    ] = None,
    minus: Annotated[
        str | None, typer.Option(help="Another such SELECT: ask for the difference of the two answers.")
    ] = None,
    minus_among: Annotated[
        str | None, typer.Option(help="The same as --among, for the answer of --minus that is taken away.")
    ] = None,
    half_width: Annotated[
        str | None, typer.Option(help="Of a direct answer, for its price where there is no interval.")
    ] = None,
    confidence: Annotated[str, typer.Option(help="With which the interval holds.")] = "0.95",
    as_json: JsonOption = False,
) -> None:
    """Say what a synthetic release tells about one question, with an interval where what it measured allows one.

    Name the question before you look at the rows.  It costs nothing: everything is read off the released file, which
    carries its noisy tables, or off the saved model.
    """
    from sfumato.query import interval as of_release
    from sfumato.synthesize.codebook.codebook import printable
    from sfumato.synthesize.synthetic import STATED_BY_A_FILE

    if minus_among is not None and minus is None:
        raise InputError("--minus-among belongs to --minus")
    asked_of = _read(release)
    domain = asked_of.model.domain
    found = of_release(
        asked_of,
        _asked(statement, among, domain),
        minus=None if minus is None else _asked(minus, minus_among, domain),
        half_width=half_width,
        confidence=confidence,
    )
    notes = "".join(f"\nNote: {remark}" for remark in found.remarks)
    text = f"{found}\nCost: nothing\nGuarantee: {printable(asked_of.guarantee)}\n{STATED_BY_A_FILE}{notes}"
    result({**found.to_json(), "trust": STATED_BY_A_FILE}, text, as_json=as_json)


def _read(path: Path) -> SyntheticFile | Synthetic:
    """The released rows with their noisy tables, or the saved model.

    Raises:
        InputError: it is neither.
    """
    kind = path.suffix.lower()
    if kind in (".parquet", ".arrow"):
        from sfumato.synthesize.released_file import read_release

        return read_release(path)
    if kind == ".csv":
        raise InputError(f"{path} is text without the noisy tables: ask of the .parquet file, or of the saved model")
    from sfumato.synthesize.synthetic import load

    return load(path)


def _asked(statement: str, among: str | None, domain: Domain) -> Query | Share | str:
    """The statement, or the share that it counts.

    Raises:
        QueryError: the statement cannot be read.
        InputError: a share of what is no count of rows.
    """
    if among is None:
        return statement
    from sfumato.query import Count, Share
    from sfumato.query.statements.select_statement import parse

    query = parse(statement, domain)
    if query.aggregates != (Count(),) or query.by or query.where is None:
        raise InputError("a share is asked as SELECT COUNT(*) with a WHERE, without GROUP BY")
    return Share(query.where, among)
