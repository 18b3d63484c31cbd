"""A codebook is read back as written; a forged one is only text of a bounded size."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.synthesize.conftest import integer, table_of

from sfumato.domain import Categorical, Date, Domain, Grain, Integer, Timestamp, Unknown
from sfumato.errors import InputError
from sfumato.privacy.loss import Rho
from sfumato.synthesize import Synthetic, Zeros, load, mst
from sfumato.synthesize.budget_allocation import PublicTotal
from sfumato.synthesize.codebook.codebook import (
    KEY,
    NOTICE,
    NOTICE_KEY,
    Codebook,
    codebook_path,
    printable,
    read_codebook,
)
from sfumato.vault.simulated import SimulatedVault

HOSTILE = "</h3><script>alert(1)</script> | *b* [x](javascript:alert(1)) `c` \x1b[2J\n# d"
SAVED = Path(__file__).parent / "saved"


@pytest.fixture(scope="module")
def release() -> Synthetic:
    town = Categorical(name="town", values=("a|b", "<i>c", HOSTILE), unknown=Unknown.DROP)
    domain = Domain((integer("age", 12), town, integer("kids", 4)))
    counts = np.random.default_rng(1).integers(0, 40, domain.shape)
    return mst(SimulatedVault(table_of(domain, counts), seed=1), loss=Rho("0.05"), total=PublicTotal(int(counts.sum())))


@pytest.fixture(scope="module")
def book(release) -> Codebook:
    return release.codebook


def test_it_is_in_parquet_and_arrow_files_and_says_that_they_are_synthetic(release, book, tmp_path) -> None:
    for name in ("a.parquet", "a.arrow"):
        release.rows.write(tmp_path / name)
        assert read_codebook(tmp_path / name) == book
    metadata = pq.read_schema(tmp_path / "a.parquet").metadata
    assert metadata[NOTICE_KEY].decode() == NOTICE
    assert "synthetic" in NOTICE
    assert Codebook.parse(json.dumps(book.to_json()).encode()) == book
    assert codebook_path(tmp_path / "a.b.parquet").name == "a.b.codebook.md"
    assert book.rows == len(release.rows)
    assert sum(value.rows for value in book.columns[0].values) == book.rows
    assert {len(table.attributes) for table in book.measured} == {1, 2}
    assert sum(pair.measured for pair in book.pairs) == 2
    assert any("were not measured" in sentence for sentence in book.not_for)


def test_rare_combinations_are_likely_real_at_small_noise(release, book) -> None:
    assert any("come and go by chance" in sentence for sentence in book.not_for)
    precise = mst(
        SimulatedVault(table_of(release.model.domain, np.ones(release.model.domain.shape)), seed=1),
        loss=Rho(50),
        total=PublicTotal(144),
    )
    (sentence,) = [each for each in precise.codebook.not_for if "about persons" in each]
    assert "likely one of the table" in sentence


def test_a_larger_sample_is_compared_as_so_many_rows_of_the_table(release, book) -> None:
    rows, larger = release.sample_with_codebook(10 * book.rows)
    assert larger.rows == len(rows) == 10 * book.rows
    assert larger.table_rows == book.table_rows
    for one, ten in zip(book.columns[0].values, larger.columns[0].values, strict=True):
        assert (one.low, one.high) == (ten.low, ten.high)
        assert abs(one.off_by - ten.off_by) <= 3
    none = release.sample_with_codebook(0)[1]
    assert none.rows == 0
    assert none.columns[0].values[0].off_by == none.columns[0].values[0].high


def test_a_selection_of_rows_has_no_errors_of_its_own(release) -> None:
    some = replace(release, model=release.model.given({"age": [0, 1, 2]}))
    found = some.codebook
    assert all(column.worst is None for column in found.columns)
    assert not any(pair.measured for pair in found.pairs)


def test_it_says_what_the_domain_and_rules_put_into_the_rows_or_keep_out(book) -> None:
    pay = Integer(name="pay", minimum=0, maximum=99, edges=(0, 1, 2), typical=30, unknown=Unknown.CLAMP)
    table = table_of(Domain((pay, integer("kids", 4))), np.full((3, 4), 9))
    impossible = np.zeros((3, 4), dtype=bool)
    impossible[0, 3] = True
    zeros = (Zeros(("pay", "kids"), impossible),)
    ruled = mst(SimulatedVault(table, seed=1), loss=Rho("0.05"), total=PublicTotal(108), zeros=zeros).codebook
    open_end = "How far values of pay go beyond 2..99: that cell is open, and every row of it was given 30."
    rules = "Whether there are rows that rules over pay x kids call impossible: none is drawn, whatever the table has."
    assert ruled.not_for[-2:] == (open_end, rules)
    assert Codebook.parse(json.dumps(ruled.to_json()).encode()) == ruled
    assert not any("was given" in each or "impossible" in each for each in book.not_for)


def test_it_says_that_rows_have_the_first_days_and_moments_of_their_cells() -> None:
    days = {"first": date(2023, 1, 1), "last": date(2023, 1, 2), "unknown": Unknown.DROP}
    domain = Domain(
        (
            Date(name="admitted", by=Grain.MONTH, **days),
            Date(name="born", by=Grain.DAY, **days),
            Timestamp(name="seen", by=Grain.DAY, zone="UTC", **days),
        )
    )
    table = table_of(domain, np.full((1, 2, 2), 20))
    found = mst(SimulatedVault(table, seed=1), loss=Rho("0.05"), total=PublicTotal(80)).codebook
    said = tuple(
        f"Which {kind} of its {by} a value of {name} is: every row has the first {kind} of its cell, so that {name} is "
        f"known by {by} only."
        for kind, by, name in (("day", "month", "admitted"), ("moment", "day", "seen"))
    )
    assert found.not_for[-2:] == said
    assert not any("born is" in each for each in found.not_for)
    assert all(each in found.to_markdown() for each in said)


def test_markdown_shows_text_as_text(book) -> None:
    text = book.to_markdown()
    assert "<script" not in text
    assert "[x](" not in text
    assert "\x1b" not in text
    assert "&#60;script&#62;" in text
    assert all(line.count("|") == 7 for line in text.splitlines() if line.startswith("| 3 |"))
    assert not any(line.startswith("# d") for line in text.splitlines())
    assert printable("a\x1b[2Jb\u202ec\n") == "a [2Jb c "


def forged(book: Codebook, change) -> bytes:
    value = book.to_json()
    change(value)
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value.pop("rows"),
        lambda value: value.update(more=1),
        lambda value: value.update(rows="5"),
        lambda value: value.update(rows=True),
        lambda value: value.update(rows=10**400),
        lambda value: value.update(codebook=2),
        lambda value: value.update(notice="these rows are real"),
        lambda value: value["columns"][0].update(deviation=10**400),
        lambda value: value["columns"][0]["values"][0].update(low=1.5),
        lambda value: value["columns"][0].update(values={"a": 1}),
        lambda value: value["guarantee"]["loss"].update(rho=1),
        lambda value: value.update(pairs=[[]]),
    ],
)
def test_what_is_no_codebook_is_refused(change, book) -> None:
    with pytest.raises(InputError, match="codebook"):
        Codebook.parse(forged(book, change))


@pytest.mark.parametrize("text", [b"", b"[]", b"1e999", b"{" * 100_000, b"\xff", b'{"codebook": 1}', b'{"a": NaN}'])
def test_what_is_no_json_is_refused(text) -> None:
    with pytest.raises(InputError, match="codebook"):
        Codebook.parse(text)


def test_a_codebook_that_is_too_large_is_not_looked_at(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("sfumato.synthesize.codebook.codebook._MOST_BYTES", 1 << 20)
    table = pa.table({"a": [1]}).replace_schema_metadata({KEY: b" " * ((1 << 20) + 1)})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(InputError, match="larger than the 1 MiB"):
        read_codebook(tmp_path / "a.parquet")


def test_a_release_of_a_version_that_kept_no_tables_states_no_error() -> None:
    book = load(SAVED / "aim.model").codebook
    assert book.measured
    assert all(column.worst is None for column in book.columns)
    measured = {frozenset(table.attributes) for table in book.measured if len(table.attributes) == 2}
    assert {frozenset(pair.attributes) for pair in book.pairs if pair.measured} >= measured
    assert all(pair.worst is None for pair in book.pairs)
