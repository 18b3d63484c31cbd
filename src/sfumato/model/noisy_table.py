"""Noisy contingency tables of a release: the values, the groups of codes, the noise, and sums of tables.

They are public and charged with the release that measured them.  Storing them with the fitted model costs no privacy,
because their values are the output of the mechanism.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.bounded_cache import cached
from sfumato.domain import Categorical, Domain
from sfumato.errors import SizeError
from sfumato.model.factor import FloatArray
from sfumato.privacy.noise import Noise
from sfumato.privacy.noise_kinds import noise_from_json

CodeGroups: TypeAlias = tuple[int, ...] | None
"""The group (0, 1, ...) of each code of an attribute; None: every code is its own."""

CONFIDENCE = Fraction(95, 100)
"""Confidence of every stated error."""

MISSED = 1 - CONFIDENCE
"""Probability that a stated error is too small."""

LEAST_POOLED = 2.0
"""Variance of noise below which tables are not pooled, because few integers are likely."""

_SMALL_VARIANCE = 16.0
_NEVER_MERGED = 2  # values of a list
_ROUNDING = 1e-12  # tolerance of a sum of probabilities

_VERSION = 1
_LARGEST = 1 << 62
_KEY, _DISTANCES, _TOTALS = "noisy tables", "noisy distances", "noisy totals"
_REFERENCE = "counts of the model"


class Cells(Protocol):
    """The cells of a marginal over groups of codes."""

    @property
    def attributes(self) -> tuple[str, ...]:
        """Return the attributes of the marginal."""
        ...

    @property
    def groups(self) -> tuple[CodeGroups, ...] | None:
        """Return the groups of the codes of each attribute; None: every code is its own group."""
        ...


@dataclass(frozen=True, eq=False)
class NoisyTable:
    """The exact counts of the cells of a marginal plus independent noise.

    Attributes:
        attributes: attributes of the marginal.
        groups: groups of the codes of each attribute.
        values: int64, one axis for each attribute, with one cell per group.
        noise: noise on every cell.
        fresh: True if the groups of all attributes were fixed before the table was measured, so that its noise did not
            influence them.  First tables of a column are not fresh, because their noise decides on the groups of later
            tables.
    """

    attributes: tuple[str, ...]
    groups: tuple[CodeGroups, ...]
    values: NDArray[np.int64]
    noise: Noise
    fresh: bool

    @staticmethod
    def from_cells(cells: Cells, values: NDArray[np.int64], noise: Noise, *, fresh: bool) -> NoisyTable:
        """Return the noisy counts of the cells of a marginal, one axis for each attribute."""
        groups = cells.groups or (None,) * len(cells.attributes)
        return NoisyTable(cells.attributes, groups, values, noise, fresh)

    def group_numbers(self, name: str, domain: Domain) -> NDArray[np.int64]:
        """Return the group of each code of one of its attributes: shape ``(codes,)``."""
        groups = self.groups[self.attributes.index(name)]
        return np.arange(domain[name].size) if groups is None else np.array(groups, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class NoisyDistance:
    """The noisy L1 distance of the table from a model over the single codes of a pair of attributes, in rows.

    Attributes:
        attributes: the pair.
        value: noisy distance of the table's counts from :func:`integer_counts` of the model.
        noise: noise on the distance.
        rows_distance: distance of these integer counts from the counts of the file's rows; 0 in a saved model.
        rows: digest of the counts of the file's rows; empty in a saved model.
        reference: the integer counts of the model, one axis for each attribute; None in a saved model, or if they are
            too large for a file.
    """

    attributes: tuple[str, str]
    value: int
    noise: Noise
    rows_distance: float = 0.0
    rows: str = ""
    reference: NDArray[np.int64] | None = None

    def refuse_wrong(self, domain: Domain) -> None:
        """Refuse a distance unless it is of a pair of the domain's attributes.  Files are not trusted.

        Raises:
            SizeError: the distance does not fit the domain.
        """
        if not 0 <= domain.index(self.attributes[0]) < domain.index(self.attributes[1]):
            raise SizeError("a noisy distance of the release is not one of a pair of its attributes")
        if type(self.value) is not int or not abs(self.value) < _LARGEST:
            raise SizeError("a noisy distance of the release is no whole number")
        if (
            type(self.rows_distance) not in (int, float)
            or not 0 <= self.rows_distance < _LARGEST
            or type(self.rows) is not str
        ):
            raise SizeError("a noisy distance of the release is of rows that no file has")
        if (held := self.reference) is not None and (
            held.dtype != np.int64 or held.shape != domain.project(self.attributes).shape or held.min() < 0
        ):
            raise SizeError("a noisy distance of the release is from counts that no model has")


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyTotals:
    """The totals of a weight of the rows, by groups of an attribute, plus independent noise.

    A row counts ``grid (2 min(weight, limit) / limit - 1)``.  The total of the weights is this total times half the
    limit over the grid, plus half the limit for each row of the group.

    Attributes:
        weight: the attribute that is summed.
        attribute: the attribute whose groups have a total each.
        groups: groups of the codes of ``attribute``.
        values: int64, shape ``(groups,)``.
        noise: noise on each total.
        limit: weights are clipped at it.
        grid: steps of half the limit.
    """

    weight: str
    attribute: str
    groups: CodeGroups
    values: NDArray[np.int64]
    noise: Noise
    limit: float
    grid: int

    @property
    def deviation(self) -> float:
        """Return the standard deviation of the noise on a total, in the unit of the weight."""
        return math.sqrt(self.noise.variance) * self.limit / (2 * self.grid)


def totals_payload(totals: Sequence[NoisyTotals]) -> dict[str, Any]:
    """Return noisy totals as JSON values, or nothing if there are none; :func:`restore_totals` reads them."""
    listed = [
        {
            "weight": total.weight,
            "attribute": total.attribute,
            "groups": None if total.groups is None else list(total.groups),
            "values": total.values.tolist(),
            "noise": total.noise.to_json(),
            "limit": total.limit,
            "grid": total.grid,
        }
        for total in totals
    ]
    return {_TOTALS: listed} if listed else {}


def restore_totals(domain: Domain, payload: Mapping[str, Any]) -> tuple[NoisyTotals, ...]:
    """Restore the totals of a stored payload.

    Raises:
        SizeError: the totals are not by groups of an attribute of the domain.
    """
    return tuple(_restored_totals(domain, listed) for listed in payload.get(_TOTALS, ()))


def _restored_totals(domain: Domain, listed: Mapping[str, Any]) -> NoisyTotals:
    groups = None if listed["groups"] is None else tuple(map(int, listed["groups"]))
    codes = domain[listed["attribute"]].size
    size = codes if groups is None else _number_of_groups(groups, codes)
    values = np.array(listed["values"], dtype=np.int64)
    sound = listed["limit"] > 0 and listed["grid"] > 0 and listed["weight"] in domain
    if values.shape != (size,) or not sound:
        raise SizeError("noisy totals of the release are not by groups of an attribute")
    return NoisyTotals(
        weight=listed["weight"],
        attribute=listed["attribute"],
        groups=groups,
        values=values,
        noise=noise_from_json(listed["noise"]),
        limit=float(listed["limit"]),
        grid=int(listed["grid"]),
    )


def digest_of(counts: NDArray[np.int64]) -> str:
    """Return the SHA-256 of counts, which detects changed rows of a file."""
    return hashlib.sha256(counts.astype("<i8").tobytes()).hexdigest()


def integer_counts(counts: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """Round counts to integers of sum ``total``.  The error of each run of neighbors is below one."""
    ends = np.cumsum(counts.ravel())
    if not ends[-1] > 0:
        ends = np.arange(1.0, counts.size + 1)
    steps = np.floor(ends / ends[-1] * total + 0.5).astype(np.int64)
    steps[-1] = total
    rounded: NDArray[np.int64] = np.diff(steps, prepend=0).reshape(counts.shape)
    return rounded


def distances_payload(distances: Sequence[NoisyDistance]) -> dict[str, Any]:
    """Return noisy distances as JSON values, or nothing if there are none; :func:`restore_distances` reads them."""
    listed = [
        [*distance.attributes, distance.value, distance.noise.to_json(), distance.rows_distance, distance.rows]
        for distance in distances
    ]
    held = {f"{_REFERENCE} {n}": each.reference for n, each in enumerate(distances) if each.reference is not None}
    return {_DISTANCES: listed, **held} if listed else {}


def restore_distances(domain: Domain, payload: Mapping[str, Any]) -> tuple[NoisyDistance, ...]:
    """Restore the distances of a stored payload.

    Raises:
        SizeError: a distance is not of a pair of the domain's attributes.
    """
    distances = tuple(
        replace(
            NoisyDistance((one, other), value, noise_from_json(noise), *of_rows),
            reference=payload.get(f"{_REFERENCE} {n}"),
        )
        for n, (one, other, value, noise, *of_rows) in enumerate(payload.get(_DISTANCES, ()))
    )
    for each in distances:
        each.refuse_wrong(domain)
    if len({each.attributes for each in distances}) < len(distances):
        raise SizeError("a noisy distance of the release is listed twice")
    return distances


def tables_payload(tables: Sequence[NoisyTable]) -> dict[str, Any]:
    """Return noisy tables as named arrays and JSON values; :func:`restore_tables` reads them."""
    distinct = list(dict.fromkeys(groups for table in tables for groups in table.groups if groups is not None))
    arrays = {f"noisy table {index}": table.values for index, table in enumerate(tables)}
    arrays |= {f"noisy groups {index}": np.array(groups, dtype=np.int32) for index, groups in enumerate(distinct)}
    listed = [
        {
            "attributes": list(table.attributes),
            "groups": [None if groups is None else distinct.index(groups) for groups in table.groups],
            "noise": table.noise.to_json(),
            "fresh": table.fresh,
        }
        for table in tables
    ]
    return arrays | {_KEY: {"version": _VERSION, "tables": listed}}


def restore_tables(domain: Domain, payload: Mapping[str, Any]) -> tuple[NoisyTable, ...]:
    """Restore the tables of a stored payload; payloads of old versions have none.

    Raises:
        SizeError: the tables are not over groups of the domain's codes, or a later version wrote them.
    """
    if _KEY not in payload:
        return ()
    if payload[_KEY]["version"] != _VERSION:
        raise SizeError("the noisy tables of this release were written by a later version")
    return tuple(_restored(domain, payload, index, listed) for index, listed in enumerate(payload[_KEY]["tables"]))


def _restored(domain: Domain, payload: Mapping[str, Any], index: int, listed: Mapping[str, Any]) -> NoisyTable:
    names = tuple(listed["attributes"])
    kinds = tuple(None if place is None else payload[f"noisy groups {place}"] for place in listed["groups"])
    groups = tuple(None if kind is None else tuple(map(int, np.asarray(kind).tolist())) for kind in kinds)
    sizes = [domain[name].size for name in names]
    shape = tuple(
        size if kind is None else _number_of_groups(kind, size) for kind, size in zip(groups, sizes, strict=True)
    )
    values = payload[f"noisy table {index}"]
    if values.dtype != np.int64 or values.shape != shape or len(set(names)) != len(names):
        raise SizeError("a noisy table of the release is not over the groups of its attributes")
    return NoisyTable(names, groups, values, noise_from_json(listed["noise"]), bool(listed["fresh"]))


def _number_of_groups(groups: tuple[int, ...], codes: int) -> int:
    """Return the number of groups of the given number of codes.

    Raises:
        SizeError: the groups are not numbered 0, 1, ... without a gap, or there is not one for each code.
    """
    distinct = set(groups)
    if len(groups) != codes or distinct != set(range(len(distinct))):
        raise SizeError(f"a noisy table has groups that are not those of {codes} codes")
    return len(distinct)


@dataclass(frozen=True, eq=False)
class PooledMarginal:
    """A noisy table summed over all but some of its attributes, or several pooled by inverse variance.

    Attributes:
        counts: one axis per attribute.
        groups: the group of each code of an attribute, shape ``(codes,)``.
        noise: noise on one cell of the table.  For several tables, it is the noise of the table with the most noise.
        summed: number of cells of this table in each count.
        left: share of the variance of its noise that remains after pooling.
        weight: the largest weight of a pooled table; a row of noise moves a count by at most this part of a row.
    """

    counts: NDArray[np.int64] | FloatArray
    groups: tuple[NDArray[np.int64], ...]
    noise: Noise
    summed: int
    left: float = 1.0
    weight: float = 1.0

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise on one count."""
        return math.sqrt(self.noise.variance * self.summed * self.left)

    def noise_bound(self, *, counts: int = 1, simultaneous: int = 1, missed: Fraction = MISSED) -> float:
        """Return a bound on the noise of a sum of ``counts`` counts that ``simultaneous`` such sums keep at once.

        One of them exceeds it with a probability of at most ``missed``.  Pooled noise has no heavier tails than the
        noise of one table, each in its own standard deviations.  Both have steps, so the bound is half a step larger
        before it is scaled, and half of a step of pooled noise larger after.
        """
        alone = _quantile(self.noise, self.summed * counts, missed / simultaneous)
        return alone if self.left == 1 else (alone + 0.5) * math.sqrt(self.left) + self.weight / 2


