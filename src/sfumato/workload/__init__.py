"""Sets of counting queries, and which noisy sums to measure to answer them."""

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
