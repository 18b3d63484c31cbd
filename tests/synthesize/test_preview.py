"""Expected errors before the charge, and releases whose noise would hide the pairs of columns."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.app.test_cli import sfumato

from sfumato.domain import Domain, Integer, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import InputError
from sfumato.privacy.loss import Epsilon, EpsilonDelta
from sfumato.synthesize import PublicTotal, all_marginals, batched, preview
from sfumato.vault.simulated import SimulatedVault
from sfumato.workload.counting_queries import Marginals

SIX = Domain(tuple(Integer(name=f"c{place}", minimum=0, maximum=7, unknown=Unknown.DROP) for place in range(6)))
LOSS = EpsilonDelta("1", "1e-9")


def table(rows, seed=3):
    """Rows in which all columns follow one number."""
    random = np.random.default_rng(seed)
    codes = (random.integers(0, 8, (rows, 1)) + random.integers(0, 2, (rows, 6))) % 8
    return ArrayTable(SIX, codes)


def release(rows, loss=LOSS):
    vault = SimulatedVault(table(rows), seed=7)
    return vault, batched(vault, loss=loss, total=PublicTotal(rows), workload=all_marginals(2))


def test_the_stated_error_of_a_column_is_that_of_the_noise_that_is_drawn():
    for rows in (300, 30_000):
        foreseen = preview(SIX, loss=LOSS, total=PublicTotal(rows), method="batched")
        _, released = release(rows)
        for each in released.model.measured:
            if len(each.attributes) == 1:
                assert foreseen.columns[each.attributes[0]] == pytest.approx(1.96 * each.deviation, rel=0.05, abs=1)


def test_pairs_are_measured_where_noise_does_not_hide_them():
    foreseen = preview(SIX, loss=LOSS, total=PublicTotal(300), method="batched")
    assert foreseen.hides_pairs
    needed = foreseen.rows_for_pairs
    assert 300 < needed < 3000
    for rows, largest in ((needed // 2, 1), (3 * needed, 2)):
        vault, released = release(rows)
        assert max(len(each.attributes) for each in released.model.measured) == largest
        assert vault.spent.rho == pytest.approx(float(LOSS.as_rho().value))  # all of the loss, and no more


def test_no_stated_error_exceeds_the_rows_of_the_table():
    rows = 60
    vault = SimulatedVault(table(rows), seed=5)
    book = batched(vault, loss=EpsilonDelta("0.4", "1e-9"), total=PublicTotal(rows), workload=all_marginals(2)).codebook
    stated = [value.off_by for column in book.columns for value in column.values] + [c.worst for c in book.columns]
    assert max(stated) == rows


@pytest.fixture
def folder(tmp_path):
    """A table of 300 rows, its domain, and the options of a release."""
    columns = dict(zip(SIX.names, table(300).codes.T, strict=True))
    pq.write_table(pa.table(columns), tmp_path / "people.parquet")
    attributes = {name: {"type": "integer", "minimum": 0, "maximum": 7, "unknown": "clamp"} for name in SIX.names}
    (tmp_path / "people.yaml").write_text(json.dumps({"sfumato": 1, "unit": "row", "attributes": attributes}))
    return tmp_path


GIVEN = ("synthesize", "people.parquet", "--domain", "people.yaml", "--epsilon", "1", "--delta", "1e-9")


def test_a_preview_is_free_and_needs_no_ledger(folder):
    shown = json.loads(sfumato(*GIVEN, "--preview", "--json", cwd=folder).stdout)
    assert shown["method"] == "batched"
    assert set(shown["columns"]) == set(SIX.names)
    text = sfumato(*GIVEN, "--preview", cwd=folder).stdout
    assert f"{shown['rows_for_pairs']:,} rows" in text
    assert sorted(each.name for each in folder.iterdir()) == ["people.parquet", "people.yaml"]


def test_a_release_whose_pairs_are_hidden_is_refused_before_the_charge(folder):
    refused = sfumato(*GIVEN, "--rows", "300", "--out", "o.csv", "--create", "--limit", "20,1e-6", cwd=folder, code=2)
    assert "Pairs of columns need about" in refused.stderr
    assert not (folder / "o.csv").exists()
    assert not (folder / "people.ledger").exists()
    sfumato(*GIVEN, "--rows", "300", "--out", "o.csv", "--create", "--limit", "20,1e-6", "--anyway", cwd=folder)
    assert (folder / "o.csv").exists()


def test_a_wrong_request_is_refused_before_the_table_is_read(folder):
    out = ("--out", "o.csv", "--create", "--limit", "20,1e-6")
    (folder / "people.parquet").write_bytes(b"no table")
    for options, said in ((("--marginals", "c0,nope"), "No attribute 'nope'"), (("--rows", "300"), "Pairs of columns")):
        refused = sfumato(*GIVEN, *options, *out, cwd=folder, code=2)
        assert said in refused.stderr
        assert "Reading" not in refused.stderr
    (folder / "people.yaml").write_text("sfumato: 1")
    refused = sfumato(*GIVEN, *out, cwd=folder, code=2)
    assert "The domain is wrong" in refused.stderr
    assert "Reading" not in refused.stderr
    assert sorted(each.name for each in folder.iterdir()) == ["people.parquet", "people.yaml"]


def test_a_preview_says_how_many_rows_its_errors_assume():
    assumed = "in a table of 1,000 rows:"
    unknown, public = preview(SIX, loss=LOSS), preview(SIX, loss=LOSS, total=PublicTotal(1000))
    assert assumed in str(unknown)
    assert assumed not in str(public)
    assert unknown.columns == pytest.approx(public.columns, rel=0.01)
    assert preview(SIX, loss=LOSS, total=PublicTotal(30_000)).columns["c0"] > 1.1 * unknown.columns["c0"]


def test_pairs_of_too_many_cells_are_measured_over_groups_or_named():
    sizes = {"few": 4, "more": 8, "wide": 600_000}
    domain = Domain(
        tuple(Integer(name=name, minimum=0, maximum=size - 1, unknown=Unknown.DROP) for name, size in sizes.items())
    )
    for method in ("mst", "aim"):  # published methods count single codes
        note = preview(domain, loss=LOSS, method=method).notes[-1]
        assert "pairs of more than 4,194,304 cells are not measured" in note
        assert ": more x wide;" in note
    quiet = ({}, {"method": "independent"}, {"workload": all_marginals(1)})
    assert not any("not measured" in note for each in quiet for note in preview(domain, loss=LOSS, **each).notes)
    rows = 5000
    more = np.random.default_rng(2).integers(0, 8, rows)
    codes = np.column_stack([more // 2, more, more * 70_000])  # the last column follows from the one before
    vault = SimulatedVault(ArrayTable(domain, codes), seed=4)
    released = batched(vault, loss=EpsilonDelta(10, "1e-9"), total=PublicTotal(rows), workload=all_marginals(2))
    assert ("more", "wide") in {each.attributes for each in released.model.measured}
    drawn = released.codes()
    assert np.mean(drawn[:, 2] == drawn[:, 1] * 70_000) > 0.9


def test_a_release_needs_a_file_or_a_preview(folder):
    refused = sfumato(*GIVEN, cwd=folder, code=2)
    assert "--out" in refused.stderr
    assert "Missing: --out FILE" in refused.stderr


def test_a_preview_says_whose_noise_it_states():
    assert "judged by the noise of batched" in str(preview(SIX, loss=LOSS, method="mst"))
    assert "judged by" not in str(preview(SIX, loss=LOSS, method="batched"))


def notes(*options, folder):
    """The notes of a preview by the command."""
    text = sfumato(*GIVEN, "--preview", *options, cwd=folder).stdout
    return [line for line in text.splitlines() if line.startswith("Note: ")]


def test_a_preview_and_a_release_say_which_columns_are_left_out(folder):
    said = "only c0, c1 of 6 columns are released; --way 2 or --method batched keeps all."
    assert notes("--marginals", "c0,c1", folder=folder) == [f"Note: {said}"]
    out = ("--out", "o.csv", "--create", "--limit", "20,1e-6")
    assert f"Before it is charged: {said}" in sfumato(*GIVEN, "--marginals", "c0,c1", *out, cwd=folder).stderr
    for options in (("--way", "2"), ("--method", "batched"), ("--method", "independent")):
        named = () if "independent" in options else ("--marginals", "c0,c1")
        assert notes(*named, *options, folder=folder) == []


def test_a_preview_says_that_no_marginals_of_so_many_columns_are_measured(folder):
    (note,) = notes("--way", "4", folder=folder)
    assert note.startswith(
        "Note: batched measures marginals of at most 3 columns, and its model joins them; --marginals"
    )
    assert notes("--way", "3", folder=folder) == []
    assert notes("--way", "6", "--method", "aim", folder=folder) == []


def test_a_preview_of_named_marginals_is_about_them():
    named = Marginals(1, (("c0", "c1", "c2"),))
    text = str(preview(SIX, loss=LOSS, workload=named, method="batched"))
    assert "A count of a named combination of values is off" in text
    assert "Named marginals need about" in text
    assert "Pairs of columns need about" in str(preview(SIX, loss=LOSS, method="batched"))


def wide_release(rows, cells):
    """The note on a column of very many cells, its real and its released codes."""
    domain = Domain((*SIX, Integer(name="wide", minimum=0, maximum=cells - 1, unknown=Unknown.DROP)))
    note, *others = preview(domain, loss=LOSS, total=PublicTotal(rows), method="batched").notes
    assert all(each.startswith("pairs of more than") for each in others)
    wide = np.random.default_rng(1).integers(0, cells // 4, rows)
    vault = SimulatedVault(ArrayTable(domain, np.column_stack([table(rows).codes, wide])), seed=7)
    released = batched(vault, loss=LOSS, total=PublicTotal(rows), workload=all_marginals(2))
    return note, wide, released


def test_a_preview_says_into_how_many_groups_a_wide_column_is_joined():
    note, wide, released = wide_release(100_000, 5_000)
    assert note.startswith("the 5,000 cells of wide are joined to at most about ")
    most = int(note.partition("at most about ")[2].split()[0].replace(",", ""))
    assert 1 < released.model.coarsenings["wide"].size <= most
    assert released.codes()[:, 6].mean() == pytest.approx(wide.mean(), rel=0.1)
    assert preview(SIX, loss=LOSS, method="batched").notes == ()


def test_a_preview_says_in_which_groups_a_wide_column_is_measured_first():
    note, wide, released = wide_release(1_000, 1_000_000)
    assert note.startswith(
        "in a table of 1,000 rows, the 1,000,000 cells of wide are also measured in 4 tables of 16 to 62,500 groups"
    )
    tables = [table for table in released.model.tables if table.attributes == ("wide",) and not table.fresh]
    assert [table.values.size for table in tables] == [16, 245, 3_907, 62_500, 1_000_000]
    assert released.codes()[:, 6].mean() == pytest.approx(wide.mean(), rel=0.2)


def test_a_preview_says_that_noise_outweighs_the_groups_of_a_wide_column():
    domain = Domain((*SIX, Integer(name="wide", minimum=0, maximum=999_999, unknown=Unknown.DROP)))
    note = preview(domain, loss=Epsilon("0.02"), total=PublicTotal(1_000), method="batched").notes[0]
    assert note.startswith("the noise of 16 groups of the 1,000,000 cells of wide outweighs a table of 1,000 rows; ")
    note = preview(domain, loss=LOSS, total=PublicTotal(1_000), method="aim").notes[0]
    assert note.startswith("the noise of all 1,000,000 cells of wide outweighs a table of 1,000 rows, so the released")


def test_a_preview_of_no_domain_is_refused():
    with pytest.raises(InputError, match="errors are expected for a Domain"):
        preview("people.yaml", loss=LOSS)
