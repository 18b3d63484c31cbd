"""A ledger adds up losses of one unit, which it records for itself and in every entry."""

from __future__ import annotations

import pytest
from tests.ledger.asking import ROW, TENTH, behind_its_back, question, reserve, unfreeze
from tests.ledger.asking import release as released

from sfumato.domain import Unit
from sfumato.errors import BudgetError, LedgerError, LossError, UnitError
from sfumato.ledger import open_ledger
from sfumato.privacy.loss import Epsilon

PATIENT = Unit("patient", rows=3)


def of_unit(url, unit):
    return open_ledger(url, dataset="people", limit=Epsilon(1), unit=unit, create=True)


def release(ledger, number, unit, **terms):
    return released(ledger, question(number), TENTH, lambda: b"x", statement="pure", unit=unit, **terms)


def test_unit_and_neighbours_are_fields_of_every_charged_entry(url):
    with of_unit(url, PATIENT) as ledger:
        release(ledger, 1, PATIENT, analyst="ann")
        release(ledger, 1, PATIENT, analyst="bob")
        released(ledger, question(2), None, lambda: b"k", statement="no DP guarantee", unit=PATIENT)
        first, repeat, exact = ledger.journal()
        for entry in (first, repeat):
            assert (entry.unit, entry.neighbours) == (PATIENT, "add/remove")
        assert (exact.unit, exact.neighbours) == (None, None)
        assert ledger.unit == PATIENT
        ledger.verify()


def test_the_database_itself_refuses_another_unit(url):
    with of_unit(url, PATIENT):
        pass
    with pytest.raises(LedgerError):
        behind_its_back(url, "UPDATE ledger_dataset SET unit = NULL")


@pytest.mark.parametrize("other", [ROW, Unit("doctor", rows=3), Unit("Patient", rows=3)])
def test_another_kind_or_id_is_refused_and_nothing_is_charged(url, other):
    with of_unit(url, PATIENT) as ledger:
        before = ledger.verify()
        with pytest.raises(UnitError, match=r"adds up losses for .* patient .* and not for"):
            release(ledger, 1, other)
        assert ledger.verify() == before
    with pytest.raises(UnitError):
        of_unit(url, other)
    with of_unit(url, None) as ledger:
        assert ledger.unit == PATIENT


def test_an_id_is_refused_where_rows_are_the_unit(url):
    with of_unit(url, ROW) as ledger:
        with pytest.raises(UnitError):
            release(ledger, 1, Unit("patient", rows=1))
        assert release(ledger, 1, ROW).charged


def test_a_changed_bound_keeps_the_unit_and_is_recorded_in_its_entry(url):
    with of_unit(url, PATIENT) as ledger:
        for number, rows in enumerate((3, 1, 50)):
            assert release(ledger, number, Unit("patient", rows=rows)).charged
        assert [entry.unit.rows for entry in ledger.journal()] == [3, 1, 50]
        assert ledger.unit == PATIENT
        ledger.verify()


def test_a_ledger_founded_without_a_unit_gets_that_of_its_first_charge(url):
    with of_unit(url, None) as ledger:
        ledger.set_cap("ann", Epsilon("0.5"))
        released(ledger, question(1), None, lambda: b"k", statement="no DP guarantee", unit=ROW)
        assert ledger.unit is None
        release(ledger, 2, PATIENT)
        release(ledger, 3, Unit("patient", rows=9))
        assert ledger.unit == PATIENT
        assert [entry.event.fixes_unit for entry in ledger.journal()] == [False, False, True, False]
        with pytest.raises(UnitError):
            release(ledger, 4, ROW)
        ledger.verify()


def test_a_refused_first_charge_fixes_no_unit(url):
    with of_unit(url, None) as ledger:
        with pytest.raises(BudgetError):
            reserve(ledger, question(), Epsilon(2).charge, statement="x", unit=PATIENT)
        assert ledger.unit is None
        assert release(ledger, 1, ROW).charged
        ledger.verify()


