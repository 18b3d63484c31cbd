"""Charts of the labs: one distinguishable line per series, and names that are never cut off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sfumato_labs.lab import Row

Chart = Any
"""An Altair chart; the library is imported when one is drawn."""

_MOST_MARKS = 120  # on one line; more would hide it
_SHAPES = ("circle", "square", "triangle-up", "cross", "diamond", "triangle-down")
_DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3), (4, 1), (1, 3), (10, 2), (3, 5))


@dataclass(frozen=True, kw_only=True)
class ChartAxis:
    """A column along an axis: its title, its limits, and whether it is logarithmic (numbers) or a list of labels."""

    column: str
    title: str
    log: bool = False
    labels: bool = False
    zero: bool = True
    limits: tuple[float, float] | None = None

    def drawn(self, kind: Any, field: str) -> Any:  # noqa: ANN401  (Altair's X or Y)
        """Return the encoding of this axis for the values in the given field."""
        import altair as alt

        if self.labels:
            axis = alt.Axis(labelAngle=0, labelLimit=0, labelOverlap="greedy")
            return kind(f"{field}:O", title=self.title, sort=None, axis=axis)
        # whole decades would leave most of a logarithmic panel empty
        scale = (
            _logarithmic() if self.log else alt.Scale(zero=self.zero, nice=self.zero, padding=0 if self.zero else 10)
        )
        if self.limits is not None:
            scale = alt.Scale(domain=list(self.limits), zero=False, nice=False)
        return kind(f"{field}:Q", title=self.title, scale=scale)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A picture of a figure: its title, its width and height in pixels."""

    title: str = ""
    size: tuple[int, int] = (520, 300)


def headed(chart: Chart, title: str, *, under: str) -> Chart:
    """Return a figure with a title and a smaller line below it, so that it is readable without its page."""
    import altair as alt

    return chart.properties(title=alt.TitleParams(title, subtitle=under, anchor="start", offset=12))


def lines(rows: Sequence[Row], x: ChartAxis, y: ChartAxis, *, series: str, panel: Panel) -> Chart:
    """Return a chart with one line per value of ``series``, distinguished by color, dashes and (on short lines) marks.

    Values that a logarithmic axis cannot show are left out.
    """
    import altair as alt

    marked = [row for row in rows if row[y.column] is not None and (row[y.column] or not y.log)]
    values = _values(marked, x=x.column, y=y.column, series=series)
    names = list(dict.fromkeys(value["series"] for value in values))
    dashes = [list(_DASHES[place % len(_DASHES)]) for place in range(len(names))]
    # the first line is broad, so that it is visible under a line on top of it
    widths = [5.0 if place == 0 and len(names) > 1 else 2.0 for place in range(len(names))]
    scale = alt.Scale(domain=names)
    # marks of this size are recognizable despite the line's dashes around them
    legend = alt.Legend(title=None, labelLimit=0, symbolLimit=0, symbolSize=250)
    chart = alt.Chart(alt.InlineData(values=values), width=panel.size[0], height=panel.size[1], title=panel.title)
    chart = chart.encode(
        x=x.drawn(alt.X, "x"), y=y.drawn(alt.Y, "y"), color=alt.Color("series:N", scale=scale, legend=legend)
    )
    drawn = chart.mark_line(opacity=0.75, strokeJoin="round").encode(  # a miter would extend beyond the value
        strokeDash=alt.StrokeDash("series:N", scale=alt.Scale(domain=names, range=dashes), legend=legend),
        strokeWidth=alt.StrokeWidth(
            "series:N", scale=alt.Scale(type="ordinal", domain=names, range=widths), legend=legend
        ),
    )
    if len(marked) > _MOST_MARKS * len(names):
        return drawn
    shapes = [_SHAPES[place % len(_SHAPES)] for place in range(len(names))]
    return drawn + chart.mark_point(filled=True, size=45, opacity=1).encode(
        shape=alt.Shape("series:N", scale=alt.Scale(domain=names, range=shapes), legend=None)
    )


