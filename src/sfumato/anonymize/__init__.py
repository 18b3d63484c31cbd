"""Syntactic anonymisation: hierarchies, criteria, losses, searches, local recoding, risk.  Not differential privacy."""

from sfumato.anonymize.application import apply
from sfumato.anonymize.criteria import DeltaPresence, KAnonymity, KMap
from sfumato.anonymize.full_domain import optimal, samarati
from sfumato.anonymize.hierarchy import Hierarchy
from sfumato.anonymize.local import Cut, k_member, microaggregate, mondrian
from sfumato.anonymize.quasi import Missing, Quasi
from sfumato.anonymize.release import Anonymized
from sfumato.anonymize.samarati_search import Order

__all__ = [
    "Anonymized",
    "Cut",
    "DeltaPresence",
    "Hierarchy",
    "KAnonymity",
    "KMap",
    "Missing",
    "Order",
    "Quasi",
    "apply",
    "k_member",
    "microaggregate",
    "mondrian",
    "optimal",
    "samarati",
]
