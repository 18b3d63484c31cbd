"""Reports in a distributed job: batches of Arrow rows become a state, states become one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np

from sfumato.errors import ReportError
from sfumato.local.client import Reports
from sfumato.local.document import fingerprint, loads
from sfumato.local.randomizer import Reports as Data
from sfumato.local.randomizer import from_bytes
from sfumato.local.server import Server, State, empty
from sfumato.local.spec import Spec


@dataclass(frozen=True)
class Folding:
    """The two functions that a distributed job needs; picklable, and the same in whatever order they are called.

    On Spark: ``State.from_bytes(fold(frame.select("report"), folding.absorb, folding.merge))`` with
    :func:`sfumato.engine.spark_fold.fold`.

    Attributes:
        text: the spec as JSON, as ``dumps`` writes it.

    Raises:
        InputError: no spec.
    """

    text: str

    def __post_init__(self) -> None:
        """Refuse here what every executor would trip over."""
        loads(self.text)

    @cached_property
    def _spec(self) -> Spec:
        return loads(self.text)

    def absorb(self, batches: Iterable[Any]) -> bytes:
        """The state of Arrow batches whose first column holds reports, integers or bytes, as files of reports have it.

        A batch that cannot have been made under the spec is refused as a whole, and counted as refused.
        """
        server = Server(self._spec)
        for batch in batches:
            found = self._reports(batch.column(0))
            if found is None:
                server.refuse()
                continue
            with suppress(ReportError):  # the server has counted the refusal
                server.update(Reports(fingerprint(self._spec), found))
        return server.state().to_bytes()

    def merge(self, states: Sequence[bytes]) -> bytes:
        """One state of several.

        Raises:
            ReportError: damaged bytes, or states of another spec.
        """
        return reduce(State.merge, map(State.from_bytes, states), empty(self._spec)).to_bytes()

    def _reports(self, column: Any) -> Data | None:  # noqa: ANN401 -- a pyarrow.Array, imported lazily
        """The reports in the spec's layout; None where they cannot be."""
        import pyarrow as pa
        import pyarrow.compute as pc

        layout = self._spec.randomizer.layout
        if column.null_count:
            return None
        # Spark has no unsigned integers and no bytes of a fixed size, so reports come back in wider types
        kind = pa.from_numpy_dtype(layout.dtype) if layout.width == 1 else pa.large_binary()
        try:
            packed = column.cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        if layout.width == 1:
            numbers: Data = packed.to_numpy(zero_copy_only=False)
            return numbers
        if not pc.all(pc.equal(pc.binary_length(packed), layout.width)).as_py():
            return None
        content = np.frombuffer(b"".join(packed.to_pylist()), dtype=np.uint8)
        return from_bytes(content.reshape(len(column), layout.width), layout)
