"""Charts as labs draw them: one line a series that can be told from the others, names never cut off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sfumato_labs.lab import Row

Chart = Any
"""An Altair chart; the library is loaded when one is drawn."""

_MOST_MARKS = 120  # on one line: more would hide it
_SHAPES = ("circle", "square", "triangle-up", "cross", "diamond", "triangle-down")
_DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3), (4, 1), (1, 3), (10, 2), (3, 5))


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A column along an axis: its title, whether it is logarithmic (numbers) or a list of labels, and its limits."""

    column: str
    title: str
    log: bool = False
    labels: bool = False
    zero: bool = True
    limits: tuple[float, float] | None = None

    def drawn(self, kind: Any) -> Any:  # noqa: ANN401  (Altair's X or Y)
        """The encoding of this axis."""
        import altair as alt

        if self.labels:
            axis = alt.Axis(labelAngle=0, labelLimit=0, labelOverlap="greedy")
            return kind(f"{self.column}:O", title=self.title, sort=None, axis=axis)
        # whole decades would leave most of a logarithmic panel empty
        scale = _logarithmic() if self.log else alt.Scale(zero=self.zero, nice=self.zero)
        if self.limits is not None:
            scale = alt.Scale(domain=list(self.limits), zero=False, nice=False)
        return kind(f"{self.column}:Q", title=self.title, scale=scale)


def lines(
    rows: Sequence[Row],
    x: Axis,
    y: Axis,
    series: str,
    *,
    title: str = "",
    size: tuple[int, int] = (520, 300),
) -> Chart:
    """One line for each value of the column ``series``, told apart by colour, dashes and (on short lines) marks.

    A value that a logarithmic axis cannot show is left out.
    """
    import altair as alt

    shown = [dict(row) for row in rows if row[y.column] is not None and (row[y.column] or not y.log)]
    names = list(dict.fromkeys(str(row[series]) for row in shown))
    legend = alt.Legend(title=None, labelLimit=0, symbolLimit=0, symbolSize=100, symbolStrokeWidth=1)
    dashes = [list(_DASHES[place % len(_DASHES)]) for place in range(len(names))]
    shapes = [_SHAPES[place % len(_SHAPES)] for place in range(len(names))]
    widths = [5.0 if place == 0 and len(names) > 1 else 2.0 for place in range(len(names))]
    mark: dict[str, Any] = {"filled": True, "size": 45} if len(shown) <= _MOST_MARKS * len(names) else {}
    return (
        alt.Chart(alt.InlineData(values=shown), width=size[0], height=size[1], title=title)
        .mark_line(opacity=0.75, strokeJoin="round", point=mark or False)  # a mitre would reach beyond the value
        .encode(
            x=x.drawn(alt.X),
            y=y.drawn(alt.Y),
            # equal domains and titles make one legend of all three
            color=alt.Color(f"{series}:N", scale=alt.Scale(domain=names), legend=legend),
            strokeDash=alt.StrokeDash(f"{series}:N", scale=alt.Scale(domain=names, range=dashes), legend=legend),
            shape=alt.Shape(f"{series}:N", scale=alt.Scale(domain=names, range=shapes), legend=legend),
            # the first line is broad, so that one that lies on it can be seen
            strokeWidth=alt.StrokeWidth(f"{series}:N", scale=alt.Scale(domain=names, range=widths), legend=None),
        )
    )


def level(value: float, label: str, *, x: float, column: str, below: bool = False) -> Chart:
    """A thin black line across a panel with a logarithmic axis at ``value``, its label left of ``x``."""
    import altair as alt

    data = alt.InlineData(values=[{column: value, "at": x, "label": label}])
    y = alt.Y(f"{column}:Q", scale=_logarithmic())
    rule = alt.Chart(data).mark_rule(color="black", strokeWidth=1).encode(y=y)
    text = alt.Chart(data).mark_text(align="right", dx=-4, dy=9 if below else -6)
    return rule + text.encode(x="at:Q", y=y, text="label:N")


def _logarithmic() -> Any:  # noqa: ANN401  (Altair's Scale)
    """A scale from the least to the largest value, with room for a label at both ends."""
    import altair as alt

    return alt.Scale(type="log", nice=False, padding=16)


def bars(rows: Sequence[Row], x: Axis, y: Axis, series: str, *, title: str = "", width: int = 640) -> Chart:
    """Bars side by side, one for each value of ``series``; one behind the other where ``x`` are numbers."""
    import altair as alt

    names = list(dict.fromkeys(str(row[series]) for row in rows))
    chart = alt.Chart(alt.InlineData(values=[dict(row) for row in rows]), width=width, height=260, title=title)
    legend = alt.Legend(title=None, labelLimit=0, symbolLimit=0)
    drawn = {
        "x": x.drawn(alt.X),
        "y": y.drawn(alt.Y),
        "color": alt.Color(f"{series}:N", sort=names, legend=legend),
    }
    if x.labels:
        return chart.mark_bar().encode(xOffset=alt.XOffset(f"{series}:N", sort=names), **drawn)
    # numbers along an axis have no width of their own
    return chart.mark_bar(size=max(1.0, 0.85 * width / len({row[x.column] for row in rows}))).encode(**drawn)


def heat_map(rows: Sequence[Row], x: Axis, y: Axis, value: str, *, title: str, limits: tuple[float, float]) -> Chart:
    """Cells coloured by ``value`` on a scale that panels beside one another share; blue to red where it has a sign."""
    import altair as alt

    signed = limits[0] < 0
    scale = alt.Scale(scheme="redblue" if signed else "viridis", domain=list(limits), reverse=signed)
    width = max(120, 22 * len({row[x.column] for row in rows}))
    return (
        alt.Chart(
            alt.InlineData(values=[dict(row) for row in rows]),
            width=width,
            height=240,
            title=title,
        )
        .mark_rect()
        .encode(
            x=x.drawn(alt.X),
            y=y.drawn(alt.Y),
            color=alt.Color(f"{value}:Q", scale=scale, legend=alt.Legend(labelLimit=0)),
        )
    )


def beside(panels: Sequence[Chart], *, columns: int, share_color: bool = True) -> Chart:
    """Panels in rows of ``columns``."""
    import altair as alt

    return alt.concat(*panels, columns=columns).resolve_scale(
        color="shared" if share_color else "independent", strokeDash="shared", shape="shared", strokeWidth="shared"
    )


def tall(rows: Sequence[Row], series: Mapping[str, str], *, key: str, value: str) -> list[Row]:
    """One row for each named column: ``series`` maps the name in the legend to the column."""
    return [
        {**row, key: name, value: row[column]}
        for name, column in series.items()
        for row in rows
        if row[column] is not None
    ]
