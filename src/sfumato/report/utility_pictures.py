"""Pictures of utility: columns, pairs, correlations, queries, learners and what they cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from sfumato.domain import Domain
from sfumato.evaluate.evaluation_result import SELECTIVITIES, EvaluationResult
from sfumato.evaluate.frontier import CEILING, FLOOR, baseline, released, selected
from sfumato.report.page import Chart, Plot, Row, family_colour, over, sized

_COLUMNS = 16  # columns drawn in small multiples
_ERRORS = (0, 0.001, 0.01, 0.1, 0.5)
_CELLS = 60  # cells of a column drawn; wider ones are drawn in runs


def column_picture(results: Sequence[EvaluationResult], domain: Domain, *, internal: bool) -> Plot:
    """Every column of one release; with the exact shares where the report is internal."""
    import altair as alt

    shown = max(selected(results), key=lambda result: result.marginals[1])
    panels: list[Chart] = []
    table: list[Row] = []
    for attribute in domain.attributes[:_COLUMNS]:
        labels = attribute.labels()
        # a baseline, which stands here where nothing else was made, has no columns for the public
        sources = {"released": shown.columns[attribute.name]} if shown.columns else {}
        if internal:
            sources["exact"] = shown.real_columns[attribute.name]
        if not sources:
            continue
        distance = shown.pair_distance[domain.index(attribute.name)][domain.index(attribute.name)]
        run = math.ceil(len(labels) / _CELLS)
        values: list[Row] = [
            {
                "cell": labels[start] if run == 1 else f"{labels[start]} ..",
                "order": start,
                "source": source,
                "share": sum(shares[start : start + run]),
            }
            for source, shares in sources.items()
            for start in range(0, len(labels), run)
        ]
        few = len(labels) <= 3  # noqa: PLR2004 (labels that fit under their bars)
        encoding = {
            "x": alt.X(
                "cell:N",
                sort=alt.SortField("order"),
                title=None,
                axis=alt.Axis(labels=few, ticks=few, labelAngle=0, labelLimit=60),
            ),
            "y": alt.Y("share:Q", title=None, axis=alt.Axis(format="%", tickCount=3)),
            "tooltip": [alt.Tooltip("cell:N"), alt.Tooltip("source:N"), alt.Tooltip("share:Q", format=".2%")],
        }
        base = over(values)
        layers = [base.transform_filter("datum.source == 'released'").mark_bar(color="#0072b2").encode(**encoding)]
        if internal:
            layers.append(
                base.transform_filter("datum.source == 'exact'")
                .mark_tick(color="#d55e00", thickness=2)
                .encode(**encoding)
            )
        panels.append(Chart(f"{attribute.name} (off by {distance:.1%})", sized(*layers, height=110)))
        for place, label in enumerate(labels):
            row: dict[str, str | int | float | None] = {"column": attribute.name, "cell": label}
            row |= {source: shares[place] for source, shares in sources.items()}
            table.append(row)
    worst = max(range(len(domain)), key=lambda place: shown.pair_distance[place][place])
    exact = "Ticks are the exact shares. " if internal else ""
    return Plot(
        "columns",
        title=f"Every column of {shown.name}",
        caption=f"{exact}The share of people in a wrong cell is written over each column; it is largest for "
        f"{domain.names[worst]}, {shown.pair_distance[worst][worst]:.1%}. A column that is right says nothing about "
        "how columns hang together: see the next two pictures.",
        alternative=f"Small bar charts of {len(panels)} columns of {shown.name}.",
        charts=tuple(panels),
        table=tuple(table),
    )


def pair_picture(results: Sequence[EvaluationResult]) -> Plot:
    """Total variation of every pair of columns, as a heat map."""
    shown = selected(results)
    table: list[Row] = [
        {"release": result.name, "first": one, "second": two, "total variation": result.pair_distance[a][b]}
        for result in shown
        for a, one in enumerate(result.attributes)
        for b, two in enumerate(result.attributes)
        if a <= b
    ]
    worst = max(table, key=lambda row: float(row["total variation"] or 0))
    panels = tuple(
        Chart(result.name, _heat(result, result.pair_distance, "orangered", (0.0, 0.5), "share misplaced"))
        for result in shown
    )
    return Plot(
        "pairs",
        title="How wrong is every pair of columns",
        caption=f"Dark pairs cannot be used together. The worst is {worst['first']} with {worst['second']} in "
        f"{worst['release']}: {float(worst['total variation'] or 0):.0%} of the people are in a wrong cell. "
        "On the diagonal stand single columns.",
        alternative=f"Heat maps of the total variation of all pairs of {len(shown[0].attributes)} columns, "
        f"one for each of "
        f"{len(shown)} releases.",
        charts=panels,
        table=tuple(table),
    )


def association_picture(results: Sequence[EvaluationResult]) -> Plot:
    """Released minus real correlation or Cramér's V."""
    shown = selected(results)
    table: list[Row] = [
        {
            "release": result.name,
            "first": one,
            "second": two,
            "released minus real": result.association_difference[a][b],
        }
        for result in shown
        for a, one in enumerate(result.attributes)
        for b, two in enumerate(result.attributes)
        if a < b
    ]
    gap, one, two = max((result.association_gap for result in shown), key=lambda found: found[0])
    panels = tuple(
        Chart(
            result.name,
            _heat(result, result.association_difference, "purpleorange", (-0.5, 0.5), "released minus real"),
        )
        for result in shown
    )
    return Plot(
        "associations",
        title="Correlations gained and lost",
        caption="Purple: weaker than in truth, or more negative; orange: stronger. "
        f"The largest gap is {gap:.2f}, between {one} and {two}. "
        "Pearson's correlation for two numbers, otherwise Cramér's V.",
        alternative=f"Heat maps of the difference of association of all pairs of columns, one for each of "
        f"{len(shown)} releases.",
        charts=panels,
        table=tuple(table),
    )