def pooled_marginal(tables: Sequence[NoisyTable], attributes: Sequence[str], domain: Domain) -> PooledMarginal | None:
    """Return the most precise noisy table of the given attributes, summed over its others; None if no table has them.

    The table with the finest groups is used.  Among several, a table that was measured before the groups were formed
    comes first, because its noise decided on the groups.  If it were used only for the groups that it formed, its
    errors would be stated only when they are large.  Then the table with the least noise is used, pooled by inverse
    variance with independent tables over the same groups.  Attributes that never have groups are pooled from all
    tables.
    """
    held = [table for table in tables if set(attributes) <= set(table.attributes)]
    free = never_grouped(attributes, domain)
    sums = [(table.fresh or free, summed_table(table, tuple(attributes), domain)) for table in held]
    best = min(sums, key=lambda one: (-one[1].counts.size, one[0], one[1].deviation), default=None)
    return None if best is None else _pooled(best[1], [one for fresh, one in sums if fresh == best[0]])


def never_grouped(attributes: Sequence[str], domain: Domain) -> bool:
    """Return True if every attribute is a list of at most two values, which no method merges."""
    return all(isinstance(domain[name], Categorical) and domain[name].size <= _NEVER_MERGED for name in attributes)


def _pooled(best: PooledMarginal, others: Sequence[PooledMarginal]) -> PooledMarginal:
    """Return the pooled counts over the groups of the best table.

    If its noise is below a few rows, only the best table is used.
    """
    same = [one for one in others if all(map(np.array_equal, one.groups, best.groups))]
    return best if best.noise.variance < LEAST_POOLED else combined(same)


