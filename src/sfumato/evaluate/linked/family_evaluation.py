"""A release of linked tables judged beside those it was made from: scores, baselines, copies, attacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from sfumato.errors import TableError
from sfumato.evaluate.intervals import Advantage
from sfumato.evaluate.linked.family_attacks import attack_families, copied, lay_out
from sfumato.evaluate.linked.family_scores import SIZE, Compared, FamilyEdge, scores
from sfumato.evaluate.linked.family_tables import Families, FamilyTable, Places, RowsRead
from sfumato.evaluate.released import Claim

RELEASE = "release"
RESAMPLED, DEALT, INDEPENDENT = "the same units drawn again", "children dealt at random", "independent columns"


@dataclass(frozen=True, eq=False)
class EdgeResult:
    """A table of children and that of its parents.

    Attributes:
        parents, children: the tables.
        compared: the release and the baselines, by name.
        real_sizes, sizes: share of the parents by their number of children; the first is exact.
        copies: share of the released families of three children or more that equal one of half of the real families;
            beside it the share among the other half, by chance alone.  None where there is none of that size.
    """

    parents: str
    children: str
    compared: Mapping[str, Compared]
    real_sizes: tuple[float, ...]
    sizes: tuple[float, ...]
    copies: tuple[float, float] | None


@dataclass(frozen=True, eq=False)
class FamilyResult:
    """What is known of a release of linked tables.

    Attributes:
        edges: every table of children.
        units: of the real tables and of the release.
        real, released: what became of the rows of each file.
        claim: the guarantee, None where nothing states one.
        attacks: on families; none without others of the same population.
    """

    edges: tuple[EdgeResult, ...]
    units: tuple[int, int]
    real: Mapping[str, RowsRead]
    released: Mapping[str, RowsRead]
    claim: Claim | None
    attacks: tuple[Advantage, ...] = ()

    @property
    def broken(self) -> int:
        """Rows of the release that break what the schema says."""
        return sum(read.rows - read.kept for read in self.released.values())

    def to_json(self, *, internal: bool = False) -> dict[str, Any]:
        """As JSON values; exact sizes and numbers of rows only where ``internal``."""
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
            "released": {name: {**asdict(read), "kept": read.kept} for name, read in self.released.items()},
            **({"real": {name: {**asdict(r), "kept": r.kept} for name, r in self.real.items()}} if internal else {}),
            "attacks": attacks,
        }


def _listed(distances: Mapping[tuple[str, ...], float]) -> list[dict[str, Any]]:
    return [{"columns": list(names), "off by": value} for names, value in distances.items()]


def judge_families(
    real: Families,
    release: Families,
    *,
    claim: Claim | None = None,
    controls: Families | None = None,
    seed: int = 0,
) -> FamilyResult:
    """Score a release of linked tables, beside what chance does and what two perfect tables without links reach.

    Args:
        real: those that it was made from, read by ``read_families``.
        release: read with the same schema.
        claim: what the release promises.
        controls: others of the same population, for attacks; None: no attacks.
        seed: of baselines, columns and targets.

    Raises:
        TableError: the tables differ, or there are no units.
    """
    for each, words in ((real, "the table has"), (release, "the release has")):
        if not each.units:
            raise TableError(f"{words} no units", culprit=None)
    if [level.name for level in real.levels] != [level.name for level in release.levels]:
        raise TableError("the release has other tables than those it is judged by", culprit=None)
    if len(real.levels) == 1:
        raise TableError("no table of children is there to judge; a single table is judged by evaluate --domain")
    luck = np.random.default_rng(seed)
    drawn = real.taken(luck.integers(0, real.units, real.units))
    half = luck.permutation(real.units) < real.units // 2
    halves = real.taken(np.flatnonzero(half)), real.taken(np.flatnonzero(~half))
    edges = []
    for place, (parent, child) in enumerate(real.edges()):
        truth = FamilyEdge.of(parent, child)
        seen = list(release.edges())[place]
        others = {
            RELEASE: FamilyEdge.of(*seen),
            RESAMPLED: FamilyEdge.of(*list(drawn.edges())[place]),
            DEALT: truth.dealt(luck),
            INDEPENDENT: truth.independent(luck),
        }
        one, other = (lay_out(*list(each.edges())[place]) for each in halves)
        shares = copied(lay_out(*seen), one), copied(other, one)
        edges.append(
            EdgeResult(
                parents=parent.name,
                children=child.name,
                compared=scores((parent, child), others, seed=seed),
                real_sizes=_sizes(truth.parents[SIZE], child),
                sizes=_sizes(others[RELEASE].parents[SIZE], child),
                copies=None if shares[0] is None or shares[1] is None else (shares[0], shares[1]),
            )
        )
    attacks: tuple[Advantage, ...] = ()
    if controls is not None:
        attacks = attack_families(release, real, controls, claim=claim or Claim(), seed=seed)
    return FamilyResult(
        edges=tuple(edges),
        units=(real.units, release.units),
        real={level.name: level.read for level in real.levels},
        released={level.name: level.read for level in release.levels},
        claim=claim,
        attacks=attacks,
    )


def _sizes(size: Places, child: FamilyTable) -> tuple[float, ...]:
    return tuple((np.bincount(size, minlength=child.most + 1) / max(1, len(size))).tolist())
