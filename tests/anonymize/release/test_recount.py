from __future__ import annotations

import ast
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sfumato.anonymize.criteria.criterion import DeltaPresence, KAnonymity, KMap
from sfumato.anonymize.criteria.diversity import DistinctDiversity
from sfumato.anonymize.microdata import CountedTable
from sfumato.anonymize.release import recount
from sfumato.anonymize.release.recount import count, homogeneous, refuse_different, refuse_unsafe
from sfumato.engine.port import Recode, SparseTable
from sfumato.errors import InfeasibleError

TABLE = SparseTable(
    ("a", "b", "s"),
    np.array([[0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 0, 1], [2, 1, 0]], dtype=np.uint8),
    np.array([3, 2, 2, 2, 1]),
)
DATA = CountedTable(TABLE)
LEVELS = (np.array([0, 0, 1], dtype=np.uint32), np.array([0, 1], dtype=np.uint32))


def recode(classes: list[list[int]], rows: list[int] | None = None, names: list[str] | None = None) -> Recode:
    left = names or [f"a{key[0]}" for key in classes]
    return Recode(
        attributes=("a", "b"),
        levels=LEVELS,
        classes=np.array(classes, dtype=np.uint32),
        labels=pa.table({"a": left, "b": [f"b{key[1]}" for key in classes]}),
        rows=None if rows is None else np.array(rows),
    )


def test_classes_are_counted_by_their_labels() -> None:
    counted = count(DATA, recode([[0, 0], [0, 1], [1, 0]]))
    assert counted.table.to_pylist() == [
        {"a": "a0", "b": "b0", "rows of the class": 7},
        {"a": "a0", "b": "b1", "rows of the class": 2},
    ]
    assert [held.cells for held in counted.values["s"]] == [[5, 2], [2, 0]]
    assert counted.everyone["s"].cells == [8, 2]
    assert counted.rows == 9


def test_classes_with_equal_labels_are_one() -> None:
    same = replace(recode([[0, 0], [0, 1]]), labels=pa.table({"a": ["x", "x"], "b": ["y", "y"]}))
    assert count(DATA, same).counts.tolist() == [9]


def test_a_class_below_k_is_refused() -> None:
    counted = count(DATA, recode([[0, 0], [0, 1]]))
    refuse_unsafe(counted, [KAnonymity(2)], {})
    with pytest.raises(InfeasibleError, match="counted again, 1 classes do not satisfy 3-anonymity"):
        refuse_unsafe(counted, [KAnonymity(3)], {})
    with pytest.raises(InfeasibleError, match="distinct 2-diversity"):
        refuse_unsafe(counted, [DistinctDiversity(2, "s")], {})


def test_rewritings_that_deal_what_is_not_there_are_refused() -> None:
    with pytest.raises(InfeasibleError, match="twice"):
        count(DATA, recode([[0, 0], [0, 0]], names=["x", "y"]))
    with pytest.raises(InfeasibleError, match="not there"):
        count(DATA, recode([[0, 0], [0, 0]], rows=[5, 3], names=["x", "y"]))
    dealt = count(DATA, recode([[0, 0], [0, 0]], rows=[5, 2], names=["x", "y"]))
    assert dealt.counts.tolist() == [5, 2]


def written(counted_rows: list[dict[str, object]]) -> pa.Table:
    rows = [{key: row[key] for key in ("a", "b")} for row in counted_rows for _ in range(int(row["rows of the class"]))]
    return pa.Table.from_pylist(rows)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_broken_recoding_is_refused_whatever_is_broken(data: st.DataObject) -> None:
    """Plant an error in level maps, classes, labels or written rows: it is refused, or it is harmless."""
    sound = recode([[0, 0], [0, 1]])
    counted = count(DATA, sound)
    k = 2
    refuse_unsafe(counted, [KAnonymity(k)], {})
    rows = written(counted.table.to_pylist())
    refuse_different(rows.to_batches(), counted)
    where = data.draw(st.sampled_from(["levels", "classes", "labels", "rows"]))
    if where == "rows":
        kind = data.draw(st.sampled_from(["drop", "add", "change"]))
        place = data.draw(st.integers(0, len(rows) - 1))
        plain = rows.to_pylist()
        if kind == "drop":
            plain.pop(place)
        elif kind == "add":
            plain.append({"a": "a1", "b": "b1"})
        else:
            plain[place] = {"a": "a1", "b": plain[place]["b"]}
        with pytest.raises(InfeasibleError, match="not those that were verified"):
            refuse_different(pa.Table.from_pylist(plain).to_batches(), counted)
        return
    if where == "levels":
        level = LEVELS[0].copy()
        level[data.draw(st.integers(0, 2))] ^= 1
        broken = replace(sound, levels=(level, LEVELS[1]))
    elif where == "classes":
        broken = recode([[0, 0], [0, 1], [1, 1]])
    else:
        broken = replace(sound, labels=pa.table({"a": ["a0", "a9"], "b": ["b0", "b1"]}))
    wrong = count(DATA, broken)
    assume(not wrong.table.equals(counted.table))
    unsafe = bool((wrong.counts < k).any())
    with pytest.raises(InfeasibleError, match="counted again" if unsafe else "not those that were verified"):
        (refuse_unsafe(wrong, [KAnonymity(k)], {}) if unsafe else refuse_different(rows.to_batches(), wrong))


