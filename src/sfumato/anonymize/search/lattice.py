"""A full-domain recoding problem, and the lattice of its level vectors with their suppressed rows and losses.

Classes of a vector are merged from those of finer vectors that are already counted.
"""

from __future__ import annotations

import math
from bisect import bisect
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.anonymize.criteria.classes import Classes, finest
from sfumato.anonymize.criteria.criterion import Criterion, KAnonymity, safe
from sfumato.anonymize.microdata import Microdata, group, pack
from sfumato.domain.hierarchy.levels import Hierarchy, Reals
from sfumato.errors import InfeasibleError, InputError, pluralize

Vector = tuple[int, ...]  # one level per quasi-identifier


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """A full-domain recoding problem.

    Args:
        data: the table, as tuples and counts.
        hierarchies: one per quasi-identifier, in order, aligned with the codes of ``data``.
        criteria: conditions on every published class.
        allowed: number of rows that may be suppressed, 0 .. rows.
        weights: importance of each quasi-identifier in the loss; 1 for each gives the plain sum.

    Raises:
        InputError: there is no quasi-identifier or criterion, lengths differ, a weight is negative, or a criterion's
            sensitive attribute or population is missing.
    """

    data: Microdata
    hierarchies: tuple[Hierarchy, ...]
    criteria: tuple[Criterion, ...]
    allowed: int
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.data.quasi:
            raise InputError("name at least one quasi-identifier", culprit=self.data.quasi)
        if not self.criteria:
            raise InputError("name at least one criterion, such as k-anonymity", culprit=self.criteria)
        if len(self.hierarchies) != len(self.data.quasi) or len(self.weights) != len(self.data.quasi):
            raise InputError("each quasi-identifier needs one hierarchy and one weight", culprit=self.data.quasi)
        if any(not 0 <= weight < math.inf for weight in self.weights) or not any(self.weights):
            raise InputError("weights must be finite, not negative, and not all zero", culprit=self.weights)
        check_criteria(self.criteria, self.data, allowed=self.allowed)

    @property
    def heights(self) -> Vector:
        """The number of generalization steps of each quasi-identifier."""
        return tuple(hierarchy.height for hierarchy in self.hierarchies)

    @property
    def bottom(self) -> Classes:
        """The finest classes: each tuple is one."""
        return finest(self.data)

    @property
    def prunable(self) -> tuple[Criterion, ...]:
        """The criteria that a search may prune with: monotone, also under suppression if some is allowed."""
        if self.allowed == self.data.excluded:
            return tuple(criterion for criterion in self.criteria if criterion.monotone and self._adds_up(criterion))
        return self.monotone_with_suppression

    @property
    def monotone_with_suppression(self) -> tuple[Criterion, ...]:
        """The criteria that hold for every union with a class that satisfies them."""
        return tuple(each for each in self.criteria if each.monotone_with_suppression and self._adds_up(each))

    def _adds_up(self, criterion: Criterion) -> bool:
        """Return whether a criterion's declared properties hold for the units of the data."""
        units = self.bottom.units
        return (
            units is None
            or criterion.monotone_with_spread
            or not units.spread(criterion.sensitive, population=criterion.population is not None)
        )

    @property
    def monotone(self) -> bool:
        """True if a search may prune with every criterion."""
        return len(self.prunable) == len(self.criteria)


def check_criteria(criteria: tuple[Criterion, ...], data: Microdata, *, allowed: int | None = None) -> None:
    """Refuse criteria that cannot be evaluated, or that no class can satisfy.

    Args:
        criteria: conditions on every published class.
        data: the table.
        allowed: number of rows that may be suppressed; None: any.

    Raises:
        InputError: the sensitive attribute or the population is missing.
        InfeasibleError: k is larger than the table.
    """
    for criterion in criteria:
        if criterion.sensitive is not None and criterion.sensitive not in data.sensitive:
            raise InputError(f"{criterion} needs the sensitive attribute {criterion.sensitive!r}", culprit=criterion)
        if criterion.population is not None and data.population is None:
            raise InputError(f"{criterion} needs a population to compare with", culprit=criterion)
        if criterion.least_rows > data.holders:
            reason = _why_too_few(criteria, data, allowed)
            raise InfeasibleError(f"{criterion} cannot hold: {reason}", culprit=criterion)


