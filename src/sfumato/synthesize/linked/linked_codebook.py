"""The codebook of linked synthetic tables: what they hold, what was measured of whole units, and how far off rows are.

Everything is read off the noisy tables that the release keeps and the rows that were drawn: the protected tables are
not looked at again.  The *head* has one row a unit: the parent, how many children, the first child.  A *tail* has one
row for each further child; those of one unit weigh one together at most, so that numbers are of units, not of rows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.domain.linked_domain import ChildTable, LinkedTables
from sfumato.errors import InputError
from sfumato.model.factor import FloatArray
from sfumato.model.noisy_table import NoisyTable
from sfumato.strict_documents import read_json
from sfumato.synthesize.codebook.codebook import NOTICE, Guarantee, printable
from sfumato.synthesize.linked.child_dates import DAY, Codes, first_date_cells
from sfumato.synthesize.linked.child_slots import Slot
from sfumato.synthesize.linked.linked_labels import head_labels, opening_labels, tail_labels
from sfumato.synthesize.linked.linked_rows import DrawnChildren
from sfumato.synthesize.stated_errors import PooledMarginal, pooled_marginal, value_errors

STATEMENT, CODEBOOK = "release.json", "codebook.md"
"""Files beside the tables of a release."""

_MOST_BYTES = 64 << 20
_MOST_VALUES = 200  # of a column that are listed
_MEAN = 0.8  # of the size of noise, in standard deviations, at most
_PERCENT = 100


@dataclass(frozen=True)
class FamilyValue:
    """A cell of a column.

    Attributes:
        label: of the cell.
        units: of the release that have it, by weight.
        low, high: between these lies the number of the protected tables, with 95 %; None: not measured.
        off_by: how far the release is from it at most, with 95 %.
    """

    label: str
    units: float
    low: float | None
    high: float | None
    off_by: float | None


@dataclass(frozen=True)
class FamilyColumn:
    """A column of a head or a tail; no cell of it is further off than ``worst``, with 95 % for all at once."""

    name: str
    cells: int
    deviation: float | None
    worst: float | None
    values: tuple[FamilyValue, ...]


@dataclass(frozen=True)
class FamilyTie:
    """A measured table of several columns.

    Attributes:
        attributes: its columns.
        cells: of the table, which may be groups of values.
        deviation: standard deviation of the noise on one of them, in units.
        worst: no cell is further off, in units, with 95 % for all at once.
        misplaced: at most this share would have to move to another cell, with 95 %.
    """

    attributes: tuple[str, ...]
    cells: int
    deviation: float
    worst: float
    misplaced: float


@dataclass(frozen=True)
class FamilyPart:
    """The head, or the tail of a table of children."""

    name: str
    says: str
    units: float
    columns: tuple[FamilyColumn, ...]
    ties: tuple[FamilyTie, ...]


@dataclass(frozen=True)
class FamilyFile:
    """A table of the release: its columns, how many rows, and how the children of a unit follow each other."""

    name: str
    rows: int
    columns: tuple[str, ...]
    order: str
    most: int


@dataclass(frozen=True)
class FamilyCodebook:
    """What a reader has to know of linked synthetic tables; public, like them.

    Attributes:
        notice: that the rows are synthetic.
        guarantee: the promise, for all rows of a unit in all tables.
        method, version: that made them.
        journal_entry: number of the release in the ledger's journal.
        units: of the release.
        files: the tables.
        parts: what was measured, and how far off the rows are.
        notes: what could not be told at this loss.
    """

    notice: str
    guarantee: Guarantee
    method: str
    version: str
    journal_entry: int | None
    units: int
    files: tuple[FamilyFile, ...]
    parts: tuple[FamilyPart, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    def to_markdown(self) -> str:
        """As Markdown, in which no text of the tables means more than itself."""
        return "\n".join(family_lines(self.to_json())) + "\n"


@dataclass(frozen=True)
class FamilyFacts:
    """What a release says of itself: its promise, its provenance, its files, and what could not be told."""

    guarantee: Guarantee
    provenance: Mapping[str, Any]
    files: tuple[FamilyFile, ...]
    notes: tuple[str, ...]


def _child_parts(
    related: LinkedTables, models: Mapping[str, Sequence[NoisyTable]], children: DrawnChildren
) -> Iterator[FamilyPart]:
    """Yield a part for the first rows and a part for the next rows of each child table."""
    for child in related.children:
        above, opening, tail = related.above(child), related.opening(child), related.tail(child)
        own, table = children.heads[child.table.name], child.table.name
        if above is not None and opening is not None:
            weighed: list[Weighed] = [_opening_rows(related, child, own, children.slots[table])]
            labels = opening_labels(related, child)
            drawn = _Drawn(opening.domain, models[opening.name], weighed, opening.whole, labels)
            says = (
                f"one row for each of {above.table.name}: what is known of it, how many of {table}, the first of them; "
                "those of one unit weigh one together at most"
            )
            yield drawn.part(opening.name, says)
        if tail is None:
            continue
        weighed = list(_tail_rows(related, child, own, children.slots[table]))
        drawn = _Drawn(tail.domain, models[tail.name], weighed, tail.whole, tail_labels(related, child))
        of = "the parent" if above is None else f"the row of {above.table.name}"
        says = (
            f"one row for each of {table} after the first: {of}, the one before it and itself; those of one unit weigh "
            "one together at most"
        )
        yield drawn.part(tail.name, says)


def family_codebook(
    related: LinkedTables,
    models: Mapping[str, Sequence[NoisyTable]],
    rows: tuple[Mapping[str, Codes], DrawnChildren],
    facts: FamilyFacts,
) -> FamilyCodebook:
    """The codebook of rows that were drawn.

    Args:
        related: the tables.
        models: noisy tables of ``head`` and of all that is derived, by name.
        rows: codes of the units by attribute of the head, and what was drawn of each child table.
        facts: of the release.
    """
    head, children = rows
    direct = ((child.number, children.heads[child.table.name][child.number]) for child in related.direct)
    head = {**head, **dict(direct)}  # of which some were left out
    units = len(next(iter(head.values()), ()))
    weighed: list[Weighed] = [(head, np.ones(units))]
    listed = " and ".join(child.table.name for child in related.direct)
    says = f"one row a unit: the parent, how many of {listed}, the first of each"
    parts = [_Drawn(related.head, models["head"], weighed, 1, head_labels(related)).part("head", says)]
    parts += _child_parts(related, models, children)
    entry = facts.provenance.get("journal_entry")
    return FamilyCodebook(
        notice=NOTICE,
        guarantee=facts.guarantee,
        method=str(facts.provenance.get("method", "")),
        version=str(facts.provenance.get("sfumato", "")),
        journal_entry=entry if isinstance(entry, int) else None,
        units=units,
        files=facts.files,
        parts=tuple(parts),
        notes=facts.notes,
    )


Weighed = tuple[Mapping[str, Codes], FloatArray]
"""Codes of some rows by attribute, and what each row weighs."""


def _opening_rows(
    related: LinkedTables, child: ChildTable, head: Mapping[str, Codes], slots: Sequence[Slot]
) -> Weighed:
    """The rows of the own head of a child table, with their weights: the first child is the one that was kept."""
    opening = related.opening(child)
    assert opening is not None
    weights = np.array(opening.weights, dtype=np.float64)[head[opening.number]]
    held, (rows, codes) = {name: head[name] for name in opening.domain.names}, slots[0]
    for each in child.table.attributes:
        name, own = child.named("first", each.name), codes[each.name]
        if child.dated and each.name == child.order:  # the day may have been moved to one that is declared
            own = first_date_cells(related, child, own, head[DAY][rows] if DAY in head else None)
        held[name] = np.full(len(weights), opening.domain[name].size - 1)
        held[name][rows] = own
    return held, weights


def _tail_rows(
    related: LinkedTables, child: ChildTable, head: Mapping[str, Codes], slots: Sequence[Slot]
) -> Iterator[Weighed]:
    """The rows of a tail, slot by slot, with their weights."""
    tail = related.tail(child)
    assert tail is not None
    plain, every = [each.name for each in child.plain], [each.name for each in child.table.attributes]
    numbers = head[child.number] + related.least(child)
    nested = tail.number == child.rows
    weights = np.array(tail.weights, dtype=np.float64)[head[tail.number] if nested else np.maximum(numbers - 2, 0)]
    places = tail.domain[f"{child.table.name}.place"].size
    held = {name: np.zeros(len(numbers), dtype=np.int64) for name in every}
    older = {name: np.full(len(numbers), child.attribute(name).size) for name in every}
    for slot, (units, codes) in enumerate(slots, start=1):
        if slot > 1 and len(units):
            columns = {name: head[name][units] for name in tail.domain.names if name in head and name != child.number}
            columns[child.number] = numbers[units] - 2
            columns[f"{child.table.name}.place"] = np.full(len(units), min(slot - 2, places - 1))
            columns[f"{child.table.name}.last"] = (numbers[units] == slot).astype(np.int64)
            for name in plain:
                columns[child.named("previous", name)] = held[name][units]
                columns[child.named("this", name)] = codes[name]
                if child.memory > 1:
                    columns[child.named("before", name)] = older[name][units]
            if child.dated and child.order is not None:
                before, since = held[child.order][units], older[child.order][units]
                first = np.full(len(units), len(child.gaps) + child.undated)
                second = first if slot == 2 else None  # noqa: PLR2004
                columns[child.named("previous", child.order)] = _gaps(child, before, since, second)
                columns[child.named("this", child.order)] = _gaps(child, codes[child.order], before, None)
            yield columns, weights[units]
        for name in every:
            older[name][units] = held[name][units]
            held[name][units] = codes[name]
        if slot == 1:
            older = {name: np.full(len(numbers), child.attribute(name).size) for name in every}


def _gaps(child: ChildTable, later: Codes, earlier: Codes, instead: Codes | None) -> Codes:
    """Cells of the distance between two dates; ``instead`` of them where there is no earlier one."""
    declared = child.attribute(child.order or "").declared
    cell = np.searchsorted(np.array(child.gaps), later - earlier, side="right") - 1 if instead is None else instead
    gap_cells: Codes = np.where(later >= declared, len(child.gaps), cell)
    return gap_cells


@dataclass(frozen=True, eq=False)
class _Drawn:
    """A head or a tail: its noisy tables, and the rows that were drawn, with what they weigh of ``whole``."""

    domain: Domain
    tables: Sequence[NoisyTable]
    rows: Sequence[Weighed]
    whole: int
    labels: Mapping[str, Sequence[str]]

    def part(self, name: str, says: str) -> FamilyPart:
        """Its columns and ties, with their errors."""
        units = float(sum(weights.sum() for _, weights in self.rows)) / self.whole
        columns = tuple(self._column(each) for each in self.domain.names)
        ties = tuple(self._tie(table) for table in self.tables if len(table.attributes) > 1)
        return FamilyPart(name, says, units, columns, ties)

    def _counts(self, names: Sequence[str], groups: Sequence[NDArray[np.int64]]) -> FloatArray:
        """What rows weigh by groups of the codes of some attributes, flat."""
        sizes = [int(of.max()) + 1 for of in groups]
        counts = np.zeros(math.prod(sizes))
        for codes, weights in self.rows:
            flat: NDArray[np.int64] = np.zeros(len(weights), dtype=np.int64)
            for name, of, size in zip(names, groups, sizes, strict=True):
                flat = flat * size + of[codes[name]]
            counts += np.bincount(flat, weights=weights, minlength=len(counts))
        return counts

    def _column(self, name: str) -> FamilyColumn:
        size = self.domain[name].size
        counts = self._counts((name,), (np.arange(size),))
        measured = pooled_marginal(list(self.tables), (name,), self.domain)
        errors = None if measured is None else value_errors(measured, counts, np.arange(size))
        shown = self.labels.get(name) or self.domain[name].labels()
        values = tuple(
            FamilyValue(
                label=str(shown[code]),
                units=float(counts[code]) / self.whole,
                low=None if errors is None else float(errors.low[code]) / self.whole,
                high=None if errors is None else float(errors.high[code]) / self.whole,
                off_by=None if errors is None else float(errors.off_by[code]) / self.whole,
            )
            for code in range(min(size, _MOST_VALUES))
        )
        return FamilyColumn(
            name=name,
            cells=size,
            deviation=None if measured is None else measured.deviation / self.whole,
            worst=None if errors is None else errors.worst / self.whole,
            values=values,
        )

    def _tie(self, table: NoisyTable) -> FamilyTie:
        """A measured table beside the same of the rows, as for pairs of a flat file."""
        groups = tuple(table.group_numbers(name, self.domain) for name in table.attributes)
        counts, held = self._counts(table.attributes, groups), table.values.reshape(-1).astype(np.float64)
        noise = PooledMarginal(table.values, groups, table.noise, 1)
        reach = noise.noise_bound(simultaneous=len(held))
        low, high = np.maximum(held - reach, 0.0), np.maximum(held + reach, 0.0)
        worst = float(np.maximum(counts - low, high - counts).max())
        # sizes of independent noise add up to their means, and past them by root as many times what one is past its
        mean = _MEAN * noise.deviation
        added = len(held) * mean + math.sqrt(len(held)) * max(noise.noise_bound() - mean, 0.0)
        misplaced = (np.abs(counts - held).sum() + added) / (2 * max(float(counts.sum()), 1.0))
        return FamilyTie(
            attributes=table.attributes,
            cells=len(held),
            deviation=noise.deviation / self.whole,
            worst=worst / self.whole,
            misplaced=min(float(misplaced), 1.0),
        )


def family_facts(book: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What stands at the head of every form of it, given as JSON values."""
    guarantee = book["guarantee"]
    loss = ", ".join(f"{name} = {value}" for name, value in guarantee["loss"].items())
    entry = book["journal_entry"]
    return [
        ("Units", f"{book['units']:,}"),
        *((f"Table {each['name']}", f"{each['rows']:,} rows, {each['order']}") for each in book["files"]),
        ("Guarantee", str(guarantee["text"])),
        ("Unit", str(guarantee["unit"])),
        *([("Loss", loss)] if loss else []),
        ("Method", str(book["method"])),
        ("Sfumato", str(book["version"] or "-")),
        ("Journal entry", "-" if entry is None else f"{entry}, which confirms what stands here"),
    ]


