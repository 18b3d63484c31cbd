"""Audits of noisy tables in which a unit has many rows: one whole unit is put in and taken out again.

Noise is the same on both sides, so the sharpest test of all looks along what the unit adds (Neyman and Pearson): a
single number, however many cells a table has.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError
from sfumato.evaluate.audit.audit import Draw, Subject
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.loss import Rho
from sfumato.privacy.noise import DiscreteGaussian

_FINEST = 50  # standard deviation of noise in steps of one, from which mu is that of the continuous one to 1e-3
_SLACK = 1.001  # of mu

Counted = NDArray[np.int64]
AddNoise = Callable[[Counted], NDArray[np.int64]]


def unit_subject(
    name: str, counts: tuple[Counted, Counted], *, add: AddNoise, claim: Rho, finest: float = math.inf
) -> Subject:
    """A noisy table without a unit and with it, as a subject of an audit.

    Args:
        name: how reports call it.
        counts: exact cells without the unit and with it, shape ``(cells,)``.
        add: the noise: takes counts of shape ``(draws, cells)`` and returns as many noisy ones.
        claim: the loss that the table says it has for the unit.
        finest: standard deviation of the noise, for which mu is held to; of wide Gaussian noise alone, as that test is
            sharper than the one of rho.

    Raises:
        InputError: the unit adds nothing, so that there is nothing to tell apart.
    """
    without, present = (np.asarray(each, dtype=np.int64) for each in counts)
    added = (present - without).astype(np.float64)
    length = float(np.sqrt((added**2).sum()))
    if not length:
        raise InputError("this unit adds nothing to the table, so nothing can be found of it", culprit=name)

    def draw(exact: Counted) -> Draw:
        return lambda count: (add(np.tile(exact, (count, 1))) - without) @ (added / length)

    wide = _FINEST <= finest < math.inf
    return Subject(
        name, claim, draw(without), draw(present), mu=_SLACK * math.sqrt(2 * float(claim.value)) if wide else None
    )


def gaussian_unit_subject(
    name: str, counts: tuple[Counted, Counted], *, squared_sensitivity: int, claim: Rho, entropy: Entropy
) -> Subject:
    """The same with discrete Gaussian noise for a claimed squared sensitivity."""
    noise = DiscreteGaussian.for_loss(claim, squared_sensitivity=squared_sensitivity)
    return unit_subject(
        name, counts, add=lambda exact: noise.add(exact, entropy), claim=claim, finest=math.sqrt(noise.variance)
    )
