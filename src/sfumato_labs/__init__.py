"""The published experiments, as printed and done honestly.

>>> import sfumato_labs
>>> "mwem-1d" in sfumato_labs.names()
True
"""

from __future__ import annotations

from sfumato_labs.lab import MODULES, Column, Lab, LabResult, Options, load, run

__all__ = ["Column", "Lab", "LabResult", "Options", "load", "names", "run"]


def names() -> tuple[str, ...]:
    """The names of the labs."""
    return tuple(MODULES)
