"""Syntactic anonymisation: hierarchies, criteria, losses, searches, local recoding, risk.  Not differential privacy."""

from sfumato.anonymize.criteria import (
    AlphaK,
    BasicBetaLikeness,
    Criterion,
    DeltaDisclosure,
    DeltaPresence,
    DistinctDiversity,
    EnhancedBetaLikeness,
    EntropyDiversity,
    GroundDistance,
    KAnonymity,
    KMap,
    RecursiveDiversity,
    TCloseness,
)
from sfumato.anonymize.full_domain import Extent, optimal, samarati
from sfumato.anonymize.local_recoding import Cut, Search, k_member, microaggregate, mondrian
from sfumato.anonymize.reidentification import assess_table, estimate_uniques
from sfumato.anonymize.release.anonymized import Anonymized, apply
from sfumato.anonymize.release.recoding import load_recoding
from sfumato.anonymize.release.request import Missing, Quasi, RowLimit, parse_criterion, population
from sfumato.anonymize.search.lattice_search import TieBreak
from sfumato.domain.hierarchy import Hierarchy

__all__ = [
    "AlphaK",
    "Anonymized",
    "BasicBetaLikeness",
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
    "Missing",
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
