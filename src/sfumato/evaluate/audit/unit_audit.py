"""Audits of noisy tables for a unit with many rows.  They compare a table with and without the whole unit.

The noise is the same on both sides.  So the sharpest test is the projection onto the unit's counts (Neyman and
Pearson): a single number for any number of cells.

A whole release is audited by shadow releases, with and without one more unit.  The attacker knows all other units and
reads the published noisy tables.  The selection of these tables also depends on noisy scores that are not published.
Apart from what these scores reveal, the likelihood ratio of the tables is the sharpest test.  Counts and weights are
computed here independently of the synthesizer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError
from sfumato.evaluate.audit.audit import FALSE_ALARMS, Draw, Subject
from sfumato.evaluate.audit.loss_bounds import Distinguished, lower_bounds
from sfumato.evaluate.intervals import Advantage, ConfidenceInterval, Proportion
from sfumato.model.noisy_table import NoisyTable
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.gaussian import DiscreteGaussian
from sfumato.privacy.loss import Loss, Rho

_FINEST = 50  # smallest standard deviation, in steps of one, at which mu equals that of continuous noise to 1e-3
_SLACK = 1.001  # relative tolerance of mu

CellCounts = NDArray[np.int64]
AddNoise = Callable[[CellCounts], NDArray[np.int64]]


def unit_subject(
    name: str, counts: tuple[CellCounts, CellCounts], *, add: AddNoise, claim: Rho, finest: float = math.inf
) -> Subject:
    """Return a noisy table without a unit and with it, as a subject of an audit.

    Args:
        name: the name in reports.
        counts: exact cells without the unit and with it, shape ``(cells,)``.
        add: the noise: takes counts of shape ``(draws, cells)`` and returns as many noisy ones.
        claim: the loss that the table claims for the unit.
        finest: standard deviation of Gaussian noise; infinity for other noise.  For Gaussian noise from 50 on, the
            audit tests mu, which is sharper than rho.

    Raises:
        InputError: the unit adds nothing, so the two tables are equal.
    """
    without, present = (np.asarray(each, dtype=np.int64) for each in counts)
    added = (present - without).astype(np.float64)
    length = float(np.sqrt((added**2).sum()))
    if not length:
        raise InputError("this unit adds nothing to the table; audit a unit with at least one row", culprit=name)

    def draw(exact: CellCounts) -> Draw:
        return lambda count: (add(np.tile(exact, (count, 1))) - without) @ (added / length)

    wide = _FINEST <= finest < math.inf
    return Subject(
        name, claim, draw(without), draw(present), mu=_SLACK * math.sqrt(2 * float(claim.value)) if wide else None
    )


def gaussian_unit_subject(
    name: str, counts: tuple[CellCounts, CellCounts], *, squared_sensitivity: int, claim: Rho, entropy: Entropy
) -> Subject:
    """Return the subject of :func:`unit_subject` with discrete Gaussian noise for a claimed squared sensitivity."""
    noise = DiscreteGaussian.for_loss(claim, squared_sensitivity=squared_sensitivity)
    return unit_subject(
        name, counts, add=lambda exact: noise.add(exact, entropy), claim=claim, finest=math.sqrt(noise.variance)
    )


@dataclass(frozen=True, eq=False)
class KnownRows:
    """The rows of a table, or of one unit, as known to an attacker.

    Attributes:
        attributes: names, in the order of the columns.
        codes: shape ``(rows, attributes)``.
        weights: the contribution of each row to a count, shape ``(rows,)``.
    """

    attributes: tuple[str, ...]
    codes: CellCounts
    weights: CellCounts

    def count_cells(self, table: NoisyTable) -> CellCounts:
        """Return the exact cells of a noisy table, in its shape."""
        cells = np.zeros(table.values.shape, dtype=np.int64)
        places = []
        for name, groups in zip(table.attributes, table.groups, strict=True):
            column = self.codes[:, self.attributes.index(name)]
            places.append(column if groups is None else np.array(groups, dtype=np.int64)[column])
        if places:
            np.add.at(cells, tuple(places), self.weights)
        else:
            cells += self.weights.sum()
        return cells


def log_likelihood(published: Mapping[str, Sequence[NoisyTable]], known: Mapping[str, KnownRows]) -> float:
    """Return the log-likelihood of a release's noisy tables given the rows, up to a constant.

    Args:
        published: noisy tables by the part of a unit that they count, such as its head or the tail of its children.
        known: the rows of each part.
    """
    likelihood = 0.0
    for part, tables in published.items():
        for table in tables:
            apart = (table.values - known[part].count_cells(table)).astype(np.float64)
            likelihood += table.noise.log_likelihood(apart)
    return likelihood


Shadows = NDArray[np.float64]


def shadow_membership(present: Shadows, without: Shadows, *, claim: Loss) -> Advantage:
    """Guess that the unit is in the table if a score of a release is at least a threshold.

    One half of the releases chooses the threshold and the other half is guessed.  The interval comes from
    Clopper-Pearson bounds.  If the claim is true, ``interval.low`` is above the bound with probability at most
    ``FALSE_ALARMS``.

    Args:
        present: a score per release with the unit, such as the difference of two log-likelihoods.
        without: a score for each of as many releases without the unit.
        claim: the loss that the release claims for the unit.

    Raises:
        InputError: the numbers of releases differ, or are below four.
    """
    if len(present) != len(without) or len(present) < 4:  # noqa: PLR2004
        raise InputError("an attack needs as many releases with the unit as without it, at least four")
    half = len(present) // 2
    values = np.unique(np.concatenate([present[:half], without[:half]]))
    candidates = np.append((values[1:] + values[:-1]) / 2, values[0])
    gains = [float((present[:half] >= each).mean() - (without[:half] >= each).mean()) for each in candidates]
    threshold = candidates[int(np.argmax(gains))]
    return _advantage(
        ("membership of a unit", "all other units, and all of this one"),
        (present[half:] >= threshold, without[half:] >= threshold),
        claim=claim,
    )


def shadow_inference(present: Shadows, without: Shadows, *, true: int, claim: Loss) -> Advantage:
    """Guess which of several units is in the table: the one with the largest likelihood.

    Releases without any candidate show how often the guess is right by chance.

    Args:
        present: log-likelihoods of each release with the unit, shape ``(releases, candidates)``.
        without: the same for as many releases without it.
        true: position of the unit among the candidates.
        claim: the loss that the release claims for the unit.

    Raises:
        InputError: the numbers of releases differ.
    """
    if present.shape != without.shape or not len(present):
        raise InputError("an attack needs as many releases with the unit as without it, of the same candidates")
    right = present.argmax(axis=1) == true, without.argmax(axis=1) == true
    return _advantage(
        ("inference of what a unit's children are", "all other units, and this one but for that"),
        right,
        claim=claim,
    )


def _advantage(
    names: tuple[str, str], guesses: tuple[NDArray[np.bool_], NDArray[np.bool_]], *, claim: Loss
) -> Advantage:
    """Return an attack with exact intervals.  Approximate ones would be too narrow for few releases."""
    right, wrong = (Proportion(int(guess.sum()), len(guess)) for guess in guesses)
    measure = Distinguished(claim.advantage_bound())
    counts = np.array([right.successes]), np.array([wrong.successes])
    low = float(lower_bounds(measure, *counts, right.trials, error=FALSE_ALARMS)[0])
    high = -float(lower_bounds(measure, *counts[::-1], right.trials, error=FALSE_ALARMS)[0])
    return Advantage(*names, right, wrong, ConfidenceInterval(low, high), bound=measure.claimed)
