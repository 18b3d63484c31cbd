"""Differentially private synthetic tables."""

from sfumato.domain.linked_domain import ChildTable
from sfumato.synthesize.auto import Synthesizer, auto, options, without_delta
from sfumato.synthesize.binning import private_edges
from sfumato.synthesize.budget_allocation import BudgetShare, NoisyTotal, PublicTotal, drowned_totals
from sfumato.synthesize.codebook.codebook import Codebook, read_codebook
from sfumato.synthesize.linked import LinkedRelease, linked_without_delta, load_linked, save_linked, synthesize_linked
from sfumato.synthesize.marginal_selection import SizeLimits
from sfumato.synthesize.methods import SYNTHESIZERS
from sfumato.synthesize.methods.aim import aim
from sfumato.synthesize.methods.batched import batched
from sfumato.synthesize.methods.histogram import histogram, marginals, matrix
from sfumato.synthesize.methods.independent import independent
from sfumato.synthesize.methods.mst import mst
from sfumato.synthesize.methods.mwem import Output, Schedule, mwem
from sfumato.synthesize.preview import preview
from sfumato.synthesize.structural_zeros import Zeros, load_zeros, read_zeros
from sfumato.synthesize.synthetic import Synthetic, SyntheticFile, load, read_release, save
from sfumato.workload import Explicit, all_marginals, all_ranges, cells_of, prefixes, ranges, rectangles

__all__ = [
    "SYNTHESIZERS",
    "BudgetShare",
    "ChildTable",
    "Codebook",
    "Explicit",
    "LinkedRelease",
    "NoisyTotal",
    "Output",
    "PublicTotal",
    "Schedule",
    "SizeLimits",
    "Synthesizer",
    "Synthetic",
    "SyntheticFile",
    "Zeros",
    "aim",
    "all_marginals",
    "all_ranges",
    "auto",
    "batched",
    "cells_of",
    "drowned_totals",
    "histogram",
    "independent",
    "linked_without_delta",
    "load",
    "load_linked",
    "load_zeros",
    "marginals",
    "matrix",
    "mst",
    "mwem",
    "options",
    "prefixes",
    "preview",
    "private_edges",
    "ranges",
    "read_codebook",
    "read_release",
    "read_zeros",
    "rectangles",
    "save",
    "save_linked",
    "synthesize_linked",
    "without_delta",
]
