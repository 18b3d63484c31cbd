from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from unittest.mock import patch

import pytest
from httpx import create_ssl_context


@pytest.fixture(scope="session", autouse=True)
def certificates() -> Iterator[None]:
    """They are read once, and not for each client, which takes 40 ms: no test speaks TLS."""
    with patch("httpx._transports.default.create_ssl_context", cache(create_ssl_context)):
        yield
