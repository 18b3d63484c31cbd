"""Fit a graphical model to noisy marginals: the distribution that is nearest to all of them at once.

Entropic mirror descent on the weighted squared error (McKenna, Sheldon and Miklau 2019, "Graphical-model
based estimation and inference for differential privacy", Algorithm 1) with a line search.  Counts span
five orders of magnitude, so the plain gradient crawls; as long as it helps, the step of a cell is its
residual *relative* to the expected count, as in iterative proportional fitting (Deming and Stephan 1940),
damped by the noise.  Started from a uniform model, both approach the maximum-entropy solution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from sfumato.errors import InfeasibleError, QueryError
from sfumato.model.coarsening import Runs
from sfumato.model.factor import Factor, FloatArray, project_all
from sfumato.model.graphical_model import GraphicalModel, calibrate

_SHRINK = 0.5
_GROW = 1.5
_FIRST_RELATIVE = 0.5
_LOOK_BACK = 10
_SMALLEST = 1e-7  # steps below this share of the first one mean that the direction no longer helps
_SUFFICIENT = 0.1  # share of the linear decrease that a step must reach


@dataclass(frozen=True, eq=False)
class Observation:
    """Noisy counts of a marginal, one axis an attribute, and the variance of each cell (or of all, one number).

    With ``runs`` the counts are of runs of neighbouring cells of the model.  With ``weights``, a number for each cell
    of the last attribute, they are weighted sums over that attribute, whose axis has length one.
    """

    attributes: tuple[str, ...]
    counts: FloatArray
    variance: FloatArray | float
    runs: Runs | None = None
    weights: FloatArray | None = None

    def __post_init__(self) -> None:
        if self.counts.ndim != len(self.attributes) or not np.all(np.asarray(self.variance) > 0):
            raise QueryError("an observation needs one axis an attribute and a positive variance", culprit=self)

    def of(self, table: FloatArray) -> FloatArray:
        """What a table over the cells of the model says of the cells observed."""
        joined = table if self.runs is None else self.runs.sum(table)
        return joined if self.weights is None else (joined @ self.weights)[..., None]

    def over_cells(self, table: FloatArray) -> FloatArray:
        """A table over the cells observed as one over the cells of the model."""
        return table if self.runs is None else self.runs.spread(table)

    def gradient(self, table: FloatArray, expected: FloatArray) -> FloatArray:
        """The mirror descent step, of the cells of the model or runs of them: the gradient by expected counts."""
        del table
        slope: FloatArray = (expected - self.counts) / self.variance
        return slope if self.weights is None else slope * self.weights

    def relative(self, table: FloatArray, expected: FloatArray) -> FloatArray:
        """The gradient divided by what a cell holds plus its noise, centred so that it leaves the total alone.

        Of weighted sums: by the spread of the weights over the people of ``table`` plus the noise, centred so that the
        sums over the last attribute are left alone.
        """
        residual = expected - self.counts
        if self.weights is None:
            scale = expected + np.sqrt(self.variance)
            share = expected / scale
            centred: FloatArray = (residual - (share * residual).sum() / share.sum()) / scale
            return centred
        held = table if self.runs is None else self.runs.sum(table)
        people = np.maximum(held.sum(axis=-1, keepdims=True), 1e-300)
        mean = (held @ self.weights)[..., None] / people
        spread = (held @ self.weights**2)[..., None] - people * mean**2
        moved: FloatArray = residual / (np.maximum(spread, 0.0) + self.variance) * (self.weights - mean)
        return moved


_Direction: TypeAlias = Callable[[Observation, FloatArray, FloatArray], FloatArray]


@dataclass(frozen=True)
class Patience:
    """When a fit stops: after ``iterations``, or when the last ten gained less than ``tolerance`` of its loss."""

    iterations: int = 250
    tolerance: float = 1e-3

    def exhausted(self, history: Sequence[float]) -> bool:
        """Whether losses, one an iteration, have stopped falling."""
        return len(history) > _LOOK_BACK and history[-1 - _LOOK_BACK] - history[-1] <= self.tolerance * history[-1]


def estimate_total(observations: Sequence[Observation]) -> float:
    """The number of rows: mean of the sums of the observations, weighted by inverse variance, at least one."""
    if not observations:
        raise QueryError("the number of rows cannot be estimated without an observation")
    weights = np.array([1 / np.broadcast_to(o.variance, o.counts.shape).sum() for o in observations])
    sums = np.array([observation.counts.sum() for observation in observations])
    return max(1.0, float(weights @ sums / weights.sum()))


def fit(observations: Sequence[Observation], start: GraphicalModel, patience: Patience | None = None) -> GraphicalModel:
    """The model nearest to the observations, searched from ``start``; its total is left as it is.

    Observed marginals that ``start`` has no potential for are given one.

    Raises:
        InfeasibleError: the structural zeros of ``start`` leave no cell possible.
    """
    patience = patience or Patience()
    model = _with_potentials(start, [observation.attributes for observation in observations])
    problem = _Problem(model, observations)
    beliefs = calibrate(model.tree, model.factors, model.sizes)
    if beliefs is None:
        raise InfeasibleError("no combination of cells is possible under these structural zeros")
    state = problem.evaluate(model.factors, beliefs)
    history = [state.loss]
    for direction, first in (
        (Observation.relative, _FIRST_RELATIVE),
        (Observation.gradient, 1.0 / max(problem.curvature, 1e-300)),
    ):
        step = first
        while len(history) <= patience.iterations and not patience.exhausted(history):
            found = problem.search(state, direction, step, smallest=first * _SMALLEST)
            if found is None:
                break
            state, step = found
            history.append(state.loss)
    return replace(model, factors=state.factors)


def loss(observations: Sequence[Observation], model: GraphicalModel) -> float:
    """Half the weighted squared error: half the number of observed cells is what the noise alone explains."""
    held = _with_potentials(model, [observation.attributes for observation in observations])
    return _Problem(held, observations).evaluate(held.factors, held.beliefs).loss


@dataclass(frozen=True, eq=False)
class _State:
    """Potentials, and what they amount to: tables that hold what is observed, what they say of it, and the loss."""

    factors: tuple[Factor, ...]
    tables: tuple[FloatArray, ...]
    expected: tuple[FloatArray, ...]
    loss: float


class _Problem:
    """The loss over the cells of a tree, with each observation looked up in the clique that holds it."""

    def __init__(self, model: GraphicalModel, observations: Sequence[Observation]) -> None:
        self._model = model
        self._observations = observations
        self._held: list[list[int]] = [[] for _ in model.tree.cliques]
        for index, observation in enumerate(observations):
            self._held[_holder(model, observation)].append(index)
        keys = [frozenset(factor.attributes) for factor in model.factors]
        self._places = [keys.index(frozenset(observation.attributes)) for observation in observations]
        self.curvature = model.total * max((_steepest(o) for o in observations), default=0.0)

    def evaluate(self, factors: tuple[Factor, ...], beliefs: Sequence[FloatArray]) -> _State:
        found: dict[int, FloatArray] = {}
        for clique, belief, held in zip(self._model.tree.cliques, beliefs, self._held, strict=True):
            targets = [self._observations[index].attributes for index in held]
            found.update(zip(held, project_all(Factor(clique, belief), targets), strict=True))
        tables = tuple(self._model.total * found[index] for index in range(len(self._observations)))
        expected = tuple(o.of(table) for table, o in zip(tables, self._observations, strict=True))
        squares = (float(((e - o.counts) ** 2 / o.variance).sum()) / 2 for e, o in self._pairs(expected))
        return _State(factors, tables, expected, sum(squares))

    def search(
        self, state: _State, direction: _Direction, step: float, *, smallest: float
    ) -> tuple[_State, float] | None:
        """The state after the first step, halving, that decreases the loss enough, and the next step to try."""
        of = zip(self._observations, state.tables, state.expected, strict=True)
        moves = [direction(observation, table, expected) for observation, table, expected in of]
        while step > smallest:
            factors = self._moved(state.factors, moves, step)
            beliefs = calibrate(self._model.tree, factors, self._model.sizes)
            if beliefs is not None:
                found = self.evaluate(factors, beliefs)
                promised = sum(
                    float(((old - o.counts) * (old - new) / o.variance).sum())
                    for (old, o), new in zip(self._pairs(state.expected), found.expected, strict=True)
                )
                if promised > 0 and state.loss - found.loss >= _SUFFICIENT * promised:
                    return found, step * _GROW
            step *= _SHRINK
        return None

    def _pairs(self, expected: Sequence[FloatArray]) -> Iterator[tuple[FloatArray, Observation]]:
        return zip(expected, self._observations, strict=True)

    def _moved(self, factors: Sequence[Factor], moves: Sequence[FloatArray], step: float) -> tuple[Factor, ...]:
        moved = list(factors)
        for place, move, observation in zip(self._places, moves, self._observations, strict=True):
            factor = moved[place]
            change = Factor(observation.attributes, observation.over_cells(step * move)).expand(factor.attributes)
            moved[place] = Factor(factor.attributes, factor.values - change)
        return tuple(moved)


def _steepest(observation: Observation) -> float:
    """The largest second derivative of its loss by the expected count of a cell."""
    most = 1.0 if observation.weights is None else float(np.max(observation.weights**2))
    return most / float(np.min(observation.variance))


def _holder(model: GraphicalModel, observation: Observation) -> int:
    holder = model.tree.holder(observation.attributes)
    assert holder is not None
    return holder


def _with_potentials(model: GraphicalModel, cliques: Sequence[tuple[str, ...]]) -> GraphicalModel:
    present = {frozenset(factor.attributes) for factor in model.factors}
    new = {frozenset(clique): clique for clique in cliques if frozenset(clique) not in present}
    added = tuple(Factor.full(clique, model.sizes, 0.0) for clique in new.values())
    return replace(model, factors=(*model.factors, *added))
