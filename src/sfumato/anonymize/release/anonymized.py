"""An anonymized release: its rows, its recoding, and its guarantee."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from sfumato.anonymize.release.decision import Decision, applied_decision
from sfumato.anonymize.release.recoding import Recoding
from sfumato.anonymize.release.recount import Recount, homogeneous, refuse_different
from sfumato.anonymize.release.request import (
    AnonymizationRequest,
    counted_groups,
    counts_units,
    microdata,
    parse_criterion,
    read_quasi,
)
from sfumato.anonymize.release.unchanged_columns import Keep, UnchangedColumns
from sfumato.arguments import expect
from sfumato.domain import Domain
from sfumato.engine.exact import reveal
from sfumato.engine.port import ROWS, Recodable, Recode
from sfumato.engine.table_files import discard
from sfumato.errors import InputError, pluralize
from sfumato.vault.interface import refuse_no_vault
from sfumato.vault.release import Release, ReleasedRows, Reported, Tabular, save_text, writable, write_atomically
from sfumato.vault.vault import Vault

_ALL_LOST = 1 - 1e-9  # the loss of a column that is lost, apart from the error of a double


@dataclass(frozen=True, kw_only=True, repr=False)
class Anonymized(Release, Tabular, Reported, report="bar_pages.anonymized"):
    """An anonymized table.

    ``facts`` has rows, suppressed rows, classes, every loss and, for the optimal search, the certificate.  Write the
    rows once: if rows of one tuple are split over several classes, each write assigns them at random again.
    """

    recoding: Recoding
    facts: Mapping[str, Any]
    unchanged: tuple[str, ...]
    source: Recodable = field(repr=False)
    decision: Decision = field(repr=False)

    @property
    def headline(self) -> str:
        """The method, the published rows, and the classes."""
        rows, suppressed = self.facts["rows"], self.facts["suppressed"]
        left = f"{rows - suppressed:,} of {pluralize(rows, 'row')} in {pluralize(self.facts['classes'], 'class')}"
        return f"{left} by {self.provenance['method']}"

    @property
    def suppressed_columns(self) -> tuple[str, ...]:
        """The quasi-identifiers of which every published value is ``*``."""
        return tuple(name for name, loss in self.facts["loss_metric"].items() if loss >= _ALL_LOST)

    @cached_property  # each rewrite assigns the rows of a tuple at random again
    def rows(self) -> ReleasedRows:
        """The rows in random order: quasi-identifiers as text, then the unchanged columns.

        Raises:
            InfeasibleError: the rows differ from the verified classes.
        """
        return ReleasedRows(rewritten(self.source, self.decision.recode, self.decision.recount, self.unchanged))

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self.rows.to_arrow()

    def _repr_html_(self) -> str:
        return self.to_html() + self.rows._repr_html_()

    def write(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the rows to a .parquet or .csv file in batches.  The file gets its name after verification.

        Raises:
            InputError: the ending is another one, the folder does not exist, or the file exists.
            InfeasibleError: the rows differ from the verified classes.
        """
        write(self.source, self.decision, self.unchanged, path, overwrite=overwrite)

    def save_recoding(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Save the recoding as JSON, to apply it to other rows.

        Raises:
            InputError: the folder does not exist, or the file exists.
        """
        save_text(path, self.recoding.dumps(), overwrite=overwrite)


def disclose(
    vault: Vault, request: AnonymizationRequest, unchanged: UnchangedColumns, decide: Callable[[], Decision]
) -> Anonymized:
    """Decide on a recoding, write it to the journal, and return the release.  Refusals come before the journal entry.

    The decision is a function of the table and the request, so a repeated request gives the same classes.  With other
    unchanged columns it is another release of the same classes, with its own entry.

    Raises:
        InputError: an unchanged column names a person, is not in the domain, is nearly unique or is free text, unless
            it is kept anyway; or the same was released before with another recoding.
    """
    names = [each.name for each in request.quasi]
    raw = unchanged.besides(names)
    if vault.domain.unit.column in unchanged.names:
        raise InputError(f"{vault.domain.unit.column!r} identifies people and cannot be published", culprit=unchanged)
    if ROWS in (*names, *raw.names):
        raise InputError(f"no published column can be called {ROWS!r}; rename it", culprit=ROWS)
    source = cast(Recodable, vault.encoded)
    source.refuse_missing(raw.names)
    raw.refuse_telling(source)
    decision = decide()
    more = {
        "counted": "units" if counts_units(request.criteria, vault.domain) else "rows",
        "homogeneous": homogeneous_rows(source, request, decision.recode, raw.names),
    }
    decision = replace(decision, facts={**decision.facts, **more})
    facts, statement = decision.facts, _statement(request, vault.domain, decision.facts, raw)
    released = vault.disclose(request.question(raw), lambda _: decision.payload(), statement=statement)
    if released.payload["recoding"] != decision.recoding.describe():
        raise InputError(
            "this was released before with another recoding, by another version or within another time; apply that one",
            culprit=request,
        )
    return Anonymized(
        guarantee=released.guarantee,
        cost=released.cost,
        accepted=released.accepted,
        expected_error={f"loss of {name}": loss for name, loss in facts["loss_metric"].items()},
        provenance=released.provenance,
        recoding=decision.recoding,
        facts=facts,
        unchanged=raw.names,
        source=source,
        decision=decision,
    )


def _statement(request: AnonymizationRequest, domain: Domain, facts: Mapping[str, Any], raw: UnchangedColumns) -> str:
    published = request.published_as_they_are(raw)
    return (
        f"{request.statement(domain)}; {facts['suppressed']} of {facts['rows']} rows are suppressed"
        f"{_not_counted(facts)}, the Loss Metric is {facts['loss_metric_sum']:.6g} of {len(request.quasi)}"
        f"{_stopped(facts)};{_homogeneous(facts)}{_published_unchecked(raw)}"
        f" published as they are: {', '.join(published) or 'none'}"
    )


def _published_unchecked(unchanged: UnchangedColumns) -> str:
    """Return a clause that names the columns published without a check."""
    if not unchanged.anyway:
        return ""
    return f" published whatever they hold, by the owner's decision (--keep-anyway): {', '.join(unchanged.anyway)};"


def _stopped(facts: Mapping[str, Any]) -> str:
    """Return a clause that states that the time limit ended the search; empty if it did not."""
    search = facts.get("search")
    return f", where the search was stopped after {search['seconds']:g} s" if search and search["stopped"] else ""


def homogeneous_rows(
    source: Recodable, request: AnonymizationRequest, recode: Recode, unchanged: Sequence[str]
) -> dict[str, int]:
    """Count, for each unchanged column in the domain, the published rows in classes with a single value.

    An attacker who finds a person's class learns this value, whatever the size of the class.  If a method splits equal
    rows over several classes, the count is a lower bound.  If units are counted, a class counts if all of its units
    have the value.
    """
    described = [name for name in unchanged if name in source.domain.names]
    tables = {name: counted_groups(source, (*recode.attributes, name), request.criteria) for name in described}
    return {name: homogeneous(table, recode, source.domain[name].declared) for name, table in tables.items()}


def _not_counted(facts: Mapping[str, Any]) -> str:
    by_domain = [f"{facts['left_out']} of them left out by the domain"] if facts["left_out"] else []
    over_bound = [f"{facts['over_bound']} of them over the rows that a unit may have"] if facts["over_bound"] else []
    return f" ({', '.join(by_domain + over_bound)})" if by_domain or over_bound else ""


def _homogeneous(facts: Mapping[str, Any]) -> str:
    published = facts["rows"] - facts["suppressed"]
    shares = [f"{rows / published:.3%} for {name}" for name, rows in facts["homogeneous"].items() if rows]
    return f" share of published rows in a class with a single value: {', '.join(shares)};" if shares else ""


def rewritten(source: Recodable, recode: Recode, recount: Recount, unchanged: Sequence[str]) -> pa.Table:
    """Return the rewritten rows after a recount.

    Raises:
        InfeasibleError: the rows differ from the verified classes.
    """
    rows = reveal(source.recoded(recode, tuple(unchanged)))
    refuse_different(rows.to_batches(), recount)
    return rows


def write(
    source: Recodable, decision: Decision, unchanged: Sequence[str], path: str | Path, *, overwrite: bool
) -> None:
    """Write the rows to a file that gets its name after a recount.

    Raises:
        InputError: the ending is not .parquet or .csv, the folder does not exist, or the file exists.
        InfeasibleError: the rows differ from the verified classes.
    """
    target = Path(path)
    writable(target, overwrite=overwrite)
    if target.suffix not in (".parquet", ".csv"):
        raise InputError(f"cannot write {target}: end it in .parquet or .csv", culprit=target)
    names = tuple(name for name in decision.recount.table.column_names if name != ROWS)

    def fill(partial: Path) -> None:
        typed = partial.with_name(partial.name + target.suffix)
        try:
            source.write_recoded(decision.recode, tuple(unchanged), typed)
            written = reveal(source.written(typed, names))
            refuse_different(written, decision.recount)
            if typed.is_dir():
                partial.unlink()  # a file cannot replace a directory
            typed.replace(partial)
        finally:
            discard(typed)

    write_atomically(target, fill)


def apply(vault: Vault, recoding: Recoding, *, keep: Sequence[str | Keep] = ()) -> Anonymized:
    """Recode the rows of a table by a saved recoding.  It has no differential privacy.

    Rows of classes that the recoding does not publish are suppressed, and so are classes that are not safe among the
    new rows.  The criteria hold for the new rows alone.  A person in both tables, or an attacker who compares them, is
    not covered.

    Args:
        vault: the new table.
        recoding: from ``Anonymized.save_recoding``, read by ``load_recoding``.
        keep: further columns to publish unchanged; none of the quasi-identifiers.

    Raises:
        InputError: the recoding lacks a value that the domain declares, or needs a population; or :func:`disclose`
            refuses an unchanged column.
        DomainError: the domain lacks a quasi-identifier of the recoding.
    """
    refuse_no_vault(vault)
    expect(recoding, Recoding, "a recoding is what sf.anonymize.load_recoding reads")
    unchanged = UnchangedColumns.parse(keep)
    if recoded := [name for name in unchanged.names if name in recoding.quasi]:
        raise InputError(f"{recoded[0]!r} is published as the recoding says; do not name it to be kept", culprit=keep)
    digest = hashlib.sha256(recoding.dumps().encode()).hexdigest()
    criteria = tuple(parse_criterion(text) for text in recoding.criteria)
    request = AnonymizationRequest(
        "apply", read_quasi(recoding.quasi, vault.domain), criteria, "1", {"recoding": digest}
    )
    labels = [vault.domain[name].labels() for name in recoding.quasi]

    def decide() -> Decision:
        data = microdata(cast(Recodable, vault.encoded), request.quasi, criteria)
        recode, losses = recoding.rewriting(data, labels)
        return applied_decision(data, recode, recoding, losses, request)

    return disclose(vault, request, unchanged, decide)
