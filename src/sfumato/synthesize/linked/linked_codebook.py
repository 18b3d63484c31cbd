"""The codebook of linked synthetic tables: their contents, the measured tables, and the errors of the rows.

It is derived from the noisy tables of the release and the drawn rows; the protected tables are not read.  The *head*
has one row for each unit: the parent, the number of children, the first child.  A *tail* has one row for each further
child.  The rows of a unit weigh at most one together, so numbers count units, not rows.
"""

from __future__ import annotations

import hashlib
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
from sfumato.ledger.entry import method_title
from sfumato.model.factor import FloatArray
from sfumato.model.noisy_table import NoisyTable, PooledMarginal
from sfumato.strict_documents import read_json
from sfumato.synthesize.codebook.codebook import NOTICE, Guarantee, printable, read_typed
from sfumato.synthesize.linked.child_dates import DAY, Codes, first_date_cells
from sfumato.synthesize.linked.child_slots import Slot
from sfumato.synthesize.linked.linked_labels import first_child_labels, next_child_labels, unit_labels
from sfumato.synthesize.linked.linked_rows import DrawnChildren
from sfumato.synthesize.stated_errors import measured_column, value_errors

STATEMENT, CODEBOOK = "release.json", "codebook.md"
"""The names of the files of a release that are not tables."""

_MOST_BYTES = 64 << 20
_MOST_VALUES = 200  # largest number of listed values of a column
_MEAN = 0.8  # upper bound of the mean size of noise, in standard deviations
_PERCENT = 100


