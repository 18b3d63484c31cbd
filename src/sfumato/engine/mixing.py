"""Rows in random order, however many: dealt to buckets at random, each bucket shuffled by itself.

Independent uniform buckets and a uniform order within each make a uniform order of all rows (Rao 1961; Sandelius
1962), and no bucket but one has to fit in memory.  The draws come from the operating system: the order says nothing
about the order in which the rows came, also to somebody who knows most of that.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from sfumato.privacy.entropy import OsEntropy

BUCKET_ROWS = 1 << 20
_BUCKETS = 256  # at most: each has an open file


class Mixer:
    """Takes rows in batches, gives them back in random order.  Used once, closed at the end."""

    def __init__(self, schema: pa.Schema, rows: int, folder: Path) -> None:
        """Make buckets.

        Args:
            schema: of the batches.
            rows: about how many rows there will be.
            folder: where rows are kept meanwhile if they do not fit into one bucket; for this user only.
        """
        self._schema = schema
        self._entropy = OsEntropy()
        self._held: list[pa.RecordBatch] = []
        count = min(-(-rows // BUCKET_ROWS), _BUCKETS)
        name = secrets.token_hex(8)
        self._files = [folder / f"{name}-{bucket}" for bucket in range(count if count > 1 else 0)]
        self._writers = [pa.ipc.new_stream(str(file), schema) for file in self._files]

    def add(self, batch: pa.RecordBatch) -> None:
        """Deal the rows of a batch to buckets."""
        if not self._files:
            self._held.append(batch)
            return
        # A multiple of a word modulo a few buckets is off by less than 2^-56.
        drawn = (self._entropy.words(batch.num_rows) % np.uint64(len(self._files))).astype(np.uint8)
        dealt = batch.take(pa.array(np.argsort(drawn, kind="stable")))
        ends = np.cumsum(np.bincount(drawn, minlength=len(self._files)))
        for writer, start, end in zip(self._writers, [0, *ends[:-1]], ends, strict=True):
            writer.write_batch(dealt.slice(start, end - start))

    def tables(self) -> Iterator[pa.Table]:
        """All rows in random order, a bucket at a time."""
        for writer in self._writers:
            writer.close()
        if not self._files:
            yield self._shuffled(pa.Table.from_batches(self._held, self._schema))
        for file in self._files:
            with pa.ipc.open_stream(str(file)) as reader:
                bucket = reader.read_all()
            file.unlink()
            yield self._shuffled(bucket)

    def close(self) -> None:
        """Forget all rows."""
        for writer in self._writers:
            writer.close()
        for file in self._files:
            file.unlink(missing_ok=True)

    def _shuffled(self, rows: pa.Table) -> pa.Table:
        return rows.combine_chunks().take(pa.array(np.argsort(self._entropy.words(len(rows)))))