def _why_too_few(criteria: tuple[Criterion, ...], data: Microdata, allowed: int | None) -> str:
    rows, left = data.rows, data.holders
    if not left:
        return f"all {rows} rows are left out, by the domain, its unit or for a missing quasi-identifier"
    alone = all(isinstance(criterion, KAnonymity) for criterion in criteria)
    largest = (
        f"the largest k that this table can meet is {left}"
        if alone
        else f"no class has more than {pluralize(left, 'row' if data.units is None else 'unit')}"
    )
    if allowed is None or data.excluded <= allowed:
        return largest
    return (
        f"{largest}, and that only from a suppression limit of {sufficient_share(data.excluded, rows)}; at most"
        f" {allowed} of {rows} rows may be suppressed, so under this limit no k can be met{data.why_excluded}"
    )


def allowed_rows(suppression: str | Fraction, rows: int) -> int:
    """Return the largest number of rows within a share; ``"0.02"`` is read exactly, as one fiftieth.

    Raises:
        InputError: the share is no number, or is outside [0, 1].
    """
    try:
        share = Fraction(suppression)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        raise InputError("the suppression limit must be a number in [0, 1]", culprit=suppression) from None
    if not 0 <= share <= 1:
        raise InputError(f"the suppression limit must lie in [0, 1], not {suppression}", culprit=suppression)
    return math.floor(share * rows)


