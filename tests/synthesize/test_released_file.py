"""A released file alone: its tables give the intervals that the release gives, and what does not fit is refused.

Only noise is random here, and only equal copies are compared.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.synthesize.conftest import table_of

from sfumato.domain import Categorical, Domain, Integer, Real, Unknown
from sfumato.engine.arrays import ArrayTable, middle_values
from sfumato.errors import InputError, LedgerError
from sfumato.privacy.loss import Rho
from sfumato.query import Share, count, interval, mean
from sfumato.synthesize import (
    NoisyTotal,
    PublicTotal,
    SizeLimits,
    Synthetic,
    all_marginals,
    batched,
    load,
    mwem,
    read_release,
    save,
    synthetic,
)
from sfumato.synthesize.codebook.codebook import KEY
from sfumato.synthesize.methods.mwem import Schedule
from sfumato.synthesize.product import codes_of, to_arrow
from sfumato.synthesize.synthetic import TABLES_KEY
from sfumato.vault.interface import decode, encode
from sfumato.vault.simulated import SimulatedVault

DOMAIN = Domain(
    (
        Integer(name="age", minimum=-2, maximum=9, unknown=Unknown.CLAMP, nullable=True),
        Integer(name="kids", minimum=0, maximum=5, unknown=Unknown.CLAMP),
        Categorical(name="town", values=("a", "b|c", "d"), unknown=Unknown.CATEGORY, nullable=True),
        Categorical(name="member", values=(False, True), unknown=Unknown.DROP),
    )
)
OTHERS = Domain(
    (
        Integer(name="rooms", minimum=0, maximum=30, edges=(0, 1, 4, 10), typical=12, unknown=Unknown.CLAMP),
        Real(name="wage", edges=(0.0, 0.5, 10.0), typical=9.0, unknown=Unknown.CATEGORY),
        Real(name="debt", edges=(-1.0, 0.0, 1.0), unknown=Unknown.CLAMP, nullable=True),
        Categorical(name="floor", values=(3, 1, 2), unknown=Unknown.CATEGORY),
    )
)
NARROW = Domain(
    (
        Real(name="far", edges=(1e9, 1e9 + 2**-22, 1e9 + 2**-21, 1e9 + 1), unknown=Unknown.CLAMP),
        Integer(name="kids", minimum=0, maximum=3, unknown=Unknown.CATEGORY, nullable=True),
        Categorical(name="member", values=(False, True), unknown=Unknown.CATEGORY, nullable=True),
    )
)
"""Cells of two floats, which drawn numbers are rounded to the end of; missing and unknown values that are one null."""
QUESTIONS = [count("town = 'd' AND member = TRUE"), mean("age"), Share("age > 3", among="town = 'a'"), count()]


@pytest.fixture(scope="module")
def release() -> Synthetic:
    counts = np.random.default_rng(1).integers(0, 40, DOMAIN.shape)
    vault = SimulatedVault(table_of(DOMAIN, counts), seed=1)
    return batched(vault, loss=Rho("0.5"), total=NoisyTotal(), workload=all_marginals(2))


@pytest.fixture(params=["synthetic.parquet", "synthetic.arrow"])
def written(request, release, tmp_path) -> Path:
    path = tmp_path / request.param
    release.rows.write(path)
    return path


@pytest.mark.parametrize("domain", [DOMAIN, OTHERS], ids=["whole numbers", "bins"])
def test_the_cells_of_rows_are_those_that_they_were_drawn_in(domain) -> None:
    codes = np.stack([np.random.default_rng(2).integers(0, each.size, 500) for each in domain], axis=1)
    table = to_arrow(domain, codes, np.random.default_rng(3))
    for index, attribute in enumerate(domain):
        assert np.array_equal(codes_of(attribute, table[attribute.name]), codes[:, index]), attribute.name


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("age", pa.array([1, 10])),
        ("age", pa.array(["1"])),
        ("kids", pa.array([None], pa.int64())),
        ("kids", pa.array([31])),
        ("town", pa.array(["b"])),
        ("town", pa.array([1])),
        ("member", pa.array([None], pa.bool_())),
    ],
    ids=str,
)
def test_rows_that_the_domain_does_not_declare_are_refused(name, values) -> None:
    with pytest.raises(InputError, match=f"the column {name} holds what its domain does not declare"):
        codes_of(DOMAIN[name], pa.chunked_array([values]))


@pytest.mark.parametrize("asked", QUESTIONS, ids=str)
def test_the_file_alone_gives_the_intervals_of_the_release_and_of_its_saved_model(asked, release, written) -> None:
    save(release, written.with_name("a.model"))
    alone, kept = read_release(written), load(written.with_name("a.model"))
    found, of_model, of_release = (interval(each, asked) for each in (alone, kept, release))
    assert found.table is not None
    assert (found.table, found.population, found.tables) == (of_release.table, of_release.population, of_release.tables)
    assert of_model == of_release
    assert alone.guarantee == release.guarantee
    assert alone.model.domain == release.model.domain


def test_in_place_of_the_model_it_asks_the_rows(release, tmp_path) -> None:
    rows, book = release.sample_with_codebook(700)
    rows.write(tmp_path / "some.parquet")
    found = interval(read_release(tmp_path / "some.parquet"), count("town = 'a'"))
    of_rows = sum(value == "a" for value in rows["town"].to_pylist())
    assert found.model == pytest.approx(of_rows * book.table_rows / 700)


def test_other_programs_read_the_metadata_as_text(release, tmp_path) -> None:
    release.rows.write(tmp_path / "a.parquet")
    assert all(value.decode("utf-8").isascii() for value in (pq.read_schema(tmp_path / "a.parquet").metadata.values()))
    assert pq.read_table(tmp_path / "a.parquet").equals(release.rows.to_arrow())


def rewritten(path: Path, change: Callable[[dict[bytes, bytes], pa.Table], pa.Table]) -> Path:
    table = pq.read_table(path)
    metadata = dict(table.schema.metadata)
    table = change(metadata, table) or table
    pq.write_table(table.replace_schema_metadata(metadata), path)
    return path


def _book(metadata: dict[bytes, bytes], find: bytes, replace: bytes) -> None:
    assert find in metadata[KEY]
    metadata[KEY] = metadata[KEY].replace(find, replace)


def _anew(metadata: dict[bytes, bytes], table: pa.Table, *, sigma: str | None = None, **changed: object) -> None:
    """Change the payload and recompute its digest, as a forger would."""
    payload = decode(base64.b64decode(metadata[TABLES_KEY][64:])) | changed
    if sigma is not None:
        for each in payload["noisy tables"]["tables"]:
            each["noise"][1] = sigma
    content = base64.b64encode(encode(payload))
    both = hashlib.sha256(metadata[KEY]).digest() + content
    metadata[TABLES_KEY] = hashlib.sha256(both).hexdigest().encode() + content


NOT_TOGETHER = "not those that were written together"
CHANGES = {
    "the guarantee says less": (lambda m, _: _book(m, b"one row", b"two rows"), NOT_TOGETHER),
    "less noise in the codebook": (lambda m, _: _book(m, b'"deviation":', b'"deviation":0.'), "damaged|together"),
    "a byte of the tables": (
        lambda m, _: m.update({TABLES_KEY: m[TABLES_KEY][:90] + b"#" + m[TABLES_KEY][91:]}),
        NOT_TOGETHER,
    ),
    "the tables cut off": (lambda m, _: m.update({TABLES_KEY: m[TABLES_KEY][:200]}), NOT_TOGETHER),
    "no tables": (lambda m, _: m.pop(TABLES_KEY) and None, "has no noisy tables: they were too large"),
    "rows taken out": (lambda _, t: t.slice(0, len(t) - 1), "it was changed since"),
    "rows put in": (lambda _, t: pa.concat_tables([t, t.slice(0, 1)]), "it was changed since"),
    "a column taken out": (lambda _, t: t.drop_columns(["kids"]), "columns are not those"),
    "a column renamed": (lambda _, t: t.rename_columns(["age", "kids", "city", "member"]), "columns are not those"),
    "less noise, digest anew": (lambda m, t: _anew(m, t, sigma="1/100"), "or other noise, than it carries"),
    "no noise, digest anew": (lambda m, t: _anew(m, t, sigma="0"), "damaged"),
    "another domain, digest anew": (lambda m, t: _anew(m, t, domain="a: 1"), "damaged"),
    "fewer rows than none": (lambda m, _: _book(m, b'"table_rows":', b'"table_rows":-'), "codebook is damaged"),
    "no domain, digest anew": (lambda m, t: _anew(m, t, domain=None), "damaged"),
}


@pytest.mark.parametrize(("change", "why"), CHANGES.values(), ids=CHANGES)
def test_a_file_whose_parts_do_not_belong_together_is_refused_in_a_sentence(change, why, release, tmp_path) -> None:
    path = tmp_path / "synthetic.parquet"
    release.rows.write(path)
    with pytest.raises(InputError, match=why) as refused:
        read_release(rewritten(path, change))
    assert "\n" not in str(refused.value)


def test_tables_of_another_release_are_refused(release, tmp_path) -> None:
    other = batched(
        SimulatedVault(table_of(DOMAIN, np.ones(DOMAIN.shape)), seed=2),
        loss=Rho("0.5"),
        total=NoisyTotal(),
        workload=all_marginals(2),
    )
    for name, each in (("one.parquet", release), ("other.parquet", other)):
        each.rows.write(tmp_path / name)
    theirs = pq.read_schema(tmp_path / "other.parquet").metadata[TABLES_KEY]
    with pytest.raises(InputError, match=NOT_TOGETHER):
        read_release(rewritten(tmp_path / "one.parquet", lambda m, _: m.update({TABLES_KEY: theirs})))


def test_tables_too_large_for_the_file_are_left_out_with_a_note_on_where_to_ask(release, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(synthetic, "_MOST_BYTES", 1000)
    rows, _ = release.sample_with_codebook()
    rows.write(tmp_path / "a.parquet")
    assert TABLES_KEY not in pq.read_schema(tmp_path / "a.parquet").metadata
    with pytest.raises(InputError, match="use the saved model"):
        read_release(tmp_path / "a.parquet")


def test_a_method_that_measures_queries_has_no_tables(tmp_path) -> None:
    domain = DOMAIN.project(["age"])
    made = mwem(
        SimulatedVault(table_of(domain, np.full(domain.shape, 9)), seed=1),
        loss=Rho("0.5"),
        total=PublicTotal(9 * domain.size),
        workload=all_marginals(1),
        schedule=Schedule(rounds=2, repetitions=2),
    )
    made.rows.write(tmp_path / "a.parquet")
    with pytest.raises(InputError, match="its method measures other queries"):
        read_release(tmp_path / "a.parquet")


def test_a_small_text_that_unpacks_to_much_is_not_unpacked() -> None:
    packed = encode({"zeros": np.zeros(1 << 20, dtype=np.int64)})
    assert len(packed) < 1 << 16
    assert len(decode(packed)["zeros"]) == 1 << 20
    with pytest.raises(LedgerError):
        decode(packed, most=1 << 20)
    with pytest.raises(LedgerError):
        decode(packed[:-4])


@pytest.mark.parametrize("content", [b"", b"x", b"PAR1"])
def test_what_is_no_file_is_refused(content, tmp_path) -> None:
    (tmp_path / "a.parquet").write_bytes(content)
    with pytest.raises(InputError, match="no such file, or no Parquet file"):
        read_release(tmp_path / "a.parquet")


def test_the_metadata_holds_nothing_but_what_the_release_holds(release, tmp_path) -> None:
    """The file contains the release's own tables and domain: no exact count, no path, no further column."""
    release.rows.write(tmp_path / "a.parquet")
    content = pq.read_schema(tmp_path / "a.parquet").metadata[TABLES_KEY][64:]
    payload = decode(base64.b64decode(content))
    arrays = {name: value for name, value in payload.items() if isinstance(value, np.ndarray)}
    kept = [table.values for table in release.tables]
    assert all(any(np.array_equal(value, own) for own in kept) for name, value in arrays.items() if "table" in name)
    assert {name.split()[1] for name in arrays} <= {"table", "groups"}
    assert set(payload) - set(arrays) == {
        "domain",
        "columns",
        "noisy tables",
    }  # columns: digests of what the rows count
    assert json.loads(json.dumps(payload["noisy tables"]))["version"] == 1


