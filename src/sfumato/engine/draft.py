"""A draft domain, read off the protected table for its owner to edit.

What it says about people (extremes, categories) is not private, so it is marked as a draft and releases
refuse it.  A column of numbers with a few codes among them ("N") is drafted as numbers, and the codes, like
numbers out of range, as one cell of unknown values.  Columns that cannot be described by a list of values or
a range are left out, and named.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from sfumato.domain import Attribute, Categorical, Domain, Integer, Real, Unknown
from sfumato.engine.port import Kind, Profile, Table
from sfumato.errors import TableError

MOST_VALUES = 200  # of a categorical attribute, and of an integer one without bins
BINS = 32


@dataclass(frozen=True)
class Draft:
    """A domain marked as a draft, and the columns it leaves out with the reason."""

    domain: Domain
    left_out: dict[str, str]


def draft_domain(table: Table) -> Draft:
    """Describe ``table`` as its own content suggests; the unit is one row.

    Raises:
        TableError: no column can be described.
    """
    attributes, left_out = [], {}
    for profile in table.profile(MOST_VALUES):
        drafted = _attribute(profile)
        if isinstance(drafted, str):
            left_out[profile.column.name] = drafted
        else:
            attributes.append(drafted)
    if not attributes:
        raise TableError("no column has few enough values, or a range, to be drafted; write the domain by hand")
    return Draft(Domain(tuple(attributes), draft=True), left_out)


def _attribute(profile: Profile) -> Attribute | str:
    column, nullable = profile.column, profile.missing > 0
    if not profile.distinct:
        return "no values at all"
    match column.kind, profile.minimum, profile.maximum:
        case Kind.INTEGER, int(low), int(high):
            return _integer(column.name, low, high, nullable=nullable)
        case Kind.REAL, float(low), float(high):
            return _real(column.name, low, high, nullable=nullable)
        case Kind.REAL, _, _:
            return "no finite number"
        case ((Kind.TEXT | Kind.BOOLEAN), _, _) if profile.values is not None:
            values = tuple(value if isinstance(value, bool) else str(value) for value in profile.values)
            return Categorical(name=column.name, values=values, unknown=Unknown.CATEGORY, nullable=nullable)
        case Kind.TEXT, _, _ if profile.numbers is not None:
            drafted = _attribute(profile.numbers)
            return drafted if isinstance(drafted, str) else replace(drafted, unknown=Unknown.CATEGORY)
        case Kind.TEXT, _, _:
            return f"text with {profile.distinct:,} different values: list those that are public, or leave it out"
        case _:
            return f"no mapping for the type {column.type}"


def _integer(name: str, low: int, high: int, *, nullable: bool) -> Integer | str:
    if max(abs(low), abs(high)) >= 1 << 53:
        return "whole numbers of 2^53 and more: leave it out, or declare it as categories"
    edges = None
    if high - low >= MOST_VALUES:
        width = round(_round_width((high - low + 1) / BINS))
        low, high = low // width * width, high // width * width + width - 1
        edges = tuple(range(low, high + 1, width))
    return Integer(name=name, minimum=low, maximum=high, edges=edges, unknown=Unknown.CLAMP, nullable=nullable)


def _real(name: str, low: float, high: float, *, nullable: bool) -> Real:
    width = _round_width(max(high - low, abs(low) * 1e-6, 1e-9) / BINS)
    first, last = math.floor(low / width), math.floor(high / width) + 1
    edges = tuple(float(f"{step * width:.12g}") for step in range(first, last + 1))
    return Real(name=name, edges=edges, unknown=Unknown.CLAMP, nullable=nullable)


def _round_width(width: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    power: float = 10.0 ** math.floor(math.log10(width))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= width * (1 - 1e-9))
