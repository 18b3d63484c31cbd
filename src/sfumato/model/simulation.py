"""Randomness for post-processing: drawing rows from a model, shuffling output.  Never privacy noise."""

from __future__ import annotations

import numpy as np


def generator(seed: int | None = None) -> np.random.Generator:
    """A generator seeded by the operating system, or by ``seed`` so that a simulation can be repeated."""
    return np.random.default_rng(seed)
