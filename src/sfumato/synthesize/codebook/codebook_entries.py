"""The content of the codebook of a release: its columns, groups, measured tables and pairs, with their errors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, combinations
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Attribute, Categorical, Date, Domain, Grain, Integer, Real, Timestamp
from sfumato.errors import pluralize
from sfumato.model.noisy_table import CONFIDENCE, NoisyTable, pooled_marginal
from sfumato.model.row_sampling import CodeArray
from sfumato.synthesize.codebook.codebook import (
    MOST_TEXT,
    NOTICE,
    Codebook,
    Guarantee,
    MeasuredTable,
    PairEntry,
    join_words,
    pair_title,
)
from sfumato.synthesize.codebook.codebook_lines import ColumnEntry, GroupEntry, ValueEntry, seen
from sfumato.synthesize.graphical import Graphical
from sfumato.synthesize.product import Model
from sfumato.synthesize.stated_errors import (
    LargestCounts,
    association,
    distances_of_rows,
    largest_counts,
    measured_column,
    occurrences,
    pair_errors,
    value_errors,
)
from sfumato.synthesize.structural_zeros import Zeros
from sfumato.vault.release import Release

_MOST_VALUES, _MOST_LISTED = 8000, 500  # for all attributes together, for one
_MOST_PAIRS = 1500
_TOTAL_MISSED = Fraction(1, 500)
"""Probability that an interval of the row count misses it.

