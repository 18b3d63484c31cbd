"""Attacks on whole families: membership of a family, and inference of a sibling of a known child.

A family is one row: the parent's codes, the number of children, and the codes of the first children.  Children are
sorted by their codes, independently of their order in a release.  Success counts only beyond the success on families of
the same population that are not in the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import TableError
from sfumato.evaluate.intervals import FEWEST_TESTED, Advantage, advantage
from sfumato.evaluate.linked.linked_scores import SIZE, Compared, LinkedPair, scores
from sfumato.evaluate.linked.table_tree import LinkedTable, Places, RowsRead, TableTree
from sfumato.evaluate.released import Claim

_CHILDREN = 4  # children of a family that attackers compare
_TARGETS = 400  # families of each kind, half to fit and half to test
_RELEASED = 60_000  # released families that are compared with a target
_CHUNK = 1 << 24
_KNOWN = "the whole family: the parent, how many children, the first {} of them"
_SIBLING = "the parent, and one child"


@dataclass(frozen=True, eq=False)
class LaidOut:
    """Families as rows: the parent's columns and size, then the columns of each child; -1 for a missing child."""

    rows: NDArray[np.int16]
    parents: int
    children: int
    slots: int

    def __len__(self) -> int:
        return len(self.rows)


def lay_out(parent: LinkedTable, child: LinkedTable) -> LaidOut:
    """Return families as rows.  Children are sorted by all of their codes, so that equal families are equal rows."""
    edge = LinkedPair.from_tables(parent, child)
    parents, children = list(edge.parents), list(edge.children)
    slots = min(_CHILDREN, child.most)
    order = np.lexsort((*(edge.children[name] for name in reversed(children)), edge.owner))
    owner = edge.owner[order]
    count = edge.parents[SIZE]
    at = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    near = at < slots
    rows = np.full((parent.length, len(parents) + slots * len(children)), -1, dtype=np.int16)
    for place, name in enumerate(parents):
        rows[:, place] = edge.parents[name]
    for place, name in enumerate(children):
        rows[owner[near], len(parents) + at[near] * len(children) + place] = edge.children[name][order[near]]
    return LaidOut(rows, len(parents), len(children), slots)


def copied(released: LaidOut, other: LaidOut, *, fewest: int = 3) -> float | None:
    """Return the share of released families with at least ``fewest`` children that ``other`` contains.

    The result is None if the release has no such family.
    """
    size = released.parents - 1
    large = released.rows[released.rows[:, size] >= fewest]
    if not len(large):
        return None
    _, place = np.unique(np.concatenate([other.rows, large]), axis=0, return_inverse=True)
    return float(np.isin(place.ravel()[len(other) :], place.ravel()[: len(other)]).mean())


def _attack_linked_tables(
    release: TableTree, members: TableTree, controls: TableTree, *, claim: Claim, seed: int
) -> tuple[Advantage, ...]:
    """Run the attacks of membership and of sibling inference for every table of children.

    Args:
        release: the tables that an outsider sees.
        members: the tables that it was made from.
        controls: tables of other units of the same population.
        claim: the guarantee of the release, for the bound.
        seed: chooses targets and drives the attackers' random guesses.

    Raises:
        TableError: fewer than 40 families of each kind.
    """
    results = []
    for edge, mine, others in zip(release.edges(), members.edges(), controls.edges(), strict=True):
        child = edge[1]
        luck = np.random.default_rng(seed)
        seen, inside, outside = lay_out(*edge), lay_out(*mine), lay_out(*others)
        many = min(_TARGETS, len(inside), len(outside))
        if many < 2 * FEWEST_TESTED:
            raise TableError(f"attacks need at least {2 * FEWEST_TESTED} families of each kind", culprit=many)
        if not len(seen):
            continue
        sample = seen.rows[luck.permutation(len(seen))[:_RELEASED]]
        targets = [each.rows[luck.permutation(len(each))[:many]] for each in (inside, outside)]
        results.append(_membership(sample, targets, seen, child.name))
        inferred = _inference(sample, targets, seen, child, luck)
        if inferred is not None:
            results.append(inferred)
    if claim.loss is None:
        return tuple(results)
    return tuple(replace(each, bound=claim.loss.advantage_bound()) for each in results)


def _membership(released: NDArray[np.int16], targets: list[NDArray[np.int16]], laid: LaidOut, child: str) -> Advantage:
    """Guess that a family is in the table if the nearest released family is closer than a threshold.

    The threshold is fitted on one half of the targets and tested on the other.
    """
    scores = [_closeness(released, each) for each in targets]
    half = len(scores[0]) // 2
    fitted = [each[:half] for each in scores]
    candidates = np.unique(np.concatenate(fitted))
    gains = [float((fitted[0] >= each).mean() - (fitted[1] >= each).mean()) for each in candidates]
    threshold = candidates[int(np.argmax(gains))]
    guesses = [each[half : 2 * half] >= threshold for each in scores]
    return advantage(f"membership of a family ({child})", _KNOWN.format(laid.slots), *guesses)


