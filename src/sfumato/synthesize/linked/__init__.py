"""Synthetic units across several tables: parents and the sequences of their children."""

from sfumato.synthesize.linked.linked_release import LinkedRelease, MeasuredPart, ModelSizes
from sfumato.synthesize.linked.linked_synthesis import linked_without_delta, synthesize_linked
from sfumato.synthesize.linked.saved_linked import is_of_linked_tables, load_linked, save_linked

__all__ = [
    "LinkedRelease",
    "MeasuredPart",
    "ModelSizes",
    "is_of_linked_tables",
    "linked_without_delta",
    "load_linked",
    "save_linked",
    "synthesize_linked",
]
