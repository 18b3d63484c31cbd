"""The spec of frequencies, and the choice of a method from ``ORACLES``.

Every method is as accurate as its epsilon allows. AUTO chooses the least exact variance.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import EnumType, StrEnum
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import expect
from sfumato.errors import InputError, LossError
from sfumato.local.estimators import Estimate, Post, frequencies, likeliest, simplex
from sfumato.local.randomizers.oracles import ORACLES
from sfumato.local.randomizers.randomizer import FrequencyOracle, InputCodes, Tally, claimed
from sfumato.local.randomizers.two_valued import TwoValued
from sfumato.local.specs.spec import Spec
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.loss import Number

LARGEST_DOMAIN = 1 << 20
"""Largest number of values of a closed domain; for larger ones use :class:`sfumato.local.HeavyHitters`."""


class _MethodNames(EnumType):
    if TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Method: ...


class Method(StrEnum, metaclass=_MethodNames):
    """The frequency methods of :data:`ORACLES`, and AUTO: the least exact variance among methods with small reports."""

    _ignore_ = "names each"
    AUTO = "auto"
    names = vars()
    for each in ORACLES:
        names[each.name.upper()] = each.name


@dataclass(frozen=True)
class Frequency(Spec):
    """A question about the frequency of each value of a closed domain.

    Attributes:
        values: the values in order, or the number of values if they are 0, 1, 2, ...
        epsilon: the claimed loss of every report. Replacing the value changes the probability of any report by at most
            a factor ``e^epsilon``. Integers prove it from ``randomizer`` when the spec is made or read.
        method: the randomizer's name.
        randomizer: the channel, with its integer probabilities.
    """

    values: tuple[str, ...] | tuple[int, ...] | int
    epsilon: Fraction
    method: Method
    randomizer: FrequencyOracle

    kind: ClassVar[str] = "frequency"
    neighbours: ClassVar[str] = "one person's value replaced by any other value of the domain"

    def _check(self) -> None:
        size = size_of_domain(self.values)
        if self.randomizer.inputs != size:
            raise InputError(
                f"the randomizer is for {self.randomizer.inputs} values, the domain has {size}", culprit=self
            )

    @classmethod
    def design(
        cls,
        values: Sequence[str] | Sequence[int] | int,
        *,
        epsilon: Number,
        method: Method = Method.AUTO,
        instantaneous_epsilon: Number | None = None,
    ) -> Frequency:
        """Return a spec for a domain.

        Args:
            values: the public list of values, or their number if they are 0 .. n-1; at least two.
            epsilon: per report, or, for the memoized methods, for all reports about one value; in [1e-9, 32].
            method: AUTO chooses the least exact variance among methods whose reports fit eight bytes.
            instantaneous_epsilon: for RAPPOR and LOLOHA, the smaller epsilon of a single report.

        Raises:
            LossError: epsilon is outside [1e-9, 32], or the instantaneous epsilon is not below it.
            InputError: there are fewer than two values, repeated values, or more than 2^20 values.

        >>> Frequency.design(["red", "green", "blue"], epsilon=1).method.value
        'grr'
        """
        domain = _domain(values)
        size = size_of_domain(domain)
        exact = claimed(epsilon)
        chosen, randomizer = oracle(
            size, exact, method, None if instantaneous_epsilon is None else claimed(instantaneous_epsilon)
        )
        return cls(domain, exact, chosen, randomizer)

    @property
    def labels(self) -> tuple[str, ...]:
        """The values as text."""
        return tuple(map(str, range(self.values) if isinstance(self.values, int) else self.values))

    def encode(self, values: NDArray[Any] | Sequence[Any], entropy: Entropy) -> InputCodes:  # noqa: ARG002 -- see Spec
        """Return the codes of values ``(n,)``.

        Raises:
            InputError: a value is outside the domain, or missing.
        """
        return codes_of(self.values, np.asarray(values))

    def estimate(self, tally: Tally, reports: int, post: Post) -> Estimate:
        """Estimate frequencies from a tally of ``reports`` reports; unbiased with ``Post.NONE``.

        Raises:
            InputError: there are no reports, or this method does not offer the post-processing.
        """
        values, variance = frequencies(self.randomizer, tally, reports)
        match post:
            case Post.SIMPLEX:
                values = simplex(values)
            case Post.MLE:
                values = likeliest(_channel(self.randomizer), tally)
            case Post.SMOOTH:
                raise InputError("smoothing is for ordered bins: use a distribution spec, or post none, simplex or mle")
            case Post.NONE:
                pass
        step = 1 / (reports * (self.randomizer.p - self.randomizer.q))
        return Estimate(self.labels, values, variance, reports, step)


def codes_of(domain: tuple[str, ...] | tuple[int, ...] | int, values: NDArray[Any]) -> InputCodes:
    """Return the positions of ``values`` in a domain.

    Raises:
        InputError: a value is outside the domain; the message names its position only.
    """
    if values.ndim != 1:
        raise InputError(f"values must come as one column, not with {values.ndim} dimensions")
    if isinstance(domain, int):
        if values.dtype.kind not in "iu":
            raise InputError("values must be whole numbers from 0 to the size of the domain")
        bad = values.size > 0 and (int(values.min()) < 0 or int(values.max()) >= domain)
        if bad:
            raise _unknown((values < 0) | (values >= domain))
        positions: InputCodes = values
        return positions
    known = np.array(domain)
    if known.dtype.kind == "U":
        values = values.astype(np.str_) if values.dtype.kind == "U" else _texts(values)
    elif values.dtype.kind not in "iu":
        raise InputError("values must be whole numbers, as the domain's are")
    order = np.argsort(known, kind="stable")
    place = np.searchsorted(known, values, sorter=order).clip(max=known.size - 1)
    codes: InputCodes = order[place]
    wrong = known[codes] != values
    if wrong.any():
        raise _unknown(wrong)
    return codes


def _texts(values: NDArray[Any]) -> NDArray[Any]:
    wrong = np.array([not isinstance(value, str) for value in values.tolist()], dtype=np.bool_)
    if wrong.any():
        raise _unknown(wrong)
    return values.astype(np.str_)


def _unknown(wrong: NDArray[np.bool_]) -> InputError:
    return InputError(
        f"{int(wrong.sum())} values are not in the domain of the spec, the first in row {1 + int(np.argmax(wrong))}; "
        "state all possible values in the spec, or replace the others before"
    )


def _domain(values: Sequence[str] | Sequence[int] | int) -> tuple[str, ...] | tuple[int, ...] | int:
    if isinstance(values, str | bool) or not isinstance(values, int | Iterable):
        raise InputError("a domain is a list of values, or their number", culprit=values)
    return values if isinstance(values, int) else tuple(values)  # type: ignore[return-value]  # checked with its size


def size_of_domain(domain: tuple[str, ...] | tuple[int, ...] | int) -> int:
    """Return the number of values of a domain.

    Raises:
        InputError: there are fewer than two values or more than 2^20, repeated values, or values that are neither texts
            nor integers.
    """
    expect(domain, tuple | int, "a domain is a tuple of values, or their number")
    size = domain if isinstance(domain, int) else len(domain)
    if not 2 <= size <= LARGEST_DOMAIN:  # noqa: PLR2004
        raise InputError(f"a domain needs from 2 to {LARGEST_DOMAIN} values, not {size}", culprit=size)
    if not isinstance(domain, int):
        if {type(value) for value in domain} not in ({str}, {int}):
            raise InputError("the values of a domain must be all texts or all whole numbers", culprit=domain)
        if len(set(domain)) != size:
            raise InputError("a domain names a value twice", culprit=domain)
    return size


def _channel(randomizer: FrequencyOracle) -> NDArray[np.float64]:
    if not isinstance(randomizer, TwoValued) or randomizer.tally_size != randomizer.design.outputs:
        raise InputError("the likeliest distribution needs counts of whole reports, which this method does not keep")
    incidence = randomizer.design.incidence()
    inside = incidence.sum(axis=1, keepdims=True)
    channel: NDArray[np.float64] = np.where(
        incidence, randomizer.p / inside, (1 - randomizer.p) / (incidence.shape[1] - inside)
    )
    return channel


def oracle(
    size: int, epsilon: Fraction, method: Method, instantaneous_epsilon: Fraction | None
) -> tuple[Method, FrequencyOracle]:
    """Return a method and its randomizer for ``size`` values; AUTO is resolved.

    Raises:
        LossError: an instantaneous epsilon is given for a method without memo, is missing, or is not below epsilon.
        InputError: the method does not support this number of values.
    """
    expect(method, Method, "a method is one of sfumato.local.Method")
    makers = {each.name: each for each in ORACLES}
    memoized = method is not Method.AUTO and makers[method].memoized
    if (instantaneous_epsilon is not None) != memoized:
        raise LossError("memoized methods, and only they, state an instantaneous epsilon: that of a single report")
    if instantaneous_epsilon is not None and instantaneous_epsilon >= epsilon:
        raise LossError(
            "the instantaneous epsilon must be below epsilon, which bounds all reports", culprit=instantaneous_epsilon
        )
    if method is not Method.AUTO:
        further = () if instantaneous_epsilon is None else (instantaneous_epsilon,)
        return method, makers[method].best(size, epsilon, *further)
    candidates = [(Method(each.name), each.best(size, epsilon)) for each in ORACLES if each.automatic(size)]
    return min(candidates, key=lambda candidate: candidate[1].variance(1 / size))
