"""A distribution over many attributes as a product of potentials on a junction tree.

Inference is exact, by two passes of messages over the tree (Shafer and Shenoy 1990, in the Hugin form of Jensen,
Lauritzen and Olesen 1990).  Potentials are logarithms.  So a cell can be impossible (minus infinity: a structural
zero), and a fit can recover a cell that was almost empty.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sfumato.errors import InfeasibleError
from sfumato.model.factor import Factor, FloatArray, sum_all
from sfumato.model.junction_tree import Clique, JunctionTree, junction_tree

_LEAST = float(np.finfo(np.float64).tiny)
_PAIR = 2
_SURE = 1e-150  # a sum of probabilities above which underflow does not matter


@dataclass(frozen=True, eq=False)
class GraphicalModel:
    """The log potentials over cliques of attributes, with the number of cells of each, and an expected row count.

    The probability of a row is proportional to the exponential of the sum of its log potentials.
    """

    sizes: Mapping[str, int]
    factors: tuple[Factor, ...]
    total: float

    @staticmethod
    def uniform(sizes: Mapping[str, int], cliques: Sequence[Clique], total: float) -> GraphicalModel:
        """Return a model in which every cell is equally likely, with a potential for each clique."""
        return GraphicalModel(dict(sizes), tuple(Factor.full(clique, sizes, 0.0) for clique in cliques), total)

    @cached_property  # uncached, synthesizing the adult table at epsilon 1 takes 28 % more CPU time
    def tree(self) -> JunctionTree:
        """Return a junction tree that contains every potential."""
        return junction_tree([factor.attributes for factor in self.factors], self.sizes)

    @cached_property
    def beliefs(self) -> tuple[FloatArray, ...]:
        """Return the probabilities of the cells of each clique; neighboring cliques agree on their separator.

        Raises:
            InfeasibleError: the structural zeros leave no cell possible.
        """
        calibrated = calibrate(self.tree, self.factors, self.sizes)
        if calibrated is None:
            raise InfeasibleError("no combination of cells is possible under these structural zeros or conditions")
        return calibrated

    def probabilities(self, attributes: Sequence[str]) -> Factor:
        """Return the marginal distribution of any attributes, in the order given.

        If no clique contains them, memory grows with their cells times the cells of the cliques between them.
        """
        holder = self.tree.holder(attributes)
        if holder is not None:
            return Factor(self.tree.cliques[holder], self.beliefs[holder]).project(attributes)
        return _across(self.tree, self.beliefs, tuple(attributes))

    def expected(self, attributes: Sequence[str]) -> FloatArray:
        """Return the expected counts of a marginal: ``total`` times its probabilities, one axis for each attribute."""
        table: FloatArray = self.total * self.probabilities(attributes).values
        return table

    def times(self, factor: Factor) -> GraphicalModel:
        """Return the model with one more log potential; minus infinity makes a cell impossible (a structural zero)."""
        return replace(self, factors=(*self.factors, factor))

    def given(self, log_shares: Mapping[str, FloatArray]) -> GraphicalModel:
        """Condition the model: a row is accepted with the probability of its cell of each named attribute.

        ``log_shares`` are logarithms of these probabilities, shape ``(cells,)``.  ``total`` becomes the expected number
        of accepted rows.

        Raises:
            InfeasibleError: no row would be accepted.
        """
        model = self
        for name, shares in log_shares.items():
            share = float(np.exp(shares) @ model.probabilities((name,)).values)
            if not share > 0:
                raise InfeasibleError(f"no row of the model meets the condition on {name!r}", culprit=name)
            model = replace(model.times(Factor((name,), shares)), total=model.total * share)
        return model


def calibrate(tree: JunctionTree, factors: Sequence[Factor], sizes: Mapping[str, int]) -> tuple[FloatArray, ...] | None:
    """Return the clique marginals of the distribution with these log potentials; None if no cell has positive mass.

    Messages are sums of probabilities.  If they may underflow, as in a model that was fitted to noise far above its
    total, messages are logarithms.
    """
    calibrated = _by_sums(tree, factors, sizes)
    return _by_logarithms(tree, factors, sizes) if calibrated is None else calibrated


def _by_sums(tree: JunctionTree, factors: Sequence[Factor], sizes: Mapping[str, int]) -> tuple[FloatArray, ...] | None:
    """Return the clique marginals, or None if the remaining mass is so small that underflow would matter."""
    tables = _tables(tree, factors, sizes)
    for child, parent in reversed(list(enumerate(tree.parents))):
        if parent < 0:
            continue
        own, above = tree.links[child]
        sums = tables[child].sum(axis=own.summed)
        most = float(sums.max())
        if not most > _SURE:
            return None
        tables[child] *= _inverse(sums)[own.expanded]
        tables[parent] *= np.where(sums >= _LEAST, sums / most, 0.0)[above.expanded]
    for index, parent in enumerate(tree.parents):
        if parent >= 0:
            own, above = tree.links[index]
            tables[index] *= tables[parent].sum(axis=above.summed)[own.expanded]
        elif (mass := float(tables[index].sum())) > _SURE:
            tables[index] /= mass
        else:
            return None
    return tuple(tables)


def _by_logarithms(
    tree: JunctionTree, factors: Sequence[Factor], sizes: Mapping[str, int]
) -> tuple[FloatArray, ...] | None:
    """Return the clique marginals, or None if no cell is possible."""
    tables = _log_tables(tree, factors, sizes)
    for child, parent in reversed(list(enumerate(tree.parents))):
        if parent >= 0:
            sums = _log_sums(tree.cliques[child], tables[child], tree.separators[child])
            finite = np.where(np.isfinite(sums.values), sums.values, 0.0)  # the others are impossible anyway
            tables[child] = tables[child] - Factor(sums.attributes, finite).expand(tree.cliques[child])
            tables[parent] = tables[parent] + sums.expand(tree.cliques[parent])
    for index, parent in enumerate(tree.parents):
        clique = tree.cliques[index if parent < 0 else parent]
        carried = _log_sums(clique, tables[index if parent < 0 else parent], tree.separators[index])
        if parent >= 0:
            tables[index] = tables[index] + carried.expand(tree.cliques[index])
        elif np.isfinite(carried.values):
            tables[index] = tables[index] - carried.values
        else:
            return None
    return tuple(np.exp(table) for table in tables)


def _log_sums(clique: Clique, table: FloatArray, separator: Clique) -> Factor:
    """Sum a table of logarithms over all attributes outside a separator; the sums are logarithms."""
    attributes = tuple(name for name in clique if name in separator)
    others = tuple(place for place, name in enumerate(clique) if name not in separator)
    most = table.max(axis=others, keepdims=True)
    most = np.where(np.isfinite(most), most, 0.0)
    with np.errstate(divide="ignore"):  # minus infinity for an impossible cell
        sums = np.log(np.exp(table - most).sum(axis=others, keepdims=True)) + most
    return Factor(attributes, sums.squeeze(axis=others))


def _tables(tree: JunctionTree, factors: Sequence[Factor], sizes: Mapping[str, int]) -> list[FloatArray]:
    """Return the exponentials of the sums of potentials, one table for each clique with a largest cell of one."""
    tables = _log_tables(tree, factors, sizes)
    for table in tables:
        most = float(table.max())
        np.subtract(table, most if np.isfinite(most) else 0.0, out=table)
        np.exp(table, out=table)
    return tables


def _log_tables(tree: JunctionTree, factors: Sequence[Factor], sizes: Mapping[str, int]) -> list[FloatArray]:
    """Return the sums of potentials, one table for each clique."""
    held: list[list[Factor]] = [[] for _ in tree.cliques]
    for factor in factors:
        holder = tree.holder(factor.attributes)
        assert holder is not None
        held[holder].append(factor)
    return [
        sum_all(parts, {name: sizes[name] for name in clique}) for parts, clique in zip(held, tree.cliques, strict=True)
    ]


def _inverse(sums: FloatArray) -> FloatArray:
    """Return the inverse of each sum, and zero if the inverse would be infinite."""
    inverse: FloatArray = np.divide(1.0, sums, out=np.zeros_like(sums), where=sums >= _LEAST)
    return inverse


def _across(tree: JunctionTree, beliefs: Sequence[FloatArray], attributes: Clique) -> Factor:
    """Return the joint distribution of attributes that no clique contains, by messages that retain them."""
    holders = [tree.holder((name,)) for name in attributes]
    alone = [beliefs[place] for place in holders if place is not None and len(tree.cliques[place]) == 1]
    if len(alone) == len(attributes) == _PAIR:  # before pairs are measured, all pairs are of two such cliques
        return Factor(attributes, np.multiply.outer(*alone))
    targets = set(attributes)
    inbox: list[list[Factor]] = [[] for _ in beliefs]
    joint = Factor((), np.ones(()))
    needed = _needed(tree, targets)
    for index in reversed(range(len(beliefs))):
        if not needed[index]:
            continue
        clique, separator, parent = tree.cliques[index], tree.separators[index], tree.parents[index]
        arrived = {name for factor in inbox[index] for name in factor.attributes}
        own = Factor(clique, beliefs[index])
        if parent >= 0 and needed[parent]:
            inverse = _inverse(own.project(separator).values)
            retained = set(separator) | (targets & (set(clique) | arrived))
            inbox[parent].append(_combine([own * Factor(separator, inverse), *inbox[index]], retained))
        else:
            joint = joint * _combine([own, *inbox[index]], targets)
    return joint.project(attributes)


def _needed(tree: JunctionTree, targets: set[str]) -> list[bool]:
    """Mark the cliques of the smallest subtrees that contain all targets, one subtree for each component."""
    # Sets of targets are bits of an integer.
    below, shared = [0] * len(tree.cliques), [0] * len(tree.cliques)
    for place, name in enumerate(targets):
        having = tree.having.get(name, frozenset())
        for index in having:
            below[index] |= 1 << place
            if tree.parents[index] in having:
                shared[index] |= 1 << place
    for index in reversed(range(len(below))):
        if tree.parents[index] >= 0:
            below[tree.parents[index]] |= below[index]
    component: list[int] = []
    for index, parent in enumerate(tree.parents):
        component.append(below[index] if parent < 0 else component[parent])
    # A clique matters if it has a target that its separator to the parent lacks, unless one child has all targets of
    # the component.
    brings = [bool(names & ~known) for names, known in zip(below, shared, strict=True)]
    needed = list(brings)
    for index, parent in enumerate(tree.parents):
        if parent >= 0 and brings[index] and below[index] == component[index]:
            needed[parent] = False
    return needed


def _combine(factors: Sequence[Factor], attributes: set[str]) -> Factor:
    """Multiply factors and sum over all other attributes than ``attributes``."""
    sizes = {
        name: size for factor in factors for name, size in zip(factor.attributes, factor.values.shape, strict=True)
    }
    wide = [name for name, size in sizes.items() if size > 1]  # axes of length one would only use up letters
    letters = {name: string.ascii_letters[place] for place, name in enumerate(wide)}  # 2^52 cells exceed any memory
    inputs = ",".join("".join(letters[name] for name in factor.attributes if name in letters) for factor in factors)
    output_attributes = tuple(name for name in sizes if name in attributes)
    output = "".join(letters[name] for name in output_attributes if name in letters)
    values = np.einsum(f"{inputs}->{output}", *(factor.values.squeeze() for factor in factors), optimize=True)
    return Factor(output_attributes, values.reshape([sizes[name] for name in output_attributes]))
