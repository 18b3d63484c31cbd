"""The people of an evaluation: members of the released table, controls who are not, and others for a ceiling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.domain import Domain
from sfumato.errors import TableError
from sfumato.evaluate.intervals import Share, newcombe
from sfumato.evaluate.rows import Rows
from sfumato.model.simulation import generator

FEWEST = 80  # rows of each kind: a quarter of them, 20, is the smallest sample that gets an interval
_CERTAINTY = 1e-6  # error probability with which a control is called an overlap with the members


@dataclass(frozen=True, eq=False)
class Panel:
    """Disjoint real people of one population.

    ``members`` are in the released table; ``controls`` are not, and attacks on them measure what anyone
    can guess; ``others`` are not either, and stand for the best a release without any member could be.
    """

    members: Rows
    controls: Rows
    others: Rows

    @property
    def domain(self) -> Domain:
        """The description that all of them share."""
        return self.members.domain


def panel(members: Rows, holdout: Rows, *, seed: int) -> Panel:
    """Split the holdout at random into controls and others.

    Raises:
        TableError: the domains differ, there are too few rows, or the holdout repeats members.
    """
    if members.domain != holdout.domain:
        raise TableError("the table and its holdout are described by different domains", culprit=holdout.domain)
    if len(members) < FEWEST or len(holdout) < 2 * FEWEST:
        raise TableError(
            f"an interval needs at least {FEWEST} rows of the table and {2 * FEWEST} of the holdout", culprit=FEWEST
        )
    _refuse_overlap(members, holdout)
    shuffled = holdout.sample(len(holdout), generator(seed))
    half = len(holdout) // 2
    return Panel(members, shuffled.take(np.arange(half)), shuffled.take(np.arange(half, len(holdout))))


def _refuse_overlap(members: Rows, holdout: Rows) -> None:
    """Two samples of one population agree by chance as often as the members agree among themselves.

    Equal rows alone prove nothing, so the test is against that rate; a handful of shared people passes.
    """
    own = _keys(members.codes)
    values, counts = np.unique(own, return_counts=True)
    again = Share(int(counts[counts > 1].sum()), len(own))
    shared = Share(int(np.isin(_keys(holdout.codes), values).sum()), len(holdout))
    if newcombe(shared, again, error=_CERTAINTY).low > 0:
        raise TableError(
            "the holdout repeats people of the table far more often than chance; give people who are not in it",
            culprit=shared.trials,
        )


def _keys(codes: np.ndarray) -> np.ndarray:
    """One opaque key a row, equal for equal rows."""
    narrow = np.ascontiguousarray(codes, dtype=np.uint32)
    return narrow.view(np.dtype((np.void, narrow.dtype.itemsize * narrow.shape[1]))).ravel()
