"""``sfumato audit``: an empirical lower bound on what a mechanism loses."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from sfumato.app.cli.losses import DeltaOption, EpsilonOption, RhoOption
from sfumato.app.cli.output import Json, columns, remark, result
from sfumato.app.losses import loss_of
from sfumato.errors import InputError

_DRAWS = 6400


def audit(
    mechanisms: Annotated[
        list[str] | None,
        typer.Argument(help="Ours by name, all of them, or module:function of your own; without, ours are listed."),
    ] = None,
    draws: Annotated[int, typer.Option(min=20, help="Outputs drawn on each of two neighbouring inputs.")] = _DRAWS,
    first: Annotated[str | None, typer.Option(help="Your mechanism: one input, as JSON.")] = None,
    second: Annotated[str | None, typer.Option(help="Your mechanism: its neighbour, as JSON.")] = None,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    rho: RhoOption = None,
    as_json: Json = False,
) -> None:
    """Try to prove that a mechanism loses more than it claims.  Leaves with code 1 where that succeeds.

    All honest mechanisms of one run pass together with probability 0.999.  To pass proves nothing.
    """
    from sfumato.evaluate.audit.audit import audit_all
    from sfumato.evaluate.audit.callables import subject_from_text
    from sfumato.evaluate.audit.shipped import chosen, subjects
    from sfumato.privacy.entropy import OsEntropy

    if not mechanisms:
        known = subjects(OsEntropy())
        lines = [{"mechanism": name, "claims": str(subject.claim)} for name, subject in known.items()]
        result(lines, columns(lines), as_json=as_json)
        return
    brought = [name for name in mechanisms if ":" in name]
    if brought and (first is None or second is None):
        raise InputError("a mechanism of your own needs two neighbouring inputs: --first and --second, as JSON")
    audited = list(chosen([name for name in mechanisms if ":" not in name], OsEntropy()))
    audited += [subject_from_text(name, str(first), str(second), loss_of(epsilon, delta, rho)) for name in brought]
    found = audit_all(audited, draws=draws, watch=lambda name: remark(f"Auditing {name} ..."))
    value = [{**asdict(finding), "passed": finding.passed} for finding in found]
    rows: list[dict[str, str | float]] = [
        {
            "mechanism": finding.name,
            "measure": finding.measure,
            "claimed": finding.claimed,
            "proven": finding.proven,
            "verdict": "not refuted" if finding.passed else "REJECTED",
            "event": finding.event,
        }
        for finding in found
    ]
    result(value, columns(rows), as_json=as_json)
    if not all(finding.passed for finding in found):
        raise typer.Exit(1)
