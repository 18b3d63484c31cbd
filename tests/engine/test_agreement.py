"""Every way into one engine gives the same codes; random tables agree with the oracle."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.conftest import ADAPTERS, Oracle, arrow, odd_rows

from sfumato.domain import Categorical, Domain, Integer, Real, Unit, Unknown
from sfumato.domain.predicate import All, Among, Any, Not
from sfumato.engine.duckdb.duck_adapter import Frame
from sfumato.engine.duckdb.duck_table import DuckTable
from sfumato.engine.exact import reveal
from sfumato.engine.open import open_table
from sfumato.engine.port import Recode

DOMAIN = Domain(
    (
        Categorical(name="word", values=("a", "\u00e9", "01", ""), unknown=Unknown.CATEGORY, nullable=True),
        Integer(name="whole", minimum=0, maximum=99, edges=(0, 5, 50), unknown=Unknown.CLAMP, nullable=True),
        Real(name="real", edges=(-2.5, 0.0, 0.3, 100.0), unknown=Unknown.CATEGORY, nullable=True),
        Real(name="amount", edges=(0.0, 0.1, 2.5), unknown=Unknown.CLAMP, nullable=True),
    ),
    unit=Unit("person", rows=4),
)


def test_every_source_gives_the_same_version(tmp_path):
    versions = set()
    for adapter in ADAPTERS:
        if adapter.name.startswith("duckdb"):
            (tmp_path / adapter.name).mkdir()
            versions.add(adapter.open(odd_rows(), tmp_path / adapter.name).encode(DOMAIN).version)
    assert len(versions) == 1


def test_bounding_in_many_buckets_keeps_the_same_rows(monkeypatch):
    table = open_table(arrow(odd_rows()))
    whole = table.encode(DOMAIN).version
    monkeypatch.setattr("sfumato.engine.duckdb.duck_bounding.BUCKET_ROWS", 7)
    assert table.encode(DOMAIN).version == whole


def test_what_does_not_fit_in_memory_is_spilled(tmp_path):
    size = 1_500_000
    raw = pa.table({"word": ["a"] * size, "raw": np.random.default_rng(1).random(size)})
    table = DuckTable.open(Frame(raw, "the frame"), threads=1, memory="40MB")
    encoded = table.encode(Domain(DOMAIN.attributes[:1]))
    levels = (np.zeros(DOMAIN["word"].size, np.uint8),)
    recode = Recode(("word",), levels, np.zeros((1, 1), np.uint8), pa.table({"word": ["any"]}))
    encoded.write_recoded(recode, ("raw",), tmp_path / "out.parquet")
    assert pq.read_metadata(tmp_path / "out.parquet").num_rows == size


def test_gzip_and_tabs_and_several_files(tmp_path):
    import gzip

    table = pa.table({"word": ["a", "01", "x"], "whole": [1, 2, 3]})
    domain = DOMAIN.project(("word", "whole"))
    domain = Domain(domain.attributes)
    versions = {open_table(table).encode(domain).version}
    (tmp_path / "t.tsv").write_text("word\twhole\na\t1\n01\t2\nx\t3\n")
    with gzip.open(tmp_path / "t.csv.gz", "wt") as stream:
        stream.write("\ufeffword,whole\r\na,1\r\n01,2\r\nx,3\r\n")
    (tmp_path / "parts").mkdir()
    for index in range(3):
        pq.write_table(table.slice(index, 1), tmp_path / "parts" / f"part[{index}].parquet")
    for source in ("t.tsv", "t.csv.gz", "parts", "parts/*.parquet"):
        versions.add(open_table(tmp_path / source).encode(domain).version)
    assert len(versions) == 1
    single = open_table(tmp_path / "parts" / "part[1].parquet").encode(domain)
    assert reveal(single.marginals([()])[0]).tolist() == [1]


ROW = st.fixed_dictionaries(
    {
        "word": st.sampled_from([None, "a", "b", "c", "A"]),
        "whole": st.one_of(st.none(), st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-3, 12)),
        "real": st.one_of(st.none(), st.floats(width=64), st.floats(-1, 2)),
    }
)
SHAPES = pa.schema([("word", pa.string()), ("whole", pa.int64()), ("real", pa.float64())])


@st.composite
def domains(draw):
    numeric, every = st.sampled_from(list(Unknown)), st.sampled_from([Unknown.CATEGORY, Unknown.DROP])
    edges = draw(st.lists(st.floats(-1, 2), min_size=2, max_size=6, unique=True).map(sorted))
    inner = draw(st.sets(st.integers(-1, 8), max_size=4).map(sorted))
    return Domain(
        (
            Categorical(name="word", values=("a", "b"), unknown=draw(every), nullable=draw(st.booleans())),
            Integer(
                name="whole", minimum=-2, maximum=9, edges=draw(st.sampled_from([None, (-2, *inner)])),
                unknown=draw(numeric), nullable=draw(st.booleans()),
            ),
            Real(name="real", edges=tuple(edges), unknown=draw(numeric), nullable=draw(st.booleans())),
        )
    )  # fmt: skip


def predicates(domain):
    leaves = st.one_of(
        *(st.frozensets(st.integers(0, a.size - 1)).map(lambda codes, name=a.name: Among(name, codes)) for a in domain)
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3).map(tuple).map(All),
            st.lists(inner, max_size=3).map(tuple).map(Any),
            inner.map(Not),
        ),
        max_leaves=5,
    )


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_random_tables_agree_with_the_oracle(data):
    domain = data.draw(domains())
    rows = data.draw(st.lists(ROW, min_size=1, max_size=12))
    where = data.draw(st.none() | predicates(domain))
    table = pa.table({field.name: pa.array([row[field.name] for row in rows], field.type) for field in SHAPES})
    encoded, expected = open_table(table).encode(domain), Oracle(domain, rows)
    cliques = [clique for size in range(4) for clique in itertools.combinations(domain.names, size)]
    found = dict(zip(cliques, (reveal(exact) for exact in encoded.marginals(cliques, where)), strict=True))
    for clique in cliques:
        np.testing.assert_array_equal(found[clique], expected.marginal(clique, where))
    cube = found[domain.names].reshape(domain.shape)
    for axis, name in enumerate(domain.names):
        others = tuple(other for other in range(3) if other != axis)
        np.testing.assert_array_equal(cube.sum(axis=others), found[name,])
    edges = [-1.0, 0.0, 0.5, 2.0]
    for value in ("whole", "real"):
        np.testing.assert_array_equal(
            reveal(encoded.bins(value, edges, ("word",))), expected.bins(value, edges, ("word",))
        )


@pytest.mark.parametrize("kind", ["pandas", "polars", "lazy"])
def test_a_frame_is_never_changed(kind):
    import pandas as pd
    import polars as pl

    data = {"word": ["a", None, "b"], "whole": [1.0, None, 3.0], "when": [1, 2, 3]}
    frame = pd.DataFrame(data, index=[7, 8, 9]) if kind == "pandas" else pl.DataFrame(data)
    before = frame.copy() if kind == "pandas" else frame.clone()
    table = open_table(frame.lazy() if kind == "lazy" else frame)
    domain = Domain((Categorical(name="whole", values=(1, 2, 3), unknown=Unknown.DROP, nullable=True),))
    assert reveal(table.encode(domain).marginals([("whole",)])[0]).tolist() == [1, 0, 1, 1]
    assert frame.equals(before)
    assert [column.name for column in table.schema()] == ["word", "whole", "when"]


def test_a_lazy_frame_is_not_asked_for_its_schema(monkeypatch):
    """Reading the schema of a lazy frame takes long, and whether it was read depended on the order of hashes."""
    import polars as pl

    for part in ("encode", "profile", "values"):
        monkeypatch.setattr(pl.LazyFrame, part, lambda _: None, raising=False)
    monkeypatch.setattr(pl.LazyFrame, "schema", property(lambda _: pytest.fail("its schema was asked for")))
    assert open_table(pl.DataFrame({"word": ["a"]}).lazy()).schema()[0].name == "word"
