"""The page of a synthetic release: its statement, and what the released rows look like."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.domain import Attribute, Categorical, Integer
from sfumato.report.page import Page, Plot, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sfumato.synthesize.synthetic import Synthetic

_MOST_BARS = 60

Bar = tuple[str, int]


def release_page(title: str, release: Synthetic) -> Page:
    """A page of what is public anyway: statement, expected errors, one-way counts of the rows released."""
    provenance = release.provenance
    codes = release.codes()
    counts = {
        attribute.name: _bars(attribute, np.bincount(codes[:, column], minlength=attribute.size))
        for column, attribute in enumerate(release.model.domain)
    }
    return Page(
        title=title,
        terms={
            "Guarantee": release.guarantee,
            "Cost": release.cost,
            "Method": str(provenance.get("method")),
            "Journal entry": str(provenance.get("journal_entry")),
            "Rows": f"{len(codes):,}",
        },
        notes=(
            "Everything on this page is released: it may be shown to anyone, and looking at it costs nothing.",
            *(str(reason) for reason in provenance.get("chosen_among", ())),
        ),
        plots=tuple(_plot(attribute, counts[attribute.name]) for attribute in release.model.domain),
        tables={
            "expected_error": tuple({"of": name, "rows": error} for name, error in release.expected_error.items()),
            **{name: _table(name, bars) for name, bars in counts.items()},
        },
    )


def _bars(attribute: Attribute, counts: NDArray[np.int64]) -> list[Bar]:
    """One bar a cell; where there are too many, neighbours of a number together, or the rarest values of a list."""
    cells = list(zip(attribute.labels(), counts.tolist(), strict=True))
    if len(cells) <= _MOST_BARS:
        return cells
    if isinstance(attribute, Categorical):
        kept = set(np.argsort(-counts, kind="stable")[: _MOST_BARS - 1].tolist())
        rest = [count for code, (_, count) in enumerate(cells) if code not in kept]
        return [*(cells[code] for code in sorted(kept)), (f"({len(rest)} others)", sum(rest))]
    beside = cells[attribute.declared :]  # missing and unknown values
    width = math.ceil(attribute.declared / (_MOST_BARS - len(beside)))
    starts = range(0, attribute.declared, width)
    sums = np.add.reduceat(counts[: attribute.declared], list(starts)).tolist()
    labels = [_run(attribute, start, min(start + width, attribute.declared) - 1) for start in starts]
    return [*zip(labels, sums, strict=True), *beside]


def _run(attribute: Attribute, first: int, last: int) -> str:
    assert not isinstance(attribute, Categorical)
    low, high = attribute.bounds(first)[0], attribute.bounds(last)[1]
    if isinstance(attribute, Integer):
        return f"{low}..{high}"
    return f"[{low}, {high}{']' if last == attribute.declared - 1 else ')'}"


def _table(name: str, bars: list[Bar]) -> Table:
    return tuple({name: label, "rows": count} for label, count in bars)


def _plot(attribute: Attribute, bars: list[Bar]) -> Plot:
    import altair as alt

    values: list[dict[str, Any]] = [{"value": label, "rows": count} for label, count in bars]
    grouped = f", its {attribute.size:,} cells in {len(bars)} groups" if len(bars) < attribute.size else ""
    chart = (
        alt.Chart(alt.InlineData(values=values), width=520, height=220)
        .mark_bar()
        .encode(
            x=alt.X("value:N", sort=None, title=attribute.name, axis=alt.Axis(labelAngle=-40)),
            y=alt.Y("rows:Q", title="synthetic rows"),
        )
    )
    return Plot(attribute.name, f"Synthetic rows by {attribute.name}{grouped}.", chart)
