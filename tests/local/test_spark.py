"""A real Spark job reduces states to what one server counts."""

from __future__ import annotations

import numpy as np
import pytest
from tests.engine import cluster

from sfumato.local import Frequency, Server
from sfumato.local.client import Reports
from sfumato.local.document import dumps, loads
from sfumato.local.server import State, summary
from sfumato.local.simulation import simulate


@pytest.mark.slow
def test_a_spark_job_estimates_what_one_server_does() -> None:
    spark = cluster.session()
    spec = Frequency.design(100, epsilon=1)
    reports = simulate(spec, np.random.default_rng(0).integers(0, 100, 50_000), seed=1)
    parts = [Reports(reports.spec, piece) for piece in np.array_split(reports.data, 7)]
    text = dumps(spec)
    states = spark.sparkContext.parallelize(parts, 4).map(lambda part: summary(loads(text), part).to_bytes())
    reduced = states.reduce(lambda one, two: State.from_bytes(one).merge(State.from_bytes(two)).to_bytes())
    server, together = Server(spec), Server(spec)
    server.update(reports)
    together.merge(State.from_bytes(reduced))
    assert together.state().to_bytes() == server.state().to_bytes()
    assert np.array_equal(together.estimate().values, server.estimate().values)
