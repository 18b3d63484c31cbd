"""Learners as judges: train on the release and test on real people; tell the release from real people."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Categorical, Domain
from sfumato.errors import TableError
from sfumato.evaluate.rows import Rows
from sfumato.model.simulation import generator

_BINS = 255  # the largest number of categories that histogram gradient boosting takes
_REGRESSION_CELLS = 10  # a number with more cells than this is predicted as a number
_TREES = 60


@dataclass(frozen=True)
class Learning:
    """Score of a model trained on a release and tested on real people who are not in it."""

    target: str
    measure: str  # "AUC" or "R2"
    score: float


def train_on_release(train: Rows, test: Rows, *, target: str, seed: int) -> Learning:
    """Gradient boosting (scikit-learn) trained on released rows, tested on real ones.

    A category is predicted as a class (area under the ROC curve; the mean over classes, one against the
    rest, for more than two), a number with more than ten cells as a number (R2).

    Raises:
        TableError: the test rows hold fewer than two values of the target.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.metrics import r2_score

    domain, place = test.domain, test.domain.index(target)
    truth, labels = test.codes[:, place], train.codes[:, place]
    if len(np.unique(truth)) < 2:  # noqa: PLR2004
        raise TableError(f"the real test rows hold a single value of {target!r}; choose another target", culprit=target)
    attribute = domain[target]
    regression = not isinstance(attribute, Categorical) and attribute.size > _REGRESSION_CELLS
    if len(np.unique(labels)) < 2:  # noqa: PLR2004 (a constant release predicts a constant)
        return Learning(target, "R2" if regression else "AUC", 0.0 if regression else 0.5)
    given, asked = np.delete(train.codes, place, axis=1), np.delete(test.codes, place, axis=1)
    mask = np.delete(_categorical(domain), place)
    if regression:
        model = HistGradientBoostingRegressor(
            max_iter=_TREES, categorical_features=mask, random_state=seed, early_stopping=False
        )
        with _one_thread():
            model.fit(given, labels)
            return Learning(target, "R2", float(r2_score(truth, model.predict(asked))))
    return Learning(target, "AUC", _auc(_probabilities(given, labels, asked, mask, seed), np.unique(labels), truth))


def propensity(real: Rows, release: Rows, *, seed: int) -> float:
    """Propensity score mean squared error (Woo, Reiter, Oganian, Karr 2009), as a share of its maximum.

    Each row's probability to be released is predicted by gradient boosting that was trained on the other
    half.  0: nobody can tell released from real rows; 1: everybody can.
    """
    count = min(len(real), len(release))
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
    return float(((predicted - 0.5) ** 2).mean() / 0.25)


def _probabilities(
    given: NDArray[np.intp], labels: NDArray[np.intp], asked: NDArray[np.intp], mask: NDArray[np.bool_], seed: int
) -> NDArray[np.float64]:
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(
        max_iter=_TREES, categorical_features=mask, random_state=seed, early_stopping=False
    )
    with _one_thread():
        model.fit(given, labels)
        return np.asarray(model.predict_proba(asked), dtype=np.float64)


def _one_thread() -> AbstractContextManager[object]:
    """Tables of this size gain nothing from more threads, which spin while they wait for one another."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    limits: AbstractContextManager[object] = threadpool_limits(1, user_api="openmp")
    return limits


def _auc(probabilities: NDArray[np.float64], classes: NDArray[np.intp], truth: NDArray[np.intp]) -> float:
    from sklearn.metrics import roc_auc_score

    present = [code for code in np.unique(truth) if 0 < np.count_nonzero(truth == code) < len(truth)]
    scores = []
    for code in present[-1:] if len(present) == 2 else present:  # noqa: PLR2004 (two classes share one curve)
        column = np.flatnonzero(classes == code)
        score = probabilities[:, column[0]] if len(column) else np.zeros(len(truth))
        scores.append(float(roc_auc_score(truth == code, score)))
    return float(np.mean(scores))


def _categorical(domain: Domain) -> NDArray[np.bool_]:
    return np.array([isinstance(attribute, Categorical) and attribute.size <= _BINS for attribute in domain])
