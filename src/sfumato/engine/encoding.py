"""The conversion of raw values to codes, as SQL: one text for every engine, so that all agree on every odd value.

- A missing value (NULL, and NaN of a real column) gets the missing cell if there is one; otherwise it is undeclared.
  Text is compared byte by byte: case, blanks, leading zeros and Unicode form all matter.
- A declared boolean is written true, True, TRUE or 1, and false similarly.
- Text is a number if it matches ``dialect.NUMBER``; anything else is undeclared.
- The end of ``dialect`` defines how dates and time stamps are read.  They are clamped like numbers.
- Before all of this, ``raw_columns`` makes codes for missing values NULL, and writes dates in ISO 8601.
- An integer attribute takes whole numbers only: 39 and 39.0, but 39.5 is undeclared.  Under ``clamp`` a number out of
  bounds, infinity included, moves to the nearest bound; any other undeclared value drops the row.
"""

# ruff: noqa: S608 - this module writes SQL; every name and literal in it is quoted

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import listed
from sfumato.domain import Attribute, Categorical, Date, Domain, Integer, Numeric, Real, Timestamp, Unknown
from sfumato.domain.attribute import null_code, unknown_code
from sfumato.engine.dialect import (
    Dialect,
    canonical_text,
    date_bounds,
    date_cell,
    identity,
    missing,
    number,
    numbered_dates,
    read_date,
)
from sfumato.engine.port import Column, ColumnKind
from sfumato.engine.raw_columns import cleaned_relation
from sfumato.errors import TableError

if TYPE_CHECKING:
    import pyarrow as pa


class RowEncoding(Protocol):
    """A query that makes encoded rows: of one raw table, or of a view of several tables."""

    @property
    def domain(self) -> Domain:
        """The domain of the codes, with the unit whose rows are bounded."""
        ...

    @property
    def dialect(self) -> Dialect:
        """The SQL dialect of the engine."""
        ...

    @property
    def named(self) -> str:
        """The name of the encoding; rows of encodings with different names have different versions."""
        ...

    @property
    def values(self) -> tuple[int, ...]:
        """See :attr:`Encoding.values`."""
        ...

    @property
    def stored(self) -> list[str]:
        """See :attr:`Encoding.stored`."""
        ...

    def select(self, relation: str, raw: Sequence[str] = ()) -> str:
        """See :meth:`Encoding.select`."""
        ...


