from __future__ import annotations

from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sfumato.anonymize.release.request import Quasi
from sfumato.domain import Categorical, Date, Domain, Grain, Integer, Real, Unknown
from sfumato.errors import SizeError, TableError
from sfumato.evaluate.release_files import compatible, from_arrow, read_hierarchy, read_release, submissions

DOMAIN = Domain(
    (
        Integer(name="age", minimum=0, maximum=99, unknown=Unknown.DROP),
        Categorical(name="town", values=("Ulm", "Bern", "Oslo"), unknown=Unknown.DROP),
        Categorical(name="flag", values=(0, 1), unknown=Unknown.DROP),
    )
)


def test_a_file_of_another_tool(tmp_path):
    (tmp_path / "towns.csv").write_text("leaf,level 1,level 2\nUlm,alps,*\nBern,alps,*\nOslo,north,*\nRome,alps,*\n")
    (tmp_path / "out.csv").write_text('town,ignored,age,flag\nalps,x,"[20, 40)",1\nOslo,y,33,*\nnorth,,*,0\n')
    hierarchy = read_hierarchy(tmp_path / "towns.csv", DOMAIN["town"])
    release = read_release(tmp_path / "out.csv", DOMAIN, hierarchies={"town": hierarchy})
    weights = release.weights()
    np.testing.assert_allclose(weights[:, 100:103], [[0.5, 0.5, 0], [0, 0, 1], [0, 0, 1]])
    np.testing.assert_allclose(weights[:, 103:], [[0, 1], [0.5, 0.5], [1, 0]])
    assert weights[0, 20:40] == pytest.approx(1 / 20, abs=1e-4)
    assert weights[1, 33] == 1
    assert weights[2, :100] == pytest.approx(1 / 100, abs=1e-4)


def test_parquet_with_numbers_and_lists(tmp_path):
    table = pa.table({"age": [3, 98], "town": [["Ulm", "Oslo"], ["Bern"]], "flag": [1.0, 0.0]})
    pq.write_table(table, tmp_path / "out.parquet")
    release = read_release(tmp_path / "out.parquet", DOMAIN)
    np.testing.assert_allclose(release.weights()[:, 100:], [[0.5, 0, 0.5, 0, 1], [0, 1, 0, 1, 0]])


def test_missing_columns_are_named():
    with pytest.raises(TableError, match="lacks the columns town, flag"):
        from_arrow(pa.table({"age": [1]}), DOMAIN)


def test_a_cell_without_meaning_is_found_but_not_repeated():
    table = pa.table({"age": ["1", "2", "oops"], "town": ["Ulm"] * 3, "flag": ["0"] * 3})
    with pytest.raises(TableError, match="row 3 of the release has a cell in 'age'") as caught:
        from_arrow(table, DOMAIN)
    assert "oops" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00broken", b"age,town,flag\n"])
def test_files_that_are_no_table(tmp_path, content):
    (tmp_path / "out.csv").write_bytes(content)
    with pytest.raises(TableError):
        read_release(tmp_path / "out.csv", DOMAIN)
    with pytest.raises(TableError, match="there is no file"):
        read_release(tmp_path / "absent.csv", DOMAIN)


def test_a_hierarchy_of_other_values_is_refused(tmp_path):
    (tmp_path / "h.csv").write_text("a,b\nRome,south\n")
    with pytest.raises(TableError, match="names no declared value"):
        read_hierarchy(tmp_path / "h.csv", DOMAIN["town"])


def shares_a_point(attribute, code, low, high, closed):
    """Return whether a declared cell shares a point with an interval, from the definition and one cell at a time."""
    first, last = attribute.bounds(code)
    if isinstance(attribute, Integer):
        inside = [
            (number > low or (closed[0] and number == low)) and (number < high or (closed[1] and number == high))
            for number in range(first, last + 1)
        ]
        return any(inside)
    below = high > first or (closed[1] and high == first)
    above = low < last or (code == attribute.declared - 1 and closed[0] and low == last)
    return below and above and low <= high


