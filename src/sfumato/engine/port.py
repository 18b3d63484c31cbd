"""What Sfumato asks of an engine: about eight operations, all of them counts or integer sums.

An adapter is one module that implements :class:`Table` and :class:`Encoded`; the conformance suite in
``tests/engine`` runs over every adapter.  Codes follow :mod:`sfumato.domain.attribute`: declared cells,
then the missing cell, then the unknown cell.  A row with a dropped value is in no tally.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.domain.predicate import Predicate
from sfumato.engine.exact import Exact

Counts = NDArray[np.int64]


class Kind(StrEnum):
    """What a column holds, as far as a domain cares."""

    TEXT = "text"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    REAL = "real"
    OTHER = "other"


@dataclass(frozen=True)
class Column:
    """A column of the table: its name, kind, and the engine's own name of its type."""

    name: str
    kind: Kind
    type: str


@dataclass(frozen=True)
class Profile:
    """What a draft domain is made from: read off the data, for its owner's eyes only.

    ``values`` are the distinct non-null values in order, or None where there are more than the limit.
    """

    column: Column
    distinct: int
    missing: int
    minimum: object
    maximum: object
    values: tuple[object, ...] | None


@dataclass(frozen=True)
class Groups:
    """A sparse contingency table: distinct code tuples with their counts.

    ``codes`` has shape ``(groups, attributes)`` and an unsigned dtype; ``counts`` has shape ``(groups,)``.
    Groups come in lexicographic order of their codes.
    """

    attributes: tuple[str, ...]
    codes: NDArray[np.unsignedinteger]
    counts: Counts


class Table(Protocol):
    """A protected table where it lies."""

    def schema(self) -> tuple[Column, ...]:
        """Columns in order; reads no row."""
        ...

    def profile(self, distinct_limit: int) -> tuple[Profile, ...]:
        """Facts for a draft domain.  Not private: for the owner of the table only."""
        ...

    def encode(self, domain: Domain) -> Encoded:
        """Read the table once: codes in the smallest unsigned integers, numbers clamped to their declared
        bounds, at most ``domain.unit.rows`` rows a unit, chosen uniformly at random (all rows of a missing
        id are dropped).

        Raises:
            TableError: a column is missing, has no mapping to its attribute, or the table cannot be read.
        """
        ...


class Encoded(Protocol):
    """An encoded, bounded table that can be counted."""

    @property
    def domain(self) -> Domain:
        """The domain it was encoded with."""
        ...

    @property
    def version(self) -> str:
        """Names the content: the same rows under the same domain give the same version, hexadecimal."""
        ...

    def marginals(
        self, cliques: Sequence[tuple[str, ...]], where: Predicate | None = None
    ) -> tuple[Exact[Counts], ...]:
        """One contingency table a clique, flat in C order, out of a single pass over the rows.

        The empty clique counts the rows.
        """
        ...

    def groups(self, attributes: tuple[str, ...], where: Predicate | None = None) -> Exact[Groups]:
        """The contingency table of ``attributes`` without its empty cells, for domains too large to be dense."""
        ...

    def sums(self, value: str, by: tuple[str, ...], unit: Fraction, where: Predicate | None = None) -> Exact[Counts]:
        """Sum of round(clamped value / unit) over each cell of ``by``, flat in C order; rows whose value
        is missing or unknown add nothing.  ``value`` names an integer or real attribute.
        """
        ...

    def units(self, by: tuple[str, ...], where: Predicate | None = None) -> Exact[Counts]:
        """Number of distinct units with a row in each cell of ``by``, flat in C order."""
        ...

    def bins(
        self, value: str, edges: Sequence[float], by: tuple[str, ...], where: Predicate | None = None
    ) -> Exact[Counts]:
        """Counts of clamped ``value`` between neighbouring ``edges`` (closed on the left, the last on both
        sides) for each cell of ``by``: shape ``(cells of by * (edges - 1),)``, flat in C order.
        """
        ...

    def keys(self, columns: tuple[str, ...]) -> Exact[pa.Table]:
        """Distinct values of raw text columns that need not be in the domain, with column ``units``: the
        number of distinct units of each.  For release behind a stability threshold only.
        """
        ...

    def batches(self, attributes: tuple[str, ...]) -> Exact[Iterator[pa.RecordBatch]]:
        """The encoded rows in batches of 64 k: codes, one column an attribute, in table order."""
        ...
