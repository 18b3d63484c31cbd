"""Criteria for classes that are safe to publish, each with its attacker model.

A new criterion is a class, in its own file or in that of its kind, and an entry in ``CRITERIA``. Text, journal and
refusals derive the rest.
"""

from typing import Final

from sfumato.anonymize.criteria.closeness import (
    BasicBetaLikeness,
    DeltaDisclosure,
    EnhancedBetaLikeness,
    GroundDistance,
    TCloseness,
)
from sfumato.anonymize.criteria.criterion import CountedIn, Criterion, DeltaPresence, KAnonymity, KMap
from sfumato.anonymize.criteria.diversity import AlphaK, DistinctDiversity, EntropyDiversity, RecursiveDiversity
from sfumato.anonymize.criteria.n_t_closeness import NTCloseness

__all__ = [
    "CRITERIA",
    "AlphaK",
    "BasicBetaLikeness",
    "CountedIn",
    "Criterion",
    "DeltaDisclosure",
    "DeltaPresence",
    "DistinctDiversity",
    "EnhancedBetaLikeness",
    "EntropyDiversity",
    "GroundDistance",
    "KAnonymity",
    "KMap",
    "NTCloseness",
    "RecursiveDiversity",
    "TCloseness",
]

CRITERIA: Final[tuple[type[Criterion], ...]] = (
    KAnonymity,
    KMap,
    DeltaPresence,
    DistinctDiversity,
    EntropyDiversity,
    RecursiveDiversity,
    AlphaK,
    TCloseness,
    DeltaDisclosure,
    BasicBetaLikeness,
    EnhancedBetaLikeness,
    NTCloseness,
)
