"""A table of numbers over a few attributes: the one noun of inference.

Factors multiply, add up and marginalise; axes are matched by attribute name, never by position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import SizeError

Table = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Factor:
    """One number a cell: ``values`` has one axis an attribute, in the order of ``attributes``.

    >>> import numpy as np
    >>> joint = Factor(("a", "b"), np.array([[1.0, 2.0], [3.0, 4.0]]))
    >>> joint.project(("b",)).values.tolist(), joint.project(("b", "a")).values.tolist()
    ([4.0, 6.0], [[1.0, 3.0], [2.0, 4.0]])
    """

    attributes: tuple[str, ...]
    values: Table

    def __post_init__(self) -> None:
        if self.values.ndim != len(self.attributes):
            raise SizeError(
                f"a factor over {len(self.attributes)} attributes needs as many axes, not {self.values.ndim}",
                culprit=self.attributes,
            )

    @staticmethod
    def full(attributes: Sequence[str], sizes: Mapping[str, int], value: float) -> Factor:
        """A factor with the same number in every cell."""
        return Factor(tuple(attributes), np.full([sizes[name] for name in attributes], value, dtype=np.float64))

    @property
    def total(self) -> float:
        """Sum of all cells."""
        return float(self.values.sum())

    def project(self, attributes: Sequence[str]) -> Factor:
        """Sum over all other attributes; axes in the order given."""
        return Factor(tuple(attributes), self._ordered(attributes, self.values.sum(axis=self._others(attributes))))

    def logsumexp(self, attributes: Sequence[str]) -> Factor:
        """Logarithm of the projection of the exponentials, without overflow; minus infinity for an empty sum."""
        others = self._others(attributes)
        most = self.values.max(axis=others, keepdims=True)
        shift = np.where(np.isfinite(most), most, 0.0)
        with np.errstate(divide="ignore"):
            summed = np.log(np.exp(self.values - shift).sum(axis=others))
        return Factor(tuple(attributes), self._ordered(attributes, summed + shift.reshape(summed.shape)))

    def expand(self, attributes: Sequence[str]) -> Table:
        """The values as a view that broadcasts against a table over ``attributes``, a superset of its own."""
        kept = [name for name in attributes if name in self.attributes]
        moved = self.values.transpose([self.attributes.index(name) for name in kept])
        return moved[tuple(slice(None) if name in self.attributes else None for name in attributes)]

    def __mul__(self, other: Factor) -> Factor:
        union = self._union(other)
        return Factor(union, self.expand(union) * other.expand(union))

    def __add__(self, other: Factor) -> Factor:
        union = self._union(other)
        return Factor(union, self.expand(union) + other.expand(union))

    def _union(self, other: Factor) -> tuple[str, ...]:
        return (*self.attributes, *(name for name in other.attributes if name not in self.attributes))

    def _others(self, attributes: Sequence[str]) -> tuple[int, ...]:
        return tuple(axis for axis, name in enumerate(self.attributes) if name not in attributes)

    def _ordered(self, attributes: Sequence[str], values: Table) -> Table:
        kept = [name for name in self.attributes if name in attributes]
        return values.transpose([kept.index(name) for name in attributes])
