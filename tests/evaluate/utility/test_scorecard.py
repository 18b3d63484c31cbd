from __future__ import annotations

import numpy as np

from sfumato.evaluate.released import AnsweredWorkload, Released
from sfumato.evaluate.utility.scorecard import associations, scorecard


def test_a_scorecard_of_rows_and_one_of_answers(everyone):
    others = Released.raw(everyone.others)
    rows = scorecard(others, everyone, target="rich", seed=3)
    assert rows.learning is not None
    assert rows.propensity is not None
    one, two, three = (score.value for score in rows.marginals)
    assert one > two > three > 0.3
    answered = AnsweredWorkload(everyone.domain, {(name,): others.marginal((name,)) for name in everyone.domain.names})
    answers = scorecard(answered, everyone, target="rich", seed=3)
    assert answers.learning is answers.propensity is None
    assert answers.marginals[0].value == one
    assert answers.marginals[1].value < two
    assert len(answers.queries.errors) == len(rows.queries.errors) == 1000
    assert answers.queries.truth == rows.queries.truth
    assert answers.association_gap[0] > rows.association_gap[0]
    matrix = associations(Released.raw(everyone.members))
    assert np.allclose(answers.association_difference[0, 1:], -matrix[0, 1:], atol=1e-6)  # no pair was asked


def test_a_release_of_a_single_row_is_scored_but_not_told_apart(everyone):
    found = scorecard(Released.raw(everyone.others.take(np.arange(1))), everyone, target="rich", seed=3)
    assert found.propensity is None
    assert found.learning is not None
    assert found.learning.score == 0.5
