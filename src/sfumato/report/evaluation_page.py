"""The evaluation page: ten pictures of utility and risk, with their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from sfumato.domain import Domain
from sfumato.evaluate.audit.audit import Finding
from sfumato.evaluate.evaluation_result import EvaluationResult
from sfumato.evaluate.frontier import CEILING, FLOOR, baseline, judged_by_rows, without_exact_shares
from sfumato.evaluate.utility.scorecard import rescaled
from sfumato.evaluate.verdicts import THRESHOLD_SET, Verdict, judged, worst
from sfumato.ledger import Account, Entry, Kind
from sfumato.ledger.entry import method_title
from sfumato.privacy.loss import NOTHING, Loss
from sfumato.report.page import Page, Row, ShownTable, unchecked
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
from sfumato.vault.release import cost

_DIGITS = 4
_MOST_LEADING = 4  # releases that the first sentence judges
_INTERNAL = (
    "Internal: this page contains exact counts of the protected table, as shares. "
    "It must not leave the steward's hands."
)


def evaluation_page(
    title: str,
    results: Sequence[EvaluationResult],
    domain: Domain,
    *,
    findings: Sequence[Finding] = (),
    journal: Sequence[Row] = (),
    internal: bool = False,
) -> Page:
    """Return the page of results.

    Args:
        title: title of the page.
        results: the results of the releases and of the baselines.
        domain: the domain, which labels the cells.
        findings: audits of mechanisms, for the picture of claims.
        journal: entries of the ledger with what was spent so far.
        internal: if true, also show exact shares of the protected table, with a warning at the top.
    """
    lead, verdicts = _lead(results), _verdicts(results)  # exact shares are needed for the verdict on single columns
    if not internal:
        results = [without_exact_shares(result) for result in results]
    attacked = any(result.attacks for result in results)
    with unchecked():
        pictures = (
            *((frontier_picture(results), attack_picture(results)) if attacked else ()),
            *((claim_picture(results, findings), curve_picture(results)) if attacked else ()),
            class_picture(results),
            column_picture(results, domain, internal=internal),
            *((pair_picture(results), association_picture(results)) if len(domain) > 1 else ()),
            query_picture(results),
            *((learning_picture(results, journal),) if attacked else ()),
        )
    many = len(judged(results)) > _MOST_LEADING
    risk = {"What attacks achieved": _risk(results)} if attacked else {}
    return Page(
        title=title,
        kicker="Evaluation \N{MIDDLE DOT} for the owner of the table",
        lead=lead,
        warning=_INTERNAL if internal else "",
        notes=_notes(domain, internal=internal, attacked=attacked),
        overview=risk if many else verdicts | risk,
        details={
            **(verdicts if many else {}),
            "All scores of utility": _utility(results),
            "What comes from a sample, and its standard error": _samples(results),
        },
        plots=pictures,
        digits=_DIGITS,
    )


def _lead(results: Sequence[EvaluationResult]) -> str:
    """Return the worst verdicts on the accuracy and on the risk of up to four releases, or how many of more leak."""
    by_name = judged(results)
    if len(by_name) > _MOST_LEADING:
        risks = [worst([each for each in judgements if each.is_risk]) for judgements in by_name.values()]
        leaks = sum(risk in (Verdict.LEAK, Verdict.BROKEN) for risk in risks)
        return f"{len(by_name)} releases were judged. Attacks found a leak in {leaks}; picture 1 compares them all."
    parts = []
    for name, judgements in by_name.items():
        scores = [each for each in judgements if not each.is_risk]
        attacks = [each for each in judgements if each.is_risk]
        risk = worst(attacks).value.lower() if attacks else "not evaluated"
        if worst(attacks) is Verdict.NO_LEAK and not any(each.is_limited for each in attacks):
            risk += ", and no limit below 1.00 is known, so that this is no evidence of protection"
        parts.append(f"{name}: weakest accuracy: {worst(scores).value.lower()}; risk: {risk}.")
    return " ".join(parts)


def _notes(domain: Domain, *, internal: bool, attacked: bool) -> tuple[str, ...]:
    scope = (
        "The scores on this page were computed from the protected table, without noise: no guarantee of any "
        f"release covers them. {'' if internal else 'Exact counts of the table are not shown. '}"
    )
    scope += (
        "Attacks give what these attackers achieved, not what the best attacker could: only a guarantee bounds that."
        if attacked
        else "No holdout was given, so that no attack was run and no learner was tested."
    )
    return (scope, judged_by_rows(domain.unit)) if domain.unit.rows > 1 else (scope,)


def journal_rows(entries: Iterable[Entry], limit: Loss) -> ShownTable:
    """Return releases in order, each with its cost, the sum of losses so far, and the guarantee of all so far.

    Losses are summed in epsilon if all have one, otherwise in rho.
    """
    released = [entry for entry in entries if entry.event.kind is Kind.RELEASE]
    charges = [entry.event.charge for entry in released if entry.event.charge is not None]
    pure = all(charge.epsilon is not None for charge in charges)
    rows: list[Row] = []
    spent, account = Fraction(0), Account(limit, NOTHING)
    for entry in released:
        charge = entry.event.charge
        if charge is not None:
            spent += charge.epsilon if pure and charge.epsilon is not None else charge.rho
            account = account.charged(charge)
        else:
            account = replace(account, exact=(*account.exact, entry.number))
        rows.append(
            {
                "entry": entry.number,
                "method": method_title(entry.method),
                "asked": entry.asked,
                "statement": entry.event.statement,
                "cost": cost(charge),
                "unit": "epsilon" if pure else "rho",
                "spent": float(spent),
                "guarantee_so_far": account.guarantee,
            }
        )
    return tuple(rows)


def _verdicts(results: Sequence[EvaluationResult]) -> dict[str, ShownTable]:
    """Return the table of verdicts by its heading, with names if there are several releases; nothing without one."""
    by_name = judged(results)
    rows = tuple(
        ({"release": name} if len(by_name) > 1 else {})
        | {
            "question": each.question,
            "verdict": each.verdict.value,  # early, so that a narrow screen shows it
            "this release": each.figure,
            "to compare with": each.compared_with,
        }
        for name, verdicts in by_name.items()
        for each in verdicts
    )
    return {f"Verdicts ({THRESHOLD_SET})": rows} if rows else {}


def _utility(results: Sequence[EvaluationResult]) -> ShownTable:
    floor, ceiling = baseline(results, FLOOR), baseline(results, CEILING)
    rows: list[Row] = []
    for result in results:
        correlation, point = result.correlation_gap, result.point_gap
        scale = None
        if floor is not None and ceiling is not None:
            scale = rescaled(result.marginals[1], floor=floor.marginals[1], ceiling=ceiling.marginals[1])
        rows.append(
            {
                "release": result.name,
                "guarantee": result.claim,
                "U1": result.marginals[0],
                "U2": result.marginals[1],
                "U3": result.marginals[2],
                "U2 from floor (0) to other people (1)": scale,
                "95 % of pairs are off by at most": result.most_pairs,
                "worst pair is off by": result.worst_pair[0],
                "worst pair": result.worst_pair_text,
                "largest change of an association": result.association_gap[0],
                "largest change of a correlation": None if correlation is None else correlation[0],
                "largest change of a point": None if point is None else point[0],
                "worst point": None if point is None else " = ".join(point[1:]),
                "query error": result.query_error,
                "learner": None if result.learning is None else result.learning[2],
                "told apart": result.propensity,
            }
        )
    return tuple(rows)


def _risk(results: Sequence[EvaluationResult]) -> ShownTable:
    return tuple(
        {
            "release": result.name,
            "guarantee": result.claim,
            "worst attack": result.headline.attack,
            "advantage": result.headline.value,
            "95 % interval": f"{result.headline.interval.low:+.3f} to {result.headline.interval.high:+.3f}",
            "bound": result.headline.bound,
        }
        for result in results
        if result.headline is not None
    )


def _samples(results: Sequence[EvaluationResult]) -> ShownTable:
    """Return the sample sizes and the standard errors.  Attacks have intervals instead."""
    rows: list[Row] = []
    for result in results:
        row: dict[str, str | int | float | bool | None] = {"release": result.name}
        rows.append(row | result.sampled)
    for result in results:
        errors: dict[str, str | int | float | bool | None] = {"release": result.name}
        rows.append(errors | {f"standard error of {what}": error for what, error in result.standard_errors.items()})
    return tuple(rows)
