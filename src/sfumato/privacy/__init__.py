"""Privacy: exact losses, mechanisms with their loss maps, the sampler, accounting.

Losses, charges and accounting are in :mod:`loss`.  The contract of noise is in :mod:`noise`, each mechanism in a file
of its own, and the tuple of them in :mod:`noise_kinds`.  Private selection is in :mod:`selection`, thresholds for
data-dependent keys in :mod:`threshold`, conversion at the edge in :mod:`conversion`, exact draws in :mod:`noise_table`.
Names are imported on first use: a client over HTTP reads losses and draws no noise.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfumato.privacy.gaussian import DiscreteGaussian
    from sfumato.privacy.laplace import DiscreteLaplace
    from sfumato.privacy.loss import Charge, Epsilon, EpsilonDelta, Loss, Rho
    from sfumato.privacy.noise_kinds import least_variance
    from sfumato.privacy.selection import Exponential, PermuteAndFlip
    from sfumato.privacy.threshold import StabilityThreshold

__all__ = [
    "Charge",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Epsilon",
    "EpsilonDelta",
    "Exponential",
    "Loss",
    "PermuteAndFlip",
    "Rho",
    "StabilityThreshold",
    "least_variance",
]

_HOMES = {
    "Charge": "loss",
    "DiscreteGaussian": "gaussian",
    "DiscreteLaplace": "laplace",
    "Epsilon": "loss",
    "EpsilonDelta": "loss",
    "Exponential": "selection",
    "Loss": "loss",
    "PermuteAndFlip": "selection",
    "Rho": "loss",
    "StabilityThreshold": "threshold",
    "least_variance": "noise_kinds",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- whatever the name stands for
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
