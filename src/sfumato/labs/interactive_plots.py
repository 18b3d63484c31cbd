"""Pictures of the interactive lab."""

from __future__ import annotations

from sfumato.labs.lab import Plot, Table
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Epsilon


def averages(rows: Table) -> Plot:
    """Distance of the average from the truth by number of answers."""
    import altair as alt

    chart = (
        alt.Chart(alt.InlineData(values=[dict(row) for row in rows]), width=560, height=300)
        .mark_line(point=True)
        .encode(
            x=alt.X("queries:Q", scale=alt.Scale(type="log"), title="answers averaged"),
            y=alt.Y("mean_distance:Q", scale=alt.Scale(type="log"), title="distance of the average from the count"),
            color=alt.Color("regime:N", title=None),
            strokeDash=alt.StrokeDash("regime:N", title=None),
        )
    )
    caption = "The average of answers with fixed noise falls into the true count; under a budget it does not."
    return Plot("averages", caption, chart)


def danger(rows: Table) -> Plot:
    """Probability that the average gives the count away."""
    import altair as alt

    chart = (
        alt.Chart(alt.InlineData(values=[dict(row) for row in rows]), width=560, height=280)
        .mark_line(point=True)
        .encode(
            x=alt.X("queries:Q", scale=alt.Scale(type="log"), title="answers averaged"),
            y=alt.Y("exact_percent:Q", title="within one half of the count, %"),
            color=alt.Color("epsilon:N"),
            strokeDash=alt.StrokeDash("epsilon:N"),
        )
    )
    return Plot("danger", "Without a budget a few thousand answers at epsilon 0.1 give the count away.", chart)


def neighbours(count: int, loss: Epsilon) -> Plot:
    """The distributions of one honest answer with and without Dugong."""
    import altair as alt

    noise = DiscreteLaplace.for_loss(loss, 1)
    reach = noise.quantile("0.95")
    values = [
        {"answer": answer, "probability": noise.pmf(answer - true), "table": name}
        for name, true in (("with Dugong", count), ("without Dugong", count - 1))
        for answer in range(count - reach, count + reach + 1, max(1, reach // 150))
    ]
    chart = (
        alt.Chart(alt.InlineData(values=values), width=560, height=240)
        .mark_line()
        .encode(
            x=alt.X("answer:Q"),
            y=alt.Y("probability:Q"),
            color=alt.Color("table:N", title=None),
            strokeDash=alt.StrokeDash("table:N", title=None),
        )
    )
    return Plot("neighbours", f"One answer at {loss}: hardly more likely with Dugong than without.", chart)
