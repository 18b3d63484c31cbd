"""Marginals of one and two attributes that are computed once and read by several scores."""

from __future__ import annotations

from dataclasses import dataclass, field

from sfumato.domain import Domain
from sfumato.evaluate.released import Marginals, Shares

_CELLS = 1 << 25  # cells kept in all (256 MiB); what comes after is computed again


@dataclass(eq=False)
class Remembered:
    """A source that keeps its small marginals."""

    source: Marginals
    _kept: dict[tuple[str, ...], Shares] = field(default_factory=dict, repr=False)
    _cells: int = 0

    @property
    def domain(self) -> Domain:
        """The public description of the table."""
        return self.source.domain

    def marginal(self, attributes: tuple[str, ...]) -> Shares:
        """As the source says."""
        if attributes in self._kept:
            return self._kept[attributes]
        found = self.source.marginal(attributes)
        if len(attributes) <= 2 and self._cells + found.size <= _CELLS:  # noqa: PLR2004
            found.setflags(write=False)
            self._kept[attributes] = found
            self._cells += found.size
        return found
