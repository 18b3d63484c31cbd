"""Criteria for classes that are safe to publish, each with the attacker that it answers to.

A criterion is one file or a class of one, and its name in ``CRITERIA``: text, journal and refusals read the rest.
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
