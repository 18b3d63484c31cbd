"""Privacy: exact losses, mechanisms with their loss maps, the sampler, the accountant.

Losses are in :mod:`loss`; noise in :mod:`laplace` and :mod:`gaussian`; choices in :mod:`selection`;
keys that the data names in :mod:`stability`; accounting in :mod:`accountant`; conversion at the edge in
:mod:`conversion`.
"""

from sfumato.privacy.accountant import Charge
from sfumato.privacy.gaussian import DiscreteGaussian
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Loss, Rho
from sfumato.privacy.selection import Exponential, PermuteAndFlip
from sfumato.privacy.stability import StabilityThreshold

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
