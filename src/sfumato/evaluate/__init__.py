"""What a release is good for, what can be stolen from it, and whether its mechanism keeps its word.

Everything here is computed from the protected table without noise: results are as secret as the table.
"""

from sfumato.evaluate.attacks.suite import attack
from sfumato.evaluate.audit.audit import audit_all
from sfumato.evaluate.audit.subject import Subject, subject_of
from sfumato.evaluate.claims import Claim
from sfumato.evaluate.files import open_panel
from sfumato.evaluate.frontier import Contender, frontier
from sfumato.evaluate.grid import grid
from sfumato.evaluate.panel import Panel, panel
from sfumato.evaluate.reading import read_hierarchy, read_release
from sfumato.evaluate.utility.scorecard import scorecard
from sfumato.evaluate.verdict import judge

__all__ = [
    "Claim",
    "Contender",
    "Panel",
    "Subject",
    "attack",
    "audit_all",
    "frontier",
    "grid",
    "judge",
    "open_panel",
    "panel",
    "read_hierarchy",
    "read_release",
    "scorecard",
    "subject_of",
]
