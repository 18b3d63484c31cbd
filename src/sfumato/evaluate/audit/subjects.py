"""What is audited: a mechanism on two neighbouring inputs, and the loss it claims."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import expect
from sfumato.errors import InputError
from sfumato.privacy.loss import Loss
from sfumato.strict_documents import read_json

Outputs: TypeAlias = NDArray[np.float64]  # (draws, coordinates)
Draw: TypeAlias = Callable[[int], NDArray[np.number]]
Input = TypeVar("Input")


@dataclass(frozen=True)
class Subject:
    """A mechanism on two neighbouring inputs.

    ``first`` and ``second`` take a number of draws and return so many independent outputs, shape
    ``(draws,)`` or ``(draws, coordinates)``.  Where Gaussian noise is claimed, ``mu`` is the largest
    signal-to-noise ratio it allows (Dong, Roth, Su 2022), and the sharper test of mu takes the place of rho.
    """

    name: str
    claim: Loss
    first: Draw
    second: Draw
    mu: float | None = None

    def __post_init__(self) -> None:
        expect(self.name, str, "what is audited has a name as text")
        expect(self.claim, Loss, "what is audited claims a loss: Epsilon(...), EpsilonDelta(..., ...) or Rho(...)")
        if not (callable(self.first) and callable(self.second)):
            raise InputError("what is audited is drawn by two functions of a number of draws", culprit=self)
        expect(self.mu, int | float | None, "mu is a number, or None")
        if self.mu is not None and not 0 < self.mu <= sys.float_info.max:
            raise InputError("mu is a finite number above zero", culprit=self.mu)


def subject_of(
    function: Callable[[Input], object], neighbours: tuple[Input, Input], *, name: str, claim: Loss
) -> Subject:
    """Any Python callable that turns an input into one output: a number, or a sequence of numbers of fixed length.

    Args:
        function: called once a draw.
        neighbours: two inputs that differ by what the claim protects; include answers of 0 and 1.
        name: how reports call it.
        claim: the loss that it says it has.

    Raises:
        InputError: what cannot be called, no two inputs, or no loss.
    """
    if not callable(function):
        raise InputError("what is audited is a function of one input", culprit=function)
    if not isinstance(neighbours, tuple | list) or len(neighbours) != 2:  # noqa: PLR2004
        raise InputError("an audit needs a pair of neighbouring inputs", culprit=neighbours)
    first, second = neighbours
    return Subject(name, claim, lambda count: _repeat(function, first, count), lambda n: _repeat(function, second, n))


def _repeat(function: Callable[[Input], object], value: Input, count: int) -> NDArray[np.number]:
    try:
        found = [function(value) for _ in range(count)]
    except Exception as error:
        raise InputError(f"the audited callable failed with {type(error).__name__}", culprit=function) from error
    try:
        return np.array(found, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            "an audited callable returns a number, or a sequence of numbers of one length", culprit=function
        ) from None


def outputs(draw: Draw, count: int) -> Outputs:
    """``count`` outputs as numbers, shape ``(count, coordinates)``.

    Raises:
        InputError: another number of outputs than asked for, or what are no numbers.
    """
    try:
        drawn = np.asarray(draw(count), dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError("a mechanism returns numbers, as many as it is asked for", culprit=draw) from None
    if drawn.shape[:1] != (count,):
        raise InputError(f"a mechanism asked for {count} outputs returned {drawn.shape[:1]}", culprit=draw)
    return drawn.reshape(count, -1)


def find_callable(name: str) -> Callable[[object], object]:
    """The callable ``module:function``; modules are also looked for in the working directory.

    Raises:
        InputError: there is none of that name.
    """
    module, _, path = name.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, SyntaxError, TypeError, ValueError):
        raise InputError(f"no callable {name!r} to audit; say module:function", culprit=name) from None
    except Exception as error:
        raise InputError(f"the module {module!r} failed with {type(error).__name__}", culprit=name) from error
    finally:
        sys.path.remove(here)
    if not callable(found):
        raise InputError(f"{name!r} cannot be called", culprit=name)
    return found


def subject_from_text(name: str, first: str, second: str, claim: Loss) -> Subject:
    """A user's mechanism on two neighbouring inputs written as JSON.

    Raises:
        InputError: no such callable, or an input that is not JSON.
    """
    try:
        neighbours = read_json(first), read_json(second)
    except InputError:
        raise InputError(
            "write both inputs as JSON, such as 0 and 1, or [1, 2] and [1]", culprit=(first, second)
        ) from None
    return subject_of(find_callable(name), neighbours, name=name, claim=claim)
