"""What is publicly known about a table: its attributes, their cells, and what one person can change."""

from sfumato.domain.attribute import Attribute, Categorical, Integer, Real, Role, Unknown
from sfumato.domain.document import dump, load, parse
from sfumato.domain.domain import Acceptance, CsvFormat, Domain, Grouping, Unit

__all__ = [
    "Acceptance",
    "Attribute",
    "Categorical",
    "CsvFormat",
    "Domain",
    "Grouping",
    "Integer",
    "Real",
    "Role",
    "Unit",
    "Unknown",
    "dump",
    "load",
    "parse",
]
