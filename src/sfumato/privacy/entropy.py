"""Where random words come from: the operating system for releases, a seed for simulation only."""

from __future__ import annotations

import os
import secrets
import threading
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_REKEY_BYTES = 1 << 40  # far below the 2^68 bytes at which AES-CTR output is distinguishable


class Entropy(Protocol):
    """A stream of independent, uniform 64-bit words."""

    def words(self, count: int) -> Words:
        """The next ``count`` words, shape ``(count,)``, dtype ``uint64``."""
        ...


class OsEntropy(threading.local):
    """AES-256 in counter mode under a key of the operating system; never seeded, never replayed.

    Each thread has its own key, and a forked child draws new ones, so no two of them share a stream.
    """

    def __init__(self) -> None:
        self._pid = -1
        self._left = 0

    def words(self, count: int) -> Words:
        """The next ``count`` words of this thread's stream, read-only."""
        size = 8 * count
        if self._pid != os.getpid() or self._left < size:
            cipher = Cipher(algorithms.AES(secrets.token_bytes(32)), modes.CTR(secrets.token_bytes(16)))
            self._stream = cipher.encryptor()
            self._pid = os.getpid()
            self._left = max(_REKEY_BYTES, size)
        self._left -= size
        return np.frombuffer(self._stream.update(bytes(size)), dtype=np.uint64)


class SimulatedEntropy:
    """Reproducible words for simulation and tests.  Never for a release: whoever knows the seed knows the noise."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def words(self, count: int) -> Words:
        """The next ``count`` words of the seeded stream."""
        return self._generator.integers(0, 1 << 64, size=count, dtype=np.uint64)
