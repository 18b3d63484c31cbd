"""A bound on the rows per unit, chosen by noisy sizes of units: small for little noise, large to drop few rows.

The answers by C cells under a bound r lack, per cell, the rows dropped by r, divided by C.  They carry noise that grows
with r: a times r, with a = 1 / epsilon for Laplace noise (Gaussian noise of rho: 1 / sqrt(pi rho)).  The sum of both
errors is smallest if C a units have more than r rows.  That number is a rank: a unit is above r or not.  So it is
counted with noise for one unit, whatever the unit's number of rows.

Bounds by groups are found in the same way.  Tables of distinct units by groups lack the cells beyond a bound g on their
number, and carry noise of a times g.  Tables of rows by groups under at most s rows in a cell carry noise that falls
with s at least as fast as with one group.  A unit has one number of cells, and one fullest cell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Unpack

import numpy as np

from sfumato.arguments import parse_integer
from sfumato.domain import Domain, GroupBound, Unit
from sfumato.domain.unit import SizeOf
from sfumato.errors import LossError, QueryError, pluralize
from sfumato.model.factor import FloatArray
from sfumato.privacy.loss import Epsilon, Loss, Number, exact
from sfumato.vault.interface import (
    Mechanisms,
    Payload,
    ReleaseRequest,
    StatedLoss,
    VaultInterface,
    refuse_no_vault,
    stated_loss,
    states_loss,
)
from sfumato.vault.measurables import IntegerArray
from sfumato.vault.mechanisms import noises
from sfumato.vault.release import Release
from sfumato.vault.unit_measurables import UnitSizes

TENTH = Fraction(1, 10)
_LARGEST = 1 << 12  # rows of a unit; a unit with more rows counts as one with this number
_HELD = 3.0  # deviations above which a bin next to non-empty bins counts as non-empty
_SURE = 12.0  # the same for a bin far from non-empty bins
_GAP = 2  # consecutive empty bins that end the sizes
_SLACK = 2.0  # deviations by which a tail may exceed its target


@dataclass(frozen=True, kw_only=True)
class NoisySizes:
    """Noisy numbers of units by their size, and the bound that follows from them.

    Attributes:
        of: the size of a unit that is counted.
        starts: the smallest size of each bin; the last bin is open.
        units: the noisy number of units in each bin.
        most: the suggested bound.
        above: the estimated number of units above it, with the deviation of its noise; both 0 if no bin above seems to
            have units. Noise hides a few units.
    """

    of: SizeOf
    starts: tuple[int, ...]
    units: tuple[int, ...]
    most: int
    above: tuple[float, float]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "of": str(self.of),
            "most": self.most,
            "above": {"units": self.above[0], "standard_error": self.above[1]} if self.above[1] else None,
            "sizes": [{"from": start, "units": units} for start, units in zip(self.starts, self.units, strict=True)],
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class SuggestedBound(Release):
    """A bound on the rows per unit, and the noisy sizes that it follows from.

    Attributes:
        unit: the unit of the domain with the suggested bounds on its rows, also by groups if requested.
        starts: the smallest number of rows of each bin; the last bin is open.
        units: the noisy number of units in each bin.
        deviation: the standard deviation of the noise on each of them.
        above: the estimated number of units with more rows, with the deviation of its noise; both 0 if no bin above
            seems to have units. Noise hides a few units.
        cells: the number of cells of the planned tables.
        by_groups: sizes by groups, if requested: two per grouping.
    """

    unit: Unit
    starts: tuple[int, ...]
    units: tuple[int, ...]
    deviation: float
    above: tuple[float, float]
    cells: int
    by_groups: tuple[NoisySizes, ...] = ()

    @property
    def headline(self) -> str:
        """The bound."""
        return f"at most {pluralize(self.unit.rows, 'row')} of one {self.unit.column}{self.unit.by_groups}"

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return {
            **self.statement(),
            "unit": self.unit.describe(),
            "above": {"units": self.above[0], "standard_error": self.above[1]} if self.above[1] else None,
            "cells": self.cells,
            "sizes": [{"rows": start, "units": units} for start, units in zip(self.starts, self.units, strict=True)],
            "standard_error": self.deviation,
            **({"by_groups": [sizes.to_json() for sizes in self.by_groups]} if self.by_groups else {}),
        }

    def applied(self, domain: Domain) -> Domain:
        """Return the domain with the bound, as a draft that a person has to accept."""
        return replace(domain, unit=self.unit, draft=True, acceptance=None)


@states_loss
def suggest_bound(
    vault: VaultInterface,
    *,
    cells: int,
    per: Sequence[str] = (),
    share: Number = TENTH,
    retry_key: str | None = None,
    **stated: Unpack[StatedLoss],
) -> SuggestedBound:
    """Suggest a bound on the rows per unit for tables of ``cells`` cells; on request, by groups too.

    The function counts units by their rows on a geometric grid, with noise, whatever bound the domain has.  It takes
    the smallest r of the grid for which the noisy number of units above r is at most the number that balances both
    errors, plus two deviations.  For each grouping of ``per``, it counts units by their number of cells and by the rows
    in their fullest cell, and finds bounds on both in the same way.  A bound that cannot drop a row is omitted.  The
    domain does not change: the bound is public once released, and its owner writes it into the domain.

    Neighbors: one unit of the domain more or less, with all of its rows.  Sensitivity 1 of each count of sizes, because
    a unit is in one bin of it; 1 + 2 len(per) of them share the loss evenly. Loss: that of discrete Laplace or Gaussian
    noise on the bins, which is charged before anything is counted. Source: the balance of clipping bias and noise at a
    rank (Amin, Kulesza, Munoz Medina, Vassilvitskii 2019).

    Args:
        vault: the protected table, whose unit is an id.
        cells: the number of cells of the planned tables, 1 or more.
        per: groupings to bound by as well, in a document's spelling: ``month(admitted)``, or ``day, kind``.
        share: ``loss`` as a part of the total loss of these tables and the sizes.
        retry_key: the same for all attempts at one request.
        **stated: ``loss``, or ``epsilon`` with or without ``delta``: the total loss of the sizes.

    Raises:
        QueryError: every row is a unit of its own, or there is no cell; nothing was spent.
        DomainError: an unknown or repeated grouping; nothing was spent.
        LossError: no loss, or a share outside (0, 1); nothing was spent.
        BudgetError: the ledger refuses the charge; nothing was spent.
    """
    loss = stated_loss(stated)
    refuse_no_vault(vault)
    groups = tuple(GroupBound.named(name, rows=1) for name in per)
    Unit(vault.domain.unit.column, per=groups)  # refuse repeated groupings
    tallies = _size_tallies(vault.domain, groups)
    noise, *_ = noises(vault.domain, tallies, loss, None)  # refuse before the charge if the noise cannot be drawn
    deviation, balance = math.sqrt(noise.variance), cells * noise_a_row(loss, _checked_share(cells, share))

    def run(mechanisms: Mechanisms) -> Payload:
        return {str(place): each.values for place, each in enumerate(mechanisms.measure(tallies, loss))}

    parameters = {"questions": [tally.canonical() for tally in tallies]}
    words = "how many units have how many rows" + "".join(f", and how many by {group.name}" for group in groups)
    released = vault.release(ReleaseRequest("query", "sizes", parameters, words), loss, run, retry_key=retry_key)
    noisy = [released.payload[str(place)] for place in range(len(tallies))]
    rows, *by_groups = (_noisy_sizes(*each, deviation, balance=balance) for each in zip(tallies, noisy, strict=True))
    return SuggestedBound(
        guarantee=released.guarantee,
        cost=released.cost,
        accepted=released.accepted,
        expected_error={"units of one size": deviation},
        provenance=released.provenance,
        unit=_bounded(vault.domain, groups, rows, by_groups),
        starts=rows.starts,
        units=rows.units,
        deviation=deviation,
        above=rows.above,
        cells=cells,
        by_groups=tuple(by_groups),
    )


def _checked_share(cells: int, share: Number) -> Fraction:
    """Return the exact share; refuse a share or a number of cells out of range."""
    if parse_integer(cells, "the cells of a table are a whole number") < 1:
        raise QueryError("a table has at least one cell", culprit=cells)
    part = exact(share, name="share")
    if not 0 < part < 1:
        raise LossError(f"a share lies strictly between 0 and 1, not {share}", culprit=share)
    return part


def _size_tallies(domain: Domain, groups: Sequence[GroupBound]) -> list[UnitSizes]:
    """Return the counts of units by their rows, and per grouping by their cells and by the rows of the fullest cell."""
    tallies = [UnitSizes(grid(_LARGEST))]
    for by in (group.by for group in groups):
        tallies.append(UnitSizes(grid(_cells(domain, by) + 1), SizeOf(by, cells=True)))
        tallies.append(UnitSizes(grid(_LARGEST), SizeOf(by)))
    return tallies


def _noisy_sizes(tally: UnitSizes, counts: IntegerArray, deviation: float, *, balance: float) -> NoisySizes:
    units = tuple(int(count) for count in counts)
    most, above = chosen(tally.starts, units, deviation, balance=balance)
    return NoisySizes(of=tally.of, starts=tally.starts, units=units, most=most, above=above)


def _cells(domain: Domain, by: Sequence[str]) -> int:
    """Return the joint number of cells of some groupings."""
    return math.prod(len(domain.grouping(name).labels) for name in by)


def _bounded(domain: Domain, groups: Sequence[GroupBound], rows: NoisySizes, by_groups: Sequence[NoisySizes]) -> Unit:
    """Return the unit under the suggested bounds; a bound by groups is included if it drops more than the row bound."""
    unit, most = domain.unit, rows.most
    replaced = {group.by for group in groups}
    per = [bound for bound in unit.per if bound.by not in replaced]
    for group, cells_of_unit, rows_of_cell in zip(groups, by_groups[::2], by_groups[1::2], strict=True):
        cells = cells_of_unit.most if cells_of_unit.most < min(most, _cells(domain, group.by)) else None
        if cells is not None or rows_of_cell.most < most:
            per.append(GroupBound(group.by, rows=min(rows_of_cell.most, most), groups=cells))
    return unit.bounded(rows=most, per=per)


def noise_a_row(loss: Loss, share: Fraction) -> float:
    """Return the mean absolute noise on a cell, per row of a unit, of tables that use the rest of the loss."""
    rest = (1 - share) / share
    if isinstance(loss, Epsilon):
        return float(1 / (loss.value * rest))
    return 1 / math.sqrt(math.pi * float(loss.as_rho().value * rest))


def grid(largest: int) -> tuple[int, ...]:
    """Return numbers of rows from 1, each about the square root of two times the previous one.

    >>> grid(20)
    (1, 2, 3, 5, 8, 12, 17, 25)
    """
    starts = [1]
    while starts[-1] < largest:
        starts.append(max(starts[-1] + 1, math.ceil(starts[-1] * math.sqrt(2))))
    return tuple(starts)


def chosen(
    starts: Sequence[int], units: Sequence[int], deviation: float, *, balance: float
) -> tuple[int, tuple[float, float]]:
    """Return the smallest r before a start above which about ``balance`` units lie, and their number with a deviation.

    Bins after the last one that seems to have units are treated as empty.  Otherwise the noise on many of them would
    resemble units with many rows.
    """
    counts: FloatArray = np.asarray(units, dtype=np.float64)
    last = _last(counts, deviation)
    for place in range(1, len(starts)):
        above = float(counts[place : last + 1].sum())
        error = deviation * math.sqrt(max(0, last + 1 - place))
        if above <= balance + _SLACK * error or place == len(starts) - 1:
            break
    return starts[place] - 1, (above, error)


def _last(counts: FloatArray, deviation: float) -> int:
    """Return the last bin that seems to have units.

    The sizes end before two bins that seem empty, unless a later bin surely has units.
    """
    held = counts > _HELD * deviation
    gaps = [place for place in range(1, len(held)) if not held[place : place + _GAP].any()]
    sure = np.flatnonzero(counts > _SURE * deviation)
    return max(gaps[0] - 1 if gaps else len(held) - 1, int(sure[-1]) if len(sure) else 0)
