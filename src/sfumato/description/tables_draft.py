"""The draft of the description of several tables about the same people, as an object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sfumato.description.draft import (
    HEAD,
    ColumnDraft,
    Findings,
    Line,
    acceptance_call,
    aligned_lines,
    codes_in_words,
    draft_lines,
    noticed_by_column,
)
from sfumato.description.findings import confirmed_findings, to_confirm
from sfumato.description.redraft import Redrafts, with_facts
from sfumato.description.schema_draft import SchemaDraft, draft_schema
from sfumato.description.schema_fit import draft_source, schema_findings
from sfumato.domain import CsvFormat
from sfumato.domain.table_schema import Schema, parse_schema
from sfumato.domain.unit import accepted_now
from sfumato.engine.csv_file import how_written
from sfumato.engine.open import open_table
from sfumato.engine.port import ProtectedTable
from sfumato.errors import DomainError, InputError, pluralize
from sfumato.notebook_html import html_note, html_table
from sfumato.strict_documents import write_yaml
from sfumato.vault.release import save_text


def describe_tables(
    source: str | Path | Iterable[str] | Mapping[str, Any], *, name: str | None = None, unit: str | None = None
) -> TablesDraft:
    """Draft the description of several tables about the same people.

    Args:
        source: a folder of CSV or Parquet files, several files, the URL of a database, or a mapping from names to files
            and frames.
        name: the name of the schema; None: the name of the folder or database, or ``tables``.
        unit: the column with the id of a person; None: the column whose name and values suggest it most.

    Raises:
        InputError: the source is none of these, or no table has the column ``unit``.
        TableError, EngineError: a table cannot be read, or no column seems to name people.
    """
    if not isinstance(source, str | Path | Iterable):
        raise InputError(f"tables are a folder, files, a URL or a dictionary, not {type(source).__name__}")
    if not isinstance(source, Mapping):
        places = [str(source)] if isinstance(source, str | Path) else list(map(str, source))
        return TablesDraft(places[0], draft_source(places, name=name, unit=unit))
    formats = {
        each: how_written(str(table), {}).format if isinstance(table, str | Path) else None
        for each, table in source.items()
    }
    opened = {each: open_table(table, csv=formats[each]) for each, table in source.items()}
    return TablesDraft(dict(source), draft_schema(name or "tables", opened, unit=unit, formats=formats))


class TablesDraft:
    """The draft of a schema: ``draft["visits"]`` is a table in it, and ``draft["visits"]["cost"]`` a column.

    Attributes:
        source: the tables.
        document: the document of the schema, in the form that ``save`` writes.
        notes: findings and hints, in sentences.
    """

    def __init__(self, source: object, drafted: SchemaDraft) -> None:
        self.source = source
        self.document: dict[str, Any] = drafted.document
        self.notes = drafted.notes
        self._drafted = drafted
        self._tables = {name: OneOfTables(self, name, drafted.tables[name]) for name in self.document["tables"]}

    @property
    def schema(self) -> Schema:
        """The description as a schema, which is still a draft.

        Raises:
            DomainError: a declaration of the owner is missing, such as the rows of one person.
        """
        return parse_schema(self.document)

    @property
    def findings(self) -> Findings:
        """The findings by kind, the most harmful first.

        They are about the first draft until the owner has declared all open facts.
        """
        try:
            schema = self.schema
        except DomainError:
            return Findings(self._drafted.findings)
        left_out = (finding for finding in self._drafted.findings if finding.left_out)
        return Findings((*schema_findings(schema, self.source), *left_out))

    @property
    def risks(self) -> tuple[str, ...]:
        """The kinds of findings that acceptance must confirm by name."""
        return tuple(kind.value for kind in to_confirm(self.findings))

    def __getitem__(self, name: str) -> OneOfTables:
        if name not in self._tables:
            raise InputError(f"the draft has no table {name!r}; it has {', '.join(self._tables)}", culprit=name)
        return self._tables[name]

    def accept(self, *, by: str, confirm: Iterable[str] = ()) -> Schema:
        """Accept the description, and return it as a schema for releases.

        Raises:
            DomainError: a kind is not confirmed, a declaration is missing, or ``by`` is empty.
            InputError: there is no such kind.
        """
        schema = replace(parse_schema({**self.document, "draft": False}), acceptance=None)
        confirmed = confirmed_findings(schema_findings(self.schema, self.source), confirm)
        return replace(schema, acceptance=accepted_now(schema, by=by, confirmed=confirmed))

    def text(self) -> str:
        """Return the document as YAML."""
        return write_yaml(self.document)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the document, for ``sfumato schema accept``.

        Raises:
            InputError: the folder does not exist, or the file does.
        """
        save_text(path, self.text(), overwrite=overwrite)

    def __repr__(self) -> str:
        parts = [line for table in self._tables.values() for line in [table.title, *aligned_lines(table.rows()), ""]]
        return "\n".join([*parts, *self._footer()])

    def _repr_html_(self) -> str:
        tables = "".join(table._repr_html_() for table in self._tables.values())
        return tables + "".join(map(html_note, self._footer()))

    def _footer(self) -> list[str]:
        return [*(f"{note}." for note in self.notes), acceptance_call(self.risks)]


