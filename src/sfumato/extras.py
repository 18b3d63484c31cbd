"""Optional parts of the installation: what each needs, and the one sentence that names what is missing."""

from __future__ import annotations

from importlib.util import find_spec

from sfumato.errors import MissingExtraError

EXTRAS: dict[str, tuple[str, ...]] = {
    "plots": ("altair", "vl_convert", "jinja2"),
    "evaluate": ("sklearn",),
    "server": ("fastapi", "uvicorn", "prometheus_client", "python_multipart", "jinja2", "authlib", "joserfc", "httpx"),
    "client": ("httpx", "pydantic"),
    "postgres": ("psycopg",),
    "mysql": ("pymysql",),
    "spark": ("pyspark",),
}
"""The packages that the code imports of each extra, as they are imported."""


def missing(extra: str) -> tuple[str, ...]:
    """The packages of an extra that are not installed; finding that out imports none of them."""
    return tuple(package for package in EXTRAS[extra] if find_spec(package) is None)


def require(extra: str, purpose: str) -> None:
    """Refuse what needs an extra that is not installed, before anything is read or charged.

    Args:
        extra: one of :data:`EXTRAS`.
        purpose: what needs it, as the sentence begins.

    Raises:
        MissingExtraError: a package of the extra is missing.
    """
    if absent := missing(extra):
        raise MissingExtraError(
            f"{purpose} needs {absent[0]}, which is not installed; pip install 'sfumato[{extra}]'", culprit=extra
        )
