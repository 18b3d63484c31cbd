"""The draft of a table's description, which its owner checks, changes column by column, and accepts.

The command, the web form and Python make the same draft: the document of a domain with the findings about it. Only the
owner of a table sees it, because it states exact facts of the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from sfumato.arguments import expect, parse_integer
from sfumato.description.domain_fit import BINS, MOST_VALUES, Draft, draft_domain, rounded_up
from sfumato.description.findings import (
    DescriptionFinding,
    confirmed_findings,
    domain_findings,
    to_confirm,
)
from sfumato.description.redraft import Redrafts, with_facts
from sfumato.domain import CsvFormat, Domain
from sfumato.domain.document import parse
from sfumato.domain.unit import accepted_now
from sfumato.engine.csv_file import how_written
from sfumato.engine.open import open_table
from sfumato.engine.port import ProtectedTable
from sfumato.errors import DomainError, InputError, pluralize
from sfumato.notebook_html import html_note, html_table
from sfumato.strict_documents import write_yaml
from sfumato.vault.release import save_text

_WIDEST = 60  # characters of a text in a terminal
_MOST_BINS = 100_000  # bins of a column
_LARGEST = 1e300  # size of a bound or an edge
_FIRST_VALUES = 4  # values of a list in a line
HEAD = ("column", "type", "cells", "noticed")

Line: TypeAlias = tuple[str, str, str, str]


class DraftOfColumns(Protocol):
    """A draft of one table, alone or among several: its document, its columns and the omitted columns."""

    left_out: dict[str, str]
    hints: dict[str, str]

    @property
    def document(self) -> dict[str, Any]:
        """Return the document that describes the table."""
        ...

    def change(self, parts: Mapping[str, Any]) -> None:
        """Replace parts of the document."""
        ...

    def redraft(self, name: str, codes: Sequence[str | float]) -> dict[str, Any] | None:
        """Return a new draft of a column without codes for missing values; None if its owner changed the column."""
        ...

    def rows(self) -> list[Line]:
        """Return a line for each column."""
        ...


def describe(source: object, *, csv: Mapping[str, Any] | None = None) -> TableDraft:
    """Draft the description of a table, for its owner to check, change and accept.

    Args:
        source: the path of a CSV or Parquet file, a frame, a URL, or an open table; see ``sfumato.open_table``.
        csv: fields of ``CsvFormat`` for the form of a CSV file.  All other fields are detected.

    Raises:
        InputError, EngineError: the table cannot be opened.
        TableError: the table cannot be read, or no column can be described.
    """
    place = str(source) if isinstance(source, str | Path) else None
    written = None if place is None else how_written(place, csv or {})
    form: CsvFormat | None = None if written is None else written.format
    table = open_table(source, csv=form)
    return TableDraft(table, draft_domain(table, form), () if written is None else written.notes)


class Findings(tuple[DescriptionFinding, ...]):
    """Findings by kind, the most harmful first; a notebook shows them as a table."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "\n".join(f"{finding.kind}: {finding}." for finding in self) or "nothing to look at"

    def _repr_html_(self) -> str:
        rows = [
            (str(each.kind), "left out" if each.left_out else "to confirm", ", ".join(each.columns), each.action)
            for each in self
        ]
        return html_table(("kind", "state", "columns", "what to do"), rows, labels=1)


