"""The table behind the lab ``interactive``, and its neighbor without one record."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from sfumato import data
from sfumato.domain import Domain, Integer, Unit, Unknown
from sfumato.domain.predicate import Among
from sfumato.errors import InputError, TableError
from sfumato.query.question import Query, count
from sfumato.workload import Boxes, ranges
from sfumato_labs.lab import NamedColumn, Options
from sfumato_labs.printed_interactive import SPLIT, THRESHOLD
from sfumato_labs.published_tables import read

MOST_RECORDS = 1000  # of a table: the printed programs run from each of 10 000 seeds
SOURCE = "differential_privacy/example/animals_and_carrots.csv of Google's differential privacy library"
SOURCE_DIGEST = "3a2bff793086c13c67c13735da6d65c6dc05623afe6ecee4391c103c724e76a6"  # SHA-256 of its numbers in order
_LEFT_OUT = 52  # position of the record that the source's neighbor lacks, counted from 0


@dataclass(frozen=True)
class FilteringStudy:
    """The table of the lab and its neighbor, which lacks one record of at least the threshold, by name.

    Attributes:
        note: the first note of the lab.
        domain: of the counted column.
        threshold: records of at least this are counted.
        values: the records of both tables, in order.
        published: True if the printed figures apply to these records.
    """

    note: str
    domain: Domain
    threshold: int
    values: Mapping[str, tuple[int, ...]]
    published: bool

    @property
    def column(self) -> str:
        """The name of the counted column."""
        return self.domain.names[0]

    def true_count(self, name: str) -> int:
        """Count the records of at least the threshold."""
        return sum(value >= self.threshold for value in self.values[name])

    def rows(self, name: str) -> pa.Table:
        """Return the records as a table of one column."""
        return pa.table({self.column: pa.array(self.values[name], pa.int64())})

    def at_least(self, threshold: int) -> Query:
        """Return the query for the number of records that reach a threshold."""
        return count(Among(self.column, frozenset(range(max(0, threshold - self._least), self._size))))

    def steps(self) -> list[int]:
        """Return the thresholds of a session with honest mechanisms, spread evenly over the domain."""
        return [self._least + (self._size - 1) * step // SPLIT for step in range(SPLIT)]

    def batch(self) -> Boxes:
        """Return the same queries as one workload of ranges."""
        return ranges(self.column, [(step - self._least, self._size - 1) for step in self.steps()])

    @property
    def _least(self) -> int:
        attribute = self.domain[self.column]
        return attribute.minimum if isinstance(attribute, Integer) else 0

    @property
    def _size(self) -> int:
        return self.domain[self.column].size


def read_study(options: Options) -> FilteringStudy:
    """Return the bundled animals, or a column of the table from ``--data``.

    Raises:
        InputError: an option does not fit, or no record reaches the threshold.
        TableError: the table cannot be read or has too few records.
    """
    threshold = THRESHOLD if options.threshold is None else options.threshold
    if options.data is None:
        if options.columns is not None:
            raise InputError("--columns names a column of the table of --data; add --data", culprit="columns")
        full, fewer = (tuple(rows["carrots"].to_pylist()) for rows in (data.zoo(), data.zoo_neighbour()))
        _refuse_none("carrots", fewer, threshold)
        note = (
            f"Runs on the bundled table of {len(full)} animals and their carrots, and on its neighbor without Dugong. "
            "It stands in for the source's table, of which it has 32 records, the number of records and the count. "
            f"The source's table is {SOURCE}: with --data and that file the printed averages come out to the last "
            "digit."
        )
        tables = {"zoo": full, "zoo without Dugong": fewer}
        return FilteringStudy(note, data.domain("zoo"), threshold, tables, threshold == THRESHOLD)
    if (source := source_records(options.data)) is not None:
        fewer = source[:_LEFT_OUT] + source[_LEFT_OUT + 1 :]
        note = f"Runs on the source's own table, {SOURCE}, and on its neighbor without Dugong."
        tables = {"animals": source, "animals without Dugong": fewer}
        return FilteringStudy(note, data.domain("zoo"), threshold, tables, threshold == THRESHOLD)
    return _other_study(options.data, options, threshold)


def _other_study(place: str, options: Options, threshold: int) -> FilteringStudy:
    (column,) = options.columns or (NamedColumn("carrots", (0, 100)),)
    data_read = read(place, [column.name])
    numbers, ((low, high),) = data_read.whole_numbers([column])
    if high - low < SPLIT:
        raise InputError(
            f"{column.name!r} has {high - low + 1} values from {low} to {high}; {SPLIT} different questions and one "
            f"more need at least {SPLIT + 1}",
            culprit=column.name,
        )
    drawn = np.random.default_rng(options.seed).permutation(len(numbers))[:MOST_RECORDS]
    values: list[int] = numbers[np.sort(drawn), 0].tolist()
    if len(values) < 2:  # noqa: PLR2004
        raise TableError(
            f"the column {column.name!r} has a single number, and a neighboring table would be empty",
            culprit=column.name,
        )
    _refuse_none(column.name, values, threshold)
    left_out = next(place for place, value in enumerate(values) if value >= threshold)
    domain = Domain((Integer(name=column.name, minimum=low, maximum=high, unknown=Unknown.CLAMP),), Unit.row())
    fewer = tuple(value for place, value in enumerate(values) if place != left_out)
    of = f"{len(values)}" if len(values) == len(numbers) else f"{len(values)} drawn at random from {len(numbers)}"
    note = f"Runs on {data_read.title}, {column.name} of {of}, and on the same without one of at least {threshold}."
    return FilteringStudy(note, domain, threshold, {"table": tuple(values), "neighbour": fewer}, published=False)


def _refuse_none(name: str, values: Sequence[int], threshold: int) -> None:
    if not any(value >= threshold for value in values):
        raise InputError(f"no value of {name!r} reaches the threshold; name another", culprit=threshold)


def source_records(place: str) -> tuple[int, ...] | None:
    """Return the source's records in the order of its file, which determines the noise of each; None for another
    table.
    """
    path = Path(place)
    if path.suffix != ".csv" or not path.is_file():
        return None
    with path.open(encoding="utf-8", errors="replace", newline="") as lines:
        last = [row[-1].strip() for row in csv.reader(lines) if row]
    numbers = [cell for cell in last if cell.isascii() and cell.isdigit()]
    digest = hashlib.sha256(",".join(numbers).encode()).hexdigest()
    return tuple(map(int, numbers)) if digest == SOURCE_DIGEST else None
