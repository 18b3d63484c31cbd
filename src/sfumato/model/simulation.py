"""Randomness for post-processing: drawing rows from a model, shuffling output.  Never privacy noise."""

from __future__ import annotations

import numpy as np

from sfumato.arguments import whole
from sfumato.errors import InputError


def generator(seed: int | None = None) -> np.random.Generator:
    """A generator seeded by the operating system, or by ``seed`` so that a simulation can be repeated.

    Raises:
        InputError: a seed that is no whole number from 0.
    """
    return np.random.default_rng(None if seed is None else seeded(seed))


def seeded(seed: object) -> int:
    """The seed, as a whole number from 0.

    Raises:
        InputError: it is none.
    """
    form = "a seed is a whole number from 0"
    number = whole(seed, form)
    if number < 0:
        raise InputError(f"{form}, not below it", culprit=seed)
    return number
