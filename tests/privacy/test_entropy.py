import ctypes
import os
import threading

import numpy as np
import pytest
from scipy.stats import chisquare

from sfumato.privacy.entropy import DrawnEntropy, OsEntropy, SimulatedEntropy


@pytest.fixture(autouse=True)
def few(request, monkeypatch):
    """Draw all words from a stream, including the few that normally come directly from the operating system."""
    if "as_they_are" not in request.fixturenames:
        monkeypatch.setattr("sfumato.privacy.entropy._FEW_BYTES", -1)


@pytest.fixture
def as_they_are():
    """Few words come from the operating system."""


def test_few_words_are_of_no_stream_that_a_copy_could_go_on_with(as_they_are):
    entropy = OsEntropy()
    silent = ctypes.CDLL(None).fork
    drawn = {childs_words(entropy, silent), *(entropy.words(4).tobytes() for _ in range(200))}
    assert len(drawn) == 201
    many = np.concatenate([entropy.words(200) for _ in range(200)])
    counts = np.bincount((many & np.uint64(255)).astype(np.int64), minlength=256)
    assert chisquare(counts).pvalue > 1e-20


@pytest.mark.parametrize("entropy", [OsEntropy(), SimulatedEntropy(1)], ids=["os", "simulated"])
def test_words_have_shape_type_and_even_bits(entropy):
    words = entropy.words(40_000)
    assert words.shape == (40_000,)
    assert words.dtype == np.uint64
    assert entropy.words(0).shape == (0,)
    for shift in (0, 30, 56):
        counts = np.bincount((words >> np.uint64(shift) & np.uint64(255)).astype(np.int64), minlength=256)
        assert chisquare(counts).pvalue > 1e-20


def test_two_streams_and_two_calls_never_agree():
    first, second = OsEntropy(), OsEntropy()
    blocks = [first.words(4), first.words(4), second.words(4), second.words(4)]
    assert len({block.tobytes() for block in blocks}) == 4


def test_a_simulation_can_be_repeated():
    assert (SimulatedEntropy(7).words(5) == SimulatedEntropy(7).words(5)).all()
    assert (SimulatedEntropy(7).words(5) != SimulatedEntropy(8).words(5)).any()


def childs_words(entropy, fork, begun=lambda entropy: entropy):
    """Words that a child draws; the process that it is forked from has drawn some before."""
    entropy.words(1)
    read, write = os.pipe()
    child = fork()
    if child == 0:
        os.write(write, begun(entropy).words(4).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(read, 32)
    os.close(read)
    os.close(write)
    assert len(theirs) == 32
    return theirs


def test_a_forked_child_draws_its_own_words():
    entropy = OsEntropy()
    assert childs_words(entropy, os.fork) != entropy.words(4).tobytes()


def test_a_child_with_the_process_id_of_its_parent_draws_its_own_words(monkeypatch):
    """Both processes have id 1, each in its own namespace."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    entropy = OsEntropy()
    assert childs_words(entropy, os.fork) != entropy.words(4).tobytes()


def test_releases_share_no_words_even_where_python_did_not_see_the_fork():
    """A fork by C code runs no handlers: the copies go on alike, but each release draws a new key."""
    entropy = OsEntropy()
    silent = ctypes.CDLL(None).fork
    assert childs_words(entropy, silent) == entropy.words(4).tobytes()
    assert childs_words(entropy, silent, DrawnEntropy) != DrawnEntropy(entropy).words(4).tobytes()


def test_threads_share_no_words():
    entropy = OsEntropy()
    seen: list[bytes] = []
    barrier = threading.Barrier(4)

    def draw() -> None:
        barrier.wait()
        seen.extend(entropy.words(2).tobytes() for _ in range(200))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == 800


def test_a_key_is_replaced_before_it_is_worn_out(monkeypatch):
    monkeypatch.setattr("sfumato.privacy.entropy._REKEY_BYTES", 64)
    keys = []

    def counted(size: int) -> bytes:
        keys.append(size)
        return os.urandom(size)

    monkeypatch.setattr("sfumato.privacy.entropy.secrets.token_bytes", counted)
    entropy = OsEntropy()
    drawn = []
    for _ in range(4):
        entropy.words(4)
        drawn.append(keys.count(32))
    assert drawn == [1, 1, 2, 2]
    assert entropy.words(100).shape == (100,)
