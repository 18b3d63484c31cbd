"""Published tables for labs, from a path, a database address or the package, with the notes that introduce them.

The engine reads a table as its distinct rows with their counts. So a file and a database give the same rows in the same
order.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from sfumato import data
from sfumato.anonymize.clustering.space import Intervals
from sfumato.anonymize.microdata import Microdata
from sfumato.anonymize.release.request import raw_classes
from sfumato.domain.hierarchy.builders import flat, intervals, mapping
from sfumato.domain.hierarchy.levels import Hierarchy
from sfumato.engine.open import open_table
from sfumato.engine.table_files import redacted_source
from sfumato.errors import InputError, TableError
from sfumato_labs.lab import NamedColumn, Table

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

LARGEST = 1e15  # integers up to this are exact, and sums and products of them do not overflow
MOST_VALUES = 10_000  # values of an integer column that is counted value by value
AGES = (17, 90)
EDUCATION = (1, 16)
UNKNOWN = ("?", "(other)")  # as written in the file and in the census
MARITAL = {
    "Never-married": "Never-married",
    "Married-civ-spouse": "Married",
    "Married-AF-spouse": "Married",
    "Divorced": "Leave",
    "Separated": "Leave",
    "Widowed": "Alone",
    "Married-spouse-absent": "Alone",
}
ADULT = "UCI Adult"
CENSUS = "the bundled synthetic census"
STAND_IN = (
    f"{ADULT} could not be fetched, so every figure below is of {CENSUS}. The published figures stand next to those of "
    "the real file only: name it with --data."
)
ADULT_COLUMNS = ("age", "education_num", "gender", "marital_status", "occupation", "race")
# SHA-256 of the complete training rows, see Published.is_adult
_ADULT_DIGEST = "e71f2492200b9d3f9ecd773de1699536beb8623ea0e00dea14a12795f81cd815"


@dataclass(frozen=True, eq=False)
class Published:
    """Distinct rows of a published table as text, the number of people in each, and the identity of the table.

    Attributes:
        title: its name in the first note of a lab, without a password.
        columns: values of each column by its name, all of one length.
        counts: people in each distinct row, shape ``(rows,)``.
        stand_in: True if it replaces a table that was out of reach.
    """

    title: str
    columns: Mapping[str, Sequence[str]]
    counts: Counts
    stand_in: bool = False

    @property
    def note(self) -> str:
        """The first note of a lab on this table."""
        return STAND_IN if self.stand_in else f"Runs on {self.title}."

    @cached_property
    def is_adult(self) -> bool:
        """True if it is UCI Adult's training file, so that published figures apply.

        The test uses the complete rows over the columns that labs use.
        """
        if any(name not in self.columns for name in ADULT_COLUMNS):
            return False
        rows = self.complete()
        held: Counter[tuple[str, ...]] = Counter()
        for count, *values in zip(rows.counts.tolist(), *(rows.columns[name] for name in ADULT_COLUMNS), strict=True):
            held[tuple(values)] += count
        lines = "\n".join(",".join((*values, str(count))) for values, count in sorted(held.items()))
        return hashlib.sha256(lines.encode()).hexdigest() == _ADULT_DIGEST

    def headed(self, title: str) -> str:
        """Return the title of a lab about UCI Adult, for the table that it ran on."""
        return title if self.is_adult else title.replace(ADULT, self.title)

    def marked(self, lines: Table) -> Table:
        """Return lines of an index that name the census if it replaces the source's table."""
        mark = f" (of {CENSUS})" if self.stand_in else ""
        return tuple({**line, "as_printed": f"{line['as_printed']}{mark}"} for line in lines)

    def people(self) -> int:
        """Return the number of rows of the table."""
        return int(self.counts.sum())

    def complete(self) -> Published:
        """Return the rows without missing values: 30 162 of the training file of UCI Adult."""
        selected = np.ones(len(self.counts), dtype=bool)
        for values in self.columns.values():
            selected &= ~np.isin(np.array(values, dtype=object), UNKNOWN)
        places = np.flatnonzero(selected).tolist()
        columns = {name: [values[place] for place in places] for name, values in self.columns.items()}
        return Published(self.title, columns, self.counts[selected], self.stand_in)

    def numeric(self) -> tuple[str, ...]:
        """Return the columns that contain only numbers, in order."""
        return tuple(name for name, values in self.columns.items() if np.isfinite(_floats(values)).all())

    def numbers(self, named: Sequence[NamedColumn]) -> Floats:
        """Return numeric columns, one row per person, shape ``(people, columns)``; rows without a number are left out.

        Raises:
            TableError: no row remains, or numbers of a column without declared bounds are too large.
        """
        parsed = np.column_stack([_floats(self.columns[each.name]) for each in named])
        selected = np.isfinite(parsed).all(axis=1)
        for place, each in enumerate(named):
            if each.bounds is not None:
                selected &= (each.bounds[0] <= parsed[:, place]) & (parsed[:, place] <= each.bounds[1])
            elif (np.abs(parsed[selected, place]) > LARGEST).any():
                raise TableError(
                    f"the column {each.name!r} holds numbers beyond 1e15: declare bounds, {each.name}=LOW:HIGH",
                    culprit=each.name,
                )
        if not selected.any():
            raise TableError(f"no row of {self.title} has numbers within bounds in all of these columns")
        repeated: Floats = np.repeat(parsed[selected], self.counts[selected], axis=0)
        return repeated

    def whole_numbers(self, named: Sequence[NamedColumn]) -> tuple[Counts, tuple[tuple[int, int], ...]]:
        """Return integer columns, shape ``(people, columns)``, and the span of each: its bounds, or that of the data.

        Raises:
            TableError: a number is not an integer, or no row remains.
            InputError: a column has too many values to count each of them.
        """
        values = self.numbers(named)
        spans = []
        for place, each in enumerate(named):
            if (values[:, place] != np.rint(values[:, place])).any():
                raise TableError(f"the column {each.name!r} does not hold whole numbers", culprit=each.name)
            spans.append(whole_span(each, values[:, place]))
        return values.astype(np.int64), tuple(spans)

    def scaled(self, named: Sequence[NamedColumn]) -> Floats:
        """Return numeric columns, each scaled from its bounds to [-1, 1].

        Undeclared bounds are taken from the data. A lab on published data may do this; a release must not.
        """
        values = self.numbers(named)
        low, high = values.min(axis=0), values.max(axis=0)
        for place, each in enumerate(named):
            if each.bounds is not None:
                low[place], high[place] = each.bounds
        scaled: Floats = np.clip(2 * (values - low) / np.where(high > low, high - low, 1) - 1, -1, 1)
        return scaled


