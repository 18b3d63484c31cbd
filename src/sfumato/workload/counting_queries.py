"""Workloads: sets of counting queries, to be answered together or to be answered well by a synthetic table.

A workload is stored compactly (bounds of boxes, sizes of marginals) and evaluated over the dense cells of its
attributes.  It becomes an explicit 0/1 matrix only if a mechanism needs one. Bounds are cell codes, inclusive on both
sides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.arguments import expect
from sfumato.domain import Domain
from sfumato.errors import QueryError, SizeError
from sfumato.model.factor import FloatArray
from sfumato.vault.measurables import Counting

MOST_MATRIX_CELLS = 1 << 27  # 1 GiB as floats
_MOST_RANGES = 1 << 24
_PLANE = 2
_MOST_WEIGHT = 1000

Weight: TypeAlias = Fraction | int | float | str
MarginalNames: TypeAlias = Sequence[Sequence[str]] | Mapping[tuple[str, ...], Weight]


@runtime_checkable
class Workload(Protocol):
    """Counting queries over the cells of a few attributes."""

    def attributes(self, domain: Domain) -> tuple[str, ...]:
        """Return the attributes mentioned, in the order of the axes of the cells."""
        ...

    def length(self, domain: Domain) -> int:
        """Return the number of queries."""
        ...

    def widths(self, domain: Domain) -> NDArray[np.int64]:
        """Return the number of cells that each query sums: shape ``(queries,)``."""
        ...

    def answers(self, domain: Domain, cells: FloatArray | NDArray[np.int64]) -> FloatArray:
        """Return the answers from a table of the workload's attributes, flat in C order: shape ``(queries,)``."""
        ...

    def matrix(self, domain: Domain) -> NDArray[np.bool_]:
        """Return the queries as 0/1 rows: shape ``(queries, cells)``."""
        ...


@dataclass(frozen=True, eq=False)
class Boxes:
    """Inclusive boxes of cells: ``low`` and ``high`` are codes, shape ``(queries, attributes)``."""

    axes: tuple[str, ...]
    low: NDArray[np.int64]
    high: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.low.ndim != _PLANE or self.low.shape != self.high.shape or self.low.shape[1] != len(self.axes):
            raise QueryError("boxes need a lower and an upper bound for each attribute", culprit=self)
        if not len(self.low) or (self.low < 0).any() or (self.low > self.high).any():
            raise QueryError("boxes need bounds in order, from 0, and there must be at least one", culprit=self)

    def attributes(self, domain: Domain) -> tuple[str, ...]:
        """Return the attributes mentioned; every bound is checked to be one of their codes."""
        shape = domain.project(self.axes).shape
        if (self.high >= np.array(shape)).any():
            raise QueryError(f"a box over {', '.join(self.axes)} ends beyond the last cell", culprit=self)
        return self.axes

    def length(self, domain: Domain) -> int:  # noqa: ARG002
        """Return the number of queries."""
        return len(self.low)

    def widths(self, domain: Domain) -> NDArray[np.int64]:
        """Return the number of cells that each query sums: shape ``(queries,)``."""
        self.attributes(domain)
        widths: NDArray[np.int64] = np.prod(self.high - self.low + 1, axis=1, dtype=np.int64)
        return widths

    def answers(self, domain: Domain, cells: FloatArray | NDArray[np.int64]) -> FloatArray:
        """Sum over boxes from one table of prefix sums: 2^attributes look-ups per query."""
        table = np.asarray(cells).reshape(domain.project(self.attributes(domain)).shape)
        for axis in range(table.ndim):
            table = np.cumsum(table, axis=axis)
        table = np.pad(table, [(1, 0)] * table.ndim)
        answers = np.zeros(len(self.low))
        for corner in range(1 << table.ndim):
            uppers = np.array([corner >> axis & 1 for axis in range(table.ndim)], dtype=bool)
            sign = (-1) ** (table.ndim - corner.bit_count())
            answers += sign * table[tuple(np.where(uppers, self.high + 1, self.low).T)]
        return answers

    def matrix(self, domain: Domain) -> NDArray[np.bool_]:
        """Return the queries as 0/1 rows: shape ``(queries, cells)``."""
        shape = domain.project(self.attributes(domain)).shape
        _refuse_large(len(self.low), math.prod(shape))
        inside = np.ones((len(self.low), *(1 for _ in shape)), dtype=bool)
        for axis, size in enumerate(shape):
            codes = np.arange(size)
            along = (self.low[:, axis, None] <= codes) & (codes <= self.high[:, axis, None])
            inside = inside & along.reshape(-1, *(size if axis == other else 1 for other in range(len(shape))))
        return inside.reshape(len(self.low), -1)


