"""The doors themselves: charge, count, add noise, in this order and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache

import numpy as np
import pyarrow as pa

from sfumato.domain import Domain
from sfumato.engine.exact import reveal
from sfumato.engine.port import Counts
from sfumato.privacy.accountant import Charge, charge_for
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Loss
from sfumato.privacy.selection import Exponential
from sfumato.privacy.stability import StabilityThreshold
from sfumato.vault.noise import noises
from sfumato.vault.purse import Purse
from sfumato.vault.questions import AbsoluteErrors, MarginalErrors, Measurable, Measurement, RankErrors, Scores
from sfumato.vault.rank import choose_cell
from sfumato.vault.sensitivity import selection_sensitivity
from sfumato.vault.tallies import Tallies


class Session:
    """Doors on one encoded table that draw on one purse.

    Neighbouring tables differ in one unit (added or removed).  Exact counts live in local variables of
    these methods only.
    """

    def __init__(self, tallies: Tallies, *, purse: Purse, entropy: Entropy) -> None:
        self._tallies = tallies
        self._purse = purse
        self._entropy = entropy

    @property
    def domain(self) -> Domain:
        """The public description of the table, with its unit."""
        return self._tallies.encoded.domain

    def measure(
        self, questions: Sequence[Measurable], loss: Loss, *, shares: Sequence[Fraction] | None = None
    ) -> tuple[Measurement, ...]:
        """See :meth:`sfumato.vault.doors.Doors.measure`."""
        mechanisms = noises(self.domain, questions, loss, shares)
        self._purse.spend(charge_for(loss))
        exact = self._tallies.answers(questions)
        return tuple(
            Measurement(question, noise.add(answer, self._entropy), noise)
            for question, answer, noise in zip(questions, exact, mechanisms, strict=True)
        )

    def select(self, scores: Scores, loss: Loss) -> int:
        """See :meth:`sfumato.vault.doors.Doors.select`."""
        mechanism = chooser(self.domain, scores, loss)
        self._purse.spend(mechanism.charge)
        if isinstance(scores, RankErrors):
            return choose_cell(self._tallies, scores, mechanism, self._entropy)
        return mechanism.choose(self._scores(scores), self._entropy)

    def threshold(self, columns: tuple[str, ...], loss: EpsilonDelta) -> pa.Table:
        """See :meth:`sfumato.vault.doors.Doors.threshold`."""
        mechanism = StabilityThreshold.for_loss(loss, keys_per_unit=self.domain.unit.rows)
        self._purse.spend(mechanism.charge)
        found = reveal(self._tallies.encoded.keys(columns))
        shown, units = mechanism.release(found["units"].to_numpy(), self._entropy)
        released = found.filter(pa.array(shown)).drop_columns(["units"]).append_column("units", pa.array(units))
        return released.sort_by([(column, "ascending") for column in columns])

    def _scores(self, scores: AbsoluteErrors | MarginalErrors) -> Counts | list[Fraction]:
        if isinstance(scores, AbsoluteErrors):
            (exact,) = self._tallies.answers([scores.queries])
            errors: Counts = np.abs(exact - scores.answers)
            return errors
        distances = self._tallies.answers(scores.distances)
        return [
            weight * (int(distance[0]) - penalty)
            for distance, weight, penalty in zip(distances, scores.weights, scores.penalties, strict=True)
        ]


def chooser(domain: Domain, scores: Scores, loss: Loss) -> Exponential:
    """The mechanism of a selection at a loss.

    Raises:
        DomainError, QueryError, SizeError: the scores cannot be computed.
    """
    return _chooser(loss, selection_sensitivity(domain, scores))


def selection_charge(mechanism: Exponential, loss: Loss) -> Charge:
    """What one selection at a loss costs: of an epsilon, a quarter of the rho that it implies in general."""
    return mechanism.charge if isinstance(loss, Epsilon) else charge_for(loss)


@lru_cache(maxsize=1024)  # adaptive methods choose at the same loss again and again
def _chooser(loss: Loss, sensitivity: int | Fraction) -> Exponential:
    divisible = loss if isinstance(loss, Epsilon) else loss.as_rho()
    return Exponential.for_loss(divisible, sensitivity=sensitivity, monotone=False)
