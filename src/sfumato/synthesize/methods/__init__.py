"""The methods of synthesis: each file ends with a :class:`SynthesisMethod`, whose name is in the tuple below."""

from typing import Final

from sfumato.synthesize.methods.aim import AIM
from sfumato.synthesize.methods.batched import BATCHED
from sfumato.synthesize.methods.histogram import HISTOGRAM, MARGINALS, MATRIX
from sfumato.synthesize.methods.independent import INDEPENDENT
from sfumato.synthesize.methods.mst import MST
from sfumato.synthesize.methods.mwem import MWEM
from sfumato.synthesize.synthesis_method import SynthesisMethod

SYNTHESIZERS: Final[tuple[SynthesisMethod, ...]] = (HISTOGRAM, MARGINALS, MATRIX, BATCHED, MST, AIM, MWEM, INDEPENDENT)
"""All methods; ``auto`` takes the first of equal ones."""
