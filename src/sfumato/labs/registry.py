"""The labs by name.  A module is loaded when its lab is asked for, and holds it as ``LAB``."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from sfumato.errors import InputError
from sfumato.labs.lab import Lab

MODULES: Mapping[str, str] = {
    "samarati": "sfumato.labs.samarati",
    "mondrian": "sfumato.labs.mondrian",
    "mwem-1d": "sfumato.labs.mwem_1d",
    "mwem-2d": "sfumato.labs.mwem_2d",
    "hiera-mu": "sfumato.labs.hiera_mu",
    "hiera-methods": "sfumato.labs.hiera_methods",
    "ldp-sgd": "sfumato.labs.ldp_sgd",
    "synthetic-data": "sfumato.labs.synthetic_data",
    "interactive": "sfumato.labs.interactive",
}


def load(name: str) -> Lab:
    """The lab of that name.

    Raises:
        InputError: there is none.
    """
    if name not in MODULES:
        raise InputError(f"no lab {name!r}; there are {', '.join(MODULES)}", culprit=name)
    lab: Lab = import_module(MODULES[name]).LAB
    return lab
