"""Reports that can be repeated, for planning and tests.  Never for a release."""

from __future__ import annotations

from typing import Any

from sfumato.local.client import Reports, randomize
from sfumato.local.spec import Spec
from sfumato.privacy.entropy import SimulatedEntropy


def simulate(spec: Spec, values: Any, *, seed: int) -> Reports:  # noqa: ANN401 -- each spec states its values
    """Reports whose noise follows from ``seed``: whoever knows it knows the values.

    Raises:
        InputError: a value that the spec does not know.
    """
    return randomize(spec, values, SimulatedEntropy(seed))
