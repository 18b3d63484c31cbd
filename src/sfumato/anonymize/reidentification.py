"""The risk of re-identification, and estimates of the people who are unique in the population.

Prosecutor, journalist and marketer follow El Emam and Dankar (2008).  Two models estimate population uniques, and a
rule chooses between them.  Zayatz assumes that the class sizes of the sample are those of the population, so it
overstates uniques many times over for small samples.  Pitman fits a distribution of class sizes to the sample and
extrapolates it.  It is good for small samples, but the fit needs classes of two.  If the sample is most of the
population, it ignores what the sample shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from sfumato.anonymize.release.request import UnitsOfClasses, raw_classes, raw_rows, units_of_classes
from sfumato.domain.hierarchy.levels import Integers, Reals
from sfumato.engine.open import open_table
from sfumato.engine.port import ProtectedTable
from sfumato.errors import InputError, pluralize

PAIR = 2
_MOST = 10**15  # people; a larger float cannot represent every integer


SMALL_SAMPLE = 0.1
"""Largest sampling fraction for Pitman's model (Dankar, El Emam, Neisa, Roffey 2012)."""


class UniquesModel(StrEnum):
    """A model that extrapolates the uniques of a sample to its population."""

    ZAYATZ = "zayatz"
    PITMAN = "pitman"


@dataclass(frozen=True)
class Uniques:
    """The estimated number of unique people in a population, if the table is a random sample of it.

    ``believed`` is the estimate by ``model``, which the rule of Dankar et al. chooses, and ``why`` is the reason.
    """

    population: int
    zayatz: float
    pitman: float
    believed: float
    model: UniquesModel
    why: str


def estimate(counts: Integers, population: int) -> Uniques:
    """Estimate population uniques by both models, and choose one.

    The choice is the rule of Dankar, El Emam, Neisa and Roffey (2012), without its third model.  If no two rows of the
    sample share a class, it is Zayatz, because Pitman cannot be fitted.  Otherwise it is Pitman up to a sampling
    fraction of one tenth, and Zayatz above.  Both estimates are zero if the sample has no unique row.

    Args:
        counts: rows of each class of the sample, all positive.
        population: number of people in the population, at least the number of rows.

    Raises:
        InputError: the population is smaller than the sample.
    """
    by_zayatz, fraction = zayatz(counts, population), _checked(counts, population) / population
    model = UniquesModel.ZAYATZ
    if not np.any(counts == 1):
        why = "no row of the table is unique, so neither model sees a unique in the population"
        return Uniques(population, by_zayatz, 0.0, by_zayatz, model, why)
    by_pitman = pitman(counts, population)
    share_text = f"the table is {fraction:.3g} of the population"
    if not np.any(counts == PAIR):
        why = "no class of the table has two rows, so Pitman's model has nothing to be fitted to"
    elif fraction <= SMALL_SAMPLE:
        model = UniquesModel.PITMAN
        why = f"{share_text}, at most {SMALL_SAMPLE}, where Zayatz overstates uniques many times over"
    else:
        why = f"{share_text}, more than {SMALL_SAMPLE}, where its class sizes are close to the population's"
    believed = by_pitman if model is UniquesModel.PITMAN else by_zayatz
    return Uniques(population, by_zayatz, by_pitman, believed, model, why)


def zayatz(counts: Integers, population: int) -> float:
    """Estimate the population uniques (Zayatz 1991).

    The model takes the distribution of class sizes in the sample as the distribution in the population.  Bayes' rule
    gives the probability that a class with one row in the sample has one person in the population.  The assumption
    overstates small classes for small sampling fractions.

    Args:
        counts: rows of each class of the sample, all positive.
        population: number of people in the population, at least the number of rows.

    Raises:
        InputError: the population is smaller than the sample.
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
    """Estimate the population uniques under Pitman's sampling formula (Hoshino 2001).

    The parameters alpha in (0, 1) and theta > -alpha maximize the likelihood of the class sizes of the sample.  The
    estimate is the expected number of classes of one person, N * Gamma(theta + 1) Gamma(theta + alpha + N - 1) /
    (Gamma(theta + alpha) Gamma(theta + N)).

    Args:
        counts: rows of each class of the sample, all positive.
        population: number of people in the population, at least the number of rows.

    Raises:
        InputError: the population is smaller than the sample.
    """
    from scipy.special import gammaln

    _checked(counts, population)
    alpha, theta = fit_pitman(counts)
    log = gammaln(theta + 1) + gammaln(theta + alpha + population - 1)
    log -= gammaln(theta + alpha) + gammaln(theta + population)
    return float(population * np.exp(log))


def fit_pitman(counts: Integers) -> tuple[float, float]:
    """Return (alpha, theta) of Pitman's sampling formula, fitted to class sizes by maximum likelihood."""
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
        raise InputError(
            f"a population of {population} cannot contain a sample of {pluralize(rows, 'row')}", culprit=population
        )
    if population > _MOST:
        raise InputError(f"a population has at most {_MOST:,} people", culprit=population)
    return rows


