"""The public facts about tables: attributes, their cells, and the privacy unit.

A domain has attributes in order: categorical, integer, real, date or time stamp, nullable or not.  It declares the
treatment of undeclared values.  A hierarchy groups values level by level; a query groups rows by a grouping.  The unit
is one row, or all rows of one id up to declared bounds.  Losses are stated for the unit.

A schema describes linked tables.  Each private row has one owner, named by a column or found through the key of another
table; rows of public tables have no owner.  A view is a closed tree over the tables.  Every node is unit-local: its
rows of a unit depend on that unit's rows and on public tables alone.  A join that multiplies rows keeps a declared
number of rows per unit, so its size is bounded by public numbers.
"""

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
)
from sfumato.domain.calendar import Grain
from sfumato.domain.document import dump, load, parse
from sfumato.domain.domain import Axis, CsvFormat, Domain, Grouping
from sfumato.domain.raw_values import Unknown
from sfumato.domain.unit import Acceptance, GroupBound, Unit

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