@dataclass(frozen=True)
class Marginals:
    """The cells of all marginals of ``ways`` attributes, of the named ``cliques``, or of both.

    ``weights`` has the weight of the error of each named marginal; a marginal that is not named has weight 1.  Without
    ``weights``, each named marginal has weight 1.
    """

    ways: int | None = None
    cliques: tuple[tuple[str, ...], ...] = ()
    weights: tuple[Fraction, ...] = ()

    def __post_init__(self) -> None:
        if (self.ways is None and not self.cliques) or not (self.ways is None or _from_one(self.ways)):
            raise QueryError("a workload of marginals needs a number of attributes from 1, or cliques", culprit=self)
        cliques, weights = as_cliques(self.cliques), tuple(map(_weight, self.weights))
        if weights and len(weights) != len(cliques):
            raise QueryError("each named marginal needs one weight", culprit=self)
        object.__setattr__(self, "cliques", cliques)
        object.__setattr__(self, "weights", weights if any(weight != 1 for weight in weights) else ())

    def marginal_attributes(self, domain: Domain) -> tuple[tuple[str, ...], ...]:
        """Return the attributes of each marginal, the named ones last."""
        ways = self.all_ways(domain)
        return (*combinations(domain.names, ways), *self.cliques) if ways else self.cliques

    def all_ways(self, domain: Domain) -> int:
        """Return the number of attributes of which all marginals are in the workload; 0 if there is none.

        Raises:
            QueryError: the domain has fewer attributes.
        """
        if self.ways is not None and self.ways > len(domain):
            raise QueryError(f"marginals of {self.ways} attributes are more than a domain of {len(domain)} has")
        return self.ways or 0

    def named_weights(self) -> tuple[tuple[tuple[str, ...], float], ...]:
        """Return each named marginal with its weight."""
        weights = self.weights or (Fraction(1),) * len(self.cliques)
        return tuple((clique, float(weight)) for clique, weight in zip(self.cliques, weights, strict=True))

    def attributes(self, domain: Domain) -> tuple[str, ...]:
        """Return the attributes mentioned, in the domain's order."""
        mentioned = {name for clique in self.marginal_attributes(domain) for name in clique}
        return tuple(sorted(mentioned, key=domain.index))

    def length(self, domain: Domain) -> int:
        """Return the number of queries: cells of all marginals."""
        return sum(domain.project(clique).size for clique in self.marginal_attributes(domain))

    def widths(self, domain: Domain) -> NDArray[np.int64]:
        """Return the number of cells that each query sums: shape ``(queries,)``."""
        sizes = np.array([domain.project(clique).size for clique in self.marginal_attributes(domain)], dtype=np.int64)
        return np.repeat(domain.project(self.attributes(domain)).size // sizes, sizes)

    def answers(self, domain: Domain, cells: FloatArray | NDArray[np.int64]) -> FloatArray:
        """Return the marginals one after the other, each flat in C order."""
        names = self.attributes(domain)
        table = np.asarray(cells, dtype=np.float64).reshape(domain.project(names).shape)
        return np.concatenate([_marginal(table, names, clique).ravel() for clique in self.marginal_attributes(domain)])

    def matrix(self, domain: Domain) -> NDArray[np.bool_]:
        """Return the queries as 0/1 rows: shape ``(queries, cells)``."""
        names = self.attributes(domain)
        shape = domain.project(names).shape
        size = math.prod(shape)
        _refuse_large(self.length(domain), size)
        codes = np.unravel_index(np.arange(size), shape)
        rows = []
        for clique in self.marginal_attributes(domain):
            cell = np.ravel_multi_index([codes[names.index(name)] for name in clique], domain.project(clique).shape)
            rows.append(np.arange(domain.project(clique).size)[:, None] == cell)
        return np.concatenate(rows)


@dataclass(frozen=True, eq=False)
class Explicit:
    """Any 0/1 queries: ``rows`` is boolean, shape ``(queries, cells)``, over the cells of ``axes`` in C order."""

    axes: tuple[str, ...]
    rows: NDArray[np.bool_]

    def __post_init__(self) -> None:
        object.__setattr__(self, "axes", as_clique(self.axes))
        if not isinstance(self.rows, np.ndarray) or self.rows.ndim != _PLANE or self.rows.dtype != bool:
            raise QueryError("queries are boolean rows over cells", culprit=self.axes)
        if not len(self.rows) or len(set(self.axes)) != len(self.axes) or not self.axes:
            raise QueryError("a workload has a query and names each of its attributes once", culprit=self.axes)

    def attributes(self, domain: Domain) -> tuple[str, ...]:
        """Return the attributes mentioned; the length of the rows is checked against their cells."""
        size = domain.project(self.axes).size
        if self.rows.shape[1] != size:
            raise QueryError(f"rows over {', '.join(self.axes)} have {size} cells", culprit=self.rows.shape)
        return self.axes

    def length(self, domain: Domain) -> int:  # noqa: ARG002
        """Return the number of queries."""
        return len(self.rows)

    def widths(self, domain: Domain) -> NDArray[np.int64]:
        """Return the number of cells that each query sums: shape ``(queries,)``."""
        self.attributes(domain)
        widths: NDArray[np.int64] = self.rows.sum(axis=1, dtype=np.int64)
        return widths

    def answers(self, domain: Domain, cells: FloatArray | NDArray[np.int64]) -> FloatArray:
        """Return the answers from a table of the workload's attributes, flat in C order: shape ``(queries,)``."""
        self.attributes(domain)
        answers: FloatArray = self.rows.astype(np.float64) @ np.asarray(cells, dtype=np.float64)
        return answers

    def matrix(self, domain: Domain) -> NDArray[np.bool_]:
        """Return the queries as 0/1 rows: shape ``(queries, cells)``."""
        self.attributes(domain)
        return self.rows


def ranges(attribute: str, bounds: Iterable[tuple[int, int]]) -> Boxes:
    """Return inclusive ranges of codes of one attribute.

    >>> from sfumato.domain import Integer, Unknown
    >>> domain = Domain((Integer(name="age", minimum=0, maximum=3, unknown=Unknown.CLAMP),))
    >>> ranges("age", [(0, 1), (1, 3)]).answers(domain, np.array([5, 1, 0, 2])).tolist()
    [6.0, 3.0]
    """
    pairs = _bounds(list(bounds) if isinstance(bounds, Iterable) else bounds)
    return Boxes(as_clique([attribute]), pairs[:, :1], pairs[:, 1:])


def all_ranges(domain: Domain, attribute: str) -> Boxes:
    """Return every inclusive range of codes of one attribute."""
    expect(domain, Domain, "ranges are of an attribute of a Domain")
    size = domain[attribute].size
    if size**2 > 2 * _MOST_RANGES:
        raise SizeError(f"all ranges of {size:,} cells are too many to list; group cells into bins", culprit=attribute)
    return ranges(attribute, ((low, high) for low in range(size) for high in range(low, size)))


def prefixes(domain: Domain, attribute: str) -> Boxes:
    """Return the cumulative distribution: ranges from the first code to each code."""
    expect(domain, Domain, "ranges are of an attribute of a Domain")
    return ranges(attribute, ((0, high) for high in range(domain[attribute].size)))


def rectangles(attributes: Sequence[str], low: ArrayLike, high: ArrayLike) -> Boxes:
    """Return boxes of codes over several attributes, with bounds of shape ``(queries, attributes)``."""
    return Boxes(as_clique(attributes), _bounds(low), _bounds(high))


def cells_of(cliques: MarginalNames) -> Marginals:
    """Return the queries for all cells of the named marginals, or of a mapping from marginals to their weights.

    >>> cells_of([["age", "sex"], ["town"]]).cliques
    (('age', 'sex'), ('town',))
    """
    if isinstance(cliques, Mapping):
        return Marginals(cliques=tuple(map(as_clique, cliques)), weights=tuple(map(_weight, cliques.values())))
    return Marginals(cliques=as_cliques(cliques))


def all_marginals(ways: int, *, named: MarginalNames = ()) -> Marginals:
    """Return all marginals of ``ways`` attributes, for any domain, and the named ones.

    Args:
        ways: the number of attributes of each marginal.
        named: marginals that the ``batched`` method measures first, or a mapping from them to their weights.  A
            marginal that is not named has weight 1.

    >>> all_marginals(2).ways, all_marginals(2, named={("age", "sex", "town"): 4}).weights
    (2, (Fraction(4, 1),))
    """
    if not isinstance(named, Mapping) and isinstance(named, Sequence) and not len(named):
        return Marginals(ways=ways)
    cells = cells_of(named)
    return Marginals(ways, cells.cliques, cells.weights)


def counting(workload: Workload, domain: Domain) -> Counting:
    """Return the workload as a measurement for the vault.

    Raises:
        SizeError: its matrix would not fit in memory.
    """
    return Counting(workload.attributes(domain), workload.matrix(domain))


def refuse_no_workload(workload: object) -> None:
    """Refuse a value that is no workload, such as a number of attributes.

    Raises:
        QueryError: the value is no :class:`Workload`.
    """
    if not isinstance(workload, Workload):
        raise QueryError(
            "a workload is what all_marginals(...), ranges(...), prefixes(...) or rectangles(...) make",
            culprit=workload,
        )


def as_clique(names: Sequence[str]) -> tuple[str, ...]:
    """Return names of attributes that form one marginal.

    Raises:
        QueryError: the value is no list of names.

    >>> as_clique(["age", "sex"])
    ('age', 'sex')
    """
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise QueryError("attributes are named in a list, such as ['age', 'sex']", culprit=names)
    return tuple(names)


def as_cliques(cliques: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Return several sets of attributes.

    Raises:
        QueryError: the value is no list of lists of names.

    >>> as_cliques([["age"], ("sex", "height")])
    (('age',), ('sex', 'height'))
    """
    if isinstance(cliques, str) or not isinstance(cliques, Sequence):
        raise QueryError("marginals are named in a list of lists: [['age', 'sex'], ['height']]", culprit=cliques)
    return tuple(map(as_clique, cliques))


def _marginal(table: FloatArray, names: tuple[str, ...], clique: tuple[str, ...]) -> FloatArray:
    remaining = [name for name in names if name in clique]
    summed: FloatArray = table.sum(axis=tuple(axis for axis, name in enumerate(names) if name not in clique))
    return summed.transpose([remaining.index(name) for name in clique])


def _weight(weight: Weight) -> Fraction:
    """Return the weight of a marginal as an exact number.

    Raises:
        QueryError: it is no number between a thousandth and a thousand.
    """
    try:
        exact = Fraction(str(weight)) if isinstance(weight, float) else Fraction(weight)
    except (TypeError, ValueError, ZeroDivisionError):
        exact = Fraction(0)
    if isinstance(weight, bool) or not Fraction(1, _MOST_WEIGHT) <= exact <= _MOST_WEIGHT:
        raise QueryError(
            f"the weight of a marginal is a number from 0.001 to {_MOST_WEIGHT:,}, not {weight}", culprit=weight
        )
    return exact


def _from_one(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 1


def _bounds(codes: ArrayLike) -> NDArray[np.int64]:
    """Return the bounds of boxes as integers.

    Raises:
        QueryError: the bounds are ragged, or have fractions.
    """
    try:
        bounds = np.asarray(codes)
    except ValueError:
        bounds = np.asarray(None)
    if bounds.ndim != _PLANE or not np.issubdtype(bounds.dtype, np.integer):
        raise QueryError(
            "bounds are codes of cells, whole numbers from 0, such as [(0, 4), (2, 7)] for two ranges", culprit=codes
        )
    return bounds.astype(np.int64)


def _refuse_large(queries: int, cells: int) -> None:
    if queries * cells > MOST_MATRIX_CELLS:
        raise SizeError(
            f"{queries} queries over {cells} cells do not fit in memory as 0/1 rows; ask fewer queries, group cells "
            "into bins, or use a graphical model (mst, batched)",
            culprit=(queries, cells),
        )
