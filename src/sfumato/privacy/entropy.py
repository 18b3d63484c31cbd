"""Sources of random words: the operating system for releases, a seed for simulation only."""

from __future__ import annotations

import os
import secrets
import threading
from importlib import import_module
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError

Words = NDArray[np.uint64]

SIMULATED = "SIMULATED, no guarantee"
"""The first words of every statement about something whose noise follows from a seed."""

_FEW_BYTES = 1 << 11
_REKEY_BYTES = 1 << 40  # far below the 2^68 bytes at which AES-CTR output is distinguishable


class _Forks:
    """A mark that distinguishes a child process from its parent, because both may have the same process id."""

    def __init__(self) -> None:
        self.generation = object()
        os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self.generation = object()


_forks = _Forks()


class Entropy(Protocol):
    """A stream of independent, uniform 64-bit words."""

    def words(self, count: int) -> Words:
        """Return the next ``count`` words, shape ``(count,)``, dtype ``uint64``."""
        ...

    def renew(self) -> None:
        """Make the next words independent of any copy of this stream."""
        ...


class OsEntropy(threading.local):
    """Words of the operating system: few of them directly, many by AES-256 in counter mode under a key from it.

    Never seeded, never replayed.  Each thread has its own key, every release draws a new one (:meth:`renew`), and so
    does a forked child, so no two of them share a stream.
    """

    def __init__(self) -> None:
        import_module("cryptography.hazmat.primitives.ciphers")  # now, not within the first query
        self._generation: object = None
        self._left = 0

    def renew(self) -> None:
        """Draw a new key for this thread before the next word."""
        self._left = 0

    def words(self, count: int) -> Words:
        """Return the next ``count`` words of this thread's stream, read-only."""
        size = 8 * count
        if size <= _FEW_BYTES:  # a new key would take as long to draw, and ten times as long to set up
            return np.frombuffer(secrets.token_bytes(size), dtype=np.uint64)
        if self._generation is not _forks.generation or self._left < size:
            from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

            cipher = Cipher(algorithms.AES(secrets.token_bytes(32)), modes.CTR(secrets.token_bytes(16)))
            self._stream = cipher.encryptor()
            self._generation = _forks.generation
            self._left = max(_REKEY_BYTES, size)
        self._left -= size
        return np.frombuffer(self._stream.update(bytes(size)), dtype=np.uint64)


class DrawnEntropy:
    """The words of one release: from a new key of the source, with a mark if any were drawn, and none after its end.

    A reference to it after the release, or in a forked child, would draw noise that is not accounted for.
    """

    def __init__(self, source: Entropy) -> None:
        self._source = source
        self._generation = _forks.generation
        self._lock = threading.Lock()
        self._ended = False
        self.drawn = False

    def words(self, count: int) -> Words:
        """Return the next ``count`` words.

        Raises:
            InputError: the release is over, or this is a child of the process that computes it.
        """
        if self._generation is not _forks.generation:
            raise InputError("a forked child cannot draw noise for its parent's release: open the vault in the child")
        with self._lock:
            if self._ended:
                raise InputError("this release is over: its mechanisms answer within its run only")
            if not self.drawn:
                self.renew()
                self.drawn = True
        return self._source.words(count)

    def renew(self) -> None:
        """See :class:`Entropy`."""
        self._source.renew()

    def __enter__(self) -> Self:
        """Start the release."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the release, so that it returns no more words."""
        with self._lock:
            self._ended = True


class SimulatedEntropy:
    """Reproducible words for simulation and tests.  Anyone who knows the seed knows the noise: never for a release."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def renew(self) -> None:
        """Do nothing, so that the words are reproducible."""

    def words(self, count: int) -> Words:
        """Return the next ``count`` words of the seeded stream."""
        return self._generator.integers(0, 1 << 64, size=count, dtype=np.uint64)
