"""Sets of counting queries, and the noisy sums that answer them best."""

from sfumato.workload.counting_queries import (
    Boxes,
    Explicit,
    Marginals,
    Workload,
    all_marginals,
    all_ranges,
    cells_of,
    prefixes,
    ranges,
    rectangles,
)

__all__ = [
    "Boxes",
    "Explicit",
    "Marginals",
    "Workload",
    "all_marginals",
    "all_ranges",
    "cells_of",
    "prefixes",
    "ranges",
    "rectangles",
]
