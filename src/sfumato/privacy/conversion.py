"""From zCDP to (epsilon, delta) and back, rounded towards more loss."""

from __future__ import annotations

from fractions import Fraction

from sfumato.privacy.loss import EpsilonDelta, Rho


def epsilon_of(rho: Fraction, delta: Fraction) -> Fraction:
    raise NotImplementedError


def rho_within(loss: EpsilonDelta) -> Rho:
    raise NotImplementedError
