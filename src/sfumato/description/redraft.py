"""New drafts of single columns, after their owner declared codes for missing values, also in stored drafts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from sfumato.description.domain_fit import MOST_VALUES, Draft, draft_profiles
from sfumato.domain import CsvFormat
from sfumato.engine.open import open_table
from sfumato.engine.port import ProtectedTable
from sfumato.errors import TableError


@dataclass
class Redrafts:
    """The new drafts of columns that their owner did not change.

    Attributes:
        table: the open table.
        bodies: the attributes of the first draft.
        csv: the form of the table's file.
    """

    table: ProtectedTable
    bodies: Mapping[str, Any]
    csv: CsvFormat | None = None

    def redraft(self, name: str, body: object, codes: Sequence[str | float]) -> Draft | None:
        """Draft a column without codes for missing values.

        Args:
            name: the name of the column.
            body: the present attribute of the column in the document.
            codes: the codes for missing values.

        Returns:
            The draft of a table with this column alone.  None if the owner changed the column, or if it is omitted or
            cannot be described.
        """
        if body != self.bodies.get(name):
            return None
        drafted = self._draft_without(name, codes)
        if drafted is not None:
            attribute = drafted.document()["attributes"][name]
            self.bodies = {**self.bodies, name: {**attribute, "missing": list(codes), "nullable": True}}
        return drafted

    def _draft_without(self, name: str, codes: Sequence[str | float]) -> Draft | None:
        column = self.table.values(name)
        texts = pc.utf8_trim_whitespace(column.cast(pa.string()))
        if self.csv is not None and self.csv.decimal == ",":
            texts = pc.replace_substring(texts, ",", ".")
        missing = pc.is_in(texts, pa.array(list(map(str, codes)), pa.string()))
        cleaned = pc.if_else(missing, None, texts if pa.types.is_string(column.type) else column)
        (profile,) = open_table(pa.table({name: cleaned})).profile(MOST_VALUES)
        try:
            return draft_profiles((replace(profile, repeats=()),))
        except TableError:
            return None


def with_facts(record: Mapping[str, Any], column: str, draft: Draft) -> dict[str, Any]:
    """Return the record of a draft, with the facts of a new draft of one column.

    Args:
        record: the part ``drafted`` of a document.
        column: the name of the column in the record, which is TABLE.COLUMN in a schema.
        draft: the new draft, which has this column alone.
    """
    findings = {
        kind: {name: digest for name, digest in columns.items() if name != column}
        for kind, columns in record["findings"].items()
    }
    for kind, columns in draft.document()["drafted"]["findings"].items():
        (findings.setdefault(kind, {})[column],) = columns.values()
    return {**record, "findings": findings}


OpenTable: TypeAlias = Callable[[str], Redrafts]
"""Opens a table by its name, to draft its columns again; that of a domain has an empty name."""


class EditedTable:
    """A table of a stored draft, whose columns change as in Python; ``document`` describes it alone or in a schema.

    Attributes:
        document: the part of the description for the table.
        record: the facts that the draft took from the tables; None if the description was not drafted.
    """

    def __init__(
        self,
        document: Mapping[str, Any],
        *,
        name: str = "",
        record: Mapping[str, Any] | None = None,
        open_table: OpenTable | None = None,
    ) -> None:
        self.document = dict(document)
        self.record = record
        self.left_out: dict[str, str] = {}
        self.hints: dict[str, str] = {}
        self._name = name
        self._open_table = open_table

    def change(self, parts: Mapping[str, Any]) -> None:
        """Replace parts of the document."""
        self.document = {**self.document, **parts}

    def redraft(self, name: str, codes: Sequence[str | float]) -> dict[str, Any] | None:
        """Redraft a column without its codes for missing values; None if the steward changed it."""
        if self._open_table is None or self.record is None:
            return None
        redrafts = self._open_table(self._name)
        drafted = redrafts.redraft(name, self.document["attributes"][name], codes)
        if drafted is None:
            return None
        self.record = with_facts(self.record, f"{self._name}.{name}" if self._name else name, drafted)
        body: dict[str, Any] = drafted.document()["attributes"][name]
        return body

    def change_attribute(self, name: str, body: Mapping[str, Any]) -> None:
        """Replace an attribute."""
        self.change({"attributes": self.document["attributes"] | {name: body}})

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return no lines, because the page has its own view of columns."""
        return []