class TableDraft:
    """The draft of a table's description.

    ``draft["age"]`` is a column, which has methods to change it.

    Attributes:
        document: the document of the domain, in the form that ``save`` writes.
        left_out: the columns that are not described, with the reasons.
        hints: a note about each column that needs one.
        csv_notes: notes about the form of the file, if it is unusual.
    """

    def __init__(self, table: ProtectedTable, drafted: Draft, csv_notes: Sequence[str] = ()) -> None:
        self.table = table
        self.document: dict[str, Any] = drafted.document()
        self.left_out = dict(drafted.left_out)
        self.hints = dict(drafted.hints)
        self.csv_notes = tuple(csv_notes)
        self._drafted = drafted
        self._drafted_text = self.text()
        self._looked_at: tuple[str, Findings] | None = None
        self._redrafts = Redrafts(table, self.document["attributes"], drafted.domain.csv)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the described columns."""
        return tuple(self.document["attributes"])

    @property
    def domain(self) -> Domain:
        """The description as a domain, which is still a draft.

        Raises:
            DomainError: a column of dates lacks its first or last day, or a change is invalid.
        """
        return parse(self.document)

    @property
    def findings(self) -> Findings:
        """The findings by kind, the most harmful first; findings about omitted columns follow."""
        text = self.text()
        if text == self._drafted_text:
            return Findings(self._drafted.findings)
        if self._looked_at is None or self._looked_at[0] != text:
            out = {name for name in self.left_out if name not in self.columns}
            left_out = (
                replace(finding, columns={name: why for name, why in finding.columns.items() if name in out})
                for finding in self._drafted.findings
                if finding.left_out
            )
            stated = domain_findings(self._domain_without_open_days(), self.table)
            self._looked_at = text, Findings((*stated, *(finding for finding in left_out if finding.columns)))
        return self._looked_at[1]

    @property
    def risks(self) -> tuple[str, ...]:
        """The kinds of findings that acceptance must confirm by name."""
        return tuple(kind.value for kind in to_confirm(self.findings))

    def __getitem__(self, name: str) -> ColumnDraft:
        if name not in self.document["attributes"] and name not in self.left_out:
            raise InputError(f"the draft has no column {name!r}; it has {', '.join(self.columns)}", culprit=name)
        return ColumnDraft(self, name)

    def unit(self, column: str | None, *, rows: int | None = None) -> TableDraft:
        """Declare whom releases protect.

        Args:
            column: the column with the id of a person; None: each row is a person.
            rows: the largest number of rows of one person that releases use.

        Raises:
            InputError: ``rows`` is missing, or there is no such column.
            DomainError: ``rows`` is no positive number.
        """
        if column is None:
            self.change({"unit": "row"})
            return self
        if column not in self.left_out and column not in self.columns:
            raise InputError(f"the table has no column {column!r}", culprit=column)
        if rows is None:
            raise InputError(f"declare how many rows of one {column} are kept, such as rows=5", culprit=column)
        rows = parse_integer(rows, "rows are an integer")
        others = {name: body for name, body in self.document["attributes"].items() if name != column}
        self.change({"unit": {"id": column, "rows": rows}, "attributes": others})
        self.left_out[column] = "the unit"
        return self

    def accept(self, *, by: str, confirm: Iterable[str] = ()) -> Domain:
        """Accept the description, and return it as a domain for releases.

        Args:
            by: the name of the person who accepts it, for the domain and the journal.
            confirm: the kinds in ``risks`` that the person confirms.

        Raises:
            DomainError: a kind is not confirmed, or ``by`` is empty.
            InputError: there is no such kind.
        """
        domain = self.domain
        confirmed = confirmed_findings(self.findings, confirm)
        return replace(domain, draft=False, acceptance=accepted_now(domain, by=by, confirmed=confirmed))

    def text(self) -> str:
        """Return the document as YAML."""
        return write_yaml(self.document)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the document, for ``sfumato domain accept``.

        Raises:
            InputError: the folder does not exist, or the file does.
        """
        save_text(path, self.text(), overwrite=overwrite)

    def notes(self) -> tuple[str, ...]:
        """Return the findings and hints of the first draft, in sentences."""
        return self._drafted.notes()

    def rows(self) -> list[Line]:
        """Return a line for each column of the table: name, type, cells, and findings or why it is omitted."""
        return draft_lines(self, noticed_by_column(self.findings))

    def __repr__(self) -> str:
        return "\n".join([*aligned_lines([HEAD, *self.rows()]), "", *self._footer()])

    def _repr_html_(self) -> str:
        notes = "".join(html_note(line) for line in self._footer())
        caption = "Draft: releases refuse it until it is accepted"
        return html_table(HEAD, self.rows(), labels=1, caption=caption) + notes

    def _footer(self) -> list[str]:
        unit = self.document["unit"]
        words = "one row" if unit == "row" else f"one {unit['id']}, at most {pluralize(unit['rows'], 'row')} of each"
        notes = (f"File: {note}." for note in self.csv_notes)
        to_state = [
            f'State first: draft["{name}"].days(first, last)'
            for name, body in self.document["attributes"].items()
            if body.get("first", 0) is None
        ]
        findings = (f"{each}." for each in self.findings)
        codes = [f"All columns without codes of their own: {each}." for each in [codes_in_words(self.document)] if each]
        return [*notes, *codes, f"Unit: {words}.", *findings, *to_state, acceptance_call(self.risks)]

    def redraft(self, name: str, codes: Sequence[str | float]) -> dict[str, Any] | None:
        """Redraft a column without its codes for missing values; None if its owner changed it."""
        drafted = self._redrafts.redraft(name, self.document["attributes"].get(name), codes)
        if drafted is None:
            return None
        self.document = {**self.document, "drafted": with_facts(self.document["drafted"], name, drafted)}
        body: dict[str, Any] = drafted.document()["attributes"][name]
        return body

    def change(self, parts: Mapping[str, Any]) -> None:
        """Replace parts of the document.

        Raises:
            DomainError: the changed document is no domain; the draft stays unchanged.
        """
        before, self.document = self.document, {**self.document, **parts}
        try:
            self._domain_without_open_days()
        except DomainError:
            self.document = before
            raise

    def _domain_without_open_days(self) -> Domain:
        bodies = self.document["attributes"]
        ready = {name: body for name, body in bodies.items() if None not in (body.get("first", 0), body.get("last", 0))}
        return parse({**self.document, "attributes": ready})


