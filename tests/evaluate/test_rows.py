from __future__ import annotations

import numpy as np
import pytest

from sfumato.errors import TableError
from sfumato.evaluate.released import Rows


def test_rows_never_print_the_protected_table(people):
    rows = people.population(3, seed=0)
    assert "array" not in repr(rows)


@pytest.mark.parametrize("codes", [np.zeros((4, 2), int), np.full((4, 6), 99), np.full((1, 6), -1), np.zeros(6, int)])
def test_codes_that_do_not_fit_the_domain_are_refused(people, codes):
    with pytest.raises(TableError):
        Rows(people.DOMAIN, codes)


def test_a_sample_has_no_row_twice(people):
    rows = people.population(500, seed=0)
    numbered = Rows(rows.domain.project(["age", "hours"]), np.column_stack(np.divmod(np.arange(500), 50)))
    drawn = numbered.sample(400, np.random.default_rng(1)).codes
    assert len(np.unique(drawn @ [50, 1])) == 400
