from __future__ import annotations

import pytest

from sfumato.domain import Categorical, Integer, Real, Unknown
from sfumato.evaluate.release_files import compatible

AGE = Integer(name="age", minimum=0, maximum=9, unknown=Unknown.CLAMP)
BINNED = Integer(name="age", minimum=0, maximum=99, edges=(0, 18, 65), unknown=Unknown.DROP)
SCORE = Real(name="score", edges=(-1.0, 0.0, 0.5, 1.0), unknown=Unknown.DROP, nullable=True)
TOWN = Categorical(name="town", values=("Ulm", "Bern", "Oslo"), unknown=Unknown.DROP)
OTHER = Categorical(name="town", values=("Ulm", "Bern"), unknown=Unknown.CATEGORY)


@pytest.mark.parametrize(
    ("attribute", "text", "codes"),
    [
        (AGE, "7", {7}),
        (AGE, "7.0", {7}),
        (AGE, "44", {9}),
        (AGE, "[3, 6)", {3, 4, 5}),
        (AGE, "(3;6]", {4, 5, 6}),
        (AGE, "[3,6]", {3, 4, 5, 6}),
        (AGE, "3-6", {3, 4, 5, 6}),
        (AGE, "3..6", {3, 4, 5, 6}),
        (AGE, ">= 8", {8, 9}),
        (AGE, "<2", {0, 1}),
        (AGE, "[,2)", {0, 1}),
        (AGE, "{1, 4}", {1, 4}),
        (AGE, "*", set(range(10))),
        (AGE, "six", None),
        (AGE, "[11, 12]", None),
        (AGE, None, None),
        (BINNED, "18..64", {1}),
        (BINNED, "17", {0}),
        (BINNED, "0..17..18..64", {0, 1}),
        (SCORE, "[-1.0, 0.0)..[0.5, 1.0]", {0, 1, 2}),
        (TOWN, "Bern..Oslo", {1, 2}),
        (TOWN, "Oslo..Bern", None),
        (BINNED, "10-20", {0, 1}),
        (BINNED, "120", None),
        (SCORE, "0.5", {2}),
        (SCORE, "1", {2}),
        (SCORE, "[0.0, 0.5)", {1}),
        (SCORE, "[-0.5, 0.2]", {0, 1}),
        (SCORE, "[0.5, 1]", {2}),
        (SCORE, "-1", {0}),
        (SCORE, "", {3}),
        (SCORE, None, {3}),
        (TOWN, "Bern", {1}),
        (TOWN, "{Ulm,Oslo}", {0, 2}),
        (TOWN, "south", {0, 1}),
        (TOWN, "{south,Oslo}", {0, 1, 2}),
        (TOWN, "Rome", None),
        (TOWN, "{Ulm,Rome}", None),
        (OTHER, "Rome", {2}),
        (OTHER, None, {2}),
        (OTHER, "*", {0, 1}),  # some value; the cell for unknown ones is none
        (SCORE, "*", {0, 1, 2}),
    ],
)
def test_what_a_cell_may_stand_for(attribute, text, codes):
    found = compatible(attribute, text, {"south": frozenset({0, 1})} if attribute is TOWN else {})
    assert found == (None if codes is None else frozenset(codes))


def test_every_own_label_means_its_own_cell():
    for attribute in (AGE, BINNED, SCORE, TOWN, OTHER):
        for code, label in enumerate(attribute.labels()):
            assert compatible(attribute, label, {}) == frozenset([code])
