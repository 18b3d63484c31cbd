"""Privacy: exact losses, mechanisms with their loss maps, the sampler, accounting.

Losses, charges and accounting are in :mod:`loss`; noise in :mod:`noise`; choices in :mod:`selection`;
keys that the data names in :mod:`stability`; conversion at the edge in :mod:`conversion`.  Names
are imported on first use: a client over HTTP reads losses and draws no noise.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfumato.privacy.loss import Charge, Epsilon, EpsilonDelta, Loss, Rho
    from sfumato.privacy.noise import DiscreteGaussian, DiscreteLaplace
    from sfumato.privacy.selection import Exponential, PermuteAndFlip, StabilityThreshold

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
]

_HOMES = {
    "Charge": "loss",
    "DiscreteGaussian": "noise",
    "DiscreteLaplace": "noise",
    "Epsilon": "loss",
    "EpsilonDelta": "loss",
    "Exponential": "selection",
    "Loss": "loss",
    "PermuteAndFlip": "selection",
    "Rho": "loss",
    "StabilityThreshold": "stability",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- whatever the name stands for
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
