"""By which methods a table can be made, and what some of them are told: the words of every front end.

Nothing is imported here, as the command line shows these words before it loads anything.
"""

from __future__ import annotations

from enum import StrEnum

EXACT_FIGURES = "These figures are exact and as secret as the table: they are for its owner alone."
"""What every front end says beside figures that are read off the rows without noise."""


class AnonymizationMethod(StrEnum):
    """How classes are found."""

    OPTIMAL = "optimal"
    SAMARATI = "samarati"
    MONDRIAN = "mondrian"
    K_MEMBER = "k-member"


class CountOption(StrEnum):
    """What classes are counted in."""

    UNITS = "units"
    ROWS = "rows"


class CutOption(StrEnum):
    """Where Mondrian cuts; the published variant tries attributes in their order."""

    GREEDY = "greedy"
    BALANCED = "balanced"
    RELAXED = "relaxed"
    STRICT = "strict"
    IN_ORDER = "in-order"


class MissingValues(StrEnum):
    """What becomes of a row whose quasi-identifier is missing or unknown."""

    CATEGORY = "category"
    SUPPRESS = "suppress"
