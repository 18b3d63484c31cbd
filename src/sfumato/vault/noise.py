"""Which noise an answer gets: the mechanism of the loss, scaled to the question's sensitivity and share."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

from sfumato.domain import Domain
from sfumato.errors import LossError, QueryError
from sfumato.privacy.gaussian import DiscreteGaussian
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Epsilon, Loss
from sfumato.vault.questions import Measurable
from sfumato.vault.sensitivity import sensitivity

Additive: TypeAlias = DiscreteLaplace | DiscreteGaussian


def noises(
    domain: Domain, questions: Sequence[Measurable], loss: Loss, shares: Sequence[Fraction] | None
) -> tuple[Additive, ...]:
    """One mechanism a question; together they cost at most ``loss``, whatever the answers are.

    Raises:
        QueryError: no question, or one that does not fit the domain.
        LossError: shares that are not positive, one a question, and at most one together.
    """
    if not questions:
        raise QueryError("nothing was asked; name at least one question")
    if shares is None:
        shares = [Fraction(1, len(questions))] * len(questions)
    if len(shares) != len(questions) or min(shares) <= 0 or sum(shares) > 1:
        raise LossError("shares must be positive, one a question, and sum to at most one", culprit=shares)
    return tuple(_noise(domain, question, loss, share) for question, share in zip(questions, shares, strict=True))


def _noise(domain: Domain, question: Measurable, loss: Loss, share: Fraction) -> Additive:
    l1, l2_squared = sensitivity(domain, question)
    if isinstance(loss, Epsilon):
        return DiscreteLaplace.for_loss(loss * share, sensitivity=l1)
    return DiscreteGaussian.for_loss(loss.as_rho() * share, squared_sensitivity=l2_squared)
