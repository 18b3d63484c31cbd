"""The published experiments, as printed and done honestly.

>>> import sfumato_labs
>>> "mwem-1d" in sfumato_labs.names()
True
"""

from __future__ import annotations

from sfumato_labs.lab import MODULES, Lab, LabResult, NamedColumn, Options, load, run

__all__ = ["Lab", "LabResult", "NamedColumn", "Options", "load", "names", "run"]


def names() -> tuple[str, ...]:
    """The names of the labs."""
    return tuple(MODULES)
