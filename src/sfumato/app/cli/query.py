"""Commands that answer questions: ``sfumato query`` of one table in SQL, ``sfumato serve`` over HTTP and on a page."""

from __future__ import annotations

import socket
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.app.cli.conventions import (
    AnalystOption,
    CreateOption,
    DatasetOption,
    DeltaOption,
    EpsilonOption,
    JsonOption,
    LedgerOption,
    LimitOption,
    OneDomainOption,
    OverwriteOption,
    RhoOption,
    Source,
    TableArgument,
    columns,
    database,
    domain_or_schema,
    refuse_clashes,
    remark,
    remark_log,
    result,
    working,
)
from sfumato.app.cli.schema_options import (
    PerOption,
    SchemaOption,
    UnitRowsOption,
    ViewOption,
    other_bounds,
    read_schema,
    read_view,
    refuse_without_schema,
)
from sfumato.errors import InputError, counted
from sfumato.extras import require

if TYPE_CHECKING:
    from sfumato.domain import Domain
    from sfumato.domain.table_schema import Schema
    from sfumato.privacy.loss import Loss
    from sfumato.query import Answer
    from sfumato.query.aggregate import Expected
    from sfumato.query.question import Query
    from sfumato.query.table_statement import TableStatement
    from sfumato.vault.vault import Vault

_SAMPLE = "children"
_SAMPLE_LIMIT = "10"

Statement = Annotated[str, typer.Argument(help="SELECT statement; FROM takes any name for the table.")]


