"""Fit a graphical model to noisy marginals by weighted least squares.

The method is entropic mirror descent on the weighted squared error (McKenna, Sheldon and Miklau 2019, "Graphical-model
based estimation and inference for differential privacy", Algorithm 1) with a line search.  Counts span five orders of
magnitude, so the plain gradient is slow.  As long as it helps, the step of a cell is its residual *relative* to the
expected count, as in iterative proportional fitting (Deming and Stephan 1940), damped by the noise.  From a uniform
model, both approach the maximum-entropy solution.

Steps are extrapolated from earlier ones (Anderson 1965, "Iterative procedures for nonlinear integral equations"; Walker
and Ni 2011, equation 2.1) if that lowers the loss.  One such iteration gains as much as three to five others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
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
_SMALLEST = 1e-7  # the search ends at steps below this share of the first
_SUFFICIENT = 0.1  # share of the linear decrease that a step must reach
_REMEMBERED = 6  # iterations used for an extrapolated step
_RIDGE = 1e-6  # ridge of the extrapolation, relative to the mean square of the differences
_LEAST_WEIGHT = 1e-3  # least weight of a cell, in people, when directions are compared


@dataclass(frozen=True, eq=False)
class Observation:
    """The noisy counts of a marginal, one axis for each attribute, and the variance of each cell, or of all cells.

    With ``runs`` the counts are of runs of neighboring cells of the model.  With ``weights``, a number for each cell of
    the last attribute, they are weighted sums over that attribute, whose axis has length one.
    """

    attributes: tuple[str, ...]
    counts: FloatArray
    variance: FloatArray | float
    runs: Runs | None = None
    weights: FloatArray | None = None

    def __post_init__(self) -> None:
        if self.counts.ndim != len(self.attributes) or not np.all(np.asarray(self.variance) > 0):
            raise QueryError("an observation needs one axis an attribute and a positive variance", culprit=self)

    def pooled_with(self, other: Observation) -> Observation:
        """Return both observations of the same cells as one, weighted by inverse variance."""
        variance = 1 / (1 / self.variance + 1 / other.variance)
        counts = variance * (self.counts / self.variance + other.counts / other.variance)
        return replace(self, counts=counts, variance=variance)

    def predict(self, table: FloatArray) -> FloatArray:
        """Return the observed cells that a table over the cells of the model predicts."""
        joined = self.sum_runs(table)
        return joined if self.weights is None else (joined @ self.weights)[..., None]

    def sum_runs(self, table: FloatArray) -> FloatArray:
        """Sum a table over the cells of the model into runs."""
        return table if self.runs is None else self.runs.sum(table)

    def spread(self, table: FloatArray) -> FloatArray:
        """Spread a table over runs to the cells of the model."""
        return table if self.runs is None else self.runs.spread(table)

    def gradient(self, table: FloatArray, expected: FloatArray) -> FloatArray:
        """Return the mirror descent step: the gradient of the loss by the expected counts of cells or runs."""
        del table
        slope: FloatArray = (expected - self.counts) / self.variance
        return slope if self.weights is None else slope * self.weights

    def relative(self, table: FloatArray, expected: FloatArray) -> FloatArray:
        """Return the gradient divided by the expected count plus its noise, centered so that the total does not change.

        For weighted sums the divisor is the variance of the weights over the people of ``table`` plus the noise.  The
        step is centered so that sums over the last attribute do not change.
        """
        residual = expected - self.counts
        if self.weights is None:
            scale = expected + np.sqrt(self.variance)
            share = expected / scale
            centred: FloatArray = (residual - (share * residual).sum() / share.sum()) / scale
            return centred
        cells = self.sum_runs(table)
        people = np.maximum(cells.sum(axis=-1, keepdims=True), 1e-300)
        mean = (cells @ self.weights)[..., None] / people
        spread = (cells @ self.weights**2)[..., None] - people * mean**2
        moved: FloatArray = residual / (np.maximum(spread, 0.0) + self.variance) * (self.weights - mean)
        return moved


_StepRule: TypeAlias = Callable[[Observation, FloatArray, FloatArray], FloatArray]


@dataclass(frozen=True)
class Patience:
    """The stopping rule: after ``iterations``, or if the last ten gained less than ``tolerance`` of the loss."""

    iterations: int = 250
    tolerance: float = 1e-3

    def exhausted(self, history: Sequence[float]) -> bool:
        """Return True if losses, one for each iteration, have stopped falling."""
        return len(history) > _LOOK_BACK and history[-1 - _LOOK_BACK] - history[-1] <= self.tolerance * history[-1]


def estimate_total(observations: Sequence[Observation]) -> float:
    """Estimate the number of rows: the sums of the observations weighted by inverse variance, at least one."""
    if not observations:
        raise QueryError("the number of rows cannot be estimated without an observation")
    weights = np.array([1 / np.broadcast_to(o.variance, o.counts.shape).sum() for o in observations])
    sums = np.array([observation.counts.sum() for observation in observations])
    return max(1.0, float(weights @ sums / weights.sum()))


def fit_model(
    observations: Sequence[Observation], start: GraphicalModel, patience: Patience | None = None
) -> GraphicalModel:
    """Fit a model to the observations, from ``start``; its total is not changed.

    Observed marginals without a potential in ``start`` get one.

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
    iterations = 0
    for step_rule, first in (
        (Observation.relative, _FIRST_RELATIVE),
        (Observation.gradient, 1.0 / max(problem.curvature, 1e-300)),
    ):
        # a rule that stalls leaves the other one its own patience, because steps of both stall at different places
        taken, memory, history = first, _Memory(), [state.loss]
        while iterations < patience.iterations and not patience.exhausted(history):
            directions = problem.directions(state, step_rule)
            next_state = problem.extrapolated(state, directions, taken, memory)
            if next_state is None:
                step = taken * _GROW if memory.began else taken
                searched = problem.line_search(state, directions, step, smallest=first * _SMALLEST)
                if searched is None:
                    break
                next_state, taken = searched
                memory.change, memory.began = -taken * _flat(directions), True
            state = next_state
            history.append(state.loss)
            iterations += 1
    return replace(model, factors=state.factors)


