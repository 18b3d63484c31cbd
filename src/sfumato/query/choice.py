"""One quantile on its own, as sharply as a loss allows: chosen, not read off a table of counts.

:func:`sfumato.query.ask.ask` reads quantiles off a noisy tree of counts, one release from which all quantiles of an
attribute follow, each with its interval.  The exponential mechanism spends everything on a single number: its error
is a few rows of rank, at the price of the interval and of the other quantiles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from sfumato.domain import Domain, Integer
from sfumato.domain.predicate import Predicate
from sfumato.errors import LossError, QueryError
from sfumato.privacy.loss import Loss
from sfumato.query.ask import Keeper
from sfumato.query.normal import normal
from sfumato.query.question import Quantile, Query, numeric
from sfumato.query.tally import leaves
from sfumato.query.words import in_words
from sfumato.vault import canonical
from sfumato.vault.doors import Doors
from sfumato.vault.keeper import refuse_no_vault
from sfumato.vault.payload import Payload
from sfumato.vault.questions import RankErrors
from sfumato.vault.release import Release
from sfumato.vault.session import chooser, selection_charge
from sfumato.vault.vault import Request

_PARTS = 4096
_SURE = Fraction(95, 100)


@dataclass(frozen=True, kw_only=True)
class ChosenQuantile(Release):
    """A value near a quantile; ``expected_error`` bounds, with 95 %, by how many rows it misses the rank."""

    value: float
    quantile: Quantile


def choose_quantile(
    vault: Keeper, quantile: Quantile, *, loss: Loss, where: Predicate | None = None, retry_key: str | None = None
) -> ChosenQuantile:
    """Choose a value near a quantile of the rows that meet a condition.

    Exponential mechanism over a grid of up to 2^24 cells between the declared bounds, single integers where they are
    no more; exact.  Neighbours, sensitivity and scores: :class:`sfumato.vault.questions.RankErrors`.  Loss: epsilon,
    or what rho admits (:class:`sfumato.privacy.selection.Exponential`).  Source: Smith 2011, algorithm 2, on a grid.

    Args:
        vault: the protected table.
        quantile: of which attribute, and which.
        loss: what the release costs in all, for the unit of the vault's domain (add/remove).
        where: None: all rows.
        retry_key: the same for all attempts at one request.

    Raises:
        QueryError, DomainError: the question does not fit the domain; nothing was spent.
        LossError: no loss; nothing was spent.
        BudgetError: the ledger refuses the charge; nothing was spent.
    """
    refuse_no_vault(vault)
    if not isinstance(loss, Loss):
        raise LossError("state a loss: Epsilon, Rho or EpsilonDelta", culprit=loss)
    domain = vault.domain
    query = Query((quantile,), where=where).check(domain)
    asked = errors(domain, quantile, normal(query.where, domain))
    mechanism = chooser(domain, asked, loss)  # refuses what cannot be chosen, for free

    def run(doors: Doors) -> Payload:
        return {"cell": doors.select(asked, loss)}

    request = Request("query", "choice", {"scores": canonical.question(asked)}, f"chosen {in_words(query, domain)}")
    settled = vault.release(request, loss, run, charge=selection_charge(mechanism, loss), retry_key=retry_key)
    bin_, part = divmod(int(settled.payload["cell"]), asked.parts)
    start, end = asked.edges[bin_], asked.edges[bin_ + 1]
    attribute = numeric(domain, quantile.of)
    low = start + part * (end - start) / asked.parts
    value = math.ceil(low) if isinstance(attribute, Integer) else low + (end - start) / asked.parts / 2
    cells = (len(asked.edges) - 1) * asked.parts
    # McSherry and Talwar 2007, Theorem 6: some cell misses nothing, and the rest are no more than all
    missed = 2 * float(mechanism.sensitivity / mechanism.epsilon.value) * math.log(cells / float(1 - _SURE))
    return ChosenQuantile(
        guarantee=settled.guarantee,
        cost=settled.cost,
        expected_error={f"{quantile}, in rows of rank": missed / quantile.probability.denominator},
        provenance=settled.provenance,
        value=float(min(max(value, attribute.minimum), attribute.maximum)),
        quantile=quantile,
    )


def errors(domain: Domain, quantile: Quantile, where: Predicate | None) -> RankErrors:
    """The scores: bins of the attribute's quantiles, divided to single integers or into 4096 cells each.

    Raises:
        QueryError, DomainError: the attribute has no numbers, or there is none.
    """
    attribute = numeric(domain, quantile.of)
    edges = leaves(domain, quantile.of).edges[0]
    width = edges[1] - edges[0]
    parts = min(_PARTS, int(width)) if isinstance(attribute, Integer) else _PARTS
    if parts < 1:
        raise QueryError(f"the bins of {quantile.of!r} are too narrow to be divided", culprit=quantile)
    return RankErrors(quantile.of, quantile.probability, edges, parts, where)