def query(
    table: TableArgument,
    statement: Statement,
    domain: OneDomainOption = None,
    schema: SchemaOption = None,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    rho: RhoOption = None,
    accuracy: Annotated[
        bool, typer.Option("--accuracy", help="Only say how wrong the answers would be at this loss; spends nothing.")
    ] = False,
    cost: Annotated[
        str | None,
        typer.Option(
            help="Only say which epsilon keeps every answer within this distance (of a quantile: this many rows of "
            "rank); spends nothing."
        ),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Rows to suppose in each group, for the error of means and variances.")
    ] = None,
    unit_rows: UnitRowsOption = None,
    per: PerOption = None,
    confidence: Annotated[str, typer.Option(help="Confidence of the intervals.")] = "0.95",
    discover: Annotated[
        list[str] | None,
        typer.Option(help="Column outside the domain whose values may be found in the data; needs --delta."),
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="Make counts non-negative integers, and say so.")] = False,
    truncation: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Also count, with noise and for a part of the loss, the rows that the bound on rows of a unit leaves "
            "out: at most so many of one unit.",
        ),
    ] = None,
    ledger: LedgerOption = None,
    dataset: DatasetOption = "default",
    limit: LimitOption = None,
    create: CreateOption = False,
    analyst: AnalystOption = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File for the answers, .parquet, .csv or .arrow, instead of printing them: for many groups."),
    ] = None,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Answer a SELECT under differential privacy, or say beforehand what it would cost and how wrong it would be.

    A question that was answered before at the same loss returns its stored answer and costs nothing.  With --schema the
    statement joins several tables of a folder or a database.
    """
    from sfumato.app.requests.fields import LossFields, filled
    from sfumato.app.requests.queries import AskRequest, CostRequest
    from sfumato.privacy.loss import plain
    from sfumato.query import drowned_queries
    from sfumato.vault.release import ReleasedRows, writable

    refuse_without_schema(schema, unit_rows=unit_rows is not None, per=bool(per))
    tables = None if schema is None else _of_tables(schema, statement, discover, rows=unit_rows, per=per)
    described = _domain(domain, schema) if tables is None else tables.asked.view.domain
    loss = filled(LossFields, {"epsilon": epsilon, "delta": delta, "rho": rho})
    asked = {"sql": statement, "confidence": confidence, "truncation": truncation}
    request = filled(AskRequest, asked | {"loss": loss, "whole": whole})
    parsed = request.read(described, tuple(discover or ())) if tables is None else tables.query(truncation)
    if unused := [name for name in discover or () if name not in parsed.discovered]:
        raise InputError(
            f"--discover names columns outside the domain that the statement groups by, and {unused[0]!r} is none"
        )
    if cost is not None or accuracy:
        _refuse_unused(
            limit=limit is not None, create=create, analyst=analyst is not None, whole=whole, out=out is not None
        )
    if cost is not None:
        if accuracy or any(part is not None for part in (epsilon, delta, rho)):
            raise InputError(
                "--cost says which loss is needed; ask it without --accuracy, --epsilon, --delta and --rho"
            )
        wanted = filled(CostRequest, asked | {"error": cost, "rows": rows})
        found = wanted.foresee(described, parsed, rows=None, more="suppose more with --rows, and it is cheaper")
        assert found.cost is not None
        text = f"{found.cost} keeps every answer within {cost}, each with probability {confidence}."
        value = {"epsilon": plain(found.cost.value), "confidence": confidence, "notes": found.notes}
        result(value, "\n".join([text, *found.notes]), as_json=as_json)
        return
    if accuracy:
        wanted = filled(CostRequest, asked | {"loss": loss, "rows": rows})
        found = wanted.foresee(described, parsed, rows=None, more="suppose more with --rows, and the error is smaller")
        meaning = f"Each answer is within its half-width with probability {confidence}."
        errors = {
            "expected": [asdict(each) for each in found.expected],
            "confidence": confidence,
            "notes": found.notes,
        }
        lines = columns([_line(each) for each in found.expected])
        result(errors, "\n".join([lines, "", meaning, *found.notes]), as_json=as_json)
        return
    first = loss.loss()
    if rows is not None:
        raise InputError("--rows supposes rows for --cost and --accuracy; an answer does not need them")
    for warning in drowned_queries(described, parsed, first):
        remark(f"Before it is charged: {warning}.")
    source = Source(
        table=table,
        domain=domain_or_schema(domain, schema),
        ledger=ledger,
        dataset=dataset,
        limit=limit,
        create=create,
        analyst=analyst,
    )
    if out is not None:
        writable(out, overwrite=overwrite)
        refuse_clashes([out], inputs=source.files(), overwrite=overwrite)
    vault = source.vault(first=first, described=described) if tables is None else tables.vault(source, first)
    with working("Asking"):
        answer = _arranged(request.answer(vault, parsed), tables)
    if out is None:
        _print(answer, as_json=as_json)
        return
    ReleasedRows(answer.to_arrow()).write(out, overwrite=overwrite)
    written = {"out": str(out), "groups": list(answer.groups), "columns": list(answer.columns), "rows": len(answer)}
    stated = {"confidence": float(answer.confidence), **answer.said()}
    result(written | stated, f"Wrote {out}: {counted(len(answer), 'row')}.\n{_meaning(answer)}", as_json=as_json)


@dataclass(frozen=True)
class _Tables:
    """A statement over several tables, and their schema."""

    schema: Schema
    asked: TableStatement

    def query(self, truncation: int | None) -> Query:
        """What is asked of the view, with what its bounds leave out where that is asked for."""
        return replace(self.asked.query, truncation=truncation).check(self.asked.view.domain)

    def vault(self, source: Source, first: Loss) -> Vault:
        """Of the view."""
        return source.schema(self.schema, first=first).over(self.asked.view)


def _domain(domain: Path | None, schema: Path | None) -> Domain:
    """The domain of one table."""
    from sfumato.domain import load

    return load(domain_or_schema(domain, schema))


def _arranged(answer: Answer, tables: _Tables | None) -> Answer:
    """What HAVING, ORDER BY and LIMIT leave of it."""
    return answer if tables is None else tables.asked.arranged.of(answer)


def _of_tables(
    schema: Path, statement: str, discover: list[str] | None, *, rows: int | None, per: list[str] | None
) -> _Tables:
    """Read a statement over the tables of a schema, under its bounds or others."""
    from sfumato.query.table_statement import parse_tables

    if discover:
        raise InputError("of several tables no values are found in the data: declare them in the schema")
    described = read_schema(schema)
    asked = parse_tables(statement, described)
    bounds = other_bounds(asked.view.unit, rows=rows, per=per)
    return _Tables(described, asked if bounds == asked.view.unit else parse_tables(statement, described, bounds=bounds))


def _print(answer: Answer, *, as_json: bool) -> None:
    for piece in answer.json_text() if as_json else [_text(answer)]:
        typer.echo(piece, nl=False)
    typer.echo()


def _refuse_unused(**given: bool) -> None:
    """Refuse options of an answer where nothing is answered."""
    if unused := [f"--{name}" for name, is_given in given.items() if is_given]:
        raise InputError(f"--cost and --accuracy answer nothing, so they take no {' and no '.join(unused)}")


def _line(expected: Expected) -> dict[str, Any]:
    measures = {"units": "", "rank": "rows of rank", "row": "divided by the rows of a group"}
    return {
        "answer": expected.name,
        "standard error": expected.standard_error,
        "half-width": expected.half_width,
        "in": measures[expected.measure] or "-",
    }


def _text(answer: Answer) -> str:
    lines = [
        dict(zip(answer.groups, key, strict=True))
        | {name: str(value) for name, value in zip(answer.columns, values, strict=True)}
        for key, values in zip(answer.keys, answer.values, strict=True)
    ]
    return f"{columns(lines)}\n\n{_meaning(answer)}"


def _meaning(answer: Answer) -> str:
    said = [*answer.remarks, *([] if answer.truncation is None else [str(answer.truncation)])]
    remarks = "".join(f"\nNote: {each}" for each in said)
    sure = f"Intervals hold the exact answer{answer.of} with probability {float(answer.confidence):g}, each on its own."
    return f"{sure}\nGuarantee: {answer.guarantee}\nCost: {answer.cost}{remarks}"


def regress(
    table: TableArgument,
    outcome: Annotated[str, typer.Argument(help="What is explained: an attribute of numbers, or a condition.")],
    by: Annotated[
        list[str], typer.Option(help="An attribute of numbers, or a condition such as \"sex = 'F'\"; several times.")
    ],
    domain: OneDomainOption = None,
    schema: SchemaOption = None,
    view: ViewOption = None,
    unit_rows: UnitRowsOption = None,
    per: PerOption = None,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    rho: RhoOption = None,
    confidence: Annotated[str, typer.Option(help="Confidence of the intervals.")] = "0.95",
    ledger: LedgerOption = None,
    dataset: DatasetOption = "default",
    limit: LimitOption = None,
    create: CreateOption = False,
    analyst: AnalystOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain an outcome by inputs, by linear regression under differential privacy, with intervals.

    Intervals count the noise, and those of a population the sample as well.  The same question at the same loss returns
    its stored answer and costs nothing.
    """
    from sfumato.app.requests.fields import LossFields, filled
    from sfumato.query import linear_regression

    loss = filled(LossFields, {"epsilon": epsilon, "delta": delta, "rho": rho}).loss()
    source = Source(
        table=table,
        domain=domain_or_schema(domain, schema),
        ledger=ledger,
        dataset=dataset,
        limit=limit,
        create=create,
        analyst=analyst,
        view=read_view(schema, view, rows=unit_rows, per=per),
    )
    vault = source.vault(first=loss)
    with working("Measuring"):
        found = linear_regression(vault, outcome, by, loss=loss, confidence=confidence)
    lines = [
        {"of": each.variable, "table": str(each.table), "population": str(each.population or "-")}
        for each in found.coefficients
    ]
    sure = f"Intervals hold with probability {float(found.confidence):g}, each on its own."
    notes = "".join(f"\nNote: {each}" for each in found.remarks)
    text = f"{columns(lines)}\n\n{sure}\nGuarantee: {found.guarantee}\nCost: {found.cost}{notes}"
    result(found.to_json(), text, as_json=as_json)


