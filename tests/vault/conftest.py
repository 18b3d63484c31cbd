from __future__ import annotations

import pytest

from sfumato.privacy.loss import Epsilon, Rho


@pytest.fixture(params=[Epsilon("0.7"), Rho("0.3")], ids=["epsilon", "rho"])
def loss(request: pytest.FixtureRequest) -> Epsilon | Rho:
    return request.param
