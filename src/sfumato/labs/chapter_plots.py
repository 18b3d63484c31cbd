"""The chapter's pictures: ages of real and synthetic rows, error by width of a range, age by occupation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.labs.lab import Plot

Counts = NDArray[np.int64]

_BAND = 10  # years


def ages(real: Counts, one_way: Counts, two_way: Counts) -> Plot:
    """Number of rows by age: real, sampled from the age histogram, and from the two-way table."""
    import altair as alt

    series = {
        "real": real.sum(axis=1),
        "one-way marginal": one_way,
        "two-way marginal": two_way.sum(axis=1),
    }
    rows = [
        {"age": age, "table": name, "rows": int(count)}
        for name, counts in series.items()
        for age, count in enumerate(counts)
    ]
    chart = (
        alt.Chart(alt.InlineData(values=rows), width=640, height=280)
        .mark_line()
        .encode(
            x=alt.X("age:Q"),
            y=alt.Y("rows:Q"),
            color=alt.Color("table:N", sort=list(series), title=None),
        )
    )
    return Plot("ages", "Rows by age at epsilon 1: the two-way marginal follows the real ages less smoothly.", chart)


def widths(width: list[int], histogram: list[float], direct: list[float]) -> Plot:
    """Percent error of ranges by their width."""
    import altair as alt

    rows = [
        {"width": years, "method": method, "percent_error": error}
        for method, errors in (("histogram", histogram), ("direct", direct))
        for years, error in zip(width, errors, strict=True)
        if error  # a logarithm has no zero
    ]
    chart = (
        alt.Chart(alt.InlineData(values=rows), width=640, height=280)
        .mark_line(point=True)
        .encode(
            x=alt.X("width:Q", scale=alt.Scale(type="log"), title="years in the range, from 30"),
            y=alt.Y("percent_error:Q", scale=alt.Scale(type="log"), title="percent error"),
            color=alt.Color("method:N", title=None),
        )
    )
    caption = "Percent error by width of a range: noise of a histogram adds up, a direct answer only gets better."
    return Plot("widths", caption, chart)


def heat_maps(domain: Domain, real: Counts, one_way: Counts, two_way: Counts) -> Plot:
    """Age bands by occupation: real, one-way, two-way."""
    import altair as alt

    labels = domain["occupation"].labels()
    rows = [
        {"age": f"{_BAND * band:02d}", "occupation": label, "table": name, "rows": int(count)}
        for name, counts in (("real", real), ("one-way", one_way), ("two-way", two_way))
        for band, per_band in enumerate(np.add.reduceat(counts, np.arange(0, len(counts), _BAND), axis=0))
        for label, count in zip(labels, per_band, strict=True)
    ]
    chart = (
        alt.Chart(alt.InlineData(values=rows), width=200, height=280)
        .mark_rect()
        .encode(
            x=alt.X("age:O", title="age from", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("occupation:N", title=None),
            color=alt.Color("rows:Q", scale=alt.Scale(scheme="viridis")),
            column=alt.Column("table:N", sort=["real", "one-way", "two-way"], title=None),
        )
    )
    caption = "Age by occupation: one-way marginals spread every occupation over the same ages, a two-way one does not."
    return Plot("heat_maps", caption, chart)