def digest_of_folder(folder: Path) -> str:
    """Return the SHA-256 of the lines ``<SHA-256>  <name>`` of all files, in the order of their names."""
    files = sorted(each for each in folder.iterdir() if each.is_file())
    lines = [f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@dataclass(frozen=True)
class FamilyValue:
    """A cell of a column.

    Attributes:
        label: label of the cell.
        units: weight of the release's rows in the cell, in units.
        low, high: 95 % interval of the number in the protected tables; None: not measured.
        off_by: largest difference between the release and the protected tables, with 95 % confidence.
    """

    label: str
    units: float
    low: float | None
    high: float | None
    off_by: float | None


@dataclass(frozen=True)
class FamilyColumn:
    """A column of a head or a tail; ``worst`` bounds the errors of all cells at once, with 95 % confidence."""

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
        cells: number of cells, which may be groups of values.
        deviation: standard deviation of the noise on a cell, in units.
        worst: largest error of a cell, in units, with 95 % confidence for all cells at once.
        misplaced: largest share that would have to move to another cell, with 95 % confidence.
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
    """A table of the release: its columns, number of rows, and the order of the children of a unit."""

    name: str
    rows: int
    columns: tuple[str, ...]
    order: str
    most: int


@dataclass(frozen=True)
class FamilyCodebook:
    """The public description of linked synthetic tables for their readers.

    Attributes:
        notice: statement that the rows are synthetic.
        guarantee: guarantee for all rows of a unit in all tables.
        method, version: method and version that made the tables.
        journal_entry: number of the release in the ledger's journal.
        units: number of units.
        files: the tables.
        parts: measured tables, and the errors of the rows.
        notes: sentences about tables that noise hides at this loss.
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
        """Return the codebook as JSON values."""
        return asdict(self)

    def to_markdown(self) -> str:
        """Return the codebook as Markdown, in which text of the tables is escaped."""
        return "\n".join(family_lines(self.to_json())) + "\n"


@dataclass(frozen=True)
class FamilyFacts:
    """The guarantee, provenance, files and notes of a release."""

    guarantee: Guarantee
    provenance: Mapping[str, Any]
    files: tuple[FamilyFile, ...]
    notes: tuple[str, ...]


def _child_parts(
    linked: LinkedTables, models: Mapping[str, Sequence[NoisyTable]], children: DrawnChildren
) -> Iterator[FamilyPart]:
    """Yield a part for the first rows and a part for the next rows of each child table."""
    for child in linked.children:
        parent, first, further = linked.parent_of(child), linked.first_child(child), linked.next_child(child)
        own, table = children.first_rows[child.table.name], child.table.name
        if parent is not None and first is not None:
            weighed: list[Weighed] = [_first_child_rows(linked, child, own, children.child_slots[table])]
            labels = first_child_labels(linked, child)
            drawn = _Drawn(first.domain, models[first.name], weighed, first.unit_weight, labels)
            says = (
                f"one row for each of {parent.table.name}: what is known of it, how many of {table}, the first of them;"
                " those of one unit weigh one together at most"
            )
            yield drawn.part(first.name, says)
        if further is None:
            continue
        weighed = list(_next_child_rows(linked, child, own, children.child_slots[table]))
        drawn = _Drawn(
            further.domain, models[further.name], weighed, further.unit_weight, next_child_labels(linked, child)
        )
        of = "the parent" if parent is None else f"the row of {parent.table.name}"
        says = (
            f"one row for each of {table} after the first: {of}, the one before it and itself; those of one unit weigh "
            "one together at most"
        )
        yield drawn.part(further.name, says)


def family_codebook(
    linked: LinkedTables,
    models: Mapping[str, Sequence[NoisyTable]],
    rows: tuple[Mapping[str, Codes], DrawnChildren],
    facts: FamilyFacts,
) -> FamilyCodebook:
    """Return the codebook of drawn rows.

    Args:
        linked: the tables.
        models: noisy tables of ``head`` and of all derived tables, by name.
        rows: codes of the units by attribute of the head, and the drawn rows of each child table.
        facts: facts of the release.
    """
    unit_rows, children = rows
    direct = ((child.number, children.first_rows[child.table.name][child.number]) for child in linked.direct)
    unit_rows = {**unit_rows, **dict(direct)}  # after bounds removed some
    units = len(next(iter(unit_rows.values()), ()))
    weighed: list[Weighed] = [(unit_rows, np.ones(units))]
    listed = " and ".join(child.table.name for child in linked.direct)
    says = f"one row a unit: the parent, how many of {listed}, the first of each"
    parts = [_Drawn(linked.unit_domain, models["head"], weighed, 1, unit_labels(linked)).part("head", says)]
    parts += _child_parts(linked, models, children)
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
"""Codes of some rows by attribute, and the weight of each row."""


def _first_child_rows(
    linked: LinkedTables, child: ChildTable, first_rows: Mapping[str, Codes], child_slots: Sequence[Slot]
) -> Weighed:
    """Return the first rows of a nested child table with their weights, given the children within group bounds."""
    first = linked.first_child(child)
    assert first is not None
    weights = np.array(first.weights, dtype=np.float64)[first_rows[first.number]]
    held, (rows, codes) = {name: first_rows[name] for name in first.domain.names}, child_slots[0]
    for each in child.table.attributes:
        name, own = child.named("first", each.name), codes[each.name]
        if child.dated and each.name == child.order:  # the day may have moved to a declared one
            own = first_date_cells(linked, child, own, first_rows[DAY][rows] if DAY in first_rows else None)
        held[name] = np.full(len(weights), first.domain[name].size - 1)
        held[name][rows] = own
    return held, weights


def _next_child_rows(
    linked: LinkedTables, child: ChildTable, first_rows: Mapping[str, Codes], child_slots: Sequence[Slot]
) -> Iterator[Weighed]:
    """Yield the next rows of a child table, slot by slot, with their weights."""
    table = linked.next_child(child)
    assert table is not None
    plain, every = [each.name for each in child.plain], [each.name for each in child.table.attributes]
    numbers = first_rows[child.number] + linked.least_children(child)
    classes = first_rows[table.number] if table.number == child.rows else np.maximum(numbers - 2, 0)
    weights = np.array(table.weights, dtype=np.float64)[classes]
    places = table.domain[f"{child.table.name}.place"].size
    known = {name: codes for name, codes in first_rows.items() if name in table.domain and name != child.number}
    held = {name: np.zeros(len(numbers), dtype=np.int64) for name in every}
    older = {name: np.full(len(numbers), child.attribute(name).size) for name in every}
    for slot, (units, codes) in enumerate(child_slots, start=1):
        if slot > 1 and len(units):
            columns = {name: codes_of[units] for name, codes_of in known.items()}
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


def _gaps(child: ChildTable, later: Codes, before: Codes, replacement: Codes | None) -> Codes:
    """Return the cells of the distance between two dates; ``replacement`` if there is no earlier date."""
    declared = child.attribute(child.order or "").declared
    cell = (
        np.searchsorted(np.array(child.gaps), later - before, side="right") - 1 if replacement is None else replacement
    )
    gap_cells: Codes = np.where(later >= declared, len(child.gaps), cell)
    return gap_cells


@dataclass(frozen=True, eq=False)
class _Drawn:
    """A head or a tail: its noisy tables, and the drawn rows with their weights, relative to ``unit_weight``."""

    domain: Domain
    tables: Sequence[NoisyTable]
    rows: Sequence[Weighed]
    unit_weight: int
    labels: Mapping[str, Sequence[str]]

    def part(self, name: str, says: str) -> FamilyPart:
        """Return its columns and measured tables, with their errors."""
        units = float(sum(weights.sum() for _, weights in self.rows)) / self.unit_weight
        columns = tuple(self._column(each) for each in self.domain.names)
        ties = tuple(self._tie(table) for table in self.tables if len(table.attributes) > 1)
        return FamilyPart(name, says, units, columns, ties)

    def _counts(self, names: Sequence[str], groups: Sequence[NDArray[np.int64]]) -> FloatArray:
        """Sum the weights of rows by groups of the codes of some attributes, flat."""
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
        measured = measured_column(self.tables, name, self.domain)
        errors = None if measured is None else value_errors(measured, counts, np.arange(size))
        labels = self.labels.get(name) or self.domain[name].labels()
        values = tuple(
            FamilyValue(
                label=str(labels[code]),
                units=float(counts[code]) / self.unit_weight,
                low=None if errors is None else float(errors.low[code]) / self.unit_weight,
                high=None if errors is None else float(errors.high[code]) / self.unit_weight,
                off_by=None if errors is None else float(errors.off_by[code]) / self.unit_weight,
            )
            for code in range(min(size, _MOST_VALUES))
        )
        return FamilyColumn(
            name=name,
            cells=size,
            deviation=None if measured is None else measured.deviation / self.unit_weight,
            worst=None if errors is None else errors.worst / self.unit_weight,
            values=values,
        )

    def _tie(self, table: NoisyTable) -> FamilyTie:
        """Compare a measured table with the same table of the drawn rows."""
        groups = tuple(table.group_numbers(name, self.domain) for name in table.attributes)
        counts, held = self._counts(table.attributes, groups), table.values.reshape(-1).astype(np.float64)
        noise = PooledMarginal(table.values, groups, table.noise, 1)
        bound = noise.noise_bound(simultaneous=len(held))
        low, high = np.maximum(held - bound, 0.0), np.maximum(held + bound, 0.0)
        worst = float(np.maximum(counts - low, high - counts).max())
        # the sum of sizes of n independent noises exceeds n means by root n times the excess of one
        mean = _MEAN * noise.deviation
        added = len(held) * mean + math.sqrt(len(held)) * max(noise.noise_bound() - mean, 0.0)
        misplaced = (np.abs(counts - held).sum() + added) / (2 * max(float(counts.sum()), 1.0))
        return FamilyTie(
            attributes=table.attributes,
            cells=len(held),
            deviation=noise.deviation / self.unit_weight,
            worst=worst / self.unit_weight,
            misplaced=min(float(misplaced), 1.0),
        )


def family_facts(book: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the facts at the top of a codebook, given as JSON values."""
    guarantee = book["guarantee"]
    loss = ", ".join(f"{name} = {value}" for name, value in guarantee["loss"].items())
    entry = book["journal_entry"]
    return [
        ("Units", f"{book['units']:,}"),
        *((f"Table {each['name']}", f"{each['rows']:,} rows, {each['order']}") for each in book["files"]),
        ("Guarantee", str(guarantee["text"])),
        ("Unit", str(guarantee["unit"])),
        *([("Loss", loss)] if loss else []),
        ("Method", method_title(str(book["method"]))),
        ("Sfumato", str(book["version"] or "-")),
        ("Journal entry", "-" if entry is None else f"{entry}, which confirms this page"),
    ]


def family_column_rows(part: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the columns of a part as rows of a table, given as JSON values."""
    return [
        {"column": each["name"], "cells": each["cells"], "noise": each["deviation"], "off by at most": each["worst"]}
        for each in part["columns"]
    ]


def family_tie_rows(part: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the measured tables of a part as rows of a table, given as JSON values."""
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
    """Return the JSON text of a release: the notice, the statement and the codebook."""
    statement_and_codebook = {"notice": NOTICE, **statement, "codebook": book.to_json()}
    return json.dumps(statement_and_codebook, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read_family_codebook(folder: str | Path) -> dict[str, Any]:
    """Read the codebook of a folder of tables as JSON values; nothing in it is executed.

    Raises:
        InputError: the folder has no codebook, or it is damaged.
    """
    place = Path(folder) / STATEMENT
    try:
        if place.stat().st_size > _MOST_BYTES:
            raise InputError(f"{place} is larger than the {_MOST_BYTES >> 20} MiB that one has at most", culprit=place)
        text = place.read_bytes()
    except OSError:
        raise InputError(
            f"{folder} has no {STATEMENT}: it is no release of 'sfumato synthesize linked'", culprit=folder
        ) from None
    try:
        book: dict[str, Any] = read_json(text)["codebook"]
        if read_typed(FamilyCodebook, book).notice != NOTICE:
            raise KeyError("notice")  # noqa: TRY301
    except (KeyError, TypeError, ValueError, RecursionError, InputError):
        raise InputError(f"{place} is damaged, or of a later version", culprit=place) from None
    return book


UNITS_TEXT = (
    "Numbers count units. Noise is the standard deviation on one measured cell. No cell of a line is off by more than "
    "its number, with 95 % confidence for all cells of the line at once."
)


def family_lines(book: Mapping[str, Any]) -> Iterator[str]:
    """Yield the Markdown of a codebook given as JSON values."""
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
