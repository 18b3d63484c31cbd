"""Reports whose noise follows from a seed say so, and so does everything that is made of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sfumato.app.cli.main import app
from sfumato.local import Client, Folding, Frequency, HeavyHitters, Server, ServerState, dumps, simulate, summary
from sfumato.local.protocol.reports import from_arrow, read_reports, to_arrow, write_reports
from sfumato.local.specs.spec import Spec
from sfumato.privacy.entropy import SIMULATED

VALUES = np.arange(400) % 4
SPECS = [Frequency.design(4, epsilon=1), HeavyHitters.design(bits=8, epsilon=8, text=False)]

each_spec = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)


def estimated(server: Server, spec: Spec):
    return server.find(most=1) if isinstance(spec, HeavyHitters) else server.estimate()


@each_spec
@pytest.mark.parametrize("seeded", [False, True], ids=["real", "simulated"])
def test_what_is_made_of_simulated_reports_is_simulated(tmp_path: Path, spec: Spec, *, seeded: bool) -> None:
    reports = simulate(spec, VALUES, seed=1) if seeded else Client(spec).randomize_batch(VALUES)
    real = summary(spec, Client(spec).randomize_batch(VALUES))
    write_reports(tmp_path / "reports.parquet", reports)
    state = summary(spec, reports)
    server = Server(spec)
    server.merge(real)
    server.merge(state)
    folded = ServerState.from_bytes(Folding(dumps(spec)).absorb(to_arrow(reports).to_batches()))
    for each in (
        reports,
        from_arrow(to_arrow(reports), spec),
        read_reports(tmp_path / "reports.parquet", spec),
        state,
        ServerState.from_bytes(state.to_bytes()),
        folded,
        real.merge(state),
        state.merge(real),
        estimated(server, spec),
    ):
        assert each.simulated is seeded


def test_a_job_that_reads_reports_finds_no_simulated_ones() -> None:
    assert to_arrow(simulate(SPECS[0], VALUES, seed=1)).column_names == ["simulated_report"]
    assert to_arrow(Client(SPECS[0]).randomize_batch(VALUES)).column_names == ["report"]


@pytest.mark.parametrize("seeded", [False, True], ids=["real", "simulated"])
def test_the_command_says_what_was_simulated(tmp_path: Path, *, seeded: bool) -> None:
    (tmp_path / "spec.json").write_text(dumps(SPECS[0]))
    reports = simulate(SPECS[0], VALUES, seed=1) if seeded else Client(SPECS[0]).randomize_batch(VALUES)
    write_reports(tmp_path / "reports.arrow", reports)
    asked = ["local", "estimate", str(tmp_path / "spec.json"), str(tmp_path / "reports.arrow")]
    assert (f"{SIMULATED}: 400 reports" in CliRunner().invoke(app, asked).output) is seeded
    assert json.loads(CliRunner().invoke(app, [*asked, "--json"]).output)["simulated"] is seeded
