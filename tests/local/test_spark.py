"""A real Spark job reduces reports to what one server counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engine import cluster

from sfumato.engine.spark import fold
from sfumato.errors import InputError
from sfumato.local import Frequency, HeavyHitters, Server
from sfumato.local.protocol.device import simulate
from sfumato.local.protocol.reports import Folding, to_arrow
from sfumato.local.protocol.server import ServerState
from sfumato.local.specs.frequency import Method
from sfumato.local.specs.spec import Spec, dumps

SPECS = {
    "one byte": (Frequency.design(16, epsilon=1, method=Method.GRR), 16),
    "eight bytes": (Frequency.design(5000, epsilon=3, method=Method.OLH), 5000),
    "bytes": (Frequency.design(100, epsilon=1, method=Method.OUE), 100),
    "heavy hitters": (HeavyHitters.design(bits=16, epsilon=4, text=False), 1 << 16),
}


@pytest.mark.parametrize("name", SPECS)
def test_batches_and_states_add_up_to_what_one_server_counts(name: str) -> None:
    spec, size = SPECS[name]
    reports = simulate(spec, np.random.default_rng(0).integers(0, size, 3000), seed=1)
    folding, server = Folding(dumps(spec)), Server(spec)
    server.update(reports)
    batches = widened(to_arrow(reports)).to_batches(max_chunksize=700)
    states = [folding.absorb([batch]) for batch in batches] + [folding.absorb([])]
    assert folding.merge(states) == folding.merge([folding.merge(states[2:]), folding.merge(states[:2])])
    assert folding.merge(states) == server.state().to_bytes()


def widened(table: pa.Table) -> pa.Table:
    """Reports as Spark hands them over: it has no unsigned integers and no bytes of a fixed size."""
    column = table.column(0)
    wide = pa.binary() if pa.types.is_fixed_size_binary(column.type) else pa.decimal128(20)
    return pa.table({table.column_names[0]: column.cast(wide)})


@pytest.mark.parametrize(
    "column",
    [pa.array([1, None]), pa.array([300]), pa.array([-1]), pa.array(["a"]), pa.array([17]), pa.array([[1]])],
    ids=["missing", "too large", "negative", "text", "impossible", "nested"],
)
def test_batches_that_are_no_reports_are_refused_and_counted(column: pa.Array) -> None:
    spec, _ = SPECS["one byte"]
    good = pa.record_batch({"report": pa.array([1, 2, 3])})
    state = ServerState.from_bytes(Folding(dumps(spec)).absorb([good, pa.record_batch({"report": column}), good]))
    assert (state.reports, state.refused) == (6, 1)


@pytest.mark.parametrize("column", [[b"ab"], ["a" * 12], [1], [[1]], [1.5], [True], [None]], ids=repr)
def test_what_is_no_bytes_of_the_length_of_a_report_is_refused(column: list[object]) -> None:
    spec, _ = SPECS["bytes"]
    state = ServerState.from_bytes(Folding(dumps(spec)).absorb([pa.record_batch({"report": pa.array(column)})]))
    assert (state.reports, state.refused) == (0, 1)


def test_a_folding_of_no_spec_is_refused_before_executors_trip_over_it() -> None:
    with pytest.raises(InputError, match="no local spec"):
        Folding("nonsense")


def spread(spec: Spec, size: int, folder: Path) -> tuple[Server, Server]:
    """The server that counted all reports, and one that merged what Spark made of seven files of them."""
    reports = simulate(spec, np.random.default_rng(0).integers(0, size, 50_000), seed=1)
    table = to_arrow(reports)
    for part in range(7):
        pq.write_table(table.slice(part * len(table) // 7, len(table) // 7 + 1), folder / f"{part}.parquet")
    kept = [table.slice(part * len(table) // 7, len(table) // 7 + 1) for part in range(7)]
    frame = cluster.session().read.parquet(str(folder))
    assert frame.count() == sum(map(len, kept))
    folding = Folding(dumps(spec))
    together, alone = Server(spec), Server(spec)
    together.merge(ServerState.from_bytes(fold(frame.select("simulated_report"), folding.absorb, folding.merge)))
    alone.merge(ServerState.from_bytes(folding.absorb(batch for part in kept for batch in part.to_batches())))
    return alone, together


@pytest.mark.slow
@pytest.mark.parametrize("name", ["eight bytes", "bytes"])
def test_a_spark_job_estimates_what_one_server_does(name: str, tmp_path) -> None:
    alone, together = spread(*SPECS[name], tmp_path)
    assert together.state().to_bytes() == alone.state().to_bytes()
    assert np.array_equal(together.estimate().values, alone.estimate().values)
