"""The list of public names: an accidental change shows up as a diff of this file."""

from __future__ import annotations

import subprocess
import sys

import sfumato


def test_the_package_exports_exactly_these_names() -> None:
    assert sfumato.__all__ == [
        "Domain",
        "Epsilon",
        "EpsilonDelta",
        "KAnonymity",
        "Rho",
        "SfumatoError",
        "Unit",
        "all_marginals",
        "anonymize",
        "data",
        "describe",
        "describe_tables",
        "evaluate",
        "load_domain",
        "local",
        "open",
        "open_schema",
        "open_table",
        "query",
        "synthesize",
    ]
    assert dir(sfumato) == sfumato.__all__


def test_every_exported_name_exists() -> None:
    for name in sfumato.__all__:
        assert getattr(sfumato, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(sfumato, "secret")


def test_importing_the_package_loads_no_library() -> None:
    code = "import sys, sfumato; print([m for m in ('numpy', 'duckdb', 'sqlalchemy', 'pyarrow') if m in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"