def test_a_charge_without_a_unit_is_refused(ledger):
    with pytest.raises(LossError, match="state the unit"):
        reserve(ledger, question(), TENTH, statement="pure")
    assert list(ledger.journal()) == []


@pytest.mark.parametrize(
    "tampering",
    [
        """UPDATE ledger_dataset SET unit = '{"kind":"row"}'""",
        "UPDATE ledger_dataset SET unit = NULL",
        "UPDATE ledger_entry SET stated = NULL WHERE number = 1",
        "UPDATE ledger_entry SET stated = REPLACE(stated, 'patient', 'doctor') WHERE number = 1",
        "UPDATE ledger_entry SET stated = REPLACE(stated, 'add/remove', 'none') WHERE number = 2",
        "UPDATE ledger_entry SET stated = REPLACE(stated, '1/10', '1/11') WHERE number = 2",
        "UPDATE ledger_entry SET stated = '[]' WHERE number = 2",
        "UPDATE ledger_entry SET stated = 'x' WHERE number = 2",
    ],
)
@pytest.mark.parametrize("founded_with", [PATIENT, None])
def test_tampering_with_the_unit_is_found(url, tampering, founded_with):
    with of_unit(url, founded_with) as ledger:
        for number in range(2):
            release(ledger, number, PATIENT)
        ledger.verify()
        with pytest.raises(LedgerError):
            behind_its_back(url, tampering)
        unfreeze(url)
        behind_its_back(url, tampering)
        with pytest.raises(LedgerError, match=r"broken|unit"):
            ledger.verify()


@pytest.mark.parametrize(
    ("tampering", "said"),
    [
        ("UPDATE ledger_dataset SET limit_units = limit_units + 1", "limit"),
        ("UPDATE ledger_dataset SET limit_delta_units = 7", "limit"),
        ("UPDATE ledger_dataset SET rho = 'x'", "cannot be read"),
        ("UPDATE ledger_dataset SET unit = 'x'", "cannot be read"),
        ("UPDATE ledger_dataset SET limit_loss = '[]'", "broken"),
        ("UPDATE ledger_analyst SET cap_loss = NULL WHERE name = 'ann'", "cap of analyst 'ann'"),
        ("""UPDATE ledger_analyst SET cap_loss = '{"epsilon":"9"}' WHERE name = 'ann'""", "cap of analyst 'ann'"),
        ("""UPDATE ledger_analyst SET cap_loss = '{"epsilon":"9"}' WHERE name = 'bob'""", "cap of analyst 'bob'"),
        ("UPDATE ledger_analyst SET cap_units = cap_units + 7 WHERE name = 'ann'", "cap of analyst 'ann'"),
        ("UPDATE ledger_analyst SET cap_loss = 'x' WHERE name = 'ann'", "cannot be read"),
        ("UPDATE ledger_analyst SET spent_units = 0 WHERE name = 'ann'", "account of analyst 'ann'"),
        ("DELETE FROM ledger_analyst WHERE name = 'eve'", "without an account"),
        ("UPDATE ledger_entry SET epsilon = '1/10' WHERE number = 1", "broken at entry 1"),
        ("UPDATE ledger_entry SET delta = '0' WHERE number = 1", "broken at entry 1"),
    ],
)
def test_tampering_with_limits_caps_and_what_the_database_checks_is_found(url, tampering, said):
    with of_unit(url, PATIENT) as ledger:
        for analyst in ("ann", "bob", "eve"):
            ledger.set_cap(analyst, Epsilon("0.2"))
        ledger.set_cap("bob", None)
        reserve(ledger, question(), TENTH, statement="pure", unit=PATIENT, analyst="ann")
        ledger.verify()
        unfreeze(url)
        behind_its_back(url, tampering)
        with pytest.raises(LedgerError, match=said):
            ledger.verify()
