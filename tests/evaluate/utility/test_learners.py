from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sfumato.domain import Domain
from sfumato.errors import TableError
from sfumato.evaluate.population_split import independent
from sfumato.evaluate.released import Rows
from sfumato.evaluate.utility.learners import propensity, train_on_release


@pytest.mark.parametrize(
    ("target", "measure", "nothing"), [("rich", "AUC", 0.5), ("job", "AUC", 0.5), ("hours", "R2", 0)]
)
def test_structure_is_learned_from_people_and_lost_with_independent_columns(everyone, target, measure, nothing):
    good = train_on_release(everyone.others, everyone.controls, target=target, seed=0)
    floor = independent(everyone.members, np.random.default_rng(0))
    bad = train_on_release(floor, everyone.controls, target=target, seed=0)
    assert good.measure == bad.measure == measure
    assert good.score > 0.65
    assert bad.score == pytest.approx(nothing, abs=0.15)


def test_a_constant_release_predicts_nothing_and_a_constant_test_is_refused(everyone):
    codes = everyone.members.codes.copy()
    codes[:, 4] = 0
    constant = Rows(everyone.domain, codes)
    assert train_on_release(constant, everyone.controls, target="rich", seed=0).score == 0.5
    with pytest.raises(TableError, match="single value"):
        train_on_release(everyone.members, constant, target="rich", seed=0)


def test_a_release_that_lacks_classes_is_still_scored(everyone):
    codes = everyone.members.codes[everyone.members.codes[:, 2] < 4]
    partly = train_on_release(Rows(everyone.domain, codes), everyone.controls, target="job", seed=0)
    assert 0.5 < partly.score < train_on_release(everyone.others, everyone.controls, target="job", seed=0).score


def test_propensity_runs_from_nothing_to_everything(everyone):
    same = propensity(everyone.members, everyone.others, seed=0).value
    codes = everyone.members.codes.copy()
    codes[:, 0] //= 2
    moved = propensity(everyone.members, Rows(everyone.domain, codes), seed=0).value
    floor = propensity(everyone.members, independent(everyone.members, np.random.default_rng(0)), seed=0).value
    assert same < 0.1 < floor
    assert same < 0.1 < moved


@pytest.mark.parametrize("target", ["rich", "hours"])
def test_rows_without_the_target_are_no_value_of_it(everyone, target):
    """Five hundred rows without it are added to both tables: neither a class of their own nor a greatest number."""
    open_domain = Domain(tuple(replace(attribute, nullable=True) for attribute in everyone.domain))
    place = everyone.domain.index(target)

    def with_missing(rows):
        missing = rows.codes[:500].copy()
        missing[:, place] = open_domain[target].declared
        return Rows(open_domain, np.concatenate([rows.codes, missing]))

    plain = train_on_release(everyone.others, everyone.controls, target=target, seed=0)
    found = train_on_release(with_missing(everyone.others), with_missing(everyone.controls), target=target, seed=0)
    assert found.tested == plain.tested
    assert found.trained == plain.trained
    assert found.score == pytest.approx(plain.score, abs=0.02)
