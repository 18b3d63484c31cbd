"""The marginals that a workload names: their weights, and whether exact inference has room for all of them.

A method that measures them first must be able to hold them in one junction tree.  All checks read the domain only, so a
refusal is free.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Categorical, Domain, Role
from sfumato.errors import QueryError, SizeError
from sfumato.model.factor import FloatArray
from sfumato.model.junction_tree import Clique, tree_cells
from sfumato.workload.counting_queries import Marginals

MOST_NAMED = 6
"""Largest number of attributes of a named marginal that a graphical model measures."""

_PAIR, _TRIPLE = 2, 3
_LEAST_CUTS = 64  # cells of an ordered attribute that are never joined to make room


def named_marginals(workload: Marginals, domain: Domain) -> dict[Clique, float]:
    """Return the named marginals of several attributes, in the domain's order, with their weights.

    >>> from sfumato.domain import Domain, Integer, Unknown
    >>> domain = Domain(tuple(Integer(name=n, minimum=0, maximum=1, unknown=Unknown.CLAMP) for n in "abc"))
    >>> named_marginals(Marginals(2, (("c", "a"), ("b",)), (4, 1)), domain)
    {('a', 'c'): 4.0}
    """
    named: dict[Clique, float] = {}
    for clique, weight in workload.named_weights():
        attributes = tuple(sorted(set(clique), key=domain.index))
        if len(attributes) > 1:
            named[attributes] = max(weight, named.get(attributes, 0.0))
    return named


def workload_cliques(workload: Marginals, domain: Domain) -> list[Clique]:
    """Return the workload's marginals with their attributes in the domain's order, each once.

    If the workload has all marginals of one size, a target attribute is added to each of them.
    """
    position = {name: index for index, name in enumerate(domain.names)}
    target = domain.in_role(Role.TARGET) if workload.ways is not None and len(domain) > 1 else None
    more = () if target is None else (target,)
    sorted_cliques = (
        tuple(sorted({*clique, *more}, key=position.__getitem__)) for clique in workload.marginal_attributes(domain)
    )
    return list(dict.fromkeys(sorted_cliques))


def relevant(cliques: Sequence[Clique], ways: int) -> dict[Clique, int]:
    """Return the marginals of ``ways`` attributes inside the marginals of a workload, with their weights.

    The weight of a marginal is the number of attributes that it shares with each marginal of the workload,
    summed (McKenna, Mullins, Sheldon, Miklau 2022, Section 3.2).

    >>> relevant([("a", "b"), ("b", "c")], 2), relevant([("a", "b"), ("b", "c")], 1)
    ({('a', 'b'): 3, ('b', 'c'): 3}, {('a',): 1, ('b',): 2, ('c',): 1})
    """
    parts = dict.fromkeys(part for clique in cliques for part in combinations(clique, ways))
    counts = Counter(name for clique in cliques for name in clique)
    return {part: sum(counts[name] for name in part) for part in parts}


@dataclass(frozen=True, eq=False)
class WeightedMarginals:
    """Marginals of equally many attributes and their weights, as arrays: 200 columns have 1.3 million triples.

    Attributes:
        names: the attributes of the domain.
        places: places of the attributes of each marginal, ascending, shape ``(marginals, attributes)``.
        weights: shape ``(marginals,)``.
    """

    names: Clique
    places: NDArray[np.int64]
    weights: FloatArray

    @staticmethod
    def of_cliques(names: Clique, ways: int, weights: Mapping[Clique, float]) -> WeightedMarginals:
        """Return marginals of ``ways`` attributes, each in the domain's order."""
        place = {name: index for index, name in enumerate(names)}
        places = np.array([place[name] for clique in weights for name in clique], dtype=np.int64)
        return WeightedMarginals(names, places.reshape(-1, ways), np.array([*weights.values()], dtype=np.float64))

    def __len__(self) -> int:
        return len(self.places)

    def at(self, chosen: NDArray[np.int64] | NDArray[np.bool_]) -> WeightedMarginals:
        """Return some of the marginals."""
        return WeightedMarginals(self.names, self.places[chosen], self.weights[chosen])

    def without(self, cliques: Iterable[Clique]) -> WeightedMarginals:
        """Return the marginals that are not among ``cliques``, which have their attributes in the domain's order."""
        ways = self.places.shape[1]
        left_out = self.of_cliques(self.names, ways, {clique: 1.0 for clique in cliques if len(clique) == ways})
        return self.at(~np.isin(self._numbers, left_out._numbers))  # noqa: SLF001

    @property
    def _numbers(self) -> NDArray[np.int64]:
        """A number for each marginal."""
        numbers: NDArray[np.int64] = self.places @ len(self.names) ** np.arange(self.places.shape[1])
        return numbers

    def cells(self, sizes: Mapping[str, int]) -> FloatArray:
        """Return the number of cells of each marginal."""
        cells: FloatArray = np.array([sizes[name] for name in self.names], dtype=np.float64)[self.places].prod(axis=1)
        return cells

    def pair_sums(self, values: Mapping[Clique, float]) -> FloatArray:
        """Return the sum of the values of the pairs in each marginal.  A pair without a value adds 0."""
        pairs = self.of_cliques(self.names, _PAIR, values)
        table = np.zeros((len(self.names), len(self.names)))
        table[tuple(pairs.places.T)] = pairs.weights
        sums = np.zeros(len(self))
        for one, other in combinations(self.places.T, _PAIR):
            sums += table[one, other]
        return sums

    def by_name(self) -> dict[Clique, float]:
        """Return the weights by the names of the attributes."""
        names = np.array(self.names, dtype=object)[self.places].tolist()
        return dict(zip(map(tuple, names), self.weights.tolist(), strict=True))


