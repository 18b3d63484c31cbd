"""Commands that answer questions: ``sfumato query`` in SQL, ``sfumato regress``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.app.cli.options import (
    DatasetOption,
    JsonOption,
    LedgerOption,
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
    domain_or_schema,
    other_bounds,
    read_schema,
    refuse_without_schema,
)
from sfumato.app.cli.output import columns, cost_in_shares, print_message, refuse_clashes, result, working
from sfumato.app.help_pages import HelpPage, help_page, missing_for_table, missing_of_release
from sfumato.errors import InputError, QueryError, pluralize, short_deltas

if TYPE_CHECKING:
    from sfumato.app.api.questions import AskRequest, CostEstimate, CostRequest
    from sfumato.domain import Domain
    from sfumato.domain.table_schema import Schema
    from sfumato.domain.view import BoundedView
    from sfumato.privacy.loss import Loss
    from sfumato.query import Answer
    from sfumato.query.aggregates import ExpectedError
    from sfumato.query.question import Query
    from sfumato.vault.vault import Vault

_PLACE = r"^line \d+, column \d+: "  # in a statement that has nothing wrong

ConfidenceOption = Annotated[str, typer.Option(metavar="P", help="Probability with which each interval holds.")]
Statement = Annotated[str, typer.Argument(metavar="SELECT", help="SQL statement. FROM takes any name for the table.")]


@dataclass(frozen=True, kw_only=True)
class QuestionOptions:
    """The options that an answer, its preview and its price share."""

    table: TableArgument
    statement: Statement
    domain: OneDomainOption = None
    schema: SchemaOption = None
    unit_rows: UnitRowsOption = None
    per: PerOption = None
    confidence: ConfidenceOption = "0.95"
    discover: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN", help="Column whose values are not declared; finds frequent ones. Needs --delta."
        ),
    ] = None
    truncation: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Also count, with noise, the rows beyond the bound of a unit, at most N of one unit. This takes a "
            "part of the loss.",
        ),
    ] = None
    as_json: JsonOption = False

    def question(self) -> dict[str, Any]:
        """Return the fields that the request of an answer and that of its cost share."""
        return {"sql": self.statement, "confidence": self.confidence, "truncation": self.truncation}

    def refuse_unknown(self, query: Query) -> None:
        """Refuse columns to discover that the statement does not group by."""
        if unused := [name for name in self.discover or () if name not in query.data_dependent_groups]:
            raise InputError(
                f"--discover names columns outside the domain that the statement groups by, and {unused[0]!r} is none"
            )

    def parsed(self) -> _ParsedStatement:
        """Read the statement, under the bounds of the domain, of the schema or of the options."""
        from sfumato.app.api.questions import question

        refuse_without_schema(self.schema, unit_rows=self.unit_rows is not None, per=bool(self.per))
        path = domain_or_schema(self.domain, self.schema, self.table)
        if self.schema is not None:
            return self._parsed_with(path)
        from sfumato.domain import load

        domain = load(path)
        query, view = question(self.statement, None, domain, tuple(self.discover or ()), truncation=self.truncation)
        self.refuse_unknown(query)
        return _ParsedStatement(path, domain, query, view)

    def _parsed_with(self, file: Path) -> _ParsedStatement:
        """Read the statement over the tables of a schema."""
        from sfumato.query.statements.table_statement import parse_tables

        if self.discover:
            raise InputError("of several tables no values are found in the data: declare them in the schema")
        schema = read_schema(file)
        statement = parse_tables(self.statement, schema)
        bounds = other_bounds(statement.view.unit, rows=self.unit_rows, per=self.per)
        if bounds != statement.view.unit:
            try:
                statement = parse_tables(self.statement, schema, bounds=bounds)
            except QueryError as error:  # the statement was read above: what is wrong are the bounds
                raise InputError(
                    f"--unit-rows or --per does not fit: {re.sub(_PLACE, '', str(error))}", culprit=error.culprit
                ) from None
        query = replace(statement.query, truncation=self.truncation).check(statement.view.domain)
        return _ParsedStatement(file, schema, query, statement.view)


@dataclass(frozen=True)
class _ParsedStatement:
    """A statement over a table, or over the tables of a schema.

    Attributes:
        path: the file of the domain or schema.
        described: the domain of the table, or the schema of the tables.
        query: the query.
        view: the view that the query is about, or None for the rows of the table.
    """

    path: Path
    described: Domain | Schema
    query: Query
    view: BoundedView | None

    @property
    def domain(self) -> Domain:
        """The domain of the rows that are counted."""
        from sfumato.domain import Domain

        domain = self.described if self.view is None else self.view.domain
        assert isinstance(domain, Domain)
        return domain


@dataclass(frozen=True, kw_only=True)
class QueryOptions(QuestionOptions):
    """The options of ``sfumato query``.  ``accuracy`` and ``cost`` are the former spelling of two commands."""

    loss: LossOptions
    accuracy: Annotated[bool, typer.Option("--accuracy", hidden=True)] = False
    cost: Annotated[str | None, typer.Option(hidden=True)] = None
    rows: Annotated[int | None, typer.Option(min=1, hidden=True)] = None
    whole: Annotated[
        bool, typer.Option("--whole", help="Round counts to non-negative integers. The output says so.")
    ] = False
    journal: LedgerOptions
    out: Annotated[
        Path | None,
        typer.Option(help="Write the answer to a .parquet, .csv or .arrow file instead of printing it."),
    ] = None
    overwrite: OverwriteOption = False

    def request(self) -> AskRequest:
        """Return the request, checked without its table."""
        from sfumato.app.api.questions import AskRequest, validate_fields

        return validate_fields(AskRequest, self.question() | {"loss": self.loss.fields(), "whole": self.whole})

    def source(self, path: Path, loss: Loss) -> Source:
        """Return the table and its ledger."""
        return Source(table=self.table, domain=path, journal=self.journal, charge=loss.charge)

    def other_command(self) -> PreviewOptions | PriceOptions | None:
        """Return the options of ``query preview`` or ``query price`` if ``--accuracy`` or ``--cost`` asks for it."""
        if self.cost is None and not self.accuracy:
            return None
        _refuse_unused(
            **{"new-version": self.journal.new_version},
            limit=self.journal.limit is not None,
            create=self.journal.create,
            analyst=self.journal.analyst is not None,
            whole=self.whole,
            out=self.out is not None,
        )
        shared = {
            each.name: getattr(self, each.name) for each in fields(PreviewQuestionOptions) if each.name != "journal"
        }
        shared["journal"] = PreviewLedgerOptions(ledger=self.journal.ledger, dataset=self.journal.dataset)
        if self.cost is None:
            print_message("'sfumato query --accuracy' is the former spelling of 'sfumato query preview' and will go.")
            return PreviewOptions(**shared, loss=self.loss)
        if self.accuracy or self.loss != LossOptions():
            raise InputError(
                "--cost says which loss is needed; ask it without --accuracy, --epsilon, --delta and --rho"
            )
        print_message("'sfumato query --cost' is the former spelling of 'sfumato query price --error' and will go.")
        return PriceOptions(**shared, error=self.cost)


@dataclass(frozen=True, kw_only=True)
class PreviewLedgerOptions:
    """The options of the ledger that a preview reads released counts from."""

    ledger: LedgerOption = None
    dataset: DatasetOption = "default"


@dataclass(frozen=True, kw_only=True)
class PreviewQuestionOptions(QuestionOptions):
    """The options that a preview and a price share."""

    rows: Annotated[
        int | None,
        typer.Option(min=1, help="Rows to suppose in each group, for the errors of means and variances."),
    ] = None
    journal: PreviewLedgerOptions

    def estimate(self, request: CostRequest) -> CostEstimate:
        """Return the price of the question, or the errors of its answers.  This reads no rows and charges nothing."""
        parsed = self.parsed()
        released_rows = self._released_rows(parsed)
        more = "state yours with --rows"
        return request.estimate_cost(parsed.domain, parsed.query, rows=None, more=more, released_rows=released_rows)

    def _released_rows(self, parsed: _ParsedStatement) -> tuple[int, ...]:
        """Return rows of groups by counts in the ledger of the table, if there is one and errors depend on rows."""
        from sfumato.privacy.loss import Epsilon
        from sfumato.query.plan import accuracy, released_rows

        query = parsed.query
        if self.schema is not None or parsed.view is not None or self.rows or query.data_dependent_groups:
            return ()
        if all(each.rows is None for each in accuracy(parsed.domain, query, Epsilon(1), confidence="0.95", rows=1)):
            return ()
        from sfumato.ledger.ledger import Ledger  # other previews load no library of databases

        journal = LedgerOptions(ledger=self.journal.ledger, dataset=self.journal.dataset)
        source = Source(table=self.table, domain=parsed.path, journal=journal, charge=None)
        ledger = Ledger(source.ledger_url(), dataset=journal.dataset)
        return released_rows(ledger, parsed.domain, query, analyst=None) if ledger.exists() else ()


@dataclass(frozen=True, kw_only=True)
class PreviewOptions(PreviewQuestionOptions):
    """The options of ``sfumato query preview``."""

    loss: LossOptions


@dataclass(frozen=True, kw_only=True)
class PriceOptions(PreviewQuestionOptions):
    """The options of ``sfumato query price``."""

    error: Annotated[
        str,
        typer.Option(metavar="DISTANCE", help="Largest half-width of the intervals. For a quantile, in rows of rank."),
    ]


def _missing_of_query(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the command line lacks.  The former spelling of a price has no loss."""
    return (missing_for_table if given.get("cost") else missing_of_release)(given)


