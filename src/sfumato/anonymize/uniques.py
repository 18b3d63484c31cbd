"""How many people are unique in a population of which the table is a random sample?

Two models, and a rule that says which to believe.  Zayatz takes the class sizes of the sample for those of the
population, so it overstates uniques many times over where the sample is a small part.  Pitman fits a distribution of
class sizes to the sample and extends it: good for small samples, but the fit needs classes of two, and where the sample
is most of the population it leaves aside what was seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError

Integers = NDArray[np.int64]

PAIR = 2
_MOST = 10**15  # people: beyond, a float does not tell them apart


SMALL_SAMPLE = 0.1
"""Sampling fraction up to which Pitman's model is believed (Dankar, El Emam, Neisa, Roffey 2012)."""


class UniquesModel(StrEnum):
    """What extends the uniques of a sample to its population."""

    ZAYATZ = "zayatz"
    PITMAN = "pitman"


@dataclass(frozen=True)
class Uniques:
    """Estimated people who are unique in a population of which the table is a random sample.

    ``believed`` is the estimate of ``model``, which the rule of Dankar et al. takes, and ``why`` it does.
    """

    population: int
    zayatz: float
    pitman: float
    believed: float
    model: UniquesModel
    why: str


def estimate(counts: Integers, population: int) -> Uniques:
    """Both estimates, and which to believe.

    The rule of Dankar, El Emam, Neisa and Roffey (2012), without its third model: Zayatz where no two rows of the
    sample share a class, as nothing is left to fit; else Pitman up to a sampling fraction of one tenth, and Zayatz
    above.  Without a unique row in the sample both are zero.

    Args:
        counts: rows of each class of the sample, all positive.
        population: people in the population, at least the rows.

    Raises:
        InputError: a population smaller than the sample.
    """
    by_zayatz = zayatz(counts, population)
    fraction = _checked(counts, population) / population
    if not np.any(counts == 1):
        why = "no row of the table is unique, so neither model sees a unique in the population"
        return Uniques(population, by_zayatz, 0.0, by_zayatz, UniquesModel.ZAYATZ, why)
    by_pitman = pitman(counts, population)
    said = f"the table is {fraction:.3g} of the population"
    if not np.any(counts == PAIR):
        why = "no class of the table has two rows, so Pitman's model has nothing to be fitted to"
        return Uniques(population, by_zayatz, by_pitman, by_zayatz, UniquesModel.ZAYATZ, why)
    if fraction <= SMALL_SAMPLE:
        why = f"{said}, at most {SMALL_SAMPLE}, where Zayatz overstates uniques many times over"
        return Uniques(population, by_zayatz, by_pitman, by_pitman, UniquesModel.PITMAN, why)
    why = f"{said}, more than {SMALL_SAMPLE}, where its class sizes are close to the population's"
    return Uniques(population, by_zayatz, by_pitman, by_zayatz, UniquesModel.ZAYATZ, why)


def zayatz(counts: Integers, population: int) -> float:
    """Estimated population uniques (Zayatz 1991).

    Takes the distribution of class sizes in the sample for that of the population, and infers by Bayes'
    rule how probable it is that a class with one row in the sample has one person in the population.  The
    assumption overstates small classes for small sampling fractions.

    Args:
        counts: rows of each class of the sample, all positive.
        population: people in the population, at least the rows.

    Raises:
        InputError: a population smaller than the sample.
    """
    from scipy.stats import hypergeom

    rows = _checked(counts, population)
    sizes, classes = np.unique(counts, return_counts=True)
    uniques = int(np.count_nonzero(counts == 1))
    if not uniques:
        return 0.0
    # probability that a population class of each size has exactly one person in the sample
    single = np.asarray(hypergeom.pmf(1, population, sizes, rows))
    unique = float(classes[0] * single[0] / (classes @ single))
    return uniques * unique * population / rows


def pitman(counts: Integers, population: int) -> float:
    """Estimated population uniques under Pitman's sampling formula (Hoshino 2001).

    The parameters alpha in (0, 1) and theta > -alpha maximise the likelihood of the class sizes of the
    sample; the estimate is the expected number of classes of one person,
    N * Gamma(theta + 1) Gamma(theta + alpha + N - 1) / (Gamma(theta + alpha) Gamma(theta + N)).

    Args:
        counts: rows of each class of the sample, all positive.
        population: people in the population, at least the rows.

    Raises:
        InputError: a population smaller than the sample.
    """
    from scipy.special import gammaln

    _checked(counts, population)
    alpha, theta = fit_pitman(counts)
    log = gammaln(theta + 1) + gammaln(theta + alpha + population - 1)
    log -= gammaln(theta + alpha) + gammaln(theta + population)
    return float(population * np.exp(log))


def fit_pitman(counts: Integers) -> tuple[float, float]:
    """Most likely (alpha, theta) of Pitman's sampling formula for class sizes ``counts``."""
    from scipy.optimize import minimize
    from scipy.special import expit, gammaln

    rows, number = int(counts.sum()), len(counts)
    sizes, classes = np.unique(counts, return_counts=True)

    def parameters(point: NDArray[np.float64]) -> tuple[float, float]:
        alpha = float(np.clip(expit(point[0]), 1e-9, 1 - 1e-9))
        return alpha, float(np.exp(np.clip(point[1], -30, 40))) - alpha

    def cost(point: NDArray[np.float64]) -> float:
        alpha, theta = parameters(point)
        ratio = theta / alpha
        likelihood = (number - 1) * np.log(alpha) + gammaln(ratio + number) - gammaln(ratio + 1)
        likelihood -= gammaln(theta + rows) - gammaln(theta + 1)
        likelihood += float(classes @ (gammaln(sizes - alpha) - gammaln(1 - alpha)))
        return float(-likelihood)

    starts = (np.array([logit, scale]) for logit in (-3.0, 0.0, 2.0) for scale in (0.0, np.log(number + 1.0)))
    fits = [minimize(cost, start, method="Nelder-Mead", tol=1e-9, options={"maxiter": 4000}) for start in starts]
    return parameters(min(fits, key=lambda fit: fit.fun).x)


def _checked(counts: Integers, population: int) -> int:
    rows = int(counts.sum())
    if population < rows:
        raise InputError(f"a population of {population} cannot contain a sample of {rows} rows", culprit=population)
    if population > _MOST:
        raise InputError(f"a population has at most {_MOST:,} people", culprit=population)
    return rows
