"""Evaluations of files: the protected table, its holdout, and releases by us or by another tool."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sfumato.arguments import expect
from sfumato.domain import Domain
from sfumato.engine.table_files import shown
from sfumato.errors import InputError, TableError
from sfumato.evaluate.claims import Claim, parse_claim
from sfumato.evaluate.population_split import PopulationSplit, split_population
from sfumato.evaluate.release_files import Hierarchies, Oddities, oddities, read_hierarchy, read_release
from sfumato.evaluate.released import Released, Rows, open_rows
from sfumato.model.row_sampling import generator, seeded

_MEMBERS_OF_SPLIT = 3  # a table without a holdout lends one third as members, the rest as holdout


@dataclass(frozen=True)
class Submitted:
    """A released file with its name and guarantee."""

    name: str
    claim: Claim
    release: Released
    oddities: Oddities

    def made(self, _: Rows) -> Released:
        """The release, which was made before: for a frontier, which makes its other candidates."""
        return self.release


def open_population_split(table: str, holdout: str | None, domain: Domain, *, seed: int) -> PopulationSplit:
    """The people of an evaluation from files.

    Args:
        table: the protected table.
        holdout: people of the same population who are not in it.  Without it the table itself is split at
            random, a third as members: only for releases that are made from these members afterwards.
        domain: describes both.
        seed: of the split.

    Raises:
        InputError: what is no domain, or no seed.
        TableError: a file cannot be read, does not fit the domain, or the two share people.
    """
    expect(domain, Domain, "a population is described by a Domain, such as sfumato.domain.load returns")
    luck = generator(seeded(seed))
    rows = _people(table, domain)
    if holdout is not None:
        return split_population(rows, _people(holdout, domain), seed=seed)
    shuffled = rows.sample(len(rows), luck)
    members = len(rows) // _MEMBERS_OF_SPLIT
    return split_population(shuffled.take(np.arange(members)), shuffled.take(np.arange(members, len(rows))), seed=seed)


def submissions(
    releases: Sequence[Path], claims: Sequence[str], hierarchies: Sequence[str], domain: Domain
) -> tuple[Submitted, ...]:
    """Released files with their guarantees, one claim a file in the same order.

    Args:
        releases: CSV or Parquet files.
        claims: as ``parse_claim`` reads them.
        hierarchies: ``column=file``, for generalised cells written as labels.
        domain: maps the cells.

    Raises:
        InputError: not one claim a release, or a hierarchy that is not ``column=file``.
        TableError: a file that cannot be read or mapped.
    """
    if len(claims) != len(releases):
        raise InputError(
            f"{len(releases)} releases and {len(claims)} guarantees: give --claim once for each release, in order "
            "(--claim none where it promises nothing)",
            culprit=tuple(claims),
        )
    parsed = [parse_claim(text) for text in claims]
    labels = _labels(hierarchies, domain)
    names = [path.name if [each.name for each in releases].count(path.name) == 1 else str(path) for path in releases]
    found = []
    for name, claim, path in zip(names, parsed, releases, strict=True):
        release = read_release(path, domain, hierarchies=labels)
        found.append(Submitted(name, claim, release, oddities(path, domain, release)))
    return tuple(found)


def _people(path: str, domain: Domain) -> Rows:
    """Rows of one of several files, so that every refusal names the file."""
    try:
        return open_rows(path, domain)
    except TableError as error:
        named = shown(path)
        if named in str(error):
            raise
        raise TableError(f"{named}: {error}", culprit=path) from error


def _labels(hierarchies: Sequence[str], domain: Domain) -> Hierarchies:
    found = {}
    for text in hierarchies:
        column, equals, path = text.partition("=")
        if not equals:
            raise InputError(f"{text!r} is no hierarchy; say column=file", culprit=text)
        found[column] = read_hierarchy(path, domain[column])
    return found
