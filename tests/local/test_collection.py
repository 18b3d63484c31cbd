"""Specs travel as JSON, reports carry their hash, states merge in any order."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.errors import InputError, ReportError
from sfumato.local import Client, Distribution, Frequency, HeavyHitters, Hiera, KeyValue, Mean, Range, Server, Several
from sfumato.local.estimators import Post
from sfumato.local.protocol.device import FileMemo, Reports, simulate
from sfumato.local.protocol.reports import from_arrow, loads, read_column, read_reports, to_arrow, write_reports
from sfumato.local.protocol.server import ServerState, empty, summary
from sfumato.local.specs.frequency import Method
from sfumato.local.specs.graded import Block, GradedMean, PublicLevels
from sfumato.local.specs.hiera import DIVISIONS
from sfumato.local.specs.mean import MeanMethod
from sfumato.local.specs.multi_attribute import NumericBounds, Sharing
from sfumato.local.specs.spec import Spec, dumps, fingerprint

PEOPLE = 60
RANDOM = np.random.default_rng(0)
UNIT = RANDOM.uniform(-1, 1, PEOPLE)


def population(spec: Spec) -> object:
    match spec:
        case Frequency() | Range():
            return RANDOM.integers(0, 9, PEOPLE)
        case Several():
            return {
                "a": RANDOM.integers(0, 3, PEOPLE),
                "b": np.array(["x", "y"])[RANDOM.integers(0, 2, PEOPLE)],
                "c": UNIT,
            }
        case KeyValue():
            return np.array(["k", "l"] * PEOPLE), np.tile([0.1, 0.9], PEOPLE), np.full(PEOPLE, 2)
        case PublicLevels():
            return UNIT, RANDOM.integers(0, 2, PEOPLE)
        case HeavyHitters():
            return np.array(["one", "two"])[RANDOM.integers(0, 2, PEOPLE)].astype(object)
        case _:
            return UNIT


def every_spec() -> list[Spec]:
    both = {"a": 3, "b": ["x", "y"], "c": NumericBounds(-1, 1)}
    graded = (5, 4, 3, 2, 1)
    frequencies = [
        Frequency.design(
            9, epsilon=1, method=m, instantaneous_epsilon="0.4" if m in (Method.RAPPOR, Method.LOLOHA) else None
        )
        for m in Method
    ]
    return [
        *frequencies,
        *(Mean.design(-1, 1, epsilon=1, method=m) for m in (MeanMethod.DUCHI, MeanMethod.OPTIMAL)),
        Distribution.design(-1, 1, bins=8, epsilon=1),
        Range.design(9, epsilon=1, fanout=3),
        KeyValue.design(("k", "l", "m"), 0, 1, pairs=2, epsilon=1),
        *(Several.design(both, epsilon=1, sharing=sharing) for sharing in Sharing),  # type: ignore[arg-type]
        Hiera.design(-1, 1, divisions=DIVISIONS, budgets=graded),
        PublicLevels.design(-1, 1, budgets=(2, 1), independent=False),
        Block.design(DIVISIONS, budgets=graded),
        HeavyHitters.design(bits=24, text=True, epsilon=3),
    ]


SPECS = every_spec()
each_spec = pytest.mark.parametrize("spec", SPECS, ids=lambda s: f"{s.kind}-{getattr(s, 'method', '')}")


@each_spec
def test_specs_survive_json_with_their_hash(spec: Spec) -> None:
    text = dumps(spec)
    again = loads(text)
    assert again == spec
    assert fingerprint(again) == fingerprint(spec)
    assert json.loads(text)["neighbours"] == spec.neighbours
    assert loads(json.dumps(json.loads(text), indent=2)) == spec


def test_specs_have_different_hashes() -> None:
    assert len({fingerprint(spec) for spec in SPECS}) == len({dumps(spec) for spec in SPECS})


def test_graded_means_survive_json() -> None:
    spec = GradedMean.design(-1, 1, divisions=(-1, 0, 1), budgets=(2, 1))
    assert loads(dumps(spec)) == spec


@each_spec
def test_reports_survive_arrow(spec: Spec) -> None:
    reports = simulate(spec, population(spec), seed=1)
    again = from_arrow(to_arrow(reports), spec)
    assert again.spec == reports.spec
    assert np.array_equal(again.data, reports.data)


@each_spec
def test_states_merge_in_any_order_and_grouping(spec: Spec) -> None:
    batches = [summary(spec, simulate(spec, population(spec), seed=seed)) for seed in range(3)]
    one, two, three = batches
    left, right = one.merge(two).merge(three), one.merge(two.merge(three))
    swapped = three.merge(one).merge(two).merge(empty(spec))
    for other in (right, swapped, ServerState.from_bytes(left.to_bytes())):
        assert other.reports == left.reports == 3 * PEOPLE
        assert np.array_equal(other.tally, left.tally)
        assert np.array_equal(other.raw_reports, left.raw_reports)
        assert other.to_bytes() == left.to_bytes()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, PEOPLE), max_size=4), st.integers(0, 99))
def test_collectors_together_estimate_what_one_does(cuts: list[int], seed: int) -> None:
    spec = SPECS[0]
    reports = simulate(spec, population(spec), seed=seed)
    whole, parts = Server(spec), Server(spec)
    whole.update(reports)
    for first, last in zip([0, *sorted(cuts)], [*sorted(cuts), PEOPLE], strict=True):
        collector = Server(spec)
        collector.update(Reports(reports.spec, reports.data[first:last]))
        parts.merge(collector.state())
    assert np.array_equal(whole.estimate().values, parts.estimate().values)
    assert np.array_equal(whole.estimate().variance, parts.estimate().variance)


def test_reports_of_another_spec_or_form_are_refused_and_counted() -> None:
    spec, other = Frequency.design(9, epsilon=1, method=Method.PGR), Frequency.design(9, epsilon=2, method=Method.PGR)
    server = Server(spec)
    good = simulate(spec, population(spec), seed=1)
    outside = np.full(3, 255, dtype=good.data.dtype)
    for bad in (
        simulate(other, population(other), seed=1),
        Reports(good.spec, good.data.astype(np.uint32)),
        Reports(good.spec, good.data[:, None]),
        Reports(good.spec, outside),
    ):
        with pytest.raises(ReportError):
            server.update(bad)
    assert server.refused == 4
    assert server.state().reports == 0
    with pytest.raises(InputError, match="no reports"):
        server.estimate()
    with pytest.raises(ReportError):
        server.merge(summary(other, simulate(other, population(other), seed=1)))
    server.update(good)
    assert server.estimate(Post.SIMPLEX).values.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    "spec", [s for s in SPECS if s.randomizer.layout.width > 1], ids=lambda s: f"{s.kind}-{getattr(s, 'method', '')}"
)
def test_impossible_bytes_are_refused_or_possible_bytes(spec: Spec) -> None:
    reports = simulate(spec, population(spec), seed=1)
    damaged = reports.data.copy()
    damaged[:, -1] ^= 0x80
    server = Server(spec)
    if spec.randomizer.valid_reports(damaged):
        server.update(Reports(reports.spec, damaged))
    else:
        with pytest.raises(ReportError, match="corrupt"):
            server.update(Reports(reports.spec, damaged))
        assert server.refused == 1


def test_damaged_states_are_refused() -> None:
    packed = bytearray(summary(SPECS[0], simulate(SPECS[0], population(SPECS[0]), seed=1)).to_bytes())
    for place in (0, 40, len(packed) - 1):
        damaged = bytearray(packed)
        damaged[place] ^= 1
        with pytest.raises(ReportError):
            ServerState.from_bytes(bytes(damaged))
    with pytest.raises(ReportError):
        ServerState.from_bytes(bytes(packed[:50]))


def forged(state: ServerState, **changes: object) -> ServerState:
    return replace(state, **changes)  # type: ignore[arg-type]


@each_spec
def test_states_that_no_reports_can_have_made_are_refused(spec: Spec) -> None:
    state = summary(spec, simulate(spec, population(spec), seed=1))
    server = Server(spec)
    server.merge(state)
    heavy = spec.kind == "heavy_hitters"
    bad = [forged(state, reports=PEOPLE - 1), forged(state, reports=-PEOPLE), forged(state, refused=-1)]
    bad += [forged(state, reports=1 << 70), forged(state, reports=float(PEOPLE)), forged(state, refused=True)]
    if heavy:
        bad += [
            forged(state, raw_reports=state.raw_reports | np.uint8(0xFF)),
            forged(state, raw_reports=state.raw_reports.astype(np.int64)),
        ]
    else:
        for value in (-1, PEOPLE + 1):
            tally = state.tally.copy()
            tally[0] = value
            bad.append(forged(state, tally=tally))
        bad.append(forged(state, tally=state.tally.astype(np.float64)))
        bad.append(forged(state, raw_reports=np.zeros((PEOPLE, 1), dtype=np.uint8)))
    telling = heavy or state.tally.max() == PEOPLE or spec.kind in {"range", "several", "public_levels", "block"}
    for each in bad if telling else bad[1:]:  # fewer people, too, may have made a tally of single bits
        with pytest.raises(ReportError):
            server.merge(each)
    assert server.state().to_bytes() == state.to_bytes()


def test_more_reports_than_a_state_holds_are_refused() -> None:
    spec = SPECS[0]
    many = replace(empty(spec), reports=1 << 62)
    with pytest.raises(ReportError, match="more reports than"):
        many.merge(many)
    with pytest.raises(ReportError, match="sizes"):
        ServerState.from_bytes(replace(empty(spec), reports=1 << 63).to_bytes())


def test_states_whose_checksum_is_right_and_whose_sizes_are_not_are_refused() -> None:
    spec = SPECS[-1]
    packed = summary(spec, simulate(spec, population(spec), seed=1)).to_bytes()[:-32]
    for place, value in ((36, PEOPLE + 1), (36, 0), (52, 5), (52, 1 << 60), (60, 7), (60, 1 << 62)):
        body = packed[:place] + value.to_bytes(8, "little") + packed[place + 8 :]
        with pytest.raises(ReportError, match="sizes"):
            ServerState.from_bytes(body + hashlib.sha256(body).digest())
    for body in (packed + b"\0", packed[:-1]):
        with pytest.raises(ReportError, match="sizes"):
            ServerState.from_bytes(body + hashlib.sha256(body).digest())


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, float("nan"), 1 - 1e-15])
def test_a_confidence_that_no_interval_has_is_refused(confidence: float) -> None:
    server = Server(SPECS[0])
    server.update(simulate(SPECS[0], population(SPECS[0]), seed=1))
    with pytest.raises(InputError, match="between 0 and 1"):
        server.estimate().interval(confidence)
    assert np.all(np.isfinite(server.estimate().interval(1 - 1e-12)))


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
@pytest.mark.parametrize("spec", [SPECS[1], SPECS[6]], ids=["numbers", "bytes"])
def test_files_of_reports_are_whole_or_refused(tmp_path: Path, spec: Spec, ending: str) -> None:
    path = tmp_path / f"reports{ending}"
    reports = simulate(spec, population(spec), seed=1)
    other = tmp_path / f".{path.name}.new"  # what another process is writing
    other.write_text("half")
    write_reports(path, reports)
    assert other.read_text() == "half"
    other.unlink()
    assert np.array_equal(read_reports(path, spec).data, reports.data)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ReportError, match="damaged"):
        read_reports(path, spec)
    refused = 0
    for place in range(0, len(content), 7):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        try:
            unharmed = np.array_equal(read_reports(path, spec).data, reports.data)
        except ReportError:
            refused += 1
        else:
            assert unharmed  # a byte of padding or of metadata that nothing reads
    assert refused > 0
    path.write_bytes(content)
    with pytest.raises(ReportError, match="another spec"):
        read_reports(path, SPECS[2])
    with pytest.raises(InputError, match="no file"):
        read_reports(tmp_path / "none.parquet", spec)
    with pytest.raises(InputError, match="end in"):
        write_reports(tmp_path / "reports.csv", reports)


def test_a_table_that_is_not_of_reports_is_refused() -> None:
    with pytest.raises(ReportError, match="not one of local reports"):
        from_arrow(pa.table({"report": [1, 2]}), SPECS[0])


def test_columns_are_read_and_gaps_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,x\n,y\n")
    assert read_column(tmp_path / "t.csv", "b").tolist() == ["x", "y"]
    for name, column in (("t.csv", "a"), ("t.csv", "c"), ("u.csv", "a"), ("t.txt", "a")):
        with pytest.raises(InputError):
            read_column(tmp_path / name, column)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"sfumato_local": 2}',
        '{"sfumato_local": 1, "kind": "frequency"}',
        '{"sfumato_local": 1, "kind": "nothing"}',
        "{" * 10_000,
        '{"sfumato_local": 1, "sfumato_local": 1}',
        dumps(SPECS[0]).replace('"epsilon":"1"', '"epsilon":"1","epsilon":"1"'),
        dumps(SPECS[0]).replace('"epsilon":"1"', '"epsilon":"1e99999999"'),
        dumps(SPECS[0]).replace('"epsilon":"1"', '"epsilon":"1e-99999999"'),
        dumps(SPECS[0]).replace('"epsilon":"1"', '"epsilon":"1e400"'),
        dumps(SPECS[0]).replace('"epsilon":"1"', f'"epsilon":"1/{"9" * 900}"'),
    ],
)
def test_what_is_no_spec_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(InputError) as caught:
        loads(text)
    assert "\n" not in str(caught.value)


@each_spec
def test_tampered_specs_are_refused(spec: Spec) -> None:
    document = json.loads(dumps(spec))
    for change in ({"proven_epsilon": "0.001"}, {"epsilon": "0.001"}, {"neighbours": "nobody"}, {"extra": 1}):
        with pytest.raises(InputError):
            loads(json.dumps(document | change))
    for name in set(document) - {"sfumato_local"}:
        with pytest.raises(InputError):
            loads(json.dumps({key: value for key, value in document.items() if key != name}))


def test_a_client_remembers_its_permanent_answer(tmp_path: Path) -> None:
    spec = Frequency.design(9, epsilon=2, method=Method.RAPPOR, instantaneous_epsilon=1)
    memo = FileMemo(tmp_path / "memo.json")
    server = Server(spec)
    for _ in range(50):  # a new client each time, as after a restart
        server.update(Client(spec, memo=memo).randomize(4))
    kept = json.loads((tmp_path / "memo.json").read_text())
    assert list(kept) == [f"{fingerprint(spec)}/4"]
    assert (tmp_path / "memo.json").stat().st_mode & 0o077 == 0
    Client(spec, memo=memo).randomize(5)
    assert len(json.loads((tmp_path / "memo.json").read_text())) == 2
    for text in ("[" * 100_000, '{"a": "no hex"}', '{"a": 5}'):
        (tmp_path / "memo.json").write_text(text)
        with pytest.raises(InputError, match="damaged"):
            Client(spec, memo=memo).randomize(4)
    (tmp_path / "memo.json").write_text("{")
    with pytest.raises(InputError, match="damaged"):
        Client(spec, memo=memo).randomize(4)
    with pytest.raises(InputError, match="memoized"):
        Client(SPECS[0], memo=memo)


def test_one_value_at_a_time() -> None:
    spec = Several.design({"a": 3, "c": NumericBounds(0, 1)}, epsilon=1, sharing=Sharing.SAMPLE)
    assert len(Client(spec).randomize({"a": 2, "c": 0.5})) == 1
    assert len(Client(Mean.design(0, 1, epsilon=1)).randomize(0.25)) == 1
    pairs = (np.array(["k", "l"]), np.array([0.1, 0.9]), np.array([2]))
    assert len(Client(KeyValue.design(("k", "l"), 0, 1, pairs=2, epsilon=1)).randomize(pairs)) == 1
    assert len(Client(Frequency.design(["p", "q"], epsilon=1)).randomize("q")) == 1


def test_arrow_columns_are_taken_as_they_are() -> None:
    spec = Frequency.design(["p", "q"], epsilon=1)
    client = Client(spec)
    assert len(client.randomize_batch(pa.array(["p", "q", "q"]))) == 3
    with pytest.raises(InputError):
        client.randomize_batch(pa.array(["p", None]))


def test_the_client_loads_no_engine_and_no_data_frames() -> None:
    program = (
        "import sys, sfumato.local.protocol.device; from sfumato.local import Client, Frequency; "
        "Client(Frequency.design(4, epsilon=1)).randomize(1); "
        "print(sorted(m for m in sys.modules if m.split('.')[0] in "
        "{'pandas','scipy','pyarrow','duckdb','sqlalchemy','polars','sklearn','altair','typer','jsonschema','yaml'}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
