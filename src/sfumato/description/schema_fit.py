"""A schema and its tables: drafts, risks, and the rows that bounds of views cut.

All results are for the owner of the tables alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sfumato.description.domain_fit import AttributeFit, domain_fit
from sfumato.description.findings import DescriptionFinding, domain_findings, grouped
from sfumato.description.schema_draft import SchemaDraft, draft_schema
from sfumato.description.sensitive_columns import FindingKind
from sfumato.domain import Domain
from sfumato.domain.table_schema import Schema
from sfumato.domain.unit import Drafted
from sfumato.domain.view import BoundedView
from sfumato.engine.csv_file import how_written
from sfumato.engine.exact import reveal
from sfumato.engine.open import open_table, require_engine
from sfumato.engine.sql.sql_adapter import SqlAdapter
from sfumato.engine.table_files import CSV_SUFFIXES, PARQUET_SUFFIXES, redacted_source, table_name
from sfumato.engine.views.joined import JoinedTables, open_schema_table, open_tables
from sfumato.errors import InputError, TableError, pluralize

_ALL = 1 << 40  # more rows than any unit has


@dataclass(frozen=True)
class CutRows:
    """The exact number of rows that the bounds of a view drop: ``cut`` of its ``rows``, of ``units`` units."""

    view: str
    rows: int
    cut: int
    units: int


def cut_rows(tables: JoinedTables, view: BoundedView, name: str) -> CutRows:
    """Count the rows of a view that its bounds keep and drop.

    Raises:
        EngineError: the tables can no longer be read.
    """
    encoded = tables.encode(view)
    remaining, cut, units = (
        int(reveal(exact)[0]) for exact in (encoded.marginals([()])[0], encoded.dropped(_ALL), encoded.dropped(1))
    )
    return CutRows(name, remaining + cut, cut, units)


def schema_fit(schema: Schema, source: object) -> dict[str, tuple[AttributeFit, ...]]:
    """Count the values of every attribute of every table, over all of its rows.

    Raises:
        TableError: a table is missing, or lacks a column.
    """
    return {
        table.name: domain_fit(open_schema_table(table, source), Domain(table.attributes))
        for table in schema
        if table.attributes
    }


def schema_findings(schema: Schema, source: object | None) -> tuple[DescriptionFinding, ...]:
    """Return the findings that the owner of a schema should check; columns are named TABLE.COLUMN.

    Args:
        schema: the description.
        source: the source of its tables, to check keys that name several rows and facts in the description; None to
            check names.

    Raises:
        TableError: a table cannot be read, or a key names several rows: such a schema must not be accepted.
    """
    if source is not None:
        open_tables(schema, source)
    facts = []
    for table in schema:
        if not table.attributes or table.public:
            continue
        opened = None if source is None else open_schema_table(table, source)
        domain = Domain(table.attributes, draft=schema.draft, drafted=_drafted_of(schema, table.name))
        for finding in domain_findings(domain, opened):
            if finding.kind is not FindingKind.UNIT:  # the schema states the unit of each row
                facts += [(finding.kind, f"{table.name}.{column}", why) for column, why in finding.columns.items()]
    return grouped(facts)


def _drafted_of(schema: Schema, table: str) -> Drafted | None:
    """Return the part of a draft's record about one table."""
    if schema.drafted is None:
        return None
    mark = f"{table}."
    return Drafted(
        schema.drafted.hash,
        {
            kind: {column.removeprefix(mark): digest for column, digest in columns.items() if column.startswith(mark)}
            for kind, columns in schema.drafted.findings.items()
        },
    )


def draft_source(places: Sequence[str], *, name: str | None = None, unit: str | None = None) -> SchemaDraft:
    """Draft a schema from tables in a folder, files or a database.

    Args:
        places: a folder of CSV or Parquet files, several files, or the URL of a database.
        name: the name of the schema; None: the name of the folder or database.
        unit: the column with the id of a person; None: the column whose name suggests it most.

    Raises:
        InputError: the places are none of these, or a name that no schema may have.
        TableError, EngineError: a table cannot be read, or no column seems to name people.
    """
    if len(places) == 1 and "://" in places[0]:
        return _draft_database(places[0], name, unit)
    try:
        files = _files(places)
        first = Path(places[0]).resolve()
        called = name or _word(first.name if first.is_dir() else first.parent.name)
    except OSError as error:
        raise TableError(f"cannot read {str(error.filename)[:200]!r}: {error.strerror}", culprit=places) from None
    written = {each: how_written(str(path), {}) for each, path in files.items()}
    opened = {each: open_table(path, csv=written[each].format) for each, path in files.items()}
    drafted = draft_schema(called, opened, unit=unit, formats={each: written[each].format for each in files})
    notes = (f"{each}: {note}; the draft says so under 'csv'" for each, one in written.items() for note in one.notes)
    return replace(drafted, notes=(*notes, *drafted.notes))


def _draft_database(url: str, name: str | None, unit: str | None) -> SchemaDraft:
    from sfumato.engine.sql.sql_session import declared_keys

    if "table=" in url.partition("?")[2]:
        raise InputError("a schema describes all tables of a database; leave ?table= out of the address")
    scheme = url.partition("://")[0]
    if scheme not in SqlAdapter.schemes:
        raise InputError(
            f"a schema is drafted from files, or from a database of {', '.join(SqlAdapter.schemes)}, not {scheme!r}",
            culprit=redacted_source(url),
        )
    require_engine(url)
    declared = declared_keys(url)
    mark = "&" if "?" in url else "?"
    tables = {each: open_table(f"{url}{mark}table={each}") for each in declared}
    called = name or url.partition("?")[0].rpartition("/")[2]
    return draft_schema(called, tables, unit=unit, declared=declared)


def _files(places: Sequence[str]) -> dict[str, Path]:
    """Return the files of the tables, by their names in statements and in the folder."""
    if any("://" in place for place in places):
        raise InputError("a database is drafted alone: give its URL without any file")
    if len(places) == 1 and Path(places[0]).is_file():
        raise InputError(
            f"{places[0]} is one table, which a domain describes: sfumato domain draft {places[0]}; a schema is of a "
            "folder or of several files"
        )
    listed = [Path(places[0])] if len(places) == 1 else [Path(place) for place in places]
    if len(places) == 1:
        if not listed[0].is_dir():
            raise InputError(f"there is no folder {places[0]}", culprit=places[0])
        endings = tuple(each for each in (*CSV_SUFFIXES, *PARQUET_SUFFIXES) if ".txt" not in each)  # notes end in .txt
        listed = sorted(each for each in listed[0].iterdir() if each.name.lower().endswith(endings))
    files: dict[str, Path] = {}
    for path in listed:
        name = table_name(path)
        if name in files:
            raise InputError(f"two files are called {name}: {files[name].name} and {path.name}; leave one")
        files[name] = path
    if len(files) < 2:  # noqa: PLR2004 - several
        raise InputError(f"a schema is of several tables, and {places[0]} has {pluralize(len(files), 'table')}")
    return files


def _word(text: str) -> str:
    """Return a valid name for a schema."""
    word = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    return word if word and not word[0].isdigit() else f"schema_{word}".rstrip("_")