def whole_span(column: NamedColumn, values: NDArray[np.number]) -> tuple[int, int]:
    """Return the first and the last integer of a column's bounds, or of its values if no bounds are declared.

    Raises:
        InputError: there are too many integers to count each of them, or none.
    """
    low, high = column.bounds or (float(values.min()), float(values.max()))
    least, most = math.ceil(low), math.floor(high)
    if not 0 <= most - least < MOST_VALUES:
        raise InputError(
            f"{column.name!r} has {most - least + 1} values from {least} to {most}, and a lab counts each of at most "
            f"{MOST_VALUES}: declare other bounds, {column.name}=LOW:HIGH",
            culprit=column.name,
        )
    return least, most


def read(source: str, columns: Sequence[str] | None = None) -> Published:
    """Read a table by its path or database address: the given columns, or all.

    Raises:
        TableError: the table cannot be read or lacks a column.
        EngineError: the database does not answer.
        InputError: the kind of address is unknown.
    """
    if columns is not None and len(set(columns)) < len(columns):
        raise InputError(f"a column is named twice: {', '.join(columns)}", culprit=tuple(columns))
    table = open_table(source)
    groups = raw_classes(table, columns or [column.name for column in table.schema()])
    values = {name: groups[name].to_pylist() for name in groups.column_names if name != "units"}
    return Published(redacted_source(source), values, groups["units"].to_numpy())