@dataclass(frozen=True)
class ColumnDraft:
    """A column of a draft.  Each method changes the draft and returns the column, so that calls can be chained."""

    draft: DraftOfColumns
    name: str

    @property
    def body(self) -> dict[str, Any]:
        """The column in the form of the document.

        Raises:
            InputError: the column is omitted.
        """
        bodies: dict[str, dict[str, Any]] = self.draft.document["attributes"]
        if self.name not in bodies:
            raise InputError(
                f"{self.name!r} is left out: {self.draft.left_out[self.name]}; list its values to describe it: "
                f'draft["{self.name}"].values([...])',
                culprit=self.name,
            )
        return bodies[self.name]

    def missing(self, *codes: str | float) -> ColumnDraft:
        """Declare values that mean a missing value.

        Type and bins are drafted again without them, so text may become numbers.  A column that was changed by hand
        keeps its type and bins.
        """
        own: tuple[Any, ...] = codes
        codes = tuple(code.item() if isinstance(code, np.number) else code for code in own)
        shared = self.draft.document.get("missing", [])
        drafted = self.draft.document["attributes"].get(self.name, {})
        listed = [*drafted.get("missing", shared)]
        listed += [code for code in codes if code not in listed]
        anew = self.draft.redraft(self.name, listed)
        if anew is not None:
            listed += [code for code in anew.get("missing", ()) if code not in listed]
            return self._with({**anew, "missing": listed, "nullable": True}, anew=True)
        values = [value for value in self.body.get("values", ()) if value not in codes]
        return self._with({"missing": listed, "nullable": True, **({"values": values} if values else {})})

    def bounds(self, low: float, high: float) -> ColumnDraft:
        """Declare the smallest and the largest possible number from public knowledge, and make bins of even, round
        width.

        Raises:
            InputError: the column has no numbers.
            DomainError: ``low`` is above ``high``.
        """
        kind = self._number()
        low, high = (_number(each, integral=kind == "integer") for each in (low, high))
        if not low < high:
            raise DomainError(f"the bounds of {self.name!r} are {low} and {high}: the least comes first")
        if kind == "real":
            return self._binned(low, high, _round_edges(float(low), float(high)))
        return self._binned(low, high, None if high - low < MOST_VALUES else _round_edges(low, high))

    def bins(self, edges: int | Sequence[float]) -> ColumnDraft:
        """Declare bins by their number, if all have the same width, or by their edges in order, with both bounds.

        Raises:
            InputError: the column has no numbers.
            DomainError: the edges do not increase.
        """
        kind, body = self._number(), self.body
        low, high = (body["minimum"], body["maximum"]) if kind == "integer" else (body["edges"][0], body["edges"][-1])
        if not isinstance(edges, Sequence | np.ndarray):
            expect(edges, int, "bins are their number, or a list of edges")
            if not 1 <= edges <= _MOST_BINS:
                raise InputError(
                    f"{self.name!r} needs at least one bin and at most {_MOST_BINS:,}, not {edges}", culprit=edges
                )
            width = (high - low + (kind == "integer")) / edges
            even = [low + place * width for place in range(edges)]
            return self._binned(low, high, [round(edge) for edge in even] if kind == "integer" else [*even, high])
        listed = [_number(edge, integral=kind == "integer") for edge in edges]
        if len(listed) < 2:  # noqa: PLR2004 - both bounds
            raise InputError(f"the bins of {self.name!r} have at least two edges, the bounds", culprit=edges)
        return self._binned(listed[0], listed[-1], listed[:-1] if kind == "integer" else listed)

    def values(self, values: Sequence[str | bool]) -> ColumnDraft:
        """List all possible values, such as a code book lists; other values are undeclared."""
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise InputError(f"list the values of {self.name!r}, such as [{str(values)!r}]", culprit=values)
        return self._with({"type": "categorical", "values": list(values), "unknown": "category"}, anew=True)

    def days(self, first: object, last: object) -> ColumnDraft:
        """Declare the first and the last possible day from public knowledge."""
        self.draft.hints.pop(self.name, None)
        return self._with({"first": str(first)[:10], "last": str(last)[:10]})

    def drop(self) -> ColumnDraft:
        """Omit the column from the description."""
        others = {name: body for name, body in self.draft.document["attributes"].items() if name != self.name}
        self.draft.change({"attributes": others})
        self.draft.left_out[self.name] = "dropped by its owner"
        return self

    def __repr__(self) -> str:
        return "  ".join(filter(None, self._line()))

    def _repr_html_(self) -> str:
        return html_table(HEAD, [self._line()], labels=1)

    def _line(self) -> tuple[str, str, str, str]:
        return next(line for line in self.draft.rows() if line[0] == self.name)

    def _number(self) -> str:
        kind: str = self.body["type"]
        if kind not in ("integer", "real"):
            raise InputError(f"{self.name!r} is {kind}, and has no bounds or bins of numbers", culprit=self.name)
        return kind

    def _binned(self, low: float, high: float, edges: Sequence[float] | None) -> ColumnDraft:
        body = {key: value for key, value in self.body.items() if key not in ("edges", "points")}
        if self.body["type"] == "integer":
            body |= {"minimum": low, "maximum": high}
        points = [point for point in self.body.get("points", ()) if low <= point <= high]
        stated = {} if edges is None else {"edges": list(edges)}
        return self._with({**body, **stated, **({"points": points} if points else {})}, anew=True)

    def _with(self, parts: Mapping[str, Any], *, anew: bool = False) -> ColumnDraft:
        bodies = dict(self.draft.document["attributes"])
        bodies[self.name] = {**parts} if anew else {**self.body, **parts}
        self.draft.change({"attributes": bodies})
        self.draft.left_out.pop(self.name, None)
        return self