def test_a_criterion_on_values_that_were_not_counted_is_refused() -> None:
    dealt = count(DATA, recode([[0, 0], [0, 0]], rows=[5, 2], names=["x", "y"]))
    with pytest.raises(InfeasibleError, match="counted again, 2 classes do not satisfy distinct 2-diversity"):
        refuse_unsafe(dealt, [DistinctDiversity(2, "s")], {})


def test_a_written_row_in_another_published_class_is_refused() -> None:
    """The number of rows is right and every class exists, but one row is in the wrong class."""
    counted = count(DATA, recode([[0, 0], [0, 1]]))
    rows = written(counted.table.to_pylist()).to_pylist()
    rows[0]["b"] = "b1"
    with pytest.raises(InfeasibleError, match="not those that were verified"):
        refuse_different(pa.Table.from_pylist(rows).to_batches(), counted)


def test_rows_that_are_to_be_left_out_are_never_published() -> None:
    with pytest.raises(InfeasibleError, match="publishes rows that are to be left out"):
        count(CountedTable(TABLE, left_out={"a": [1]}), recode([[0, 0], [0, 1]]))


def test_a_class_with_people_and_no_row_reveals_who_is_absent() -> None:
    """Suppression cannot cure it, so it is looked at though nothing of it is published."""
    population = SparseTable(
        ("a", "b"), np.array([[0, 0], [0, 1], [1, 0], [2, 0], [2, 1]], np.uint8), np.array([9] * 5)
    )
    counted = count(CountedTable(TABLE, population), recode([[0, 0], [0, 1]]))
    assert counted.people is not None
    assert (counted.people.tolist(), counted.unpublished.tolist()) == ([18, 9], [9])
    refuse_unsafe(counted, [KMap(9, population), DeltaPresence(Fraction(0), Fraction(1, 2), population)], {})
    with pytest.raises(InfeasibleError, match="counted again, 1 classes do not satisfy delta-presence"):
        refuse_unsafe(counted, [DeltaPresence(Fraction(1, 9), Fraction(1, 2), population)], {})


def test_classes_with_a_single_value_are_counted() -> None:
    assert homogeneous(TABLE, recode([[0, 0], [0, 1]]), 2) == 2  # b1 has two rows of one value, b0 both values
    assert homogeneous(TABLE, recode([[0, 0], [0, 1], [1, 1]]), 2) == 3
    assert homogeneous(TABLE, recode([[0, 0], [0, 1]]), 1) == 9  # the second cell is no value: nothing else is known
    assert homogeneous(TABLE, recode([[0, 1], [0, 0]], rows=[1, 4], names=["x", "y"]), 2) == 1  # for sure


def test_the_recount_shares_nothing_with_the_search() -> None:
    """A wrong grouping, merge or criterion in the search cannot hide in the recount."""
    tree = ast.parse(Path(recount.__file__).read_text(encoding="utf-8"))
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    ours = {each.name for node in froms if "anonymize" in str(node.module) for each in node.names}
    assert ours == {"ClassTally", "CountedTable", "Criterion", "ValueTally"}
    levels = {each.name for node in froms if "hierarchy" in str(node.module) for each in node.names}
    assert levels == {"Integers"}  # a kind of array, no function
    called = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert "is_safe" in called
    assert "safe_classes" not in called
