"""Replay: run a session on a database, record its noise, run it on a neighbor with that noise, and compare.

**What is replayed.**  A drawn session (:mod:`sessions`): commands, a Python program, or requests of several analysts to
a server.  It has repeats, refusals, an exhausted budget, caps, approvals, broken methods, an engine that fails, a
process that is killed, synthetic tables, and a new version of the data.  Its database (:mod:`databases`) has a
neighbor, in which one unit's rows are added, removed or changed in any or all versions.  The first run records the
output of every mechanism (:mod:`tape`, :mod:`listening`).  The second run is on the neighbor, and each mechanism
returns the recorded output.

**What is observable** and has to be equal: exit codes, output, replies with their headers, refusals, charges, the rows
of the ledger and of the server's tables, written files, and the sequence of calls at the port of the engine with their
arguments, reservations and commits among them (:mod:`observing`).  Times are left out, and random names and keyed
digests are numbered in the order of their first appearance.

**What else has to hold.**  The exact inputs of each draw move by no more than its question declares.  All draws of one
charge together lose no more than it, by the exact loss of these inputs.  No row is read in a step before something was
charged in it, except by whoever opens the tables.  The largest result within a step's statements moves by no more than
a few times the public bound of its joins and the rows by which the databases differ.

**What it cannot see.**  Time and memory.  How often a choice by scores rejects a candidate (the coins are forced, too).
What follows from rows and is the same in these two runs.  Engines other than DuckDB and PostgreSQL.  What several
requests do at the same time.  Whether noise has the right distribution: that is for the tests of mechanisms.  What is
exact by design, as anonymization and an owner's checks.  What stewards alone see, as whether the source changed.
"""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.replay.listening import listening
from tests.replay.observing import Names, files
from tests.replay.running import WAYS
from tests.replay.sessions import Session, drawn_session
from tests.replay.tape import Tape, losses

_ROOM = 4  # times a public bound: what joins build on their way, and pads of the engine
_SHOWN = 12  # lines of a difference


@dataclass
class Observed:
    """The observations of a run, step by step, and the state that it left behind."""

    tape: Tape
    shown: list[str] = field(default_factory=list)
    left_behind: dict[str, str] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)


def observed(session: Session, side: str, forced: Tape | None = None) -> Observed:
    """Run a session on one side of its history.

    Args:
        session: what is done.
        side: ``left`` or ``right``.
        forced: the tape of the other run; None: record.
    """
    tape = Tape(forced)
    found = Observed(tape)
    with tempfile.TemporaryDirectory() as place, listening(tape, seed=session.seed):
        folder = Path(place)
        names = Names(folder)
        way = WAYS[session.way](session, side, folder)
        try:
            found.shown.append(names.of(way.begin()))
            for at, step in enumerate(session.steps):
                tape.step(at, fails=step.fails)
                found.shown.append(names.of(way.do(step)))
        finally:
            way.end()
        found.left_behind = files(folder, names)
        found.calls = [names.of(call) for call in tape.calls]
    return found


def differences(session: Session) -> list[str]:
    """Return what a run on the neighbor shows beyond noise; empty if the product's guarantee holds."""
    left = observed(session, "left")
    right = observed(session, "right", left.tape)
    return [*_differences(session, left, right)]


def _differences(session: Session, left: Observed, right: Observed) -> Iterator[str]:
    for place, (one, other) in enumerate(zip(left.shown, right.shown, strict=True)):
        if one != other:
            yield f"step {place - 1} shows a difference:\n{_compared(one, other)}"
    for name in sorted({*left.left_behind, *right.left_behind}):
        one, other = left.left_behind.get(name, "(nothing)"), right.left_behind.get(name, "(nothing)")
        if one != other:
            yield f"{name} differs:\n{_compared(one, other)}"
    if left.calls != right.calls:
        one, other = "\n".join(left.calls), "\n".join(right.calls)
        yield f"the engine or the ledger is asked otherwise:\n{_compared(one, other)}"
    for tape in (left.tape, right.tape):
        yield from (f"rows are read before the charge: {statement}" for statement in tape.early)
    yield from losses(left.tape, right.tape, units=session.history.units)
    yield from _sizes(session, left.tape, right.tape)


def _sizes(session: Session, left: Tape, right: Tape) -> Iterator[str]:
    """Results that are larger than public bounds allow for the rows of one unit."""
    for step in sorted({*left.sizes, *right.sizes}):
        one, other = left.sizes.get(step, 0), right.sizes.get(step, 0)
        most = _ROOM * (session.steps[step].bound + session.history.moved)
        if abs(one - other) > most:
            yield f"step {step} makes {one} rows in one run and {other} in the other, for public bounds of {most}"


def _compared(one: str, other: str) -> str:
    lines = difflib.unified_diff(one.splitlines(), other.splitlines(), "left", "right", n=0, lineterm="")
    return "\n".join(f"    {line[:600]}" for _, line in zip(range(_SHOWN), lines, strict=False))


def smallest(
    session: Session, differs: Callable[[Session], bool] = lambda session: bool(differences(session))
) -> Session:
    """The session with as few of its steps as still show a difference."""
    place = 0
    while place < len(session.steps):
        fewer = replace(session, steps=session.steps[:place] + session.steps[place + 1 :])
        if differs(fewer):
            session = fewer
        else:
            place += 1
    return session


def replayed(seed: int, *, linked: bool) -> None:
    """Replay a drawn session; a difference fails with the smallest session that shows one."""
    session = drawn_session(seed, linked=linked)
    if differences(session):
        session = smallest(session)
        raise AssertionError(f"{session}\n" + "\n".join(differences(session)))
