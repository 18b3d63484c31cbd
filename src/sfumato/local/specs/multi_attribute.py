"""Several attributes of one person, which split epsilon or are sampled.

RS+FD samples one attribute and fills the others with fake data. It is deliberately absent: if the whole tuple changes,
its epsilon is ln(d (e^epsilon - 1) + 1), not epsilon.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import expect
from sfumato.errors import InputError
from sfumato.local.estimators import Estimate, Post, frequencies, sampled
from sfumato.local.randomizers.composite import Composite, Joint, Sampled
from sfumato.local.randomizers.randomizer import InputCodes, Tally, claimed, derive
from sfumato.local.specs.frequency import Frequency
from sfumato.local.specs.mean import Mean
from sfumato.local.specs.spec import Spec
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.loss import Number

AttributeSpec: TypeAlias = Frequency | Mean


class Sharing(StrEnum):
    """A way to share one epsilon among attributes."""

    SPLIT = "split"  # SPL: all are reported, each with its share
    SAMPLE = "sample"  # SMP: one, drawn at random, is reported with the full epsilon; nearly always better


@dataclass(frozen=True)
class NumericBounds:
    """The bounds of a numeric attribute."""

    low: float
    high: float


@dataclass(frozen=True)
class Several(Spec):
    """Frequencies and means of several attributes of the same person.

    Attributes:
        names: of the attributes, in order.
        parts: the spec of each attribute, with its epsilon.
        epsilon: for the whole tuple.
        sharing: the way in which the parts share it.
        randomizer: the channel for whole tuples.
    """

    names: tuple[str, ...]
    parts: tuple[AttributeSpec, ...]
    epsilon: Fraction
    sharing: Sharing
    randomizer: Composite = field(init=False, repr=False, compare=False)

    kind: ClassVar[str] = "several"
    neighbours: ClassVar[str] = "one person's whole tuple replaced by any other"

    def _check(self) -> None:
        if not 2 <= len(self.parts) == len(set(self.names)) == len(self.names):  # noqa: PLR2004
            raise InputError("several attributes need at least two parts with distinct names", culprit=self)
        randomizers = tuple(part.randomizer for part in self.parts)
        derive(self, randomizer=Sampled(randomizers) if self.sharing is Sharing.SAMPLE else Joint(randomizers))

    @classmethod
    def design(
        cls,
        attributes: Mapping[str, Sequence[str] | Sequence[int] | int | NumericBounds],
        *,
        epsilon: Number,
        sharing: Sharing,
    ) -> Several:
        """Return a spec for attributes by name: a list or number of values for frequencies, bounds for a mean.

        Raises:
            LossError: epsilon is outside [1e-9, 32].
            InputError: there are fewer than two attributes, or a domain or bounds are invalid.
        """
        exact = claimed(epsilon)
        expect(attributes, Mapping, "several attributes are given by name")
        expect(sharing, Sharing, "sharing is one of sf.local.Sharing")
        if not attributes:
            raise InputError("several attributes need at least two parts with distinct names", culprit=attributes)
        share = exact / len(attributes) if sharing is Sharing.SPLIT else exact
        # integers round the shares down, so that their product is within the claim
        parts = tuple(
            Mean.design(about.low, about.high, epsilon=share)
            if isinstance(about, NumericBounds)
            else Frequency.design(about, epsilon=share)
            for about in attributes.values()
        )
        return cls(tuple(attributes), parts, exact, sharing)

    @property
    def labels(self) -> tuple[str, ...]:
        """The attribute, with the value, of every frequency and mean."""
        return tuple(
            f"{name}: {label}" for name, part in zip(self.names, self.parts, strict=True) for label in part.labels
        )

    def encode(self, values: Mapping[str, NDArray[Any] | Sequence[Any]], entropy: Entropy) -> InputCodes:
        """Return the codes of columns by name, ``(n, attributes)``.

        Raises:
            InputError: a column is missing or has another length, or a value is outside its domain.
        """
        if not isinstance(values, Mapping) or set(values) != set(self.names):
            raise InputError(f"values must come as the columns {', '.join(self.names)}")
        columns = [part.encode(values[name], entropy) for name, part in zip(self.names, self.parts, strict=True)]
        if len({column.size for column in columns}) != 1:
            raise InputError("the columns of several attributes must have the same length")
        return np.stack([column.astype(np.int64) for column in columns], axis=1)

    def estimate(self, tally: Tally, reports: int, post: Post) -> Estimate:
        """Estimate all parts separately. Post-processing applies to frequencies only.

        Raises:
            InputError: a part has too few reports.
        """
        made = [
            self._of(part, mine, count, reports, post)
            for part, (count, mine) in zip(self.parts, self.randomizer.split(tally), strict=True)
        ]
        values, variance, step = (
            np.concatenate([np.broadcast_to(getattr(each, name), each.values.shape) for each in made])
            for name in ("values", "variance", "step")
        )
        return Estimate(self.labels, values, variance, reports, step)

    def _of(self, part: AttributeSpec, tally: Tally, taken: int, people: int, post: Post) -> Estimate:
        """Estimate one part. Frequencies get the variance of the sampling of people; the variance of a mean includes
        it.
        """
        if isinstance(part, Mean):
            return part.estimate(tally, taken, Post.NONE)
        made = part.estimate(tally, taken, post)
        if taken == people:
            return made
        shares, _ = frequencies(part.randomizer, tally, taken)
        return replace(made, variance=made.variance + sampled(shares, taken, people), step=0.0)
