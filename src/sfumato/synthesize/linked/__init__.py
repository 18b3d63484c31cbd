"""Synthetic units across several tables: parents and the sequences of their children."""

from sfumato.synthesize.linked.linked_release import MeasuredPart, ModelSizes, RelatedRelease
from sfumato.synthesize.linked.linked_synthesis import related, related_without_delta
from sfumato.synthesize.linked.saved_linked import is_of_linked_tables, load_related, save_related

__all__ = [
    "MeasuredPart",
    "ModelSizes",
    "RelatedRelease",
    "is_of_linked_tables",
    "load_related",
    "related",
    "related_without_delta",
    "save_related",
]
