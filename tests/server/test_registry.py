"""Names that nothing has are found missing on each database, whatever is in them."""

from __future__ import annotations

from contextlib import closing

import pytest

from sfumato.ledger.store import Store
from sfumato_server.registry import Registry


@pytest.fixture
def registry(url):
    with closing(Store(url)) as store:
        store.prepare(create=True)
        yield Registry(store)


@pytest.mark.parametrize("name", ["nobody", "", "\0", "a\0", "a b", "\ufffd", "\U0001f955", "x" * 5000])
def test_a_name_that_nothing_has(registry, name):
    assert registry.dataset(name) is None
    assert registry.jobs.job(name) is None
    assert registry.key(name) is None
    assert registry.revoke(name) is False