def family_column_rows(part: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The columns of a part as rows to be shown, given as JSON values."""
    return [
        {"column": each["name"], "cells": each["cells"], "noise": each["deviation"], "off by at most": each["worst"]}
        for each in part["columns"]
    ]


def family_tie_rows(part: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The measured tables of a part as rows to be shown, given as JSON values."""
    return [
        {
            "measured": " x ".join(each["attributes"]),
            "cells": each["cells"],
            "noise": each["deviation"],
            "off by at most": each["worst"],
            "misplaced at most": f"{_PERCENT * each['misplaced']:.1f} %",
        }
        for each in part["ties"]
    ]


def released_text(statement: Mapping[str, Any], book: FamilyCodebook) -> str:
    """What stands beside the tables as JSON: that they are synthetic, the statement and the codebook."""
    said = {"notice": NOTICE, **statement, "codebook": book.to_json()}
    return json.dumps(said, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read_family_codebook(folder: str | Path) -> dict[str, Any]:
    """The codebook of a folder of tables as JSON values; anybody may have written it, and nothing in it is executed.

    Raises:
        InputError: there is none, or it is damaged.
    """
    place = Path(folder) / STATEMENT
    try:
        if place.stat().st_size > _MOST_BYTES:
            raise InputError(f"{place} is larger than the {_MOST_BYTES >> 20} MiB that one has at most", culprit=place)
        text = place.read_bytes()
    except OSError:
        raise InputError(
            f"{folder} has no {STATEMENT}: it is no release of 'sfumato synthesize --schema'", culprit=folder
        ) from None
    try:
        book = read_json(text)["codebook"]
        whole = list(family_lines(book))  # whatever is read later is there
        whole += [str(value[name]) for value in _values(book) for name in ("label", "units", "low", "high", "off_by")]
        if book["notice"] != NOTICE:
            raise KeyError("notice")  # noqa: TRY301
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError, InputError):
        raise InputError(f"{place} is damaged, or of a later version", culprit=place) from None
    return dict(book)


def _values(book: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for part in book["parts"]:
        for column in part["columns"]:
            yield from column["values"]


UNITS_TEXT = (
    "Numbers are of units. Noise is the standard deviation on one measured cell; no cell is off by more than what "
    "stands there, with 95 % for all cells of a line at once."
)


def family_lines(book: Mapping[str, Any]) -> Iterator[str]:
    """Markdown of a codebook given as JSON values."""
    yield "# Synthetic tables"
    yield ""
    yield f"**{printable(str(book['notice']))}**"
    yield ""
    yield from (f"* {_escaped(name)}: {_escaped(fact)}" for name, fact in family_facts(book))
    yield from (f"* Note: {_escaped(note)}" for note in book["notes"])
    for part in book["parts"]:
        yield ""
        yield f"## {_escaped(part['name'])}"
        yield ""
        yield f"{_escaped(part['says'])}. {UNITS_TEXT}"
        for rows in (family_column_rows(part), family_tie_rows(part)):
            if rows:
                yield ""
                yield "| " + " | ".join(rows[0]) + " |"
                yield "|" + " --- |" * len(rows[0])
                yield from (
                    "| " + " | ".join(_escaped(_figure(value)) for value in row.values()) + " |" for row in rows
                )


def _figure(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def _escaped(text: str) -> str:
    return "".join(f"&#{ord(each)};" if each in "\\`*{}[]<>#|~&_" else each for each in printable(text))
