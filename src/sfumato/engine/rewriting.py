"""Rewriting rows by a ``Recode``, as SQL: levels and classes are small tables that the rows are joined with."""

# ruff: noqa: S608 - this module writes SQL; every name and literal in it is quoted

from __future__ import annotations

import secrets
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.engine.encoding import Encoding
from sfumato.engine.port import Recode


@dataclass(frozen=True)
class Rewriting:
    """The join of encoded rows, which carry raw columns as ``r0, r1, …``, with levels and classes.

    Tables ``sfumato_level0, …`` have columns ``code, level``; table ``sfumato_classes`` has ``k0, k1, …`` (coarser
    codes), ``l0, l1, …`` (labels), and ``first, last``: which of the shuffled rows of the tuple it takes.
    """

    encoding: Encoding
    recode: Recode
    raw: tuple[str, ...]

    def tables(self) -> dict[str, pa.Table]:
        """The small tables, by name."""
        recode = self.recode
        levels = {
            f"sfumato_level{place}": pa.table(
                {"code": np.arange(len(level), dtype=np.int64), "level": level.astype(np.int64)}
            )
            for place, level in enumerate(recode.levels)
        }
        columns = {f"k{place}": pa.array(recode.classes[:, place].astype(np.int64)) for place in range(len(levels))}
        columns |= {f"l{place}": column for place, column in enumerate(recode.labels.columns)}
        first, last = turns(recode)
        return levels | {"sfumato_classes": pa.table(columns | {"first": first, "last": last})}

    def key(self, name: str) -> tuple[str, ...]:
        """The columns by which rows look a small table up."""
        if name != "sfumato_classes":
            return ("code",)
        return tuple(f"k{place}" for place in range(len(self.recode.attributes)))

    @property
    def names(self) -> tuple[str, ...]:
        """Columns of the result."""
        return (*self.recode.labels.column_names, *self.raw)

    def select(self, rows: str) -> str:
        """The rewritten rows in random order.

        Args:
            rows: encoded rows, what stands after FROM.
        """
        dialect, recode = self.encoding.dialect, self.recode
        keys = range(len(recode.attributes))
        carried = [f"r{place}" for place in range(len(self.raw))]
        coarse = ", ".join([*(f"sfumato_level{key}.level AS k{key}" for key in keys), *carried])
        joins = " ".join(
            f"JOIN sfumato_level{key} ON sfumato_level{key}.code = c{self.encoding.domain.index(name)}"
            for key, name in enumerate(recode.attributes)
        )
        listed = ", ".join([*(f"k{key}" for key in keys), *carried])
        dealing, order = (secrets.token_hex(16) for _ in range(2))
        codes = [f"c{self.encoding.domain.index(name)}" for name in recode.attributes]
        drawn = f"SELECT {coarse}, {dialect.draw([*codes, *carried], dealing)} AS draw FROM {rows} {joins}"
        turn = "1"
        if recode.rows is not None:
            turn = f"ROW_NUMBER() OVER (PARTITION BY {', '.join(f'k{key}' for key in keys)} ORDER BY draw)"
        dealt = f"SELECT {listed}, draw, {turn} AS turn FROM ({drawn}) AS drawn_rows"
        same = " AND ".join(
            [*(f"dealt.k{key} = sfumato_classes.k{key}" for key in keys), "turn >= first", "turn <= last"]
        )
        join = "JOIN" if recode.suppressed is None else "LEFT JOIN"
        written = [*(self._label(f"l{place}") for place in range(recode.labels.num_columns)), *carried]
        names = [dialect.name(name) for name in self.names]
        final = ", ".join(f"{column} AS {name}" for column, name in zip(written, names, strict=True))
        # A second draw: the one that dealt the rows would give away, by the order, which turn a row took.
        rewritten = f"{final}, {dialect.draw(written, order)} AS position"
        joined = f"SELECT {rewritten} FROM ({dealt}) AS dealt {join} sfumato_classes ON {same}"
        return f"SELECT {', '.join(names)} FROM ({joined}) AS rewritten ORDER BY position"

    def _label(self, column: str) -> str:
        if self.recode.suppressed is None:
            return column
        return f"COALESCE({column}, {self.encoding.dialect.string(self.recode.suppressed)})"


def turns(recode: Recode) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and last turn of each class among the rows of its tuple, counted from 1."""
    if recode.rows is None:
        return np.ones(len(recode.classes), np.int64), np.ones(len(recode.classes), np.int64)
    _, tuples = np.unique(recode.classes, axis=0, return_inverse=True)
    order = np.argsort(tuples, kind="stable")
    taken = np.cumsum(recode.rows[order])
    starts = np.flatnonzero(np.diff(tuples[order], prepend=-1))
    before = np.repeat(taken[starts] - recode.rows[order][starts], np.diff(np.append(starts, len(order))))
    last = np.empty_like(taken)
    last[order] = taken - before
    return last - recode.rows + 1, last
