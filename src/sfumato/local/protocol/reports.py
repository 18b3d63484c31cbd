"""The exchange between client and server: specs as JSON, and reports in files and in distributed batches.

Files are Arrow or Parquet, with the spec's hash and a checksum in the metadata of the schema.  In a distributed job,
each batch of rows becomes a state, and the states are merged into one.
"""

from __future__ import annotations

import hashlib
import inspect
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import InputError, LossError, ReportError
from sfumato.local.protocol.device import Reports
from sfumato.local.protocol.server import Server, ServerState, empty
from sfumato.local.randomizers.randomizer import ReportArray, from_bytes, to_bytes
from sfumato.local.specs.distribution import Distribution, Range
from sfumato.local.specs.frequency import Frequency
from sfumato.local.specs.graded import Block, GradedMean, PublicLevels
from sfumato.local.specs.heavy_hitters import HeavyHitters
from sfumato.local.specs.hiera import Hiera
from sfumato.local.specs.key_value import KeyValue
from sfumato.local.specs.mean import Mean
from sfumato.local.specs.multi_attribute import Several
from sfumato.local.specs.spec import VERSION, Spec, WrongFormError, canonical, dumps, fingerprint, from_json
from sfumato.strict_documents import read_json

_LISTED = 20  # columns listed in an error message
_KINDS: dict[str, type[Spec]] = {
    each.kind: each
    for each in (
        *(Frequency, Mean, Distribution, Range, KeyValue, HeavyHitters, Several),
        *(Hiera, GradedMean, PublicLevels, Block),
    )
}
_STATED = frozenset({"sfumato_local", "proven_epsilon", "neighbours"})
_LONGEST = 64 << 20


def loads(text: str) -> Spec:
    """Parse a spec, and prove its epsilon from its integers.

    Raises:
        InputError: the text is no spec, has another version, or its table exceeds its claim.
    """
    document = read_json(text, name="this is no local spec: it") if len(text) <= _LONGEST else None
    if not isinstance(document, dict) or document.get("sfumato_local") != VERSION:
        raise InputError(f"this is no local spec of version {VERSION}")
    spec = restore(document)
    if dumps(spec) != canonical(document):
        raise InputError("the local spec does not say what its table says: its fields contradict each other")
    return spec


def restore(document: dict[str, Any]) -> Spec:
    """Read the spec of a document; derived fields of the document are ignored.

    Raises:
        InputError: the document is no spec, or its table exceeds its claim.
    """
    kind = _KINDS.get(str(document.get("kind")))
    if kind is None:
        raise InputError("this is no local spec: there is no such kind")
    stated = _STATED if "epsilon" in inspect.signature(kind).parameters else _STATED | {"epsilon"}
    try:
        return from_json(kind, {key: part for key, part in document.items() if key not in stated})
    except LossError as error:
        raise InputError(f"the local spec is wrong: {error}") from None
    except (WrongFormError, RecursionError, OverflowError):
        raise InputError("this is no local spec: it lacks a field, or a field has the wrong form") from None


_COLUMN, _SIMULATED_COLUMN = "report", "simulated_report"  # a job never counts simulated reports as real
_SPEC = b"sfumato.local.spec"
_CHECK = b"sfumato.local.sha256"
_FORMATS = {".parquet", ".arrow"}


def digest(reports: Reports) -> str:
    """Return the hexadecimal SHA-256 of the reports, independent of the file."""
    return hashlib.sha256(to_bytes(reports.data).tobytes()).hexdigest()


def to_arrow(reports: Reports) -> Any:  # noqa: ANN401 -- a pyarrow.Table, imported lazily
    """Return reports as an Arrow table of one column, integers or fixed-size bytes, with the hash of the spec.

    The column is named ``report``, or ``simulated_report`` if a seed determined the noise of the reports.
    """
    import pyarrow as pa

    data = reports.data
    if data.ndim == 1:
        column = pa.array(data)
    else:
        packed = np.ascontiguousarray(data, dtype=np.uint8)
        column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(data.shape[1]), len(data), [None, pa.py_buffer(packed)])
    check = digest(reports).encode()
    name = _SIMULATED_COLUMN if reports.simulated else _COLUMN
    schema = pa.schema([pa.field(name, column.type, nullable=False)], {_SPEC: reports.spec.encode(), _CHECK: check})
    return pa.Table.from_arrays([column], schema=schema)


def from_arrow(table: Any, spec: Spec) -> Reports:  # noqa: ANN401 -- a pyarrow.Table, imported lazily
    """Read the reports of a table from :func:`to_arrow`.

    Raises:
        ReportError: the table has another form, belongs to another spec, or its content was changed.
    """
    import pyarrow as pa

    metadata = table.schema.metadata or {}
    if table.column_names not in ([_COLUMN], [_SIMULATED_COLUMN]) or _SPEC not in metadata or _CHECK not in metadata:
        raise ReportError("the table is not one of local reports")
    if metadata[_SPEC].decode(errors="replace") != fingerprint(spec):
        raise ReportError("these reports were made under another spec")
    layout = spec.randomizer.layout
    expected = pa.from_numpy_dtype(layout.dtype) if layout.width == 1 else pa.binary(layout.width)
    column = table.column(0).combine_chunks()
    if column.type != expected or column.null_count:
        raise ReportError("the reports do not have the form that their spec asks for")
    if layout.width == 1:
        data = column.to_numpy(zero_copy_only=False)
    else:
        packed = np.frombuffer(column.buffers()[1], dtype=np.uint8, count=(column.offset + len(column)) * layout.width)
        data = from_bytes(packed.reshape(-1, layout.width)[column.offset :], layout)
    if hashlib.sha256(to_bytes(data).tobytes()).hexdigest().encode() != metadata[_CHECK]:
        raise ReportError("the reports do not match their checksum: the table is damaged or incomplete")
    return Reports(fingerprint(spec), data, table.column_names == [_SIMULATED_COLUMN])


