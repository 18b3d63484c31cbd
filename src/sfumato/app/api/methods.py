"""The choices of anonymization and a reader of lists of names, for every front end.

Only the standard library is imported here, because the command line shows these words before it loads anything.
"""

from __future__ import annotations

import csv
from enum import StrEnum

EXACT_FIGURES = "These figures are exact and as secret as the table: they are for its owner alone."
"""The notice next to figures that are computed from the rows without noise."""


class AnonymizationMethod(StrEnum):
    """The search for classes."""

    OPTIMAL = "optimal"
    SAMARATI = "samarati"
    MONDRIAN = "mondrian"
    K_MEMBER = "k-member"


class CountOption(StrEnum):
    """The unit in which classes are counted."""

    UNITS = "units"
    ROWS = "rows"


class CutOption(StrEnum):
    """The rule for cuts of Mondrian.  The published variant tries attributes in their order."""

    GREEDY = "greedy"
    BALANCED = "balanced"
    RELAXED = "relaxed"
    STRICT = "strict"
    IN_ORDER = "in-order"


class MissingValues(StrEnum):
    """The treatment of a row with a missing or unknown quasi-identifier."""

    CATEGORY = "category"
    SUPPRESS = "suppress"


def split_names(text: str) -> list[str]:
    """Return the names of a comma-separated list; a name with a comma is in double quotes.

    >>> split_names('age, "Name, full",zip')
    ['age', 'Name, full', 'zip']
    """
    try:
        names = next(csv.reader([text], skipinitialspace=True))
    except csv.Error:  # a line feed
        names = text.split(",")
    return [name.strip() for name in names or [""]]
