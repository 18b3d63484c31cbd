"""The rewriting of rows by a ``Recode`` on Spark's executors."""

# ruff: noqa: S608 - this module writes SQL; every name and literal in it is quoted

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato.engine.encoding import RowEncoding
from sfumato.engine.port import Recode

_KEY_BITS = 62


@dataclass(frozen=True)
class SparkRewriting:
    """Encoded rows, which carry raw columns as ``r0, r1, …``, rewritten on executors.

    One look-up in a broadcast table, one exchange of narrow rows: a row becomes the packed codes of its labels next to
    its raw columns.  The result is a function of the rows, of their position and of salts drawn beforehand, so a
    repeated task gives the same rows.
    """

    encoding: RowEncoding
    recode: Recode
    raw: tuple[str, ...]

    def rewritten(self, rows: str, spark: Any) -> Any:  # noqa: ANN401 - a session and a DataFrame, imported lazily
        """Return the rewritten rows in random order, as a DataFrame.

        The order is by salted hashes of each row's origin.  It is made after the join, because Spark drops an order
        before a join.

        Args:
            rows: the FROM clause of the encoded rows.
            spark: the session.
        """
        labels = [_SparkLabel(column, self.recode.suppressed) for column in self.recode.labels.columns]
        packing = _Packing([len(label.texts) for label in labels])
        packed = [f"l{place}" for place in range(len(packing.keys))]
        carried = [f"r{place}" for place in range(len(self.raw))]
        narrow = self._joined(
            rows, spark, dict(zip(packed, packing.packed([each.codes for each in labels]), strict=True))
        )
        if self.recode.suppressed is not None:
            hidden = packing.packed([np.array([each.suppressed]) for each in labels])
            filled = [f"COALESCE({name}, {code[0]}) AS {name}" for name, code in zip(packed, hidden, strict=True)]
            narrow = narrow.selectExpr("place", *filled, *carried)
        dialect = self.encoding.dialect
        mixed = narrow.sortWithinPartitions("place")
        written = [
            f"{_array([dialect.string(text) for text in label.texts])}[CAST({code} AS INT)] AS {dialect.name(name)}"
            for label, code, name in zip(labels, packing.unpacked(packed), self.recode.labels.column_names, strict=True)
        ]
        raw_columns = [f"{column} AS {dialect.name(name)}" for column, name in zip(carried, self.raw, strict=True)]
        return mixed.selectExpr(*written, *raw_columns)

    def _joined(self, rows: str, spark: Any, packed_labels: dict[str, NDArray[np.int64]]) -> Any:  # noqa: ANN401
        """Return raw columns, ``place`` and the packed labels of each row's class; NULL for a kept row in no class.

        Rows are exchanged before the join: one task that encodes, packs and joins is a method too long for Java to
        compile.
        """
        from pyspark.sql.functions import broadcast, expr

        recode, dialect = self.recode, self.encoding.dialect
        codes = [f"c{self.encoding.domain.index(name)}" for name in recode.attributes]
        carried = [f"r{place}" for place in range(len(self.raw))]
        coarse = list(recode.classes.T.astype(np.int64))
        packing = _Packing(
            [int(max(level.max(), here.max(initial=0))) + 1 for level, here in zip(recode.levels, coarse, strict=True)]
        )
        keys = [f"k{place}" for place in range(len(packing.keys))]
        levels = [_leveled(code, level) for code, level in zip(codes, recode.levels, strict=True)]
        # Never null, so that no filter evaluates it again as a null test.
        listed = [f"COALESCE({text}, -1L) AS {key}" for text, key in zip(packing.text(levels), keys, strict=True)]
        classes = dict(zip(keys, packing.packed(coarse), strict=True)) | packed_labels
        same = [f"given.{key} = classes.{key}" for key in keys]
        if recode.rows is not None:
            listed.append(f"{dialect.draw([*codes, *carried], secrets.token_hex(16))} AS draw")
            same.append("turn BETWEEN first AND last")
            classes |= dict(zip(("first", "last"), recode.turns(), strict=True))
        given = spark.sql(f"SELECT {', '.join([*listed, *carried])} FROM {rows}")
        if recode.rows is not None:
            turn = f"ROW_NUMBER() OVER (PARTITION BY {', '.join(keys)} ORDER BY draw)"
            given = given.withColumn("turn", expr(turn)).drop("draw")
        place = f"XXHASH64('{secrets.token_hex(16)}', MONOTONICALLY_INCREASING_ID())"
        given = given.withColumn("place", expr(place)).repartition("place")
        small = broadcast(spark.createDataFrame(pa.table(classes)).alias("classes"))
        return given.alias("given").join(
            small, expr(" AND ".join(same)), "inner" if recode.suppressed is None else "left"
        )


class _Packing:
    """Codes of several attributes in the fewest 64-bit integers, in mixed radix."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = sizes
        self.keys: list[list[int]] = [[]]
        self.weights: list[int] = []
        bound = 1
        for place, size in enumerate(sizes):
            if (bound * size).bit_length() > _KEY_BITS:
                self.keys.append([])
                bound = 1
            self.keys[-1].append(place)
            self.weights.append(bound)
            bound *= size

    def packed(self, columns: Sequence[NDArray[np.integer]]) -> list[NDArray[np.int64]]:
        """Return the integers of some tuples."""
        zero = np.zeros(len(columns[0]), dtype=np.int64)
        return [
            sum((columns[place].astype(np.int64) * self.weights[place] for place in key), start=zero)
            for key in self.keys
        ]

    def text(self, codes: Sequence[str]) -> list[str]:
        """Return the integers as SQL of the codes."""
        return [" + ".join(f"{codes[place]} * {self.weights[place]}L" for place in key) for key in self.keys]

    def unpacked(self, names: Sequence[str]) -> list[str]:
        """Return each code as SQL of the integers."""
        return [
            f"({name} DIV {self.weights[place]}L) % {self.sizes[place]}L"
            for name, key in zip(names, self.keys, strict=True)
            for place in key
        ]


class _SparkLabel:
    """A column of labels: the distinct texts, and the code of each class's text and of the suppressed label."""

    def __init__(self, column: pa.ChunkedArray, suppressed: str | None) -> None:
        encoded = column.combine_chunks().dictionary_encode()
        self.texts: list[str] = encoded.dictionary.to_pylist() or [""]  # an array needs a type
        self.codes = encoded.indices.to_numpy(zero_copy_only=False)
        if suppressed is not None and suppressed not in self.texts:
            self.texts.append(suppressed)
        self.suppressed = -1 if suppressed is None else self.texts.index(suppressed)


def _leveled(code: str, level: NDArray[np.unsignedinteger]) -> str:
    """Return the coarser code of a code."""
    if np.array_equal(level, np.arange(len(level))):
        return f"CAST({code} AS BIGINT)"
    return f"{_array([f'{coarser}L' for coarser in level])}[CAST({code} AS INT)]"


def _array(literals: Sequence[str]) -> str:
    return f"ARRAY({', '.join(literals)})"
