"""``sfumato audit``: an attempt to prove that a mechanism loses more than it claims."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.app.cli.options import JsonOption, LossOptions
from sfumato.app.cli.output import columns, print_message, result
from sfumato.errors import InputError

if TYPE_CHECKING:
    from sfumato.evaluate.audit.audit import Finding

DRAWS = 6400
"""The outputs that are drawn on each of two neighboring inputs, unless another number is given."""


def audit(
    mechanisms: Annotated[
        list[str] | None,
        typer.Argument(help="Ours by name, all of them, or module:function of your own; without, ours are listed."),
    ] = None,
    draws: Annotated[int, typer.Option(min=20, help="Outputs drawn on each of two neighbouring inputs.")] = DRAWS,
    first: Annotated[str | None, typer.Option(help="Your mechanism: one input, as JSON.")] = None,
    second: Annotated[str | None, typer.Option(help="Your mechanism: its neighbour, as JSON.")] = None,
    *,
    loss: LossOptions,
    as_json: JsonOption = False,
) -> None:
    """Try to prove that a mechanism loses more than it claims.  The exit code is 1 if that succeeds.

    All honest mechanisms of one run pass together with probability 0.999.  Passing proves nothing.
    """
    from sfumato.app.api.questions import loss_of
    from sfumato.evaluate.audit.audit import audit_all, subject_from_text
    from sfumato.evaluate.audit.shipped import chosen, subjects
    from sfumato.privacy.entropy import OsEntropy

    if not mechanisms:
        lines = [{"mechanism": name, "claims": str(subject.claim)} for name, subject in subjects(OsEntropy()).items()]
        result(lines, columns(lines), as_json=as_json)
        return
    own = [name for name in mechanisms if ":" in name]
    if own and (first is None or second is None):
        raise InputError("a mechanism of your own needs two neighbouring inputs: --first and --second, as JSON")
    audited = list(chosen([name for name in mechanisms if ":" not in name], OsEntropy()))
    audited.extend(subject_from_text(name, str(first), str(second), loss_of(**asdict(loss))) for name in own)
    findings = audit_all(audited, draws=draws, watch=lambda name: print_message(f"Auditing {name} ..."))
    value = [{**asdict(finding), "passed": finding.passed} for finding in findings]
    result(value, columns([_finding_line(finding) for finding in findings]), as_json=as_json)
    if not all(finding.passed for finding in findings):
        raise typer.Exit(1)


def _finding_line(finding: Finding) -> dict[str, str | float]:
    return {
        "mechanism": finding.name,
        "measure": finding.measure,
        "claimed": finding.claimed,
        "proven": finding.proven,
        "result": "not refuted" if finding.passed else "REJECTED",
        "event": finding.event,
    }
