"""Measure bin edges of a numeric column by a quantile tree through the vault.

Edges taken from the data reveal single values, and edges declared in advance may leave cells empty.  Here a range is
split again if its noisy count is large (after Zhang, Xiao and Xie 2016, "PrivTree").  The depth is fixed, and each
level is charged.
"""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import expect, parse_integer
from sfumato.domain import Domain, Integer, Real
from sfumato.errors import QueryError
from sfumato.model.factor import FloatArray
from sfumato.privacy.loss import Loss
from sfumato.vault.interface import (
    Mechanisms,
    ReleaseRequest,
    StatedLoss,
    VaultInterface,
    refuse_no_vault,
    stated_loss,
    states_loss,
)
from sfumato.vault.value_measurables import Bins

LEVELS = 5
BRANCHES = 4
_CLEAR = 3.0  # standard deviations of a bin's noise that its count must exceed to be split


@states_loss
def private_edges(
    vault: VaultInterface, attribute: str, *, bins: int, **stated: Unpack[StatedLoss]
) -> tuple[float, ...]:
    """Release the edges of about ``bins`` bins with about the same number of rows each, at ``loss``.

    Adding or removing one row changes one bin of each level by one: each level has sensitivity one and takes an equal
    part of the loss.  For a real attribute the first and the last edge are the declared bounds.  For an integer
    attribute the edges are the first values of bins, and the last bin ends at the declared maximum.

    A number that many rows share gets its own bin if five levels of quarters can isolate it.  To use the edges, put
    them into the domain and open the vault again with the same ledger.

    Raises:
        QueryError: the attribute is not numeric, or ``bins`` is below two.
        BudgetError: the ledger refuses ``loss``; nothing was spent.
    """
    loss = stated_loss(stated)
    refuse_no_vault(vault)
    expect(loss, Loss, "state a loss: Epsilon, Rho or EpsilonDelta")
    bins = parse_integer(bins, "the number of bins is whole")
    numeric = vault.domain[attribute]
    if bins < 2 or not isinstance(numeric, Integer | Real) or numeric.minimum == numeric.maximum:  # noqa: PLR2004
        raise QueryError(f"{attribute!r} needs to be a number with a range, and bins at least two", culprit=attribute)
    request = ReleaseRequest(
        "synthesize", "private-edges", {"attribute": attribute, "bins": bins}, f"edges of {bins} bins of {attribute}"
    )
    stored = vault.release(
        request, loss, lambda mechanisms: {"edges": np.array(split(mechanisms, attribute, loss, bins=bins))}
    )
    return _declarable(numeric, stored.payload["edges"].tolist())


def _declarable(numeric: Integer | Real, edges: list[float]) -> tuple[float, ...]:
    """Return the edges in the form of the domain.  For an integer attribute these are first values, without the end.

    >>> from sfumato.domain import Unknown
    >>> age = Integer(name="age", minimum=0, maximum=99, unknown=Unknown.CLAMP)
    >>> _declarable(age, [0.0, 18.5625, 18.75, 99.0])
    (0, 19)
    """
    if isinstance(numeric, Real):
        return tuple(edges)
    return tuple(sorted({math.ceil(edge) for edge in edges[:-1]}))


def split(mechanisms: Mechanisms, attribute: str, loss: Loss, *, bins: int) -> list[float]:
    """Measure levels of counts through ``mechanisms``, and merge neighboring bins to about equal counts."""
    divisible = loss.divisible
    edges = _bounds(mechanisms.domain, attribute)
    counts: FloatArray = np.array([np.inf])
    deviation = 0.0
    for _ in range(LEVELS):
        heavy = counts > max(_CLEAR * deviation, _share(counts, bins))
        edges = _refined(edges, heavy)
        (measured,) = mechanisms.measure([Bins(attribute, tuple(edges), ())], divisible / LEVELS)
        counts, deviation = measured.values.astype(np.float64), measured.standard_error
    return _merged(edges, np.maximum(counts, 0.0), bins)


def _bounds(domain: Domain, attribute: str) -> list[float]:
    numeric = domain[attribute]
    assert isinstance(numeric, Integer | Real)
    return [float(numeric.minimum), float(numeric.maximum)]


def _share(counts: FloatArray, bins: int) -> float:
    """Return half the target count of a bin, above which a bin is split."""
    finite = counts[np.isfinite(counts)]
    return float(np.maximum(finite, 0.0).sum()) / (2 * bins)


def _refined(edges: list[float], heavy: NDArray[np.bool_]) -> list[float]:
    refined = [edges[0]]
    for low, high, again in zip(edges[:-1], edges[1:], heavy, strict=True):
        inner = np.linspace(low, high, BRANCHES + 1)[1:].tolist() if again else [high]
        refined += [edge for edge in inner if edge > refined[-1]]
    return refined


def _merged(edges: list[float], counts: FloatArray, bins: int) -> list[float]:
    """Merge neighboring bins until each has about an equal share of the remaining rows."""
    left = float(counts.sum())
    merged, rows = [edges[0]], 0.0
    for edge, count in zip(edges[1:-1], counts[:-1], strict=True):
        rows += float(count)
        if len(merged) < bins and rows >= left / (bins - len(merged) + 1) > 0:
            merged.append(edge)
            left, rows = left - rows, 0.0
    return [*merged, edges[-1]]