@dataclass(frozen=True)
class Encoding:
    """A query over a raw relation.

    Codes are columns ``c0, c1, …`` and clamped numbers ``v0, …``, by position in the domain; the id of the unit is
    ``u`` as text.  An integer attribute without edges has no ``v``, because its code determines the number.
    """

    domain: Domain
    columns: Mapping[str, Column]
    dialect: Dialect

    def __post_init__(self) -> None:
        for attribute in self.domain:
            _refuse_unmapped(attribute, _find(self.columns, attribute.name))
        if self.domain.unit.column is not None:
            unit = _find(self.columns, self.domain.unit.column)
            if unit.kind in (ColumnKind.TIMESTAMP, ColumnKind.OTHER):  # engines write moments differently
                raise TableError(f"column {unit.name!r} of type {unit.type} cannot identify a unit", culprit=unit)

    @property
    def named(self) -> str:
        """The digest of the description."""
        return self.domain.hash

    @property
    def values(self) -> tuple[int, ...]:
        """The positions of the attributes whose clamped number is stored next to the code."""
        return stored_values(self.domain)

    @property
    def stored(self) -> list[str]:
        """The names of the encoded columns."""
        unit = ["u"] if self.domain.unit.column is not None else []
        return [*(f"c{place}" for place in range(len(self.domain))), *(f"v{place}" for place in self.values), *unit]

    def select(self, relation: str, raw: Sequence[str] = ()) -> str:
        """Return the encoded rows of ``relation``, without dropped rows.

        Args:
            relation: a FROM clause.
            raw: expressions over the raw columns to add, as ``r0, r1, …``.
        """
        carried = [(expression, f"r{place}") for place, expression in enumerate(raw)]
        unit = [(self._unit(), "u")] if self.domain.unit.column is not None else []
        read = [pair for place, attribute in enumerate(self.domain) for pair in self._read(place, attribute)]
        coded = [pair for place, attribute in enumerate(self.domain) for pair in self._code(place, attribute)]
        conditions = [f"c{place} IS NOT NULL" for place in range(len(self.domain))] + ["u IS NOT NULL" for _ in unit]
        rest = [(name, name) for _, name in unit + carried]
        final = [
            *(
                (self.dialect.code(f"c{place}", attribute.size), f"c{place}")
                for place, attribute in enumerate(self.domain)
            ),
            *((f"v{place}", f"v{place}") for place in self.values),
            *rest,
        ]
        inner = f"SELECT {_listed(read + unit + carried)} FROM {self._cleaned(relation)[0]}"
        for step in self._numbered():
            inner = f"SELECT read_rows.*, {_listed(step)} FROM ({self.dialect.computed_once(inner)}) AS read_rows"
        if self._numbered():
            inner = self.dialect.computed_once(inner)
        middle = f"SELECT {_listed(coded + rest)} FROM ({inner}) AS raw_rows"
        rows = self.dialect.filtered(f"({middle}) AS coded_rows", " AND ".join(conditions))
        return f"SELECT {_listed(final)} FROM {rows}"

    def _cleaned(self, relation: str) -> tuple[str, dict[str, Column]]:
        """Return the relation with cleaned columns, and the column of each attribute there."""
        if not any(each.missing or (isinstance(each, Date | Timestamp) and each.formats) for each in self.domain):
            return relation, dict(self.columns)
        return cleaned_relation(self.dialect, self.domain.attributes, self.columns, relation)

    @cached_property  # cleaning expressions of dates are long
    def _read_columns(self) -> dict[str, Column]:
        return self._cleaned("")[1]

    def _numbered(self) -> list[list[tuple[str, str]]]:
        """Return the columns that are computed from dates before they are coded, in steps."""
        steps = [
            numbered_dates(self.dialect, self._read_columns[attribute.name], attribute, place)
            for place, attribute in enumerate(self.domain)
            if isinstance(attribute, Date | Timestamp)
        ]
        steps_of_all = [[pair for each in parts for pair in each] for parts in zip(*steps, strict=True)]
        return [step for step in steps_of_all if step]

    def _unit(self) -> str:
        column = self.columns[self.domain.unit.column or ""]
        return f"CASE WHEN NOT {missing(self.dialect, column)} THEN {identity(self.dialect, column)} END"

    def _read(self, place: int, attribute: Attribute) -> list[tuple[str, str]]:
        """Return the first columns from a raw column: its code, or its missing flag ``m`` and its number ``n``."""
        column = self._read_columns[attribute.name]
        gone = missing(self.dialect, column)
        if isinstance(attribute, Categorical):
            value = self.dialect.lookup(canonical_text(self.dialect, column), spellings(attribute))
            unknown = _or_null(unknown_code(attribute))
            return [(f"CASE WHEN {gone} THEN {_missing(attribute)} ELSE COALESCE({value}, {unknown}) END", f"c{place}")]
        if isinstance(attribute, Date | Timestamp):
            return [(gone, f"m{place}"), *read_date(self.dialect, column, attribute, place)]
        value = self.dialect.name(column.name) if self._exact(attribute) else number(self.dialect, column)
        return [(gone, f"m{place}"), (value, f"n{place}")]

    def _code(self, place: int, attribute: Attribute) -> list[tuple[str, str]]:
        """Return the code of an attribute, and its clamped number if that is stored; NULL drops the row.

        Values inside the bounds come first, because nearly all rows have them, and engines stop there.
        """
        if isinstance(attribute, Categorical):
            return [(f"c{place}", f"c{place}")]
        value = f"n{place}"
        exact = self._exact(attribute)
        low, high = self._ends(attribute)
        inside = f"{value} >= {low} AND {value} <= {high}"
        if isinstance(attribute, Integer) and not exact:
            inside += f" AND {value} = FLOOR({value})"
        unknown = _or_null(unknown_code(attribute))
        clamps = attribute.unknown is Unknown.CLAMP
        beyond = ("0", str(attribute.declared - 1)) if clamps else (unknown, unknown)
        gone = f"{value} IS NULL" if isinstance(attribute, Date | Timestamp) and attribute.formats else f"m{place}"
        code = (
            f"CASE WHEN {inside} THEN {self._cell(value, attribute)} WHEN {gone} THEN {_missing(attribute)} "
            f"WHEN {value} < {low} THEN {beyond[0]} WHEN {value} > {high} THEN {beyond[1]} ELSE {unknown} END"
        )
        if place not in self.values:
            return [(code, f"c{place}")]
        clamped = f" WHEN {value} < {low} THEN {low} WHEN {value} > {high} THEN {high}" if clamps else ""
        stored = f"CASE WHEN {inside} THEN {value}{clamped} END"
        return [
            (code, f"c{place}"),
            (self.dialect.integer(stored) if isinstance(attribute, Integer) else stored, f"v{place}"),
        ]

    def _ends(self, attribute: Numeric | Date | Timestamp) -> tuple[str, str]:
        """Return the least and the greatest value of the declared cells."""
        if isinstance(attribute, Date | Timestamp):
            first, last = date_bounds(attribute)
            return str(first), str(last)
        written = str if self._exact(attribute) else real
        return written(attribute.minimum), written(attribute.maximum)

    def _exact(self, attribute: Attribute) -> bool:
        """Return whether an integer column has an integer attribute, so that no number has to be a double."""
        return isinstance(attribute, Integer) and self.columns[attribute.name].kind is ColumnKind.INTEGER

    def _cell(self, value: str, attribute: Numeric | Date | Timestamp) -> str:
        if isinstance(attribute, Date | Timestamp):
            return date_cell(self.dialect, attribute, self.domain.index(attribute.name))
        if isinstance(attribute, Integer) and attribute.edges is None:
            return f"{self.dialect.integer(value)} - {attribute.minimum}".replace("- -", "+ ")
        edges = attribute.edges if isinstance(attribute, Integer) else attribute.edges[:-1]
        return bin_number(value, [float(edge) for edge in edges or ()])


