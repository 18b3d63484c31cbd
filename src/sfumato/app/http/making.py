"""The releases that are made in the background, each with its statement and its rows as CSV."""

from __future__ import annotations

import io
from typing import Any

from sfumato.app.requests.releases import Anonymization, SynthesisRequest
from sfumato.vault.rows import Rows
from sfumato.vault.vault import Vault


def synthesized(vault: Vault, request: SynthesisRequest) -> tuple[dict[str, Any], bytes]:
    """A synthetic table."""
    made = request.release(vault)
    return made.statement(), _csv(made.rows)


def anonymized(vault: Vault, wanted: Anonymization) -> tuple[dict[str, Any], bytes]:
    """An anonymised table; its facts (classes, suppressed rows, losses) stand with the statement."""
    made = wanted.release(vault)
    return {**made.statement(), "facts": dict(made.facts)}, _csv(made.rows)


def _csv(rows: Rows) -> bytes:
    from pyarrow import csv

    buffer = io.BytesIO()
    csv.write_csv(rows.to_arrow(), buffer)
    return buffer.getvalue()
