"""The draws of mechanisms and the calls to the engine in one run, and contradictions between two such runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from sfumato.privacy.gaussian import DiscreteGaussian
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Charge
from sfumato.privacy.selection import Exponential
from sfumato.privacy.threshold import StabilityThreshold

Declared = tuple[int, int]
"""The L1 and the squared L2 sensitivity of a question."""


@dataclass(frozen=True)
class Draw:
    """A draw of a mechanism.

    Attributes:
        mechanism: the mechanism, or a word for draws without a privacy guarantee.
        exact: its exact inputs: sums, scores, or units by key.
        output: its result.
        declared: the sensitivity that the question declares, if it is a question of sums.
    """

    mechanism: Any
    exact: Sized
    output: Any
    declared: Declared | None = None

    def answers(self, other: Draw) -> bool:
        """Return whether it may replace another: the same mechanism, over as many inputs unless they are keys."""
        sizes = isinstance(self.exact, Mapping) or len(self.exact) == len(other.exact)
        return bool(self.mechanism == other.mechanism) and sizes


@dataclass
class Tape:
    """The record of one run.

    Attributes:
        forced: the tape whose outputs mechanisms return in this run; None in a run that records.
        drawn: charges that a privacy filter admitted, and the draws that follow each.
        calls: what the engine and the ledger were asked, in order.
        sizes: the rows of the largest result within any statement of the engine, by step.
        early: statements that read rows in a step in which nothing was charged yet.
        opening: whether tables are being opened, which is an act of their owner and reads them.
        charged: whether this step has a charge that is durable.
        fails: what fails once this step is charged.
        at: the step; before the first one nothing is looked at but draws and calls.
    """

    forced: Tape | None = None
    drawn: list[Charge | Draw] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    early: list[str] = field(default_factory=list)
    opening: bool = False
    charged: bool = False
    fails: str = ""
    at: int | None = None

    def step(self, at: int, *, fails: str = "") -> None:
        """Begin a step."""
        self.at, self.charged, self.fails = at, False, fails
        self.calls.append(f"-- step {at}")

    def draw(self, mechanism: Any, exact: Sized, output: Any, declared: Declared | None = None) -> Any:
        """Record a draw, and return its output: that of the forced tape in a run that plays one."""
        drawn = Draw(mechanism, exact, output, declared)
        if self.forced is not None:
            there = self.forced.drawn[len(self.drawn) : len(self.drawn) + 1]
            if there and isinstance(there[0], Draw) and there[0].answers(drawn):
                drawn = Draw(mechanism, exact, there[0].output, declared)
        self.drawn.append(drawn)
        self.calls.append(f"draw: {mechanism}")
        return drawn.output

    def spend(self, charge: Charge) -> None:
        """Record a charge within a release."""
        self.drawn.append(charge)
        self.calls.append(f"spend: {charge}")

    def made(self, rows: int) -> None:
        """Record how many rows there were within a statement."""
        if self.at is not None and not self.opening:
            self.sizes[self.at] = max(rows, self.sizes.get(self.at, 0))

    def read(self, statement: str) -> None:
        """Record that rows are read."""
        if self.at is not None and not self.opening and not self.charged:
            self.early.append(f"step {self.at}: {statement}")

    def failure(self) -> str | None:
        """Return the reason of an engine failure, which differs in the two runs; None without a failure."""
        if self.fails != "engine" or self.opening or not self.charged:
            return None
        return f"a row of the {'left' if self.forced is None else 'right'} database does not fit"


def losses(left: Tape, right: Tape, *, units: int) -> Iterator[str]:
    """Yield contradictions between the exact inputs of two runs and the mechanisms.

    Args:
        left: recorded.
        right: forced to its outputs.
        units: how many units have to be added or removed to get from one database to the other.
    """
    charge: Charge | None = None
    lost = _Lost()
    for place, (one, other) in enumerate(zip(left.drawn, right.drawn, strict=False)):
        where = f"draw {place}"
        if isinstance(one, Charge) or isinstance(other, Charge):
            if one != other:
                yield f"{where}: {_brief(one)} in one run, {_brief(other)} in the other"
                return
            yield from lost.beyond(charge, units, where)
            charge, lost = one, _Lost()
        elif not one.answers(other):
            yield f"{where}: {_brief(one)} in one run, {_brief(other)} in the other"
            return
        else:
            yield from lost.take(one, other, units, where)
    yield from lost.beyond(charge, units, "the last draw")
    if len(left.drawn) != len(right.drawn):
        yield f"{len(left.drawn)} charges and draws in one run, {len(right.drawn)} in the other"


@dataclass
class _Lost:
    """The actual loss of the draws of one charge between two runs: the exact loss of these inputs."""

    epsilon: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)
    pure: bool = True

    def take(self, one: Draw, other: Draw, units: int, where: str) -> Iterator[str]:
        """Add the loss of a draw; yield where its inputs move by more than is declared."""
        match one.mechanism:
            case DiscreteLaplace(scale=scale):
                moved = _distances(one.exact, other.exact)
                self._add(moved[0] / scale, 2)
                yield from _undeclared(one, moved, units, where)
            case DiscreteGaussian(sigma_squared=variance):
                moved = _distances(one.exact, other.exact)
                self.rho += moved[1] / (2 * variance)
                self.pure = self.pure and not moved[1]
                yield from _undeclared(one, moved, units, where)
            case Exponential() as mechanism:
                moves = [
                    Fraction(int(a)) - int(b) if isinstance(a, np.integer) else Fraction(a) - Fraction(b)
                    for a, b in zip(one.exact, other.exact, strict=True)
                ]
                if max(map(abs, moves)) > units * mechanism.sensitivity:
                    yield f"{where}: a score moves by {max(map(abs, moves))}, declared is {mechanism.sensitivity}"
                self._add(mechanism.rate * (max(moves) - min(moves)), 8)  # Cesar and Rogers 2021: of bounded range
            case StabilityThreshold() as mechanism:
                keys = {*one.exact, *other.exact}
                moves = [abs(one.exact.get(key, 0) - other.exact.get(key, 0)) for key in keys]
                if max(moves, default=0) > units or sum(moves) > units * mechanism.keys_per_unit:
                    yield f"{where}: units of keys move by {sum(moves)}, declared is {mechanism.keys_per_unit}"
                self._add(sum(moves) / mechanism.noise.scale, 2)

    def _add(self, epsilon: Fraction, squares: int) -> None:
        self.epsilon += epsilon
        self.rho += epsilon**2 / squares

    def beyond(self, charge: Charge | None, units: int, where: str) -> Iterator[str]:
        """Yield where the loss is more than the charge; of a group of units as many times as much."""
        if charge is None:
            return
        if charge.epsilon is not None and (self.epsilon > units * charge.epsilon or not self.pure):
            yield f"before {where}: epsilon {charge.epsilon} was charged, {self.epsilon} is lost"
        if charge.epsilon is None and self.rho > units**2 * charge.rho:
            yield f"before {where}: rho {charge.rho} was charged, {self.rho} is lost"


def _distances(one: Any, other: Any) -> tuple[int, int]:
    moves = [abs(a - b) for a, b in zip(one.ravel().tolist(), other.ravel().tolist(), strict=True)]
    return sum(moves), sum(move * move for move in moves)


def _undeclared(draw: Draw, moved: tuple[int, int], units: int, where: str) -> Iterator[str]:
    if draw.declared is not None and (moved[0] > units * draw.declared[0] or moved[1] > units**2 * draw.declared[1]):
        yield f"{where}: inputs move by {moved[0]} (squared {moved[1]}), declared is {draw.declared}"


def _brief(what: Charge | Draw) -> str:
    return f"charge {what}" if isinstance(what, Charge) else f"{what.mechanism} over {len(what.exact)}"
