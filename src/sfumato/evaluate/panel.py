"""The people of an evaluation: members of the released table, controls who are not, and others for a ceiling."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sfumato.arguments import expect
from sfumato.domain import Domain
from sfumato.errors import TableError
from sfumato.evaluate.intervals import Share, newcombe
from sfumato.evaluate.released import Released
from sfumato.evaluate.remembered import Remembered
from sfumato.evaluate.rows import Rows, keys
from sfumato.model.simulation import generator, seeded

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

    @cached_property
    def truth(self) -> Remembered:
        """Exact marginals of the members, which every release is compared with."""
        return Remembered(Released.of(self.members))


def panel(members: Rows, holdout: Rows, *, seed: int) -> Panel:
    """Split the holdout at random into controls and others.

    Raises:
        InputError: what is no table of people, or no seed.
        TableError: the domains differ, there are too few rows, or the holdout repeats members.
    """
    for rows in (members, holdout):
        expect(rows, Rows, "the people of a panel are Rows; open_panel reads them from files")
    luck = generator(seeded(seed))
    if members.domain != holdout.domain:
        raise TableError("the table and its holdout are described by different domains", culprit=holdout.domain)
    if len(members) < FEWEST or len(holdout) < 2 * FEWEST:
        raise TableError(
            f"an interval needs at least {FEWEST} rows of the table and {2 * FEWEST} of the holdout", culprit=FEWEST
        )
    _refuse_overlap(members, holdout)
    shuffled = holdout.sample(len(holdout), luck)
    half = len(holdout) // 2
    return Panel(members, shuffled.take(np.arange(half)), shuffled.take(np.arange(half, len(holdout))))


def _refuse_overlap(members: Rows, holdout: Rows) -> None:
    """Two samples of one population agree by chance as often as the members agree among themselves.

    Equal rows alone prove nothing, so the test is against that rate; a handful of shared people passes.
    """
    numbers = keys(np.concatenate([members.codes, holdout.codes]), members.domain.shape)
    counts = np.bincount(numbers[: len(members)], minlength=int(numbers.max()) + 1)
    again = Share(int(counts[counts > 1].sum()), len(members))
    shared = Share(int(np.count_nonzero(counts[numbers[len(members) :]])), len(holdout))
    if newcombe(shared, again, error=_CERTAINTY).low > 0:
        raise TableError(
            "the holdout repeats people of the table far more often than chance; give people who are not in it",
            culprit=shared.trials,
        )
