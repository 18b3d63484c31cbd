"""Many children and fine columns: what cannot be counted at once is counted by parts, or refused uncharged."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from tests.families import Families, related, some_families

from sfumato.domain.table_schema import parse_schema
from sfumato.errors import SizeError
from sfumato.privacy.loss import Rho
from sfumato.synthesize import synthesize_linked as synthesize
from sfumato.synthesize.linked import ModelSizes, child_measures
from sfumato.synthesize.linked.child_measures import COUNTABLE, DerivedMeasures
from sfumato.vault.interface import ReleaseRequest
from sfumato.vault.measurables import Marginal
from sfumato.vault.schema_vault import open_schema
from sfumato.vault.simulated import SimulatedVault

LOSS = Rho("0.5")
TABLES = related(4)


def opened(folder, most: int, codes: int):
    """Forty people with some rows of three fine columns each."""
    column = {"type": "integer", "minimum": 0, "maximum": codes - 1, "nullable": False, "unknown": "clamp"}
    schema = parse_schema(
        {
            "sfumato": 2,
            "schema": "walks",
            "unit": {"id": "person"},
            "tables": {"steps": {"unit": "person", "rows": most, "attributes": dict.fromkeys("abc", column)}},
        }
    )
    random = np.random.default_rng(1)
    rows = {name: random.integers(0, codes, 400) for name in "abc"} | {"person": np.arange(400) % 40}
    ledger = f"sqlite:///{folder / 'walks.ledger'}"
    return open_schema({"steps": pa.table(rows)}, schema=schema, ledger=ledger, limit=LOSS, create=True)


def test_long_families_of_fine_columns_are_released(tmp_path) -> None:
    """A pair of columns is counted by 400 numbers of children as well: no pair of these has room, and all together are
    more than is counted at once.
    """
    assert COUNTABLE < 300 * 300 * 399
    vault = opened(tmp_path, 400, 300)
    release = synthesize(vault, loss=LOSS, settings=ModelSizes(head_cells=2000, tail_cells=2000, calibration=1))
    assert release.tables["steps"].num_rows > 0


def test_a_column_that_could_not_be_counted_is_refused_and_costs_nothing(tmp_path) -> None:
    vault = opened(tmp_path, 1000, 40_000)
    with pytest.raises(SizeError, match=r"steps\.previous\.a has 40,000 cells"):
        synthesize(vault, loss=LOSS)
    with vault.ledger as ledger:
        assert ledger.remaining().spent.rho == 0


@pytest.mark.parametrize("shares", [None, (Fraction(1, 2), Fraction(1, 4), Fraction(1, 4))], ids=["equal", "given"])
def test_parts_cost_together_what_all_at_once_would(shares, monkeypatch) -> None:
    """The same noise on each answer, and the same sum of losses, whether counted at once or one by one."""
    (tail,) = TABLES.derived
    questions = [Marginal((name,)) for name in ("persons.this.age", "persons.this.work", "persons.number")]
    found = []
    for at_once in (1 << 24, 1):
        monkeypatch.setattr(child_measures, "COUNTABLE", at_once)
        vault = SimulatedVault(Families(some_families(50, 1), TABLES), seed=1)
        answers = []

        def measured(mechanisms, answers=answers):
            answers += DerivedMeasures(mechanisms, tail).measure(questions, LOSS, shares=shares)
            return {}

        vault.release(ReleaseRequest("synthesize", "test", {}), LOSS, measured)
        found.append(([answer.standard_error for answer in answers], vault.spent))
        assert [answer.question for answer in answers] == questions
    assert found[0][0] == pytest.approx(found[1][0])
    assert float(found[0][1].rho) == pytest.approx(float(found[1][1].rho), rel=1e-9)
    assert found[1][1].rho <= LOSS.value
