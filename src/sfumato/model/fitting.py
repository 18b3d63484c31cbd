"""Fit a graphical model to noisy marginals: the distribution that is nearest to all of them at once.

Entropic mirror descent on the weighted squared error (McKenna, Sheldon and Miklau 2019, "Graphical-model
based estimation and inference for differential privacy", Algorithm 1) with a line search.  Counts span
five orders of magnitude, so the plain gradient crawls; as long as it helps, the step of a cell is its
residual *relative* to the expected count, as in iterative proportional fitting (Deming and Stephan 1940),
damped by the noise.  Started from a uniform model, both approach the maximum-entropy solution.

Steps are extrapolated from those before (Anderson 1965, "Iterative procedures for nonlinear integral equations"; Walker
and Ni 2011, equation 2.1), where that lowers the loss: an iteration gains what three to five would without.
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
_SMALLEST = 1e-7  # steps below this share of the first one mean that the direction no longer helps
_SUFFICIENT = 0.1  # share of the linear decrease that a step must reach
_REMEMBERED = 6  # iterations that a step is extrapolated from
_RIDGE = 1e-6  # of their mean square: how far extrapolation trusts differences that nearly agree
_LEAST_WEIGHT = 1e-3  # people that a cell counts as, at least, where directions are compared


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
        joined = self.held(table)
        return joined if self.weights is None else (joined @ self.weights)[..., None]

    def held(self, table: FloatArray) -> FloatArray:
        """People of the runs, or of the cells, that a step moves."""
        return table if self.runs is None else self.runs.sum(table)

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
        held = self.held(table)
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
        taken, memory = first, _Memory()
        while len(history) <= patience.iterations and not patience.exhausted(history):
            moves = problem.moves(state, direction)
            found = problem.extrapolated(state, moves, taken, memory)
            if found is None:
                step = taken * _GROW if memory.began else taken
                searched = problem.searched(state, moves, step, smallest=first * _SMALLEST)
                if searched is None:
                    break
                found, taken = searched
                memory.change, memory.began = -taken * _flat(moves), True
            state = found
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
        marginals: dict[int, FloatArray] = {}
        for clique, belief, held in zip(self._model.tree.cliques, beliefs, self._held, strict=True):
            targets = [self._observations[index].attributes for index in held]
            marginals.update(zip(held, project_all(Factor(clique, belief), targets), strict=True))
        tables = tuple(self._model.total * marginals[index] for index in range(len(self._observations)))
        expected = tuple(o.of(table) for table, o in zip(tables, self._observations, strict=True))
        squares = (float(((e - o.counts) ** 2 / o.variance).sum()) / 2 for e, o in self._pairs(expected))
        return _State(factors, tables, expected, sum(squares))

    def moves(self, state: _State, direction: _Direction) -> list[FloatArray]:
        """Of each observation the way in which its potential is to fall."""
        of = zip(self._observations, state.tables, state.expected, strict=True)
        return [direction(observation, table, expected) for observation, table, expected in of]

    def extrapolated(self, state: _State, moves: Sequence[FloatArray], step: float, memory: _Memory) -> _State | None:
        """The state after a step that goes on from those remembered; None where it does not lower the loss."""
        held = (o.held(table) for o, table in zip(self._observations, state.tables, strict=True))
        weights = np.sqrt(np.maximum(_flat([*held]), _LEAST_WEIGHT))
        change = memory.extrapolated(_flat(moves), weights, step)
        if change is None:
            return None
        ends = np.cumsum([move.size for move in moves])[:-1]
        pieces = [part.reshape(move.shape) for part, move in zip(np.split(change, ends), moves, strict=True)]
        found = self._at(self._moved(state.factors, pieces, -1.0))
        if found is None or not found.loss < state.loss:
            memory.forget()
            return None
        memory.change = change
        return found

    def searched(
        self, state: _State, moves: Sequence[FloatArray], step: float, *, smallest: float
    ) -> tuple[_State, float] | None:
        """The state after the first step, halving, that decreases the loss enough, and that step."""
        while step > smallest:
            trial = self._at(self._moved(state.factors, moves, step))
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

    def _moved(self, factors: Sequence[Factor], moves: Sequence[FloatArray], step: float) -> tuple[Factor, ...]:
        moved = list(factors)
        for place, move, observation in zip(self._places, moves, self._observations, strict=True):
            factor = moved[place]
            change = Factor(observation.attributes, observation.over_cells(step * move)).expand(factor.attributes)
            moved[place] = Factor(factor.attributes, factor.values - change)
        return tuple(moved)


@dataclass
class _Memory:
    """How potentials were changed by the last iterations, and their directions with them.

    Attributes:
        change: what the last iteration added to the potentials.
        direction: in which it went.
        changes: of the iterations before, without the last.
        turns: how the direction differed after each of these.
        began: whether a step was taken yet.
    """

    began: bool = False
    change: FloatArray | None = None
    direction: FloatArray | None = None
    changes: list[FloatArray] = field(default_factory=list)
    turns: list[FloatArray] = field(default_factory=list)

    def extrapolated(self, direction: FloatArray, weights: FloatArray, step: float) -> FloatArray | None:
        """The change by which the directions seen would cancel out best, and a step on from there."""
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
        found: FloatArray = -step * direction - shares @ changes + step * (shares @ turns)
        return found if np.isfinite(found).all() else None

    def forget(self) -> None:
        """All but the last direction, from which what did not help starts anew."""
        self.change, self.changes, self.turns = None, [], []


def _flat(tables: Sequence[FloatArray]) -> FloatArray:
    flat: FloatArray = np.concatenate([table.ravel() for table in tables]) if tables else np.zeros(0)
    return flat


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
