"""Sfumato: release sensitive tables with a privacy guarantee that can be stated, accounted for and attacked.

Families are loaded when they are first named, so that ``import sfumato`` costs next to nothing and a
local-privacy client never loads an engine.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfumato import anonymize, data, evaluate, local, query, synthesize
    from sfumato.anonymize import KAnonymity
    from sfumato.domain import Domain, Unit
    from sfumato.domain import load as load_domain
    from sfumato.engine.open import open_table
    from sfumato.errors import SfumatoError
    from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho
    from sfumato.query.statements.derived_columns import open_schema
    from sfumato.synthesize import all_marginals
    from sfumato.vault.vault_opening import open_vault as open  # noqa: A004  (``sf.open`` reads like ``open``)

_FAMILIES = ("anonymize", "data", "evaluate", "local", "query", "synthesize")
_NAMES = {
    "Domain": ("sfumato.domain", "Domain"),
    "Epsilon": ("sfumato.privacy.loss", "Epsilon"),
    "EpsilonDelta": ("sfumato.privacy.loss", "EpsilonDelta"),
    "KAnonymity": ("sfumato.anonymize", "KAnonymity"),
    "Rho": ("sfumato.privacy.loss", "Rho"),
    "SfumatoError": ("sfumato.errors", "SfumatoError"),
    "Unit": ("sfumato.domain", "Unit"),
    "all_marginals": ("sfumato.synthesize", "all_marginals"),
    "load_domain": ("sfumato.domain", "load"),
    "open": ("sfumato.vault.vault_opening", "open_vault"),
    "open_schema": ("sfumato.query.statements.derived_columns", "open_schema"),
    "open_table": ("sfumato.engine.open", "open_table"),
}

__all__ = [
    "Domain",
    "Epsilon",
    "EpsilonDelta",
    "KAnonymity",
    "Rho",
    "SfumatoError",
    "Unit",
    "all_marginals",
    "anonymize",
    "data",
    "evaluate",
    "load_domain",
    "local",
    "open",
    "open_schema",
    "open_table",
    "query",
    "synthesize",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401  (PEP 562)
    if name in _FAMILIES:
        return import_module(f"sfumato.{name}")
    if name in _NAMES:
        module, attribute = _NAMES[name]
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module 'sfumato' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
