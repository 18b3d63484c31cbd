"""Criteria on the sensitive values of a class: l-diversity and (alpha, k)-anonymity.

An attacker may know that a person's value is recorded, and then ignores missing and unknown values.  So each criterion
must hold twice: with missing and unknown values as separate values, and among the declared values alone.

A unit may have several values in a class.  For l-diversity it counts for one of them.  The value that most units have
takes all of these units.  The value that most remaining units have takes those, and so on.  An attacker who guesses the
first value is right for as many units as possible, and other values of these units do not add diversity.  Ten patients
who all have flu and fever are not two-diverse.  For (alpha, k)-anonymity a unit counts for each of its values, because
the attacker learns the share that has a value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

import numpy as np

from sfumato.anonymize.criteria.classes import Classes
from sfumato.anonymize.criteria.criterion import Criterion, Mask, at_least
from sfumato.anonymize.criteria.tally import ClassTally
from sfumato.domain import Domain
from sfumato.domain.hierarchy.levels import Integers
from sfumato.errors import InputError

ATTACKER = "finds a person's class and reads off their sensitive value"
ROUNDING = 1e-12  # tolerance for rounding of sums of logarithms and quotients, in either direction


@dataclass(frozen=True)
class DistinctDiversity(Criterion):
    """Every class has at least l different declared sensitive values, each from different units."""

    l: int  # noqa: E741 - the field's name
    sensitive: str = field()

    name: ClassVar[str] = "distinct-diversity"
    monotone_with_suppression: ClassVar[bool] = True
    attacker: ClassVar[str] = ATTACKER

    def _check_values(self) -> None:
        at_least("l", self.l, 1)

    def _safe_classes(self, classes: Classes) -> Mask:
        _, declared = classes.dealt(self.sensitive)
        return np.asarray(np.count_nonzero(declared, axis=1) >= self.l)

    def _is_safe(self, tally: ClassTally) -> bool:
        _, declared = dealt_both_ways(tally, self.sensitive)
        return sum(count > 0 for count in declared) >= self.l

    def __str__(self) -> str:
        return f"distinct {self.l}-diversity of {self.sensitive}"


@dataclass(frozen=True)
class EntropyDiversity(Criterion):
    """The entropy of the sensitive attribute in a class is at least log l (Machanavajjhala et al. 2007).

    Entropy is concave, so the union of two classes that satisfy the criterion satisfies it.  A class that fails may
    spoil a class that it is merged with.
    """

    l: float  # noqa: E741 - the field's name
    sensitive: str = field()

    name: ClassVar[str] = "entropy-diversity"
    attacker: ClassVar[str] = ATTACKER

    def _check_values(self) -> None:
        at_least("l", self.l, 1)

    def _safe_classes(self, classes: Classes) -> Mask:
        every, declared = (self._mixed(histogram) for histogram in classes.dealt(self.sensitive))
        return every & declared

    def _mixed(self, histogram: Integers) -> Mask:
        logs = np.log(np.maximum(histogram, 1))
        totals = np.maximum(histogram.sum(axis=1), 1)
        entropy = np.log(totals) - (histogram * logs).sum(axis=1) / totals
        return np.asarray(entropy >= math.log(self.l) - ROUNDING)

    def _is_safe(self, tally: ClassTally) -> bool:
        for counts in dealt_both_ways(tally, self.sensitive):
            rows = sum(counts)
            surprise = math.fsum(count * (math.log(rows) - math.log(count)) for count in counts if count)
            if surprise < rows * (math.log(self.l) - ROUNDING) or (not rows and self.l > 1):
                return False
        return True

    def __str__(self) -> str:
        return f"entropy {self.l:g}-diversity of {self.sensitive}"


@dataclass(frozen=True)
class RecursiveDiversity(Criterion):
    """The most frequent value occurs less than c times as often as the l-th and all rarer values together.

    Recursive (c, l)-diversity (Machanavajjhala et al. 2007): r1 < c (r_l + ... + r_m), r in descending order.
    """

    c: Fraction
    l: int  # noqa: E741 - the field's name
    sensitive: str = field()

    name: ClassVar[str] = "recursive-diversity"
    attacker: ClassVar[str] = ATTACKER

    def _check_values(self) -> None:
        at_least("l", self.l, 1)
        if not self.c > 0:
            raise InputError("c must be positive", culprit=self.c)

    def _safe_classes(self, classes: Classes) -> Mask:
        every, declared = (self._spread(histogram) for histogram in classes.dealt(self.sensitive))
        return every & declared

    def _spread(self, histogram: Integers) -> Mask:
        falling = -np.sort(-histogram, axis=1)
        tail = falling[:, self.l - 1 :].sum(axis=1)
        exact = Fraction(self.c)
        return np.asarray(falling[:, 0] * exact.denominator < exact.numerator * tail)

    def _is_safe(self, tally: ClassTally) -> bool:
        pairs = ((max(counts), sorted(counts, reverse=True)) for counts in dealt_both_ways(tally, self.sensitive))
        return all(most < Fraction(self.c) * sum(falling[self.l - 1 :]) for most, falling in pairs)

    def __str__(self) -> str:
        return f"recursive ({float(self.c):g}, {self.l})-diversity of {self.sensitive}"


@dataclass(frozen=True)
class AlphaK(Criterion):
    """At least k rows or units, and no sensitive value in more than a share alpha of them (Wong et al. 2006).

    ``code`` restricts the second part to one value of the sensitive attribute: 0 is the first declared value.
    """

    alpha: Fraction
    k: int
    sensitive: str = field()
    code: int | None = None

    name: ClassVar[str] = "alpha-k"
    attacker: ClassVar[str] = ATTACKER

    def _check_values(self) -> None:
        at_least("k", self.k, 1)
        if not 0 < self.alpha <= 1:
            raise InputError("alpha must lie in (0, 1]", culprit=self.alpha)
        if self.code is not None:
            at_least("code", self.code, 0)

    def check_domain(self, domain: Domain) -> None:
        """Refuse a domain without the sensitive attribute, or without the value ``code``."""
        super().check_domain(domain)
        size = domain[self.sensitive].size
        if self.code is not None and self.code >= size:
            raise InputError(
                f"alpha-k: code is at most {size - 1}, the last cell of {self.sensitive!r}, not {self.code}",
                culprit=self.code,
            )

    def state(self, domain: Domain) -> str:
        """Return the criterion in words, with the label of the value ``code``."""
        if self.code is None:
            return str(self)
        return self._worded(f" (its value {domain[self.sensitive].label(self.code)!r} alone)")

    @property
    def least_rows(self) -> int:
        """The value of k."""
        return self.k

    def _safe_classes(self, classes: Classes) -> Mask:
        exact, rare = Fraction(self.alpha), classes.sizes >= self.k
        having, values = classes.having(self.sensitive), classes.values(self.sensitive)
        ways = (having, classes.sizes), (having[:, :values], classes.declaring(self.sensitive))
        for histogram, total in ways:
            if self.code is None:
                watched = histogram.max(axis=1)
            elif self.code < histogram.shape[1]:
                watched = histogram[:, self.code]
            else:
                continue  # cells for missing or unknown values are not among the declared ones
            rare &= watched * exact.denominator <= exact.numerator * total
        return rare

    def _is_safe(self, tally: ClassTally) -> bool:
        if 0 < tally.size < self.k:
            return False
        held = tally.values[self.sensitive]
        return not any(
            count > Fraction(self.alpha) * values.total
            for values in (held, held.among(tally.declared[self.sensitive]))
            for code, count in enumerate(values.having)
            if self.code in (None, code)
        )

    def _worded(self, watched: str) -> str:
        return f"({float(self.alpha):g}, {self.k})-anonymity of {self.sensitive}{watched}"

    def __str__(self) -> str:
        return self._worded("" if self.code is None else f" (its value of code {self.code} alone)")


def dealt_both_ways(tally: ClassTally, sensitive: str) -> tuple[Sequence[int], Sequence[int]]:
    """Return the counts under each cell of a class, and under each of its declared values alone."""
    held = tally.values[sensitive]
    return held.dealt, held.among(tally.declared[sensitive]).dealt
