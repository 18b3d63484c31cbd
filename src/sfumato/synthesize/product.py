"""The plainest model of a table: one or several contingency tables, joined as if they were independent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.errors import QueryError
from sfumato.model.factor import Factor
from sfumato.synthesize.rows import Codes, round_to_total
from sfumato.synthesize.workload import Answers, Workload


@dataclass(frozen=True, eq=False)
class Product:
    """Non-negative tables over disjoint attributes, each summing to about ``total`` rows.

    Attributes:
        domain: the attributes covered, in the order of the protected table.
        parts: the tables; what they do not share is independent.
        total: number of rows that ``sample`` draws.
    """

    domain: Domain
    parts: tuple[Factor, ...]
    total: int

    @staticmethod
    def over(domain: Domain, parts: tuple[Factor, ...], total: int) -> Product:
        """A model of those attributes of ``domain`` that the parts cover."""
        covered = {name for part in parts for name in part.attributes}
        return Product(domain.project(name for name in domain.names if name in covered), parts, total)

    def cells(self, attributes: tuple[str, ...]) -> NDArray[np.float64]:
        """Expected counts of a marginal, flat in C order.

        Raises:
            QueryError: an attribute that no part covers.
        """
        if missing := [name for name in attributes if name not in self.domain]:
            raise QueryError(f"the release does not cover {', '.join(missing)}", culprit=missing)
        joined = Factor((), np.array(1.0))
        for index, part in enumerate(self.parts):
            kept = part.project([name for name in part.attributes if name in attributes])
            share = (1.0 if index else self.total) / max(part.total, np.finfo(float).tiny)
            joined = joined * Factor(kept.attributes, kept.values * share)
        return joined.project(attributes).values.ravel()

    def answers(self, workload: Workload) -> Answers:
        """Expected answers to a workload: shape ``(queries,)``."""
        return workload.answers(self.domain, self.cells(workload.attributes(self.domain)))

    def sample(self, random: np.random.Generator, rows: int | None = None) -> Codes:
        """``rows`` rows, ``total`` without them, in random order: shape ``(rows, attributes)``.

        Counts of cells are rounded together, not drawn one by one, so a table is met to within one row a cell.
        """
        size = self.total if rows is None else rows
        codes = np.empty((size, len(self.domain)), dtype=np.int32)
        for part in self.parts:
            counts = round_to_total(part.values.ravel(), size, random)
            cells = random.permutation(np.repeat(np.arange(counts.size), counts))
            for name, column in zip(part.attributes, np.unravel_index(cells, part.values.shape), strict=True):
                codes[:, self.domain.index(name)] = column
        return codes

    def payload(self) -> dict[str, Any]:
        """What the ledger stores; :meth:`restore` reads it back."""
        tables = {f"part {index}": part.values for index, part in enumerate(self.parts)}
        return tables | {"attributes": [list(part.attributes) for part in self.parts], "total": self.total}

    @staticmethod
    def restore(domain: Domain, payload: dict[str, Any]) -> Product:
        """The model that was stored, over the domain of the protected table."""
        parts = tuple(
            Factor(tuple(names), payload[f"part {index}"]) for index, names in enumerate(payload["attributes"])
        )
        return Product.over(domain, parts, int(payload["total"]))
