"""Differentially private synthetic tables."""

from sfumato.synthesize.aim import aim
from sfumato.synthesize.annealed import annealed
from sfumato.synthesize.auto import auto
from sfumato.synthesize.histogram import histogram, marginals
from sfumato.synthesize.matrix import matrix
from sfumato.synthesize.mst import mst
from sfumato.synthesize.mwem import Schedule, mwem
from sfumato.synthesize.total import Charged, Public, Summed
from sfumato.synthesize.workload import all_marginals, all_ranges, prefixes, ranges, rectangles

__all__ = [
    "Charged",
    "Public",
    "Schedule",
    "Summed",
    "aim",
    "all_marginals",
    "all_ranges",
    "annealed",
    "auto",
    "histogram",
    "marginals",
    "matrix",
    "mst",
    "mwem",
    "prefixes",
    "ranges",
    "rectangles",
]