@pytest.mark.parametrize("column", ["kids", "age"])
def test_questions_about_a_column_whose_values_were_changed_are_refused(release, column, tmp_path) -> None:
    path = tmp_path / "a.parquet"
    release.rows.write(path)
    other = "kids" if column == "age" else "age"
    asked = [mean(name) for name in (column, other)]
    before = [interval(read_release(path), each) for each in asked]
    table = pq.read_table(path)
    same = pa.array([table[column].to_pylist()[0]] * len(table)).cast(table[column].type)
    pq.write_table(table.set_column(table.schema.get_field_index(column), table.schema.field(column), same), path)
    with pytest.raises(InputError, match=f"its column {column} is not the one that it was written with"):
        interval(read_release(path), asked[0])
    assert str(interval(read_release(path), asked[1])) == str(before[1])


def test_files_are_asked_whose_cells_no_value_tells_apart(tmp_path) -> None:
    codes = np.stack([np.random.default_rng(1).integers(0, each.size, 5000) for each in NARROW], axis=1)
    vault = SimulatedVault(ArrayTable(NARROW, codes, values=middle_values(NARROW, codes)), seed=1)
    limits = SizeLimits(distance_bounds=True)
    made = batched(vault, loss=Rho("0.5"), total=NoisyTotal(), workload=all_marginals(2), limits=limits)
    made.rows.write(tmp_path / "a.parquet")
    found = read_release(tmp_path / "a.parquet")
    for one in NARROW.names:
        assert found.model.cells((one,)).sum() == pytest.approx(found.model.total)
    for pair in (("far", "kids"), ("far", "member"), ("kids", "member")):
        assert found.model.cells(pair).sum() == pytest.approx(found.model.total)
