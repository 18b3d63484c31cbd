"""Somebody accepts a schema as it stands: the file then says who and when, and a change after it is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from sfumato.domain.document import with_acceptance
from sfumato.domain.domain import Acceptance
from sfumato.domain.table_schema import load_schema


def accept_schema(path: str | Path, *, by: str) -> tuple[str, Acceptance]:
    """The text of a schema's file once somebody has accepted what it says now, and who did; comments and layout stay.

    Args:
        path: of the file, which is only read.
        by: who accepts it.

    Raises:
        DomainError: it cannot be read, lacks what releases need, or nobody is named.
    """
    schema = replace(load_schema(path), draft=False, acceptance=None)  # refuses what only a draft may leave open
    at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    acceptance = Acceptance(by.strip(), at, schema.hash_accepted(by.strip(), at))
    text = Path(path).read_text(encoding="utf-8")
    return with_acceptance(text, acceptance, replace(schema, acceptance=acceptance).describe()), acceptance
