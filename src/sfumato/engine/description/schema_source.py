"""Where the tables of a schema that is to be drafted lie: a folder, several files, or a database with its catalogue."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sfumato.engine.csv_file import how_written
from sfumato.engine.description.schema_draft import SchemaDraft, draft_schema
from sfumato.engine.open import open_table
from sfumato.engine.table_files import CSV_SUFFIXES, PARQUET_SUFFIXES, table_name
from sfumato.errors import InputError, TableError, counted


def draft_source(places: Sequence[str], *, name: str | None = None, unit: str | None = None) -> SchemaDraft:
    """Draft a schema from tables where they lie.

    Args:
        places: a folder of CSV or Parquet files, several files, or the URL of a database.
        name: of the schema; None: that of the folder or database.
        unit: the column by which people are called; None: the one that sounds most like it.

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
    told = (f"{each}: {said}; the draft says so under 'csv'" for each, one in written.items() for said in one.remarks)
    return replace(drafted, remarks=(*told, *drafted.remarks))


def _draft_database(url: str, name: str | None, unit: str | None) -> SchemaDraft:
    from sfumato.engine.sql.catalogue import declared_keys

    if "table=" in url.partition("?")[2]:
        raise InputError("a schema is of all tables of a database; leave ?table= out of the address")
    declared = declared_keys(url)
    mark = "&" if "?" in url else "?"
    tables = {each: open_table(f"{url}{mark}table={each}") for each in declared}
    called = name or url.partition("?")[0].rpartition("/")[2]
    return draft_schema(called, tables, unit=unit, declared=declared)


def _files(places: Sequence[str]) -> dict[str, Path]:
    """The files of the tables, by the names that statements and the folder know them by."""
    if any("://" in place for place in places):
        raise InputError("a database is drafted by itself: name its URL alone, and no file beside it")
    if len(places) == 1 and Path(places[0]).is_file():
        raise InputError(
            f"{places[0]} is one table, which a domain describes: sfumato domain draft {places[0]}; a schema is of a "
            "folder or of several files"
        )
    listed = [Path(places[0])] if len(places) == 1 else [Path(place) for place in places]
    if len(places) == 1:
        if not listed[0].is_dir():
            raise InputError(f"there is no folder {places[0]}", culprit=places[0])
        listed = sorted(
            each for each in listed[0].iterdir() if each.name.lower().endswith((*CSV_SUFFIXES, *PARQUET_SUFFIXES))
        )
    found: dict[str, Path] = {}
    for path in listed:
        name = table_name(path)
        if name in found:
            raise InputError(f"two files are called {name}: {found[name].name} and {path.name}; leave one")
        found[name] = path
    if len(found) < 2:  # noqa: PLR2004 - several
        raise InputError(f"a schema is of several tables, and {places[0]} has {counted(len(found), 'table')}")
    return found


def _word(text: str) -> str:
    """A name that a schema may have."""
    word = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")
    return word if word and not word[0].isdigit() else f"schema_{word}".rstrip("_")
