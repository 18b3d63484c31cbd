"""Generalization hierarchies: built, drafted from a domain, or read from files."""

from sfumato.domain.hierarchy.builders import DateLevel, dates, draft, flat, intervals, mapping, order, prefix
from sfumato.domain.hierarchy.levels import Hierarchy, read_folder

__all__ = [
    "DateLevel",
    "Hierarchy",
    "dates",
    "draft",
    "flat",
    "intervals",
    "mapping",
    "order",
    "prefix",
    "read_folder",
]
