"""Privacy losses as text: there is none by default, and text is read exactly."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from sfumato.errors import LossError

if TYPE_CHECKING:
    from sfumato.privacy.loss import Loss

_LEAST, _MOST = 1e-12, 1e6


@lru_cache(maxsize=1024)  # the same few are asked for again and again
def loss_of(epsilon: str | None, delta: str | None, rho: str | None) -> Loss:
    """The loss that the three texts spell.

    Raises:
        LossError: none, or a combination that has no meaning.
    """
    from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho

    loss: Loss
    match epsilon, delta, rho:
        case str(), None, None:
            loss = Epsilon(epsilon)
        case str(), str(), None:
            loss = EpsilonDelta(epsilon, delta)
        case None, None, str():
            loss = Rho(rho)
        case str(), _, str():
            raise LossError("epsilon and rho are two ways to say what the release may cost; give one of them")
        case None, str(), _:
            raise LossError("a delta alone does not say what the release may cost; give epsilon with it")
        case _:
            raise LossError("say what the release may cost: epsilon, epsilon with delta, or rho")
    size = loss.epsilon if isinstance(loss, EpsilonDelta) else loss.value
    if not _LEAST <= size <= _MOST:
        raise LossError("a loss above a million protects nobody, and one below 1e-12 says nothing; choose another")
    return loss


def limit_of(text: str | None) -> Loss | None:
    """The limit that a text spells: ``1``, ``1,1e-9`` or ``rho=0.5``.

    Raises:
        LossError: anything else.
    """
    if text is None:
        return None
    epsilon, _, delta = text.partition(",")
    try:
        if text.startswith("rho="):
            return loss_of(None, None, text.removeprefix("rho="))
        return loss_of(epsilon, delta or None, None)
    except LossError as error:
        raise LossError(f"a limit is EPSILON, EPSILON,DELTA or rho=RHO, not {text[:40]!r}: {error}") from None
