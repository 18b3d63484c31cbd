"""The server, which counts reports into states and computes estimates from states."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import expect
from sfumato.errors import InputError, ReportError
from sfumato.local.estimators import Estimate, Post
from sfumato.local.protocol.device import Reports
from sfumato.local.randomizers.composite import Composite
from sfumato.local.randomizers.randomizer import Tally
from sfumato.local.specs.heavy_hitters import HeavyHitters
from sfumato.local.specs.spec import Spec, fingerprint

_MAGIC, _SIMULATED_MAGIC = b"SFLS", b"SFLs"
_MOST = 1 << 62  # largest number of reports in a state: its counts stay within 64-bit integers
_HEAD = struct.Struct("<4s32sQQQQ")


@dataclass(frozen=True, eq=False)
class ServerState:
    """The counts of a server.  States can be merged in any order and grouping, so a distributed job can reduce them.

    Attributes:
        spec: hash of the spec.
        reports: number of reports counted.
        refused: number of batches refused.
        tally: sum of the tallies of the reports; empty for heavy hitters.
        raw_reports: the reports in canonical order, for heavy hitters; otherwise empty.
        simulated: true if a seed determined the noise of any report.
    """

    spec: str
    reports: int
    refused: int
    tally: Tally
    raw_reports: NDArray[np.uint8]
    simulated: bool = False

    def merge(self, other: ServerState) -> ServerState:
        """Add two states.  Merging is associative and commutative.

        Raises:
            ReportError: the states belong to different specs.
        """
        if self.spec != other.spec:
            raise ReportError("states of different specs cannot be merged", culprit=(self.spec, other.spec))
        if max(self.reports + other.reports, self.refused + other.refused) > _MOST:
            raise ReportError("the states together count more reports than a state can hold", culprit=(self, other))
        held = [
            state.raw_reports for state in (self, other) if state.raw_reports.size
        ]  # an empty state in bytes has no width
        raw_reports = np.concatenate(held) if held else self.raw_reports
        return ServerState(
            self.spec,
            self.reports + other.reports,
            self.refused + other.refused,
            self.tally + other.tally,
            raw_reports[np.lexsort(raw_reports.T[::-1])] if len(raw_reports) else raw_reports,
            self.simulated or other.simulated,
        )

    def to_bytes(self) -> bytes:
        """Return the state in a compact form with a checksum, for files and messages."""
        magic = _SIMULATED_MAGIC if self.simulated else _MAGIC
        head = _HEAD.pack(
            magic, bytes.fromhex(self.spec), self.reports, self.refused, self.tally.size, self.raw_reports.size
        )
        body = head + self.tally.astype("<i8").tobytes() + self.raw_reports.tobytes()
        return body + hashlib.sha256(body).digest()

    @classmethod
    def from_bytes(cls, packed: bytes) -> ServerState:
        """Undo :meth:`to_bytes`.

        Raises:
            ReportError: the bytes are damaged or no state.
        """
        body, check = packed[:-32], packed[-32:]
        if (
            len(body) < _HEAD.size
            or body[:4] not in (_MAGIC, _SIMULATED_MAGIC)
            or hashlib.sha256(body).digest() != check
        ):
            raise ReportError("these bytes are no state, or are damaged")
        _, spec, reports, refused, tally, raw_bytes = _HEAD.unpack_from(body)
        fits = len(body) == _HEAD.size + 8 * tally + raw_bytes and not (raw_bytes % reports if reports else raw_bytes)
        if not fits or max(reports, refused) > _MOST:
            raise ReportError("these bytes are no state: its parts do not have the sizes that it names")
        numbers = np.frombuffer(body, dtype="<i8", count=tally, offset=_HEAD.size).astype(np.int64)
        rest = np.frombuffer(body, dtype=np.uint8, count=raw_bytes, offset=_HEAD.size + 8 * tally)
        return cls(
            spec.hex(),
            reports,
            refused,
            numbers,
            rest.reshape(reports, -1) if raw_bytes else rest.reshape(0, 0),
            body.startswith(_SIMULATED_MAGIC),
        )


class Server:
    """A server that counts reports made under one spec and estimates from them.

    Args:
        spec: the agreement with the clients.
    """

    def __init__(self, spec: Spec) -> None:
        expect(spec, Spec, "a spec is what a design returns, such as Frequency.design(...)")
        self._spec = spec
        self._state = empty(spec)

    @property
    def refused(self) -> int:
        """The number of refused batches."""
        return self._state.refused

    def update(self, reports: Reports) -> None:
        """Count a batch of reports, all of it or nothing.

        Raises:
            ReportError: the reports belong to another spec, have a wrong form, or are impossible.  The refusal is
                counted.
        """
        try:
            self._state = self._state.merge(summary(self._spec, reports))
        except ReportError:
            self.refuse()
            raise

    def refuse(self) -> None:
        """Count a batch that could not be read as refused."""
        nothing = empty(self._spec)
        self._state = self._state.merge(ServerState(nothing.spec, 0, 1, nothing.tally, nothing.raw_reports))

    def merge(self, state: ServerState) -> None:
        """Add the counts of another server.

        Raises:
            ReportError: the counts belong to another spec, have a wrong size, or are impossible.
        """
        expect(state, ServerState, "a server merges the State of another server")
        if state.tally.shape != self._state.tally.shape or state.raw_reports.shape[1:] not in {
            (0,),
            *_raw_shape(self._spec),
        }:
            raise ReportError("the state does not have the size that its spec asks for")
        if not _countable(self._spec, state):
            raise ReportError("no reports can have made this state: it is corrupt")
        self._state = self._state.merge(state)

    def state(self) -> ServerState:
        """Return the state with all counts."""
        return self._state

    def estimate(self, post: Post = Post.NONE) -> Estimate:
        """Return estimates with variances.  They are unbiased with ``Post.NONE``.

        Raises:
            InputError: there are too few reports, the spec does not offer the post-processing, or the spec is for heavy
                hitters: use :meth:`find`.
        """
        result = self._spec.estimate(self._state.tally, self._state.reports, post)
        return replace(result, simulated=self._state.simulated)

    def find(self, *, most: int) -> Estimate:
        """Estimate the most frequent values of an open domain.

        Raises:
            InputError: the spec is not for heavy hitters, or there are too few reports.
        """
        if not isinstance(self._spec, HeavyHitters):
            raise InputError("only a heavy-hitters spec finds values: use estimate")
        return replace(self._spec.find(self._state.raw_reports, most=most), simulated=self._state.simulated)


def summary(spec: Spec, reports: Reports) -> ServerState:
    """Count one batch into a state, for a worker of a distributed job.

    Raises:
        ReportError: the reports were made under another spec, have a wrong form, or are impossible.
    """
    expect(reports, Reports, "a server counts the Reports of a client")
    data = reports.data
    if reports.spec != fingerprint(spec):
        raise ReportError("these reports were made under another spec", culprit=reports.spec)
    if not spec.randomizer.layout.fits(data):
        raise ReportError(f"reports of this spec do not come as {data.dtype} of shape {data.shape}")
    if not spec.randomizer.valid_reports(data):
        raise ReportError("some of these reports cannot have been made under the spec: they are corrupt")
    nothing = empty(spec)
    if isinstance(spec, HeavyHitters):
        rows = data[np.lexsort(data.T[::-1])].astype(np.uint8, copy=False)
        return ServerState(nothing.spec, len(data), 0, nothing.tally, rows, reports.simulated)
    return ServerState(nothing.spec, len(data), 0, spec.randomizer.tally(data), nothing.raw_reports, reports.simulated)


def empty(spec: Spec) -> ServerState:
    """Return the state without reports, the neutral element of merging."""
    raw_reports = np.zeros((0, spec.randomizer.layout.width if isinstance(spec, HeavyHitters) else 0), dtype=np.uint8)
    size = 0 if isinstance(spec, HeavyHitters) else spec.randomizer.tally_size
    return ServerState(fingerprint(spec), 0, 0, np.zeros(size, dtype=np.int64), raw_reports)


def _countable(spec: Spec, state: ServerState) -> bool:
    """Return whether the reports of the state can have produced its counts."""
    counts = (state.reports, state.refused)
    if any(type(count) is not int or not 0 <= count <= _MOST for count in counts) or state.tally.dtype != np.int64:
        return False
    if isinstance(spec, HeavyHitters):
        raw_reports = state.raw_reports
        return (
            raw_reports.dtype == np.uint8
            and len(raw_reports) == state.reports
            and (not len(raw_reports) or spec.randomizer.valid_reports(raw_reports))
        )
    if state.raw_reports.size or np.any(state.tally < 0) or np.any(state.tally > state.reports):
        return False
    return not isinstance(spec.randomizer, Composite) or spec.randomizer.fits(state.tally, state.reports)


def _raw_shape(spec: Spec) -> set[tuple[int, ...]]:
    return {(spec.randomizer.layout.width,)} if isinstance(spec, HeavyHitters) else set()
