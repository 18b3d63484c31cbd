"""Before and after a release: a loss that noise outweighs is reported, and a synthesizer is fitted and sampled."""

from __future__ import annotations

import numpy as np
import pytest

from sfumato.domain import Domain, Integer, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import InputError
from sfumato.privacy.loss import Epsilon
from sfumato.synthesize import NoisyTotal, PublicTotal, Synthesizer, drowned_totals, histogram
from sfumato.vault.simulated import SimulatedVault

DOMAIN = Domain((Integer(name="x", minimum=0, maximum=9, unknown=Unknown.CLAMP),))


def test_a_loss_at_which_noise_outweighs_the_table_is_said_beforehand() -> None:
    (said,) = drowned_totals(DOMAIN, Epsilon("0.01"), PublicTotal(250))  # a count is off by up to 300 rows
    assert "all of 250 rows" in said
    assert drowned_totals(DOMAIN, Epsilon("0.01"), PublicTotal(1000)) == ()
    assert drowned_totals(DOMAIN, Epsilon("0.01"), NoisyTotal()) == ()
    (said,) = drowned_totals(DOMAIN, Epsilon("0.001"), NoisyTotal())
    assert "a synthetic table of fewer rows is all noise" in said


def test_a_loss_that_leaves_nothing_for_a_column_is_said_beforehand() -> None:
    wide = Domain(tuple(Integer(name=f"x{n}", minimum=0, maximum=9, unknown=Unknown.CLAMP) for n in range(20)))
    (said,) = drowned_totals(wide, Epsilon("0.05"), NoisyTotal())  # a count of each is off by up to 1,198 rows
    assert said.startswith(
        "divided over 20 columns this loss leaves noise that may outweigh 1,198 rows in a count of each"
    )
    (said,) = drowned_totals(wide, Epsilon("0.05"), PublicTotal(1198))
    assert "all of 1,198 rows" in said
    assert drowned_totals(wide, Epsilon("0.05"), PublicTotal(1199)) == ()
    assert drowned_totals(wide, Epsilon("0.06"), NoisyTotal()) == ()
    few = Domain(wide.attributes[:3])  # as one table, which takes the whole loss
    assert drowned_totals(few, Epsilon("0.006"), NoisyTotal()) == ()


def test_a_synthesizer_is_fitted_and_sampled() -> None:
    vault = SimulatedVault(ArrayTable(DOMAIN, np.arange(200)[:, None] % 10), seed=1)
    synthesizer = Synthesizer(histogram, loss=Epsilon(1), total=PublicTotal(200))
    assert repr(synthesizer).startswith("Synthesizer(histogram, loss=")
    with pytest.raises(InputError, match="fit the synthesizer"):
        synthesizer.sample()
    with pytest.raises(InputError, match="a function of synthesize"):
        Synthesizer("histogram")  # type: ignore[arg-type]
    assert len(synthesizer.fit(vault).sample(7)) == 7
    assert len(synthesizer.sample()) == synthesizer.release.model.total == 200
    assert len(vault.reserved) == 1