def stored_values(attributes: Iterable[Attribute]) -> tuple[int, ...]:
    """Return the positions of the attributes whose code alone does not determine the number."""
    return tuple(
        place
        for place, attribute in enumerate(attributes)
        if isinstance(attribute, Real) or (isinstance(attribute, Integer) and attribute.edges is not None)
    )


def bin_number(value: str, starts: Sequence[float], cells: Sequence[int] | None = None) -> str:
    """Return SQL for the entry of ``cells`` at the last of ``starts`` not above ``value``, as a balanced tree of CASE.

    Args:
        value: an expression.
        starts: increasing, at least one; a smaller value counts as the first.
        cells: one per start; None: their numbers 0, 1, ...

    >>> bin_number("v", [0.0, 1.0])
    'CASE WHEN v < 1.0e0 THEN 0 ELSE 1 END'
    >>> bin_number("v", [0.0, 5e-324])
    'CASE WHEN v <= 0.0e0 THEN 0 ELSE 1 END'
    >>> bin_number("c", [0, 1, 7], [4, 5, 4])
    'CASE WHEN c < 1 THEN 4 ELSE CASE WHEN c < 7 THEN 5 ELSE 4 END END'
    """

    def tree(first: int, last: int) -> str:
        if first == last:
            return str(first if cells is None else cells[first])
        middle = (first + last + 1) // 2
        start, before = starts[middle], starts[middle - 1]
        below = f"{value} < {real(start) if cells is None else start}"
        if cells is None and start == math.nextafter(before, math.inf):  # engines may not read 5e-324
            below = f"{value} <= {real(before)}"
        return f"CASE WHEN {below} THEN {tree(first, middle - 1)} ELSE {tree(middle, last)} END"

    return tree(0, len(starts) - 1)


def spellings(attribute: Categorical) -> dict[str, int]:
    """Return every text of a declared value, with its code."""
    codes: dict[str, int] = {}
    for code, value in enumerate(attribute.values):
        if isinstance(value, bool):
            codes |= dict.fromkeys(("true", "True", "TRUE", "1") if value else ("false", "False", "FALSE", "0"), code)
        else:
            codes[str(value)] = code
    return codes | {text: codes[value] for text, value in attribute.spellings}


def _find(columns: Mapping[str, Column], name: str) -> Column:
    if name not in columns:
        raise TableError(f"the table has no column {name!r}; it has {listed(columns)}", culprit=name)
    return columns[name]


