"""The people of an evaluation: members of the released table, controls outside it, and others for the ceiling.

The module also refuses invalid input: releases and people need one common domain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from sfumato.arguments import expect
from sfumato.domain import Domain
from sfumato.engine.table_files import redacted_source
from sfumato.errors import InputError, TableError
from sfumato.evaluate.intervals import Proportion, newcombe
from sfumato.evaluate.released import CachedMarginals, MarginalSource, Released, Rows, keys, open_rows
from sfumato.model.row_sampling import generator, seeded

FEWEST_ROWS = 80  # rows of each kind: a quarter of them, 20, is the smallest sample with an interval
_MEMBERS_OF_SPLIT = 3  # without a holdout, one third of the table become members and the rest the holdout
_CERTAINTY = 1e-6  # error probability of refusing a holdout that does not overlap the members


@dataclass(frozen=True, eq=False)
class PopulationSplit:
    """Disjoint real people of one population.

    ``members`` are in the released table.  ``controls`` are not; attacks on them measure plain guessing.  ``others``
    are not in it either; they are the ceiling, the best score of a release without members.
    """

    members: Rows
    controls: Rows
    others: Rows

    @property
    def has_holdout(self) -> bool:
        """True if there are people outside the table, for attacks and learners."""
        return len(self.controls) > 0

    @property
    def domain(self) -> Domain:
        """The common domain of all three."""
        return self.members.domain

    @cached_property  # shared by all releases that are judged
    def truth(self) -> CachedMarginals:
        """The exact marginals of the members."""
        return CachedMarginals(Released.raw(self.members))


def split_population(members: Rows, holdout: Rows, *, seed: int) -> PopulationSplit:
    """Split the holdout at random into controls and others.

    Raises:
        InputError: an argument is no Rows, or the seed is invalid.
        TableError: the domains differ, there are too few rows, or the holdout repeats members.
    """
    for rows in (members, holdout):
        expect(rows, Rows, "the people of an evaluation are Rows; open_population_split reads them from files")
    luck = generator(seeded(seed))
    if members.domain != holdout.domain:
        raise TableError("the table and its holdout are described by different domains", culprit=holdout.domain)
    if len(members) < FEWEST_ROWS or len(holdout) < 2 * FEWEST_ROWS:
        raise TableError(
            f"an interval needs at least {FEWEST_ROWS} rows of the table and {2 * FEWEST_ROWS} of the holdout",
            culprit=FEWEST_ROWS,
        )
    _refuse_overlap(members, holdout)
    shuffled = holdout.sample(len(holdout), luck)
    half = len(holdout) // 2
    return PopulationSplit(members, shuffled.take(np.arange(half)), shuffled.take(np.arange(half, len(holdout))))


def without_holdout(table: str, domain: Domain) -> PopulationSplit:
    """Return the people of a table without a holdout: for fidelity alone, without attacks and learners.

    Raises:
        TableError: the file cannot be read, or does not fit the domain.
    """
    members = _people(table, domain)
    nobody = members.take(np.arange(0))
    return PopulationSplit(members, nobody, nobody)


def open_population_split(table: str, holdout: str | None, domain: Domain, *, seed: int) -> PopulationSplit:
    """Read the people of an evaluation from files.

    Args:
        table: the protected table.
        holdout: people of the same population who are not in the table.  None splits the table at random, with one
            third as members.  Use that only for releases that are made from these members later.
        domain: describes both.
        seed: of the split.

    Raises:
        InputError: no domain, or an invalid seed.
        TableError: a file cannot be read, does not fit the domain, or the two share people.
    """
    expect(domain, Domain, "a population is described by a Domain, such as sfumato.domain.load returns")
    seeded(seed)  # refused before a file is read
    people = _people(table, domain)
    return divided_population(people, None if holdout is None else _people(holdout, domain), seed=seed)


def divided_population(rows: Rows, holdout: Rows | None, *, seed: int) -> PopulationSplit:
    """Return the people of an evaluation from rows, as :func:`open_population_split` does from files.

    Raises:
        InputError: an argument is no Rows, or the seed is invalid.
        TableError: the two share people, or there are too few.
    """
    luck = generator(seeded(seed))
    if holdout is not None:
        return split_population(rows, holdout, seed=seed)
    shuffled = rows.sample(len(rows), luck)
    members = len(rows) // _MEMBERS_OF_SPLIT
    return split_population(shuffled.take(np.arange(members)), shuffled.take(np.arange(members, len(rows))), seed=seed)


def _people(path: str, domain: Domain) -> Rows:
    """Read the rows of a file, and name the file in every refusal."""
    try:
        return open_rows(path, domain)
    except TableError as error:
        named = redacted_source(path)
        if named in str(error):
            raise
        raise TableError(f"{named}: {error}", culprit=path) from error


def _refuse_overlap(members: Rows, holdout: Rows) -> None:
    """Refuse a holdout that repeats members more often than members repeat each other.

    Equal rows prove nothing on their own, so the test compares rates.  A handful of shared people passes.
    """
    numbers = keys(np.concatenate([members.codes, holdout.codes]), members.domain.shape)
    counts = np.bincount(numbers[: len(members)], minlength=int(numbers.max()) + 1)
    again = Proportion(int(counts[counts > 1].sum()), len(members))
    shared = Proportion(int(np.count_nonzero(counts[numbers[len(members) :]])), len(holdout))
    if newcombe(shared, again, error=_CERTAINTY).low > 0:
        raise TableError(
            "the holdout repeats people of the table far more often than chance; give people who are not in it",
            culprit=shared.trials,
        )


def independent(rows: Rows, generator: np.random.Generator) -> Rows:
    """Return the same columns, each shuffled independently: the floor of the scores."""
    shuffled = np.empty_like(rows.codes)
    for column in range(rows.codes.shape[1]):
        shuffled[:, column] = generator.permutation(rows.codes[:, column])
    return Rows(rows.domain, shuffled)


_LARGEST_SEED = (1 << 32) - 1  # the largest seed of scikit-learn


def refuse_wrong_split(split: PopulationSplit, *, target: str, seed: int) -> None:
    """Refuse a wrong type, an unknown target, or an invalid seed.

    Raises:
        InputError: the people are no PopulationSplit, the target is no text, or the seed is missing or too large.
        DomainError: the domain of the people has no attribute of the target's name.
    """
    expect(
        split,
        PopulationSplit,
        "the people of an evaluation are a PopulationSplit, such as open_population_split returns",
    )
    expect(target, str, "a target is the name of an attribute")
    split.domain.index(target)
    if seeded(seed) > _LARGEST_SEED:
        raise InputError(f"a seed of learners is at most {_LARGEST_SEED}", culprit=seed)


def refuse_wrong_people(people: Rows, domain: Domain) -> None:
    """Refuse anything but rows of the given domain.

    Raises:
        InputError: the people are no Rows.
        TableError: they have another domain.
    """
    expect(people, Rows, "members and controls are Rows, such as those of a PopulationSplit")
    _refuse_other_domain(people.domain, domain)


def refuse_wrong_release(release: MarginalSource, domain: Domain) -> None:
    """Refuse anything but a release of the given domain.

    Raises:
        InputError: the release is no source of marginals.
        TableError: it has another domain.
    """
    expect(release, MarginalSource, "a release is rows, answers or reports, such as read_release returns")
    _refuse_other_domain(release.domain, domain)


def _refuse_other_domain(released: Domain, domain: Domain) -> None:
    if released != domain:
        raise TableError("the release and the people are described by different domains", culprit=released)


Progress: TypeAlias = Callable[[str], None]
"""Receives the name of each step before it starts."""


def no_progress(_: str) -> None:
    """Ignore the message.  This is the default for callers that show no progress."""