@dataclass(frozen=True)
class Attacker:
    """The risk against one attacker: the probability that a match by quasi-identifiers is correct.

    ``highest`` is over all rows, ``average`` over rows; ``share_at_risk`` is the share of rows whose risk is above
    ``threshold``.  If units are counted, the figures are over units, and the risk of a unit is that of its most exposed
    row.
    """

    highest: float
    average: float
    share_at_risk: float
    threshold: float

    @classmethod
    def from_risks(cls, risks: Reals, holders: Integers, threshold: float) -> Attacker:
        """Return the figures from a list of risks; ``holders`` has the number of rows or units with each risk."""
        total = holders.sum()
        return cls(
            highest=float(risks.max()),
            average=float(holders @ risks / total),
            share_at_risk=float(holders[risks > threshold].sum() / total),
            threshold=threshold,
        )


@dataclass(frozen=True)
class Risk:
    """The risk of a table, before or after anonymization.

    The prosecutor knows that a person is in the table.  The journalist only knows that the person is in the population.
    The marketer wants as many correct matches as possible, and their risk is the expected share of those.

    Journalist figures are None without a population.  Rows ``left_out`` have a missing quasi-identifier, or no id, and
    are in no class.  ``units`` is the number of different units of the ``rows``, and classes count units; None if
    classes count rows.
    """

    rows: int
    units: int | None
    classes: int
    smallest_class: int
    sample_uniques: int
    prosecutor: Attacker
    marketer: float
    journalist: Attacker | None
    marketer_in_population: float | None
    left_out: int = 0

    def to_json(self) -> dict[str, object]:
        """Return the figures as plain values."""
        return asdict(self)


def assess(counts: Integers, population: Integers | None = None, *, threshold: float) -> Risk:
    """Return the risk of published classes that count rows.

    Args:
        counts: rows of each class, shape ``(classes,)``; classes without rows are ignored.
        population: people of each class in the population, same shape.
        threshold: a row is at risk if its risk is above this, in [0, 1].

    Raises:
        InputError: the threshold is outside [0, 1], there are no rows, or a class is larger than its population.
    """
    used = counts > 0
    sizes = counts[used]
    people = None if population is None else population[used]
    _refuse_wrong(sizes, people, threshold)
    rows = int(sizes.sum())
    return Risk(
        rows=rows,
        units=None,
        classes=len(sizes),
        smallest_class=int(sizes.min()),
        sample_uniques=int(np.count_nonzero(sizes == 1)),
        prosecutor=Attacker.from_risks(1 / sizes, sizes, threshold),
        marketer=len(sizes) / rows,
        journalist=None if people is None else Attacker.from_risks(1 / people, sizes, threshold),
        marketer_in_population=None if people is None else float((sizes / people).sum() / rows),
    )