def _closeness(released: NDArray[np.int16], targets: NDArray[np.int16]) -> NDArray[np.float64]:
    """Return the most columns that a released family shares with each target, plus a fraction for ties.

    The fraction rises with the number of families that share this many columns.
    """
    closeness = np.empty(len(targets))
    step = max(1, _CHUNK // max(1, len(released)))
    for start in range(0, len(targets), step):
        equal = _equal(released, targets[start : start + step], range(released.shape[1]))
        best = equal.max(axis=1)
        many = (equal == best[:, None]).sum(axis=1)
        closeness[start : start + step] = best + np.log1p(many) / (1 + np.log1p(len(released)))
    return closeness


def _equal(released: NDArray[np.int16], targets: NDArray[np.int16], columns: range) -> NDArray[np.uint8]:
    """Return the number of equal columns per target and released family: shape ``(targets, families)``."""
    equal = np.zeros((len(targets), len(released)), dtype=np.uint8)
    for column in columns:
        equal += targets[:, column, None] == released[None, :, column]
    return equal


def _inference(
    released: NDArray[np.int16],
    targets: list[NDArray[np.int16]],
    laid: LaidOut,
    child: LinkedTable,
    luck: np.random.Generator,
) -> Advantage | None:
    """Guess a column of the second child from the nearest released families by parent and first child.

    The column is the last one of the children that has at least two cells.
    """
    if laid.slots < 2:  # noqa: PLR2004
        return None
    secret = max((place for place, each in enumerate(child.attributes) if each.size > 1), default=0)
    column = laid.parents + laid.children + secret
    pairs = released[released[:, column] >= 0]
    with_sibling = [each[each[:, column] >= 0] for each in targets]
    many = min(len(each) for each in with_sibling)
    if many < FEWEST_TESTED or not len(pairs):
        return None
    known = range(laid.parents + laid.children)
    guesses = []
    for each in with_sibling:
        right = np.empty(many, dtype=np.bool_)
        step = max(1, _CHUNK // max(1, len(pairs)))
        for start in range(0, many, step):
            some = each[:many][start : start + step]
            equal = _equal(pairs, some, known)
            nearest = equal == equal.max(axis=1)[:, None]
            for place, near in enumerate(nearest):
                votes = np.bincount(pairs[near, column])
                best = np.flatnonzero(votes == votes.max())
                right[start + place] = luck.choice(best) == some[place, column]
        guesses.append(right)
    name = child.attributes[secret].name if child.attributes else ""
    return advantage(f"inference of a sibling's {name} ({child.name})", _SIBLING, *guesses)


Edge: TypeAlias = tuple[LinkedTable, LinkedTable]
"""A table of parents and the table of their children."""

RELEASE = "release"
RESAMPLED, DEALT, INDEPENDENT = "the same units drawn again", "children dealt at random", "independent columns"


@dataclass(frozen=True, eq=False)
class EdgeResult:
    """The scores of a table of children with the table of its parents.

    Attributes:
        parents, children: the tables.
        compared: the release and the baselines, by name.
        real_sizes, sizes: share of the parents by their number of children; the first is exact.
        copies: share of the released families with three children or more that equal a family in one half of the real
            table, and the share that equal one in the other half (chance).  None if no family is that large.
    """

    parents: str
    children: str
    compared: Mapping[str, Compared]
    real_sizes: tuple[float, ...]
    sizes: tuple[float, ...]
    copies: tuple[float, float] | None


@dataclass(frozen=True, eq=False)
class LinkedResult:
    """The result of an evaluation of linked tables.

    Attributes:
        edges: every table of children.
        units: numbers of units in the real tables and in the release.
        real, released: read and skipped rows of each file.
        claim: the guarantee; None if there is no statement.
        attacks: on families; empty without other units of the same population.
    """

    edges: tuple[EdgeResult, ...]
    units: tuple[int, int]
    real: Mapping[str, RowsRead]
    released: Mapping[str, RowsRead]
    claim: Claim | None
    attacks: tuple[Advantage, ...] = ()

    @property
    def broken(self) -> int:
        """The number of released rows that violate the schema."""
        return sum(read.rows - read.judged for read in self.released.values())

    def to_json(self, *, internal: bool = False) -> dict[str, Any]:
        """Return JSON values, with exact sizes and numbers of rows only if ``internal``."""
        edges = [
            {
                "parents": edge.parents,
                "children": edge.children,
                "scores": {name: asdict(each.scores) for name, each in edge.compared.items()},
                "siblings": _listed(edge.compared[RELEASE].siblings),
                "transitions": _listed(edge.compared[RELEASE].transitions),
                "sizes": edge.sizes,
                **({"real_sizes": edge.real_sizes} if internal else {}),
                "copies": None if edge.copies is None else {"release": edge.copies[0], "chance": edge.copies[1]},
            }
            for edge in self.edges
        ]
        attacks = [
            {
                "attack": each.attack,
                "attacker knows": each.knowledge,
                "members": each.members.value,
                "controls": each.controls.value,
                "advantage": each.value,
                "low": each.interval.low,
                "high": each.interval.high,
                "bound": each.bound,
            }
            for each in self.attacks
        ]
        return {
            "claim": None if self.claim is None else str(self.claim),
            "units": {"release": self.units[1], **({"real": self.units[0]} if internal else {})},
            "edges": edges,
            "released": {name: {**asdict(read), "kept": read.judged} for name, read in self.released.items()},
            **({"real": {name: {**asdict(r), "kept": r.judged} for name, r in self.real.items()}} if internal else {}),
            "attacks": attacks,
        }


def _listed(distances: Mapping[tuple[str, ...], float]) -> list[dict[str, Any]]:
    return [{"columns": list(names), "off by": value} for names, value in distances.items()]


def judge_linked_tables(
    real: TableTree,
    release: TableTree,
    *,
    claim: Claim | None = None,
    controls: TableTree | None = None,
    seed: int = 0,
) -> LinkedResult:
    """Score a release of linked tables against its baselines.

    Args:
        real: the tables that it was made from, from ``read_table_tree``.
        release: the released tables, read with the same schema.
        claim: the guarantee of the release.
        controls: other units of the same population, for attacks; None skips attacks.
        seed: chooses baselines, columns and targets.

    Raises:
        TableError: the tables differ, or there are no units.
    """
    _refuse_other_tables(real, release)
    luck = np.random.default_rng(seed)
    drawn = real.taken(luck.integers(0, real.units, real.units))
    half = luck.permutation(real.units) < real.units // 2
    halves = real.taken(np.flatnonzero(half)), real.taken(np.flatnonzero(~half))
    edges = zip(*(each.edges() for each in (real, release, drawn, *halves)), strict=True)
    results = tuple(_judge_edge(edge, others, luck, seed=seed) for edge, *others in edges)
    attacks: tuple[Advantage, ...] = ()
    if controls is not None:
        attacks = _attack_linked_tables(release, real, controls, claim=claim or Claim(), seed=seed)
    return LinkedResult(
        edges=results,
        units=(real.units, release.units),
        real={level.name: level.read for level in real.levels},
        released={level.name: level.read for level in release.levels},
        claim=claim,
        attacks=attacks,
    )


def _judge_edge(edge: Edge, others: Sequence[Edge], luck: np.random.Generator, *, seed: int) -> EdgeResult:
    """Compare parents and children with the release, with resampled units, and between both halves."""
    parent, child = edge
    release, drawn, one_half, other_half = others
    truth = LinkedPair.from_tables(parent, child)
    compared = {
        RELEASE: LinkedPair.from_tables(*release),
        RESAMPLED: LinkedPair.from_tables(*drawn),
        DEALT: truth.dealt(luck),
        INDEPENDENT: truth.independent(luck),
    }
    judged, one, other = (lay_out(*each) for each in (release, one_half, other_half))
    copies, chance = copied(judged, one), copied(other, one)
    return EdgeResult(
        parents=parent.name,
        children=child.name,
        compared=scores(edge, compared, seed=seed),
        real_sizes=_sizes(truth.parents[SIZE], child),
        sizes=_sizes(compared[RELEASE].parents[SIZE], child),
        copies=None if copies is None or chance is None else (copies, chance),
    )


def _refuse_other_tables(real: TableTree, release: TableTree) -> None:
    for each, words in ((real, "the table has"), (release, "the release has")):
        if not each.units:
            raise TableError(f"{words} no units", culprit=None)
    if [level.name for level in real.levels] != [level.name for level in release.levels]:
        raise TableError("the release has other tables than those it is judged by", culprit=None)
    if len(real.levels) == 1:
        raise TableError("no table of children is there to judge; a single table is judged by evaluate --domain")


def _sizes(size: Places, child: LinkedTable) -> tuple[float, ...]:
    return tuple((np.bincount(size, minlength=child.most + 1) / max(1, len(size))).tolist())
