"""Scores of linked tables: the total variation of joint distributions in families of parents and children.

A score is half the L1 distance of two normalized tables (0 to 1), averaged over combinations of columns.  A size is the
number of children of a parent that are read.  Two baselines calibrate the scores: the same units resampled (chance
alone), and two perfect tables whose children are assigned to random parents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import combinations, combinations_with_replacement, product

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Attribute, Categorical
from sfumato.evaluate.linked.table_tree import LinkedTable, Places

SIZE, GAP = "(children)", "(days since)"
GAPS = (0, 1, 2, 7, 14, 30, 60, 90, 180, 365, 730)
"""Days at which a new cell begins for the gap between two children."""

_MOST = 60  # combinations of columns per score
_CELLS = 64  # cells of a number or date; a larger attribute is judged in runs of neighboring cells
_DENSE = 1 << 21  # largest number of cells of a dense table
_PAIRS = 4_000_000  # largest number of sibling pairs


@dataclass(frozen=True)
class LinkScores:
    """Mean total variations; None if there is nothing to compare.

    Attributes:
        size: the number of children.
        parent1, parent2, parent3: one to three columns of the parents, including their number of children.
        child1, child2, child3: one to three columns of the children.
        cross2: a column of the parent with a column of the child.
        cross3: three columns of parent and child, at least one of each.
        sibling: a column of one child with a column of a sibling, in any order.
        sibling_same: the same column of two siblings.
        transition: a column of a child with a column of the next child.
        trigram: a column of three consecutive children.
    """

    size: float | None
    parent1: float | None
    parent2: float | None
    parent3: float | None
    child1: float | None
    child2: float | None
    child3: float | None
    cross2: float | None
    cross3: float | None
    sibling: float | None
    sibling_same: float | None
    transition: float | None
    trigram: float | None

    @property
    def worst(self) -> float:
        """The largest score."""
        return max(float(value) for each in fields(self) if (value := getattr(self, each.name)) is not None)


@dataclass(frozen=True, eq=False)
class LinkedPair:
    """Parents and their children as columns of codes.

    Attributes:
        parents: codes of the parents by column, including the number of children.
        children: codes of the children by column.
        owner: the parent of each child, ascending.
        has_order: whether the children of a parent are ordered.
    """

    parents: Mapping[str, Places]
    children: Mapping[str, Places]
    owner: Places
    has_order: bool

    @staticmethod
    def from_tables(parent: LinkedTable, child: LinkedTable) -> LinkedPair:
        """Return two levels, with large numeric columns in runs of cells.  Children ordered by date also have the gap
        in days.
        """
        size = np.bincount(child.owner, minlength=parent.length)
        parents = {each.name: _runs(each)[codes] for each, codes in zip(parent.attributes, parent.codes, strict=True)}
        children = {each.name: _runs(each)[codes] for each, codes in zip(child.attributes, child.codes, strict=True)}
        if child.days is not None:
            since = np.searchsorted(GAPS, np.diff(child.days, prepend=0), side="right")
            children[GAP] = np.where(_first(child.owner), 0, since)
        return LinkedPair(parents | {SIZE: size}, children, child.owner, child.order.by is not None)

    @staticmethod
    def sizes(parent: LinkedTable, child: LinkedTable) -> tuple[dict[str, int], dict[str, int]]:
        """Return the number of cells of each column of :meth:`from_tables`."""
        parents = {each.name: int(_runs(each)[-1]) + 1 for each in parent.attributes if each.size > 1}
        children = {each.name: int(_runs(each)[-1]) + 1 for each in child.attributes}
        if child.days is not None:
            children[GAP] = len(GAPS) + 1
        return parents | {SIZE: child.most + 1}, children

    @cached_property  # uncached, the evaluation of 180,000 families takes 1.28 times the CPU
    def of_parent(self) -> dict[str, Places]:
        """The columns of the parent of each child."""
        return {name: codes[self.owner] for name, codes in self.parents.items()}

    @cached_property  # uncached, the evaluation of 180,000 families takes 1.16 times the CPU
    def siblings(self) -> tuple[Places, Places]:
        """The pairs of siblings; of a sample of the parents if there are very many."""
        owner, count = self.owner, self.parents[SIZE]
        pairs = int((count * (count - 1) // 2).sum())
        rows = np.arange(len(owner))
        if pairs > _PAIRS:
            chosen = np.random.default_rng(0).random(len(count)) < _PAIRS / pairs
            rows = np.flatnonzero(chosen[owner])
        first, second = [], []
        for apart in range(1, int(count.max(initial=0))):
            same_parent = owner[rows[:-apart]] == owner[rows[apart:]]
            first.append(rows[:-apart][same_parent])
            second.append(rows[apart:][same_parent])
        none = np.zeros(0, dtype=np.int64)
        return np.concatenate([none, *first]), np.concatenate([none, *second])

    def runs(self, length: int) -> Places:
        """Return the children that are followed by at least ``length - 1`` more of the same parent."""
        last = max(0, len(self.owner) - length + 1)
        return np.flatnonzero(self.owner[:last] == self.owner[length - 1 :][:last])

    def dealt(self, generator: np.random.Generator) -> LinkedPair:
        """Return both tables unchanged, but with children assigned to random parents.

        Two separate releases without any error would have these scores.
        """
        size = generator.permutation(self.parents[SIZE])
        shuffled = generator.permutation(len(self.owner))
        return replace(
            self,
            parents={**self.parents, SIZE: size},
            children={name: codes[shuffled] for name, codes in self.children.items()},
            owner=np.repeat(np.arange(len(size)), size),
        )

    def independent(self, generator: np.random.Generator) -> LinkedPair:
        """Return every column shuffled independently."""
        size = generator.permutation(self.parents[SIZE])
        return replace(
            self,
            parents={name: generator.permutation(codes) for name, codes in self.parents.items()} | {SIZE: size},
            children={name: generator.permutation(codes) for name, codes in self.children.items()},
            owner=np.repeat(np.arange(len(size)), size),
        )


def _first(owner: Places) -> NDArray[np.bool_]:
    return np.asarray(np.diff(owner, prepend=-1) != 0)


def _runs(attribute: Attribute) -> Places:
    """Return the judged cell of each code: a run of neighboring cells for numbers and dates with many cells."""
    if isinstance(attribute, Categorical) or attribute.size <= _CELLS:
        return np.arange(attribute.size)
    width = -(-attribute.declared // _CELLS)
    runs = np.arange(attribute.declared) // width
    further = np.arange(attribute.size - attribute.declared)
    return np.concatenate([runs, runs[-1] + 1 + further])


Columns = tuple[tuple[Places, int], ...]
"""Columns of codes, each with its number of cells."""


@dataclass(frozen=True)
class _Cells:
    """A normalized table: dense, or sparse with the numbers of its non-empty cells."""

    shares: NDArray[np.float64]
    cells: Places | None = None
    empty: bool = False

    def distance(self, other: _Cells) -> float:
        """Return half the L1 distance; 1 if the other table has no rows."""
        if other.empty:
            return 1.0
        if self.cells is None or other.cells is None:
            return 0.5 * float(np.abs(self.shares - other.shares).sum())
        cells, place = np.unique(np.concatenate([self.cells, other.cells]), return_inverse=True)
        weights = np.concatenate([self.shares, -other.shares])
        return 0.5 * float(np.abs(np.bincount(place, weights=weights, minlength=len(cells))).sum())


def _tally(*parts: Columns) -> _Cells:
    """Return the normalized table of the rows of all parts; all parts have the same numbers of cells."""
    cells = math.prod(size for _, size in parts[0])
    numbers = []
    for part in parts:
        number = part[0][0].astype(np.int64)
        for codes, size in part[1:]:
            number = number * size + codes
        numbers.append(number)
    cell_numbers = np.concatenate(numbers) if len(numbers) > 1 else numbers[0]
    empty = not len(cell_numbers)
    rows = max(1, len(cell_numbers))
    if cells <= _DENSE:
        return _Cells(np.bincount(cell_numbers, minlength=cells) / rows, empty=empty)
    held, counts = np.unique(cell_numbers, return_counts=True)
    return _Cells(counts / rows, held, empty)


Recipe = tuple[tuple[str, ...], Callable[[LinkedPair], tuple[Columns, ...]]]
"""The names of columns, and a function from families to parts with these columns.  All parts are counted together."""


@dataclass(frozen=True)
class Compared:
    """The scores of one set of families, and distances per combination of columns.

    ``crosses`` are of a column of the parent with a column of the child.
    """

    scores: LinkScores
    crosses: Mapping[tuple[str, ...], float]
    siblings: Mapping[tuple[str, ...], float]
    transitions: Mapping[tuple[str, ...], float]


def scores(
    real: tuple[LinkedTable, LinkedTable], others: Mapping[str, LinkedPair], *, seed: int
) -> dict[str, Compared]:
    """Return the scores of several sets of families against real ones.

    Args:
        real: parents and children.
        others: the sets of families by name.
        seed: samples 60 combinations of columns per score if there are more.
    """
    truth, (parents, children) = LinkedPair.from_tables(*real), LinkedPair.sizes(*real)
    luck = np.random.default_rng(seed)
    by_name: dict[str, dict[str, dict[tuple[str, ...], float]]] = {name: {} for name in others}
    for measure, recipes in _Recipes(parents, children).by_score().items():
        chosen = recipes
        if len(recipes) > _MOST:
            chosen = [recipes[place] for place in np.sort(luck.choice(len(recipes), _MOST, replace=False))]
        if measure in _OF_ORDER and not truth.has_order:
            chosen = []
        distances: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in others}
        for columns, take in chosen:
            table = _tally(*take(truth))
            if table.empty:
                continue
            for name, other in others.items():
                distances[name][columns] = table.distance(_tally(*take(other)))
        for name, values in distances.items():
            by_name[name][measure] = values
    return {name: _compared(values) for name, values in by_name.items()}


def _compared(distances: Mapping[str, Mapping[tuple[str, ...], float]]) -> Compared:
    means = {measure: float(np.mean([*values.values()])) if values else None for measure, values in distances.items()}
    return Compared(LinkScores(**means), distances["cross2"], distances["sibling"], distances["transition"])


_OF_ORDER = ("transition", "trigram")


@dataclass(frozen=True)
class _Recipes:
    """The columns that each score counts, given the number of cells of every column."""

    parents: Mapping[str, int]
    children: Mapping[str, int]

    def by_score(self) -> dict[str, list[Recipe]]:
        """Return the recipes of every score of :class:`LinkScores`."""
        parents, children = self.parents, self.children
        threes = [self.across((one,), pair) for one, pair in product(parents, combinations(children, 2))]
        threes += [self.across(pair, (one,)) for pair, one in product(combinations(parents, 2), children)]
        return {
            "size": [self.of_parents(SIZE)],
            **{f"parent{n}": [self.of_parents(*names) for names in combinations(parents, n)] for n in (1, 2, 3)},
            **{f"child{n}": [self.of_children(*names) for names in combinations(children, n)] for n in (1, 2, 3)},
            "cross2": [self.across((one,), (other,)) for one, other in product(parents, children)],
            "cross3": threes,
            "sibling": [self.of_siblings(*pair) for pair in combinations_with_replacement(children, 2)],
            "sibling_same": [self.of_siblings(name, name) for name in children],
            "transition": [self.in_order(*pair) for pair in product(children, children)],
            "trigram": [self.in_order(name, name, name) for name in children],
        }

    def of_parents(self, *names: str) -> Recipe:
        """Return a recipe for columns of the parents."""
        return names, lambda edge: (tuple((edge.parents[name], self.parents[name]) for name in names),)

    def of_children(self, *names: str) -> Recipe:
        """Return a recipe for columns of the children."""
        return names, lambda edge: (tuple((edge.children[name], self.children[name]) for name in names),)

    def across(self, high: tuple[str, ...], low: tuple[str, ...]) -> Recipe:
        """Return a recipe for columns of a child and of its parent."""
        return (*high, *low), lambda edge: (
            tuple((edge.of_parent[name], self.parents[name]) for name in high)
            + tuple((edge.children[name], self.children[name]) for name in low),
        )

    def of_siblings(self, one: str, other: str) -> Recipe:
        """Return a recipe for a column of each of two siblings, in both directions because order is ignored."""

        def take(edge: LinkedPair) -> tuple[Columns, ...]:
            first, second = edge.siblings
            return tuple(
                ((edge.children[one][a], self.children[one]), (edge.children[other][b], self.children[other]))
                for a, b in ((first, second), (second, first))
            )

        return (one, other), take

    def in_order(self, *names: str) -> Recipe:
        """Return a recipe for a column of each of several consecutive children."""

        def take(edge: LinkedPair) -> tuple[Columns, ...]:
            start = edge.runs(len(names))
            codes = (edge.children[name][start + place] for place, name in enumerate(names))
            return (tuple(zip(codes, map(self.children.__getitem__, names), strict=True)),)

        return names, take
