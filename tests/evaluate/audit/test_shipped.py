from __future__ import annotations

import pytest

from sfumato.errors import InputError
from sfumato.evaluate.audit.audit import audit, audit_all
from sfumato.evaluate.audit.shipped import chosen, subjects, tightest_mu
from sfumato.privacy.entropy import OsEntropy, SimulatedEntropy
from sfumato.privacy.gaussian import DiscreteGaussian

NAMES = tuple(subjects(OsEntropy()))
ERROR = 1e-3 / len(NAMES)
IDLE = {"gaussian-rho", "stability-new-key"}  # whose bound stays far below the claim


@pytest.mark.parametrize("name", NAMES)
def test_every_shipped_mechanism_passes_an_audit_that_has_power(name):
    """The bound comes near the claim, so a mechanism with a fifth of its loss would not give it.

    The draws are the same at each run, so there is no false alarm; the long audit has fresh ones.
    """
    finding = audit(subjects(SimulatedEntropy(7))[name], draws=6400, error=ERROR)
    assert finding.passed, finding
    assert name in IDLE or finding.proven > finding.claimed / 5, finding


@pytest.mark.slow
def test_every_shipped_mechanism_passes_a_long_audit():
    for finding in audit_all(chosen(["all"], OsEntropy()), draws=204_800):
        assert finding.passed, finding


def test_unknown_mechanisms_are_refused_by_name():
    with pytest.raises(InputError, match="no mechanism 'lapace'"):
        chosen(["laplace", "lapace"], OsEntropy())
    assert [subject.name for subject in chosen(["gaussian", "laplace"], OsEntropy())] == ["gaussian", "laplace"]


def test_mu_of_discrete_noise_tends_to_the_ratio_of_shift_and_sigma():
    assert tightest_mu(DiscreteGaussian(1), 1) == pytest.approx(1.0458, abs=1e-3)
    assert tightest_mu(DiscreteGaussian(10_000), 100) == pytest.approx(1, abs=1e-4)
    assert tightest_mu(DiscreteGaussian(100), 20) == pytest.approx(2, abs=1e-2)
