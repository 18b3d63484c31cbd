"""Learners as judges.  One trains on the release and tests on real people; another distinguishes the two."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Categorical, Domain
from sfumato.errors import TableError
from sfumato.evaluate.intervals import SampledMean, mean_of
from sfumato.evaluate.released import Rows
from sfumato.extras import require
from sfumato.model.row_sampling import generator

_BINS = 255  # largest number of categories that histogram gradient boosting accepts
_REGRESSION_CELLS = 10  # numeric attributes with more cells are predicted by regression
_TREES = 60
_STOPPABLE = 1000  # rows from which a tenth can decide when boosting stops
_STOPPABLE_CLASS = 20  # rows per class from which a tenth contains every class
_TRAINED = 40_000  # released rows for training; with more, the score hardly grows
_TESTED = 20_000  # real rows for testing
_TOLD_APART = 20_000  # rows of each kind


@dataclass(frozen=True)
class Learning:
    """The score of a model trained on a release and tested on real people who are not in it.

    ``error`` is its standard error from the choice of the tested people.  It follows Hanley and McNeil (1982) for one
    curve.  Several classes use the mean over classes, an upper bound.  R2 uses the delta method.
    """

    target: str
    measure: str  # "AUC" or "R2"
    score: float
    error: float
    trained: int  # rows
    tested: int


def train_on_release(train: Rows, test: Rows, *, target: str, seed: int) -> Learning:
    """Train gradient boosting (scikit-learn) on released rows and test it on real ones.

    A category is predicted as a class, scored by the area under the ROC curve.  More than two classes use the mean over
    one-against-rest curves.  A number with more than ten cells is predicted by regression, scored by R2.

    At least 1000 rows (and 20 per class) allow early stopping: boosting ends when a held-out tenth of the released rows
    is predicted no better.  At most 40 000 rows are used for training and 20 000 for testing.  Rows without a declared
    target value are skipped.

    Raises:
        TableError: the test rows have fewer than two values of the target.
    """
    require("evaluate", "the learner")
    from sklearn.ensemble import HistGradientBoostingRegressor

    luck = generator(seed)
    train, test = (_with_value(rows, target) for rows in (train, test))
    train, test = (_at_most(rows, most, luck) for rows, most in ((train, _TRAINED), (test, _TESTED)))
    domain, place = test.domain, test.domain.index(target)
    truth, labels = test.codes[:, place], train.codes[:, place]
    if len(np.unique(truth)) < 2:  # noqa: PLR2004
        raise TableError(f"the real test rows hold a single value of {target!r}; choose another target", culprit=target)
    attribute = domain[target]
    regression = not isinstance(attribute, Categorical) and attribute.declared > _REGRESSION_CELLS
    learnt = labels if regression else labels[_often(labels)]
    if len(np.unique(learnt)) < 2:  # noqa: PLR2004 (a constant release predicts a constant)
        measure, score = ("R2", 0.0) if regression else ("AUC", 0.5)
        return Learning(target, measure, score, 0.0, len(train), len(test))
    given, questions = np.delete(train.codes, place, axis=1), np.delete(test.codes, place, axis=1)
    mask = np.delete(_categorical(domain), place)
    if regression:
        model = HistGradientBoostingRegressor(
            max_iter=_TREES, categorical_features=mask, random_state=seed, early_stopping=len(given) >= _STOPPABLE
        )
        with _one_thread():
            model.fit(given, labels)
            predicted = model.predict(questions)
        return Learning(target, "R2", *_r2(truth, predicted), len(train), len(test))
    classes = np.unique(learnt)
    area = _auc(_probabilities(given, labels, questions, mask, seed), classes, truth)
    return Learning(target, "AUC", *area, len(train), len(test))


def propensity(real: Rows, release: Rows, *, seed: int) -> SampledMean:
    """Return the propensity score mean squared error (Woo, Reiter, Oganian, Karr 2009), as a share of its maximum.

    Gradient boosting trains on one half and predicts for each row of the other half the probability that it was
    released.  A result of 0 means that released and real rows cannot be distinguished; 1 means that they always can.
    At most 20 000 rows of each kind are used.
    """
    count = min(len(real), len(release), _TOLD_APART)
    luck = generator(seed)
    rows = np.concatenate([real.sample(count, luck).codes, release.sample(count, luck).codes])
    labels = np.repeat([0, 1], count)
    half = luck.permutation(2 * count) % 2 == 0
    mask = _categorical(real.domain)
    predicted = np.empty(2 * count)
    for test in (half, ~half):
        if len(np.unique(labels[~test])) < 2:  # noqa: PLR2004
            raise TableError("too few rows to tell released from real ones", culprit=count)
        predicted[test] = _probabilities(rows[~test], labels[~test], rows[test], mask, seed)[:, 1]
    errors = (predicted - 0.5) ** 2 / 0.25
    return mean_of(errors.tolist(), of=len(real) + len(release))


def _with_value(rows: Rows, target: str) -> Rows:
    """Return the rows that have a declared value of the target."""
    known = rows.codes[:, rows.domain.index(target)] < rows.domain[target].declared
    return rows if known.all() else rows.take(np.flatnonzero(known))


def _at_most(rows: Rows, most: int, luck: np.random.Generator) -> Rows:
    return rows if len(rows) <= most else rows.sample(most, luck)


def _often(labels: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return the rows whose class occurs at least twice, so that the held-out tenth can contain every class."""
    return np.asarray(np.bincount(labels)[labels] > 1)


