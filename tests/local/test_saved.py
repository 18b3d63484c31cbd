"""Specs, reports and states that an earlier version wrote are read, and say what they said."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sfumato.local import Post, Reports, Server, dumps, loads
from sfumato.local.protocol.device import simulate
from sfumato.local.protocol.server import ServerState
from sfumato.local.specs.spec import fingerprint

SAVED = sorted((Path(__file__).parent / "saved").glob("*.json"))
SAMPLED = {"range", "several", "heavy_hitters"}  # whose stated variance once left out who answered

each_saved = pytest.mark.parametrize("path", SAVED, ids=lambda path: path.stem)


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def reports_of(document: dict[str, Any]) -> Reports:
    saved = document["reports"]
    data = np.frombuffer(base64.b64decode(saved["bytes"]), dtype=saved["type"]).reshape(saved["shape"])
    return Reports(document["hash"], data)


def people(values: Any) -> Any:
    if isinstance(values, dict):
        return {name: np.array(column) for name, column in values.items()}
    if isinstance(values[0], list):
        return tuple(map(np.array, values))
    return np.array(values)


def test_every_kind_of_spec_is_among_the_saved_ones() -> None:
    kinds = {json.loads(read(path)["spec"])["kind"] for path in SAVED}
    assert kinds == {
        *("frequency", "mean", "distribution", "range", "key_value", "heavy_hitters", "several"),
        *("hiera", "graded_mean", "public_levels", "block"),
    }
    assert len(SAVED) == 28


@each_saved
def test_saved_specs_open_with_the_same_text_and_hash(path: Path) -> None:
    document = read(path)
    spec = loads(document["spec"])
    assert dumps(spec) == document["spec"]
    assert fingerprint(spec) == document["hash"]


@each_saved
def test_the_same_people_make_the_same_reports(path: Path) -> None:
    """Subsets and points of geometries are drawn otherwise since: ``simulated`` holds what the seed makes now."""
    document = read(path)
    made = simulate(loads(document["spec"]), people(document["values"]), seed=document["seed"])
    saved = reports_of(document)
    assert made.data.dtype == saved.data.dtype
    assert made.data.shape == saved.data.shape
    assert made.data.tobytes() == base64.b64decode(document.get("simulated", document["reports"]["bytes"]))


@each_saved
def test_reports_that_come_one_by_one_are_counted_as_those_that_come_together(path: Path) -> None:
    """A single report leaves most parts of a spec of several attributes empty."""
    document = read(path)
    spec, saved = loads(document["spec"]), reports_of(document)
    together, apart = Server(spec), Server(spec)
    together.update(Reports(document["hash"], saved.data[:5]))
    for place in range(5):
        apart.update(Reports(document["hash"], saved.data[place : place + 1]))
    apart.update(Reports(document["hash"], saved.data[:0]))
    assert apart.state().to_bytes() == together.state().to_bytes()


@each_saved
def test_saved_reports_and_states_give_the_same_estimates(path: Path) -> None:
    document = read(path)
    spec = loads(document["spec"])
    from_reports, from_state = Server(spec), Server(spec)
    from_reports.update(reports_of(document))
    packed = base64.b64decode(document["state"])
    from_state.merge(ServerState.from_bytes(packed))
    assert from_reports.state().to_bytes() == from_state.state().to_bytes() == packed
    for server in (from_reports, from_state):
        for post, said in document["estimates"].items():
            found = server.find(most=4) if post == "find" else server.estimate(Post(post))
            assert list(found.labels) == said["labels"]
            assert found.values == pytest.approx(np.array(said["values"]), rel=1e-9, abs=1e-12)
            if spec.kind not in SAMPLED:
                assert found.variance == pytest.approx(np.array(said["variance"]), rel=1e-9)
