"""Adult is fetched once, checked, cached, and told from anything else."""

from __future__ import annotations

import hashlib

import pytest

from sfumato import data
from sfumato.data import uci_adult
from sfumato.domain import Categorical
from sfumato.errors import TableError


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "sfumato"


@pytest.fixture(scope="session")
def original(shared_data):
    """The file as UCI serves it: a blank after each comma, no header, an empty last line."""
    lines = (shared_data / "adult" / "adult.csv").read_text().splitlines()[1:]
    return ("\n".join(line.replace(",", ", ") for line in lines) + "\n\n").encode()


def test_the_pinned_checksum_is_that_of_the_original(original):
    assert hashlib.sha256(original).hexdigest() == uci_adult.SHA256


def test_a_local_copy_reads_as_the_original(original, shared_data):
    local = data.adult(shared_data / "adult" / "adult.csv")
    assert local.num_rows == 32_561
    assert local.equals(uci_adult.parse(original))


def test_the_domain_covers_every_value(shared_data):
    table = data.adult(shared_data / "adult" / "adult.csv")
    domain = data.domain("adult")
    assert domain.names == uci_adult.COLUMNS
    for attribute in domain:
        values = set(table[attribute.name].to_pylist())
        if isinstance(attribute, Categorical):
            assert values - {"?"} <= set(attribute.values)
        else:
            assert attribute.minimum <= min(values) <= max(values) <= attribute.maximum


def test_what_was_fetched_is_kept(tmp_path, cache):
    source = tmp_path / "source"
    source.write_bytes(b"39, State-gov\n")
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    assert uci_adult.cached(source.as_uri(), digest) == b"39, State-gov\n"
    source.unlink()
    assert uci_adult.cached(source.as_uri(), digest) == b"39, State-gov\n"
    (kept,) = cache.iterdir()
    kept.write_bytes(b"broken")
    with pytest.raises(TableError, match="cannot fetch"):
        uci_adult.cached(source.as_uri(), digest)


def test_something_else_is_refused_and_not_kept(tmp_path, cache):
    source = tmp_path / "source"
    source.write_bytes(b"hello")
    with pytest.raises(TableError, match="checksum differs"):
        uci_adult.cached(source.as_uri(), uci_adult.SHA256)
    assert not cache.exists()


def test_no_network_is_said_in_one_sentence():
    with pytest.raises(TableError, match="connect to the network or give a local file"):
        uci_adult.fetch("http://127.0.0.1:9/adult.data")


def test_a_file_that_is_not_adult_is_refused(tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("age,shoe\n3,30\n")
    with pytest.raises(TableError, match="lacks work_class"):
        data.adult(other)
    with pytest.raises(TableError, match="cannot read"):
        data.adult(tmp_path / "missing.csv")
