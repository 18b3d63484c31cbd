"""Many counting queries answered together from one optimised set of noisy counts (the matrix mechanism).

Which strategy is measured is decided by its expected error, computed with the very noise that it would
get, without the data, so that choosing costs nothing.  Answers come from one least-squares table, so
that sums and differences of queries agree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from sfumato.arguments import expect
from sfumato.domain import Domain
from sfumato.model.factor import FloatArray
from sfumato.privacy.loss import Loss
from sfumato.vault.interface import Mechanisms, Payload, Request, VaultInterface, refuse_no_vault
from sfumato.vault.questions import Marginal
from sfumato.vault.release import Release
from sfumato.workload import Workload
from sfumato.workload.matrix_mechanism import StrategyOption, by_attribute, plan


@dataclass(frozen=True, kw_only=True, repr=False)
class BatchAnswer(Release):
    """Consistent answers to a batch.

    Attributes:
        answers: shape ``(queries,)``.
        standard_errors: of the noise on each answer, shape ``(queries,)``, known without the data.
        cells: the least-squares table that all answers are sums of, flat in C order.
        strategy: what was measured.
        considered: expected root mean squared error of an answer by strategy.
    """

    answers: FloatArray
    standard_errors: FloatArray
    cells: FloatArray
    strategy: str
    considered: Mapping[str, float]

    @property
    def headline(self) -> str:
        """How many answers, and how they were measured."""
        return f"{len(self.answers):,} counts by {self.strategy}"


def strategies(domain: Domain, workload: Workload, loss: Loss) -> tuple[StrategyOption, ...]:
    """Strategies for a workload, the best first, by expected error; nothing is spent and no data is looked at.

    Raises:
        QueryError, SizeError: the workload does not fit the domain, or is too large.
    """
    expect(domain, Domain, "a batch is of a Domain")
    return plan(domain, loss, workload, by_attribute(domain, workload))


def answer_batch(vault: VaultInterface, workload: Workload, *, loss: Loss) -> BatchAnswer:
    """Answer all queries of a workload for one loss, by the strategy of the least expected error.

    Where single cells are best, the batch shares its table with any query that counts these cells.

    Raises:
        QueryError, SizeError: the workload does not fit the domain, or is too large; nothing was spent.
        BudgetError: the ledger refuses the charge; nothing was spent.
    """
    refuse_no_vault(vault)
    options = strategies(vault.domain, workload, loss)
    best, rows = options[0], workload.matrix(vault.domain)
    question = best.question

    def run(mechanisms: Mechanisms) -> Payload:
        (measured,) = mechanisms.measure([question], loss)
        if isinstance(question, Marginal):
            return {"0": measured.values}
        return {"cells": best.strategy.estimate(measured.values.astype(np.float64))}

    settled = vault.release(_request(workload, vault.domain, best), loss, run)
    stored = settled.payload
    cells = stored["0"].astype(np.float64) if "0" in stored else stored["cells"]
    return BatchAnswer(
        guarantee=settled.guarantee,
        cost=settled.cost,
        expected_error={"root mean squared error of an answer": best.error},
        provenance={**settled.provenance, "strategy": best.strategy.name},
        answers=rows.astype(np.float64) @ cells,
        standard_errors=best.standard_errors(rows),
        cells=cells,
        strategy=best.strategy.name,
        considered={option.strategy.name: option.error for option in options},
    )


def _request(workload: Workload, domain: Domain, best: StrategyOption) -> Request:
    """Named by the workload and not by the optimised weights, whose last bits may differ between machines."""
    name, names = best.strategy.name, list(best.attributes)
    words = f"{workload.length(domain):,} counting queries over {', '.join(names)}, by {name}"
    if isinstance(best.question, Marginal):
        counted = {"questions": [best.question.canonical()], "shares": ["1"]}
        return Request("query", "tally", counted, words)
    rows = workload.matrix(domain)
    digest = hashlib.sha256(np.packbits(rows).tobytes()).hexdigest()
    asked = {"shape": list(rows.shape), "sha256": digest}
    return Request("query", "strategy", {"attributes": names, "strategy": name, "workload": asked}, words)
