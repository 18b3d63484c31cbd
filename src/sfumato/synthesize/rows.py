"""From cells back to rows in the table's own types.

A declared cell becomes its value: a categorical one the declared value, a bin of integers an integer
drawn uniformly from it, a bin of reals a real drawn uniformly from it.  A missing value becomes null.
The cell of unknown values becomes the text ``(other)`` in a text column, which is its public label, and
null anywhere else, as no number or boolean stands for "not declared".
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.domain import Attribute, Categorical, Domain, Integer, Real
from sfumato.domain.attribute import unknown_code
from sfumato.errors import InputError, SizeError

Codes = NDArray[np.integer]

OTHER = "(other)"
MOST_VALUES = 1 << 30  # 4 GiB of codes


def refuse_large(rows: int, attributes: int) -> None:
    """Refuse a sample that would not fit in memory.

    Raises:
        InputError: no number of rows.
        SizeError: too many.
    """
    if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < 0:
        raise InputError(f"a sample has a whole number of rows from 0, not {rows}", culprit=rows)
    if int(rows) * attributes > MOST_VALUES:
        raise SizeError(
            f"{rows:,} rows of {attributes} attributes are more than the {MOST_VALUES:,} values that are sampled at "
            "once; ask for fewer rows",
            culprit=rows,
        )


def round_to_total(weights: NDArray[np.float64], total: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Whole counts that sum to ``total`` and differ from weights of that sum by less than one, unbiased.

    Systematic sampling (Madow 1949): one uniform offset decides every remainder, so that any run of
    neighbouring cells is off by less than one as well.

    >>> random = np.random.default_rng(1)
    >>> counts = round_to_total(np.array([0.5, 2.0, 1.5]), 4, random)
    >>> int(counts.sum()), int(counts[1])
    (4, 2)
    """
    ends = np.cumsum(weights)
    if ends[-1] <= 0:
        weights = np.ones_like(weights)
        ends = np.cumsum(weights)
    ends = ends / ends[-1] * total
    nearest = np.rint(ends)
    ends = np.where(np.abs(ends - nearest) < 1e-6, nearest, ends)  # noqa: PLR2004  (sums of floats miss whole numbers)
    steps = np.floor(ends + random.uniform())
    steps[-1] = total
    counts: NDArray[np.int64] = np.diff(steps, prepend=0).astype(np.int64)
    return counts


def to_arrow(domain: Domain, codes: Codes, random: np.random.Generator) -> pa.Table:
    """Rows of codes, shape ``(rows, attributes)``, as typed Arrow columns."""
    return pa.table(
        {attribute.name: _column(attribute, codes[:, index], random) for index, attribute in enumerate(domain)}
    )


def _column(attribute: Attribute, codes: Codes, random: np.random.Generator) -> pa.Array:
    declared = codes < attribute.declared
    inside = np.where(declared, codes, 0)
    match attribute:
        case Categorical():
            return _categorical(attribute, codes)
        case Integer(minimum=minimum, edges=None):
            return pa.array(minimum + inside.astype(np.int64), pa.int64(), mask=~declared)
        case Integer():
            low, high = np.array([attribute.bounds(code) for code in range(attribute.declared)], dtype=np.int64).T
            return pa.array(random.integers(low[inside], high[inside], endpoint=True), pa.int64(), mask=~declared)
        case Real():
            edges = np.array(attribute.edges)
            drawn = random.uniform(edges[inside], edges[inside + 1])
            return pa.array(drawn, pa.float64(), mask=~declared)


def _categorical(attribute: Categorical, codes: Codes) -> pa.Array:
    values: list[str | int | bool | None] = [*attribute.values, *([None] * (attribute.size - attribute.declared))]
    other = unknown_code(attribute)
    if other is not None and isinstance(attribute.values[0], str):
        values[other] = OTHER
    return pa.array(values).take(pa.array(codes))
