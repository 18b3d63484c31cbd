"""The page of linked synthetic tables, from their codebook alone, which anybody may have written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sfumato.report.page import Page, Row, ShownTable, shown_to
from sfumato.synthesize.linked.linked_codebook import (
    UNITS_TEXT,
    family_column_rows,
    family_facts,
    family_tie_rows,
)

_DIGITS = 4


def family_release_page(title: str, book: Mapping[str, Any]) -> Page:
    """A page of what is public anyway: what the tables are, what was measured, and how far off they are.

    Args:
        title: of the page.
        book: the codebook as JSON values.
    """
    overview: dict[str, ShownTable] = {}
    details: dict[str, ShownTable] = {}
    for part in book["parts"]:
        overview[f"{part['name']}: columns"] = tuple(family_column_rows(part))
        overview[f"{part['name']}: what was measured together"] = tuple(family_tie_rows(part))
        for column in part["columns"]:
            details[f"{part['name']}: values of {column['name']}"] = _values(column)
    return Page(
        title=title,
        warning=str(book["notice"]),
        terms=dict(family_facts(book)),
        notes=(
            shown_to(str(book["guarantee"]["text"])),
            UNITS_TEXT,
            *(f"{part['name']} has {part['says']}." for part in book["parts"]),
            *map(str, book["notes"]),
        ),
        overview={name: rows for name, rows in overview.items() if rows},
        details={name: rows for name, rows in details.items() if rows},
        digits=_DIGITS,
    )


def _values(column: Mapping[str, Any]) -> ShownTable:
    rows: list[Row] = [
        {
            "value": str(value["label"]),
            "units": value["units"],
            "protected tables: from": value["low"],
            "to": value["high"],
            "off by at most": value["off_by"],
        }
        for value in column["values"]
    ]
    return tuple(rows)
