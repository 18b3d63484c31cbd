"""Many counting queries answered together from one optimised set of noisy counts (the matrix mechanism).

Which strategy is measured is decided by its expected error, computed with the very noise that it would
get, without the data, so that choosing costs nothing.  Answers come from one least-squares table, so
that sums and differences of queries agree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import expect
from sfumato.domain import Domain
from sfumato.model.strategy import Strategy, hierarchical, identity, p_identity, product
from sfumato.privacy.loss import Loss
from sfumato.query.ask import Keeper
from sfumato.query.batch_rows import Batch
from sfumato.vault import canonical
from sfumato.vault.doors import Doors
from sfumato.vault.keeper import refuse_no_vault
from sfumato.vault.noise import noises
from sfumato.vault.payload import Payload
from sfumato.vault.questions import Marginal, Measurable, Weighted
from sfumato.vault.release import Release
from sfumato.vault.vault import Request

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class BatchAnswer(Release):
    """Consistent answers to a batch.

    Attributes:
        answers: shape ``(queries,)``.
        standard_errors: of the noise on each answer, shape ``(queries,)``, known without the data.
        cells: the least-squares table that all answers are sums of, flat in C order.
        strategy: what was measured.
        considered: expected root mean squared error of an answer by strategy.
    """

    answers: Floats
    standard_errors: Floats
    cells: Floats
    strategy: str
    considered: Mapping[str, float]


@dataclass(frozen=True)
class Option:
    """A strategy that a batch could be answered with, and the errors that it would have."""

    strategy: Strategy
    question: Measurable
    variance: float  # of the noise on each row of the strategy

    def standard_errors(self, batch: Batch) -> Floats:
        """Of each answer: the square root of variance * w (A^T A)^-1 w^T, shape ``(queries,)``."""
        rows = batch.rows.astype(np.float64)
        if isinstance(self.question, Marginal):
            single: Floats = np.sqrt(self.variance * rows.sum(axis=1))
            return single
        matrix = self.strategy.matrix().astype(np.float64)
        errors: Floats = np.sqrt(self.variance * np.sum(rows * np.linalg.solve(matrix.T @ matrix, rows.T).T, axis=1))
        return errors


@dataclass(frozen=True)
class Choice:
    """The options for a batch at a loss, with the root mean squared error of each; the best comes first."""

    options: tuple[tuple[Option, float], ...]

    @cached_property
    def considered(self) -> dict[str, float]:
        """Expected errors by name."""
        return {option.strategy.name: error for option, error in self.options}


def choose(domain: Domain, batch: Batch, loss: Loss) -> Choice:
    """Strategies for a batch, best first, by expected error; nothing is spent and no data is looked at.

    Raises:
        QueryError, SizeError: the batch does not fit the domain, or is too large.
    """
    expect(domain, Domain, "a batch is of a Domain")
    expect(batch, Batch, "what is asked is a Batch(attributes, rows)")
    gram = batch.gram(domain)
    shape = domain.project(batch.attributes).shape
    found = []
    for strategy in _strategies(batch, shape, gram):
        question = _question(batch, strategy)
        (noise,) = noises(domain, [question], loss, None)
        trace = float(np.trace(gram)) if strategy.name == "identity" else strategy.error_of(gram)
        found.append(
            (Option(strategy, question, noise.variance), float(np.sqrt(noise.variance * trace / len(batch.rows))))
        )
    return Choice(tuple(sorted(found, key=lambda pair: pair[1])))


def answer(vault: Keeper, batch: Batch, *, loss: Loss) -> BatchAnswer:
    """Answer all queries of a batch for one loss, by the strategy of the least expected error.

    Where single cells are best, the batch shares its table with any query that counts these cells.

    Raises:
        QueryError, SizeError: the batch does not fit the domain, or is too large; nothing was spent.
        BudgetError: the ledger refuses the charge; nothing was spent.
    """
    refuse_no_vault(vault)
    choice = choose(vault.domain, batch, loss)
    option, error = choice.options[0]

    def run(doors: Doors) -> Payload:
        (measured,) = doors.measure([option.question], loss)
        if isinstance(option.question, Marginal):
            return {"0": measured.values}
        return {"cells": option.strategy.estimate(measured.values.astype(np.float64))}

    settled = vault.release(_request(batch, option), loss, run)
    stored = settled.payload
    cells = stored["0"].astype(np.float64) if "0" in stored else stored["cells"]
    return BatchAnswer(
        guarantee=settled.guarantee,
        cost=settled.cost,
        expected_error={"root mean squared error of an answer": error},
        provenance={**settled.provenance, "strategy": option.strategy.name},
        answers=batch.rows.astype(np.float64) @ cells,
        standard_errors=option.standard_errors(batch),
        cells=cells,
        strategy=option.strategy.name,
        considered=choice.considered,
    )


def _strategies(batch: Batch, shape: Sequence[int], gram: Floats) -> list[Strategy]:
    found = [identity(shape)]
    if len(shape) == 1 and shape[0] > 1:
        found += [hierarchical(gram), p_identity(gram)]
    elif len(shape) > 1:
        along = [batch.gram_along(axis, shape) for axis in range(len(shape))]
        found.append(product([p_identity(part) if len(part) > 1 else identity([len(part)]) for part in along]))
    return found


def _question(batch: Batch, strategy: Strategy) -> Measurable:
    if strategy.name == "identity":
        return Marginal(batch.attributes)
    return Weighted(batch.attributes, strategy.matrix())


def _request(batch: Batch, option: Option) -> Request:
    """Named by the workload and not by the optimised weights, whose last bits may differ between machines."""
    words = f"{len(batch.rows):,} counting queries over {', '.join(batch.attributes)}, by {option.strategy.name}"
    if isinstance(option.question, Marginal):
        counted = {"questions": [canonical.question(option.question)], "shares": ["1"]}
        return Request("query", "tally", counted, words)
    digest = hashlib.sha256(np.packbits(batch.rows).tobytes()).hexdigest()
    workload = {"shape": list(batch.rows.shape), "sha256": digest}
    parameters = {"attributes": list(batch.attributes), "strategy": option.strategy.name, "workload": workload}
    return Request("query", "strategy", parameters, words)