def _number(value: object, *, integral: bool) -> float:
    """Return a number of Python or NumPy as a Python number, which is an int if the column has integers.

    Raises:
        InputError: the value is no number.
    """
    expect(value, int | float, "bounds and edges are numbers")
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        number = math.inf
    if not abs(number) <= _LARGEST:
        raise InputError(f"bounds and edges are numbers up to {_LARGEST:g}, not {number}", culprit=value)
    return int(number) if integral and number.is_integer() else number


def _round_edges(low: float, high: float) -> list[float]:
    """Return both ends of a range and round numbers between them."""
    width = rounded_up((high - low) / BINS)
    integral = isinstance(low, int)
    first = math.floor(low / width) + 1
    inner = (float(f"{place * width:.12g}") for place in range(first, first + 2 * BINS))
    inside = [round(edge) if integral else edge for edge in inner if low < edge < high]
    return [low, *inside] if integral else [low, *inside, high]


def noticed_by_column(findings: Iterable[DescriptionFinding]) -> dict[str, list[str]]:
    """Return the kinds and details of the findings about each described column."""
    noticed: dict[str, list[str]] = {}
    for finding in findings:
        for name, why in finding.columns.items():
            if not finding.left_out:
                noticed.setdefault(name, []).append(f"{finding.kind}{f' ({why})' if why else ''}")
    return noticed


