"""What every synthesizer returns: a release with a model, and rows drawn from it in the table's own types."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.model.simulation import generator
from sfumato.synthesize.rows import Codes, refuse_large, to_arrow
from sfumato.synthesize.workload import Answers, Workload
from sfumato.vault.release import Release
from sfumato.vault.rows import Rows
from sfumato.vault.vault import Settled


class Model(Protocol):
    """A distribution over the cells of a domain, fitted to noisy measurements: public, free to sample again."""

    @property
    def domain(self) -> Domain:
        """The attributes covered."""
        ...

    @property
    def total(self) -> int:
        """Number of rows of a sample."""
        ...

    def cells(self, attributes: tuple[str, ...]) -> NDArray[np.float64]:
        """Expected counts of a marginal, flat in C order."""
        ...

    def answers(self, workload: Workload) -> Answers:
        """Expected answers to a workload: shape ``(queries,)``."""
        ...

    def sample(self, random: np.random.Generator, rows: int | None = None) -> Codes:
        """``rows`` rows of codes, ``total`` without them, in random order: shape ``(rows, attributes)``."""
        ...


@dataclass(frozen=True, kw_only=True)
class Synthetic(Release):
    """A synthetic table: a public model and rows sampled from it.

    ``seed`` is made from the stored, public payload; what is sampled of a public model needs no secret.
    """

    model: Model
    seed: int

    @cached_property
    def rows(self) -> Rows:
        """A sample of the model in the table's own types: the same rows whenever this release is asked for again,
        by the same version of NumPy.

        Raises:
            SizeError: noise at a tiny loss made the number of rows larger than is sampled at once.
        """
        return self._drawn(None, generator(self.seed))

    def codes(self) -> Codes:
        """The cells of ``rows``, row by row: the same draw, shape ``(rows, attributes)``.

        Raises:
            SizeError: as ``rows``.
        """
        refuse_large(self.model.total, len(self.model.domain))
        return self.model.sample(generator(self.seed))

    def sample(self, rows: int | None = None) -> Rows:
        """Another sample of the same model, of any size; it costs nothing, and says nothing that the model does not.

        Raises:
            InputError: no number of rows.
            SizeError: more rows than are sampled at once.
        """
        return self._drawn(rows, generator())

    def _drawn(self, rows: int | None, random: np.random.Generator) -> Rows:
        refuse_large(self.model.total if rows is None else rows, len(self.model.domain))
        return Rows(to_arrow(self.model.domain, self.model.sample(random, rows), random))


def settle(settled: Settled, model: Model, expected_error: dict[str, float]) -> Synthetic:
    """A release from what the vault settled and the model that its payload holds."""
    return Synthetic(
        guarantee=settled.guarantee,
        cost=settled.cost,
        expected_error=expected_error,
        provenance=settled.provenance,
        model=model,
        seed=int(settled.digest[:16], 16),
    )
