from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.domain import Categorical, Integer, Unknown
from sfumato.domain.hierarchy.builders import DateLevel, dates, draft, flat, intervals, mapping, order, prefix
from sfumato.domain.hierarchy.levels import Hierarchy, read_folder
from sfumato.errors import DomainError

ROWS = [["cat", "mammal", "*"], ["dog", "mammal", "*"], ["newt", "amphibian", "*"]]


def test_losses_count_leaves_as_the_loss_metric_says() -> None:
    levels = Hierarchy.from_rows("pet", ROWS).levels
    assert [level.losses.tolist() for level in levels] == [[0, 0, 0], [0.5, 0], [1]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "is empty"),
        ([["cat", "*"], ["dog"]], "row 2 .* has 1 levels"),
        ([["cat", "*"], ["cat", "*"]], "'cat' twice"),
        ([["cat", ""], ["dog", "*"]], "empty label"),
        ([["cat", "*"], ["dog", "all"]], "2 tops"),
        ([["cat", "x", "y", "*"], ["dog", "x", "z", "*"]], "does not nest: 'x' of level 1"),
    ],
)
def test_broken_hierarchies_are_refused(rows: list[list[str]], message: str) -> None:
    with pytest.raises(DomainError, match=message):
        Hierarchy.from_rows("pet", rows)


def test_alignment_follows_the_domain_and_keeps_losses() -> None:
    aligned = Hierarchy.from_rows("pet", ROWS).align(("newt", "cat", "(missing)"))
    assert aligned.leaves == ("newt", "cat", "(missing)")
    assert aligned.levels[0].cells.tolist() == [0, 1, 2]
    assert [aligned.levels[1].labels[cell] for cell in aligned.levels[1].cells] == ["amphibian", "mammal", "(missing)"]
    assert aligned.levels[1].losses[aligned.levels[1].cells].tolist() == [0, 0.5, 0]
    assert aligned.levels[2].cells.tolist() == [0, 0, 0]
    assert aligned.domain_size == 3


def test_alignment_refuses_a_value_without_a_leaf() -> None:
    with pytest.raises(DomainError, match="misses 1 declared value, the first is 'eel'"):
        Hierarchy.from_rows("pet", ROWS).align(("cat", "eel"))


@given(st.integers(-50, 50), st.integers(0, 60), st.lists(st.integers(2, 4), min_size=1, max_size=3))
def test_intervals_nest_and_hold_their_values(low: int, span: int, factors: list[int]) -> None:
    widths = list(itertools.accumulate(factors, lambda width, factor: width * factor))
    built = intervals("age", low, low + span, widths=widths)
    for level, width in zip(built.levels[1:-1], widths, strict=True):
        for value, cell in zip(range(low, low + span + 1), level.cells, strict=True):
            first, last = map(int, level.labels[cell].split(".."))
            assert first <= value <= last
            assert last - first == width - 1
        assert set(level.losses) == {min((width - 1) / max(span, 1), 1.0)}


def test_published_losses_of_age() -> None:
    losses = [level.losses[0] for level in intervals("age", 17, 90, widths=(5, 10, 20)).levels]
    assert losses == [0, 4 / 73, 9 / 73, 19 / 73, 1]


@pytest.mark.parametrize("widths", [(5, 12), (0,)])
def test_intervals_refuse_widths_that_do_not_nest(widths: tuple[int, ...]) -> None:
    with pytest.raises(DomainError, match="must divide the next"):
        intervals("age", 0, 99, widths=widths)


@given(st.lists(st.text("abcdef", min_size=1, max_size=4), min_size=1, max_size=12, unique=True), st.integers(2, 4))
def test_order_and_prefix_make_valid_hierarchies(values: list[str], fanout: int) -> None:
    ordered = order("grade", values, fanout=fanout)
    assert ordered.leaves == tuple(values)
    masked = prefix("code", values, masked=(1, 3))
    for value, cell in zip(values, masked.levels[1].cells, strict=True):
        assert masked.levels[1].labels[cell].startswith(value.ljust(max(map(len, values)))[:-1])


