"""Batches of counting queries as 0/1 rows over the cells of a few attributes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import expect, expect_all
from sfumato.domain import Domain
from sfumato.errors import QueryError, SizeError

Floats = NDArray[np.float64]

MOST_ENTRIES = 1 << 27
MOST_CELLS = 4096
_PLANE = 2


@dataclass(frozen=True, eq=False)
class Batch:
    """0/1 queries: ``rows`` is boolean, shape ``(queries, cells)``, over the cells of ``attributes`` in C order."""

    attributes: tuple[str, ...]
    rows: NDArray[np.bool_]

    def __post_init__(self) -> None:
        expect_all(self.attributes, str, "a batch names its attributes in a tuple")
        expect(self.rows, np.ndarray, "a batch is one or more boolean rows over cells")
        object.__setattr__(self, "attributes", tuple(self.attributes))
        if self.rows.ndim != _PLANE or not len(self.rows) or self.rows.dtype != bool:
            raise QueryError("a batch is one or more boolean rows over cells", culprit=self.rows.shape)
        if len(set(self.attributes)) != len(self.attributes) or not self.attributes:
            raise QueryError("a batch names each of its attributes once", culprit=self.attributes)

    def gram(self, domain: Domain) -> Floats:
        """W^T W, shape ``(cells, cells)``; the rows are checked to be as long as the cells.

        Raises:
            QueryError: they are not.
            SizeError: there are too many cells to optimise over.
        """
        size = domain.project(self.attributes).size
        if self.rows.shape[1] != size:
            raise QueryError(f"rows over {', '.join(self.attributes)} have {size} cells", culprit=self.rows.shape)
        if size > MOST_CELLS:
            raise SizeError(
                f"a batch over {size:,} cells is too large to optimise; group cells, or ask single queries",
                culprit=size,
            )
        wide = self.rows.astype(np.float64)
        gram: Floats = wide.T @ wide
        return gram

    def gram_along(self, axis: int, shape: Sequence[int]) -> Floats:
        """The gram of what the queries ask along one attribute: which of its cells each touches at all."""
        table = self.rows.reshape(-1, *shape)
        others = tuple(other + 1 for other in range(len(shape)) if other != axis)
        touched: Floats = np.asarray(table.any(axis=others), dtype=np.float64)
        gram: Floats = touched.T @ touched
        return gram


def rectangles(domain: Domain, attributes: Sequence[str], bounds: Iterable[Sequence[tuple[int, int]]]) -> Batch:
    """Boxes of codes: for each query an inclusive pair of bounds an attribute.

    Raises:
        QueryError: a bound outside the attribute, or out of order.
        SizeError: the rows would not fit in memory.
    """
    shape = domain.project(attributes).shape
    boxes = np.array([list(box) for box in bounds], dtype=np.int64).reshape(-1, len(shape), _PLANE)
    low, high = boxes[..., 0], boxes[..., 1]
    if not len(boxes) or (low < 0).any() or (low > high).any() or (high >= np.array(shape)).any():
        raise QueryError("bounds are codes of the attributes, in order and inclusive", culprit=attributes)
    _refuse_large(len(boxes) * math.prod(shape))
    along = [
        (low[:, axis, None] <= np.arange(size)) & (np.arange(size) <= high[:, axis, None])
        for axis, size in enumerate(shape)
    ]
    rows = reduce(lambda left, right: (left[:, :, None] & right[:, None, :]).reshape(len(boxes), -1), along)
    return Batch(tuple(attributes), rows)


def ranges(domain: Domain, attribute: str, bounds: Iterable[tuple[int, int]]) -> Batch:
    """Inclusive ranges of codes of one attribute."""
    return rectangles(domain, (attribute,), ([pair] for pair in bounds))


def all_ranges(domain: Domain, attribute: str) -> Batch:
    """Every inclusive range of codes of one attribute."""
    expect(domain, Domain, "ranges are of an attribute of a Domain")
    size = domain[attribute].size
    _refuse_large(size**3 // 2)
    return ranges(domain, attribute, ((low, high) for low in range(size) for high in range(low, size)))


def prefixes(domain: Domain, attribute: str) -> Batch:
    """The cumulative distribution: ranges from the first code to each code."""
    expect(domain, Domain, "ranges are of an attribute of a Domain")
    return ranges(domain, attribute, ((0, high) for high in range(domain[attribute].size)))


def marginals(domain: Domain, attributes: Sequence[str], cliques: Iterable[Sequence[str]]) -> Batch:
    """Every cell of several marginals of ``attributes``."""
    shape = domain.project(attributes).shape
    codes = np.unravel_index(np.arange(math.prod(shape)), shape)
    rows = []
    for clique in cliques:
        size = domain.project(clique).size if clique else 1
        _refuse_large(size * math.prod(shape))
        own = [codes[list(attributes).index(name)] for name in clique]
        cell = np.ravel_multi_index(own, domain.project(clique).shape) if clique else np.zeros(math.prod(shape), int)
        rows.append(np.arange(size)[:, None] == cell)
    return Batch(tuple(attributes), np.concatenate(rows))


def _refuse_large(entries: int) -> None:
    if entries > MOST_ENTRIES:
        raise SizeError(f"a batch of {entries:,} entries does not fit in memory; ask fewer queries", culprit=entries)
