"""How likely is somebody in the table re-identified?  Prosecutor, journalist and marketer (El Emam and Dankar 2008)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from sfumato.anonymize.source import raw_classes
from sfumato.anonymize.uniques import Uniques, estimate
from sfumato.engine.open import open_table
from sfumato.errors import InputError

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Attacker:
    """Risk against one attacker: the probability that a match by quasi-identifiers is right.

    ``highest`` over all rows, ``average`` over rows, ``share_at_risk`` of the rows whose risk is above
    ``threshold``.
    """

    highest: float
    average: float
    share_at_risk: float
    threshold: float


@dataclass(frozen=True)
class Risk:
    """Risk of a table, before or after anonymisation.

    The prosecutor knows that a person is in the table; the journalist only that they are in the population;
    the marketer wants as many right matches as possible, and their risk is the expected share of them.
    Journalist figures are None where no population is known.
    """

    rows: int
    classes: int
    smallest_class: int
    sample_uniques: int
    prosecutor: Attacker
    marketer: float
    journalist: Attacker | None
    marketer_in_population: float | None

    def to_json(self) -> dict[str, object]:
        """The figures as plain values."""
        return asdict(self)


def assess(counts: Integers, population: Integers | None = None, *, threshold: float) -> Risk:
    """Risk of published classes.

    Args:
        counts: rows of each class, shape ``(classes,)``; classes without rows are left out of account.
        population: people of each class in the population, same shape.
        threshold: a row is at risk when its risk is above this, in [0, 1].

    Raises:
        InputError: a threshold outside [0, 1], no rows, or a class larger than its population.
    """
    if not 0 <= threshold <= 1:
        raise InputError(f"the risk threshold must lie in [0, 1], not {threshold}", culprit=threshold)
    used = counts > 0
    sizes = counts[used]
    if not len(sizes):
        raise InputError("there is no row whose risk could be assessed")
    people = None if population is None else population[used]
    if people is not None and np.any(people < sizes):
        raise InputError("a class has more rows than people in the population")
    rows = int(sizes.sum())
    return Risk(
        rows=rows,
        classes=len(sizes),
        smallest_class=int(sizes.min()),
        sample_uniques=int(np.count_nonzero(sizes == 1)),
        prosecutor=_attacker(sizes, sizes, threshold),
        marketer=len(sizes) / rows,
        journalist=None if people is None else _attacker(sizes, people, threshold),
        marketer_in_population=None if people is None else float((sizes / people).sum() / rows),
    )


def assess_table(table: object, *, quasi: Sequence[str], threshold: float, population: object | None = None) -> Risk:
    """Risk of a table as it stands, protected or released: its rows with equal quasi-identifiers are a class.

    For the owner of the table: the figures are exact.  Rows with a missing quasi-identifier are left out.

    Args:
        table: a path, frame or URL.
        quasi: columns that an attacker may know.
        threshold: a row is at risk when its risk is above this.
        population: a larger table with the same columns and values, for the journalist.

    Raises:
        InputError: what is asked does not make sense; the message says why.
        TableError: a table that cannot be read, or lacks a column.
    """
    classes = raw_classes(open_table(table), quasi)
    if population is None:
        return assess(classes["units"].to_numpy(), threshold=threshold)
    people = raw_classes(open_table(population), quasi).rename_columns([*quasi, "people"])
    both = classes.join(people, keys=list(quasi), join_type="left outer")
    missing = pa.compute.fill_null(both["people"], 0).to_numpy()
    return assess(both["units"].to_numpy(), missing, threshold=threshold)


def estimate_uniques(table: object, *, quasi: Sequence[str], population: int) -> Uniques:
    """Estimated population uniques of a table that is a random sample of so many people, and which model to believe.

    Raises:
        InputError: a population smaller than the table.
        TableError: a table that cannot be read, or lacks a column.
    """
    counts = raw_classes(open_table(table), quasi)["units"].to_numpy()
    return estimate(counts, population)


def _attacker(sizes: Integers, hidden_among: Integers, threshold: float) -> Attacker:
    risks = 1 / hidden_among
    rows = sizes.sum()
    return Attacker(
        highest=float(risks.max()),
        average=float(sizes @ risks / rows),
        share_at_risk=float(sizes[risks > threshold].sum() / rows),
        threshold=threshold,
    )
