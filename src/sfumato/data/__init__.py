"""Bundled tables and loaders of public tables."""

from sfumato.data.bundled import (
    census,
    census_release,
    child_mental_health,
    child_mental_health_counts,
    child_mental_health_queries,
    domain,
    domain_text,
    hospital,
    hospital_release,
    hospital_schema,
    medical,
    medical_neighbour,
    zoo,
    zoo_neighbour,
)
from sfumato.data.uci_adult import adult

__all__ = [
    "adult",
    "census",
    "census_release",
    "child_mental_health",
    "child_mental_health_counts",
    "child_mental_health_queries",
    "domain",
    "domain_text",
    "hospital",
    "hospital_release",
    "hospital_schema",
    "medical",
    "medical_neighbour",
    "zoo",
    "zoo_neighbour",
]
