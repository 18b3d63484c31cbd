"""The first release of a test creates its ledger: it says ``--create`` and ``--limit``, as readers of the docs do."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

_RELEASING = ("anonymize", "apply", "query", "synthesize")
_NOTHING_RELEASED = ("--accuracy", "--cost", "--create", "--help", "preview", "price")


def begun(arguments: tuple[str, ...], cwd: Path) -> tuple[str, ...]:
    """Return the arguments of a command, with ``--create`` if it releases from a ledger that does not exist.

    Without ``--limit``, the loss of the release is the limit.
    """
    if not arguments or arguments[0] not in _RELEASING or any(each in arguments for each in _NOTHING_RELEASED):
        return arguments
    given = dict(pairwise(arguments))
    beside = (cwd / (given.get("--domain") or _table(arguments))).resolve().with_suffix(".ledger")
    ledger = given.get("--ledger", beside)
    made = "://" in str(ledger) or (cwd / ledger).exists()
    return arguments if made else (*arguments, "--create", *_limit(given))


def _limit(given: dict[str, str]) -> tuple[str, ...]:
    if "--limit" in given:
        return ()
    if "--k" in given or ("--epsilon" not in given and "--rho" not in given):
        return ("--limit", "1")
    loss = ",".join(given[name] for name in ("--epsilon", "--delta") if name in given)
    return ("--limit", f"rho={given['--rho']}" if "--rho" in given else loss)


def _table(arguments: tuple[str, ...]) -> str:
    return arguments[2 if arguments[0] == "apply" and len(arguments) > 2 else 1]