def assess_units(held: UnitsOfClasses, population: Integers | None = None, *, threshold: float) -> Risk:
    """Return the risk of published classes that count units.

    A unit with rows in several classes is in each of them.  Its risk is the highest one, because an attacker may know
    any of its rows.  The marketer matches each unit by its most exposed row.

    Args:
        held: the units of each class.
        population: people of each class in the population, shape ``(classes,)``.
        threshold: a unit is at risk if its risk is above this, in [0, 1].

    Raises:
        InputError: the threshold is outside [0, 1], there are no units, or a class is larger than its population.
    """
    sizes = np.bincount(held.classes)
    _refuse_wrong(sizes, population, threshold)
    one_each = np.ones(int(held.units.max()) + 1, dtype=np.int64)

    def attacker(hidden_among: Integers) -> Attacker:
        risks = np.zeros(len(one_each))
        np.maximum.at(risks, held.units, 1 / hidden_among[held.classes])
        return Attacker.from_risks(risks, one_each, threshold)

    prosecutor, journalist = attacker(sizes), None if population is None else attacker(population)
    return Risk(
        rows=held.rows,
        units=len(one_each),
        classes=len(sizes),
        smallest_class=int(sizes.min()),
        sample_uniques=len(np.unique(held.units[sizes[held.classes] == 1])),
        prosecutor=prosecutor,
        marketer=prosecutor.average,
        journalist=journalist,
        marketer_in_population=None if journalist is None else journalist.average,
    )


def _refuse_wrong(sizes: Integers, people: Integers | None, threshold: float) -> None:
    if not 0 <= threshold <= 1:
        raise InputError(f"the risk threshold must lie in [0, 1], not {threshold}", culprit=threshold)
    if not len(sizes):
        raise InputError("there is no row whose risk could be assessed")
    if people is not None and np.any(people < sizes):
        raise InputError("a class has more rows, or units, than people in the population")


def assess_table(
    table: object,
    *,
    quasi: Sequence[str],
    threshold: float,
    population: object | None = None,
    unit: str | None = None,
) -> Risk:
    """Return the risk of an original table.  Its rows with equal quasi-identifiers are a class.

    This function is for the owner of the table, because the figures are exact.  Rows with a missing quasi-identifier
    are excluded and counted as ``left_out``.

    Args:
        table: a path, frame or URL.
        quasi: columns that an attacker may know.
        threshold: a row, or unit, is at risk if its risk is above this.
        population: a larger table with the same columns and values, for the journalist.
        unit: the column of the ids of units, also in the population if it has that column.  Default: rows are counted.

    Raises:
        InputError: an argument is invalid; the message names it.
        TableError: a table cannot be read, or lacks a column.
    """
    opened = open_table(table)
    if unit is None:
        classes = raw_classes(opened, quasi)
        people = None if population is None else _people(classes, raw_classes(open_table(population), quasi), quasi)
        risk = assess(classes["units"].to_numpy(), people, threshold=threshold)
    else:
        classes, held = units_of_classes(opened, quasi, unit)
        around = None if population is None else open_table(population)
        people = None if around is None else _people(classes, _raw_people(around, quasi, unit), quasi)
        risk = assess_units(held, people, threshold=threshold)
    return replace(risk, left_out=raw_rows(opened) - risk.rows)


def _people(classes: pa.Table, people: pa.Table, quasi: Sequence[str]) -> Integers:
    """Return the number of people of each class in the population."""
    numbered = classes.select(list(quasi)).append_column("class", pa.array(np.arange(len(classes))))
    renamed = people.rename_columns([*quasi, "people"])
    both = numbered.join(renamed, keys=list(quasi), join_type="left outer").sort_by("class")
    counts: Integers = pa.compute.fill_null(both["people"], 0).to_numpy()
    return counts


def _raw_people(population: ProtectedTable, quasi: Sequence[str], unit: str) -> pa.Table:
    """Count the units of each class of the population, or its rows if it has no column of units."""
    if all(column.name != unit for column in population.schema()):
        return raw_classes(population, quasi)
    classes, held = units_of_classes(population, quasi, unit)
    return classes.append_column("people", pa.array(np.bincount(held.classes)))


def estimate_uniques(table: object, *, quasi: Sequence[str], population: int, unit: str | None = None) -> Uniques:
    """Estimate the population uniques of a table that is a random sample, and choose a model.

    Each row of the table is one person of the population; with ``unit``, each different value of that column is one.  A
    unit with rows in several classes counts as one person in each of them.

    Raises:
        InputError: the population is smaller than the table.
        TableError: the table cannot be read, or lacks a column.
    """
    opened = open_table(table)
    if unit is None:
        return estimate(raw_classes(opened, quasi)["units"].to_numpy(), population)
    _, held = units_of_classes(opened, quasi, unit)
    return estimate(np.bincount(held.classes), population)
