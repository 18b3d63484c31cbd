"""What is publicly known about a table: its attributes, their cells, and what one person can change."""

from sfumato.domain.attribute import (
    Attribute,
    Categorical,
    Date,
    Dated,
    Integer,
    Numeric,
    Real,
    Role,
    Timestamp,
    Unknown,
)
from sfumato.domain.calendar import Grain
from sfumato.domain.document import dump, load, parse
from sfumato.domain.domain import Acceptance, Axis, CsvFormat, Domain, Grouping
from sfumato.domain.unit import GroupBound, Unit

__all__ = [
    "Acceptance",
    "Attribute",
    "Axis",
    "Categorical",
    "CsvFormat",
    "Date",
    "Dated",
    "Domain",
    "Grain",
    "GroupBound",
    "Grouping",
    "Integer",
    "Numeric",
    "Real",
    "Role",
    "Timestamp",
    "Unit",
    "Unknown",
    "dump",
    "load",
    "parse",
]
