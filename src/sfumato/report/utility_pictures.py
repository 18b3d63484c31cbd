"""Pictures of utility: columns, pairs, correlations, queries, learners and what they cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from sfumato.domain import Domain
from sfumato.errors import percent, pluralize
from sfumato.evaluate.evaluation_result import SELECTIVITIES, EvaluationResult
from sfumato.evaluate.frontier import CEILING, FLOOR, baseline, released, selected
from sfumato.report.page import Chart, Plot, Row, layer, method_color, release_axis, sized, tooltips, top_legend

_COLUMNS = 16  # columns drawn in small multiples
_ERRORS = (0, 0.001, 0.01, 0.1, 0.5)
_LEAST_STEP, _LARGEST_STEP, _HEIGHT = 17, 40, 400  # pixels of a row, and of all rows, of a heat map
_CELLS = 60  # cells of a column drawn; wider ones are drawn in runs


def column_picture(results: Sequence[EvaluationResult], domain: Domain, *, internal: bool) -> Plot:
    """Draw every column of one release; with the exact shares in an internal report."""
    release = max(selected(results), key=lambda result: result.marginals[1])
    panels: list[Chart] = []
    table: list[Row] = []
    for attribute in domain.attributes[:_COLUMNS]:
        labels = attribute.labels()
        # a baseline, which stands here if nothing else was made, has no columns for the public
        sources = {"released": release.columns[attribute.name]} if release.columns else {}
        if internal:
            sources["exact"] = release.real_columns[attribute.name]
        if not sources:
            continue
        place = domain.index(attribute.name)
        heading = f"{attribute.name} (off by {percent(release.pair_distance[place][place])})"
        panels.append(Chart(heading, _column_bars(labels, sources)))
        for code, label in enumerate(labels):
            row: dict[str, str | int | float | None] = {"column": attribute.name, "cell": label}
            table.append(row | {source: shares[code] for source, shares in sources.items()})
    worst = max(range(len(domain)), key=lambda place: release.pair_distance[place][place])
    exact = "Ticks are the exact shares. " if internal else ""
    return Plot(
        "columns",
        title=f"Every column of {release.name}",
        caption=f"{exact}The share of people in a wrong cell is written over each column; it is largest for "
        f"{domain.names[worst]}, {percent(release.pair_distance[worst][worst])}. A column with a small error "
        "does not show the ties between columns: see the next two pictures.",
        alternative=f"Small bar charts of {len(panels)} columns of {release.name}.",
        charts=tuple(panels),
        table=tuple(table),
    )


def _column_bars(labels: Sequence[str], sources: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return bars of the released shares of a column, with ticks at the exact ones if they are given."""
    import altair as alt

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
        "tooltip": tooltips("cell", "source", numbers=("share",), form=".2%"),
    }
    base = layer(values)
    layers = [base.transform_filter("datum.source == 'released'").mark_bar(color="#0072b2").encode(**encoding)]
    if "exact" in sources:
        ticks = base.transform_filter("datum.source == 'exact'").mark_tick(color="#d55e00", thickness=2)
        layers.append(ticks.encode(**encoding))
    return sized(*layers, height=110)


def pair_picture(results: Sequence[EvaluationResult]) -> Plot:
    """Draw the total variation of every pair of columns as a heat map."""
    releases = selected(results)
    table = [row for result in releases for row in _pair_rows(result, result.pair_distance, "total variation", 0)]
    pairs = (row for row in table if row["first"] != row["second"])
    worst = max(pairs, key=lambda row: float(row["total variation"] or 0))
    panels = tuple(
        Chart(result.name, _heat(result, result.pair_distance, "orangered", (0.0, 0.5), "share misplaced"))
        for result in releases
    )
    return Plot(
        "pairs",
        title="How wrong is every pair of columns",
        caption=f"Dark pairs cannot be used together. The worst is {worst['first']} with {worst['second']} in "
        f"{worst['release']}: {percent(float(worst['total variation'] or 0))} of the people are in a wrong cell. "
        "On the diagonal stand single columns.",
        alternative=f"Heat maps of the total variation of all pairs of {len(releases[0].attributes)} columns, "
        f"one for each of {pluralize(len(releases), 'release')}.",
        charts=panels,
        table=tuple(table),
    )


def association_picture(results: Sequence[EvaluationResult]) -> Plot:
    """Draw released minus real correlation or Cramér's V."""
    releases, what = selected(results), "released minus real"
    table = [row for result in releases for row in _pair_rows(result, result.association_difference, what, 1)]
    gap, one, two = max((result.association_gap for result in releases), key=lambda each: each[0])
    panels = tuple(
        Chart(result.name, _heat(result, result.association_difference, "purpleorange", (-0.5, 0.5), what))
        for result in releases
    )
    return Plot(
        "associations",
        title="Correlations gained and lost",
        caption="Purple: weaker than in truth, or more negative; orange: stronger. "
        f"The largest gap is {gap:.2f}, between {one} and {two}. "
        "Pearson's correlation for two numbers, otherwise Cramér's V.",
        alternative="Heat maps of the difference of association of all pairs of columns, one for each of "
        f"{pluralize(len(releases), 'release')}.",
        charts=panels,
        table=tuple(table),
    )


