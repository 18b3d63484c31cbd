"""Marginals that were released of a table before: read back from the journal's stored answers, free to use again.

An answer that is stored is public to whoever it was shown to.  Computing with it is post-processing, and costs the
dataset nothing.  An analyst with a name gets what the account of that name was charged for, and nothing else: neither
other marginals, nor a release that was made of them, whose own loss does not cover what they tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from sfumato.domain import Domain
from sfumato.errors import SfumatoError
from sfumato.ledger import StoredAnswer
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Loss, Rho
from sfumato.vault.interface import decode
from sfumato.vault.measurables import Marginal, StoredMarginal
from sfumato.vault.mechanisms import noises

STORED = (("query", "tally"), ("vault", "measure"))
"""Families and methods whose answers are noisy tables, each under its place among the questions."""

REUSING = "synthesize"
"""The family whose methods may use stored marginals."""

REUSED = "reused"
"""Where the payload of such a method names the journal's entries whose marginals it was made of."""


def stored_marginals(domain: Domain, answers: Sequence[StoredAnswer]) -> tuple[StoredMarginal, ...]:
    """The marginals without condition among stored answers about ``domain``; what cannot be read is left out."""
    found: list[StoredMarginal] = []
    for answer in answers:
        if answer.question.parameters.get("domain") == domain.hash:
            try:
                found += _marginals(domain, answer)
            except (SfumatoError, KeyError, TypeError, ValueError):  # of another version: no less, and no more, is lost
                continue
    return tuple(found)


def _marginals(domain: Domain, answer: StoredAnswer) -> list[StoredMarginal]:
    parameters: Mapping[str, Any] = answer.question.parameters
    loss, asked = _loss(parameters["loss"]), parameters["questions"]
    shares = [Fraction(1, len(asked))] * len(asked) if parameters["shares"] is None else parameters["shares"]
    payload = decode(answer.body)
    found = []
    for place, (question, share) in enumerate(zip(asked, map(Fraction, shares), strict=True)):
        names = tuple(question.get("attributes", ()))
        if question != Marginal(names).canonical():
            continue
        (noise,) = noises(domain, [Marginal(names)], loss, [share])
        values = payload[str(place)].reshape(domain.project(names).shape if names else ())
        rho = (loss.divisible * share).as_rho().value
        found.append(StoredMarginal(names, values, noise, rho, answer.number))
    return found


def _loss(written: Mapping[str, str | None]) -> Loss:
    """The loss that :func:`sfumato.vault.release.loss_json` wrote."""
    match dict(written):
        case {"epsilon": str(epsilon), "delta": str(delta), **rest} if not rest:
            return EpsilonDelta(epsilon, delta)
        case {"epsilon": str(epsilon), **rest} if not rest:
            return Epsilon(epsilon)
        case {"rho": str(rho), **rest} if not rest:
            return Rho(rho)
        case _:
            raise ValueError(written)
