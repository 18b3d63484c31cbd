"""Membership, linkage and inference in one pass: all three read the same similarities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.evaluate.attacks.inference import infer
from sfumato.evaluate.attacks.linkage import link_chances
from sfumato.evaluate.attacks.membership import membership_scores
from sfumato.evaluate.attacks.similarity import Similarity
from sfumato.evaluate.attacks.targets import Targets
from sfumato.evaluate.released import Weights
from sfumato.evaluate.rows import Codes

_SCOUTS = 80  # people of each kind on whom the choice of the secret is tried


@dataclass(frozen=True, eq=False)
class Fitted:
    """Of the fitting half: membership scores, and the column that the release gives away most."""

    scores: tuple[NDArray[np.float64], NDArray[np.float64]]
    secret: int


@dataclass(frozen=True, eq=False)
class Tested:
    """Of the testing half, members then controls: membership scores, and who was linked and inferred."""

    scores: tuple[NDArray[np.float64], NDArray[np.float64]]
    linked: NDArray[np.bool_]
    inferred: NDArray[np.bool_]


def fit(similarity: Similarity, targets: Targets, *, generator: np.random.Generator) -> Fitted:
    """Scores to choose a threshold by, and the secret with the largest advantage among some of the targets."""
    people = targets.stacked
    scores = np.empty((2, len(people)))
    columns = range(people.shape[1])
    for part in similarity.chunks(len(people)):
        scores[:, part] = membership_scores(similarity.over(people[part], columns))
    scouts = np.concatenate([targets.members[:_SCOUTS], targets.controls[:_SCOUTS]])
    right = np.empty((len(columns), len(scouts)), dtype=np.bool_)
    for part in similarity.chunks(len(scouts)):
        close = similarity.over(scouts[part], columns)
        for column in columns:
            right[column, part] = infer(similarity, close, scouts[part], column, generator=generator)
    half = len(scouts) // 2
    gains = right[:, :half].mean(axis=1) - right[:, half:].mean(axis=1)
    return Fitted((scores[0], scores[1]), int(np.argmax(gains)))


def test(similarity: Similarity, targets: Targets, secret: int, *, generator: np.random.Generator) -> Tested:
    """The three attacks on people who chose nothing; columns are dealt to the two sources at random."""
    people = targets.stacked
    order = generator.permutation(people.shape[1])
    middle = (len(order) + 1) // 2
    scores, chances = np.empty((2, len(people))), np.empty(len(people))
    inferred = np.empty(len(people), dtype=np.bool_)
    for part in similarity.chunks(len(people)):
        first, second = (_over(similarity, people[part], half) for half in (order[:middle], order[middle:]))
        chances[part] = link_chances(first, second)
        first += second
        scores[:, part] = membership_scores(first)
        inferred[part] = infer(similarity, first, people[part], secret, generator=generator)
    return Tested((scores[0], scores[1]), generator.random(len(people)) < chances, inferred)


def _over(similarity: Similarity, people: Codes, columns: NDArray[np.intp]) -> Weights:
    if not len(columns):  # a domain of one attribute: the second source knows nothing
        return np.zeros((len(people), similarity.rows), dtype=np.float32)
    return similarity.over(people, columns.tolist())
