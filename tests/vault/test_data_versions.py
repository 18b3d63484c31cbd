"""Whatever a question read is in the version of its data: an answer never outlives what it is about."""

from __future__ import annotations

from fractions import Fraction

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sfumato.domain import Categorical, Domain, Unit, Unknown
from sfumato.engine.open import open_table
from sfumato.ledger import open_ledger
from sfumato.privacy.loss import Epsilon, EpsilonDelta
from sfumato.query.aggregate import Distinct
from sfumato.query.ask import ask
from sfumato.query.question import Query
from sfumato.vault.dropped_rows import Dropped
from sfumato.vault.questions import Marginal
from sfumato.vault.vault import Vault

DOMAIN = Domain((Categorical(name="sex", values=("f", "m"), unknown=Unknown.DROP),), unit=Unit("person", rows=2))
LOSS = EpsilonDelta("0.5", "1e-7")


@pytest.fixture
def ledger(tmp_path):
    with open_ledger(
        f"sqlite:///{tmp_path / 'x.ledger'}", dataset="people", limit=EpsilonDelta(20, "1e-3"), create=True
    ) as opened:
        yield opened


def vault(ledger, folder, *, towns=("Ulm", "Bonn"), rows=2):
    """300 people, each with some rows, all in one town of two; the town is not in the domain."""
    people = [number for number in range(300) for _ in range(rows)]
    table = pa.table(
        {
            "person": people,
            "sex": ["fm"[number % 2] for number in people],
            "town": [towns[number % 2] for number in people],
        }
    )
    path = folder / "people.parquet"
    pq.write_table(table, path)
    return Vault(open_table(str(path)).encode(DOMAIN), ledger)


def test_values_that_are_found_anew_in_a_changed_column_are_charged_and_true(ledger, tmp_path):
    first = vault(ledger, tmp_path).threshold(("town",), LOSS)
    again = vault(ledger, tmp_path).threshold(("town",), LOSS)
    assert first.equals(again)
    assert len(list(ledger.journal())) == 1
    changed = vault(ledger, tmp_path, towns=("Ulm", "Trier")).threshold(("town",), LOSS)
    assert set(first["town"].to_pylist()) == {"Bonn", "Ulm"}
    assert set(changed["town"].to_pylist()) == {"Trier", "Ulm"}
    assert len(list(ledger.journal())) == 2


def test_a_query_by_found_values_is_of_the_column_as_it_is(ledger, tmp_path):
    query = Query((Distinct(),), discovered=("town",))
    towns = [
        sorted(key for (key,) in ask(vault(ledger, tmp_path, towns=pair), query, loss=LOSS).keys)
        for pair in [("Ulm", "Bonn"), ("Ulm", "Trier")]
    ]
    assert towns == [["Bonn", "Ulm"], ["Trier", "Ulm"]]


def test_a_question_of_the_domain_does_not_see_other_columns(ledger, tmp_path):
    for towns in [("Ulm", "Bonn"), ("Ulm", "Trier")]:
        vault(ledger, tmp_path, towns=towns).measure([Marginal(("sex",))], Epsilon("0.1"))
    assert ledger.remaining().spent.epsilon == Fraction(1, 10)


def test_what_counts_rows_beyond_the_bound_is_of_the_table_with_them(ledger, tmp_path):
    for rows in (3, 5):  # of which two count
        vault(ledger, tmp_path, rows=rows).measure([Dropped(most=8, where=None)], Epsilon("0.1"))
    assert ledger.remaining().spent.epsilon == Fraction(2, 10)
    for rows in (3, 5):
        vault(ledger, tmp_path, rows=rows).measure([Marginal(("sex",))], Epsilon("0.1"))
    assert ledger.remaining().spent.epsilon in (Fraction(3, 10), Fraction(4, 10)), (
        "the kept rows are named by their content"
    )
