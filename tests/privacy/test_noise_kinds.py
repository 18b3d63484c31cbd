"""Every mechanism satisfies the contract of noise, and every registry lists it."""

from fractions import Fraction
from importlib import import_module
from inspect import isabstract
from pathlib import Path

import numpy as np
import pytest

import sfumato.privacy
from sfumato.errors import LossError
from sfumato.privacy.loss import Epsilon, Rho
from sfumato.privacy.noise import Noise
from sfumato.privacy.noise_kinds import NOISE_OF, NOISES, least_variance, noise_from_json

LOSSES = {Epsilon: Epsilon("0.3"), Rho: Rho("0.02")}


def test_every_mechanism_of_the_package_is_in_the_tuple():
    for path in Path(sfumato.privacy.__file__).parent.glob("*.py"):
        import_module(f"sfumato.privacy.{path.stem}")
    own = [kind for kind in Noise.__subclasses__() if kind.__module__.startswith("sfumato.") and not isabstract(kind)]
    assert set(own) == set(NOISES)
    assert len({kind.name for kind in NOISES}) == len(NOISES)
    assert all(isinstance(LOSSES[loss], kind.loss_type) for loss, kind in NOISE_OF.items())


@pytest.mark.parametrize("kind", NOISES)
def test_the_loss_of_noise_made_for_a_loss_is_that_loss(kind):
    for sensitivity in (1, 4, 9):
        noise = kind.for_loss(LOSSES[kind.loss_type], sensitivity)
        assert noise.loss(sensitivity) == LOSSES[kind.loss_type]
    for bad in (0, -1, True, 1.5):
        with pytest.raises(LossError):
            kind.for_loss(LOSSES[kind.loss_type], bad)


@pytest.mark.parametrize("kind", NOISE_OF.values())
def test_noise_of_releases_comes_back_from_its_json(kind):
    noise = kind.for_loss(LOSSES[kind.loss_type], 9)
    assert noise_from_json(noise.to_json()) == noise


@pytest.mark.parametrize("kind", NOISES)
def test_log_likelihood_is_that_of_the_probabilities(kind):
    noise = kind.for_loss(LOSSES[kind.loss_type], 9)
    found = noise.log_likelihood(np.array([3.0, -5.0])) - noise.log_likelihood(np.array([0.0, 14.0]))
    assert found == pytest.approx(np.log(noise.pmf(3) * noise.pmf(5) / noise.pmf(0) / noise.pmf(14)))


def test_stored_noise_is_written_as_ever():
    assert noise_from_json(["discrete Gaussian", "3.5"]).to_json() == ["discrete Gaussian", "3.5"]
    assert noise_from_json(["discrete Laplace", "1/3"]).parameters == (Fraction(1, 3),)
    with pytest.raises(LossError, match="no release adds noise called 'uniform'"):
        noise_from_json(["uniform", "1"])


@pytest.mark.parametrize("loss", [*LOSSES.values(), Epsilon(3)])
def test_the_noise_of_least_variance_is_no_wider_than_any(loss):
    for sensitivity in (1, 5):
        best = least_variance(loss, sensitivity)
        squared = best.sensitivity_norm == "l2_squared"
        assert best.loss(sensitivity**2 if squared else sensitivity) == loss
        shown = NOISE_OF[type(loss)].for_loss(loss, sensitivity**2 if isinstance(loss, Rho) else sensitivity)
        assert best.variance <= shown.variance