def _refuse_unmapped(attribute: Attribute, column: Column) -> None:
    kinds = {ColumnKind.TEXT, ColumnKind.INTEGER, ColumnKind.REAL}
    if isinstance(attribute, Categorical) and isinstance(attribute.values[0], bool):
        kinds |= {ColumnKind.BOOLEAN}
    elif isinstance(attribute, Categorical) and isinstance(attribute.values[0], str):
        kinds = {
            ColumnKind.TEXT,
            ColumnKind.DATE,
            ColumnKind.INTEGER,
            ColumnKind.BOOLEAN,
        }  # every engine writes reals differently
    elif isinstance(attribute, Date | Timestamp):
        numbers = {ColumnKind.INTEGER, ColumnKind.REAL} if attribute.formats else set()
        kinds = {ColumnKind.TEXT, ColumnKind.DATE, ColumnKind.TIMESTAMP} | numbers
    if isinstance(attribute, Date) and column.moments:
        raise TableError(
            f"column {column.name!r} of type {column.type} holds moments, whose day depends on the zone; declare it as "
            "a timestamp with a zone",
            culprit=column,
        )
    if column.kind not in kinds:
        raise TableError(
            f"column {column.name!r} of type {column.type} has no mapping to its attribute; "
            "change the attribute's type, or store the column as text",
            culprit=column,
        )


def _missing(attribute: Attribute) -> str:
    """Return the code of a missing value: its own cell, else that of any undeclared value; NULL drops the row."""
    code = null_code(attribute)
    return _or_null(unknown_code(attribute) if code is None else code)


def _or_null(code: int | None) -> str:
    return "NULL" if code is None else str(code)


def vanishing(number: str) -> str:
    """Return a double that can be divided by any number that fits 64 bits.

    PostgreSQL refuses a quotient too small for a double, so that one row would decide whether a query fails.  A number
    that small counts as 0 in every allowed unit.
    """
    return f"CASE WHEN ABS({number}) < 1e-280 THEN 0 ELSE {number} END"


def real(value: float) -> str:
    """Return a double literal on every engine."""
    text = repr(float(value))
    return text if "e" in text else f"{text}e0"


def _listed(pairs: list[tuple[str, str]]) -> str:
    return ", ".join(expression if expression == name else f"{expression} AS {name}" for expression, name in pairs)


_FIXED = {ColumnKind.BOOLEAN, ColumnKind.INTEGER, ColumnKind.REAL, ColumnKind.DATE}  # without blanks in their text
_Words = NDArray[np.uint64]
_LANES = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)  # odd constants without structure, one per 64-bit lane
_WORD = 1 << 63
_MIXED_ROWS = 1 << 14  # rows mixed at a time, so that they stay in the fast caches


