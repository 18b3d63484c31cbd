"""The exact epsilon of a spec, by enumeration of its whole integer probability table."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from sfumato.arguments import expect
from sfumato.errors import InputError, SizeError
from sfumato.local.bounds import exp_below, proven
from sfumato.local.composite import Labelled
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
        """Whether the claim is proven, and enumeration, where it was possible, does not contradict the proof."""
        return self.proven <= self.claimed and (self.enumerated is None or self.enumerated <= self.proven)


def audit(spec: Spec) -> Audit:
    """Prove the epsilon of a spec, and check the proof by enumeration where the table is small enough.

    Structure: the formula of the randomizer's kind, in integers.  Enumeration: every report's largest and smallest
    probability over all inputs, from fractions.
    """
    expect(spec, Spec, "a spec is what a design returns, such as Frequency.design(...)")
    ratio = spec.randomizer.ratio()
    assert ratio <= exp_below(proven(ratio))
    # a public label is no secret: inputs are told apart within it
    channels = spec.randomizer.parts if isinstance(spec.randomizer, Labelled) else (spec.randomizer,)
    try:
        enumerated = max(proven(enumerate_ratio(channel.rows())) for channel in channels)
    except SizeError:
        enumerated = None
    return Audit(spec.epsilon, proven(ratio), enumerated, spec.neighbours)


def enumerate_ratio(rows: list[list[Fraction]]) -> Fraction:
    """The largest ratio of two probabilities of one report, ``rows`` being P(report | input).

    Raises:
        InputError: a report that is impossible under some input, or rows that are no distributions: no finite ratio
            holds then.
    """
    if any(sum(row) != 1 for row in rows) or any(chance <= 0 for row in rows for chance in row):
        raise InputError("a report that is impossible under one value and not under another proves nothing finite")
    ratios: list[Fraction] = [max(column) / min(column) for column in zip(*rows, strict=True)]
    return max(ratios)