def _values(rows: Sequence[Row], **columns: str) -> list[dict[str, Any]]:
    """Return the columns of rows under new names, because Altair interprets dots and brackets in names."""
    return [
        {name: str(row[column]) if name == "series" else row[column] for name, column in columns.items()}
        for row in rows
    ]


def level(value: float, label: str, *, x: float, below: bool = False) -> Chart:
    """Return a thin black line across a panel with a logarithmic axis at ``value``, with its label left of ``x``."""
    import altair as alt

    data = alt.InlineData(values=[{"y": value, "at": x, "label": label}])
    y = alt.Y("y:Q", scale=_logarithmic())
    rule = alt.Chart(data).mark_rule(color="black", strokeWidth=1).encode(y=y)
    text = alt.Chart(data).mark_text(align="right", dx=-4, dy=9 if below else -6)
    return rule + text.encode(x=alt.X("at:Q"), y=y, text=alt.Text("label:N"))


def _logarithmic() -> Any:  # noqa: ANN401  (Altair's Scale)
    """Return a scale from the least to the largest value, with room for a label at both ends."""
    import altair as alt

    return alt.Scale(type="log", nice=False, padding=16)


def bars(rows: Sequence[Row], x: ChartAxis, y: ChartAxis, *, series: str, title: str, width: int) -> Chart:
    """Return bars side by side, one per value of ``series``; one behind the other if ``x`` is numeric."""
    import altair as alt

    names = list(dict.fromkeys(str(row[series]) for row in rows))
    values = _values(rows, x=x.column, y=y.column, series=series)
    chart = alt.Chart(alt.InlineData(values=values), width=width, height=260, title=title)
    legend = alt.Legend(title=None, labelLimit=0, symbolLimit=0)
    drawn = {
        "x": x.drawn(alt.X, "x"),
        "y": y.drawn(alt.Y, "y"),
        "color": alt.Color("series:N", sort=names, legend=legend),
    }
    if x.labels:
        return chart.mark_bar().encode(xOffset=alt.XOffset("series:N", sort=names), **drawn)
    # bars along a numeric axis have no default width
    return chart.mark_bar(size=max(1.0, 0.85 * width / len({row[x.column] for row in rows}))).encode(**drawn)


def heat_map(
    rows: Sequence[Row], x: ChartAxis, y: ChartAxis, *, value: str, title: str, limits: tuple[float, float]
) -> Chart:
    """Return cells colored by ``value`` on a scale shared by adjacent panels, from blue to red if values have a
    sign.
    """
    import altair as alt

    signed = limits[0] < 0
    scale = alt.Scale(scheme="redblue" if signed else "viridis", domain=list(limits), reverse=signed)
    width = max(120, 22 * len({row[x.column] for row in rows}))
    return (
        alt.Chart(
            alt.InlineData(values=_values(rows, x=x.column, y=y.column, value=value)),
            width=width,
            height=240,
            title=title,
        )
        .mark_rect()
        .encode(
            x=x.drawn(alt.X, "x"),
            y=y.drawn(alt.Y, "y"),
            color=alt.Color("value:Q", title=value, scale=scale, legend=alt.Legend(labelLimit=0)),
        )
    )


def side_by_side(panels: Sequence[Chart], *, columns: int, share_color: bool = True) -> Chart:
    """Return panels in rows of ``columns``."""
    import altair as alt

    return alt.concat(*panels, columns=columns).resolve_scale(
        color="shared" if share_color else "independent", strokeDash="shared", shape="shared", strokeWidth="shared"
    )


def tall(rows: Sequence[Row], series: Mapping[str, str], *, key: str, value: str) -> list[Row]:
    """Return one row per named column; ``series`` maps the name in the legend to the column."""
    return [
        {**row, key: name, value: row[column]}
        for name, column in series.items()
        for row in rows
        if row[column] is not None
    ]
