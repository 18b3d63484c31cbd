"""When is a class safe to publish?  Eleven criteria, each with the attacker that it answers to."""

from sfumato.anonymize.criteria.closeness import (
    BasicBetaLikeness,
    DeltaDisclosure,
    EnhancedBetaLikeness,
    GroundDistance,
    TCloseness,
)
from sfumato.anonymize.criteria.criterion import CountedIn, Criterion, DeltaPresence, KAnonymity, KMap
from sfumato.anonymize.criteria.diversity import AlphaK, DistinctDiversity, EntropyDiversity, RecursiveDiversity

__all__ = [
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
    "RecursiveDiversity",
    "TCloseness",
]
