"""The real services that a test may use; the variables from ``scripts/services`` have their addresses."""

from __future__ import annotations

import os

import pytest


def require(variable: str) -> str:
    """The value of a service's variable; without it the test skips, or fails where services are required.

    ``SFUMATO_REQUIRE_SERVICES=1`` says that they are, so that a run that claims to have tested on real
    services cannot have skipped one.
    """
    value = os.environ.get(variable)
    if value:
        return value
    reason = f'{variable} is not set; start the services with: eval "$(scripts/services)"'
    if os.environ.get("SFUMATO_REQUIRE_SERVICES") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
