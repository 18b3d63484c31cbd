"""A ledger that is made by the first release that fits it."""

import pytest
from tests.ledger.asking import ROW, question

from sfumato.errors import BudgetError
from sfumato.ledger import DeferredLedger
from sfumato.privacy.loss import Epsilon, EpsilonDelta


def deferred(folder, limit):
    return DeferredLedger(f"sqlite:///{folder / 'new.ledger'}", "people", limit, limit, create=True)


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        (Epsilon("0.2"), r"has epsilon = 0.2 left of epsilon = 0.2, and this release asks for epsilon = 0.3"),
        (EpsilonDelta(1, "1e-6"), r"left of rho = 0.02\d+ .* as epsilon = 1, delta = 1e-06 is kept, .* rho = 0.045"),
    ],
)
def test_what_a_new_ledger_cannot_take_is_refused_in_its_measure_and_makes_none(limit, says, tmp_path):
    asked = deferred(tmp_path, limit).releasing(question(), Epsilon("0.3").charge, statement="x", unit=ROW)
    with pytest.raises(BudgetError, match=says), asked:
        pytest.fail("nothing may be computed")
    assert not list(tmp_path.iterdir())


def test_what_fits_makes_it(tmp_path):
    made = deferred(tmp_path, Epsilon("0.3"))
    with made.releasing(question(), Epsilon("0.3").charge, statement="x", unit=ROW) as reserved:
        reserved.settle(b"a")
    assert reserved.answered().charged
    with made.open() as ledger:
        assert ledger.limit == Epsilon("0.3")
        assert len(list(ledger.journal())) == 1
