"""Commands that answer questions: ``sfumato query`` in SQL, ``sfumato regress``."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.app.cli.options import (
    JsonOption,
    LedgerOptions,
    LossOptions,
    OneDomainOption,
    OverwriteOption,
    PerOption,
    SchemaOption,
    Source,
    TableArgument,
    UnitRowsOption,
    ViewOptions,
    database,
    domain_or_schema,
    other_bounds,
    read_schema,
    refuse_without_schema,
)
from sfumato.app.cli.output import columns, print_message, refuse_clashes, result, working
from sfumato.errors import InputError, QueryError, pluralize

if TYPE_CHECKING:
    from sfumato.app.api.questions import AskRequest
    from sfumato.domain import Domain
    from sfumato.domain.table_schema import Schema
    from sfumato.domain.view import BoundedView
    from sfumato.privacy.loss import Loss
    from sfumato.query import Answer
    from sfumato.query.aggregates import ExpectedError
    from sfumato.query.question import Query
    from sfumato.vault.vault import Vault

_PLACE = r"^line \d+, column \d+: "  # in a statement that has nothing wrong

ConfidenceOption = Annotated[str, typer.Option(help="Confidence of the intervals.")]
Statement = Annotated[str, typer.Argument(help="SELECT statement; FROM takes any name for the table.")]


@dataclass(frozen=True, kw_only=True)
class QueryOptions:
    """The options of ``sfumato query``."""

    table: TableArgument
    statement: Statement
    domain: OneDomainOption = None
    schema: SchemaOption = None
    loss: LossOptions
    accuracy: Annotated[
        bool, typer.Option("--accuracy", help="Only say how wrong the answers would be at this loss; spends nothing.")
    ] = False
    cost: Annotated[
        str | None,
        typer.Option(
            help="Only say which epsilon keeps every answer within this distance (of a quantile: this many rows of "
            "rank); spends nothing."
        ),
    ] = None
    rows: Annotated[
        int | None, typer.Option(min=1, help="Rows to suppose in each group, for the error of means and variances.")
    ] = None
    unit_rows: UnitRowsOption = None
    per: PerOption = None
    confidence: ConfidenceOption = "0.95"
    discover: Annotated[
        list[str] | None,
        typer.Option(help="Column outside the domain whose values may be found in the data; needs --delta."),
    ] = None
    whole: Annotated[bool, typer.Option("--whole", help="Make counts non-negative integers, and say so.")] = False
    truncation: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Also count, with noise and for a part of the loss, the rows that the bound on rows of a unit leaves "
            "out: at most so many of one unit.",
        ),
    ] = None
    journal: LedgerOptions
    out: Annotated[
        Path | None,
        typer.Option(help="File for the answers, .parquet, .csv or .arrow, instead of printing them: for many groups."),
    ] = None
    overwrite: OverwriteOption = False
    as_json: JsonOption = False

    def request(self) -> AskRequest:
        """Return the request, checked without its table."""
        from sfumato.app.api.questions import AskRequest, validate_fields

        return validate_fields(AskRequest, self.question() | {"loss": self.loss.fields(), "whole": self.whole})

    def question(self) -> dict[str, Any]:
        """Return the fields that the request of an answer and that of its cost share."""
        return {"sql": self.statement, "confidence": self.confidence, "truncation": self.truncation}

    def refuse_unknown(self, query: Query) -> None:
        """Refuse columns to discover that the statement does not group by."""
        if unused := [name for name in self.discover or () if name not in query.data_dependent_groups]:
            raise InputError(
                f"--discover names columns outside the domain that the statement groups by, and {unused[0]!r} is none"
            )

    def source(self, loss: Loss) -> Source:
        """Return the table and its ledger."""
        described = domain_or_schema(self.domain, self.schema)
        return Source(table=self.table, domain=described, journal=self.journal, charge=loss.charge)


def query(given: QueryOptions) -> None:
    """Answer a SELECT under differential privacy, or estimate its cost and its errors beforehand.

    A repeated question at the same loss returns its stored answer and costs nothing.  With --schema, the statement
    joins several tables of a folder or a database.
    """
    from sfumato.domain import Domain
    from sfumato.query import ask, low_signal_warnings
    from sfumato.vault.release import writable

    request = given.request()
    described, parsed, view = _statement(given, request)
    domain = view.domain if view is not None else described
    assert isinstance(domain, Domain)
    given.refuse_unknown(parsed)
    if given.cost is not None or given.accuracy:
        _preview(given, domain, parsed, _released_rows(given, domain, parsed) if view is None else ())
        return
    loss = request.loss.loss()
    if given.rows is not None:
        raise InputError("--rows supposes rows for --cost and --accuracy; an answer does not need them")
    for warning in low_signal_warnings(domain, parsed, loss):
        print_message(f"Before it is charged: {warning}.")
    source = given.source(loss)
    if given.out is not None:
        writable(given.out, overwrite=given.overwrite)
        refuse_clashes([given.out], inputs=source.files(), overwrite=given.overwrite)
    vault = _vault(source, described, view, loss)
    with working("Asking"):
        answer = ask(vault, parsed, loss=loss, confidence=request.confidence)
    answer = request.post_processed(answer)
    if given.out is None:
        _print(answer, as_json=given.as_json)
    else:
        _write(answer, given.out, overwrite=given.overwrite, as_json=given.as_json)


def _preview(given: QueryOptions, domain: Domain, query: Query, released_rows: tuple[int, ...]) -> None:
    """Print what the question would cost, or how wrong its answers would be.  Nothing is spent.

    ``released_rows`` has rows of groups by counts that were released before.
    """
    journal = given.journal
    _refuse_unused(
        **{"new-version": journal.new_version},
        limit=journal.limit is not None,
        create=journal.create,
        analyst=journal.analyst is not None,
        whole=given.whole,
        out=given.out is not None,
    )
    if given.cost is None:
        _print_errors(given, domain, query, released_rows)
        return
    if given.accuracy or given.loss != LossOptions():
        raise InputError("--cost says which loss is needed; ask it without --accuracy, --epsilon, --delta and --rho")
    _print_cost(given, domain, query, released_rows)


def _print_cost(given: QueryOptions, domain: Domain, query: Query, released_rows: tuple[int, ...]) -> None:
    from sfumato.app.api.questions import CostRequest, validate_fields
    from sfumato.privacy.loss import plain

    request = validate_fields(CostRequest, given.question() | {"error": given.cost, "rows": given.rows})
    estimate = request.estimate_cost(
        domain, query, rows=None, more="state yours with --rows", released_rows=released_rows
    )
    assert estimate.cost is not None
    text = f"{estimate.cost} keeps every answer within {given.cost}, each with probability {given.confidence}."
    value = {"epsilon": plain(estimate.cost.value), "confidence": given.confidence, "notes": estimate.notes}
    result(value, "\n".join([text, *estimate.notes]), as_json=given.as_json)


def _released_rows(given: QueryOptions, domain: Domain, query: Query) -> tuple[int, ...]:
    """Return rows of groups by counts in the ledger of the table, if there is one and errors depend on rows."""
    from sfumato.privacy.loss import Epsilon
    from sfumato.query.plan import accuracy, released_rows

    if given.domain is None or given.rows is not None or query.data_dependent_groups:
        return ()
    if all(each.rows is None for each in accuracy(domain, query, Epsilon(1), confidence="0.95", rows=1)):
        return ()
    from sfumato.ledger.ledger import Ledger  # other previews load no library of databases
    from sfumato.vault.vault_opening import default_ledger_url

    journal = given.journal
    url = default_ledger_url(given.domain) if journal.ledger is None else database(journal.ledger)
    ledger = Ledger(url, dataset=journal.dataset)
    return released_rows(ledger, domain, query, analyst=journal.analyst) if ledger.exists() else ()


def _print_errors(given: QueryOptions, domain: Domain, query: Query, released_rows: tuple[int, ...]) -> None:
    from sfumato.app.api.questions import CostRequest, validate_fields

    request = validate_fields(CostRequest, given.question() | {"loss": given.loss.fields(), "rows": given.rows})
    estimate = request.estimate_cost(
        domain, query, rows=None, more="state yours with --rows", released_rows=released_rows
    )
    meaning = f"Each answer is within its half-width with probability {given.confidence}."
    errors = {
        "expected": [asdict(each) for each in estimate.expected],
        "confidence": given.confidence,
        "notes": estimate.notes,
    }
    lines = columns([_line(each) for each in estimate.expected])
    result(errors, "\n".join([lines, "", meaning, *estimate.notes]), as_json=given.as_json)


def _write(answer: Answer, out: Path, *, overwrite: bool, as_json: bool) -> None:
    answer.released_rows().write(out, overwrite=overwrite)
    written = {"out": str(out), "groups": list(answer.groups), "columns": list(answer.columns), "rows": len(answer)}
    stated = {"confidence": float(answer.confidence), **answer.statement_json()}
    result(written | stated, f"Wrote {out}: {pluralize(len(answer), 'row')}.\n{_meaning(answer)}", as_json=as_json)


def _statement(given: QueryOptions, request: AskRequest) -> tuple[Domain | Schema, Query, BoundedView | None]:
    """Read the statement, under the bounds of a schema or others; a single table has only those of its domain.

    Returns:
        The description of the table or tables, the query, and the view that it is about, if there is one.
    """
    refuse_without_schema(given.schema, unit_rows=given.unit_rows is not None, per=bool(given.per))
    if given.schema is not None:
        return _of_schema(given, given.schema)
    from sfumato.domain import load

    domain = load(domain_or_schema(given.domain, given.schema))
    return domain, *request.read(domain, tuple(given.discover or ()))


def _vault(source: Source, described: Domain | Schema, view: BoundedView | None, first: Loss) -> Vault:
    """Open the vault of the table or of the view."""
    from sfumato.domain import Domain

    if isinstance(described, Domain):
        vault = source.vault(first=first, described=described)
        return vault if view is None else vault.for_view(view)
    assert view is not None, "tables of a schema are asked through views"
    return source.schema(described, first=first).for_view(view)


def _of_schema(given: QueryOptions, file: Path) -> tuple[Schema, Query, BoundedView]:
    from sfumato.query.statements.table_statement import parse_tables

    if given.discover:
        raise InputError("of several tables no values are found in the data: declare them in the schema")
    schema = read_schema(file)
    statement = parse_tables(given.statement, schema)
    bounds = other_bounds(statement.view.unit, rows=given.unit_rows, per=given.per)
    if bounds != statement.view.unit:
        try:
            statement = parse_tables(given.statement, schema, bounds=bounds)
        except QueryError as error:  # the statement was read above: what is wrong are the bounds
            raise InputError(
                f"--unit-rows or --per does not fit: {re.sub(_PLACE, '', str(error))}", culprit=error.culprit
            ) from None
    query = replace(statement.query, truncation=given.truncation).check(statement.view.domain)
    return schema, query, statement.view


def _print(answer: Answer, *, as_json: bool) -> None:
    from sfumato.query.answer import json_pieces

    for piece in (each.decode() for each in json_pieces(answer, indent=2)) if as_json else [_text(answer)]:
        typer.echo(piece, nl=False)
    typer.echo()


def _refuse_unused(**given: bool) -> None:
    """Refuse options of an answer, which --cost and --accuracy do not give."""
    if unused := [f"--{name}" for name, is_given in given.items() if is_given]:
        raise InputError(f"--cost and --accuracy answer nothing, so they take no {' and no '.join(unused)}")


def _line(expected: ExpectedError) -> dict[str, Any]:
    supposed = "-" if expected.rows is None else f"for {expected.rows:,} rows in a group"
    measures = {"units": "", "rank": "rows of rank", "row": "divided by the rows of a group"}
    return {
        "answer": expected.name,
        "standard error": float(f"{expected.standard_error:.3g}"),
        "half-width": expected.half_width,
        "in": measures[expected.measure] or supposed,
    }


def _text(answer: Answer) -> str:
    lines = [
        dict(zip(answer.groups, key, strict=True))
        | {name: str(value) for name, value in zip(answer.columns, values, strict=True)}
        for key, values in zip(answer.keys, answer.values, strict=True)
    ]
    return f"{columns(lines)}\n\n{_meaning(answer)}"


def _meaning(answer: Answer) -> str:
    notes = [*answer.notes, *([] if answer.truncation is None else [str(answer.truncation)])]
    notes_text = "".join(f"\nNote: {each}" for each in notes)
    probability = f"{float(answer.confidence):g}"
    sure = f"Intervals hold the exact answer{answer.table_phrase} with probability {probability}, each on its own."
    return f"{sure}\nGuarantee: {answer.guarantee}\nCost: {answer.cost}{notes_text}"


def regress(
    table: TableArgument,
    outcome: Annotated[str, typer.Argument(help="What is explained: an attribute of numbers, or a condition.")],
    by: Annotated[
        list[str], typer.Option(help="An attribute of numbers, or a condition such as \"sex = 'F'\"; several times.")
    ],
    domain: OneDomainOption = None,
    *,
    view: ViewOptions,
    loss: LossOptions,
    confidence: ConfidenceOption = "0.95",
    journal: LedgerOptions,
    as_json: JsonOption = False,
) -> None:
    """Explain an outcome by inputs, by linear regression under differential privacy, with intervals.

    Intervals count the noise, and those of a population the sample as well.  The same question at the same loss returns
    its stored answer and costs nothing.
    """
    from sfumato.query import linear_regression

    amount = loss.fields().loss()
    described = domain_or_schema(domain, view.schema)
    source = Source(table=table, domain=described, journal=journal, charge=amount.charge, view=view.read())
    vault = source.vault(first=amount)
    with working("Measuring"):
        regression = linear_regression(vault, outcome, by, loss=amount, confidence=confidence)
    lines = [
        {"of": each.variable, "table": str(each.table), "population": str(each.population or "-")}
        for each in regression.coefficients
    ]
    sure = f"Intervals hold with probability {float(regression.confidence):g}, each on its own."
    notes = "".join(f"\nNote: {each}" for each in regression.notes)
    text = f"{columns(lines)}\n\n{sure}\nGuarantee: {regression.guarantee}\nCost: {regression.cost}{notes}"
    result(regression.to_json(), text, as_json=as_json)
