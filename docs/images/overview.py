"""The picture of README and index: a census and its synthetic copy, with error bars and the remaining budget."""

import tempfile
from collections import Counter
from pathlib import Path

import altair as alt

import sfumato as sf

people = sf.data.census()
draft = sf.describe(people)
domain = draft.accept(by="Ann Lee", confirm=draft.risks)
ledger = Path(tempfile.mkdtemp()) / "overview.ledger"
vault = sf.open(people, domain=domain, ledger=str(ledger), limit=sf.EpsilonDelta(2, 1e-9), create=True)
release = sf.synthesize.auto(vault, epsilon=1, delta=1e-9)

exact = Counter(people["occupation"].to_pylist())
values = next(column for column in release.codebook.columns if column.name == "occupation").values
rows = [
    {"occupation": value.label, "exact": exact[value.label], "rows": value.rows, "low": value.low, "high": value.high}
    for value in sorted(values, key=lambda value: -exact[value.label])
    if exact[value.label]
]
left = round(100 * float(vault.remaining.share_left))
budget = [{"part": "spent", "percent": 100 - left, "order": 0}, {"part": "left", "percent": left, "order": 1}]

BLUE, GRAY, INK, PALE = "#2f6fa8", "#8894a2", "#1b2430", "#d9dee4"
scale = alt.Scale(domain=[0, 4500], nice=False)
axis = alt.Axis(values=[0, 1000, 2000, 3000, 4000], grid=False, title="people")
table = alt.Chart(alt.InlineData(values=rows)).properties(width=290, height=alt.Step(22))


def y(axis: alt.Axis | None) -> alt.Y:
    """Return the vertical axis, with its labels or bare."""
    return alt.Y("occupation:N", sort=None, title=None, axis=axis)


def x(column: str) -> alt.X:
    """Return the horizontal axis of numbers of people."""
    return alt.X(f"{column}:Q", scale=scale, axis=axis)


real = table.mark_bar(color=GRAY).encode(y=y(alt.Axis(domain=False, ticks=False)), x=x("exact"))
bars = table.mark_bar(color=BLUE).encode(y=y(None), x=x("rows"))
whiskers = table.mark_rule(color=INK, strokeWidth=2).encode(y=y(None), x=x("low"), x2="high:Q")
ends = [table.mark_tick(color=INK, size=10, thickness=2).encode(y=y(None), x=x(end)) for end in ("low", "high")]
share = (
    alt.Chart(
        alt.InlineData(values=budget),
        title=f"Privacy budget (epsilon 2): {100 - left} % spent by this release, {left} % left",
    )
    .mark_bar(height=18)
    .encode(
        x=alt.X("percent:Q", axis=None, scale=alt.Scale(domain=[0, 100])),
        order="order:Q",
        color=alt.Color("part:N", sort=None, scale=alt.Scale(range=[BLUE, PALE]), legend=None),
    )
    .properties(width=600, height=18)
)
sides = alt.hconcat(
    real.properties(title="The table (secret)"),
    alt.layer(bars, whiskers, *ends).properties(title="Synthetic rows, with 95 % error bars"),
    spacing=20,
)
(
    alt.vconcat(sides, share, spacing=20, padding={"left": 20, "right": 20, "top": 10, "bottom": 10})
    .configure(font="sans-serif")
    .configure_view(stroke=None)
    .configure_title(anchor="start", fontSize=14, color=INK)
    .configure_axis(labelFontSize=12)
)
