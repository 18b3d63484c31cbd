"""The order of children as a rule on the cells of a child and of the one before it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.domain.related_tables import ChildTable
from sfumato.model.coarsening import Coarsening


def ranks(child: ChildTable) -> NDArray[np.int64] | None:
    """The rank of each code of the attribute that orders the children; a child's is never less than the one before.

    None where they have no order, or one by dates, of which gaps are drawn.  Missing and other values come last, as
    engines order them.
    """
    if child.order is None or child.dated:
        return None
    attribute = child.attribute(child.order)
    codes = np.arange(attribute.size)
    declared = codes < attribute.declared
    turned = -codes if child.falling else codes
    order = np.lexsort((turned, ~declared))
    found = np.empty(len(codes), dtype=np.int64)
    found[order] = codes
    return found


def impossible(rank: NDArray[np.int64], coarsening: Coarsening) -> NDArray[np.bool_]:
    """Pairs of groups, of the child before and of a child, none of whose codes are in order."""
    least = np.full(coarsening.size, len(rank))
    most = np.full(coarsening.size, -1)
    np.minimum.at(least, coarsening.groups, rank)
    np.maximum.at(most, coarsening.groups, rank)
    found: NDArray[np.bool_] = most[None, :] < least[:, None]
    return found


def ordered_codes(
    rank: NDArray[np.int64],
    coarsening: Coarsening,
    groups: NDArray[np.integer],
    before: NDArray[np.integer],
    random: np.random.Generator,
) -> NDArray[np.int64]:
    """Codes of children in given groups, none of them before the code of the child before.

    They are shared out as the group is, over what the order leaves of it; where it leaves nothing of the group, as the
    child before.
    """
    codes = np.argsort(rank, kind="stable")  # by rank
    weights = np.zeros((coarsening.size, len(rank)))
    weights[coarsening.groups[codes], np.arange(len(rank))] = coarsening.shares()[codes]
    upto = np.concatenate([np.zeros((coarsening.size, 1)), np.cumsum(weights, axis=1)], axis=1)
    first = upto[groups, rank[before]]
    left = upto[groups, -1] - first
    drawn = first + random.random(len(groups)) * left
    place = (upto[groups, 1:] <= drawn[:, None]).sum(axis=1)
    found = codes[np.minimum(place, len(rank) - 1)]
    kept: NDArray[np.int64] = np.where(left > 0, found, before).astype(np.int64)
    return kept
