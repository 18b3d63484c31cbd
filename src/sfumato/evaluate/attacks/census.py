"""Rebuild the rows of a small area from its published tables, as was done with the census of 2010.

Garfinkel, Abowd and Martindale 2018, "Understanding database reconstruction attacks on public data".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.errors import InfeasibleError, SizeError
from sfumato.evaluate.intervals import Share
from sfumato.evaluate.rows import Rows

LARGEST = 20_000  # cells of the full contingency table
_SECONDS = 60


@dataclass(frozen=True, eq=False)
class Rebuilt:
    """Counts of every cell of the full contingency table, flat in C order."""

    domain: Domain
    counts: NDArray[np.int64]

    def against(self, truth: Rows) -> Share:
        """How many people were rebuilt: the overlap of the two multisets of rows."""
        flat = np.ravel_multi_index(tuple(truth.codes.T), self.domain.shape)
        real = np.bincount(flat, minlength=self.domain.size)
        return Share(int(np.minimum(self.counts, real).sum()), len(truth))


def rebuild(domain: Domain, tables: Mapping[tuple[str, ...], NDArray[np.number]]) -> Rebuilt:
    """Whole, non-negative counts that agree best, in total absolute error, with the published marginals.

    Args:
        domain: public; its full contingency table has at most 20 000 cells.
        tables: published counts of some marginals, exact or noisy, in the shape of their attributes.

    Raises:
        SizeError: the full table is larger.
        InfeasibleError: the solver found no counts in its time.
    """
    if domain.size > LARGEST:
        raise SizeError(f"reconstruction is for at most {LARGEST} cells, not {domain.size}", culprit=domain.names)
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_matrix

    published = np.concatenate([np.asarray(table, dtype=np.float64).ravel() for table in tables.values()])
    cells, answers = domain.size, len(published)
    place = _places(domain, tuple(tables))  # (tables, cells): which answer each cell adds to
    cell = np.tile(np.arange(cells), len(tables))
    slack = np.arange(answers)
    above = np.concatenate([place.ravel(), slack]), np.concatenate([cell, cells + slack])
    signs = np.concatenate([np.ones(place.size), -np.ones(answers)])
    both = csr_matrix(  # |A counts - published| <= slack, first from above, then from below
        (
            np.concatenate([signs, np.concatenate([-np.ones(place.size), -np.ones(answers)])]),
            (np.concatenate([above[0], answers + above[0]]), np.tile(above[1], 2)),
        ),
        shape=(2 * answers, cells + answers),
    )
    solved = milp(
        np.concatenate([np.zeros(cells), np.ones(answers)]),
        constraints=LinearConstraint(both, ub=np.concatenate([published, -published])),
        integrality=np.concatenate([np.ones(cells), np.zeros(answers)]),
        bounds=Bounds(0, np.inf),
        options={"time_limit": _SECONDS},
    )
    if solved.x is None:
        raise InfeasibleError(
            f"no reconstruction within {_SECONDS} seconds; publish fewer tables", culprit=tuple(tables)
        )
    return Rebuilt(domain, np.rint(solved.x[:cells]).astype(np.int64))


def _places(domain: Domain, cliques: tuple[tuple[str, ...], ...]) -> NDArray[np.intp]:
    """Number of the published answer that each cell of the full table adds to: shape ``(cliques, cells)``."""
    full = np.indices(domain.shape).reshape(len(domain), -1)
    places, start = [], 0
    for names in cliques:
        shape = tuple(domain[name].size for name in names)
        places.append(start + np.ravel_multi_index(tuple(full[domain.index(name)] for name in names), shape))
        start += math.prod(shape)
    return np.array(places, dtype=np.intp)
