"""Synthetic units across several tables: parents and the sequences of their children."""

from sfumato.synthesize.families.family_release import MeasuredPart, ModelSizes, RelatedRelease
from sfumato.synthesize.families.related_synthesis import related

__all__ = ["MeasuredPart", "ModelSizes", "RelatedRelease", "related"]