class OneOfTables:
    """A table within the draft of a schema."""

    def __init__(self, tables: TablesDraft, name: str, opened: ProtectedTable) -> None:
        self.tables = tables
        self.name = name
        written = self.document.get("csv")
        self._redrafts = Redrafts(
            opened, self.document["attributes"], None if written is None else CsvFormat(**written)
        )
        self.hints: dict[str, str] = {}
        self.left_out: dict[str, str] = {}

    @property
    def document(self) -> dict[str, Any]:
        """The part of the document for the table."""
        body: dict[str, Any] = self.tables.document["tables"][self.name]
        return body

    @property
    def title(self) -> str:
        """The name of the table, with the bound on the rows of one person."""
        body = self.document
        bound = f", at most {pluralize(body['rows'], 'row')} of one person" if body.get("rows") else ""
        open_bound = ", rows of one person: yours to state, .most_rows(N)" if body.get("rows", 0) is None else ""
        codes = f", {codes}" if (codes := codes_in_words(body)) else ""
        return f"{self.name}{', public' if body.get('public') else ''}{bound}{open_bound}{codes}"

    def __getitem__(self, column: str) -> ColumnDraft:
        if column not in self.document["attributes"] and column not in self.left_out:
            raise InputError(f"{self.name} has no drafted column {column!r}", culprit=column)
        return ColumnDraft(self, column)

    def most_rows(self, rows: int) -> OneOfTables:
        """Declare how many rows of one person are used."""
        self.change({"rows": rows})
        return self

    def public(self) -> OneOfTables:
        """Declare the whole table public."""
        self.change({"public": True})
        return self

    def rows(self) -> list[Line]:
        """Return a line for each column."""
        noticed = {}
        for column, words in noticed_by_column(self.tables.findings).items():
            table, _, name = column.partition(".")
            if table == self.name:
                noticed[name] = words
        return draft_lines(self, noticed)

    def redraft(self, name: str, codes: Sequence[str | float]) -> dict[str, Any] | None:
        """Redraft a column without its codes for missing values; None if its owner changed it."""
        drafted = self._redrafts.redraft(name, self.document["attributes"].get(name), codes)
        if drafted is None:
            return None
        document = self.tables.document
        record = with_facts(document["drafted"], f"{self.name}.{name}", drafted)
        self.tables.document = {**document, "drafted": record}
        body: dict[str, Any] = drafted.document()["attributes"][name]
        return body

    def change(self, parts: Mapping[str, Any]) -> None:
        """Replace parts of the document of the table."""
        document = self.tables.document
        tables = {**document["tables"], self.name: {**self.document, **parts}}
        self.tables.document = {**document, "tables": tables}

    def __repr__(self) -> str:
        return "\n".join([self.title, *aligned_lines(self.rows())])

    def _repr_html_(self) -> str:
        return html_table(HEAD, self.rows(), labels=1, caption=self.title)
