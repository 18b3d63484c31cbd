"""From an encoded table to microdata: the one place of this room where exact counts are opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from sfumato.anonymize.criteria.criterion import Criterion
from sfumato.anonymize.microdata import Microdata, from_groups
from sfumato.anonymize.release.request import Quasi, RowLimit, suppressed_codes
from sfumato.anonymize.search.lattice import sufficient_share
from sfumato.domain import Categorical, Domain, Unknown
from sfumato.engine.exact import reveal
from sfumato.engine.port import Encoded, ProtectedTable, Recodable, SparseTable
from sfumato.errors import InputError, TableError


def microdata(encoded: Recodable, quasi: Sequence[Quasi], criteria: Sequence[Criterion]) -> Microdata:
    """Count the table over its quasi-identifiers and the sensitive attributes of the criteria.

    Rows that the domain drops, or that are over the bound of their unit, are in no count of the engine, and are
    suppressed all the same: they are counted beside, as excluded.

    Raises:
        InputError: a sensitive attribute that is a quasi-identifier, or populations that differ.
        DomainError: an attribute that the domain does not have.
    """
    domain = encoded.domain
    names = tuple(each.name for each in quasi)
    sensitive = tuple(dict.fromkeys(c.sensitive for c in criteria if c.sensitive is not None))
    check_sensitive(sensitive, names, domain)
    groups = reveal(encoded.groups((*names, *sensitive)))
    sizes = {name: domain[name].size for name in (*names, *sensitive)}
    declared = {name: domain[name].declared for name in sensitive}
    data = from_groups(groups, names, sizes=sizes, declared=declared)
    left_out, over_bound = _not_counted(encoded, data.rows)
    data = replace(data, excluded=left_out + over_bound, left_out=left_out, over_bound=over_bound)
    populations = {id(c.population): c.population for c in criteria if c.population is not None}
    if len(populations) > 1:
        raise InputError("all criteria must be about the same population", culprit=criteria)
    for population in populations.values():
        data = data.with_population(population)
    return data.without([suppressed_codes(each, domain[each.name]) for each in quasi])


def share_of_rows(encoded: Recodable, limit: RowLimit) -> str:
    """The share of the table that allows just so many rows to be suppressed.

    Raises:
        InputError: the table has fewer rows.
    """
    rows = reveal(encoded.unbounded())
    if limit.rows > rows:
        raise InputError(f"the table has {rows} rows, so at most {rows} can be suppressed", culprit=limit.rows)
    return sufficient_share(limit.rows, rows) if limit.rows else "0"


def _not_counted(encoded: Recodable, counted: int) -> tuple[int, int]:
    """Rows that the domain drops, and rows over the bound of their unit or without an id."""
    bounded = counted
    if any(attribute.unknown is not Unknown.CATEGORY for attribute in encoded.domain):  # else the domain drops none
        bounded = max(reveal(encoded.whole()), counted)
    if encoded.domain.unit.column is None:
        return bounded - counted, 0
    return bounded - counted, max(reveal(encoded.unbounded()) - bounded, 0)


def check_sensitive(sensitive: Sequence[str], quasi: Sequence[str], domain: Domain) -> None:
    """Refuse sensitive attributes that are quasi-identifiers or not there.

    Raises:
        InputError: a sensitive attribute that is a quasi-identifier.
        DomainError: one that the domain does not have.
    """
    for name in sensitive:
        domain.index(name)
        if name in quasi:
            raise InputError(f"{name!r} cannot be both a quasi-identifier and sensitive", culprit=name)


def raw_classes(table: ProtectedTable, quasi: Sequence[str]) -> pa.Table:
    """Distinct values of columns as they stand, as text, with the number of their rows in the last column.

    For the owner of the table: nothing is declared, so nothing is released.  Rows with a missing value are
    left out.

    Raises:
        InputError: no column named, or one twice.
        TableError: a column that is not there.
    """
    if not quasi or len(set(quasi)) != len(quasi):
        raise InputError("name quasi-identifiers, each once", culprit=quasi)
    columns = [column.name for column in table.schema()]
    if absent := [name for name in quasi if name not in columns]:
        raise TableError(f"no column {absent[0]!r}; there are {', '.join(columns)}", culprit=absent)
    anything = Domain((Categorical(name=columns[0], values=("",), unknown=Unknown.CATEGORY),))
    return reveal(table.encode(anything).keys(tuple(quasi)))


def population(encoded: Encoded, quasi: Sequence[str]) -> SparseTable:
    """A larger table counted over the quasi-identifiers, for k-map, delta-presence and the journalist's risk.

    It must be encoded with the same cells as the table.
    """
    return reveal(encoded.groups(tuple(quasi)))
