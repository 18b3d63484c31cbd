"""The tuple of frequency methods, which specs, commands, the automatic choice, audits and tests read."""

from typing import Final

from sfumato.local.randomizers.finite_field import PGR
from sfumato.local.randomizers.local_hashing import BLH, OLH
from sfumato.local.randomizers.longitudinal import LOLOHA, RAPPOR
from sfumato.local.randomizers.paley import PALEY
from sfumato.local.randomizers.randomizer import OracleMethod
from sfumato.local.randomizers.two_valued import GRR, HR, SS
from sfumato.local.randomizers.unary_encoding import CMS, DBITFLIP, HCMS, OUE, SUE, THE

# the first of equal variances wins the automatic choice: GRR if subsets have one element
ORACLES: Final[tuple[OracleMethod, ...]] = (
    GRR,
    SS,
    PGR,
    HR,
    BLH,
    OLH,
    SUE,
    OUE,
    THE,
    CMS,
    HCMS,
    DBITFLIP,
    RAPPOR,
    LOLOHA,
    PALEY,
)