def test_dates_climb_the_calendar() -> None:
    built = dates("birth", ["1999-12-31", "2000-01-01"], levels=list(DateLevel))
    assert built.rows()[0] == ["1999-12-31", "1999-12", "1999-Q4", "1999", "1990s", "*"]
    early = dates("birth", ["0987-06-05", "1987-06-05"], levels=list(DateLevel))
    assert early.rows()[0] == ["0987-06-05", "0987-06", "0987-Q2", "0987", "0980s", "*"]
    with pytest.raises(DomainError, match="no ISO date"):
        dates("birth", ["31.12.1999"], levels=[DateLevel.YEAR])
    with pytest.raises(DomainError, match="from fine to coarse"):
        dates("birth", ["1999-12-31"], levels=[DateLevel.YEAR, DateLevel.MONTH])


def test_mapping_names_the_step_that_misses_a_label() -> None:
    with pytest.raises(DomainError, match=r"step 2 .* misses 'mammal'"):
        mapping("pet", [{"cat": "mammal"}, {"amphibian": "x"}])


def test_drafts_come_from_the_domain_alone() -> None:
    age = Integer(name="age", minimum=0, maximum=99, unknown=Unknown.CLAMP)
    assert [level.size for level in draft(age).levels] == [100, 20, 10, 5, 3, 1]
    assert draft(age).levels[4].labels == ("0..39", "40..79", "80..99")  # the domain ends at 99
    assert draft(age).levels[4].losses.tolist() == [39 / 99] * 3
    odd = draft(Integer(name="year", minimum=1998, maximum=2010, unknown=Unknown.CLAMP))
    assert odd.levels[1].labels == ("1998..1999", "2000..2004", "2005..2009", "2010")
    pet = Categorical(name="pet", values=("cat", "dog"), unknown=Unknown.CATEGORY)
    assert draft(pet).align(pet.labels()).leaves == ("cat", "dog", "(other)")


@pytest.mark.parametrize("suffix", [".csv", ".yaml", ".json"])
def test_files_are_read_back(tmp_path: Path, suffix: str) -> None:
    built = intervals("age", 0, 9, widths=(2, 4)) if suffix != ".csv" else flat("age", ["a", "b"])
    path = tmp_path / f"age{suffix}"
    if suffix == ".csv":
        path.write_text("level_0;level_1\na;*\nb;*\n", encoding="utf-8")
    elif suffix == ".yaml":
        path.write_text(built.dump(), encoding="utf-8")
    else:
        import json

        path.write_text(json.dumps(built.describe()), encoding="utf-8")
    again = Hierarchy.read(path)
    assert again.attribute == "age"
    assert again.rows() == built.rows()
    for mine, theirs in zip(again.levels, built.levels, strict=True):
        np.testing.assert_array_equal(mine.losses, theirs.losses)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("age.yaml", "attribute: age", "needs 'attribute' and 'rows'"),
        ("age.yaml", "{", "neither YAML nor JSON"),
        ("age.yaml", "attribute: age\nrows:\n- [1, *]\n", "line 3 cannot be read; the label \\* needs quotes, '\\*'$"),
        ("age.yaml", "attribute: age\nrows:\n- - 1\n  - *\n", "line 4 cannot be read; the label \\* needs quotes"),
        ("age.yaml", "attribute: age\nrows: [1, 'x*]\n", "neither YAML nor JSON[^*]*$"),
        ("age.json", '{"attribute": "age",\n"rows": [[1, *]]}', "line 2 cannot be read$"),
        ("age.yaml", "[" * 1000, "neither YAML nor JSON"),
        ("age.yaml", "attribute: 2024-99-99", "no calendar has, at line 1$"),
        ("age.json", "[" * 100_000, "neither YAML nor JSON"),
        ("age.json", "9" * 5000, "neither YAML nor JSON"),
        ("age.json", '{"attribute": "age", "rows": [["1", "*"]], "rows": [["1"]]}', "repeats a key"),
        ("age.csv", f"{'a' * 200_000},*\n", "no CSV"),
        ("age.csv", "a,*\nb,x\n", "2 tops"),
        ("age.yaml", "{attribute: age, rows: [[a, '*']], losses: [0, 0.5]}", "rise from 0 to 1"),
    ],
    ids=range(14),
)
def test_broken_files_are_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(DomainError, match=message):
        Hierarchy.read(tmp_path / name)


def test_a_folder_of_hierarchies(shared_data: Path) -> None:
    found = read_folder(shared_data / "adult" / "hierarchies")
    assert {name: hierarchy.height for name, hierarchy in found.items()} == {
        "age": 4, "class": 1, "education": 3, "gender": 1, "marital_status": 2, "native_country": 2, "occupation": 2,
        "race": 1, "work_class": 2,
    }  # fmt: skip
