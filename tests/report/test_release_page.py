"""The page of a synthetic file: a single, accessible file in which a forged codebook is only text."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import numpy as np
import pytest
from tests.report.test_page import Elements
from tests.server.ui.browsing import ARGUMENTS, accessible
from tests.services import require

from sfumato.domain import Categorical, Domain, Integer, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.privacy.loss import Rho
from sfumato.report.drawing import CARD
from sfumato.report.page import render
from sfumato.report.release_page import draw_synthetic_card, release_page
from sfumato.synthesize import PublicTotal, mst
from sfumato.synthesize.codebook.codebook import Codebook, PairEntry
from sfumato.synthesize.codebook.codebook_lines import ColumnEntry
from sfumato.vault.simulated import SimulatedVault

HOSTILE = "</title></script><script>window.hurt = 1</script><img src=x onerror='window.hurt = 1'>"


@pytest.fixture(scope="module")
def book() -> Codebook:
    generator = np.random.default_rng(1)
    domain = Domain(
        (
            Integer(name="age", minimum=0, maximum=99, unknown=Unknown.CLAMP),
            Categorical(name="town", values=(HOSTILE, *(f"town {place}" for place in range(6))), unknown=Unknown.DROP),
            Categorical(name="rich", values=("no", "yes"), unknown=Unknown.DROP),
        )
    )
    age = generator.integers(0, 100, 3000)
    town = np.minimum(generator.geometric(0.5, 3000) - 1, 6)
    codes = np.column_stack([age, town, age + generator.integers(0, 60, 3000) > 90])
    vault = SimulatedVault(ArrayTable(domain, codes), seed=1)
    found = mst(vault, loss=Rho("0.05"), total=PublicTotal(3000)).codebook
    return replace(found, considered=("mst: because", HOSTILE))


def test_the_page_says_what_is_known_and_what_is_not(book) -> None:
    text = render(release_page("Synthetic table", book))
    elements = Elements(text)
    assert "script" not in elements.tags
    assert "img" not in elements.tags
    assert all(address and address.startswith("#") for address in elements.loaded)
    for shown in (
        "none of them is a person",
        "Use it for",
        "Do not use it for",
        "estimated by the model",
        "Values of age",
        "Methods that were considered",
        "a band around it holds",
    ):
        assert shown in text
    for column in book.columns:
        assert f"Every value is right to within <b>{column.worst:,} row{'' if column.worst == 1 else 's'}</b>" in text
    for pair in book.pairs:
        if pair.measured:
            assert f"measured; at most {pair.share} of rows in the wrong cell" in text
    assert text.count(": estimated by the model") == sum(not pair.measured for pair in book.pairs)
    assert len(text) < 200_000


def test_four_numbers_stand_at_the_top(book) -> None:
    page = release_page("Synthetic table", book)
    worst = max(column.worst for column in book.columns)
    measured = sum(pair.measured for pair in book.pairs)
    assert [figure for figure, _ in page.facts] == [
        "no loss stated",  # by a simulation
        f"\N{PLUS-MINUS SIGN} {worst:,} rows",
        f"{measured} of {len(book.pairs)}",
        f"{math.ceil(4 * median(table.deviation for table in book.measured if len(table.attributes) > 1)):,} rows",
    ]
    assert page.facts[0][1] == "guarantee, for one row"


@pytest.mark.parametrize(("epsilon", "weak"), [("50", True), ("1", False), ("none at all", False)])
def test_a_weak_guarantee_is_named_at_the_top(book, epsilon, weak) -> None:
    weakened = replace(book, guarantee=replace(book.guarantee, loss={"epsilon": epsilon}))
    assert ("may be right up to 100 % of the time" in release_page("Synthetic table", weakened).lead) is weak


def test_an_error_bar_reaches_from_the_least_to_the_most(book) -> None:
    """The drawing of a column of two values, point by point."""
    column = next(column for column in book.columns if column.name == "rich")
    drawn = render(release_page("t", replace(book, columns=(column,), pairs=())))
    highest = max(max(value.rows, value.high) for value in column.values)
    for value in column.values:
        ends = [CARD.labels + CARD.bars * end / highest for end in (value.low, value.high)]
        assert f'd="M{ends[0]:.1f} ' in drawn
        assert f"H{ends[1]:.1f}M" in drawn
        assert f'width="{CARD.bars * value.rows / highest:.1f}"' in drawn


@pytest.mark.parametrize(
    "change",
    [
        {"columns": (), "pairs": ()},
        {"rows": 0, "table_rows": 0},
        {"rows": -5, "table_rows": 1 << 52},
        {"pairs": (PairEntry(attributes=(HOSTILE,), measured=True, strength=-9.0),)},
        {"pairs": (PairEntry(attributes=(), measured=False, strength=1e15),), "pairs_left_out": -1},
        {"columns": tuple(ColumnEntry(HOSTILE, HOSTILE, -1, -1, (), None, None, ()) for _ in range(900))},
    ],
)
def test_a_forged_codebook_is_shown_as_text(change, book) -> None:
    forged = replace(book, **change)
    elements = Elements(render(release_page(HOSTILE, forged)))
    assert not elements.tags & {"script", "img"}
    assert "<script" not in forged.to_markdown()


def test_values_point_at_groups_that_are_not_there(book) -> None:
    column = book.columns[0]
    lost = replace(column, groups=(), values=tuple(replace(value, group=77, rows=-3) for value in column.values))
    assert "Values of age" in render(release_page("t", replace(book, columns=(lost,))))
    assert "age" in replace(book, columns=(lost,)).to_markdown()


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_is_readable_by_everybody_at_any_width_and_asks_for_nothing(width, book, tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    place = tmp_path / "page.html"
    place.write_text(render(release_page(f"Synthetic {HOSTILE}", book)), encoding="utf-8")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=require("SFUMATO_TEST_CHROMIUM"), args=ARGUMENTS)
        page = opened.new_context(viewport={"width": width, "height": 900}).new_page()
        page.on("request", lambda asked: asked.url == place.as_uri() or pytest.fail(asked.url))
        page.goto(place.as_uri())
        assert page.evaluate("window.hurt") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        accessible(page)
        for summary in page.locator("summary").all():
            summary.click()
        accessible(page)
        assert page.locator("svg[role=img]").count() == len(book.columns) + 1
        opened.close()


def test_a_notebook_shows_four_numbers_and_three_columns_without_an_extra(
    book, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "markupsafe", None)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    card = draw_synthetic_card(SimpleNamespace(codebook=book))
    assert card.count("<svg") == 3
    assert "no loss stated" in card
    assert "<script" not in card