def _inside_all(domain: Domain, all_ways: int, ways: int) -> WeightedMarginals:
    """Return the marginals of ``ways`` attributes inside all marginals of ``all_ways`` attributes.

    A target attribute is in each of them.  Order and weights are those of :func:`relevant`, relative to the largest
    weight.  They are computed without a list of all marginals.
    """
    target = domain.in_role(Role.TARGET)
    places = np.array([*combinations(range(len(domain)), ways)], dtype=np.int64).reshape(-1, ways)
    is_target = np.zeros(places.shape, dtype=np.bool_) if target is None else places == domain.index(target)
    if ways > all_ways:
        places, is_target = places[is_target.any(axis=1)], is_target[is_target.any(axis=1)]
    if target is not None or ways < all_ways:
        order = np.lexsort([*places.T[::-1], *_first_around(places, is_target, all_ways).T[::-1]])
        places, is_target = places[order], is_target[order]
    # the target is in all n over k marginals, another attribute in k of n of them
    weights = np.where(is_target, len(domain), all_ways).sum(axis=1)
    return WeightedMarginals(domain.names, places, weights / weights.max(initial=1))


def _first_around(places: NDArray[np.int64], is_target: NDArray[np.bool_], ways: int) -> NDArray[np.int64]:
    """Return the first marginal of ``ways`` attributes that contains all of ``places`` but the target.

    It has the first attributes that are not among them.  Marginals are sorted by the places of their attributes.
    """
    beyond = np.iinfo(np.int64).max
    own = np.where(is_target, beyond, places)
    small = np.arange(ways)
    absent = (own[:, :, None] != small).all(axis=1)
    added = absent & (absent.cumsum(axis=1) <= ways - (own < beyond).sum(axis=1, keepdims=True))
    around = np.concatenate([own, np.where(added, small, beyond)], axis=1)
    around.sort(axis=1)
    return around[:, :ways]


REST = 0.25
"""Weight of a pair of columns if a workload only names marginals."""


@dataclass(frozen=True, eq=False)
class TargetMarginals:
    """The marginals that a release should preserve.

    Attributes:
        named: marginals that are measured in any case, with their weights.
        others: other marginals with their weights, by their number of attributes.
    """

    named: Mapping[Clique, float]
    others: Mapping[int, WeightedMarginals]

    @cached_property  # read several times in a release
    def pairs(self) -> Mapping[Clique, float]:
        """The pairs of attributes with their weights."""
        return self.others[_PAIR].by_name() if _PAIR in self.others else {}

    @property
    def most(self) -> int:
        """The largest number of attributes of the other marginals."""
        return max((size for size, weights in self.others.items() if len(weights)), default=1)

    @classmethod
    def of_workload(cls, workload: Marginals, domain: Domain) -> TargetMarginals:
        """Return the marginals of a workload around its targets.

        The parts of named marginals are targets if no others are.  A workload that only names marginals also has all
        pairs of columns, with the weight :data:`REST`.
        """
        named = named_marginals(workload, domain)
        all_ways = workload.all_ways(domain)
        most = min(all_ways + (domain.in_role(Role.TARGET) is not None), len(domain), _TRIPLE)
        if all_ways and most > 1:
            return cls(named, {ways: _inside_all(domain, all_ways, ways) for ways in range(_PAIR, most + 1)})
        pairs = dict.fromkeys(combinations(domain.names, _PAIR), REST) if workload.ways is None else {}
        weights = {**pairs, **_scaled(relevant(list(named), _PAIR))}
        return cls(named, {_PAIR: WeightedMarginals.of_cliques(domain.names, _PAIR, weights)})