def draft_lines(draft: DraftOfColumns, noticed: Mapping[str, Sequence[str]]) -> list[Line]:
    """Return a line for each column of a draft: the described columns, then the omitted columns."""
    bodies = draft.document["attributes"]
    lines = []
    for name, body in bodies.items():
        hints = [*noticed.get(name, ()), draft.hints.get(name, ""), codes_in_words(body)]
        lines.append((name, body["type"], _cells(body), "; ".join(filter(None, hints))))
    return [*lines, *((name, "left out", "", why) for name, why in draft.left_out.items() if name not in bodies)]


def codes_in_words(body: Mapping[str, Any]) -> str:
    """Return the codes for missing values that a column or a table itself declares, as text."""
    codes = ", ".join(map(repr, body.get("missing", ())))
    return f"missing: {codes}" if codes else ""


def aligned_lines(lines: Sequence[Line]) -> list[str]:
    """Return lines for a terminal in aligned columns; only the last column is never cut."""
    short = [[text if len(text) <= _WIDEST else f"{text[: _WIDEST - 3]}..." for text in line[:3]] for line in lines]
    widths = [max((len(line[place]) for line in short), default=0) for place in range(3)]
    return [
        "  ".join([*(text.ljust(width) for text, width in zip(cut, widths, strict=True)), line[3]]).rstrip()
        for cut, line in zip(short, lines, strict=True)
    ]


def acceptance_call(risks: Sequence[str]) -> str:
    """Return the call that accepts a draft with these kinds of findings."""
    kinds = ", ".join(f'"{kind}"' for kind in risks)
    return f'Accept it: draft.accept(by="NAME"{f", confirm=[{kinds}]" if kinds else ""})'


def _cells(body: Mapping[str, Any]) -> str:
    """Return the cells of a column in a few words."""
    match body["type"]:
        case "categorical":
            values = list(map(str, body["values"]))
            more = f", ... ({len(values)})" if len(values) > _FIRST_VALUES else ""
            return ", ".join(values[:_FIRST_VALUES]) + more
        case "integer":
            bins = f" in {len(body['edges'])} bins" if "edges" in body else ""
            return f"{body['minimum']} to {body['maximum']}{bins}"
        case "real":
            return f"{body['edges'][0]:g} to {body['edges'][-1]:g} in {len(body['edges']) - 1} bins"
        case _:
            days = f"{body['first']} to {body['last']}" if body["first"] else "first and last day are yours to state"
            return f"{days}, by {body['by']}"