def query_picture(results: Sequence[EvaluationResult]) -> Plot:
    """Errors of random conjunctions by how many people they count."""
    import altair as alt

    groups = [f"{low:.1%} to {high:.1%}" for low, high in pairwise(SELECTIVITIES)]
    table: list[Row] = [
        {
            "release": result.name,
            "family": result.family,
            "query counts": group,
            "lower decile": low,
            "median": middle,
            "upper decile": high,
        }
        for result in released(results)
        for group, (low, middle, high, count) in zip(groups, result.query_errors, strict=True)
        if count
    ]
    panels = []
    for group in groups:
        values = [row for row in table if row["query counts"] == group]
        if not values:
            continue
        y = alt.Y("release:N", sort=None, title=None, axis=alt.Axis(labelLimit=170))
        error = alt.Scale(type="symlog", constant=0.0005)
        base = over(values)
        colour = family_colour([result.family for result in results]).legend(None)
        tooltip = [
            alt.Tooltip("release:N"),
            *(alt.Tooltip(f"{key}:Q", format=".3%") for key in ("lower decile", "median", "upper decile")),
        ]
        span = base.mark_rule(strokeWidth=3, opacity=0.5).encode(
            y=y,
            x=alt.X("lower decile:Q", title="absolute error", scale=error, axis=alt.Axis(format="~%", values=_ERRORS)),
            x2=alt.X2("upper decile:Q"),
            color=colour,
            tooltip=tooltip,
        )
        middle_mark = base.mark_point(filled=True, size=50, opacity=1).encode(
            y=y, x=alt.X("median:Q"), color=colour, tooltip=tooltip
        )
        panels.append(
            Chart(
                f"queries that count {group} of the table",
                sized(span, middle_mark, step=15),
            )
        )
    best = min(released(results), key=lambda result: result.query_error)
    return Plot(
        "queries",
        title="Errors of 1000 random queries, by selectivity",
        caption=f"Points are medians, bars reach from the lower to the upper decile. {best.name} answers best, off by "
        f"{best.query_error:.2%} of the table on average. An error as large as the share makes an answer useless.",
        alternative="Ranges of the absolute error of random conjunctions for every release, by how many "
        "people they count.",
        charts=tuple(panels),
        table=tuple(table),
    )