def combined(parts: Sequence[PooledMarginal]) -> PooledMarginal:
    """Return the mean of independent counts of the same cells, weighted by inverse variance."""
    if len(parts) == 1:
        return parts[0]
    precisions = np.array([1 / part.deviation**2 for part in parts])
    shares = precisions / precisions.sum()
    counts: FloatArray = np.tensordot(shares, np.array([part.counts for part in parts], dtype=np.float64), axes=1)
    widest = max(parts, key=lambda part: part.noise.variance)  # whole steps widen its bound least
    left = 1 / (precisions.sum() * widest.noise.variance * widest.summed)
    return replace(widest, counts=counts, left=float(left), weight=float(shares.max()))


def summed_table(table: NoisyTable, attributes: tuple[str, ...], domain: Domain) -> PooledMarginal:
    """Return a noisy table summed over all attributes but the given ones, which it holds."""
    others = tuple(axis for axis, name in enumerate(table.attributes) if name not in attributes)
    left = [name for name in table.attributes if name in attributes]
    counts = table.values.sum(axis=others).transpose([left.index(name) for name in attributes])
    groups = tuple(table.group_numbers(name, domain) for name in attributes)
    return PooledMarginal(counts, groups, table.noise, table.values.size // max(1, counts.size))


@cached(1_000)
def _quantile(noise: Noise, summed: int, missed: Fraction) -> int:
    """Return the smallest k with P(|sum of noise| > k) <= ``missed``; for a sum it is nearly the smallest.

    A sum of m draws is assumed to reach root m times as far as one draw, including the half step of rounding.  A sum of
    discrete Gaussians is nearly a discrete Gaussian of m times the variance (Canonne, Kamath and Steinke 2020).  Sums
    of Laplace noise have lighter tails than one draw, each in its own standard deviations.  If the noise is so small
    that single integers matter, its distribution is summed exactly.
    """
    if summed == 1:
        return noise.quantile(1 - missed)
    if noise.variance >= _SMALL_VARIANCE:
        return math.ceil((_quantile(noise, 1, missed) + 0.5) * math.sqrt(summed))
    return int(np.argmax(2 * _tails(noise, summed) <= max(float(missed), _ROUNDING))) - 1


def _tails(noise: Noise, summed: int) -> FloatArray:
    """Return P(sum >= k) for k from 0, for ``summed`` independent draws, by the product of their characteristic
    functions.
    """
    support = 128 + math.ceil(64 * math.sqrt(noise.variance * summed))
    probabilities = np.zeros(2 * support)
    for k in range(-support + 1, support):
        if abs(k) <= 128:  # noqa: PLR2004  (beyond, noise of such a variance has no probability)
            probabilities[k] = noise.pmf(abs(k))
    sums = np.maximum(np.fft.irfft(np.fft.rfft(probabilities) ** summed, 2 * support)[:support], 0.0)
    tails: FloatArray = np.cumsum(sums[::-1])[::-1]
    return tails
