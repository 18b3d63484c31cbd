"""The model that graphical methods release: a graphical model over groups of codes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sfumato.domain import Domain
from sfumato.errors import QueryError, SizeError
from sfumato.model.coarsening import Coarsening
from sfumato.model.factor import Factor, FloatArray
from sfumato.model.graphical_model import GraphicalModel
from sfumato.model.junction_tree import Clique
from sfumato.model.noisy_table import (
    NoisyDistance,
    NoisyTable,
    NoisyTotals,
    distances_payload,
    restore_distances,
    restore_tables,
    restore_totals,
    tables_payload,
    totals_payload,
)
from sfumato.model.row_sampling import CodeArray, RowSampler
from sfumato.model.row_tuning import ImpossibleCells, TargetTable, tune_rows
from sfumato.synthesize.cell_positions import CellPosition, positions_payload, restore_positions
from sfumato.synthesize.product import filled
from sfumato.synthesize.structural_zeros import KIND
from sfumato.vault.vault import REUSED
from sfumato.workload.counting_queries import Marginals, Workload

ESTIMATES = "estimated tables"  # key of a stored model
MOST_CELLS = 1 << 26  # expected counts, 512 MiB
_LEAST_VARIANCE = 1e-6  # at a huge loss the noise variance is a float zero
_LEAST_VARIANCE_SHARE = 0.02  # least variance of a count of the model, as a share of the variance of its noise
_BLOCK = 1 << 18  # rows drawn at a time, so that they stay in the processor's cache


@dataclass(frozen=True)
class Measured:
    """A measured table: its attributes and the standard deviation of the noise on one of its cells.

    Cells are single codes in one-way tables of the first round, and groups of codes in all others.
    """

    attributes: tuple[str, ...]
    deviation: float


@dataclass(frozen=True, eq=False)
class EstimatedTable:
    """A noisy table that the junction tree has no room for, and its estimated counts, to which rows are tuned.

    Counts are not negative, and have the shape of the values of the table.
    """

    noisy: NoisyTable
    counts: FloatArray


@dataclass(frozen=True, eq=False)
class Graphical:
    """A graphical model over the groups of each attribute, and the weights that spread groups over codes.

    It is public, because it depends only on noisy measurements: storing and sampling it costs no privacy.  ``tables``
    are these measurements; models in an older format have none.  ``reused`` are journal entries whose marginals were
    used too.  ``distances`` are measured distances of pairs from the table.  ``totals`` are the measured totals of the
    weight of the rows.  ``estimates`` are estimated counts of those of ``tables`` that the model does not contain, by
    their position.  If there are any, sampled rows are tuned to them (:mod:`sfumato.model.row_tuning`).
    """

    domain: Domain
    coarsenings: Mapping[str, Coarsening]
    model: GraphicalModel
    measured: tuple[Measured, ...]
    tables: tuple[NoisyTable, ...] = ()
    positions: Mapping[str, CellPosition] = field(default_factory=dict)
    reused: tuple[int, ...] = ()
    distances: tuple[NoisyDistance, ...] = ()
    totals: tuple[NoisyTotals, ...] = ()
    estimates: Mapping[int, FloatArray] = field(default_factory=dict)

    def with_tables(self, tables: Sequence[EstimatedTable]) -> Graphical:
        """Return the same model with further noisy tables, to which sampled rows are tuned."""
        measured = tuple(Measured(each.noisy.attributes, math.sqrt(each.noisy.noise.variance)) for each in tables)
        return replace(
            self,
            measured=(*self.measured, *measured),
            tables=(*self.tables, *(each.noisy for each in tables)),
            estimates={**self.estimates, **{len(self.tables) + n: each.counts for n, each in enumerate(tables)}},
        )

    @property
    def total(self) -> int:
        """Return the number of rows of a sample."""
        return round(self.model.total)

    def cells(self, attributes: tuple[str, ...]) -> FloatArray:
        """Return the expected counts of a marginal over the codes, flat in C order.

        Raises:
            SizeError: the marginal has too many cells.
        """
        if (size := self.domain.project(attributes).size) > MOST_CELLS:
            raise SizeError(f"the marginal of {', '.join(attributes)} has {size} cells; ask for fewer attributes")
        table = self.model.expected(attributes)
        for axis, name in enumerate(attributes):
            coarsening = self.coarsenings[name]
            shares = coarsening.shares().reshape(-1, *(1 for _ in attributes[axis + 1 :]))
            table = table.take(coarsening.groups, axis=axis) * shares
        return table.ravel()

    def answers(self, workload: Workload) -> FloatArray:
        """Return the expected answers to a workload: shape ``(queries,)``."""
        if isinstance(workload, Marginals):  # one by one, because their common table may exceed memory
            return np.concatenate([self.cells(clique) for clique in workload.marginal_attributes(self.domain)])
        return workload.answers(self.domain, self.cells(workload.attributes(self.domain)))

    def sample(self, random: np.random.Generator, rows: int | None = None) -> CodeArray:
        """Draw rows of codes in random order, shape ``(rows, attributes)``; default: ``total`` rows.

        Counts are rounded cell by cell in each clique, not drawn row by row.  Each block of 262 144 rows is rounded
        separately.
        """
        return filled(self.blocks(random, rows), self.total if rows is None else rows, self.domain, np.int32)

    def blocks(self, random: np.random.Generator, rows: int | None = None) -> Iterator[CodeArray]:
        """Yield the rows of :meth:`sample` in blocks."""
        size = self.total if rows is None else rows
        sampler, kind = RowSampler(self.model), np.min_scalar_type(max(self.domain.shape) - 1)
        for start in range(0, max(size, 1), _BLOCK):
            held = min(_BLOCK, size - start)
            groups = self._tuned(sampler.draw(held, random), random)
            codes = np.empty((held, len(self.domain)), dtype=kind, order="F")
            for index, name in enumerate(self.domain.names):
                codes[:, index] = self.coarsenings[name].expand(groups[name], random)
            yield codes

    def _tuned(self, groups: Mapping[str, CodeArray], random: np.random.Generator) -> Mapping[str, CodeArray]:
        """Tune sampled rows to the estimated tables, and to the tables of the model.

        Tuning changes the first rows most, so the rows are put in random order again.
        """
        names = self.domain.names
        rows = len(groups[names[0]])
        if not (self.estimates and rows):
            return groups
        columns = tune_rows(
            [groups[name] for name in names],
            [self.model.sizes[name] for name in names],
            self._targets(rows),
            _impossible_cells(self.model, names),
            random,
        )
        order = random.permutation(len(columns[0]))
        return {name: column[order] for name, column in zip(names, columns, strict=True)}

    def _targets(self, rows: int) -> list[TargetTable]:
        """Return the estimated tables and the tables of the model as targets for a number of rows."""
        names, scale = self.domain.names, rows / self.model.total
        precisions: dict[Clique, float] = {}
        for place, table in enumerate(self.tables):
            if place not in self.estimates:
                known = precisions.get(table.attributes, 0.0)
                precisions[table.attributes] = known + 1 / max(table.noise.variance, _LEAST_VARIANCE)
        usual = float(np.median([precision for clique, precision in precisions.items() if clique]))
        targets = []
        for clique in dict.fromkeys(factor.attributes for factor in self.model.factors):
            if clique and not any(name.startswith(KIND) for name in clique):
                places = tuple(np.arange(self.model.sizes[name]) for name in clique)
                variance = scale**2 / precisions.get(clique, usual)
                numbers = tuple(map(names.index, clique))
                counts = scale * self.model.expected(clique)
                # shrinkage has removed most of the noise of small counts
                shares = np.clip(counts / np.sqrt(variance), _LEAST_VARIANCE_SHARE, 1.0)
                targets.append(TargetTable(numbers, places, counts, variance * shares))
        first = {name: np.unique(self.coarsenings[name].groups, return_index=True)[1] for name in names}
        for place, counts in self.estimates.items():
            table = self.tables[place]
            places = tuple(table.group_numbers(name, self.domain)[first[name]] for name in table.attributes)
            numbers = tuple(map(names.index, table.attributes))
            targets.append(TargetTable(numbers, places, scale * counts, scale**2 * table.noise.variance))
        return targets

    def given(self, codes: Mapping[str, Collection[int]]) -> Graphical:
        """Condition the model on codes of the named attributes; its total becomes the expected number of such rows.

        Raises:
            DomainError: an attribute does not exist.
            QueryError: a code does not exist.
            InfeasibleError: such rows are impossible in the model.
        """
        coarsenings = dict(self.coarsenings)
        log_shares: dict[str, FloatArray] = {}
        for name, allowed_codes in codes.items():
            size = self.domain[name].size
            if not _codes(allowed_codes, size):
                raise QueryError(f"{name!r} has codes 0 to {size - 1}; give a list of some of them", culprit=name)
            coarsening = self.coarsenings[name]
            allowed = np.isin(np.arange(size), list(allowed_codes))
            with np.errstate(divide="ignore"):
                log_shares[name] = np.log(coarsening.merge(coarsening.shares() * allowed))
            coarsenings[name] = coarsening.restricted(allowed)
        return replace(
            self,
            coarsenings=coarsenings,
            model=self.model.given(log_shares),
            measured=(),
            tables=(),
            distances=(),
            totals=(),
            estimates={},
        )

    def payload(self) -> dict[str, Any]:
        """Return named arrays and JSON values; :meth:`restore` reads them."""
        names = self.domain.names
        return (
            {f"potential {index}": factor.values for index, factor in enumerate(self.model.factors)}
            | {f"groups {index}": self.coarsenings[name].groups for index, name in enumerate(names)}
            | {f"weights {index}": self.coarsenings[name].weights for index, name in enumerate(names)}
            | {
                "names": list(names),
                "cliques": [list(factor.attributes) for factor in self.model.factors],
                "total": self.model.total,
                "measured": [[list(measured.attributes), measured.deviation] for measured in self.measured],
            }
            | positions_payload(self.positions)
            | tables_payload(self.tables)
            | distances_payload(self.distances)
            | totals_payload(self.totals)
            | ({REUSED: list(self.reused)} if self.reused else {})
            | ({ESTIMATES: list(self.estimates)} if self.estimates else {})
            | {f"estimate {place}": counts for place, counts in self.estimates.items()}
        )

    @staticmethod
    def restore(domain: Domain, payload: Mapping[str, Any]) -> Graphical:
        """Restore a stored model over the domain of the protected table.

        Raises:
            SizeError: the groups do not fit the domain's codes, the potentials do not fit the groups, or a measured
                table has an unknown attribute.
        """
        coarsenings = {
            name: Coarsening(payload[f"groups {index}"], _numbers(payload[f"weights {index}"], least=0.0))
            for index, name in enumerate(payload["names"])
        }
        factors = tuple(
            Factor(tuple(names), _numbers(payload[f"potential {index}"], least=-np.inf))
            for index, names in enumerate(payload["cliques"])
        )
        sizes = {name: _groups(coarsenings[name], domain[name].size) for name in domain.names}
        for factor in factors:
            for name, size in zip(factor.attributes, factor.values.shape, strict=True):
                if name.startswith(KIND):
                    sizes.setdefault(name, size)
        if any(factor.values.shape != tuple(sizes[name] for name in factor.attributes) for factor in factors):
            raise SizeError("the potentials of the model are not over the groups of its attributes")
        tables = restore_tables(domain, payload)
        return Graphical(
            domain=domain,
            coarsenings=coarsenings,
            model=GraphicalModel(sizes, factors, float(payload["total"])),
            measured=tuple(_measured(domain, tuple(names), deviation) for names, deviation in payload["measured"]),
            tables=tables,
            positions=restore_positions(domain, payload),
            reused=tuple(payload.get(REUSED, ())),
            distances=restore_distances(domain, payload),
            totals=restore_totals(domain, payload),
            estimates={place: _estimate(tables, payload, place) for place in payload.get(ESTIMATES, ())},
        )


def _impossible_cells(model: GraphicalModel, attributes: Sequence[str]) -> list[ImpossibleCells]:
    """Return the impossible cells of each table of structural zeros of a model, without kinds.

    A table that links an attribute to its kind, or a weight to its class, rules out no row.
    """
    named = [
        (factor, tuple(name.removeprefix(KIND).removeprefix(KIND) for name in factor.attributes))
        for factor in model.factors
    ]
    kind_of = {factor.attributes[1]: factor.values.argmax(axis=1) for factor, names in named if names[1:] == names[:1]}
    zeros = []
    for factor, names in named:
        impossible = np.isneginf(factor.values)
        if impossible.any() and names[1:] != names[:1]:
            sides = [kind_of.get(name, np.arange(model.sizes[name])) for name in factor.attributes]
            zeros.append(ImpossibleCells(tuple(map(attributes.index, names)), impossible[np.ix_(*sides)]))
    return zeros


def _estimate(tables: Sequence[NoisyTable], payload: Mapping[str, Any], place: int) -> FloatArray:
    counts = _numbers(payload[f"estimate {place}"], least=0.0)
    if not 0 <= place < len(tables) or counts.shape != tables[place].values.shape:
        raise SizeError("the model estimates counts of a table that was not measured", culprit=place)
    return counts


def _measured(domain: Domain, names: tuple[str, ...], deviation: float) -> Measured:
    if len(set(names)) != len(names) or not set(names) <= set(domain.names) or not 0 <= deviation < np.inf:
        raise SizeError("a table of the model is not over attributes of its domain, or says no noise", culprit=names)
    return Measured(names, deviation)


def _numbers(values: Any, *, least: float) -> FloatArray:  # noqa: ANN401 - from a file that anyone may have written
    """Check that an array has finite numbers from ``least`` on, and return it."""
    numbers: FloatArray = np.asarray(values, dtype=np.float64)
    if not ((numbers >= least) & (numbers < np.inf)).all():
        raise SizeError("the model contains a value that is no number")
    return numbers


def _groups(coarsening: Coarsening, codes: int) -> int:
    """Check that a coarsening has the given number of codes, and return the number of its groups."""
    if coarsening.groups.shape != (codes,) or not 0 <= coarsening.groups.min() <= coarsening.groups.max() < codes:
        raise SizeError(f"the model has groups that are not those of {codes} codes")
    return coarsening.size


def _codes(codes: object, size: int) -> bool:
    return (
        isinstance(codes, Collection)
        and len(codes) > 0
        and all(isinstance(code, int | np.integer) and 0 <= code < size for code in codes)
    )


def expected_errors(measured: Sequence[Measured]) -> dict[str, float]:
    """Return the median standard deviation of the noise on a measured cell, by the number of attributes.

    This is the noise before the fit.  The cells of a group share one noise.
    """
    deviations_by_size: dict[int, list[float]] = {}
    for table in measured:
        deviations_by_size.setdefault(len(table.attributes), []).append(table.deviation)
    noise = "standard deviation of the noise on a measured cell"
    return {
        f"{noise}, median of {len(deviations)} {ways}-way tables": float(np.median(deviations))
        for ways, deviations in sorted(deviations_by_size.items())
    }