def sufficient_share(suppressed: int, rows: int) -> str:
    """Return the least decimal share, rounded up, that allows the given number of suppressed rows.

    >>> sufficient_share(1, 3), sufficient_share(1, 4), sufficient_share(0, 4)
    ('0.333334', '0.25', '0')
    >>> allowed_rows(sufficient_share(14982, 32561), 32561)
    14982
    """
    digits = max(6, len(str(rows)))
    scaled = -(-suppressed * 10**digits // rows)
    integer, rest = divmod(scaled, 10**digits)
    return f"{integer}.{rest:0{digits}}".rstrip("0").rstrip(".")


CACHED_TUPLES = 8  # cached classes, as a multiple of the distinct tuples of the table


@dataclass(frozen=True, eq=False)
class Node:
    """A level vector with its counts.

    ``loss`` and ``penalty`` are in cells (weights times rows).  ``loss`` is the loss of the whole table.  ``penalty``
    is the part that suppressed rows add to the loss of generalization.  It counts the prunable criteria only, so it
    never rises toward the top.  ``hopeless`` means that every vector below fails too; the losses of such a node are not
    computed and are infinite.
    """

    vector: Vector
    suppressed: int
    loss: float
    penalty: float
    feasible: bool
    hopeless: bool


class KnownClasses:
    """A cache of the classes of level vectors, from which other classes are merged.  The largest are dropped first.

    The classes of the bottom stay, because it is below every vector.
    """

    def __init__(self, bottom: Vector, classes: Classes) -> None:
        self._classes = {bottom: classes}
        self._by_size: list[tuple[int, Vector]] = [(len(classes), bottom)]
        self._levels = np.array([bottom], dtype=np.int32)  # vectors in the order of ``_by_size``
        self._spare_tuples = CACHED_TUPLES * max(len(classes), 1)

    def get(self, vector: Vector) -> Classes | None:
        """Return the classes of a vector if they are cached."""
        return self._classes.get(vector)

    def smallest_below(self, vector: Vector) -> Classes:
        """Return the fewest cached classes of a vector that is at or below this one in every attribute."""
        place = int((self._levels <= np.array(vector, dtype=np.int32)).all(axis=1).argmax())
        return self._classes[self._by_size[place][1]]

    def add(self, vector: Vector, classes: Classes) -> None:
        """Add the classes of a vector; drop the largest classes if there is no room."""
        place = bisect(self._by_size, (len(classes), vector))
        self._by_size.insert(place, (len(classes), vector))
        self._levels = np.insert(self._levels, place, vector, axis=0)
        self._classes[vector] = classes
        self._spare_tuples -= len(classes)
        while self._spare_tuples < 0:
            last = -2 if not any(self._by_size[-1][1]) else -1
            size, dropped = self._by_size.pop(last)
            self._levels = np.delete(self._levels, last, axis=0)
            del self._classes[dropped]
            self._spare_tuples += size


class Lattice:
    """The lattice of one problem, which evaluates each level vector at most once."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.top: Vector = problem.heights  # the vector that generalizes every attribute fully
        self._nodes: dict[Vector, Node] = {}
        data = problem.data
        self._bottom = problem.bottom
        self._known = KnownClasses((0,) * len(data.quasi), self._bottom)
        self._weight = float(sum(problem.weights))
        self.generalisation: tuple[Reals, ...] = tuple(
            self._attribute_losses(attribute) for attribute in range(len(data.quasi))
        )
        self.prunable = problem.prunable
        self._prunes_all = len(self.prunable) == len(problem.criteria)

    @property
    def evaluated(self) -> int:
        """The number of level vectors that were counted."""
        return len(self._nodes)

    def floor(self, vector: Vector) -> float:
        """Return G(v), the loss of generalization alone, as if no row were suppressed."""
        return float(sum(losses[level] for losses, level in zip(self.generalisation, vector, strict=True)))

    def evaluate(self, vector: Vector) -> Node:
        """Return a level vector with its counts, suppressed rows and loss."""
        if vector not in self._nodes:
            self._nodes[vector] = self._judge(vector)
        return self._nodes[vector]

    def safe_classes(self, vector: Vector) -> tuple[Classes, NDArray[np.bool_]]:
        """Return the classes of a level vector, and which of them may be published."""
        classes = self.classes(vector)
        return classes, safe(self.problem.criteria, classes)

    def _judge(self, vector: Vector) -> Node:
        problem = self.problem
        classes = self.classes(vector)
        failing = ~safe(self.prunable, classes)
        hopeless = self._exceeds(classes, failing)
        unsafe = failing if self._prunes_all else ~safe(problem.criteria, classes)
        penalty = full_penalty = math.inf
        if not hopeless:
            penalty = full_penalty = self._penalty(vector, classes, failing)
            if not self._prunes_all:
                full_penalty = self._penalty(vector, classes, unsafe)
        return Node(
            vector=vector,
            suppressed=int(classes.counts[unsafe].sum()) + problem.data.excluded,
            loss=self.floor(vector) + full_penalty,
            penalty=penalty,
            feasible=not self._exceeds(classes, unsafe),
            hopeless=hopeless,
        )

    def hopeless(self, classes: Classes) -> bool:
        """Return whether prunable criteria alone suppress too many rows of these classes, and so of finer ones."""
        return self._exceeds(classes, ~safe(self.prunable, classes))

    def _exceeds(self, classes: Classes, failing: NDArray[np.bool_]) -> bool:
        """Return whether these classes have too many rows to suppress, or one has no row to suppress."""
        counts = classes.counts[failing]
        out = int(counts.sum()) + self.problem.data.excluded
        return out > self.problem.allowed or not counts.all()

    def classes(self, vector: Vector) -> Classes:
        """Return the classes of a level vector, merged from the smallest cached classes below."""
        if (known := self._known.get(vector)) is not None:
            return known
        classes = self.rolled_up(self._known.smallest_below(vector), vector)
        self._known.add(vector, classes)
        return classes

    def rolled_up(self, source: Classes, vector: Vector) -> Classes:
        """Return the classes of a level vector, merged from the classes of a vector below it."""
        sizes = [h.levels[level].size for h, level in zip(self.problem.hierarchies, vector, strict=True)]
        # attributes at their top add nothing to a key; the tuples of the bottom are sorted
        levels = [(attribute, level) for attribute, level in enumerate(vector) if sizes[attribute] > 1]
        columns = [self._digits(attribute, level) for attribute, level in levels]
        if source is not self._bottom:
            columns = [column[source.members] for column in columns]
        keys = pack(columns or [np.zeros(len(source), dtype=np.int64)], [size for size in sizes if size > 1] or [1])
        return source.merge(group(keys))

    def _digits(self, attribute: int, level: int) -> NDArray[np.int32]:
        """Return the cell of every tuple at one level of one attribute, as short integers."""
        cells = self.problem.hierarchies[attribute].levels[level].cells.astype(np.int32)
        return cells[self.problem.data.codes[:, attribute]]

    def _penalty(self, vector: Vector, classes: Classes, failing: NDArray[np.bool_]) -> float:
        """Return the added loss of suppression: (weights - loss of generalization), summed over suppressed rows."""
        members, counts = classes.members[failing], classes.counts[failing]
        missing = np.full(len(members), self._weight)
        for attribute, level in enumerate(vector):
            losses = self.problem.hierarchies[attribute].levels[level].losses
            if level:
                missing -= self.problem.weights[attribute] * losses[self._digits(attribute, level)[members]]
        return float(counts @ missing) + self._weight * self.problem.data.excluded

    def _attribute_losses(self, attribute: int) -> Reals:
        """Return the weighted loss over all rows at each level of one attribute, in cells."""
        data, hierarchy = self.problem.data, self.problem.hierarchies[attribute]
        per_leaf = np.bincount(data.codes[:, attribute], weights=data.counts, minlength=len(hierarchy.leaves))
        weight = self.problem.weights[attribute]
        return np.array([weight * float(per_leaf @ level.losses[level.cells]) for level in hierarchy.levels])
