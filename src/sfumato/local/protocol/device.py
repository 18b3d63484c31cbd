"""The client: what runs where the values are.  It needs NumPy and cryptography only."""

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
    """Randomized values: safe to send, and of no use without the spec whose hash they carry.

    Attributes:
        spec: hash of the spec they were made under.
        data: ``(n,)`` or ``(n, bytes)``, in the layout of the spec's randomizer.
        simulated: whether their noise follows from a seed, so that they protect nobody.
    """

    spec: str
    data: ReportArray
    simulated: bool = False

    def __len__(self) -> int:
        return len(self.data)


class Memo(Protocol):
    """A store of permanent answers, one per person."""

    def get(self, key: str) -> bytes | None:
        """Return the answer that was kept under a key, or None."""
        ...

    def keep(self, key: str, fresh: bytes) -> bytes:
        """Keep ``fresh`` for ever unless something is kept already, in one step; what is kept from now on."""
        ...


class FileMemo:
    """A store of permanent answers in a JSON file, replaced atomically, readable by its owner only.

    Processes and threads may share it: whoever keeps an answer holds a lock on the file beside it that ends in
    ``.lock``, and reads again what others kept.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def get(self, key: str) -> bytes | None:
        """Return the answer that was kept under a key, or None.

        Raises:
            InputError: the file is damaged; a fresh answer in its place would cost epsilon again.
        """
        answer = self._read().get(key)
        return None if answer is None else bytes.fromhex(answer)

    def keep(self, key: str, fresh: bytes) -> bytes:
        """Keep it unless something is kept already; on disk before this returns.

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
            fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed, also by the end of the process
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
            os.fsync(folder)  # the new name, too, survives a loss of power
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
    """A client, which randomizes values under a spec with entropy from the operating system.

    Args:
        spec: the agreement with the server.
        memo: where permanent answers are kept, for the memoized methods (RAPPOR, LOLOHA); without one every report
            is a first report.
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
            InputError: a value that the spec does not know.
        """
        codes = self._spec.encode(_alone(value), self._entropy)
        if self._memo is None:
            return Reports(fingerprint(self._spec), self._spec.randomizer.draw(codes, self._entropy))
        return Reports(fingerprint(self._spec), self._remembered(codes, self._memo))

    def randomize_batch(self, values: Any) -> Reports:  # noqa: ANN401 -- each spec states its values
        """Randomize the values of different people, one report each, without the memo.

        Args:
            values: a NumPy array or sequence, an Arrow array, or what else the spec's ``encode`` takes.

        Raises:
            InputError: a value that the spec does not know; nothing is reported then.
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
            raise InputError("the memo is damaged: what it kept is no answer under this spec")
        return randomizer.instant(answer.reshape(layout.empty(1).shape), self._entropy)


def randomize(spec: Spec, values: Any, entropy: Entropy) -> Reports:  # noqa: ANN401 -- each spec states its values
    """Return reports with words from ``entropy``; they say that they are simulated unless it is the system's.

    Releases use :class:`Client`, simulations their own seeded words.
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
    """Return reports whose noise follows from ``seed``, for planning and tests, never for a release.

    A person who knows the seed knows the values.  Reports, states and estimates say that they are simulated.

    Raises:
        InputError: a value that the spec does not know.
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
    """Make a batch of one person's value; a tuple holds the columns of one person already."""
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
