"""Which noise an answer gets: the mechanism of the loss, scaled to the question's sensitivity and share."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import TypeAlias

from sfumato.domain import Domain
from sfumato.errors import LossError, QueryError
from sfumato.privacy.gaussian import DiscreteGaussian
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Epsilon, Loss
from sfumato.vault.checks import check_size
from sfumato.vault.questions import Marginal, Measurable
from sfumato.vault.sensitivity import sensitivity

Additive: TypeAlias = DiscreteLaplace | DiscreteGaussian


def noises(
    domain: Domain, questions: Sequence[Measurable], loss: Loss, shares: Sequence[Fraction] | None
) -> tuple[Additive, ...]:
    """One mechanism a question; together they cost at most ``loss``, whatever the answers are.

    Raises:
        DomainError, QueryError: no question, or one that does not fit the domain.
        SizeError: one that could not be counted.
        LossError: no loss, or shares that are not positive, one a question, and at most one together.
    """
    if not isinstance(loss, Loss):
        raise LossError("state a loss: Epsilon, Rho or EpsilonDelta", culprit=loss)
    if not questions:
        raise QueryError("nothing was asked; name at least one question")
    if shares is None:
        shares = _equal(len(questions))
    elif len(shares) != len(questions) or min(shares) <= 0 or sum(shares) > 1:
        raise LossError("shares must be positive, one a question, and sum to at most one", culprit=shares)
    check_size(domain, questions)
    return tuple(
        _noise(loss, share, *_sensitivity(domain, question)) for question, share in zip(questions, shares, strict=True)
    )


def _sensitivity(domain: Domain, question: Measurable) -> tuple[int, int]:
    # a question is looked at before it is charged and again when it is measured; those with arrays are not kept alive
    return _of_marginal(domain, question) if isinstance(question, Marginal) else sensitivity(domain, question)


@lru_cache(maxsize=1024)
def _of_marginal(domain: Domain, question: Marginal) -> tuple[int, int]:
    return sensitivity(domain, question)


@lru_cache(maxsize=64)
def _equal(parts: int) -> tuple[Fraction, ...]:
    return (Fraction(1, parts),) * parts


@lru_cache(maxsize=1024)  # adaptive methods ask for the same noise again and again
def _noise(loss: Loss, share: Fraction, l1: int, l2_squared: int) -> Additive:
    try:
        if isinstance(loss, Epsilon):
            return DiscreteLaplace.for_loss(loss * share, sensitivity=l1)
        return DiscreteGaussian.for_loss(loss.as_rho() * share, squared_sensitivity=l2_squared)
    except LossError as error:
        raise LossError(f"{loss} is too small: noise so wide cannot be drawn; state more", culprit=loss) from error
