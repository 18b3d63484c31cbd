"""The doors, as a synthesizer or a query sees them: a Protocol that the vault and its fake both have."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol

import pyarrow as pa

from sfumato.domain import Domain
from sfumato.privacy.loss import EpsilonDelta, Loss
from sfumato.vault.questions import Measurable, Measurement, Scores


class Doors(Protocol):
    """What a method may do with a protected table.  Each call charges its loss before it touches the data."""

    @property
    def domain(self) -> Domain:
        """The public description of the table, with its unit."""
        ...

    def measure(
        self, questions: Sequence[Measurable], loss: Loss, *, shares: Sequence[Fraction] | None = None
    ) -> tuple[Measurement, ...]:
        """Noisy answers to all questions, together at ``loss``.

        Pure epsilon takes discrete Laplace noise of the question's L1 sensitivity; rho (and what
        (epsilon, delta) admits as rho) takes discrete Gaussian noise of its L2 sensitivity.  ``shares``
        divide the loss over the questions (positive, summing to at most one); without them it is divided
        equally.
        """
        ...

    def select(self, scores: Scores, loss: Loss) -> int:
        """Index of a candidate with nearly the largest score: exponential mechanism (McSherry and Talwar 2007),
        exact, of loss epsilon, or, for rho, of epsilon = sqrt(8 rho) (Cesar and Rogers 2021: it is
        epsilon^2/8-zCDP as its bounded range is epsilon).
        """
        ...

    def threshold(self, columns: tuple[str, ...], loss: EpsilonDelta) -> pa.Table:
        """Values of undeclared text columns held by enough units, with a noisy number of units (column
        ``units``): stability threshold (Korolova, Kenthapadi, Mishra, Ntoulas 2009).
        """
        ...
