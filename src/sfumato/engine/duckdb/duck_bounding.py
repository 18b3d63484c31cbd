"""The rows of a unit within its bounds in DuckDB: the rows of :mod:`sfumato.engine.bounding`, without a window.

The rows of units that could be above a bound are numbered in arrays, some units at a time.  Cells and rows are hashed
and sorted, unit by unit, only if a bound cuts them.  The digests are of the same texts, so the rows are the same.
Arrays hold at most a fixed number of rows per unit.  Units with more rows are left to DuckDB, whose memory has a limit.
"""

# ruff: noqa: S608 - this module writes SQL; every name and literal in it is quoted

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.engine.bounding import bounded, cell_digest, cell_number, fewest_cut, row_content
from sfumato.engine.encoding import RowEncoding

_Rows = NDArray[np.int64]
_Mask = NDArray[np.bool_]
_Words = NDArray[np.uint64]  # two words per row from a digest's hexadecimal digits: they compare like the text

BUCKET_ROWS = 1_000_000  # rows per bucket, of whole units: about 100 MB of arrays
_SPREAD = 16  # largest range per row if each value has an array entry


def drop_beyond(cursor: Any, relation: str, encoding: RowEncoding) -> None:  # noqa: ANN401 - a duckdb connection
    """Drop every row beyond a bound.

    Args:
        cursor: a connection that has the relation.
        relation: a table of encoded rows, of whole units.
        encoding: the encoding of the relation.
    """
    table_over, gone = f"{relation}_over", f"{relation}_gone"
    fewest = fewest_cut(encoding.domain.unit)
    units_over = f"SELECT u, COUNT(*) AS held FROM {relation} GROUP BY u HAVING held > {fewest}"
    few = f"held <= {BUCKET_ROWS // 2}"
    part = f"CASE WHEN {few} THEN SUM(held) FILTER ({few}) OVER (ORDER BY n) // {BUCKET_ROWS // 2} ELSE -1 END"
    numbered = f"SELECT u, held, ROW_NUMBER() OVER () - 1 AS n FROM ({units_over}) AS found"
    try:
        cursor.execute(f"CREATE TEMP TABLE {table_over} AS SELECT u, n, {part} AS part FROM ({numbered}) AS numbered")
        cursor.execute(f"CREATE TEMP TABLE {gone} (place BIGINT)")
        for (number,) in cursor.sql(f"SELECT DISTINCT part FROM {table_over} ORDER BY part").fetchall():
            if number < 0:
                cursor.execute(f"INSERT INTO {gone} {_beyond_of_large(relation, encoding)}")
                continue
            cursor.register(
                "dropped_rows", pa.table({"place": _Bucket.of(cursor, relation, encoding, number).dropped()})
            )
            cursor.execute(f"INSERT INTO {gone} SELECT place FROM dropped_rows")
            cursor.unregister("dropped_rows")
        _drop(cursor, relation, gone)
    finally:
        cursor.execute(f"DROP TABLE IF EXISTS {table_over}; DROP TABLE IF EXISTS {gone}")


def _beyond_of_large(relation: str, encoding: RowEncoding) -> str:
    """Return SQL for the positions of rows beyond a bound, for units that are too large for an array."""
    of = f"FROM {relation} WHERE u IN (SELECT u FROM {relation}_over WHERE part < 0)"
    rows = bounded(f"(SELECT *, rowid AS row_at {of}) AS large", encoding, ["row_at", "u"])
    return f"SELECT rowid {of} AND rowid NOT IN (SELECT row_at FROM ({rows}) AS kept_rows)"


def _drop(cursor: Any, relation: str, gone: str) -> None:  # noqa: ANN401 - a duckdb connection
    """Drop the rows at some positions of a relation."""
    ((few,),) = cursor.sql(f"SELECT (SELECT COUNT(*) FROM {gone}) * 2 < (SELECT COUNT(*) FROM {relation})").fetchall()
    if few:
        cursor.execute(f"DELETE FROM {relation} WHERE rowid IN (SELECT place FROM {gone})")
        return
    # deleted rows would still occupy memory
    cursor.execute(f"ALTER TABLE {relation} RENAME TO {relation}_unbounded")
    rows = f"SELECT * FROM {relation}_unbounded WHERE rowid NOT IN (SELECT place FROM {gone})"
    cursor.execute(f"CREATE TABLE {relation} AS {rows}")
    cursor.execute(f"DROP TABLE {relation}_unbounded")


