"""An anonymised release: rows, the recoding that made them, and what is and is not promised."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from sfumato.anonymize import recoding as saved
from sfumato.anonymize.asked import Asked
from sfumato.anonymize.plan import Plan
from sfumato.anonymize.recount import Count, homogeneous, refuse_different
from sfumato.arguments import expect_all
from sfumato.engine.exact import reveal
from sfumato.engine.output import discard
from sfumato.engine.port import ROWS, Recodable, Recode
from sfumato.errors import InputError
from sfumato.vault.release import Release
from sfumato.vault.rows import Rows, save_text, whole, writable
from sfumato.vault.vault import Vault


@dataclass(frozen=True, kw_only=True)
class Anonymized(Release):
    """An anonymised table.

    ``facts`` has rows, suppressed rows, classes, every loss and, for the optimal search, the certificate.
    Write the rows once: where rows of one tuple are dealt to several classes, each writing deals anew.
    """

    recoding: saved.Recoding
    facts: Mapping[str, Any]
    keep: tuple[str, ...]
    source: Recodable = field(repr=False)
    plan: Plan = field(repr=False)

    @cached_property
    def rows(self) -> Rows:
        """The rows in random order: quasi-identifiers as text, then the kept columns as they are.

        Raises:
            InfeasibleError: the rows are not those that were verified.
        """
        return Rows(rewritten(self.source, self.plan.recode, self.plan.counted, self.keep))

    def write(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the rows to a .parquet or .csv file without holding them all; verified before it gets its name.

        Raises:
            InputError: another ending, a folder that does not exist, or a file that does.
            InfeasibleError: the rows are not those that were verified.
        """
        write(self.source, self.plan, self.keep, path, overwrite=overwrite)

    def save_recoding(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Save the recoding as JSON, to apply it to new rows.

        Raises:
            InputError: a folder that does not exist, or a file that does.
        """
        save_text(path, saved.dumps(self.recoding), overwrite=overwrite)


def disclose(vault: Vault, asked: Asked, keep: Sequence[str], decide: Callable[[], Plan]) -> Anonymized:
    """Decide, journal, and hand out.  What cannot be done is refused before the journal is touched.

    The decision is a function of the table and of what is asked, so a repeated question gives the same classes;
    with other kept columns it is another release of the same classes, and has an entry of its own.

    Raises:
        InputError: a kept column that is a quasi-identifier, names a person, or is named twice; or the same was
            released before with another recoding.
    """
    expect_all(keep, str, "kept columns are a list of names")
    names = [each.name for each in asked.quasi]
    if strange := [name for name in keep if name in names]:
        raise InputError(f"{strange[0]!r} is a quasi-identifier and cannot be kept as it is", culprit=strange)
    if vault.domain.unit.column in keep:
        raise InputError(f"{vault.domain.unit.column!r} tells people apart and cannot be kept", culprit=keep)
    if ROWS in (*names, *keep):
        raise InputError(f"no published column can be called {ROWS!r}; rename it", culprit=ROWS)
    if len(set(keep)) != len(keep):
        raise InputError("a kept column is named twice", culprit=keep)
    plan = decide()
    source = cast(Recodable, vault.encoded)
    plan = replace(plan, facts={**plan.facts, "homogeneous": homogeneous_rows(source, plan.recode, keep)})
    facts = plan.facts
    statement = (
        f"{asked.statement(vault.domain.unit)}; {facts['suppressed']} of {facts['rows']} rows are suppressed"
        f"{_not_counted(facts)}, the Loss Metric is {facts['loss_metric_sum']:.6g} of {len(names)};"
        f"{_homogeneous(facts)} published as they are: {', '.join(keep) or 'none'}"
    )
    settled = vault.disclose(asked.request(keep), lambda _: plan.payload(), statement=statement)
    if settled.payload["recoding"] != plan.recoding.describe():
        raise InputError(
            "this was released before with another recoding, by another version or within another time; apply that one",
            culprit=asked,
        )
    return Anonymized(
        guarantee=settled.guarantee,
        cost=settled.cost,
        expected_error={f"loss of {name}": loss for name, loss in facts["loss_metric"].items()},
        provenance=settled.provenance,
        recoding=plan.recoding,
        facts=facts,
        keep=tuple(keep),
        source=source,
        plan=plan,
    )


def homogeneous_rows(source: Recodable, recode: Recode, keep: Sequence[str]) -> dict[str, int]:
    """For each kept column that the domain describes, the published rows in classes with at most one value of it.

    Who finds a person's class reads the value off, however large the class is.  Where a method deals equal rows to
    several classes, at least so many.
    """
    described = [name for name in keep if name in source.domain.names]
    return {
        name: homogeneous(reveal(source.groups((*recode.attributes, name))), recode, source.domain[name].declared)
        for name in described
    }


def _not_counted(facts: Mapping[str, Any]) -> str:
    by_domain = [f"{facts['left_out']} of them left out by the domain"] if facts["left_out"] else []
    over = [f"{facts['over_bound']} of them over the rows that a unit may have"] if facts["over_bound"] else []
    return f" ({', '.join(by_domain + over)})" if by_domain or over else ""


def _homogeneous(facts: Mapping[str, Any]) -> str:
    published = facts["rows"] - facts["suppressed"]
    shares = [f"{rows / published:.3%} for {name}" for name, rows in facts["homogeneous"].items() if rows]
    return f" share of published rows in a class with a single value: {', '.join(shares)};" if shares else ""


def rewritten(source: Recodable, recode: Recode, counted: Count, keep: Sequence[str]) -> pa.Table:
    """The rows, counted again.

    Raises:
        InfeasibleError: they are not those that were verified.
    """
    rows = reveal(source.recoded(recode, tuple(keep)))
    refuse_different(rows.to_batches(), counted)
    return rows


def write(source: Recodable, plan: Plan, keep: Sequence[str], path: str | Path, *, overwrite: bool) -> None:
    """Write the rows to a file that gets its name when they were counted again.

    Raises:
        InputError: another ending than .parquet or .csv, a folder that does not exist, or a file that does.
        InfeasibleError: the rows are not those that were verified.
    """
    target = Path(path)
    writable(target, overwrite=overwrite)
    if target.suffix not in (".parquet", ".csv"):
        raise InputError(f"cannot write {target}: end it in .parquet or .csv", culprit=target)
    names = tuple(name for name in plan.counted.table.column_names if name != ROWS)

    def fill(partial: Path) -> None:
        typed = partial.with_name(partial.name + target.suffix)
        try:
            source.write_recoded(plan.recode, tuple(keep), typed)
            written = reveal(source.written(typed, names))
            refuse_different(written, plan.counted)
            if typed.is_dir():
                partial.unlink()  # a directory takes no file's place
            typed.replace(partial)
        finally:
            discard(typed)

    whole(target, fill)
