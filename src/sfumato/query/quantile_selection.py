"""A single quantile chosen by the exponential mechanism.

The whole loss is spent on one number, whose error is a few rows of rank.  It has no interval, and no other quantile
follows from it; :func:`sfumato.query.ask` computes several quantiles from a noisy tree of counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from sfumato.domain import Domain, Integer, Real
from sfumato.domain.domain import numeric
from sfumato.domain.predicate import Predicate
from sfumato.errors import LossError, QueryError
from sfumato.privacy.loss import Loss
from sfumato.query.aggregates import Quantile
from sfumato.query.aggregates.bins import leaves
from sfumato.query.ask import CONFIDENCE
from sfumato.query.question import Query
from sfumato.vault.interface import (
    Mechanisms,
    Payload,
    ReleaseRequest,
    StatedLoss,
    VaultInterface,
    refuse_no_vault,
    stated_loss,
    states_loss,
)
from sfumato.vault.mechanisms import selection, selection_charge
from sfumato.vault.release import Release
from sfumato.vault.scores import RankErrors

if TYPE_CHECKING:
    from sfumato.domain.view import BoundedView

_PARTS = 4096


@dataclass(frozen=True, kw_only=True, repr=False)
class ChosenQuantile(Release):
    """A value near a quantile; ``expected_error`` bounds its error of rank in rows, with 95 % confidence."""

    value: float
    quantile: Quantile

    @property
    def headline(self) -> str:
        """The value."""
        return f"{self.quantile} {self.value:.6g}"


@states_loss
def choose_quantile(
    vault: VaultInterface,
    quantile: Quantile,
    *,
    where: Predicate | str | None = None,
    retry_key: str | None = None,
    **stated: Unpack[StatedLoss],
) -> ChosenQuantile:
    """Choose a value near a quantile of the rows that meet a condition.

    Exponential mechanism over a grid of up to 2^24 cells between the declared bounds, of single integers if possible;
    exact.  Neighbors, sensitivity and scores: :class:`sfumato.vault.scores.RankErrors`.  Loss: epsilon, or the epsilon
    that rho admits (:class:`sfumato.privacy.selection.Exponential`).  Source: Smith 2011, algorithm 2, on a grid.

    Args:
        vault: the protected table.
        quantile: the attribute and the probability.
        where: the condition; None: all rows.
        retry_key: the same for all attempts at one request.
        **stated: ``loss``, or ``epsilon`` with or without ``delta``: the total loss of the release, for the privacy
            unit of the vault's domain (add/remove).

    Raises:
        QueryError, DomainError: the quantile does not fit the domain, or no row that meets the condition can have a
            value; nothing was spent.
        LossError: no loss; nothing was spent.
        BudgetError: the ledger refuses the charge; nothing was spent.
    """
    loss = stated_loss(stated)
    refuse_no_vault(vault)
    if not isinstance(loss, Loss):
        raise LossError("state a loss: Epsilon, Rho or EpsilonDelta", culprit=loss)
    domain = vault.domain
    query = Query((quantile,), where=where).check(domain)
    where = query.condition(domain)
    ends = _possible_ends(quantile.of, where, domain, vault.view)
    scores = _rank_errors(domain, quantile, where)
    mechanism = selection(domain, scores, loss)  # refuse before the charge if nothing can be chosen

    def run(mechanisms: Mechanisms) -> Payload:
        return {"cell": mechanisms.select(scores, loss)}

    request = ReleaseRequest("query", "choice", {"scores": scores.canonical()}, f"chosen {query.describe(domain)}")
    released = vault.release(request, loss, run, charge=selection_charge(mechanism, loss), retry_key=retry_key)
    cells = (len(scores.edges) - 1) * scores.parts
    # McSherry and Talwar 2007, Theorem 6: some cell has error zero, and at most ``cells`` cells have more
    missed = 2 * float(mechanism.sensitivity / mechanism.epsilon.value) * math.log(cells / float(1 - CONFIDENCE))
    return ChosenQuantile(
        guarantee=released.guarantee,
        cost=released.cost,
        accepted=released.accepted,
        expected_error={f"{quantile}, in rows of rank": missed / quantile.probability.denominator},
        provenance=released.provenance,
        value=_value(int(released.payload["cell"]), scores, ends, integers=isinstance(domain[quantile.of], Integer)),
        quantile=quantile,
    )


def _value(cell: int, scores: RankErrors, ends: tuple[float, float], *, integers: bool) -> float:
    """Return the value for a cell of the grid: its first integer or its middle, between the ends."""
    bin_, part = divmod(cell, scores.parts)
    start, end = scores.edges[bin_], scores.edges[bin_ + 1]
    low = start + part * (end - start) / scores.parts
    value = math.ceil(low) if integers else low + (end - start) / scores.parts / 2
    return float(min(max(value, ends[0]), ends[1]))


def _possible_ends(name: str, where: Predicate | None, domain: Domain, view: BoundedView | None) -> tuple[float, float]:
    """Return the least and the greatest possible value of an attribute in rows that meet a condition.

    Raises:
        QueryError: no value is possible.
    """
    attribute = numeric(domain, name)
    if where is None and view is None:
        return attribute.minimum, attribute.maximum
    from sfumato.query.possible_groups import possible_span

    span = possible_span(name, where, domain, view)
    if span is None:
        raise QueryError(
            f"no row that meets this condition has a value of {name!r}; change the condition", culprit=where
        )
    least, last = span
    greatest: float = attribute.bounds(last)[1]
    if isinstance(attribute, Real) and not attribute.is_closed(last):
        greatest = math.nextafter(greatest, -math.inf)
    return attribute.bounds(least)[0], greatest


def _rank_errors(domain: Domain, quantile: Quantile, where: Predicate | None) -> RankErrors:
    """Return the scores: bins of the attribute's quantiles, divided into single integers or into 4096 cells each.

    Raises:
        QueryError, DomainError: the attribute does not exist or has no numbers.
    """
    attribute = numeric(domain, quantile.of)
    edges = leaves(domain, quantile.of).edges[0]
    width = edges[1] - edges[0]
    parts = min(_PARTS, int(width)) if isinstance(attribute, Integer) else _PARTS
    if parts < 1:
        raise QueryError(f"the bins of {quantile.of!r} are too narrow to be divided", culprit=quantile)
    return RankErrors(quantile.of, quantile.probability, edges, parts, where)
