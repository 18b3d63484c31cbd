"""The published experiments, as printed and done honestly.

The labs import the library.  Only the module ``command``, the command ``sfumato lab``, imports the command line, which
finds it by its entry point.  Names are imported on first use, so that ``sfumato --help`` loads no experiment.

The main classes: a ``Lab`` runs with ``Options`` and returns a ``LabResult`` of tables, plots and notes.  Options refer
to the columns of another table by a ``NamedColumn``.  A ``Handout`` is one page with all labs.

>>> import sfumato_labs
>>> "mwem-1d" in sfumato_labs.names()
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfumato_labs.lab import Lab, LabResult, NamedColumn, Options, load, run

__all__ = ["Lab", "LabResult", "NamedColumn", "Options", "load", "names", "run"]


def names() -> tuple[str, ...]:
    """Return the names of the labs."""
    return tuple(import_module("sfumato_labs.lab").MODULES)


def __getattr__(name: str) -> Any:  # noqa: ANN401  (PEP 562)
    if name not in __all__:
        raise AttributeError(f"module 'sfumato_labs' has no attribute {name!r}")
    return getattr(import_module("sfumato_labs.lab"), name)