@help_page(
    HelpPage(
        usage="--epsilon E",
        sections={"Main options": "epsilon delta confidence out", "Ledger": "create limit"},
        parts=("query preview", "query price"),
        missing=_missing_of_query,
    )
)
def query(given: QueryOptions) -> None:
    """Answer a SELECT with differential privacy. Repeating a query is free.

    Example: sfumato query people.csv "SELECT education, COUNT(*) FROM people GROUP BY education" --epsilon 0.1

    With --schema, the statement joins several tables of a folder or a database.
    """
    from sfumato.query import ask, low_signal_warnings
    from sfumato.vault.release import writable

    request = given.request()
    other = given.other_command()
    if isinstance(other, PriceOptions):
        price(other)
        return
    if other is not None:
        preview(other)
        return
    loss, parsed = request.loss.loss(), given.parsed()
    if given.rows is not None:
        raise InputError("--rows supposes rows for 'query preview' and 'query price'; an answer does not need them")
    for warning in low_signal_warnings(parsed.domain, parsed.query, loss):
        print_message(f"Before it is charged: {warning}.")
    source = given.source(parsed.path, loss)
    if given.out is not None:
        writable(given.out, overwrite=given.overwrite)
        refuse_clashes([given.out], inputs=source.files(), overwrite=given.overwrite)
    vault = _vault(source, parsed)
    with working("Answering"):
        answer = ask(vault, parsed.query, loss=loss, confidence=request.confidence)
    answer = request.post_processed(answer)
    cost = cost_in_shares(answer.cost, source.charge, vault.remaining)
    if given.out is None:
        _print(answer, cost, as_json=given.as_json)
    else:
        _write(answer, cost, given, given.out)