def _scaled(weights: Mapping[Clique, int]) -> dict[Clique, float]:
    """Return weights relative to the largest."""
    largest = max(weights.values(), default=1)
    return {clique: weight / largest for clique, weight in weights.items()}


def column_weights(workload: Marginals, domain: Domain) -> tuple[float, ...]:
    """Return the weight of each column: that of a named marginal of the column alone, or 1."""
    weights = {clique[0]: weight for clique, weight in workload.named_weights() if len(set(clique)) == 1}
    return tuple(weights.get(name, 1.0) for name in domain.names)


def most_cuts(domain: Domain, named: Collection[Clique], *, cells: int, marginal: int) -> dict[str, int]:
    """Return the largest number of groups of ordered attributes with which the named marginals fit a junction tree.

    An attribute that needs no limit is left out.  The widest attributes are halved until the tree fits.

    Args:
        domain: the domain of the table.
        named: the named marginals.
        cells: the largest number of cells of the junction tree.
        marginal: the largest number of cells of one marginal, before groups are joined.

    Raises:
        QueryError: a marginal has too many attributes.
        SizeError: one marginal, or the junction tree of all, has too many cells.
    """
    for clique in named:
        _refuse_large(domain, clique, marginal)
    sizes = {name: domain[name].size for clique in named for name in clique}
    cuts = {name: domain[name].declared for name in sizes if not isinstance(domain[name], Categorical)}
    limited: dict[str, int] = {}
    while (needed := tree_cells(tuple(named), sizes)) > cells:
        widest = max(cuts, key=cuts.__getitem__, default=None)
        if widest is None or cuts[widest] <= _LEAST_CUTS:
            raise SizeError(_too_large(domain, named, needed, cells), culprit=needed)
        limited[widest] = max(_LEAST_CUTS, cuts[widest] // 2)
        sizes[widest] -= cuts[widest] - limited[widest]
        cuts |= limited
    return limited


def fit_together(domain: Domain, workload: Marginals, *, cells: int, marginal: int) -> bool:
    """Return True if a graphical model can measure all named marginals of a workload: see :func:`most_cuts`."""
    try:
        most_cuts(domain, named_marginals(workload, domain), cells=cells, marginal=marginal)
    except (QueryError, SizeError):
        return False
    return True


def _refuse_large(domain: Domain, clique: Clique, most: int) -> None:
    if len(clique) > MOST_NAMED:
        raise QueryError(
            f"the marginal of {_title(clique)} has {len(clique)} columns, and a marginal that is measured first has at "
            f"most {MOST_NAMED}; name fewer, or use --method histogram for these columns alone",
            culprit=clique,
        )
    if (cells := math.prod(domain[name].size for name in clique)) > most:
        raise SizeError(
            f"the marginal of {_title(clique)} has {cells:,} cells, more than the {most:,} of one marginal; name "
            "fewer columns, or group their values by edges in the domain",
            culprit=clique,
        )


def _too_large(domain: Domain, named: Collection[Clique], needed: int, cells: int) -> str:
    """Say which named marginals do not fit: the largest one alone, or all together."""
    largest = max(named, key=lambda clique: math.prod(domain[name].size for name in clique))
    alone = math.prod(domain[name].size for name in largest)
    if len(named) == 1 or alone > cells:
        return (
            f"the marginal of {_title(largest)} has {alone:,} cells, more than the cap of {cells:,} cells for "
            "inference; name fewer columns, or group their values by edges in the domain"
        )
    return (
        f"the {len(named)} named marginals need {needed:,} cells of inference together, more than the cap of "
        f"{cells:,}; name fewer of them, or all marginals of a size (--way) instead"
    )


def _title(clique: Clique) -> str:
    return ", ".join(clique)