A stated error uses the upper end alone, which adds a thousandth to the 5 % of releases in which it is exceeded.
"""


@dataclass(frozen=True)
class _Scale:
    """The size of the table relative to a file.

    Attributes:
        table_rows: rows of the table for each row of the file.
        most: largest possible error of a count of the file, in rows.
    """

    table_rows: float
    most: int

    def cap(self, error: float) -> int:
        """Return an error in whole rows, rounded up."""
        return min(math.ceil(error), self.most)


def codebook_of(release: Release, model: Model, codes: CodeArray) -> Codebook:
    """Return the codebook of a file with these rows of a release of ``model``: shape ``(rows, attributes)``."""
    rows = len(codes)
    scale = _Scale(model.total / rows if rows else 0.0, _most_rows(model, release.provenance))
    columns = tuple(_column(model, index, codes, scale) for index in range(len(model.domain)))
    pairs, left_out = _pairs(model, codes, scale)
    provenance = release.provenance
    entry, loss = provenance.get("journal_entry"), provenance.get("parameters", {}).get("loss", {})
    unit = model.domain.unit
    tables = measured_tables(model.tables) or _noise_only(model)
    return Codebook(
        notice=NOTICE,
        rows=rows,
        table_rows=model.total,
        method=str(provenance.get("method", "")),
        version=str(provenance.get("sfumato", "")),
        journal_entry=entry if isinstance(entry, int) else None,
        domain=str(provenance.get("domain", "")),
        guarantee=Guarantee(
            text=release.guarantee,
            neighbours=str(unit),
            unit="one row"
            if unit.column is None
            else f"at most {pluralize(unit.rows, 'row')} of one {unit.column}{unit.by_groups}",
            loss={name: str(value) for name, value in loss.items() if value is not None},
        ),
        considered=tuple(map(str, provenance.get("chosen_among", ()))),
        columns=columns,
        measured=tables,
        pairs=pairs,
        pairs_left_out=left_out,
        good_for=(*_totals(model), *_supported_uses(columns, pairs, model.total)),
        not_for=(*_unsupported_uses(columns, pairs, tables), *_uses_outside_the_table(model.domain, provenance)),
    )


def _column(model: Model, index: int, codes: CodeArray, scale: _Scale) -> ColumnEntry:
    domain, attribute = model.domain, model.domain.attributes[index]
    counts = occurrences(codes[:, index], attribute.size)
    most = max(20, min(_MOST_LISTED, _MOST_VALUES // len(domain)))
    runs, labels = _runs(attribute, counts, most, _first_widths(model, attribute.name))
    rows = np.bincount(runs, weights=counts).astype(np.int64)
    name = attribute.name
    measured = measured_column(model.tables, name, domain)
    errors = None if measured is None else value_errors(measured, (scale.table_rows * rows).astype(np.float64), runs)
    cells = _cells(model, name)
    groups, places = _groups(attribute, cells, model, counts, scale)
    first = np.unique(runs, return_index=True)[1]
    values = tuple(
        ValueEntry(
            label=label[:MOST_TEXT],
            values=int(number),
            rows=int(rows[run]),
            low=None if errors is None else int(errors.low[run]),
            high=None if errors is None else int(errors.high[run]),
            off_by=None if errors is None else scale.cap(errors.off_by[run]),
            group=places.get(int(cells[first[run]])),
        )
        for run, (label, number) in enumerate(zip(labels, np.bincount(runs), strict=True))
    )
    return ColumnEntry(
        name=name,
        kind=str(attribute.describe()["type"]),
        size=attribute.size,
        cells=int(cells.max()) + 1,
        groups=groups,
        deviation=None if measured is None else measured.deviation,
        worst=None if errors is None else scale.cap(errors.worst),
        values=values,
    )


def _most_rows(model: Model, provenance: Mapping[str, Any]) -> int:
    """Return the largest possible error of a count of the file.

    A count of the file is at most the released number of rows.  A count of the table is at most the number of its rows.
    If that number is not public, it is bounded by its noisy count, and the larger of both bounds is returned.
    """
    total = provenance.get("parameters", {}).get("total")
    count = pooled_marginal(model.tables, (), model.domain)
    if count is None or (isinstance(total, dict) and "public" in total):
        return model.total
    return max(model.total, math.ceil(float(count.counts) + count.noise_bound(missed=_TOTAL_MISSED)))


def _cells(model: Model, name: str) -> NDArray[np.int64]:
    """Return the group of each code in tables of several attributes: the last measured, else modeled, else the code."""
    fresh = [table for table in model.tables if table.fresh and name in table.attributes]
    measured = pooled_marginal(fresh, (name,), model.domain)
    if measured is not None:
        return measured.groups[0]
    return model.coarsenings[name].groups if isinstance(model, Graphical) else np.arange(model.domain[name].size)


def _groups(
    attribute: Attribute, cells: NDArray[np.int64], model: Model, counts: NDArray[np.int64], scale: _Scale
) -> tuple[tuple[GroupEntry, ...], dict[int, int]]:
    """Return the groups of several values with their errors, and the position of each by its number."""
    sizes, rows = np.bincount(cells), np.bincount(cells, weights=counts)
    fresh = [table for table in model.tables if table.fresh and attribute.name in table.attributes]
    measured = measured_column(fresh, attribute.name, model.domain)
    errors = None if measured is None else value_errors(measured, (scale.table_rows * rows).astype(np.float64), cells)
    several = np.flatnonzero(sizes > 1)[:_MOST_LISTED]
    in_order = not isinstance(attribute, Categorical)
    entries = []
    for group in several.tolist():
        inside = np.flatnonzero(cells == group).tolist()
        entries.append(
            GroupEntry(
                label=f"{attribute.label(inside[0])} to {attribute.label(inside[-1])}"[:MOST_TEXT]
                if in_order
                else join_words(seen(attribute.label(code)) for code in inside),
                values=len(inside),
                rows=int(rows[group]),
                off_by=None if errors is None else scale.cap(errors.off_by[group]),
            )
        )
    return tuple(entries), {group: place for place, group in enumerate(several.tolist())}


def _first_widths(model: Model, name: str) -> list[int]:
    """Return the codes in a group of the tables over nested groups of a wide column."""
    tables = [table for table in model.tables if table.attributes == (name,) and not table.fresh]
    return [table.groups[0].count(0) for table in tables if table.groups[0] is not None]


def _runs(
    attribute: Attribute, counts: NDArray[np.int64], most: int, widths: Sequence[int]
) -> tuple[NDArray[np.int64], list[str]]:
    """Return a number for each code, equal for codes that are listed together, and the labels of these numbers.

    If there are more values than ``most``, neighbors of a number are listed together, or the rarest values of a list.
    Neighbors are complete groups of a table over groups of ``widths`` codes, because the noise of single cells adds up.
    For this, a line may have up to twice as many codes as ``most`` requires.
    """
    if attribute.size <= most:
        return np.arange(attribute.size), list(attribute.labels())
    if isinstance(attribute, Categorical):
        listed_codes = np.sort(np.argsort(-counts, kind="stable")[: most - 1])
        runs = np.full(attribute.size, len(listed_codes))
        runs[listed_codes] = np.arange(len(listed_codes))
        return runs, [*map(attribute.label, listed_codes.tolist()), f"({attribute.size - len(listed_codes)} others)"]
    extra_cells = attribute.size - attribute.declared  # missing and unknown values
    least = -(-attribute.declared // (most - extra_cells))
    step = max((width for width in widths if width <= 2 * least), default=1)
    width = -(-least // step) * step
    runs = np.arange(attribute.declared) // width
    starts = range(0, attribute.declared, width)
    ends = [min(start + width, attribute.declared) - 1 for start in starts]
    named = [_run(attribute, start, end) for start, end in zip(starts, ends, strict=True)]
    extra = map(attribute.label, range(attribute.declared, attribute.size))
    return np.append(runs, len(named) + np.arange(extra_cells)), [*named, *extra]


def _run(attribute: Attribute, first: int, last: int) -> str:
    if not isinstance(attribute, Integer | Real):
        return attribute.label(first) if first == last else f"{attribute.label(first)}..{attribute.label(last)}"
    if isinstance(attribute, Real):
        return attribute.joined_label(first, last)
    return f"{attribute.bounds(first)[0]}..{attribute.bounds(last)[1]}"


def measured_tables(tables: Sequence[NoisyTable]) -> tuple[MeasuredTable, ...]:
    """Return the tables as a codebook lists them, without counts of all rows."""
    return tuple(_measured(table) for table in tables if table.attributes)


def _measured(table: NoisyTable) -> MeasuredTable:
    return MeasuredTable(
        attributes=table.attributes,
        cells=table.values.size,
        grouped=any(groups is not None for groups in table.groups),
        noise=table.noise.name,
        deviation=math.sqrt(table.noise.variance),
    )


def _noise_only(model: Model) -> tuple[MeasuredTable, ...]:
    """Return the tables of a release whose payload has no counts; older versions did not store them."""
    if not isinstance(model, Graphical):
        return ()
    sizes = model.model.sizes
    return tuple(
        MeasuredTable(
            attributes=each.attributes,
            cells=math.prod(sizes[name] for name in each.attributes),
            grouped=any(not model.coarsenings[name].trivial for name in each.attributes),
            noise="discrete",
            deviation=each.deviation,
        )
        for each in model.measured
    )


def _pairs(model: Model, codes: CodeArray, scale: _Scale) -> tuple[tuple[PairEntry, ...], int]:
    """Return listed pairs, measured ones first, and the number of pairs that are not listed."""
    domain = model.domain
    tables = [table.attributes for table in model.tables]
    tables += [table.attributes for table in model.measured] if isinstance(model, Graphical) else []
    held = {pair for table in tables for pair in combinations(sorted(table, key=domain.index), 2)}
    every = list(combinations(domain.names, 2)) if len(domain) ** 2 <= 2 * _MOST_PAIRS else sorted(held)
    listed = sorted(every, key=lambda pair: pair not in held)[:_MOST_PAIRS]
    left_out = len(domain) * (len(domain) - 1) // 2 - len(listed)
    largest = {name: _largest_counts(model, name, codes, scale) for name in dict.fromkeys(chain(*held))}
    entries = tuple(
        _measured_pair(model, pair, codes, scale, (largest[pair[0]], largest[pair[1]]))
        if pair in held
        else _unmeasured_pair(model, pair, codes, measured=False)
        for pair in listed
    )
    return entries, left_out


def _largest_counts(model: Model, name: str, codes: CodeArray, scale: _Scale) -> LargestCounts | None:
    rows = scale.table_rows * occurrences(codes[:, model.domain.index(name)], model.domain[name].size)
    return largest_counts(measured_column(model.tables, name, model.domain), rows.astype(np.float64))


def _measured_pair(
    model: Model,
    pair: tuple[str, str],
    codes: CodeArray,
    scale: _Scale,
    largest: tuple[LargestCounts | None, LargestCounts | None],
) -> PairEntry:
    table = pooled_marginal(model.tables, pair, model.domain)
    if table is None:
        return _unmeasured_pair(model, pair, codes, measured=True)
    drawn = _drawn(model, pair, codes)
    errors = pair_errors(table, drawn, scale.table_rows, largest)
    return PairEntry(
        attributes=pair,
        measured=True,
        strength=round(association(drawn, table.groups), 3),
        cells=errors.cells,
        worst=scale.cap(errors.worst),
        worst_of_values=scale.cap(errors.worst_of_values),
        misplaced=math.ceil(1e4 * errors.misplaced) / 1e4,
    )


def _unmeasured_pair(model: Model, pair: tuple[str, str], codes: CodeArray, *, measured: bool) -> PairEntry:
    """Return a pair without a noisy table.  It may be measured, because old payloads have no tables."""
    groups = (_cells(model, pair[0]), _cells(model, pair[1]))
    strength = round(association(_drawn(model, pair, codes), groups), 3)
    return PairEntry(attributes=pair, measured=measured, strength=strength, misplaced=_bound(model, pair, codes))


def _drawn(model: Model, pair: tuple[str, str], codes: CodeArray) -> tuple[CodeArray, CodeArray]:
    return codes[:, model.domain.index(pair[0])], codes[:, model.domain.index(pair[1])]


def _bound(model: Model, pair: tuple[str, str], codes: CodeArray) -> float | None:
    """Return the largest share of rows that would have to move to another cell of a pair; None without a distance."""
    chosen = tuple(each for each in model.distances if set(each.attributes) == set(pair))
    if not isinstance(model, Graphical) or not chosen:
        return None
    (distance,) = distances_of_rows(replace(model, distances=chosen), codes)
    most = distance.value + distance.noise.quantile(CONFIDENCE) + distance.rows_distance
    return min(1.0, math.ceil(1e4 * max(0.0, most) / (2 * max(1, model.total))) / 1e4)


_SHOWS_ROWS = 2.0  # standard deviation of noise in rows below which single rows may show in a measured table
_CLOSE = 0.05  # share of the rows: a smaller error is called close


def _supported_uses(columns: Sequence[ColumnEntry], pairs: Sequence[PairEntry], rows: int) -> Iterator[str]:
    near = [column for column in columns if column.worst is not None and column.worst <= _CLOSE * rows]
    if near:
        most = max(column.worst or 0 for column in near)
        yield (
            f"Counts by single values of {join_words([column.name for column in near])}: with 95 % no value of a "
            f"column is off by more than {most:,} of {rows:,} rows."
        )
    close = [pair for pair in pairs if pair.measured and pair.misplaced is not None and pair.misplaced <= _CLOSE]
    if close:
        most_misplaced = max(pair.misplaced or 0 for pair in close)
        yield (
            f"Tables of two columns by the values or groups that were measured: {join_words(map(pair_title, close))}: "
            f"with 95 % at most {100 * most_misplaced:.1f} % of the rows would have to move to another cell of one."
        )
    yield "Writing and testing programs for the table, and teaching: columns, types and labels are its own."


def _totals(model: Model) -> Iterator[str]:
    if isinstance(model, Graphical) and model.totals:
        first, worst = model.totals[0], max(total.deviation for total in model.totals)
        yield (
            f"Totals of {first.weight} by single columns: those by "
            f"{join_words(total.attribute for total in model.totals)} were measured by themselves, with weights cut at "
            f"{first.limit:.6g}, and noise of a standard deviation of {worst:,.0f} at most, beside that of the number "
            "of rows."
        )


def _unsupported_uses(
    columns: Sequence[ColumnEntry], pairs: Sequence[PairEntry], tables: Sequence[MeasuredTable]
) -> Iterator[str]:
    least = min((table.deviation for table in tables if len(table.attributes) > 1), default=math.inf)
    if least < _SHOWS_ROWS:
        yield (
            "Finding out about persons: no row is one. But noise is small, so that a rare combination of values in the "
            "rows is likely one of the table."
        )
    else:
        yield "Finding out about persons: no row is one, and rare combinations come and go by chance."
    if unmeasured := [column.name for column in columns if column.worst is None]:
        yield f"Exact counts by {join_words(unmeasured)}: no error of them is known."
    modeled = [pair for pair in pairs if not pair.measured and pair.misplaced is None]
    if modeled:
        yield (
            "What goes with what in pairs that were not measured for this release, such as "
            f"{join_words(map(pair_title, modeled[:3]))}: the rows show what the model takes them to be, and how "
            "wrong that is cannot be told from it."
        )
    wide = sorted(
        (p for p in pairs if p.misplaced is not None and p.misplaced > _CLOSE), key=lambda p: -(p.misplaced or 0)
    )
    if wide:
        yield (
            f"Fine differences in {join_words(map(pair_title, wide))}: up to {100 * (wide[0].misplaced or 0):.0f} % of "
            f"the rows might have to move to another cell of {pair_title(wide[0])}."
        )
    if grouped := [column.name for column in columns if column.groups]:
        yield (
            f"Single values of {join_words(grouped)} together with other columns: some were measured as groups, and "
            "inside a group all values go with the same."
        )
    if any(len(table.attributes) > 1 for table in tables):
        several = median(table.deviation for table in tables if len(table.attributes) > 1)
        yield (
            f"Cells of fewer than about {math.ceil(4 * several):,} rows in tables of several columns: noise alone is "
            "often half of that."
        )
    yield "Standard errors and tests computed as if the rows were the data: they leave out the noise and the model."


def _uses_outside_the_table(domain: Domain, provenance: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences about properties that the domain or rules give the rows, independently of the table."""
    for attribute in domain:
        if isinstance(attribute, Integer | Real) and attribute.typical is not None:
            yield (
                f"How far values of {attribute.name} go beyond {attribute.label(attribute.declared - 1)}: that cell "
                f"is open, and every row of it was given {attribute.typical}."
            )
        if isinstance(attribute, Timestamp) or (isinstance(attribute, Date) and attribute.by is not Grain.DAY):
            kind = "moment" if isinstance(attribute, Timestamp) else "day"
            yield (
                f"Which {kind} of its {attribute.by} a value of {attribute.name} is: every row has the first {kind} of "
                f"its cell, so that {attribute.name} is known by {attribute.by} only."
            )
    tables = [_zeros(domain, *each) for each in provenance.get("parameters", {}).get("zeros") or ()]
    for zero in (each for each in tables if each.is_function):
        source, column = zero.attributes
        yield f"Whether {column} follows from {source} in the table: every row of this file follows the rule."
    if ruled := [" x ".join(zero.attributes) for zero in tables if not zero.is_function]:
        yield (
            f"Whether there are rows that rules over {join_words(list(dict.fromkeys(ruled)))} call impossible: none is "
            "drawn, whatever the table has."
        )


def _zeros(domain: Domain, attributes: Sequence[str], cells: Sequence[int]) -> Zeros:
    """Return structural zeros from their JSON values in the journal."""
    impossible = np.zeros(domain.project(tuple(attributes)).shape, dtype=np.bool_)
    impossible.flat[list(cells)] = True
    return Zeros(tuple(attributes), impossible)
