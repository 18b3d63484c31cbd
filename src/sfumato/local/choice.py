"""Two-valued randomizers: a coin decides whether the report supports the true value, the design picks it.

Direct response, subset selection, projective geometry, Hadamard response and local hashing are all of this kind: every
report is either in the support of a value or not, and all reports on the same side are equally likely.
Such a channel is extremal (Kairouz, Oh, Viswanath 2016): its likelihood ratio takes two values only.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError, SizeError
from sfumato.local.bounds import DENOMINATOR, exp_below
from sfumato.local.randomizer import LARGEST_TABLE, Codes, Counts, Layout, Reports
from sfumato.local.sampling import coins
from sfumato.privacy.entropy import Entropy


class Design(Protocol):
    """Which reports support which values, and how to pick one of them uniformly."""

    @property
    def inputs(self) -> int:
        """Number of values."""
        ...

    @property
    def outputs(self) -> int:
        """Number of reports."""
        ...

    @property
    def share(self) -> Fraction:
        """Share of all reports that support a given value."""
        ...

    @property
    def meeting(self) -> tuple[Fraction, Fraction]:
        """P(another given value is supported | the true one is), and the same given that it is not."""
        ...

    @property
    def layout(self) -> Layout:
        """The form of one report."""
        ...

    @property
    def tally_size(self) -> int:
        """Length of the tally."""
        ...

    def pick(self, codes: Codes, inside: NDArray[np.bool_], entropy: Entropy) -> Reports:
        """A uniform report among those that support ``codes`` where ``inside``, otherwise among the rest."""
        ...

    def possible(self, reports: Reports) -> bool:
        """Whether every report belongs to the design."""
        ...

    def tally(self, reports: Reports) -> Counts:
        """Counts that add up over disjoint reports."""
        ...

    def support(self, tally: Counts) -> Counts:
        """Number of reports that support each value."""
        ...

    def incidence(self) -> NDArray[np.bool_]:
        """Which reports support which values, ``(inputs, outputs)``."""
        ...

    def describe(self) -> dict[str, Any]:
        """Plain JSON."""
        ...


@dataclass(frozen=True)
class Choice:
    """A design and the chance that a report supports the true value, ``numerator`` / 2^64."""

    design: Design
    numerator: int

    def __post_init__(self) -> None:
        if not self.design.share * DENOMINATOR < self.numerator < DENOMINATOR:
            raise InputError(
                "a report must support its own value more often than by chance, and not always", culprit=self.numerator
            )

    @classmethod
    def within(cls, design: Design, epsilon: Fraction) -> Choice:
        """The most truthful choice that integers prove to be ``epsilon``-LDP."""
        odds = exp_below(epsilon) * design.share / (1 - design.share)
        return cls(design, int(DENOMINATOR * odds / (1 + odds)))

    @property
    def inputs(self) -> int:
        """Number of input codes."""
        return self.design.inputs

    @property
    def layout(self) -> Layout:
        """The form of one report."""
        return self.design.layout

    @property
    def tally_size(self) -> int:
        """Length of a tally."""
        return self.design.tally_size

    @property
    def truth(self) -> float:
        """P(report supports the value it was made from)."""
        return self.numerator / DENOMINATOR

    @property
    def lie(self) -> float:
        """P(report supports another given value)."""
        inside, outside = self.design.meeting
        truth = Fraction(self.numerator, DENOMINATOR)
        return float(truth * inside + (1 - truth) * outside)

    def ratio(self) -> Fraction:
        """The exact largest likelihood ratio of two inputs."""
        share = self.design.share
        inside = Fraction(self.numerator, DENOMINATOR) / share
        outside = Fraction(DENOMINATOR - self.numerator, DENOMINATOR) / (1 - share)
        return max(inside / outside, outside / inside)

    def rows(self) -> list[list[Fraction]]:
        """The whole probability table."""
        if self.inputs * self.design.outputs > LARGEST_TABLE:
            raise SizeError(f"a table of {self.inputs} by {self.design.outputs} is too large to enumerate")
        incidence = self.design.incidence()
        members = int(self.design.share * self.design.outputs)
        inside = Fraction(self.numerator, DENOMINATOR * members)
        outside = Fraction(DENOMINATOR - self.numerator, DENOMINATOR * (self.design.outputs - members))
        return [[inside if member else outside for member in row] for row in incidence.tolist()]

    def draw(self, codes: Codes, entropy: Entropy) -> Reports:
        """Randomise codes to reports."""
        return self.design.pick(codes, coins(entropy, codes.size, self.numerator), entropy)

    def possible(self, reports: Reports) -> bool:
        """Whether every report can occur."""
        return self.design.possible(reports)

    def tally(self, reports: Reports) -> Counts:
        """Counts that add up over disjoint reports."""
        return self.design.tally(reports)

    def support(self, tally: Counts) -> Counts:
        """Number of reports that support each value."""
        return self.design.support(tally)

    def describe(self) -> dict[str, Any]:
        """Plain JSON."""
        return {"kind": "choice", "design": self.design.describe(), "truth": str(self.numerator)}
