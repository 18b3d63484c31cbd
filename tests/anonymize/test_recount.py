from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sfumato.anonymize.criteria import KAnonymity
from sfumato.anonymize.diversity import DistinctDiversity
from sfumato.anonymize.microdata import Microdata
from sfumato.anonymize.recount import count, refuse_different, refuse_unsafe
from sfumato.engine.port import Recode
from sfumato.errors import InfeasibleError

DATA = Microdata(
    quasi=("a", "b"),
    codes=np.array([[0, 0], [0, 1], [1, 0], [2, 1]]),
    counts=np.array([3, 2, 4, 1]),
    sensitive={"s": np.array([[3, 0], [2, 0], [2, 2], [1, 0]])},
)
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
    assert counted.numbers.tolist() == [0, 1, -1]
    assert counted.classes.sensitive["s"].tolist() == [[5, 2], [2, 0]]
    assert counted.rows == 9


def test_classes_with_equal_labels_are_one() -> None:
    same = replace(recode([[0, 0], [0, 1]]), labels=pa.table({"a": ["x", "x"], "b": ["y", "y"]}))
    assert count(DATA, same).classes.counts.tolist() == [9]


def test_a_class_below_k_is_refused() -> None:
    counted = count(DATA, recode([[0, 0], [0, 1]]))
    refuse_unsafe(counted, [KAnonymity(2)])
    with pytest.raises(InfeasibleError, match="counted again, 1 classes do not satisfy 3-anonymity"):
        refuse_unsafe(counted, [KAnonymity(3)])
    with pytest.raises(InfeasibleError, match="distinct 2-diversity"):
        refuse_unsafe(counted, [DistinctDiversity(2, "s")])


def test_rewritings_that_deal_what_is_not_there_are_refused() -> None:
    with pytest.raises(InfeasibleError, match="twice"):
        count(DATA, recode([[0, 0], [0, 0]], names=["x", "y"]))
    with pytest.raises(InfeasibleError, match="not there"):
        count(DATA, recode([[0, 0], [0, 0]], rows=[5, 3], names=["x", "y"]))
    dealt = count(DATA, recode([[0, 0], [0, 0]], rows=[5, 2], names=["x", "y"]))
    assert dealt.classes.counts.tolist() == [5, 2]


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
    refuse_unsafe(counted, [KAnonymity(k)])
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
    unsafe = bool((wrong.classes.counts < k).any())
    with pytest.raises(InfeasibleError, match="counted again" if unsafe else "not those that were verified"):
        (refuse_unsafe(wrong, [KAnonymity(k)]) if unsafe else refuse_different(rows.to_batches(), wrong))
