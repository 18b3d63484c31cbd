"""What every spec is: the frozen agreement that client and server both read."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar, Protocol, runtime_checkable

from sfumato.local.estimate import Estimate, Post
from sfumato.local.randomizer import Codes, Counts, Randomizer
from sfumato.privacy.entropy import Entropy


@runtime_checkable
class Spec(Protocol):
    """A question to a population, its randomizer and its guarantee."""

    kind: ClassVar[str]
    neighbours: ClassVar[str]

    def __hash__(self) -> int:
        """Specs are values."""
        ...

    @property
    def epsilon(self) -> Fraction:
        """What every report claims, for the neighbours that ``neighbours`` names."""
        ...

    @property
    def randomizer(self) -> Randomizer:
        """The channel with its integer probabilities."""
        ...

    def encode(self, values: Any, entropy: Entropy) -> Codes:  # noqa: ANN401 -- each spec states its values
        """Codes of values, refusing any that the spec does not know; some specs round at random."""
        ...


@runtime_checkable
class Additive(Spec, Protocol):
    """A spec whose estimates are made of a tally that adds up over reports; all but heavy hitters are."""

    @property
    def labels(self) -> tuple[str, ...]:
        """What is estimated, one label a quantity."""
        ...

    def estimate(self, tally: Counts, reports: int, post: Post) -> Estimate:
        """Estimates from the tally of so many reports."""
        ...