@given(
    data=st.data(),
    low=st.integers(-4, 44).map(lambda halves: halves / 2),
    high=st.integers(-4, 44).map(lambda halves: halves / 2),
    opening=st.sampled_from("[("),
    closing=st.sampled_from("])"),
)
def test_an_interval_stands_for_the_cells_that_share_a_point_with_it(data, low, high, opening, closing):
    attribute = data.draw(
        st.sampled_from(
            [
                Integer(name="n", minimum=0, maximum=19, unknown=Unknown.DROP),
                Integer(name="n", minimum=3, maximum=18, edges=(3, 7, 12), unknown=Unknown.DROP),
                Real(name="n", edges=(0.0, 1.5, 4.0, 20.0), unknown=Unknown.DROP),
            ]
        )
    )
    closed = (opening == "[", closing == "]")
    assume(low != high or all(closed))  # an interval such as (1, 1] is empty, and no release writes one
    expected = {code for code in range(attribute.declared) if shares_a_point(attribute, code, low, high, closed)}
    found = compatible(attribute, f"{opening}{low}, {high}{closing}", {})
    assert (found or frozenset()) == expected


@pytest.mark.parametrize(("interval", "cells"), [("[0, 4)", {0, 1}), ("[0, 4]", {0, 1, 2}), ("(1.5, 4)", {1})])
def test_an_open_end_leaves_out_the_cell_that_begins_there(interval, cells):
    attribute = Real(name="n", edges=(0.0, 1.5, 4.0, 20.0), unknown=Unknown.DROP)
    assert compatible(attribute, interval, {}) == cells


@pytest.mark.parametrize("nullable", [False, True])
def test_cells_of_local_recoding_with_missing_or_unknown_values_are_read_back(nullable):
    extra = {"unknown": Unknown.CATEGORY, "nullable": nullable}
    attributes = (
        Date(name="seen", first=date(2023, 8, 1), last=date(2023, 12, 31), by=Grain.MONTH, **extra),
        Real(name="dose", edges=(0.0, 0.5, 1.0, 2.0), **extra),
        Integer(name="age", minimum=0, maximum=9, edges=(0, 5), **extra),
        Categorical(name="town", values=("Ulm, old", "Bern", "{a, b}"), **extra),
    )
    for attribute in attributes:
        scale = Quasi(name=attribute.name).scale(attribute)
        for low in range(attribute.size):
            for high in range(low, attribute.size):
                text = scale.label(low, high)
                assert compatible(attribute, text, {}) == frozenset(range(low, high + 1)), text
                before = f"{attribute.labels()[low]}..{attribute.labels()[high]}"
                assert low == high or compatible(attribute, before, {}) == frozenset(range(low, high + 1))
    assert Quasi(name="seen").scale(attributes[0]).label(1, attributes[0].size - 1).startswith("{2023-09..2023-12, (")


def test_blank_and_repeated_headers_have_the_names_of_all_commands(tmp_path):
    domain = Domain(
        tuple(Integer(name=name, minimum=0, maximum=9, unknown=Unknown.DROP) for name in ("row", "x_2", "column_4"))
    )
    (tmp_path / "release.csv").write_text('"","x","X",""\n1,"a\nb",2,3\n4,5,6,7\n'.replace("X", "x"))
    assert read_release(tmp_path / "release.csv", domain).codes.tolist() == [[1, 2, 3], [4, 6, 7]]


def test_a_pair_of_too_many_cells_is_refused_before_a_file_is_read(tmp_path):
    def domain(cells):
        return Domain(
            (
                Integer(name="age", minimum=0, maximum=127, unknown=Unknown.CLAMP),
                Integer(name="income", minimum=0, maximum=cells - 1, unknown=Unknown.CLAMP),
            )
        )

    missing = [tmp_path / "missing.csv"]
    with pytest.raises(
        SizeError, match="income x age has 4,194,432 cells, more than 4,194,304; declare edges in a copy"
    ):
        submissions(missing, [], [], domain(32_769))
    with pytest.raises(TableError, match=r"missing\.csv"):
        submissions(missing, [], [], domain(32_768))


def test_labels_of_a_column_are_listed_once_for_all_its_cells(monkeypatch):
    listed, labels = [], Integer.labels
    monkeypatch.setattr(Integer, "labels", lambda attribute: listed.append(attribute.name) or labels(attribute))
    domain = Domain((Integer(name="age", minimum=0, maximum=99, unknown=Unknown.CLAMP),))
    assert from_arrow(pa.table({"age": [*map(str, range(90)), "[3, 6)", "200"]}), domain).codes.shape == (92, 1)
    assert listed == ["age"]


def test_a_number_of_an_attribute_with_trillions_of_cells_is_read():
    amount = Integer(name="amount", minimum=-(1 << 52), maximum=1 << 52, unknown=Unknown.CLAMP)
    assert compatible(amount, "-7.0", {}, {}) == {(1 << 52) - 7}
    assert compatible(amount, "1e300", {}, {}) == {1 << 53}
