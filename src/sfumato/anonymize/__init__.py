"""Syntactic anonymization: hierarchies, criteria, losses, searches, local recoding, risk.  It is not differential
privacy.

Local recoding and risk are imported on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sfumato.anonymize.criteria import (
    AlphaK,
    BasicBetaLikeness,
    CountedIn,
    Criterion,
    DeltaDisclosure,
    DeltaPresence,
    DistinctDiversity,
    EnhancedBetaLikeness,
    EntropyDiversity,
    GroundDistance,
    KAnonymity,
    KMap,
    NTCloseness,
    RecursiveDiversity,
    TCloseness,
)
from sfumato.anonymize.full_domain import Extent, optimal, samarati
from sfumato.anonymize.release.anonymized import Anonymized, apply
from sfumato.anonymize.release.recoding import load_recoding
from sfumato.anonymize.release.request import Missing, Quasi, RowLimit, parse_criterion, population
from sfumato.anonymize.release.unchanged_columns import Keep
from sfumato.anonymize.search.lattice_search import TieBreak
from sfumato.domain.hierarchy import Hierarchy

if TYPE_CHECKING:
    from sfumato.anonymize.local_recoding import Cut, Search, k_member, microaggregate, mondrian
    from sfumato.anonymize.reidentification import assess_table, estimate_uniques

_LATER = {
    "sfumato.anonymize.local_recoding": ("Cut", "Search", "k_member", "microaggregate", "mondrian"),
    "sfumato.anonymize.reidentification": ("assess_table", "estimate_uniques"),
}

__all__ = [
    "AlphaK",
    "Anonymized",
    "BasicBetaLikeness",
    "CountedIn",
    "Criterion",
    "Cut",
    "DeltaDisclosure",
    "DeltaPresence",
    "DistinctDiversity",
    "EnhancedBetaLikeness",
    "EntropyDiversity",
    "Extent",
    "GroundDistance",
    "Hierarchy",
    "KAnonymity",
    "KMap",
    "Keep",
    "Missing",
    "NTCloseness",
    "Quasi",
    "RecursiveDiversity",
    "RowLimit",
    "Search",
    "TCloseness",
    "TieBreak",
    "apply",
    "assess_table",
    "estimate_uniques",
    "k_member",
    "load_recoding",
    "microaggregate",
    "mondrian",
    "optimal",
    "parse_criterion",
    "population",
    "samarati",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401  (PEP 562)
    for module, names in _LATER.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'sfumato.anonymize' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