def serve(
    ledger: Annotated[str, typer.Option(help="Ledger: a SQLite file, or a database URL.")] = "sfumato.ledger",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on.")] = 8000,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Worker processes.")] = 1,
    create: Annotated[bool, typer.Option("--create", help="Begin the ledger; only where there is none.")] = False,
    sample: Annotated[bool, typer.Option("--sample/--no-sample", help="Register a bundled public table.")] = True,
    link: Annotated[
        bool, typer.Option("--link/--no-link", help="Print a steward's link where there is no steward.")
    ] = True,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            help="A folder, or HOST or HOST:PORT of a database, whose tables may be registered; several times. "
            "Without, anything that this server can read may."
        ),
    ] = None,
    rate: Annotated[
        int, typer.Option(min=0, help="Requests a minute that a worker takes of one key; 0 for any number.")
    ] = 3000,
) -> None:
    """Serve datasets: HTTP, and a page for stewards and analysts.

    While nobody holds a steward's key, it prints a link that opens the page for a steward, once and within an hour;
    links that were printed before end.  'sfumato key issue' makes keys without the page.
    """
    require("server", "the server")
    import os
    import tempfile

    from sfumato.app.http.admission import TablePlaces
    from sfumato.app.http.asgi import LEDGER, PLACES, RATE
    from sfumato.app.http.processes import SHARED, run
    from sfumato.app.http.service import begin, first_link, register_sample

    port = _free(host, port)  # before anything is made or shown that would be of no use
    url = database(ledger)
    if create:
        begin(url)
    remark_log(url)
    if sample:
        folder = Path(ledger).parent if "://" not in ledger else Path()
        if not register_sample(url, _SAMPLE, _SAMPLE_LIMIT, folder):
            remark(f"The bundled table is not registered: {folder / _SAMPLE}.parquet is a file of yours.")
    entrance = first_link(url, f"http://{host}:{port}") if link else None
    remark(f"Serving at http://{host}:{port}")
    if entrance is not None:
        remark(f"Steward, once and within an hour: {entrance}")
    with tempfile.TemporaryDirectory(prefix="sfumato-metrics-") as shared:
        os.environ |= {LEDGER: url, PLACES: TablePlaces(tuple(tables or ())).to_json(), RATE: str(rate)}
        if workers > 1:  # a single worker is this process, which counts in its own memory
            os.environ[SHARED] = shared
        run("sfumato.app.http.asgi:application", host=host, port=port, workers=workers)


def _free(host: str, port: int) -> int:
    """The port, or any free one for 0.

    Raises:
        InputError: this machine has no such address, or another program listens there.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as found:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server does
            found.bind(address)
            return int(found.getsockname()[1])
    except OSError as error:
        reason = error.strerror or "the address cannot be used"
        raise InputError(
            f"cannot listen on {host} port {port}: {reason}; choose another by --port", culprit=port
        ) from None
