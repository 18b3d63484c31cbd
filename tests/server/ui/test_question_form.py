"""The ends that the form of a question offers, of an attribute with points."""

from __future__ import annotations

import pytest

from sfumato.domain import Domain, Real, Unknown
from sfumato.domain.predicate import describe_condition
from sfumato.query import count
from sfumato_server.ui.question_form import Controls, QuestionForm

PAY = Real(name="pay", edges=(0.0, 10.0, 40.0), points=(0.0, 10.0), unknown=Unknown.CLAMP)


def test_ends_just_after_a_point_are_described_in_words():
    offered = Controls.for_attribute(PAY)
    assert [word for _, word in offered.low] == ["0.0", "above 0.0", "10.0", "above 10.0"]
    assert [word for _, word in offered.high] == ["0.0 (included)", "10.0", "10.0 (included)"]


@pytest.mark.parametrize(
    ("low", "high", "means"),
    [
        ("above 0.0", "10.0", "pay in (0.0, 10.0)"),
        ("0.0", "0.0 (included)", "pay in 0.0"),
        ("0.0", "10.0 (included)", "pay in [0.0, 10.0]"),
        ("above 10.0", "", "pay in (10.0, 40.0]"),
    ],
)
def test_the_ends_that_are_chosen_are_conditions_on_cells(low, high, means):
    offered = Controls.for_attribute(PAY)
    begins, ends = ({word: value for value, word in choices} for choices in (offered.low, offered.high))
    form = QuestionForm(ranged=["pay"], low=[begins[low]], high=[ends[high] if high else ""])
    domain = Domain((PAY,))
    said = " AND ".join(f"pay {each.comparison} {each.values[0]!r}" for each in form._conditions(domain))  # noqa: SLF001
    assert describe_condition(count(said).condition(domain), domain) == means
