"""How far the table is from a finished model, pair by pair: what bounds the error of pairs that were not measured.

A pair that no table holds is answered by the model, and nothing that the model was fitted to tells how wrong it is.
Measured for all pairs after the last fit, the distances do, at a small part of the loss: valid whatever the model is,
and wide, as they count every cell.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import accumulate, combinations

import numpy as np

from sfumato.model.noisy_table import CountNoise, NoisyDistance, digest_of, whole_counts
from sfumato.model.row_sampling import CodeArray
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.synthesize.graphical import Graphical
from sfumato.synthesize.marginal_selection import comparable
from sfumato.synthesize.product import read_back
from sfumato.vault.interface import Mechanisms
from sfumato.vault.measurables import Distance

PART = Fraction(3, 100)
"""Share of a release's loss that the distances take."""

_MOST_KEPT = 1 << 18  # cells of all pairs whose counts travel in a file, 2 MiB
_MOST_CELLS = 1 << 26  # of all pairs together, half of what the vault counts at once


def measure(mechanisms: Mechanisms, model: Graphical, loss: Epsilon | Rho) -> tuple[NoisyDistance, ...]:
    """Noisy L1 distances between the table and whole counts of the model, of all pairs over single codes.

    Neighbouring tables differ in one unit.  A row is in one cell of each pair, so that it moves each distance by at
    most one; the pairs share the loss equally.  The largest pairs are left out where all together cannot be counted.
    """
    domain = model.domain
    pairs = comparable(list(combinations(domain.names, 2)), domain, _MOST_CELLS)
    questions = [Distance(pair, whole_counts(model.cells(pair), model.total)) for pair in pairs]
    found = []
    for pair, answer in zip(pairs, mechanisms.measure(questions, loss) if pairs else (), strict=True):
        assert isinstance(answer.noise, CountNoise)
        found.append(NoisyDistance((pair[0], pair[1]), int(answer.values[0]), answer.noise))
    return tuple(found)


def of_rows(model: Graphical, codes: CodeArray) -> tuple[NoisyDistance, ...]:
    """The same distances for a file of these rows, each for as many as it stands for: with what lies between them.

    The counts of the model that a distance is from travel with it, those of small pairs first, where there is room:
    bounds about them are narrower than about rows that differ from them by chance.
    """
    found = []
    sizes = sorted((model.domain.project(each.attributes).size, each.attributes) for each in model.distances)
    room = dict(zip((pair for _, pair in sizes), accumulate(size for size, _ in sizes), strict=True))
    for each in model.distances:
        shape = model.domain.project(each.attributes).shape
        columns = [(model.domain[name], codes[:, model.domain.index(name)]) for name in each.attributes]
        places = [read_back(attribute, column).astype(np.int64) for attribute, column in columns]
        rows = np.bincount(np.ravel_multi_index(places, shape), minlength=shape[0] * shape[1])
        scaled = rows * (model.total / max(1, len(codes)))
        whole = whole_counts(model.cells(each.attributes), model.total)
        beside = float(np.abs(whole - scaled).sum())
        kept = whole.reshape(shape) if room[each.attributes] <= _MOST_KEPT else None
        found.append(replace(each, beside=beside, rows=digest_of(rows), reference=kept))
    return tuple(found)
