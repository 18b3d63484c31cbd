"""Local differential privacy: every person perturbs their own value before it leaves their device.

A client randomizes, a server estimates, and both read the same frozen spec.  Names are imported on first use, so that
an embedded client stays small.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfumato.local.estimators import Post
    from sfumato.local.guarantees import amplify, audit
    from sfumato.local.protocol.device import Client, FileMemo, Reports, simulate
    from sfumato.local.protocol.reports import Folding, loads
    from sfumato.local.protocol.server import Server, ServerState, summary
    from sfumato.local.specs.distribution import Distribution, Range
    from sfumato.local.specs.frequency import Frequency, Method
    from sfumato.local.specs.graded import Block, GradedMean, PublicLevels
    from sfumato.local.specs.heavy_hitters import HeavyHitters
    from sfumato.local.specs.hiera import Hiera
    from sfumato.local.specs.key_value import KeyValue
    from sfumato.local.specs.mean import Mean, MeanMethod
    from sfumato.local.specs.multi_attribute import NumericBounds, Several, Sharing
    from sfumato.local.specs.spec import dumps

_HOMES = {
    "Block": "specs.graded",
    "NumericBounds": "specs.multi_attribute",
    "Client": "protocol.device",
    "Distribution": "specs.distribution",
    "FileMemo": "protocol.device",
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
    "Reports": "protocol.device",
    "Server": "protocol.server",
    "Several": "specs.multi_attribute",
    "Sharing": "specs.multi_attribute",
    "ServerState": "protocol.server",
    "amplify": "guarantees",
    "audit": "guarantees",
    "dumps": "specs.spec",
    "loads": "protocol.reports",
    "simulate": "protocol.device",
    "summary": "protocol.server",
}

__all__ = [
    "Block",
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
    "NumericBounds",
    "Post",
    "PublicLevels",
    "Range",
    "Reports",
    "Server",
    "ServerState",
    "Several",
    "Sharing",
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
