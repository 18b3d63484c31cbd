"""The mechanisms that add noise, in one tuple for audits and for the choice of noise for one number.

Releases add the noise of ``NOISE_OF`` only, so no stored table names another one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sfumato.errors import LossError
from sfumato.privacy.gaussian import DiscreteGaussian
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.privacy.noise import Noise
from sfumato.privacy.staircase import Staircase

NOISES: Final[tuple[type[Noise], ...]] = (DiscreteLaplace, DiscreteGaussian, Staircase)
"""Every mechanism that adds noise."""

NOISE_OF: Final[Mapping[type, type[Noise]]] = {Epsilon: DiscreteLaplace, Rho: DiscreteGaussian}
"""The noise that a release adds, by the measure of the shares of its loss.  Stored tables name no other."""


def noise_from_json(written: Sequence[str]) -> Noise:
    """Return the noise that :meth:`sfumato.privacy.noise.Noise.to_json` wrote into a release.

    Noise for one number alone is refused: a file that names it for a table states a guarantee that does not hold.

    Raises:
        LossError: no release adds noise of that name, or a parameter is out of its range.

    >>> noise_from_json(["discrete Laplace", "2.5"])
    DiscreteLaplace(scale=Fraction(5, 2))
    """
    name, *parameters = written
    kinds: dict[str, Callable[..., Noise]] = {kind.name: kind for kind in NOISE_OF.values()}
    if name not in kinds:
        raise LossError(f"no release adds noise called {name!r}; there are {', '.join(kinds)}", culprit=name)
    return kinds[name](*parameters)


def least_variance(loss: Epsilon | Rho, sensitivity: int) -> Noise:
    """Return the noise of least variance for one integer, such as a sum of clamped values.

    Neighbors: two numbers at most ``sensitivity`` apart.  The result holds for that one number and not for vectors,
    in which neighbors change several numbers.

    Raises:
        LossError: the sensitivity is not a positive integer, or the noise would be too wide to draw.

    >>> least_variance(Rho("0.5"), 1)
    DiscreteGaussian(sigma_squared=Fraction(1, 1))
    """
    candidates = [
        kind.for_loss(loss, sensitivity**2 if kind.sensitivity_norm == "l2_squared" else sensitivity)
        for kind in NOISES
        if isinstance(loss, kind.loss_type)
    ]
    return min(candidates, key=lambda noise: noise.variance)