def loss(observations: Sequence[Observation], model: GraphicalModel) -> float:
    """Return half the weighted squared error.  Noise alone explains half the number of observed cells."""
    extended = _with_potentials(model, [observation.attributes for observation in observations])
    return _Problem(extended, observations).evaluate(extended.factors, extended.beliefs).loss


@dataclass(frozen=True, eq=False)
class _State:
    """The potentials, the tables over the observed marginals, the predictions for the observations, and the loss."""

    factors: tuple[Factor, ...]
    tables: tuple[FloatArray, ...]
    expected: tuple[FloatArray, ...]
    loss: float


class _Problem:
    """The loss over the cells of a junction tree; each observation belongs to a clique that contains it."""

    def __init__(self, model: GraphicalModel, observations: Sequence[Observation]) -> None:
        self._model = model
        self._observations = observations
        self._held: list[list[int]] = [[] for _ in model.tree.cliques]
        for index, observation in enumerate(observations):
            self._held[_holder(model, observation)].append(index)
        places = {frozenset(factor.attributes): place for place, factor in reversed(list(enumerate(model.factors)))}
        self._places = [places[frozenset(observation.attributes)] for observation in observations]
        self.curvature = model.total * max((_steepest(o) for o in observations), default=0.0)

    def evaluate(self, factors: tuple[Factor, ...], beliefs: Sequence[FloatArray]) -> _State:
        marginals: dict[int, FloatArray] = {}
        for clique, belief, held in zip(self._model.tree.cliques, beliefs, self._held, strict=True):
            targets = [self._observations[index].attributes for index in held]
            marginals.update(zip(held, project_all(Factor(clique, belief), targets), strict=True))
        tables = tuple(self._model.total * marginals[index] for index in range(len(self._observations)))
        expected = tuple(o.predict(table) for table, o in zip(tables, self._observations, strict=True))
        squares = (float(((e - o.counts) ** 2 / o.variance).sum()) / 2 for e, o in self._pairs(expected))
        return _State(factors, tables, expected, sum(squares))

    def directions(self, state: _State, step_rule: _StepRule) -> list[FloatArray]:
        """Return the descent direction of the potential of each observation."""
        triples = zip(self._observations, state.tables, state.expected, strict=True)
        return [step_rule(observation, table, expected) for observation, table, expected in triples]

    def extrapolated(
        self, state: _State, directions: Sequence[FloatArray], step: float, memory: _Memory
    ) -> _State | None:
        """Return the state after an extrapolated step, or None if it does not lower the loss."""
        people = (o.sum_runs(table) for o, table in zip(self._observations, state.tables, strict=True))
        weights = np.sqrt(np.maximum(_flat([*people]), _LEAST_WEIGHT))
        change = memory.extrapolated(_flat(directions), weights, step)
        if change is None:
            return None
        ends = np.cumsum([move.size for move in directions])[:-1]
        pieces = [part.reshape(move.shape) for part, move in zip(np.split(change, ends), directions, strict=True)]
        next_state = self._at(self._moved(state.factors, pieces, -1.0))
        if next_state is None or not next_state.loss < state.loss:
            memory.forget()
            return None
        memory.change = change
        return next_state

    def line_search(
        self, state: _State, directions: Sequence[FloatArray], step: float, *, smallest: float
    ) -> tuple[_State, float] | None:
        """Halve the step until it decreases the loss enough; return the new state and the step, or None."""
        while step > smallest:
            trial = self._at(self._moved(state.factors, directions, step))
            if trial is not None:
                promised = sum(
                    float(((old - o.counts) * (old - new) / o.variance).sum())
                    for (old, o), new in zip(self._pairs(state.expected), trial.expected, strict=True)
                )
                if promised > 0 and state.loss - trial.loss >= _SUFFICIENT * promised:
                    return trial, step
            step *= _SHRINK
        return None

    def _at(self, factors: tuple[Factor, ...]) -> _State | None:
        beliefs = calibrate(self._model.tree, factors, self._model.sizes)
        return None if beliefs is None else self.evaluate(factors, beliefs)

    def _pairs(self, expected: Sequence[FloatArray]) -> Iterator[tuple[FloatArray, Observation]]:
        return zip(expected, self._observations, strict=True)

    def _moved(self, factors: Sequence[Factor], directions: Sequence[FloatArray], step: float) -> tuple[Factor, ...]:
        moved = list(factors)
        for place, direction, observation in zip(self._places, directions, self._observations, strict=True):
            factor = moved[place]
            change = Factor(observation.attributes, observation.spread(step * direction)).expand(factor.attributes)
            moved[place] = Factor(factor.attributes, factor.values - change)
        return tuple(moved)


