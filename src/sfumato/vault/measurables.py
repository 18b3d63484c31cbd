"""Measurable questions: each kind has its check, sensitivity, canonical form, table and answer.

A kind is one class.  This module has the base of all kinds, and the kinds about the cells of a marginal.
:mod:`sfumato.vault.value_measurables` has the kinds about values, :mod:`sfumato.vault.unit_measurables` those about
whole units, and :mod:`sfumato.vault.scores` the scores of a selection.

The sensitivity of an answer is at most the sum over the rows of a unit.  :mod:`sfumato.vault.contribution` has the
number of these rows, in all and in one cell, and the lengths of such sums.  Integers are bounded so that no sum
overflows 64 bits.  A sum that wraps around would move further than its sensitivity.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.domain.predicate import Predicate
from sfumato.engine.contingency import FIXED_POINT_LIMIT, TOTAL_CELLS, check_condition
from sfumato.engine.exact import Exact, reveal
from sfumato.engine.port import Counts, Encoded
from sfumato.errors import QueryError, SizeError
from sfumato.privacy.noise import Noise
from sfumato.vault.contribution import (
    Groups,
    coarse_cells,
    contribution,
    counted_over_groups,
    group_counts,
    groups_bytes,
    sum_over_groups,
)

IntegerArray = NDArray[np.int64]

_LARGEST = 1 << 62
_MATRIX = 2
WRITTEN = 64  # codes of a coarsening, or edges of bins, that the journal lists one by one


class Measurable(ABC):
    """A question with an integer answer, and everything that its private answer needs."""

    def sensitivity(self, domain: Domain) -> tuple[int, int]:
        """Return L1 and squared L2 sensitivity for adding or removing one unit: noise is scaled to these alone.

        Raises:
            DomainError, QueryError, SizeError: see :meth:`check`.
        """
        self.check(domain)
        return self._sensitivity(domain)

    @abstractmethod
    def check(self, domain: Domain) -> None:
        """Refuse a question that cannot be answered under ``domain``, before anything is charged.

        Raises:
            DomainError: an attribute that the domain does not have.
            QueryError: the question does not fit the domain.
            SizeError: a sum could overflow; ask for a coarser unit.
        """

    @abstractmethod
    def _sensitivity(self, domain: Domain) -> tuple[int, int]:
        """Return the sensitivities of a question that passes the check."""

    @abstractmethod
    def canonical(self) -> dict[str, Any]:
        """Return the question as JSON values; equal questions have equal JSON."""

    @abstractmethod
    def table(self) -> ExactTable:
        """Return the exact table from which the answer follows; questions about one table share it."""

    @abstractmethod
    def finish(self, domain: Domain, table: Counts) -> Counts:
        """Return the exact answer, from the exact table."""


class ExactTable(Measurable):
    """A question with a table of its own: numbers for each cell of ``axes``, flat in C order.

    Attributes:
        where: the condition on its rows; None: all rows.
        encoded_rows: true if it is about the encoded rows alone.
    """

    where: Predicate | None
    encoded_rows: ClassVar[bool] = True

    @property
    @abstractmethod
    def axes(self) -> tuple[str, ...]:
        """The attributes of the cells."""

    @abstractmethod
    def moved_to(self, attributes: tuple[str, ...]) -> ExactTable:
        """Return the same question about all rows, over other attributes."""

    @abstractmethod
    def count(self, encoded: Encoded) -> Exact[Counts]:
        """Count the table."""

    def table(self) -> ExactTable:
        """See :class:`Measurable`."""
        return self

    def finish(self, domain: Domain, table: Counts) -> Counts:
        """See :class:`Measurable`."""
        del domain
        return table

    @property
    def adds_up(self) -> bool:
        """Whether the table over fewer attributes is a sum of this one."""
        return True

    @property
    def width(self) -> int:
        """The number of integers per cell."""
        return 1

    @property
    def decided_by(self) -> str | None:
        """The attribute whose code decides what a row adds to the numbers of its cell; None: each row adds one."""
        return None

    def terms(self, domain: Domain) -> Counts:
        """Return the numbers that a row adds, by the code of that attribute, shape ``(codes, width)``."""
        raise NotImplementedError(domain)

    @property
    def held_bytes(self) -> int:
        """The approximate size of the question in bytes."""
        return 500 + (0 if self.where is None else self.where.held_bytes)

    def size(self, domain: Domain) -> int:
        """Return the number of integers in the table."""
        return cells(domain, self.axes) * self.width


@dataclass(frozen=True)
class Marginal(ExactTable):
    """The contingency table of ``attributes``, flat in C order; without attributes, the row count.

    With ``groups`` it is the coarser table, so that a merged cell carries the noise of one cell.
    One row is in one cell and adds 1 to it.
    """

    attributes: tuple[str, ...]
    where: Predicate | None = None
    groups: Groups | None = None

    @property
    def held_bytes(self) -> int:
        """The approximate size of the question in bytes."""
        return super().held_bytes + groups_bytes(self.groups)

    def __hash__(self) -> int:
        return self._hash  # marginals are looked up often, and their conditions may be long

    @cached_property
    def _hash(self) -> int:
        return hash((self.attributes, self.where, self.groups))

    def check(self, domain: Domain) -> None:
        """See :class:`Measurable`."""
        named_once(self.attributes)
        coarse_cells(domain, self.attributes, self.groups)
        check_condition(self.where, domain)

    def _sensitivity(self, domain: Domain) -> tuple[int, int]:
        return contribution(domain, self.attributes, self.groups, self.where).counts()

    def canonical(self) -> dict[str, Any]:
        """See :class:`Measurable`."""
        own = {"attributes": list(self.attributes), "where": where_json(self.where)}
        return {"kind": "marginal", **own, "groups": groups_json(self.groups)}

    def table(self) -> Marginal:
        """See :class:`Measurable`: without groups, because all coarsenings share the table, unless it is too large."""
        return self if self.groups is None or not self.adds_up else Marginal(self.attributes, self.where)

    def finish(self, domain: Domain, table: Counts) -> Counts:
        """See :class:`Measurable`."""
        return group_counts(table, shape_of(domain, self.attributes), self.groups)

    @property
    def axes(self) -> tuple[str, ...]:
        """See :class:`ExactTable`."""
        return self.attributes

    @property
    def adds_up(self) -> bool:
        """See :class:`ExactTable`."""
        return not counted_over_groups(self.groups)

    def size(self, domain: Domain) -> int:
        """See :class:`ExactTable`."""
        if counted_over_groups(self.groups):
            return coarse_cells(domain, self.attributes, self.groups)
        return super().size(domain)

    def moved_to(self, attributes: tuple[str, ...]) -> Marginal:
        """See :class:`ExactTable`."""
        return Marginal(attributes)

    def count(self, encoded: Encoded) -> Exact[Counts]:
        """See :class:`ExactTable`."""
        if counted_over_groups(self.groups):
            filled = reveal(encoded.groups(self.attributes, self.where))
            return Exact(sum_over_groups(filled.codes, filled.counts, self.groups or ()))
        (counts,) = encoded.marginals([self.attributes], self.where)
        return counts


@dataclass(frozen=True, eq=False)
class Counting(Measurable):
    """0/1 queries over the cells of one marginal: ``answers = matrix @ cells``.

    ``matrix`` is boolean, shape ``(queries, cells)``.  A row in cell c moves the queries that hold at c:
    by at most the largest column sum, in L1 and in squared L2.
    """

    attributes: tuple[str, ...]
    matrix: NDArray[np.bool_]

    def check(self, domain: Domain) -> None:
        """See :class:`Measurable`."""
        _check_rows(domain, self.attributes, self.matrix, np.dtype(np.bool_))

    def _sensitivity(self, domain: Domain) -> tuple[int, int]:
        one = 1 if len(self.matrix) == 1 else int(self.matrix.sum(axis=0, dtype=np.int64).max(initial=1))
        return contribution(domain, self.attributes).queries(one, one)

    def canonical(self) -> dict[str, Any]:
        """See :class:`Measurable`."""
        return {"kind": "counting", "attributes": list(self.attributes), "matrix": digest(self.matrix)}

    def table(self) -> Marginal:
        """See :class:`Measurable`."""
        return Marginal(self.attributes)

    def finish(self, domain: Domain, table: Counts) -> Counts:
        """See :class:`Measurable`."""
        del domain
        # float64 dot products are exact below 2^53, and far faster than integer ones
        sums: Counts = (self.matrix.astype(np.float64) @ table.astype(np.float64)).astype(np.int64)
        return sums


@dataclass(frozen=True, eq=False)
class Weighted(Measurable):
    """Sums of the cells of one marginal with public integer weights: ``answers = weights @ cells``.

    ``weights`` are int64, shape ``(queries, cells)``.  A row in cell c moves the answers by column c: in
    L1 by at most the largest column sum of absolute values, in squared L2 of squares.
    """

    attributes: tuple[str, ...]
    weights: IntegerArray

    def check(self, domain: Domain) -> None:
        """See :class:`Measurable`."""
        weights = self.weights
        _check_rows(domain, self.attributes, weights, np.dtype(np.int64))
        light = max(int(weights.max()), -int(weights.min())) <= FIXED_POINT_LIMIT
        if not light or int(np.abs(weights).sum(axis=0).max()) > FIXED_POINT_LIMIT:
            raise SizeError(
                f"the weights of a cell add up to more than {FIXED_POINT_LIMIT:,}; "
                "divide them, or ask fewer sums at once"
            )

    def _sensitivity(self, domain: Domain) -> tuple[int, int]:
        one = max(1, int(np.abs(self.weights).sum(axis=0).max()))
        squared = max(1, int((self.weights**2).sum(axis=0).max()))
        return contribution(domain, self.attributes).queries(one, squared)

    def canonical(self) -> dict[str, Any]:
        """See :class:`Measurable`."""
        return {"kind": "weighted", "attributes": list(self.attributes), "weights": digest(self.weights)}

    def table(self) -> Marginal:
        """See :class:`Measurable`."""
        return Marginal(self.attributes)

    def finish(self, domain: Domain, table: Counts) -> Counts:
        """See :class:`Measurable`."""
        del domain
        sums: Counts = self.weights @ table
        return sums


@dataclass(frozen=True, eq=False)
class Distance(Measurable):
    """L1 distance between a marginal and a public integer table ``reference``, shape ``(cells,)``.

    With ``groups`` both are tables over the coarser cells.
    One row moves one cell by one, so the distance by at most one: sensitivity 1.
    """

    attributes: tuple[str, ...]
    reference: IntegerArray
    groups: Groups | None = None

    def check(self, domain: Domain) -> None:
        """See :class:`Measurable`."""
        named_once(self.attributes)
        size = coarse_cells(domain, self.attributes, self.groups)
        if self.reference.ndim != 1:
            raise QueryError("a distance is to a flat table of integers", culprit=self.attributes)
        _same(size, self.reference.shape[0], self.attributes)
        public_integers(self.reference, size)

    def _sensitivity(self, domain: Domain) -> tuple[int, int]:
        return contribution(domain, self.attributes, self.groups).queries(1, 1)

    def canonical(self) -> dict[str, Any]:
        """See :class:`Measurable`."""
        own = {"attributes": list(self.attributes), "groups": groups_json(self.groups)}
        return {"kind": "distance", **own, "reference": digest(self.reference)}

    def table(self) -> Marginal:
        """See :class:`Measurable`."""
        return Marginal(self.attributes, groups=self.groups).table()

    def finish(self, domain: Domain, table: Counts) -> Counts:
        """See :class:`Measurable`."""
        counts = group_counts(table, shape_of(domain, self.attributes), self.groups)
        distance: Counts = np.abs(counts - self.reference).sum(keepdims=True)
        return distance


@dataclass(frozen=True, eq=False)
class Measurement:
    """Noisy integers for one question, with the noise they carry: public, free to reuse.

    ``values`` has one int64 a cell (Marginal, Sum, Units, Bins), several (Moments), one a query (Counting,
    Weighted), or one (Distance, Dropped).
    """

    question: Measurable
    values: IntegerArray
    noise: Noise

    @property
    def standard_error(self) -> float:
        """Standard deviation of the noise on one cell."""
        return math.sqrt(self.noise.variance)


@dataclass(frozen=True, eq=False)
class StoredMarginal:
    """A noisy marginal of all rows over single codes, from an earlier release: public, free to reuse.

    Attributes:
        attributes: the attributes of the cells, in the order of the request.
        values: int64, one axis per attribute.
        noise: the noise on every cell.
        rho: its loss in zCDP.
        entry: its number in the journal.
    """

    attributes: tuple[str, ...]
    values: IntegerArray
    noise: Noise
    rho: Fraction
    entry: int


def check_size(domain: Domain, questions: Sequence[Measurable]) -> None:
    """Refuse questions whose distinct tables the engine could not hold at once.

    Raises:
        SizeError: together they have too many cells.
    """
    size = sum(table.size(domain) for table in {question.table() for question in questions})
    if size > TOTAL_CELLS:
        raise SizeError(
            f"these questions are about {size:,} cells, more than the {TOTAL_CELLS:,} that are counted at once; "
            "ask for fewer or smaller marginals",
            culprit=size,
        )


def cells(domain: Domain, attributes: tuple[str, ...]) -> int:
    """Return the number of cells of a marginal."""
    return math.prod(shape_of(domain, attributes))


def shape_of(domain: Domain, attributes: tuple[str, ...]) -> tuple[int, ...]:
    """Return the number of codes of each attribute."""
    return tuple(domain[name].size for name in attributes)


def named_once(attributes: tuple[str, ...]) -> None:
    """Refuse an attribute that is named twice.

    Raises:
        QueryError: one occurs twice.
    """
    if len(set(attributes)) != len(attributes):
        raise QueryError("an attribute is named twice in one question", culprit=attributes)


def public_integers(values: IntegerArray, count: int) -> None:
    """Refuse integers that cannot be subtracted from counts without overflow.

    Raises:
        QueryError: other than ``count`` int64 within 2^62 together.
    """
    largest = _LARGEST // count
    fits = values.dtype == np.int64 and values.shape == (count,)
    # one comparison instead of two: shifted up by the largest, too small numbers are huge as unsigned integers
    if not fits or (values + largest).view(np.uint64).max() > 2 * largest:
        raise QueryError(f"a question compares {count} counts with as many int64 within 2^62 together")


def where_json(condition: Predicate | None) -> Any:  # noqa: ANN401  (JSON)
    """Return a condition as JSON values: ranges of codes, parts of conjunctions and disjunctions in a fixed order."""
    return None if condition is None else condition.to_json


def questions_json(questions: Sequence[Measurable]) -> dict[str, Any]:
    """Return questions as JSON values for the journal.

    Conditions are listed once, next to the questions, and a question has the index of its condition.  Many questions
    of one statement share a condition, which may be long.
    """
    documents, conditions = [question.canonical() for question in questions], list[Any]()
    for each in documents:
        where = each.get("where")
        if where is not None:
            if where not in conditions:
                conditions.append(where)
            each["where"] = conditions.index(where)
    return {"questions": documents, **({"conditions": conditions} if conditions else {})}


def digest(array: NDArray[Any]) -> dict[str, Any]:
    """Return the digest of a large public array as JSON values."""
    plain_array = np.ascontiguousarray(array)
    sha256 = hashlib.sha256(plain_array.tobytes()).hexdigest()
    return {"shape": list(plain_array.shape), "dtype": str(plain_array.dtype), "sha256": sha256}


def groups_json(groups: Groups | None) -> Any:  # noqa: ANN401  (JSON)
    """Return a coarsening as JSON values."""
    return None if groups is None else [None if group is None else _group_json(group) for group in groups]


def _group_json(group: tuple[int, ...]) -> Any:  # noqa: ANN401  (JSON)
    return list(group) if len(group) <= WRITTEN else digest(np.array(group, dtype=np.int64))


def _check_rows(
    domain: Domain, attributes: tuple[str, ...], rows: NDArray[np.bool_] | IntegerArray, kind: np.dtype[np.generic]
) -> None:
    named_once(attributes)
    if rows.dtype != kind or rows.ndim != _MATRIX or not len(rows):
        raise QueryError(f"queries over {', '.join(attributes)} need rows of {kind}, at least one", culprit=attributes)
    _same(cells(domain, attributes), rows.shape[1], attributes)


def _same(size: int, width: int, attributes: tuple[str, ...]) -> None:
    if size != width:
        raise QueryError(
            f"the question is about {width} cells, the marginal of {', '.join(attributes)} has {size}",
            culprit=attributes,
        )