@help_page(
    HelpPage(
        usage="--epsilon E", sections={"Main options": "epsilon delta confidence rows"}, missing=missing_of_release
    )
)
def preview(given: PreviewOptions) -> None:
    """Show the error of an answer before you spend anything.

    Example: sfumato query preview people.csv "SELECT AVG(age) FROM people" --epsilon 0.1

    It reads no rows and charges nothing.
    """
    from sfumato.app.api.questions import CostRequest, validate_fields

    request = validate_fields(CostRequest, given.question() | {"loss": given.loss.fields(), "rows": given.rows})
    estimate = given.estimate(request)
    meaning = f"Each answer is within its half-width with probability {given.confidence}."
    errors = {
        "expected": [asdict(each) for each in estimate.expected],
        "confidence": given.confidence,
        "notes": estimate.notes,
    }
    lines = columns([_line(each) for each in estimate.expected])
    result(errors, "\n".join([lines, "", meaning, *estimate.notes]), as_json=given.as_json)


@help_page(
    HelpPage(usage="--error DISTANCE", sections={"Main options": "error confidence rows"}, missing=missing_for_table)
)
def price(given: PriceOptions) -> None:
    """Find the epsilon for a wanted error.

    Example: sfumato query price people.csv "SELECT COUNT(*) FROM people" --error 10

    It reads no rows and charges nothing.
    """
    from sfumato.app.api.questions import CostRequest, validate_fields
    from sfumato.privacy.loss import plain

    request = validate_fields(CostRequest, given.question() | {"error": given.error, "rows": given.rows})
    estimate = given.estimate(request)
    assert estimate.cost is not None
    text = f"{estimate.cost} keeps every answer within {given.error}, each with probability {given.confidence}."
    value = {"epsilon": plain(estimate.cost.value), "confidence": given.confidence, "notes": estimate.notes}
    result(value, "\n".join([text, *estimate.notes]), as_json=given.as_json)