@dataclass(frozen=True)
class _Bucket:
    """Rows of some units: the position of each in the relation, the number of its unit, and its cell for each bound."""

    cursor: Any
    relation: str
    encoding: RowEncoding
    places: _Rows
    units: _Rows
    cells: Sequence[_Rows]

    @classmethod
    def of(cls, cursor: Any, relation: str, encoding: RowEncoding, part: int) -> _Bucket:  # noqa: ANN401
        """Return one of several parts of the units."""
        cells = "".join(
            f", {cell_number(encoding, bound.by)} AS a{n}" for n, bound in enumerate(encoding.domain.unit.per)
        )
        rows = f"SELECT t.rowid AS place, o.n AS n{cells} FROM {relation} AS t JOIN {relation}_over AS o USING (u)"
        table = cursor.sql(f"{rows} WHERE o.part = {part}").to_arrow_table()
        columns = [column.to_numpy() for column in table.columns]
        return cls(cursor, relation, encoding, columns[0], columns[1], columns[2:])

    def dropped(self) -> _Rows:
        """Return the positions of rows beyond a bound, one bound after the other."""
        mask = np.ones(len(self.places), dtype=bool)
        draws = _Draws(self)
        for bound, cell in zip(self.encoding.domain.unit.per, self.cells, strict=True):
            held, own = _numbered(cell)  # there may be 2^53 cells: with as many units, pairs would not fit 64 bits
            pairs = self.units * len(held) + own
            if bound.groups is not None:
                self._cut_cells(mask, pairs, held, bound.groups)
            _cut(mask, pairs, bound.rows, draws)
        _cut(mask, self.units, self.encoding.domain.unit.rows, draws)
        return self.places[~mask]

    def _cut_cells(self, mask: _Mask, pairs: _Rows, held: _Rows, most: int) -> None:
        """Drop the rows in cells of a unit beyond the first ``most``; cells are numbered by their index in ``held``."""
        rows, size = np.flatnonzero(mask), len(held)
        cells, inverse = _numbered(pairs[rows])
        many = np.flatnonzero(np.bincount(cells // size)[cells // size] > most)
        if not len(many):
            return
        cut = np.zeros(len(cells), dtype=bool)
        units, own = np.divmod(cells[many], size)
        cut[many] = _rank(units, self._cell_words(units, held[own])) >= most
        mask[rows[cut[inverse]]] = False

    def _cell_words(self, units: _Rows, cells: _Rows) -> _Words:
        requests = pa.table({"n": units, "cell": cells, "asking": np.arange(len(units))})
        text = cell_digest(self.encoding, "cell")
        select = f"SELECT asking, {text} AS d FROM asked JOIN {self.relation}_over AS o USING (n)"
        return self._words(requests, select)[0]

    def row_words(self, rows: _Rows, repetitions: _Rows) -> tuple[_Words, _Words]:
        """Return digests of the content of some rows, and of the content with a number after it."""
        dialect = self.encoding.dialect
        requests = pa.table({"place": self.places[rows], "repetition": repetitions, "asking": np.arange(len(rows))})
        content = f"SELECT asking, repetition, {row_content(self.encoding)} AS content FROM {self.relation} AS t "
        content += "JOIN asked ON t.rowid = asked.place"
        draw = dialect.digest("CONCAT(content, repetition)")
        held, drawn = self._words(requests, f"SELECT asking, content, {draw} AS d FROM ({content}) AS contents")
        return held, drawn

    def _words(self, requests: pa.Table, select: str) -> list[_Words]:
        """Return columns of digests after a first one that numbers the rows, in the order of ``requests``."""
        self.cursor.register("asked", requests)
        try:
            words = self.cursor.sql(select).to_arrow_table().combine_chunks()
        finally:
            self.cursor.unregister("asked")
        order = np.empty(len(requests), dtype=np.int64)
        order[words.column(0).to_numpy()] = np.arange(len(requests))
        return [_digest_words(column, len(requests))[order] for column in words.columns[1:]]


class _Draws:
    """The order of rows within their unit, computed if a bound needs it."""

    def __init__(self, bucket: _Bucket) -> None:
        self._bucket = bucket
        self._known = np.zeros(len(bucket.places), dtype=bool)
        self._words: _Words = np.empty((0, 2), dtype=np.uint64)
        self._at = np.zeros(len(bucket.places), dtype=np.int64)

    def of(self, rows: _Rows) -> _Words:
        """Return two words per row, always the same for a row.

        Equal rows are in the same cells: all of them are requested together, or dropped.  So the number of earlier
        equal rows does not depend on the bound that needs it.
        """
        new = rows[~self._known[rows]]
        if len(new):
            held, drawn = self._bucket.row_words(new, np.ones(len(new), dtype=np.int64))
            repeated = _rank(np.zeros(len(new), dtype=np.int64), held, equal=True)
            again = np.flatnonzero(repeated)
            if len(again):
                drawn[again] = self._bucket.row_words(new[again], repeated[again] + 1)[1]
            self._at[new] = len(self._words) + np.arange(len(new))
            self._words = np.concatenate([self._words, drawn])
            self._known[new] = True
        return self._words[self._at[rows]]


def _cut(mask: _Mask, groups: _Rows, most: int, draws: _Draws) -> None:
    """Drop the rows of each group beyond its first ``most``."""
    rows = np.flatnonzero(mask)
    _, inverse = _numbered(groups[rows])
    many = np.flatnonzero(np.bincount(inverse)[inverse] > most)
    if len(many):
        places = _rank(inverse[many], draws.of(rows[many]))
        mask[rows[many[places >= most]]] = False


def _numbered(values: _Rows) -> tuple[_Rows, _Rows]:
    """Return the distinct values, in order, and the index of each row's value among them."""
    if not len(values) or int(values.max()) > _SPREAD * len(values):
        return np.unique(values, return_inverse=True)
    held = np.zeros(int(values.max()) + 1, dtype=bool)
    held[values] = True
    return np.flatnonzero(held), (np.cumsum(held) - 1)[values]


def _rank(groups: _Rows, words: _Words, *, equal: bool = False) -> _Rows:
    """Return the rank of each row within its group by its words, from 0; with ``equal``, among rows of equal words."""
    order = _order(groups, words)
    changed = groups[order][1:] != groups[order][:-1]
    if equal:
        changed |= np.any(words[order][1:] != words[order][:-1], axis=1)
    starts = np.flatnonzero(np.concatenate([[True], changed]))
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    return ranks


def _order(groups: _Rows, words: _Words) -> _Rows:
    """Return rows by group and words: by as many bits as one number holds, and by all of them on a tie."""
    bits = int(groups.max(initial=0)).bit_length()
    key = (groups.astype(np.uint64) << np.uint64(64 - bits) if bits else np.uint64(0)) | (
        words[:, 0] >> np.uint64(bits)
    )
    order = np.argsort(key)
    sorted_keys = key[order]
    if np.any(sorted_keys[1:] == sorted_keys[:-1]):
        order = np.lexsort((words[:, 1], words[:, 0], groups))
    return order


def _digest_words(column: pa.ChunkedArray, rows: int) -> _Words:
    """Return digests of 32 hexadecimal digits as two words per row, which compare as the text does."""
    text = column.combine_chunks().cast(pa.large_binary())
    offset = np.frombuffer(text.buffers()[1], dtype=np.int64)[text.offset]
    digits = np.frombuffer(text.buffers()[2], dtype=np.uint8, count=32 * rows, offset=offset)
    nibbles = (digits & 15) + 9 * (digits >> 6)  # letters are 9 above their lowest four bits
    return ((nibbles[::2] << 4) | nibbles[1::2]).view(">u8").astype(np.uint64).reshape(rows, 2)
