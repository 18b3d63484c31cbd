from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sfumato.domain import Domain
from sfumato.errors import TableError
from sfumato.evaluate.population_split import split_population
from sfumato.evaluate.released import Rows


def test_controls_and_others_share_the_holdout(people):
    rows = people.population(3000, seed=0)
    who = split_population(rows.take(np.arange(1000)), rows.take(np.arange(1000, 3000)), seed=1)
    assert (len(who.members), len(who.controls), len(who.others)) == (1000, 1000, 1000)
    joined = np.concatenate([who.controls.codes, who.others.codes])
    assert sorted(map(tuple, joined.tolist())) == sorted(map(tuple, rows.codes[1000:].tolist()))


@pytest.mark.parametrize("shared", [1.0, 0.1])
def test_a_holdout_that_repeats_members_is_refused(people, shared):
    rows = people.population(4000, seed=0)
    start = int(2000 * (1 - shared))
    with pytest.raises(TableError, match="repeats people"):
        split_population(rows.take(np.arange(2000)), rows.take(np.arange(start, start + 2000)), seed=1)


def test_rows_that_are_equal_by_chance_are_no_overlap(people):
    rows = people.population(4000, seed=0)
    domain = Domain(rows.domain.attributes[3:5])
    few = Rows(domain, rows.codes[:, 3:5])
    split_population(few.take(np.arange(2000)), few.take(np.arange(2000, 4000)), seed=1)


def test_too_few_rows_and_other_domains_are_refused(people):
    rows = people.population(400, seed=0)
    with pytest.raises(TableError, match="an interval needs"):
        split_population(rows.take(np.arange(40)), rows.take(np.arange(40, 400)), seed=1)
    with pytest.raises(TableError, match="different domains"):
        split_population(
            rows,
            replace(rows, domain=Domain(tuple(reversed(rows.domain.attributes))), codes=rows.codes[:, ::-1]),
            seed=1,
        )
