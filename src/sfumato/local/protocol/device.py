"""The client, which runs on a person's device.  It needs only NumPy and cryptography."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from sfumato.errors import InputError
from sfumato.local.randomizers.longitudinal import TwoRounds
from sfumato.local.randomizers.randomizer import InputCodes, ReportArray
from sfumato.local.specs.spec import Spec, fingerprint
from sfumato.privacy.entropy import Entropy, OsEntropy, SimulatedEntropy
from sfumato.strict_documents import read_json


@dataclass(frozen=True, eq=False)
class Reports:
    """Randomized values that are safe to send.  Their meaning depends on the spec whose hash they carry.

    Attributes:
        spec: hash of the spec they were made under.
        data: ``(n,)`` or ``(n, bytes)``, in the layout of the spec's randomizer.
        simulated: true if a seed determined their noise, so that they protect no value.
    """

    spec: str
    data: ReportArray
    simulated: bool = False

    def __len__(self) -> int:
        return len(self.data)


class Memo(Protocol):
    """A store of permanent answers, one per person."""

    def get(self, key: str) -> bytes | None:
        """Return the answer stored under a key, or None."""
        ...

    def keep(self, key: str, fresh: bytes) -> bytes:
        """Store ``fresh`` permanently unless the key has an answer, in one step.  Return the stored answer."""
        ...


class FileMemo:
    """A store of permanent answers in a JSON file, replaced atomically, readable by its owner only.

    Processes and threads may share it.  A writer holds a lock on a second file, whose name ends in ``.lock``, and
    rereads the stored answers first.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def get(self, key: str) -> bytes | None:
        """Return the answer stored under a key, or None.

        Raises:
            InputError: the file is damaged; a replacement answer would cost epsilon again.
        """
        answer = self._read().get(key)
        return None if answer is None else bytes.fromhex(answer)

    def keep(self, key: str, fresh: bytes) -> bytes:
        """Store an answer unless the key has one.  It is on disk before this method returns.

        Raises:
            InputError: the file is damaged or cannot be written.
        """
        try:
            with self._locked():
                answers = self._read()
                if key not in answers:
                    self._write(answers | {key: fresh.hex()})
                    return fresh
                return bytes.fromhex(answers[key])
        except OSError as error:
            raise InputError(f"cannot keep an answer in {self._path}: {error.strerror}", culprit=self._path) from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        target = self._path.resolve()
        with open(target.with_name(f"{target.name}.lock"), "ab", opener=_private) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed, at the latest when the process ends
            yield

    def _write(self, everything: dict[str, str]) -> None:
        target = self._path.resolve()
        draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}.new")
        try:
            with open(draft, "x", encoding="utf-8", opener=_private) as file:
                json.dump(everything, file)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # makes the new name survive a loss of power
        finally:
            os.close(folder)

    def _read(self) -> dict[str, str]:
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError):
            text = ""
        with suppress(InputError, ValueError, TypeError):
            answers = read_json(text)
            if isinstance(answers, dict) and all(map(bytes.fromhex, answers.values())):
                return answers
        raise InputError(f"the memo {self._path} is damaged: restore it, or stop reporting", culprit=self._path)


class Client:
    """A client that randomizes values under a spec with entropy from the operating system.

    Args:
        spec: the agreement with the server.
        memo: store of permanent answers, for the memoized methods (RAPPOR, LOLOHA).  Default: none, so that every
            report is a first report.
    """

    def __init__(self, spec: Spec, *, memo: Memo | None = None) -> None:
        if memo is not None and not isinstance(spec.randomizer, TwoRounds):
            raise InputError("only the memoized methods, rappor and loloha, keep answers", culprit=spec)
        self._spec = spec
        self._memo = memo
        self._entropy = OsEntropy()

    def randomize(self, value: Any) -> Reports:  # noqa: ANN401 -- each spec states its values
        """Randomize one value: a scalar, a dictionary of several, or the columns of one person.

        Raises:
            InputError: the spec does not know a value.
        """
        codes = self._spec.encode(_alone(value), self._entropy)
        if self._memo is None:
            return Reports(fingerprint(self._spec), self._spec.randomizer.draw(codes, self._entropy))
        return Reports(fingerprint(self._spec), self._remembered(codes, self._memo))

    def randomize_batch(self, values: Any) -> Reports:  # noqa: ANN401 -- each spec states its values
        """Randomize the values of different people, one report each, without the memo.

        Args:
            values: a NumPy array or sequence, an Arrow array, or any other input of the spec's ``encode``.

        Raises:
            InputError: the spec does not know a value; then nothing is reported.
        """
        return randomize(self._spec, values, self._entropy)

    def _remembered(self, codes: InputCodes, memo: Memo) -> ReportArray:
        randomizer = self._spec.randomizer
        assert isinstance(randomizer, TwoRounds)
        key = f"{fingerprint(self._spec)}/{int(codes[0])}"
        stored = memo.get(key)
        if stored is None:
            stored = memo.keep(key, randomizer.permanent(codes, self._entropy).tobytes())
        layout = self._spec.randomizer.layout
        fits = len(stored) == layout.dtype.itemsize * layout.width
        answer = np.frombuffer(stored, dtype=layout.dtype if fits else np.uint8)
        if not fits or not self._spec.randomizer.valid_reports(answer.reshape(layout.empty(1).shape)):
            raise InputError("the memo is damaged: a stored answer is impossible under this spec")
        return randomizer.instant(answer.reshape(layout.empty(1).shape), self._entropy)


def randomize(spec: Spec, values: Any, entropy: Entropy) -> Reports:  # noqa: ANN401 -- each spec states its values
    """Return reports with noise from ``entropy``.  They are marked as simulated unless it is the operating system's.

    Releases use :class:`Client`.  Simulations use seeded entropy.
    """
    simulated = not isinstance(entropy, OsEntropy)
    column = values.to_numpy(zero_copy_only=False) if _is_arrow(values) else values
    if not isinstance(column, np.ndarray):
        codes = spec.encode(column, entropy)
        return Reports(fingerprint(spec), _drawn(spec, codes, entropy), simulated)
    data = spec.randomizer.layout.empty(len(column))
    for piece in _chunks(len(column), spec.randomizer.chunk_size):
        data[piece] = spec.randomizer.draw(spec.encode(column[piece], entropy), entropy)
    return Reports(fingerprint(spec), data, simulated)


def simulate(spec: Spec, values: Any, *, seed: int) -> Reports:  # noqa: ANN401 -- each spec states its values
    """Return reports whose noise is determined by ``seed``, for planning and tests, never for a release.

    A person who knows the seed knows the values.  Reports, states and estimates are marked as simulated.

    Raises:
        InputError: the spec does not know a value.
    """
    return randomize(spec, values, SimulatedEntropy(seed))


def _drawn(spec: Spec, codes: InputCodes, entropy: Entropy) -> ReportArray:
    data = spec.randomizer.layout.empty(len(codes))
    for piece in _chunks(len(codes), spec.randomizer.chunk_size):
        data[piece] = spec.randomizer.draw(codes[piece], entropy)
    return data


def _chunks(size: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, size)) for start in range(0, size, step))


def _alone(value: Any) -> Any:  # noqa: ANN401 -- each spec states its values
    """Return a batch with one person's value.  A tuple already has the columns of one person."""
    match value:
        case dict():
            return {name: np.asarray([part]) for name, part in value.items()}
        case tuple():
            return value
        case _:
            return np.asarray([value])


def _is_arrow(values: object) -> bool:
    """Return whether values are an Arrow array, without importing Arrow."""
    return type(values).__module__.startswith("pyarrow.")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
