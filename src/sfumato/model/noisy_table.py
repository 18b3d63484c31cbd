"""Noisy contingency tables of a release: the values, the groups of codes, and the noise.

They are public and charged with the release that measured them.  Storing them with the fitted model costs no privacy,
because their values are the output of the mechanism.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.errors import SizeError
from sfumato.privacy.noise import Noise
from sfumato.privacy.noise_kinds import noise_from_json

CodeGroups: TypeAlias = tuple[int, ...] | None
"""The group (0, 1, ...) of each code of an attribute; None: every code is its own."""

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
            influence them.
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
    groups = tuple(None if kind is None else tuple(map(int, kind)) for kind in kinds)
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
    if len(groups) != codes or set(groups) != set(range(max(groups) + 1)):
        raise SizeError(f"a noisy table has groups that are not those of {codes} codes")
    return max(groups) + 1
