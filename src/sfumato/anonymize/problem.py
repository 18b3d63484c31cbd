"""A full-domain recoding problem, checked: the table, its hierarchies, what must hold, and what may be suppressed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from sfumato.anonymize.criteria import Criterion, KAnonymity
from sfumato.anonymize.hierarchy import Hierarchy
from sfumato.anonymize.microdata import Microdata
from sfumato.errors import InfeasibleError, InputError

Vector = tuple[int, ...]  # one level a quasi-identifier


@dataclass(frozen=True, kw_only=True, eq=False)
class Problem:
    """What a search over full-domain recodings needs.

    Args:
        data: the table, as tuples and counts.
        hierarchies: one a quasi-identifier, in order, aligned with the codes of ``data``.
        criteria: what every published class must satisfy.
        allowed: number of rows that may be suppressed, 0 .. rows.
        weights: importance of each quasi-identifier in the loss; a plain sum takes 1 for each.

    Raises:
        InputError: no quasi-identifier or criterion, lengths that differ, a weight that is negative, a criterion
            whose sensitive attribute or population is not there.
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
        """Number of generalisation steps of each quasi-identifier."""
        return tuple(hierarchy.height for hierarchy in self.hierarchies)

    @property
    def prunable(self) -> tuple[Criterion, ...]:
        """The criteria that a search may prune with: declared monotone, under suppression where some is allowed."""
        if self.allowed == self.data.excluded:
            return tuple(criterion for criterion in self.criteria if criterion.monotone)
        return tuple(criterion for criterion in self.criteria if criterion.monotone_with_suppression)

    @property
    def monotone(self) -> bool:
        """Whether every criterion may be pruned with."""
        return len(self.prunable) == len(self.criteria)


def check_criteria(criteria: tuple[Criterion, ...], data: Microdata, *, allowed: int | None = None) -> None:
    """Refuse criteria that cannot be looked at, or that no class can satisfy.

    Args:
        criteria: what every published class must satisfy.
        data: the table.
        allowed: number of rows that may be suppressed; None: any.

    Raises:
        InputError: the sensitive attribute or the population is not there.
        InfeasibleError: k is larger than the table.
    """
    for criterion in criteria:
        if criterion.sensitive is not None and criterion.sensitive not in data.sensitive:
            raise InputError(f"{criterion} needs the sensitive attribute {criterion.sensitive!r}", culprit=criterion)
        if criterion.population is not None and data.population is None:
            raise InputError(f"{criterion} needs a population to compare with", culprit=criterion)
        if criterion.least_rows > data.rows - data.excluded:
            reason = _why_too_few(criteria, data, allowed)
            raise InfeasibleError(f"{criterion} cannot hold: {reason}", culprit=criterion)


def _why_too_few(criteria: tuple[Criterion, ...], data: Microdata, allowed: int | None) -> str:
    rows, left = data.rows, data.rows - data.excluded
    if not left:
        return f"all {rows} rows are left out, by the domain, its unit or for a missing quasi-identifier"
    alone = all(isinstance(criterion, KAnonymity) for criterion in criteria)
    largest = f"the largest k that this table can meet is {left}" if alone else f"no class has more than {left} rows"
    if allowed is None or data.excluded <= allowed:
        return largest
    return (
        f"{largest}, and that only from a suppression limit of {sufficient_share(data.excluded, rows)}; at most"
        f" {allowed} of {rows} rows may be suppressed and {data.excluded} are left out from the start, so under this"
        " limit no k can be met"
    )


def allowed_rows(suppression: str | Fraction, rows: int) -> int:
    """Largest number of rows within a share of them; the share is read exactly, ``"0.02"`` is one fiftieth.

    Raises:
        InputError: no number, or outside [0, 1].
    """
    try:
        share = Fraction(suppression)
    except (TypeError, ValueError, OverflowError, ZeroDivisionError):
        raise InputError("the suppression limit must be a number in [0, 1]", culprit=suppression) from None
    if not 0 <= share <= 1:
        raise InputError(f"the suppression limit must lie in [0, 1], not {suppression}", culprit=suppression)
    return math.floor(share * rows)


def sufficient_share(suppressed: int, rows: int) -> str:
    """The least decimal share, rounded up, that allows so many rows to be suppressed; below 1 unless that is all rows.

    >>> sufficient_share(1, 3), sufficient_share(1, 4), sufficient_share(0, 4)
    ('0.333334', '0.25', '0')
    >>> allowed_rows(sufficient_share(14982, 32561), 32561)
    14982
    """
    digits = max(6, len(str(rows)))
    scaled = -(-suppressed * 10**digits // rows)
    whole, rest = divmod(scaled, 10**digits)
    return f"{whole}.{rest:0{digits}}".rstrip("0").rstrip(".")
