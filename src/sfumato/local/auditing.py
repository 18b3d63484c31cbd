"""The exact epsilon of a spec, by enumeration of its whole integer probability table."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from sfumato.arguments import expect
from sfumato.errors import SizeError
from sfumato.local.bounds import exp_below, proven
from sfumato.local.spec import Spec


@dataclass(frozen=True)
class Audit:
    """What integers say about a spec.

    Attributes:
        claimed: the epsilon of the spec.
        proven: the least twelve-digit epsilon that the exact likelihood ratio keeps, from the structure of the table.
        enumerated: the same from the written-out table, or None where that is too large.
        neighbours: which change the numbers are about.
    """

    claimed: Fraction
    proven: Fraction
    enumerated: Fraction | None
    neighbours: str

    @property
    def holds(self) -> bool:
        """Whether the claim is proven."""
        return self.proven <= self.claimed


def audit(spec: Spec) -> Audit:
    """Prove the epsilon of a spec, and check the proof by enumeration where the table is small enough.

    Structure: the formula of the randomizer's kind, in integers.  Enumeration: every report's largest and smallest
    probability over all inputs, from fractions.
    """
    expect(spec, Spec, "a spec is what a design returns, such as Frequency.design(...)")
    ratio = spec.randomizer.ratio()
    assert ratio <= exp_below(proven(ratio))
    try:
        enumerated = proven(enumerate_ratio(spec.randomizer.rows()))
    except SizeError:
        enumerated = None
    return Audit(spec.epsilon, proven(ratio), enumerated, spec.neighbours)


def enumerate_ratio(rows: list[list[Fraction]]) -> Fraction:
    """The largest ratio of two positive probabilities of one report; zeros are other labels, which stay in the open."""
    columns = ([chance for chance in column if chance] for column in zip(*rows, strict=True))
    ratios: list[Fraction] = [max(column) / min(column) for column in columns if column]
    return max(ratios)
