"""The evaluation page: ten pictures of utility and risk, with their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from sfumato.domain import Domain
from sfumato.evaluate.audit.audit import Finding
from sfumato.evaluate.evaluation_result import EvaluationResult
from sfumato.evaluate.frontier import CEILING, FLOOR, baseline, without_exact_shares
from sfumato.evaluate.utility.marginal_scores import rescaled
from sfumato.ledger import Entry
from sfumato.ledger.entry import Kind
from sfumato.report.page import Page, Row, ShownTable
from sfumato.report.risk_pictures import (
    attack_picture,
    claim_picture,
    class_picture,
    curve_picture,
    frontier_picture,
)
from sfumato.report.utility_pictures import (
    association_picture,
    column_picture,
    learning_picture,
    pair_picture,
    query_picture,
)
from sfumato.vault.guarantee import cost

_DIGITS = 4
_INTERNAL = (
    "Internal: this page contains exact counts of the protected table, as shares. "
    "It must not leave the steward's hands."
)


def evaluation_page(
    title: str,
    verdicts: Sequence[EvaluationResult],
    domain: Domain,
    *,
    findings: Sequence[Finding] = (),
    journal: Sequence[Row] = (),
    internal: bool = False,
) -> Page:
    """The page of verdicts.

    Args:
        title: of the page.
        verdicts: the releases judged, baselines included.
        domain: labels the cells.
        findings: audits of mechanisms, for the picture of claims.
        journal: entries of the ledger with what was spent so far.
        internal: also show exact shares of the protected table, and say so across the top.
    """
    if not internal:
        verdicts = [without_exact_shares(verdict) for verdict in verdicts]
    pictures = (
        frontier_picture(verdicts),
        attack_picture(verdicts),
        claim_picture(verdicts, findings),
        curve_picture(verdicts),
        class_picture(verdicts),
        column_picture(verdicts, domain, internal=internal),
        pair_picture(verdicts),
        association_picture(verdicts),
        query_picture(verdicts),
        learning_picture(verdicts, journal),
    )
    return Page(
        title=title,
        warning=_INTERNAL if internal else "",
        notes=(
            (
                "The scores on this page were computed from the protected table, without noise: no guarantee of any "
                f"release covers them. {'' if internal else 'Exact counts of the table are not shown. '}"
                "Attacks give what these attackers achieved, not what the best attacker could: only a guarantee "
                "bounds that."
            ),
        ),
        overview={"What it is good for": _utility(verdicts), "What can be stolen from it": _risk(verdicts)},
        details={"What comes from a sample, and its standard error": _samples(verdicts)},
        plots=pictures,
        digits=_DIGITS,
    )


def journal_rows(entries: Iterable[Entry]) -> ShownTable:
    """Releases in order with their cost, and what was spent so far: epsilon where all have one, otherwise rho."""
    released = [entry for entry in entries if entry.event.kind is Kind.RELEASE]
    charges = [entry.event.charge for entry in released if entry.event.charge is not None]
    pure = all(charge.epsilon is not None for charge in charges)
    rows: list[Row] = []
    spent = Fraction(0)
    for entry in released:
        charge = entry.event.charge
        if charge is not None:
            spent += charge.epsilon if pure and charge.epsilon is not None else charge.rho
        rows.append(
            {
                "entry": entry.number,
                "method": entry.method,
                "asked": entry.asked,
                "statement": entry.event.statement,
                "cost": cost(charge),
                "unit": "epsilon" if pure else "rho",
                "spent": float(spent),
            }
        )
    return tuple(rows)


def _utility(verdicts: Sequence[EvaluationResult]) -> ShownTable:
    floor, ceiling = baseline(verdicts, FLOOR), baseline(verdicts, CEILING)
    rows: list[Row] = []
    for verdict in verdicts:
        scale = None
        if floor is not None and ceiling is not None:
            scale = rescaled(verdict.marginals[1], floor=floor.marginals[1], ceiling=ceiling.marginals[1])
        rows.append(
            {
                "release": verdict.name,
                "guarantee": verdict.claim,
                "U1": verdict.marginals[0],
                "U2": verdict.marginals[1],
                "U3": verdict.marginals[2],
                "U2 from floor (0) to other people (1)": scale,
                "95 % of pairs are off by at most": verdict.most_pairs,
                "worst pair is off by": verdict.worst_pair[0],
                "worst pair": " x ".join(verdict.worst_pair[1:]),
                "largest change of an association": verdict.association_gap[0],
                "query error": verdict.query_error,
                "learner": None if verdict.learning is None else verdict.learning[2],
                "told apart": verdict.propensity,
            }
        )
    return tuple(rows)


def _risk(verdicts: Sequence[EvaluationResult]) -> ShownTable:
    return tuple(
        {
            "release": verdict.name,
            "guarantee": verdict.claim,
            "worst attack": verdict.headline.attack,
            "advantage": verdict.headline.value,
            "95 % interval": f"{verdict.headline.interval.low:+.3f} to {verdict.headline.interval.high:+.3f}",
            "bound": verdict.headline.bound,
        }
        for verdict in verdicts
    )


def _samples(verdicts: Sequence[EvaluationResult]) -> ShownTable:
    """Where a sample was looked at, and what that leaves uncertain; attacks have intervals instead."""
    rows: list[Row] = []
    for verdict in verdicts:
        row: dict[str, str | int | float | bool | None] = {"release": verdict.name}
        rows.append(row | verdict.sampled)
    for verdict in verdicts:
        errors: dict[str, str | int | float | bool | None] = {"release": verdict.name}
        rows.append(errors | {f"standard error of {what}": error for what, error in verdict.standard_errors.items()})
    return tuple(rows)