@dataclass
class _Memory:
    """The last changes of the potentials, and the corresponding changes of the direction.

    Attributes:
        change: change of the potentials in the last iteration.
        direction: direction of the last iteration.
        changes: changes of the potentials in earlier iterations.
        turns: change of the direction after each of these.
        began: True after the first step.
    """

    began: bool = False
    change: FloatArray | None = None
    direction: FloatArray | None = None
    changes: list[FloatArray] = field(default_factory=list)
    turns: list[FloatArray] = field(default_factory=list)

    def extrapolated(self, direction: FloatArray, weights: FloatArray, step: float) -> FloatArray | None:
        """Return the change at which past directions cancel best, plus a step from there; None in the first
        iteration.
        """
        if self.change is not None and self.direction is not None:
            self.changes = [*self.changes[1 - _REMEMBERED :], self.change]
            self.turns = [*self.turns[1 - _REMEMBERED :], direction - self.direction]
        self.direction = direction
        if not self.turns:
            return None
        changes, turns = np.stack(self.changes), np.stack(self.turns)
        weighted = turns * weights
        squares = weighted @ weighted.T
        squares[np.diag_indices(len(squares))] += max(_RIDGE * np.trace(squares) / len(squares), 1e-300)
        shares = np.linalg.solve(squares, weighted @ (direction * weights))
        change: FloatArray = -step * direction - shares @ changes + step * (shares @ turns)
        return change if np.isfinite(change).all() else None

    def forget(self) -> None:
        """Drop all but the last direction."""
        self.change, self.changes, self.turns = None, [], []


def _flat(tables: Sequence[FloatArray]) -> FloatArray:
    flat: FloatArray = np.concatenate([table.ravel() for table in tables]) if tables else np.zeros(0)
    return flat


def _steepest(observation: Observation) -> float:
    """Return the largest second derivative of the observation's loss by the expected count of a cell."""
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
