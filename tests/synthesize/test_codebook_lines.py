"""Many values are shown on few lines that add up to all of them, and no label hides its blanks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.synthesize.conftest import table_of

from sfumato.domain import Categorical, Domain, Integer, Unknown
from sfumato.privacy.loss import Rho
from sfumato.report.page import render
from sfumato.report.release_page import release_page
from sfumato.synthesize import mst
from sfumato.synthesize.budget_allocation import PublicTotal
from sfumato.synthesize.codebook.codebook import Codebook
from sfumato.synthesize.codebook.codebook_lines import (
    FOLDED_TEXT,
    MOST_LINES,
    ColumnEntry,
    GroupEntry,
    ValueEntry,
    group_lines,
    value_lines,
)
from sfumato.vault.simulated import SimulatedVault


def column(kind: str, labels: list[str], *, off_by: int | None = 3) -> ColumnEntry:
    values = tuple(
        ValueEntry(label, 1, place % 7, place, place + 2, None if off_by is None else off_by + place, None)
        for place, label in enumerate(labels)
    )
    return ColumnEntry("weight", kind, len(labels), len(labels), (), 1.0, 9, values)


@pytest.mark.parametrize("extra", [[], ["(missing)"], ["(missing)", "(other)"]])
@pytest.mark.parametrize("count", [41, 79, 400, 500])
def test_neighbours_share_a_line_and_no_row_is_lost(count, extra) -> None:
    shown = column("integer", [*map(str, range(count)), *extra])
    lines = value_lines(shown)
    assert len(lines) <= MOST_LINES
    assert sum(line.rows for line in lines) == sum(value.rows for value in shown.values)
    assert [line.label for line in lines[len(lines) - len(extra) :]] == extra
    ends = [line.label.split(" to ") for line in lines[: len(lines) - len(extra)]]
    covered = [number for end in ends for number in range(int(end[0]), int(end[-1]) + 1)]
    assert covered == list(range(count))
    first = lines[0]
    width = int(ends[0][-1]) + 1
    assert (first.low, first.high, first.several, first.error) == (None, None, True, f"each {2 + width}")


def test_the_rarest_of_a_list_share_a_line() -> None:
    shown = column("categorical", [f"v{place}" for place in range(400)])
    shown = replace(
        shown, values=tuple(replace(v, rows=1000 if i == 77 else v.rows) for i, v in enumerate(shown.values))
    )
    lines = value_lines(shown)
    assert len(lines) == MOST_LINES
    assert lines[-1].label == "(361 others)"
    assert "v77" in [line.label for line in lines]
    assert sum(line.rows for line in lines) == sum(value.rows for value in shown.values)


def test_few_values_have_a_line_each_and_what_was_not_measured_has_no_error() -> None:
    few = value_lines(column("integer", [str(place) for place in range(MOST_LINES)]))
    assert [(line.label, line.low, line.error) for line in few[:2]] == [("0", 0, 3), ("1", 1, 4)]
    assert not any(line.several for line in few)
    assert all(line.error is None for line in value_lines(column("integer", list(map(str, range(99))), off_by=None)))


@pytest.mark.parametrize("kind", ["integer", "categorical"])
@pytest.mark.parametrize("count", [3, 40, 41, 300])
def test_many_groups_share_lines_and_no_row_is_lost(kind, count) -> None:
    groups = tuple(GroupEntry(f"{2 * g} to {2 * g + 1}", 2, 5 + g % 11, 4 + g % 3) for g in range(count))
    shown = group_lines(replace(column(kind, ["0", "1"]), groups=groups))
    assert len(shown) == count if count <= MOST_LINES else 20 <= len(shown) <= MOST_LINES
    assert sum(line.rows for line in shown) == sum(group.rows for group in groups)
    assert sum(line.values for line in shown) == 2 * count
    if count > MOST_LINES:
        assert any(str(line.error).startswith("each ") for line in shown)
        assert f"{2 * count - 1}" in shown[-1].label or kind == "categorical"
    unknown = tuple(replace(group, off_by=None) for group in groups)
    assert all(line.error is None for line in group_lines(replace(column(kind, ["0", "1"]), groups=unknown)))


@pytest.fixture(scope="module")
def book() -> Codebook:
    weight = Integer(name="weight", minimum=0, maximum=399, unknown=Unknown.CLAMP)
    answer = Categorical(name="answer", values=("", " ", "  ", "yes  no", "yes no"), unknown=Unknown.DROP)
    domain = Domain((weight, answer))
    counts = np.ones(domain.shape, dtype=np.int64)
    return mst(SimulatedVault(table_of(domain, counts), seed=1), loss=Rho(1), total=PublicTotal(2000)).codebook


def test_markdown_and_the_page_are_short_and_json_is_whole(book) -> None:
    assert len(book.to_json()["columns"][0]["values"]) == 400
    text, page = book.to_markdown(), render(release_page("t", book))
    weight = text[text.index("### weight") : text.index("### answer")]
    assert MOST_LINES < weight.count("\n") < 60 + len(book.columns[0].groups)
    assert "| 0 to 9 |" in weight
    assert FOLDED_TEXT in weight
    assert FOLDED_TEXT not in text[text.index("### answer") :]
    assert "0 to 9</td>" in page
    assert "399</td>" in page
    table = page[page.index('aria-label="Values of weight"') : page.index('aria-label="Values of answer"')]
    assert table.count('<tr><td class="text">') == MOST_LINES


def test_blanks_of_labels_are_seen(book) -> None:
    text, page = book.to_markdown(), render(release_page("t", book))
    for label in ('""', '"\N{OPEN BOX}"', '"\N{OPEN BOX}\N{OPEN BOX}"', '"yes\N{OPEN BOX}\N{OPEN BOX}no"', "yes no"):
        assert f"| {label} |" in text
        assert f'<td class="text">{label.replace(chr(34), "&#34;")}</td>' in page
    assert [value.label for value in book.columns[1].values] == ["", " ", "  ", "yes  no", "yes no"]
