"""Evaluation of releases: their utility, attacks on them, and audits of their mechanisms.

Results are computed from the protected table without noise. Keep them as secret as the table.
"""

from sfumato.evaluate.attacks.suite import attack
from sfumato.evaluate.audit.audit import Subject, audit_all, subject_of
from sfumato.evaluate.audit.loss_bounds import audit_one_run
from sfumato.evaluate.evaluation_result import judge
from sfumato.evaluate.frontier import Candidate, frontier, grid
from sfumato.evaluate.population_split import PopulationSplit, open_population_split, split_population
from sfumato.evaluate.release_files import read_hierarchy, read_release
from sfumato.evaluate.released import Claim
from sfumato.evaluate.utility.scorecard import scorecard

__all__ = [
    "Candidate",
    "Claim",
    "PopulationSplit",
    "Subject",
    "attack",
    "audit_all",
    "audit_one_run",
    "frontier",
    "grid",
    "judge",
    "open_population_split",
    "read_hierarchy",
    "read_release",
    "scorecard",
    "split_population",
    "subject_of",
]