def learning_picture(results: Sequence[EvaluationResult], journal: Sequence[Row]) -> Plot:
    """Scores of learners trained on releases, beside what the releases cost."""
    import altair as alt

    table: list[Row] = [
        {
            "release": result.name,
            "family": result.family,
            "guarantee": result.claim,
            "target": result.learning[0],
            "measure": result.learning[1],
            "score": result.learning[2],
            "standard error": result.standard_errors["learner"],
            "told apart from real rows": result.propensity,
        }
        for result in results
        if result.learning is not None
    ]
    if not table:
        return Plot(
            "learning",
            title="Trained on the release, tested on people",
            caption="No release of this page has rows to learn from.",
            alternative="No chart.",
            charts=(),
            table=tuple(journal),
        )
    measure = f"{table[0]['measure']} for {table[0]['target']}, on people who are in no release"
    bars = (
        over(table)
        .mark_bar()
        .encode(
            y=alt.Y("release:N", sort=None, title=None, axis=alt.Axis(labelLimit=170)),
            x=alt.X("score:Q", title=measure, scale=alt.Scale(domain=[0, 1])),
            color=family_colour([result.family for result in results]),
            tooltip=[alt.Tooltip("release:N"), alt.Tooltip("guarantee:N"), alt.Tooltip("score:Q", format=".3f")],
        )
    )
    ceiling, floor = baseline(results, CEILING), baseline(results, FLOOR)
    ends = "".join(
        f" {label} {found.learning[2]:.3f}."
        for label, found in (("Other people reach", ceiling), ("Independent columns give", floor))
        if found is not None and found.learning is not None
    )
    panels = [Chart("", sized(bars, step=20))]
    if journal:
        spent = (
            over(list(journal))
            .mark_line(interpolate="step-after", point=True, color="#0072b2")
            .encode(
                x=alt.X("entry:O", title="journal entry"),
                y=alt.Y("spent:Q", title="spent so far"),
                tooltip=[alt.Tooltip("entry:O"), alt.Tooltip("statement:N"), alt.Tooltip("spent:Q")],
            )
        )
        panels.append(Chart("Budget journal", sized(spent, height=200)))
    costs = (
        f"Guarantee of all releases in the journal together: {journal[-1]['guarantee_so_far']}."
        if journal
        else "The table beside each score names what it promises."
    )
    return Plot(
        "learning",
        title="Budget, and what learners make of it",
        caption=f"Gradient boosting trained on the release and tested on real people.{ends} {costs}",
        alternative="Bars of the score of a learner trained on every release.",
        charts=tuple(panels),
        table=(*table, *journal),
    )


def _heat(
    result: EvaluationResult,
    matrix: tuple[tuple[float, ...], ...],
    scheme: Any,  # noqa: ANN401  (one of Vega's names)
    domain: tuple[float, float],
    title: str,
) -> dict[str, Any]:
    import altair as alt

    values: list[Row] = [
        {"first": one, "second": two, title: matrix[a][b]}
        for a, one in enumerate(result.attributes)
        for b, two in enumerate(result.attributes)
    ]
    order = list(result.attributes)
    return sized(
        over(values)
        .mark_rect()
        .encode(
            x=alt.X("second:N", sort=order, title=None, axis=alt.Axis(labelAngle=-60, labelLimit=90)),
            y=alt.Y("first:N", sort=order, title=None, axis=alt.Axis(labelLimit=90)),
            color=alt.Color(
                f"{title}:Q",
                scale=alt.Scale(scheme=scheme, domain=list(domain), clamp=True),
                legend=alt.Legend(orient="top", gradientLength=160),
            ),
            tooltip=[alt.Tooltip("first:N"), alt.Tooltip("second:N"), alt.Tooltip(f"{title}:Q", format=".3f")],
        ),
        step=17,
    )
