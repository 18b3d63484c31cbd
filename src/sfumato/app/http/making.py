"""The releases that are made in the background, each with its statement and its rows as CSV."""

from __future__ import annotations

import io
from typing import Any

from sfumato.app.anonymizing import Method, Wanted
from sfumato.app.anonymizing import release as searched
from sfumato.app.http.forms import ReleaseForm
from sfumato.vault.rows import Rows
from sfumato.vault.vault import Vault


def synthesized(vault: Vault, form: ReleaseForm) -> tuple[dict[str, Any], bytes]:
    """A synthetic table."""
    from sfumato import synthesize

    loss, total = form.loss.loss(), synthesize.Summed()
    names = tuple(form.attributes) or None
    if form.method == "histogram":
        made = synthesize.histogram(vault, loss=loss, total=total, attributes=names)
    else:
        ways = min(2, len(vault.domain))
        made = synthesize.auto(vault, loss=loss, total=total, workload=synthesize.all_marginals(ways))
    return made.statement(), _csv(made.rows)


def anonymized(vault: Vault, method: Method, wanted: Wanted) -> tuple[dict[str, Any], bytes]:
    """An anonymised table; its facts (classes, suppressed rows, losses) stand with the statement."""
    made = searched(vault, method, wanted)
    return {**made.statement(), "facts": dict(made.facts)}, _csv(made.rows)


def _csv(rows: Rows) -> bytes:
    from pyarrow import csv

    buffer = io.BytesIO()
    csv.write_csv(rows.to_arrow(), buffer)
    return buffer.getvalue()