def refuse_own(names: Sequence[str], own: Sequence[str]) -> None:
    """Refuse a column with the name of one of the lab's own columns in the same tables.

    Raises:
        InputError: the message names the column.
    """
    for name in names:
        if name in own:
            raise InputError(f"the tables of this lab have a column {name!r} of their own: rename it", culprit=name)


def census(columns: Sequence[str] | None = None) -> Published:
    """Return the bundled synthetic census.

    Raises:
        InputError: this installation has no bundled census.
    """
    file = resources.files("sfumato.data").joinpath("census.parquet")
    if not file.is_file():
        raise InputError("no census is bundled with this installation: name a table such as UCI Adult with --data")
    published = read(str(file), columns)
    return Published(CENSUS, published.columns, published.counts)


def adult(source: str | None) -> Published:
    """Return the given table. Default: the downloaded UCI Adult, otherwise the bundled synthetic census.

    Raises:
        TableError: the given table cannot be read or lacks columns of UCI Adult.
    """
    if source is None:
        return fetched()
    published = read(source)
    if missing := [name for name in ADULT_COLUMNS if name not in published.columns]:
        raise TableError(
            f"{published.title} has other columns than UCI Adult: it lacks {', '.join(missing)}",
            culprit=published.title,
        )
    return published


@cache
def fetched() -> Published:
    """Return UCI Adult from its source or the cache, or the census that replaces it."""
    try:
        table = data.adult()
    except TableError:
        published = census()
        return Published(published.title, published.columns, published.counts, stand_in=True)
    grouped = table.group_by(table.column_names).aggregate([([], "count_all")])
    grouped = grouped.sort_by([(name, "ascending") for name in table.column_names])
    columns = {name: [str(value) for value in grouped[name].to_pylist()] for name in table.column_names}
    return Published(f"{ADULT}, as fetched from its source", columns, grouped["count_all"].to_numpy())


def tuples(rows: Published, labels: Mapping[str, Sequence[str]]) -> Microdata:
    """Return rows counted over the named columns, coded by the given labels."""
    columns = []
    for name, known in labels.items():
        place = {label: code for code, label in enumerate(known)}
        unknown = sorted(set(rows.columns[name]) - place.keys())
        if unknown:
            raise TableError(f"the column {name!r} of {rows.title} holds values that the lab does not know")
        columns.append([place[value] for value in rows.columns[name]])
    coded = np.array(columns).T
    codes, inverse = np.unique(coded, axis=0, return_inverse=True)
    counts = np.bincount(inverse.ravel(), weights=rows.counts, minlength=len(codes)).astype(np.int64)
    return Microdata(quasi=tuple(labels), codes=codes, counts=counts)


def published_hierarchies(rows: Published) -> tuple[Hierarchy, ...]:
    """Return age, gender, race and marital status with the levels of the published experiment."""
    return (
        intervals("age", *AGES, widths=(5, 10, 20)),
        flat("gender", sorted(set(rows.columns["gender"]))),
        flat("race", sorted(set(rows.columns["race"]))),
        mapping("marital_status", [MARITAL]),
    )


def numbers(minimum: int, maximum: int) -> Intervals:
    """Return free intervals of integers."""
    values = range(minimum, maximum + 1)
    return Intervals(tuple(map(str, values)), np.array(values, dtype=np.float64), float(maximum - minimum))


def coded(values: Sequence[str]) -> Intervals:
    """Return categories by integer code, in the given order."""
    return Intervals(tuple(values), np.arange(len(values), dtype=np.float64), float(len(values) - 1))


def _floats(values: Sequence[str]) -> Floats:
    parsed = np.full(len(values), np.nan)
    for place, value in enumerate(values):
        try:
            parsed[place] = float(value)
        except ValueError:
            continue
    return parsed
