"""Local differential privacy: every person perturbs their own value before it leaves them.

A client randomises, a server estimates, and both read one frozen spec.  Names are imported on first use, so that an
embedded client stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfumato.local.auditing import audit
    from sfumato.local.client import Client, Reports
    from sfumato.local.distribution import Distribution
    from sfumato.local.document import dumps, loads
    from sfumato.local.estimate import Post
    from sfumato.local.frequency import Frequency
    from sfumato.local.graded import Block, GradedMean, PublicLevels
    from sfumato.local.heavy import HeavyHitters
    from sfumato.local.hiera import Hiera
    from sfumato.local.keyvalue import KeyValue
    from sfumato.local.mean import Mean
    from sfumato.local.ranges import Range
    from sfumato.local.server import Server
    from sfumato.local.several import Several, Sharing
    from sfumato.local.shuffle import amplify

__all__ = [
    "Block",
    "Client",
    "Distribution",
    "Frequency",
    "GradedMean",
    "HeavyHitters",
    "Hiera",
    "KeyValue",
    "Mean",
    "Post",
    "PublicLevels",
    "Range",
    "Reports",
    "Server",
    "Several",
    "Sharing",
    "amplify",
    "audit",
    "dumps",
    "loads",
]

_HOMES = {
    "Block": "graded",
    "Client": "client",
    "Distribution": "distribution",
    "Frequency": "frequency",
    "GradedMean": "graded",
    "HeavyHitters": "heavy",
    "Hiera": "hiera",
    "KeyValue": "keyvalue",
    "Mean": "mean",
    "Post": "estimate",
    "PublicLevels": "graded",
    "Range": "ranges",
    "Reports": "client",
    "Server": "server",
    "Several": "several",
    "Sharing": "several",
    "amplify": "shuffle",
    "audit": "auditing",
    "dumps": "document",
    "loads": "document",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- whatever the name stands for
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