class Fingerprint:
    """A 128-bit name of a multiset of encoded rows: the same rows in any order and any batches give the same digest.

    Each row is hashed, and the hashes are summed.  The name distinguishes changed tables; it is no cryptographic
    commitment.  It is derived from the protected data: it belongs in the ledger's keys and never in a release.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self._shape = tuple(shape)
        self._rows = 0
        self._sums = [0, 0]

    def add(self, codes: Sequence[NDArray[np.integer]], values: Sequence[_Words]) -> None:
        """Add a batch: one array of codes per attribute, then any further words that distinguish rows."""
        rows = len(codes[0])
        self._rows += rows
        for start in range(0, rows, _MIXED_ROWS):
            part = slice(start, start + _MIXED_ROWS)
            words = [*self._packed([code[part] for code in codes]), *(value[part] for value in values)]
            for lane, seed in enumerate(_LANES):
                mixed = words[0] ^ np.uint64(seed)
                spare = np.empty_like(mixed)
                for word in words[1:]:
                    _mix(mixed, spare)
                    mixed += np.uint64(seed)
                    mixed ^= word
                _mix(mixed, spare)
                mixed += np.uint64(seed)
                _mix(mixed, spare)
                self._sums[lane] = (self._sums[lane] + int(mixed.sum(dtype=np.uint64))) % (1 << 64)

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Add a batch with one column of codes per attribute, and doubles and integers after them."""
        arrays = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
        codes, more = arrays[: len(self._shape)], arrays[len(self._shape) :]
        self.add(codes, [words_of(array) if array.dtype == np.float64 else array.astype(np.uint64) for array in more])

    def state(self) -> bytes:
        """Return the sums up to now, for :meth:`merge` in another process."""
        return b"".join(number.to_bytes(8, "little") for number in (self._rows, *self._sums))

    def merge(self, state: bytes) -> None:
        """Add the sums of another fingerprint."""
        rows, *sums = (int.from_bytes(state[place : place + 8], "little") for place in (0, 8, 16))
        self._rows += rows
        self._sums = [(mine + other) % (1 << 64) for mine, other in zip(self._sums, sums, strict=True)]

    def digest(self, key: str) -> str:
        """Return the hexadecimal SHA-256 of the sums under ``key``."""
        return hashlib.sha256(f"{key} {self._rows} {self._sums[0]} {self._sums[1]}".encode()).hexdigest()

    def _packed(self, codes: Sequence[NDArray[np.integer]]) -> list[_Words]:
        """Return mixed-radix words, with as many attributes in each as fit 63 bits."""
        words: list[_Words] = []
        cells = 1
        for code, size in zip(codes, self._shape, strict=True):
            if not words or cells * size > _WORD:
                words.append(code.astype(np.uint64))
                cells = size
            else:
                words[-1] *= np.uint64(size)
                words[-1] += code.astype(np.uint64)
                cells *= size
        return words


def words_of(values: NDArray[np.float64]) -> _Words:
    """Return the bits of doubles, the same for all NaN and for both zeros."""
    clean = values + 0.0
    clean[np.isnan(clean)] = np.nan
    return clean.view(np.uint64)


def _mix(words: _Words, spare: _Words) -> None:
    """Apply the finalizer of SplitMix64 (Steele, Lea, Flood 2014): each input bit affects each output bit.

    Args:
        words: mixed in place.
        spare: an array of the same shape, which is overwritten.
    """
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        np.right_shift(words, np.uint64(shift), out=spare)
        np.bitwise_xor(words, spare, out=words)
        np.multiply(words, np.uint64(factor), out=words)
    np.right_shift(words, np.uint64(31), out=spare)
    np.bitwise_xor(words, spare, out=words)


def content_statement(
    relation: str, columns: Sequence[Column], dialect: Dialect, *, hashed: tuple[str, str, str] | None = None
) -> str:
    """Return the query for the number of rows and two sums of their hashes.

    Args:
        relation: the FROM clause of the raw rows.
        columns: all columns of the table.
        dialect: the dialect of the engine.
        hashed: SQL of a hash with ``{}`` for a text, and of two integers from ``digest``, which is such a hash.
            Default: those of the dialect.
    """
    columns_by_name = sorted(columns, key=lambda column: column.name)
    texts = [dialect.exact(column) for column in columns_by_name if column.kind not in _FIXED]
    numbers = [dialect.exact(column) for column in columns_by_name if column.kind in _FIXED]
    # all texts, then their lengths and all numbers: read from the end, the text determines the row
    lengths = [dialect.text(f"LENGTH({text})") for text in texts]
    parts = [*(f"COALESCE({text}, '')" for text in texts)]
    parts += [part for each in (*lengths, *numbers) for part in ("' '", f"COALESCE({each}, '')")]
    row = f"CONCAT({', '.join(parts)})"
    digest, first, second = hashed or (dialect.digest("{}"), *dialect.words("digest"))
    sums = ", ".join(f"SUM(CAST({word} AS DECIMAL(38, 0)))" for word in (first, second))
    return f"SELECT COUNT(*), {sums} FROM (SELECT {digest.format(row)} AS digest FROM {relation}) AS hashed"


def content_name(columns: Sequence[Column], row: Sequence[object]) -> str:
    """Name a table by its columns and the result of :func:`content_statement`, hexadecimal."""
    sums = [int(str(number or 0)) for number in row]
    return _digest([sorted(column.name for column in columns), sums])


def content_of_tables(contents: Mapping[str, str]) -> str:
    """Name several tables by a name of each, in any order; empty if one of the names is."""
    return _digest(sorted(contents.items())) if all(contents.values()) else ""


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()
