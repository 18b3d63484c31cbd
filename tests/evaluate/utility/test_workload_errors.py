from __future__ import annotations

import numpy as np
import pytest

from sfumato.errors import TableError
from sfumato.evaluate.utility.query_errors import workload_error


@pytest.mark.parametrize("answers", [np.zeros(3), np.zeros(0)])
def test_workloads_must_fit_their_answers(answers):
    with pytest.raises(TableError):
        workload_error(np.zeros(len(answers) and 2), answers)


def test_errors_are_absolute():
    error = workload_error(np.array([5, 5, 5]), np.array([2.0, 5.0, 6.0]))
    assert (error.maximum, error.minimum, error.mean, error.mean_squared) == (3, 0, 4 / 3, 10 / 3)
