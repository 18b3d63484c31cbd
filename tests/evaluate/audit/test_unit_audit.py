"""Audits of whole units: what the vault counts of linked tables passes, and each planted fault is found.

The draws are the same at each run.  With fresh ones an honest mechanism would be rejected with probability 1e-3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from tests.families import VILLAGE, Family, frames, related

from sfumato.domain.linked_domain import WHOLE
from sfumato.engine.exact import reveal
from sfumato.engine.views.joined import open_tables
from sfumato.errors import InputError
from sfumato.evaluate.audit.audit import Finding, audit
from sfumato.evaluate.audit.unit_audit import gaussian_unit_subject, unit_subject
from sfumato.privacy.entropy import SimulatedEntropy
from sfumato.privacy.gaussian import DiscreteGaussian
from sfumato.privacy.loss import Rho
from sfumato.vault.unit_measurables import DerivedMarginal

MOST = 5
TABLES = related(MOST)
(TAIL,) = TABLES.derived
CELLS = ("persons.this.age", "persons.this.work")
OTHERS = [Family(0, ((3, 0), (2, 1), (1, 1))), Family(1, ()), Family(1, ((0, 0),))]
UNITS = {
    "most children in one cell": Family(0, ((2, 1),) * MOST),
    "each in its own cell": Family(0, tuple((age, 1) for age in range(MOST))),
    "two children": Family(1, ((1, 0), (1, 0))),
    "more than are kept": Family(1, ((2, 1),) * 20),
}
CLAIM = Rho("0.5")
DRAWS = 25_600

Count = Callable[[Sequence[Family]], np.ndarray]


def counted(families: Sequence[Family]) -> np.ndarray:
    """Return the vault's count."""
    opened = open_tables(VILLAGE, frames(families))
    return reveal(DerivedMarginal(TAIL, CELLS).count(opened.derive(TABLES)))


def homemade(weight: Callable[[int], int], *, cut: bool = True) -> Count:
    """The same counted by hand with other weights, or without cutting long families."""

    def count(families: Sequence[Family]) -> np.ndarray:
        cells = np.zeros((5, 3), dtype=np.int64)
        for family in families:
            ordered = sorted(family.children, key=lambda child: (child[0] == 4, -child[0]))
            for age, work in (ordered[:MOST] if cut else ordered)[1:]:
                cells[age, work] += weight(min(len(ordered), MOST))
        return cells.reshape(-1)

    return count


def audited(count: Count, unit: Family, *, whole: int = WHOLE, share: int = 1) -> Finding:
    """Audit noise for a sensitivity of ``whole`` that is too small by the factor ``share``."""
    counts = count(OTHERS), count([*OTHERS, unit])
    entropy = SimulatedEntropy(5)
    squared = whole**2 // share
    subject = gaussian_unit_subject("tail", counts, squared_sensitivity=squared, claim=CLAIM, entropy=entropy)
    return audit(subject, draws=DRAWS)


@pytest.mark.parametrize("name", UNITS)
def test_what_the_vault_counts_passes(name: str) -> None:
    finding = audited(counted, UNITS[name])
    assert finding.passed, finding


def test_the_worst_unit_comes_near_its_claim() -> None:
    finding = audited(counted, UNITS["most children in one cell"])
    assert finding.measure == "mu"
    assert 0.9 < finding.proven <= finding.claimed == pytest.approx(1.001)


def test_counting_by_hand_gives_what_the_vault_counts() -> None:
    by_hand = homemade(lambda number: WHOLE // max(2, number - 1))
    for unit in UNITS.values():
        assert np.array_equal(by_hand([*OTHERS, unit]), counted([*OTHERS, unit]))


@pytest.mark.parametrize(
    ("fault", "unit"),
    [
        (homemade(lambda _: WHOLE), "most children in one cell"),
        (homemade(lambda _: WHOLE), "each in its own cell"),
        (homemade(lambda number: WHOLE // max(2, number - 1), cut=False), "more than are kept"),
        (homemade(lambda number: WHOLE // max(1, number - 2)), "most children in one cell"),
    ],
    ids=["every row weighs all", "every row weighs all, in cells", "cut after counting", "one row too few divided by"],
)
def test_planted_faults_are_found(fault: Count, unit: str) -> None:
    finding = audited(fault, UNITS[unit])
    assert not finding.passed, finding
    assert finding.proven > 1.1


def test_weights_rounded_up_are_found_where_rounding_matters() -> None:
    whole, large = 60, Family(0, ((1, 1),) * 41)  # one of its rows would weigh 1.5
    up = audited(homemade(lambda _: -(-whole // 40), cut=False), large, whole=whole)
    down = audited(homemade(lambda _: whole // 40, cut=False), large, whole=whole)
    assert not up.passed
    assert down.passed


def test_half_the_noise_is_found() -> None:
    finding = audited(counted, UNITS["most children in one cell"], share=2)
    assert not finding.passed


def test_noise_of_any_kind_is_audited_by_rho() -> None:
    noise = DiscreteGaussian.for_loss(CLAIM, squared_sensitivity=4)
    entropy = SimulatedEntropy(1)
    counts = np.array([3, 0]), np.array([5, 0])
    honest = unit_subject("two", counts, add=lambda exact: noise.add(exact, entropy), claim=CLAIM)
    bare = unit_subject("none", counts, add=lambda exact: exact, claim=CLAIM)
    assert honest.mu is None
    assert audit(honest, draws=3200).passed
    assert not audit(bare, draws=3200).passed


def test_a_unit_that_adds_nothing_is_refused() -> None:
    same = counted(OTHERS)
    with pytest.raises(InputError, match="adds nothing"):
        gaussian_unit_subject("tail", (same, same), squared_sensitivity=1, claim=CLAIM, entropy=SimulatedEntropy(1))