def _pair_rows(result: EvaluationResult, matrix: tuple[tuple[float, ...], ...], name: str, after: int) -> list[Row]:
    """Return one row per pair of columns, of which the second stands at least so many places after the first."""
    return [
        {"release": result.name, "first": one, "second": result.attributes[b], name: matrix[a][b]}
        for a, one in enumerate(result.attributes)
        for b in range(a + after, len(result.attributes))
    ]


def query_picture(results: Sequence[EvaluationResult]) -> Plot:
    """Draw errors of random conjunctions by how many people they count."""
    groups = [f"{percent(low)} to {percent(high)}" for low, high in pairwise(SELECTIVITIES)]
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
    color = method_color([result.family for result in results]).legend(None)
    by_group = {group: [row for row in table if row["query counts"] == group] for group in groups}
    best = min(released(results), key=lambda result: result.query_error)
    return Plot(
        "queries",
        title="Errors of 1,000 random queries, by selectivity",
        caption=f"Points are medians, bars reach from the lower to the upper decile. {best.name} answers best, off by "
        f"{percent(best.query_error)} of the table on average. An error as large as the share makes an answer useless.",
        alternative="Ranges of the absolute error of random conjunctions for every release, by how many "
        "people they count.",
        charts=tuple(
            Chart(f"queries that count {group} of the table", _error_ranges(rows, color))
            for group, rows in by_group.items()
            if rows
        ),
        table=tuple(table),
    )


def _error_ranges(rows: Sequence[Row], color: Any) -> dict[str, Any]:  # noqa: ANN401  (charts of Altair)
    import altair as alt

    error = alt.Scale(type="symlog", constant=0.0005)
    base, y = layer(rows), release_axis()
    tooltip = tooltips("release", numbers=("lower decile", "median", "upper decile"), form=".3%")
    ranges = base.mark_rule(strokeWidth=3, opacity=0.5).encode(
        y=y,
        x=alt.X("lower decile:Q", title="absolute error", scale=error, axis=alt.Axis(format="~%", values=_ERRORS)),
        x2=alt.X2("upper decile:Q"),
        color=color,
        tooltip=tooltip,
    )
    medians = base.mark_point(filled=True, size=50, opacity=1).encode(
        y=y, x=alt.X("median:Q"), color=color, tooltip=tooltip
    )
    return sized(ranges, medians, step=15)


def learning_picture(results: Sequence[EvaluationResult], journal: Sequence[Row]) -> Plot:
    """Draw scores of learners trained on releases, next to what the releases cost."""
    table = _learner_scores(results)
    if not table:
        return Plot(
            "learning",
            title="Trained on the release, tested on people",
            caption="No release of this page has rows to learn from.",
            alternative="No chart.",
            charts=(),
            table=tuple(journal),
        )
    ceiling, floor = baseline(results, CEILING), baseline(results, FLOOR)
    ends = "".join(
        f" {label} {end.learning[2]:.3f}."
        for label, end in (("Other people reach", ceiling), ("Independent columns give", floor))
        if end is not None and end.learning is not None
    )
    costs = (
        f"Guarantee of all releases in the journal together: {journal[-1]['guarantee_so_far']}."
        if journal
        else "The numbers below name the guarantee of each release."
    )
    return Plot(
        "learning",
        title="Budget, and what learners make of it" if journal else "What learners make of the release",
        caption=f"Gradient boosting trained on the release and tested on real people.{ends} {costs}",
        alternative="Bars of the score of a learner trained on every release.",
        charts=(Chart("", _score_bars(table, [result.family for result in results])), *_budget_chart(journal)),
        table=(*table, *journal),
    )


def _learner_scores(results: Sequence[EvaluationResult]) -> list[Row]:
    return [
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


def _score_bars(table: Sequence[Row], kinds: Sequence[str]) -> dict[str, Any]:
    import altair as alt

    measure = f"{table[0]['measure']} for {table[0]['target']}"
    bars = (
        layer(table)
        .mark_bar()
        .encode(
            y=release_axis(),
            x=alt.X("score:Q", title=measure, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5)),
            color=method_color(kinds),
            tooltip=tooltips("release", "guarantee", numbers=("score",)),
        )
    )
    return sized(bars, step=20)


def _budget_chart(journal: Sequence[Row]) -> tuple[Chart, ...]:
    import altair as alt

    if not journal:
        return ()
    spent = (
        layer(journal)
        .mark_line(interpolate="step-after", point=True, color="#0072b2")
        .encode(
            x=alt.X("entry:O", title="journal entry"),
            y=alt.Y("spent:Q", title="spent so far"),
            tooltip=[alt.Tooltip("entry:O"), alt.Tooltip("statement:N"), alt.Tooltip("spent:Q")],
        )
    )
    return (Chart("Budget journal", sized(spent, height=200)),)


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
        layer(values)
        .mark_rect()
        .encode(
            x=alt.X("second:N", sort=order, title=None, axis=alt.Axis(labelAngle=-60, labelLimit=90)),
            y=alt.Y("first:N", sort=order, title=None, axis=alt.Axis(labelLimit=90)),
            color=alt.Color(
                f"{title}:Q",
                scale=alt.Scale(scheme=scheme, domain=list(domain), clamp=True),
                legend=top_legend(gradientLength=160),
            ),
            tooltip=tooltips("first", "second", numbers=(title,)),
        ),
        step=max(_LEAST_STEP, min(_LARGEST_STEP, _HEIGHT // len(order))),
    )
