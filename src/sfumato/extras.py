"""Optional parts of the installation: their packages, and the message about missing ones."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from sfumato.errors import MissingExtraError

EXTRAS: dict[str, tuple[str, ...]] = {
    "plots": ("altair", "vl_convert", "jinja2"),
    "evaluate": ("sklearn",),
    "server": ("fastapi", "uvicorn", "prometheus_client", "python_multipart", "jinja2", "authlib", "joserfc", "httpx"),
}
"""The packages that the code imports of each extra, as they are imported.  Those of an engine stand in its adapter."""


def missing(extra: str) -> tuple[str, ...]:
    """Return the packages of an extra that are not installed, without importing any."""
    return tuple(package for package in EXTRAS[extra] if find_spec(package) is None)


def require(extra: str, purpose: str, packages: Sequence[str] | None = None) -> None:
    """Refuse an operation whose extra is not installed, before anything is read or charged.

    Args:
        extra: the name by which the extra is installed.
        purpose: the operation, as the start of the sentence.
        packages: the packages of the extra, as they are imported; None: the packages in :data:`EXTRAS`.

    Raises:
        MissingExtraError: a package of the extra is missing.
    """
    needed = EXTRAS[extra] if packages is None else packages
    if absent := [package for package in needed if find_spec(package) is None]:
        raise MissingExtraError(
            f"{purpose} needs {absent[0]}, which is not installed; pip install 'sfumato[{extra}]'", culprit=extra
        )


def refuse_missing_library(name: str) -> None:
    """Refuse a table for a library that is not installed.

    Raises:
        MissingExtraError: the library is missing.
    """
    if find_spec(name) is None:
        raise MissingExtraError(f"a table for {name} needs it, and it is not installed; pip install {name}")
