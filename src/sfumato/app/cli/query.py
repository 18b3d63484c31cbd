"""Commands that answer questions: ``sfumato query`` in SQL, ``sfumato regress``."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    other_bounds,
    read_schema,
    read_view,
    refuse_without_schema,
)
from sfumato.app.cli.output import (
    columns,
    refuse_clashes,
    remark,
    result,
    working,
)
from sfumato.errors import InputError, QueryError, counted

if TYPE_CHECKING:
    from sfumato.domain import Domain
    from sfumato.domain.table_schema import Schema
    from sfumato.privacy.loss import Loss
    from sfumato.query import Answer
    from sfumato.query.aggregates import ExpectedError
    from sfumato.query.question import Query
    from sfumato.query.statements.table_statement import TableStatement
    from sfumato.vault.vault import Vault

_PLACE = r"^line \d+, column \d+: "  # in a statement that has nothing wrong

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
    new_version: NewVersionOption = False,
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
    from sfumato.app.api.questions import AskRequest, CostRequest, LossFields, filled
    from sfumato.privacy.loss import plain
    from sfumato.query import ask, low_signal_warnings
    from sfumato.vault.release import writable

    refuse_without_schema(schema, unit_rows=unit_rows is not None, per=bool(per))
    tables = None if schema is None else _of_tables(schema, statement, discover, rows=unit_rows, per=per)
    described = _domain(domain, schema) if tables is None else tables.asked.view.domain
    loss = filled(LossFields, {"epsilon": epsilon, "delta": delta, "rho": rho})
    asked = {"sql": statement, "confidence": confidence, "truncation": truncation}
    request = filled(AskRequest, asked | {"loss": loss, "whole": whole})
    parsed = request.read(described, tuple(discover or ())) if tables is None else tables.query(truncation)
    if unused := [name for name in discover or () if name not in parsed.data_dependent_groups]:
        raise InputError(
            f"--discover names columns outside the domain that the statement groups by, and {unused[0]!r} is none"
        )
    if cost is not None or accuracy:
        _refuse_unused(
            **{"new-version": new_version},
            limit=limit is not None,
            create=create,
            analyst=analyst is not None,
            whole=whole,
            out=out is not None,
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
    for warning in low_signal_warnings(described, parsed, first):
        remark(f"Before it is charged: {warning}.")
    source = Source(
        table=table,
        domain=domain_or_schema(domain, schema),
        ledger=ledger,
        dataset=dataset,
        limit=limit,
        create=create,
        new_version=new_version,
        analyst=analyst,
        charge=first.charge,
    )
    if out is not None:
        writable(out, overwrite=overwrite)
        refuse_clashes([out], inputs=source.files(), overwrite=overwrite)
    vault = source.vault(first=first, described=described) if tables is None else tables.vault(source, first)
    with working("Asking"):
        answer = _arranged(request.rounded(ask(vault, parsed, loss=first, confidence=request.confidence)), tables)
    if out is None:
        _print(answer, as_json=as_json)
        return
    answer.released_rows().write(out, overwrite=overwrite)
    written = {"out": str(out), "groups": list(answer.groups), "columns": list(answer.columns), "rows": len(answer)}
    stated = {"confidence": float(answer.confidence), **answer.statement_json()}
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
    return answer if tables is None else tables.asked.ordering.apply(answer)


def _of_tables(
    schema: Path, statement: str, discover: list[str] | None, *, rows: int | None, per: list[str] | None
) -> _Tables:
    """Read a statement over the tables of a schema, under its bounds or others."""
    from sfumato.query.statements.table_statement import parse_tables

    if discover:
        raise InputError("of several tables no values are found in the data: declare them in the schema")
    described = read_schema(schema)
    asked = parse_tables(statement, described)
    bounds = other_bounds(asked.view.unit, rows=rows, per=per)
    if bounds != asked.view.unit:
        try:
            asked = parse_tables(statement, described, bounds=bounds)
        except QueryError as error:  # the statement was read above: what is wrong are the bounds
            raise InputError(
                f"--unit-rows or --per does not fit: {re.sub(_PLACE, '', str(error))}", culprit=error.culprit
            ) from None
    return _Tables(described, asked)


def _print(answer: Answer, *, as_json: bool) -> None:
    from sfumato.query.answer import json_pieces

    for piece in (each.decode() for each in json_pieces(answer, indent=2)) if as_json else [_text(answer)]:
        typer.echo(piece, nl=False)
    typer.echo()


def _refuse_unused(**given: bool) -> None:
    """Refuse options of an answer where nothing is answered."""
    if unused := [f"--{name}" for name, is_given in given.items() if is_given]:
        raise InputError(f"--cost and --accuracy answer nothing, so they take no {' and no '.join(unused)}")


def _line(expected: ExpectedError) -> dict[str, Any]:
    measures = {"units": "", "rank": "rows of rank", "row": "divided by the rows of a group"}
    return {
        "answer": expected.name,
        "standard error": float(f"{expected.standard_error:.3g}"),
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
    probability = f"{float(answer.confidence):g}"
    sure = f"Intervals hold the exact answer{answer.table_phrase} with probability {probability}, each on its own."
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
    new_version: NewVersionOption = False,
    analyst: AnalystOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain an outcome by inputs, by linear regression under differential privacy, with intervals.

    Intervals count the noise, and those of a population the sample as well.  The same question at the same loss returns
    its stored answer and costs nothing.
    """
    from sfumato.app.api.questions import LossFields, filled
    from sfumato.query import linear_regression

    loss = filled(LossFields, {"epsilon": epsilon, "delta": delta, "rho": rho}).loss()
    source = Source(
        table=table,
        domain=domain_or_schema(domain, schema),
        ledger=ledger,
        dataset=dataset,
        limit=limit,
        create=create,
        new_version=new_version,
        analyst=analyst,
        charge=loss.charge,
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
