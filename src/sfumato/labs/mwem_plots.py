"""The published pictures: bars, lines and heat maps of real against synthetic counts, and errors by epsilon."""

from __future__ import annotations

from typing import Any

import numpy as np

from sfumato.labs.lab import Plot, Row, Table
from sfumato.labs.mwem_experiment import SHOWN, Experiment, Outcome

_METHODS = ("printed", "mwem", "auto")


def counts(experiment: Experiment, outcome: Outcome) -> Table:
    """The table behind the pictures: real and synthetic counts of every cell at the shown epsilon."""
    rows: list[Row] = []
    for cell, codes in enumerate(np.ndindex(experiment.domain.shape)):
        labels = {
            attribute.name: attribute.labels()[code] for attribute, code in zip(experiment.domain, codes, strict=True)
        }
        synthetic = {method: float(outcome.tables[method][cell]) for method in _METHODS}
        rows.append({**labels, "real": int(experiment.counts[cell]), **synthetic})
    return tuple(rows)


def bars(experiment: Experiment, outcome: Outcome) -> Plot:
    """Real and synthetic counts by age, side by side."""
    import altair as alt

    chart = (
        alt.Chart(_by_age(experiment, outcome, ("real", *_METHODS)), width=640, height=280)
        .mark_bar()
        .encode(
            x=alt.X("age:O", title="age", axis=alt.Axis(labelAngle=0)),
            xOffset=alt.XOffset("table:N", sort=["real", *_METHODS]),
            y=alt.Y("people:Q", title="people"),
            color=alt.Color("table:N", sort=["real", *_METHODS], title=None),
        )
    )
    return Plot(
        "bars", f"Children by age, real and synthetic at epsilon {SHOWN}: the bars are hard to tell apart.", chart
    )


def lines(experiment: Experiment, outcome: Outcome) -> Plot:
    """Error of the synthetic counts by age."""
    import altair as alt

    chart = (
        alt.Chart(_by_age(experiment, outcome, _METHODS, minus_real=True), width=640, height=280)
        .mark_line(point=True)
        .encode(
            x=alt.X("age:O", title="age", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("people:Q", title="synthetic minus real"),
            color=alt.Color("table:N", sort=list(_METHODS), title=None),
        )
    )
    caption = f"Synthetic minus real count by age at epsilon {SHOWN}: noise on the cells themselves errs least."
    return Plot("lines", caption, chart)


def heat_maps(experiment: Experiment, outcome: Outcome) -> Plot:
    """Age by satisfaction, real beside synthetic."""
    import altair as alt

    first, second = experiment.domain.names
    rows = [
        {first: row[first], second: row[second], "table": table, "people": row[table]}
        for row in counts(experiment, outcome)
        for table in ("real", *_METHODS)
    ]
    chart = (
        alt.Chart(alt.InlineData(values=rows), width=110, height=280)
        .mark_rect()
        .encode(
            x=alt.X(f"{second}:O", axis=alt.Axis(labelAngle=0)),
            y=alt.Y(f"{first}:O", sort=list(experiment.domain[first].labels())),
            color=alt.Color("people:Q", scale=alt.Scale(scheme="viridis")),
            column=alt.Column("table:N", sort=["real", *_METHODS], title=None),
        )
    )
    return Plot("heat_maps", f"Children by age and satisfaction, real and synthetic at epsilon {SHOWN}.", chart)


def errors(outcome: Outcome) -> Plot:
    """Mean absolute error of every method by epsilon, both on logarithmic axes."""
    import altair as alt

    rows = [dict(row) for row in outcome.errors if row["mean_error"]]  # a logarithm has no zero
    chart = (
        alt.Chart(alt.InlineData(values=rows), width=640, height=320)
        .mark_line(point=True)
        .encode(
            x=alt.X("epsilon:Q", scale=alt.Scale(type="log"), title="epsilon"),
            y=alt.Y("mean_error:Q", scale=alt.Scale(type="log"), title="mean absolute error, people"),
            color=alt.Color("method:N", title=None),
        )
    )
    return Plot("errors", "Mean absolute error by epsilon: lower is better; an error of zero is not drawn.", chart)


def _by_age(experiment: Experiment, outcome: Outcome, tables: tuple[str, ...], *, minus_real: bool = False) -> Any:  # noqa: ANN401
    import altair as alt

    shape = experiment.domain.shape
    real = experiment.counts.reshape(shape[0], -1).sum(axis=1)
    rows = []
    for name in tables:
        people = real if name == "real" else outcome.tables[name].reshape(shape[0], -1).sum(axis=1)
        shown = people - real if minus_real else people
        rows += [{"age": age, "table": name, "people": float(count)} for age, count in enumerate(shown)]
    return alt.InlineData(values=rows)
