"""Names of encoded rows, once given, stay: releases without differential privacy are drawn by them."""

from __future__ import annotations

import pytest
from tests.engine.conftest import ADAPTERS, SPARK, Adapter, odd_rows

from sfumato.domain import Categorical, Domain, Integer, Real, Unit, Unknown

ATTRIBUTES = (
    Categorical(name="word", values=("a", "A", "01", "\u00e9"), unknown=Unknown.CATEGORY, nullable=True),
    Integer(name="whole", minimum=0, maximum=99, unknown=Unknown.CLAMP, nullable=True),
    Integer(name="digits", minimum=0, maximum=99, edges=(0, 5, 50), unknown=Unknown.CATEGORY, nullable=True),
    Real(name="real", edges=(-2.5, 0.0, 0.3, 100.0), unknown=Unknown.CLAMP, nullable=True),
)
ROWS = Domain(ATTRIBUTES)
PEOPLE = Domain(ATTRIBUTES, unit=Unit("person", rows=4))
VERSIONS = {
    "duckdb": (
        "3d1b1b8cc179f5d54f588d6b7b60365a955f658f6c1386086ede9f0a57993d17",
        "d9552419c28e171fabe201d903681325a472150cc5e07d9ae6f8ec0e018396df",
    ),
    "postgres": (
        "a5a4e06f04c5f2e90183a2798d1c87a827f0dde7d81ecf995ea97b2d31e3b7ce",
        "39bca526817f4956806d022191abd5bc944c1bd71b0d40cb201dcde6f066c7d2",
    ),
    "mariadb": (
        "86eff9406310f7d149a5e126a92e53046b7a7890f6dc701bcb3949e65dcd98aa",
        "2859e549d4a1d526dd72da1b15eca6d0700b9829501a5e0ba0ef8fe1fbdc695d",
    ),
}
VERSIONS["spark"] = VERSIONS["duckdb"]
SLOW = pytest.param(SPARK, marks=pytest.mark.slow)


@pytest.mark.parametrize("adapter", [*ADAPTERS, SLOW], ids=repr)
def test_encoded_rows_keep_their_names(adapter: Adapter, tmp_path):
    table = adapter.open(odd_rows(), tmp_path)
    found = tuple(table.encode(domain).version for domain in (ROWS, PEOPLE))
    assert found == VERSIONS[adapter.name.partition("-")[0]]


def test_domains_keep_their_names():
    assert (ROWS.hash[:16], PEOPLE.hash[:16]) == ("33d8c102f57d01a8", "bf214fc85f1f9ceb")
