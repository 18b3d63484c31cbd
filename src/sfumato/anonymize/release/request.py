"""The request for an anonymization, parsed from text and written to the journal, and the exact counts that it needs.

No other module of the family opens exact counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from enum import StrEnum
from typing import Any, cast

import numpy as np
import pyarrow as pa

from sfumato.anonymize.clustering.space import HierarchyCells, Intervals, Scale
from sfumato.anonymize.criteria import CRITERIA
from sfumato.anonymize.criteria.criterion import CountedIn, Criterion
from sfumato.anonymize.criteria.parameters import split_parameters
from sfumato.anonymize.microdata import Microdata, from_groups, group, pack
from sfumato.anonymize.release.unchanged_columns import NONE_UNCHANGED, UnchangedColumns
from sfumato.anonymize.search.lattice import sufficient_share
from sfumato.arguments import expect, expect_all, listed, parse_integer
from sfumato.domain import Attribute, Categorical, Domain, Integer, Real, Unit, Unknown
from sfumato.domain.hierarchy.builders import draft
from sfumato.domain.hierarchy.levels import Hierarchy, Integers, Level
from sfumato.engine.exact import reveal
from sfumato.engine.port import Encoded, ProtectedTable, Recodable, SparseTable
from sfumato.errors import InputError, TableError
from sfumato.vault.interface import ReleaseRequest


class Missing(StrEnum):
    """A policy for rows with a missing or unknown quasi-identifier, if the domain has a cell for them."""

    CATEGORY = "category"  # a separate category below the top
    SUPPRESS = "suppress"  # the row is suppressed, and counts as suppressed


@dataclass(frozen=True)
class RowLimit:
    """A number of rows that may be suppressed, instead of a share.  The journal contains the share."""

    rows: int

    def __post_init__(self) -> None:
        if parse_integer(self.rows, "rows to suppress are a whole number") < 0:
            raise InputError("rows to suppress are 0 or more", culprit=self.rows)


@dataclass(frozen=True, kw_only=True)
class Quasi:
    """A quasi-identifier: a column that an attacker may know, and how it is generalized.

    ``hierarchy`` generalizes it.  Default: the hierarchy of the domain.  If the domain has none, full-domain methods
    derive one from the declared cells, and local methods use free intervals in the order of the declared values.
    ``weight`` is its importance in the loss.  An ``unchanged`` one is published with its declared cells: criteria and
    risk count it, but it is not generalized.
    """

    name: str
    hierarchy: Hierarchy | None = None
    weight: float = 1.0
    missing: Missing = Missing.CATEGORY
    unchanged: bool = False

    def __post_init__(self) -> None:
        expect(self.name, str, "a quasi-identifier is called by the name of its attribute")
        expect(self.hierarchy, Hierarchy | None, f"the hierarchy of {self.name!r} is a Hierarchy")
        expect(self.missing, Missing, f"missing values of {self.name!r} are Missing.CATEGORY or Missing.SUPPRESS")
        expect(self.weight, int | float, f"the weight of {self.name!r} is a number")
        if not 0 <= self.weight < math.inf:
            raise InputError(f"the weight of {self.name!r} must be finite and not negative", culprit=self.weight)

    def aligned(self, attribute: Attribute) -> Hierarchy:
        """Return the hierarchy over the codes of the domain.

        Raises:
            DomainError: the hierarchy lacks a declared value.
        """
        if self.unchanged:
            return _only_leaves(attribute)
        return (self.hierarchy or draft(attribute)).align(attribute.labels())

    def scale(self, attribute: Attribute) -> Scale:
        """Return the scale of an attribute: hierarchy cells, or free intervals."""
        if self.hierarchy is not None and not self.unchanged:
            return HierarchyCells(self.hierarchy.align(attribute.labels()))
        if isinstance(attribute, Integer | Real):
            positions = np.array([float(attribute.bounds(code)[0]) for code in range(attribute.declared)])
        else:
            positions = np.arange(attribute.declared, dtype=np.float64)
        return Intervals(attribute.labels(), positions, float(positions[-1] - positions[0]))


def _only_leaves(attribute: Attribute) -> Hierarchy:
    """Return the hierarchy of an unchanged attribute: its cells alone."""
    labels = attribute.labels()
    leaves = Level(tuple(labels), np.arange(len(labels)), np.zeros(len(labels)))
    return Hierarchy(attribute.name, (leaves,), len(labels))


def read_quasi(
    quasi: Sequence[str | Quasi], domain: Domain, unchanged: UnchangedColumns = NONE_UNCHANGED
) -> tuple[Quasi, ...]:
    """Return quasi-identifiers that were given by name or in detail.  Unchanged ones are not generalized.

    Raises:
        InputError: there is none, one is given twice, or none has a weight.
        DomainError: the domain lacks one.
    """
    expect_all(quasi, str | Quasi, "quasi-identifiers are a list of names or Quasi(...)")
    named = (Quasi(name=given) if isinstance(given, str) else given for given in quasi)
    identifiers = tuple(
        replace(
            each,
            hierarchy=_declared(each, domain) if each.hierarchy is None else each.hierarchy,
            unchanged=each.unchanged or each.name in unchanged.names,
        )
        for each in named
    )
    names = [each.name for each in identifiers]
    if not names:
        raise InputError("name at least one quasi-identifier", culprit=quasi)
    if len(set(names)) != len(names):
        raise InputError("a quasi-identifier is named twice", culprit=names)
    if not any(each.weight for each in identifiers):
        raise InputError("at least one quasi-identifier needs a weight above zero", culprit=names)
    for name in names:
        domain.index(name)
    return identifiers


def _declared(quasi: Quasi, domain: Domain) -> Hierarchy | None:
    return next((each for each in domain.hierarchies if each.attribute == quasi.name), None)


def suppressed_codes(quasi: Quasi, attribute: Attribute) -> tuple[int, ...]:
    """Return the codes whose rows are suppressed from the start."""
    if quasi.missing is Missing.CATEGORY:
        return ()
    return tuple(range(attribute.declared, attribute.size))


@dataclass(frozen=True, eq=False)
class AnonymizationRequest:
    """A request for an anonymization, as the journal records it."""

    method: str
    quasi: tuple[Quasi, ...]
    criteria: tuple[Criterion, ...]
    suppression: str
    options: Mapping[str, Any]

    def published_as_they_are(self, unchanged: UnchangedColumns) -> tuple[str, ...]:
        """Return the names of unchanged quasi-identifiers and of the other unchanged columns."""
        return (*(each.name for each in self.quasi if each.unchanged), *unchanged.names)

    def question(self, unchanged: UnchangedColumns) -> ReleaseRequest:
        """Return the question for the journal.  ``unchanged`` are the further columns published unchanged."""
        anyway = {"keep_anyway": sorted(unchanged.anyway)} if unchanged.anyway else {}
        described = [
            {
                "name": each.name,
                "weight": each.weight,
                "missing": each.missing.value,
                "hierarchy": None if each.hierarchy is None else each.hierarchy.describe(),
            }
            for each in self.quasi
        ]
        return ReleaseRequest(
            "anonymize",
            self.method,
            {
                "quasi": described,
                "criteria": [criterion.spell() for criterion in self.criteria],
                "suppression": self.suppression,
                "keep": sorted(self.published_as_they_are(unchanged)),
                **anyway,
                **self.options,
            },
            f"rows by {', '.join(each.name for each in self.quasi)}: {' and '.join(map(str, self.criteria))}",
        )

    def statement(self, domain: Domain) -> str:
        """State the guarantee of the release, which is not differential privacy."""
        names = ", ".join(each.name for each in self.quasi)
        attackers = "; ".join(dict.fromkeys(criterion.attacker for criterion in self.criteria))
        # only full-domain searches have a limit; the number of suppressed rows is stated with the rows
        limited = self.method in ("optimal", "samarati")
        limit = f"; at most a share {self.suppression} of the rows is suppressed" if limited else ""
        return (
            f"{' and '.join(each.state(domain) for each in self.criteria)} over the quasi-identifiers {names},"
            f" {_counted_in(counting(self.criteria), domain.unit)}; attacker: {attackers}{limit}"
        )


def counting(criteria: Sequence[Criterion]) -> CountedIn:
    """Return whether all criteria count units or rows.

    Raises:
        InputError: some count units and some count rows.
    """
    units = {criterion.count for criterion in criteria}
    if len(units) > 1:
        raise InputError("all criteria of a release count units, or all count rows", culprit=criteria)
    return min(units, default=CountedIn.UNITS)


def counts_units(criteria: Sequence[Criterion], domain: Domain) -> bool:
    """Return whether the criteria count units, which the domain names by an id, instead of rows."""
    return counting(criteria) is CountedIn.UNITS and domain.unit.column is not None


def _counted_in(count: CountedIn, unit: Unit) -> str:
    """Return in words whether classes count units or rows."""
    if unit.column is None:
        return "counted in rows"
    several = f"one {unit.column} may have up to {unit.rows} rows{unit.by_groups}"
    if count is CountedIn.ROWS:
        return f"counted in rows (--count rows), so that all rows of a class may be of one {unit.column}, as {several}"
    return f"counted in units: one {unit.column} counts once in a class, where {several}"


def parse_criterion(text: str) -> Criterion:
    """Parse a criterion, as typed or as written by ``Criterion.spell``.

    Raises:
        InputError: the name is unknown; a parameter is missing, unknown, repeated or invalid; or the criterion needs a
            population, which has no text form.

    >>> parse_criterion("recursive-diversity:c=3,l=2,sensitive=class").l
    2
    """
    name, _, rest = text.partition(":")
    kinds = {kind.name: kind for kind in CRITERIA}
    kind = kinds.get(name.strip())
    if kind is None:
        raise InputError(f"no criterion {name!r}; there are {', '.join(kinds)}", culprit=text)
    names = {field.name: field.default is MISSING for field in fields(kind)}
    if "population" in names:
        raise InputError(f"{name} needs a population; use it from Python", culprit=text)
    given = split_parameters(rest)
    strange = sorted(set(given) - set(names))
    absent = [key for key, needed in names.items() if needed and key not in given]
    if strange or absent:
        what = f"does not know {strange[0]!r}" if strange else f"needs {absent[0]!r}"
        raise InputError(
            f"{name} {what}; write {name}:{','.join(f'{key}=...' for key in names if key != 'count')}", culprit=text
        )
    return kind(**{key: kind.parse_field(key, value) for key, value in given.items()})


def microdata(encoded: Recodable, quasi: Sequence[Quasi], criteria: Sequence[Criterion]) -> Microdata:
    """Count the table over its quasi-identifiers and the sensitive attributes of the criteria.

    Rows that the domain drops, or beyond the bound of their unit, are in no count of the engine.  They are suppressed
    too, so they are counted separately, as excluded.

    Raises:
        InputError: a sensitive attribute is a quasi-identifier, populations differ, or some criteria count units and
            some rows.
        DomainError: the domain lacks an attribute.
    """
    domain = encoded.domain
    names = tuple(each.name for each in quasi)
    check_columns(criteria, names, domain)
    sensitive = tuple(dict.fromkeys(c.sensitive for c in criteria if c.sensitive is not None))
    groups = counted_groups(encoded, (*names, *sensitive), criteria)
    sizes = {name: domain[name].size for name in (*names, *sensitive)}
    declared = {name: domain[name].declared for name in sensitive}
    data = from_groups(groups, names, sizes=sizes, declared=declared)
    left_out, over_bound = _not_counted(encoded, data.rows)
    data = replace(data, excluded=left_out + over_bound, left_out=left_out, over_bound=over_bound)
    populations = {id(c.population): c.population for c in criteria if c.population is not None}
    if len(populations) > 1:
        raise InputError("all criteria must be about the same population", culprit=criteria)
    for population in populations.values():
        data = data.with_population(population if groups.units is not None else replace(population, units=None))
    if data.units is not None and data.units.people is None and data.holders == data.rows - data.excluded:
        data = replace(data, units=None)  # each unit has one row, so rows are units
    return data.without([suppressed_codes(each, domain[each.name]) for each in quasi])


def counted_groups(encoded: Recodable, attributes: tuple[str, ...], criteria: Sequence[Criterion]) -> SparseTable:
    """Count the table over attributes, per unit if the criteria count units."""
    if counts_units(criteria, encoded.domain):
        return reveal(encoded.unit_groups(attributes))
    return reveal(encoded.groups(attributes))


def share_of_rows(encoded: Recodable, limit: RowLimit) -> str:
    """Return the share of the table that allows the given number of suppressed rows.

    Raises:
        InputError: the table has fewer rows.
    """
    rows = reveal(encoded.unbounded())
    if limit.rows > rows:
        raise InputError(f"the table has {rows} rows, so at most {rows} can be suppressed", culprit=limit.rows)
    return sufficient_share(limit.rows, rows) if limit.rows else "0"


def _not_counted(encoded: Recodable, rows: int) -> tuple[int, int]:
    """Count the rows that the domain drops, and the rows beyond the bound of their unit or without an id."""
    bounded = rows
    if any(attribute.unknown is not Unknown.CATEGORY for attribute in encoded.domain):  # else the domain drops none
        bounded = max(reveal(encoded.rows_before_drop()), rows)
    if encoded.domain.unit.column is None:
        return bounded - rows, 0
    return bounded - rows, max(reveal(encoded.unbounded()) - bounded, 0)


def check_columns(criteria: Sequence[Criterion], quasi: Sequence[str], domain: Domain) -> None:
    """Refuse criteria whose sensitive attribute is a quasi-identifier or does not fit the domain.

    Raises:
        InputError: a sensitive attribute is a quasi-identifier, or lacks a value that its criterion names.
        DomainError: the domain lacks a sensitive attribute.
    """
    for criterion in criteria:
        criterion.check_domain(domain)
        if criterion.sensitive in quasi:
            name = criterion.sensitive
            raise InputError(f"{name!r} cannot be both a quasi-identifier and sensitive", culprit=name)


def raw_classes(table: ProtectedTable, quasi: Sequence[str]) -> pa.Table:
    """Return the distinct values of columns as text, with the number of their rows in the last column.

    This function is for the owner of the table, because it needs no domain.  Rows with a missing value are excluded.

    Raises:
        InputError: no column is named, or one twice.
        TableError: a column does not exist.
    """
    if not quasi or len(set(quasi)) != len(quasi):
        raise InputError("name quasi-identifiers, each once", culprit=quasi)
    columns = [column.name for column in table.schema()]
    if absent := [name for name in quasi if name not in columns]:
        raise TableError(f"no column {absent[0]!r}; there are {listed(columns)}", culprit=absent)
    return reveal(_as_it_stands(table).keys(tuple(quasi)))


@dataclass(frozen=True, eq=False)
class UnitsOfClasses:
    """The units of classes: unit ``units[i]`` is in class ``classes[i]``, each pair once; ``rows`` is the total."""

    classes: Integers
    units: Integers
    rows: int


def units_of_classes(table: ProtectedTable, quasi: Sequence[str], unit: str) -> tuple[pa.Table, UnitsOfClasses]:
    """Return the distinct values of columns as text, and the units of each: the values of another column.

    This function is for the owner of the table, like :func:`raw_classes`.  Rows with a missing value or unit are
    excluded.

    Raises:
        InputError: the units are one of the named columns, or :func:`raw_classes` refuses them.
        TableError: a column does not exist.
    """
    if unit in quasi:
        raise InputError(f"{unit!r} identifies units, so it cannot be a quasi-identifier; leave it out", culprit=unit)
    groups = raw_classes(table, (*quasi, unit))
    codes = [column.combine_chunks().dictionary_encode() for column in groups.columns[:-1]]
    columns = [column.indices.to_numpy().astype(np.int64) for column in codes]
    grouping = group(pack(columns[:-1], [len(column.dictionary) for column in codes[:-1]]))
    classes = groups.select(list(quasi)).take(pa.array(grouping.members))
    rows = int(groups["units"].to_numpy().sum())
    return classes, UnitsOfClasses(grouping.classes, columns[-1], rows)


def cells_of_units(encoded: Recodable, quasi: Sequence[str]) -> pa.Table:
    """Return a view's quasi-identifiers as labels of cells, missing ones as NULL, and its units."""
    domain = encoded.domain
    groups = reveal(encoded.unit_groups(tuple(quasi)))
    columns = {}
    for place, name in enumerate(quasi):
        attribute = domain[name]
        labels = [
            None if attribute.nullable and code == attribute.declared else label
            for code, label in enumerate(attribute.labels())
        ]
        codes = np.repeat(groups.codes[:, place], groups.counts)
        columns[name] = pa.array(labels, pa.string()).take(pa.array(codes))
    assert groups.units is not None
    return pa.table({**columns, str(domain.unit.column): pa.array(np.repeat(groups.units, groups.counts))})


def raw_rows(table: ProtectedTable) -> int:
    """Count the rows of a table, including rows with missing values, for its owner."""
    return reveal(cast(Recodable, _as_it_stands(table)).rows_before_drop())


def _as_it_stands(table: ProtectedTable) -> Encoded:
    """Encode a table without a declared domain."""
    name = table.schema()[0].name
    return table.encode(Domain((Categorical(name=name, values=("",), unknown=Unknown.CATEGORY),)))


def population(encoded: Recodable, quasi: Sequence[str]) -> SparseTable:
    """Count a larger table over the quasi-identifiers, for k-map, delta-presence and the journalist's risk.

    It needs the same cells as the table.  Its people are the ids that its domain names, or its rows without an id.
    """
    names = tuple(quasi)
    return reveal(encoded.groups(names) if encoded.domain.unit.column is None else encoded.unit_groups(names))
