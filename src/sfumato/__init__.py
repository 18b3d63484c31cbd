"""Sfumato: release sensitive tables with a privacy guarantee that can be stated, accounted for and attacked.

``describe`` drafts the description of a table, which a person checks, changes and accepts as a domain. ``open``
protects a table: it takes the table, its domain and a ledger, and returns a vault.  Each family takes the vault.  A
family is loaded at its first use, so ``import sfumato`` is quick and a local client never loads an engine.

The nouns:

* ``Domain``: the public facts about a table: its attributes and their cells.
* ``Unit``: the largest change by one person: one row, or all rows of one id up to declared bounds.
* ``Epsilon``, ``Rho`` and ``EpsilonDelta``: privacy losses, as exact numbers.
* ``Ledger``: the journal of everything released, and its budget.
* ``Vault``: a protected table with its ledger.  It charges first, then adds noise.
* ``Query`` and ``Answer`` (``query``): a query, and noisy values with intervals.
* ``Synthetic`` (``synthesize``): a synthetic table with its model and codebook.
* ``Anonymized`` (``anonymize``): a recoded table without differential privacy.
* ``Spec`` (``local``): the attribute that devices randomize, and its estimate on a server.
* ``EvaluationResult`` (``evaluate``): the utility of a release, and the results of attacks.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sfumato import anonymize, data, evaluate, local, query, synthesize
    from sfumato.anonymize import KAnonymity
    from sfumato.description.draft import describe
    from sfumato.description.tables_draft import describe_tables
    from sfumato.domain import Domain, Unit
    from sfumato.domain import load as load_domain
    from sfumato.engine.open import open_table
    from sfumato.errors import SfumatoError
    from sfumato.privacy.loss import Epsilon, EpsilonDelta, Rho
    from sfumato.query.statements.derived_columns import open_schema
    from sfumato.synthesize import all_marginals
    from sfumato.vault.vault_opening import open_vault as open  # noqa: A004  (``sf.open`` reads like ``open``)

_PACKAGES = ("anonymize", "data", "evaluate", "local", "query", "synthesize")
_NAMES = {
    "Domain": ("sfumato.domain", "Domain"),
    "Epsilon": ("sfumato.privacy.loss", "Epsilon"),
    "EpsilonDelta": ("sfumato.privacy.loss", "EpsilonDelta"),
    "KAnonymity": ("sfumato.anonymize", "KAnonymity"),
    "Rho": ("sfumato.privacy.loss", "Rho"),
    "SfumatoError": ("sfumato.errors", "SfumatoError"),
    "Unit": ("sfumato.domain", "Unit"),
    "all_marginals": ("sfumato.synthesize", "all_marginals"),
    "describe": ("sfumato.description.draft", "describe"),
    "describe_tables": ("sfumato.description.tables_draft", "describe_tables"),
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
    "describe",
    "describe_tables",
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
    if name in _PACKAGES:
        return import_module(f"sfumato.{name}")
    if name in _NAMES:
        module, attribute = _NAMES[name]
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module 'sfumato' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