def _write(answer: Answer, cost: str, given: QueryOptions, out: Path) -> None:
    answer.released_rows().write(out, overwrite=given.overwrite)
    written = {"out": str(out), "groups": list(answer.groups), "columns": list(answer.columns), "rows": len(answer)}
    stated = {"confidence": float(answer.confidence), **answer.statement_json()}
    result(
        written | stated,
        f"Wrote {out}: {pluralize(len(answer), 'row')}.\n{_meaning(answer, cost)}",
        as_json=given.as_json,
    )


def _vault(source: Source, parsed: _ParsedStatement) -> Vault:
    """Open the vault of the table or of the view."""
    from sfumato.domain import Domain

    described, view = parsed.described, parsed.view
    if isinstance(described, Domain):
        vault = source.vault(described)
        return vault if view is None else vault.for_view(view)
    assert view is not None, "tables of a schema are asked through views"
    return source.schema(described).for_view(view)


def _print(answer: Answer, cost: str, *, as_json: bool) -> None:
    from sfumato.query.answer import json_pieces

    for piece in (
        (each.decode() for each in json_pieces(answer, indent=2)) if as_json else [short_deltas(_text(answer, cost))]
    ):
        typer.echo(piece, nl=False)
    typer.echo()


def _refuse_unused(**given: bool) -> None:
    """Refuse options of an answer, which --cost and --accuracy do not give."""
    if unused := [f"--{name}" for name, is_given in given.items() if is_given]:
        raise InputError(f"--cost and --accuracy answer nothing, so they take no {' and no '.join(unused)}")


def _line(expected: ExpectedError) -> dict[str, Any]:
    supposed = "-" if expected.rows is None else f"for {pluralize(expected.rows, 'row')} in a group"
    measures = {"units": "", "rank": "rows of rank", "row": "divided by the rows of a group"}
    return {
        "answer": expected.name,
        "standard error": float(f"{expected.standard_error:.3g}"),
        "half-width": float(f"{expected.half_width:.3g}"),
        "in": measures[expected.measure] or supposed,
    }


def _text(answer: Answer, cost: str) -> str:
    lines = [
        dict(zip(answer.groups, key, strict=True)) | dict(zip(answer.columns, texts, strict=True))
        for key, texts in zip(answer.keys, answer.texts, strict=True)
    ]
    return f"{columns(lines)}\n\n{_meaning(answer, cost)}"


def _meaning(answer: Answer, cost: str) -> str:
    notes = [*answer.notes, *([] if answer.truncation is None else [str(answer.truncation)])]
    notes_text = "".join(f"\nNote: {each}" for each in notes)
    probability = f"{float(answer.confidence):g}"
    sure = f"Intervals hold the exact answer{answer.table_phrase} with probability {probability}, each on its own."
    return f"{sure}\nGuarantee: {answer.guarantee}\nCost: {cost}{notes_text}"


@help_page(
    HelpPage(
        usage="--by COLUMN --epsilon E",
        sections={"Main options": "by epsilon delta confidence", "Ledger": "create limit"},
        missing=missing_of_release,
    )
)
def regress(
    table: TableArgument,
    outcome: Annotated[str, typer.Argument(help="Column of numbers to explain, or a condition.")],
    by: Annotated[
        list[str],
        typer.Option(metavar="COLUMN", help="Column of numbers, or a condition such as \"sex = 'F'\". Repeatable."),
    ],
    domain: OneDomainOption = None,
    *,
    view: ViewOptions,
    loss: LossOptions,
    confidence: ConfidenceOption = "0.95",
    journal: LedgerOptions,
    as_json: JsonOption = False,
) -> None:
    """Fit a linear regression with differential privacy, with intervals.

    Example: sfumato regress people.csv income --by age --by "sex = 'F'" --epsilon 1 --delta 1e-9

    The intervals of the table count the noise. Those of the population count the sample as well.
    """
    from sfumato.query import linear_regression

    amount = loss.fields().loss()
    described = domain_or_schema(domain, view.schema, table)
    source = Source(table=table, domain=described, journal=journal, charge=amount.charge, view=view.read())
    vault = source.vault()
    with working("Making the release"):
        regression = linear_regression(vault, outcome, by, loss=amount, confidence=confidence)
    cost = cost_in_shares(regression.cost, source.charge, vault.remaining)
    lines = [
        {"of": each.variable, "table": str(each.table), "population": str(each.population or "-")}
        for each in regression.coefficients
    ]
    sure = f"Intervals hold with probability {float(regression.confidence):g}, each on its own."
    notes = "".join(f"\nNote: {each}" for each in regression.notes)
    text = f"{columns(lines)}\n\n{sure}\nGuarantee: {regression.guarantee}\nCost: {cost}{notes}"
    result(regression.to_json(), text, as_json=as_json)