def write_reports(path: str | Path, reports: Reports) -> None:
    """Write a file of reports atomically.

    Raises:
        InputError: the name ends neither in .parquet nor in .arrow, or the file cannot be written.
    """
    from pyarrow import feather, parquet

    target = _named(path)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}.new")  # others may write there at the same time
    try:
        if target.suffix == ".parquet":
            parquet.write_table(to_arrow(reports), draft, compression="zstd")
        else:
            feather.write_feather(to_arrow(reports), draft, compression="uncompressed")
        draft.replace(target)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror}", culprit=target) from None
    finally:
        draft.unlink(missing_ok=True)


def read_reports(path: str | Path, spec: Spec) -> Reports:
    """Read a file of reports.

    Raises:
        InputError: the file does not exist, or has another ending.
        ReportError: the file is damaged, truncated, or made under another spec.
    """
    import pyarrow as pa
    from pyarrow import feather, parquet

    source = _named(path)
    if not source.is_file():
        raise InputError(f"there is no file {source}", culprit=source)
    try:
        table = parquet.read_table(source) if source.suffix == ".parquet" else feather.read_table(source)
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError):
        raise ReportError(f"{source} is damaged, truncated, or no file of reports", culprit=source) from None
    return from_arrow(table, spec)


def _named(path: str | Path) -> Path:
    target = Path(path)
    if target.suffix not in _FORMATS:
        raise InputError(f"files of reports end in .parquet or .arrow, not {target.suffix or 'nothing'}", culprit=path)
    return target


def read_column(path: str | Path, column: str) -> NDArray[Any]:
    """Read a column of a CSV, Parquet or Arrow file, for a client to randomize.

    Raises:
        InputError: the file or column does not exist, or values are missing: replace or drop them first.
    """
    import pyarrow as pa
    from pyarrow import csv, feather, parquet

    source = Path(path)
    readers = {".csv": csv.read_csv, ".parquet": parquet.read_table, ".arrow": feather.read_table}
    if source.suffix not in readers:
        raise InputError(f"cannot read {source}: name a .csv, .parquet or .arrow file", culprit=path)
    try:
        table = readers[source.suffix](str(source))
    except (pa.ArrowException, OSError):
        raise InputError(f"cannot read {source}: missing, damaged, or not of the format of its ending") from None
    if column not in table.column_names:
        names = ", ".join(table.column_names[:_LISTED])
        raise InputError(f"{source} has no column {column!r}; it has {names}", culprit=column)
    return complete_column(table.column(column), column)


def complete_column(values: Any, name: str) -> NDArray[Any]:  # noqa: ANN401 -- a pyarrow.ChunkedArray, imported lazily
    """Return an Arrow column as an array, for a client to randomize.

    Raises:
        InputError: values are missing: replace or drop them first.
    """
    if values.null_count:
        raise InputError(f"{values.null_count} values of {name!r} are missing; replace or drop them first")
    read: NDArray[Any] = values.to_numpy()
    return read


@dataclass(frozen=True)
class Folding:
    """The two functions of a distributed job.  They can be pickled, and the order of their calls does not matter.

    On a cluster, pass them to the ``fold`` of the engine: ``State.from_bytes(fold(frame.select("report"),
    folding.absorb, folding.merge))``.

    Attributes:
        text: the spec as JSON from ``dumps``.

    Raises:
        InputError: the text is no spec.
    """

    text: str

    def __post_init__(self) -> None:
        """Refuse an invalid spec before every executor fails on it."""
        loads(self.text)

    def absorb(self, batches: Iterable[Any]) -> bytes:
        """Count Arrow batches into a state.  Their first column has reports in the format of report files.

        A batch that is impossible under the spec is refused as a whole, and counted as refused.
        """
        spec = loads(self.text)
        server = Server(spec)
        for batch in batches:
            data, simulated = _reports_of(batch.column(0), spec), batch.schema.names[0] == _SIMULATED_COLUMN
            if data is None:
                server.refuse()
                continue
            with suppress(ReportError):  # the server counts the refusal
                server.update(Reports(fingerprint(spec), data, simulated))
        return server.state().to_bytes()

    def merge(self, states: Sequence[bytes]) -> bytes:
        """Merge several states into one.

        Raises:
            ReportError: bytes are damaged, or states belong to different specs.
        """
        return reduce(ServerState.merge, map(ServerState.from_bytes, states), empty(loads(self.text))).to_bytes()


def _reports_of(column: Any, spec: Spec) -> ReportArray | None:  # noqa: ANN401 -- a pyarrow.Array, imported lazily
    """Return the reports in the spec's layout; None if they do not fit it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    layout = spec.randomizer.layout
    if column.null_count:
        return None
    # clusters may lack unsigned integers and fixed-size bytes, so reports come back in wider types
    kind = pa.from_numpy_dtype(layout.dtype) if layout.width == 1 else pa.large_binary()
    try:
        packed = column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    if layout.width == 1:
        numbers: ReportArray = packed.to_numpy(zero_copy_only=False)
        return numbers
    if not pc.all(pc.equal(pc.binary_length(packed), layout.width)).as_py():
        return None
    content = np.frombuffer(b"".join(packed.to_pylist()), dtype=np.uint8)
    return from_bytes(content.reshape(len(column), layout.width), layout)
