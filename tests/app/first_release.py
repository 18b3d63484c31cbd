"""The first release of a test begins its ledger: it says ``--create``, as whoever reads the docs does."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

_RELEASING = ("anonymize", "apply", "query", "synthesize")
_NOTHING_RELEASED = ("--accuracy", "--cost", "--create", "--help")


def begun(arguments: tuple[str, ...], cwd: Path) -> tuple[str, ...]:
    """The arguments of a command, with ``--create`` where it releases from a ledger that is not there yet."""
    if not arguments or arguments[0] not in _RELEASING or any(each in arguments for each in _NOTHING_RELEASED):
        return arguments
    given = dict(pairwise(arguments))
    beside = (cwd / (given.get("--domain") or _table(arguments))).resolve().with_suffix(".ledger")
    ledger = given.get("--ledger", beside)
    made = "://" in str(ledger) or (cwd / ledger).exists()
    return arguments if made else (*arguments, "--create")


def _table(arguments: tuple[str, ...]) -> str:
    return arguments[2 if arguments[0] == "apply" and len(arguments) > 2 else 1]
