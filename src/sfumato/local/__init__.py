"""Local differential privacy: every person perturbs their own value before it leaves them.

A client randomises, a server estimates, and both read one frozen spec.  Names are imported on first use, so that an
embedded client stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfumato.local.accounting.guarantees import amplify, audit
    from sfumato.local.estimators import Post
    from sfumato.local.protocol.client import Client, FileMemo, Reports, simulate
    from sfumato.local.protocol.reports import Folding
    from sfumato.local.protocol.server import Server, State, summary
    from sfumato.local.specs.distribution import Distribution, Range
    from sfumato.local.specs.document import loads
    from sfumato.local.specs.frequency import Frequency, Method
    from sfumato.local.specs.graded import Block, GradedMean, PublicLevels
    from sfumato.local.specs.heavy_hitters import HeavyHitters
    from sfumato.local.specs.hiera import Hiera
    from sfumato.local.specs.key_value import KeyValue
    from sfumato.local.specs.mean import Mean, MeanMethod
    from sfumato.local.specs.multi_attribute import Bounds, Several, Sharing
    from sfumato.local.specs.spec import dumps

_HOMES = {
    "Block": "specs.graded",
    "Bounds": "specs.multi_attribute",
    "Client": "protocol.client",
    "Distribution": "specs.distribution",
    "FileMemo": "protocol.client",
    "Folding": "protocol.reports",
    "Frequency": "specs.frequency",
    "GradedMean": "specs.graded",
    "HeavyHitters": "specs.heavy_hitters",
    "Hiera": "specs.hiera",
    "KeyValue": "specs.key_value",
    "Mean": "specs.mean",
    "MeanMethod": "specs.mean",
    "Method": "specs.frequency",
    "Post": "estimators",
    "PublicLevels": "specs.graded",
    "Range": "specs.distribution",
    "Reports": "protocol.client",
    "Server": "protocol.server",
    "Several": "specs.multi_attribute",
    "Sharing": "specs.multi_attribute",
    "State": "protocol.server",
    "amplify": "accounting.guarantees",
    "audit": "accounting.guarantees",
    "dumps": "specs.spec",
    "loads": "specs.document",
    "simulate": "protocol.client",
    "summary": "protocol.server",
}

__all__ = [
    "Block",
    "Bounds",
    "Client",
    "Distribution",
    "FileMemo",
    "Folding",
    "Frequency",
    "GradedMean",
    "HeavyHitters",
    "Hiera",
    "KeyValue",
    "Mean",
    "MeanMethod",
    "Method",
    "Post",
    "PublicLevels",
    "Range",
    "Reports",
    "Server",
    "Several",
    "Sharing",
    "State",
    "amplify",
    "audit",
    "dumps",
    "loads",
    "simulate",
    "summary",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- whatever the name stands for
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