def _probabilities(
    given: NDArray[np.intp], labels: NDArray[np.intp], questions: NDArray[np.intp], mask: NDArray[np.bool_], seed: int
) -> NDArray[np.float64]:
    """Return probabilities of the classes that occur at least twice: shape ``(questions, classes)``."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    frequent = _often(labels)
    enough = max(_STOPPABLE, _STOPPABLE_CLASS * len(np.unique(labels[frequent])))
    model = HistGradientBoostingClassifier(
        max_iter=_TREES, categorical_features=mask, random_state=seed, early_stopping=int(frequent.sum()) >= enough
    )
    with _one_thread():
        model.fit(given[frequent], labels[frequent])
        return np.asarray(model.predict_proba(questions), dtype=np.float64)


def _one_thread() -> AbstractContextManager[object]:
    """Limit OpenMP to one thread.  More threads gain nothing on small tables and spin while they wait."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="openmp")
    return limits


def _auc(probabilities: NDArray[np.float64], classes: NDArray[np.intp], truth: NDArray[np.intp]) -> tuple[float, float]:
    """Return the area under the ROC curve and its standard error."""
    from sklearn.metrics import roc_auc_score

    present = np.unique(truth)
    scores, errors = [], []
    scale = probabilities[:, np.isin(classes, present)].sum(axis=1)  # classes without real rows are excluded
    for code in present[-1:] if len(present) == 2 else present:  # noqa: PLR2004 (two classes share one curve)
        column = np.flatnonzero(classes == code)
        score = probabilities[:, column[0]] if len(column) else np.zeros(len(truth))
        if len(present) == 2:  # noqa: PLR2004
            score = np.divide(score, scale, out=np.zeros(len(truth)), where=scale > 0)
        own = truth == code
        area = float(roc_auc_score(own, score))
        scores.append(area)
        errors.append(_hanley_mcneil(area, int(own.sum()), int((~own).sum())))
    return float(np.mean(scores)), float(np.mean(errors))


def _hanley_mcneil(area: float, positives: int, negatives: int) -> float:
    """Return the standard error of an area under a ROC curve (Hanley and McNeil 1982, equation 1).

    >>> round(_hanley_mcneil(0.5, 20, 30), 4)  # that of the rank sum without ties: sqrt(51 / 7200)
    0.0842
    """
    one, two = area / (2 - area), 2 * area**2 / (1 + area)
    spread = area * (1 - area) + (positives - 1) * (one - area**2) + (negatives - 1) * (two - area**2)
    return math.sqrt(max(0.0, spread) / (positives * negatives))


def _r2(truth: NDArray[np.intp], predicted: NDArray[np.float64]) -> tuple[float, float]:
    """Return R2 and its standard error by the delta method."""
    missed, spread = (truth - predicted) ** 2, (truth - truth.mean()) ** 2
    lost = missed.mean() / spread.mean()
    influence = (missed - lost * spread) / spread.mean()
    return float(1 - lost), float(influence.std() / math.sqrt(len(truth)))


def _categorical(domain: Domain) -> NDArray[np.bool_]:
    return np.array([isinstance(attribute, Categorical) and attribute.size <= _BINS for attribute in domain])
