"""Pictures of risk: the frontier, the attacks, claims against proof, the membership curve, class sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sfumato.errors import percent, pluralize
from sfumato.evaluate.audit.audit import Finding
from sfumato.evaluate.evaluation_result import EvaluationResult
from sfumato.evaluate.frontier import CEILING, FLOOR, baseline, released
from sfumato.report.page import Chart, Plot, Row, dashed, layer, method_color, release_axis, sized, tooltips, top_legend

_CLASSES = ("1 (unique)", "2 to 4", "5 to 9", "10 to 49", "50 and more")
_LOWEST_RATE = 1e-3


def frontier_picture(results: Sequence[EvaluationResult]) -> Plot:
    """Draw utility against the worst attack, with floor, ceiling and theoretical bounds."""
    rows: list[Row] = [
        {
            "release": result.name,
            "family": result.family,
            "guarantee": result.claim,
            "mark": result.name.rpartition(", ")[2],
            "U2": result.marginals[1],
            "worst attack": result.headline.attack,
            "advantage": result.headline.value,
            "low": result.headline.interval.low,
            "high": result.headline.interval.high,
            "bound": _bound(result),
        }
        for result in results
        if result.headline is not None
    ]
    ends: list[Row] = [
        {"end": label, "U2": end.marginals[1]}
        for label, name in (("other people", CEILING), ("independent columns", FLOOR))
        if (end := baseline(results, name)) is not None
    ]
    return Plot(
        "frontier",
        title="Utility against risk",
        caption=_frontier_caption(released(results)),
        alternative=f"Scatter plot of {len(rows)} releases: horizontally the advantage of the worst of four "
        "attacks with its 95 % interval, vertically the share of two-way marginals preserved.",
        charts=(Chart("", sized(*_frontier_layers(rows, ends), height=420)),),
        table=tuple(rows),
    )


def _frontier_layers(rows: Sequence[Row], ends: Sequence[Row]) -> list[Any]:
    import altair as alt

    risk = alt.X(
        "advantage:Q",
        title="worst attack: success on members minus success on others",
        scale=alt.Scale(type="symlog", constant=0.05, domain=[-0.1, 1]),
        axis=alt.Axis(values=[-0.1, 0, 0.1, 0.2, 0.5, 1]),
    )
    utility = alt.Y("U2:Q", title="pairs preserved (U2)", scale=alt.Scale(zero=False))
    tooltip = tooltips("release", "guarantee", "worst attack", numbers=("U2", "advantage", "low", "high"))
    color = method_color([str(row["family"]) for row in rows])
    base = layer(rows)
    return [
        layer(ends).mark_rule(strokeDash=[5, 4], color="#888").encode(y=alt.Y("U2:Q")),
        base.transform_filter("datum.bound != null")
        .mark_tick(orient="vertical", thickness=3, size=18, opacity=0.6)
        .encode(x=alt.X("bound:Q"), y=utility, color=color, tooltip=[*tooltip, *tooltips(numbers=("bound",))]),
        base.mark_rule(clip=True).encode(x=alt.X("low:Q"), x2=alt.X2("high:Q"), y=utility, color=color),
        base.mark_point(filled=True, size=80, opacity=1).encode(x=risk, y=utility, color=color, tooltip=tooltip),
        base.mark_text(align="left", dx=7, dy=-7, fontSize=9).encode(
            x=risk, y=utility, color=color, text=alt.Text("mark:N")
        ),
    ]


def _frontier_caption(results: Sequence[EvaluationResult]) -> str:
    lowest = [(result, result.headline.interval.low) for result in results if result.headline is not None]
    leaks = [result for result, low in lowest if low > 0]
    without_leak = [result for result, low in lowest if low <= 0]
    best = max(without_leak, key=lambda result: result.marginals[1], default=None)
    measured = f"{len(leaks)} of {pluralize(len(results), 'release')}"
    caption = f"Best is top left. Interval right of zero, which is a measured leak: {measured}. "
    if best is not None and len(results) > 1:
        caption += f"The most useful release without a measured leak is {best.name} (U2 {best.marginals[1]:.3f}). "
    return caption + (
        "Short thick ticks are the most that a guarantee allows any attack. "
        "An interval that covers zero says that these attacks failed, not that the release is private."
    )


def attack_picture(results: Sequence[EvaluationResult]) -> Plot:
    """Draw the success of every attack on members next to that on controls."""
    table: list[Row] = [
        {
            "release": result.name,
            "attack": advantage.attack,
            "attacker knows": advantage.knowledge,
            "members": advantage.members.value,
            "controls": advantage.controls.value,
            "advantage": advantage.value,
            "low": advantage.interval.low,
            "high": advantage.interval.high,
            "bound": advantage.bound,
        }
        for result in results
        for advantage in result.attacks
    ]
    attacks = dict.fromkeys(str(row["attack"]) for row in table)
    large = [row for row in table if isinstance(row["low"], float) and row["low"] > 0]
    return Plot(
        "attacks",
        title="Attacks on members and on controls",
        caption="Only the difference of the two bars is a leak: what works on people outside the table is "
        f"knowledge about the population. {len(large)} of {len(table)} differences are above zero with 95 % "
        "confidence each. The table says what each attacker knows.",
        alternative="Pairs of bars for every release and attack: share of members and share of controls on "
        "whom it succeeds.",
        charts=tuple(
            Chart(attack, _success_bars([row for row in table if row["attack"] == attack])) for attack in attacks
        ),
        table=tuple(table),
    )


def _success_bars(rows: Sequence[Row]) -> dict[str, Any]:
    import altair as alt

    groups = ["members", "controls"]
    values: list[Row] = [
        {"release": row["release"], "people": people, "success": row[people]} for row in rows for people in groups
    ]
    bars = (
        layer(values)
        .mark_bar()
        .encode(
            y=release_axis(),
            yOffset=alt.YOffset("people:N", sort=groups),
            x=alt.X("success:Q", title="share of people", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5)),
            color=alt.Color(
                "people:N",
                title=None,
                scale=alt.Scale(domain=groups, range=["#d55e00", "#9aa5b1"]),
                legend=top_legend(),
            ),
            tooltip=tooltips("release", "people", numbers=("success",)),
        )
    )
    return sized(bars, step=9)


def claim_picture(results: Sequence[EvaluationResult], findings: Sequence[Finding]) -> Plot:
    """Draw the claimed loss against the proven loss."""
    table: list[Row] = [
        {
            "name": result.name,
            "source": "attack on a release",
            "claimed": result.claimed_epsilon,
            "proven": result.proven_epsilon,
        }
        for result in released(results)
    ]
    table += [
        {"name": finding.name, "source": "audit of a mechanism", "claimed": finding.claimed, "proven": finding.proven}
        for finding in findings
        if finding.measure == "epsilon"
    ]
    claims = [row for row in table if row["claimed"] is not None]
    broken = [str(row["name"]) for row in claims if float(row["proven"] or 0) > float(row["claimed"] or 0)]
    summary = f"Broken promises: {', '.join(broken)}." if broken else "No promise was caught broken."
    return Plot(
        "claims",
        title="Claimed epsilon against what could be proved",
        caption=f"{summary} A point above the dashed line has lost more than it claims. Points below it prove nothing: "
        "a lower bound near the claim shows that the audit was sharp, a low one only that it was not.",
        alternative=f"Scatter plot of {len(claims)} claimed losses against their empirical lower bounds, with "
        f"the diagonal.",
        charts=(Chart("", _claim_points(claims)),),
        table=tuple(table),
    )


def _claim_points(claims: Sequence[Row]) -> dict[str, Any]:
    import altair as alt

    diagonal: list[Row] = [{"claimed": 0.05, "proven": 0.05}, {"claimed": 100.0, "proven": 100.0}]
    both = alt.Scale(type="symlog", constant=0.1)
    x = alt.X("claimed:Q", title="claimed epsilon", scale=both, axis=alt.Axis(values=[0, 0.1, 1, 10, 100], format="~r"))
    y = alt.Y("proven:Q", title="proven at least", scale=both, axis=alt.Axis(values=[0, 0.1, 1, 10, 100], format="~r"))
    points = (
        layer(claims)
        .mark_point(filled=True, size=70, opacity=0.8)
        .encode(
            x=x,
            y=y,
            shape=alt.Shape("source:N", title=None, legend=top_legend(columns=1)),
            color=alt.Color("source:N", title=None, scale=alt.Scale(range=["#0072b2", "#d55e00"])),
            tooltip=[*tooltips("name", "source"), alt.Tooltip("claimed:Q"), *tooltips(numbers=("proven",))],
        )
    )
    return sized(dashed(diagonal).encode(x=x, y=y), points, height=320)


def curve_picture(results: Sequence[EvaluationResult]) -> Plot:
    """Draw membership curves on logarithmic axes."""
    table: list[Row] = [
        {
            "release": result.name,
            **{f"found at {percent(rate)} false alarms": _at(result, rate) for rate in (0.01, 0.05, 0.1)},
        }
        for result in results
    ]
    sharpest = max(results, key=lambda result: _at(result, 0.01))
    most = f"{percent(_at(sharpest, 0.01))} of the members of {sharpest.name}, the most of all"
    return Plot(
        "membership",
        title="Membership attack, at every threshold",
        caption="On the dashed diagonal the attacker guesses. What counts is the left end, where a guess is "
        f"nearly sure: at 1 % false alarms it finds {most if _at(sharpest, 0.01) else 'no member of any table'}.",
        alternative="Curves of members found against controls taken for members, both on logarithmic axes, "
        "one for every release.",
        charts=(Chart("", _curves(results)),),
        table=tuple(table),
    )


def _curves(results: Sequence[EvaluationResult]) -> dict[str, Any]:
    import altair as alt

    values: list[Row] = [
        {
            "release": result.name,
            "family": result.family,
            "false": max(false, _LOWEST_RATE),
            "true": max(true, _LOWEST_RATE),
        }
        for result in results
        for false, true in result.curve
    ]
    log = alt.Scale(type="log", domain=[_LOWEST_RATE, 1])
    ticks = alt.Axis(values=[0.001, 0.01, 0.1, 1])
    x = alt.X("false:Q", title="controls taken for members", scale=log, axis=ticks)
    y = alt.Y("true:Q", title="members found", scale=log, axis=ticks)
    diagonal: list[Row] = [{"false": _LOWEST_RATE, "true": _LOWEST_RATE}, {"false": 1.0, "true": 1.0}]
    lines = (
        layer(values)
        .mark_line(interpolate="step-after", opacity=0.8)
        .encode(
            x=x,
            y=y,
            detail=alt.Detail("release:N"),
            color=method_color([result.family for result in results]),
            tooltip=tooltips("release"),
        )
    )
    return sized(dashed(diagonal).encode(x=x, y=y), lines, height=340)


def class_picture(results: Sequence[EvaluationResult]) -> Plot:
    """Draw how many released rows share all their cells."""
    table: list[Row] = [
        {"release": result.name, **dict(zip(_CLASSES, result.class_sizes, strict=True))}
        for result in results
        if result.class_sizes is not None
    ]
    anonymous = [row for row in table if not row[_CLASSES[0]]]
    return Plot(
        "classes",
        title="Class sizes and uniques",
        caption="Rows that are equal in every column hide one another. Without a unique row: "
        f"{len(anonymous)} of {pluralize(len(table), 'table')}. For synthetic rows, uniqueness alone is no risk, "
        "because no row is a person.",
        alternative="Stacked bars for every release: shares of rows in classes of one, two to four, five to "
        "nine, and more.",
        charts=(Chart("", _class_bars(table)),),
        table=tuple(table),
    )


def _class_bars(table: Sequence[Row]) -> dict[str, Any]:
    import altair as alt

    values: list[Row] = [
        {"release": row["release"], "rows in the class": size, "order": order, "share": row[size]}
        for row in table
        for order, size in enumerate(_CLASSES)
    ]
    bars = (
        layer(values)
        .mark_bar()
        .encode(
            y=release_axis(),
            x=alt.X(
                "share:Q",
                title="share of released rows",
                stack="zero",
                scale=alt.Scale(domain=[0, 1]),
                axis=alt.Axis(tickCount=5),
            ),
            color=alt.Color(
                "rows in the class:N",
                sort=list(_CLASSES),
                scale=alt.Scale(domain=list(_CLASSES), range=["#d55e00", "#e69f00", "#cbb677", "#7fb3d5", "#0072b2"]),
                legend=top_legend(columns=3, title="equal rows"),
            ),
            order=alt.Order("order:Q"),
            tooltip=tooltips("release", "rows in the class", numbers=("share",)),
        )
    )
    return sized(bars, step=20)


def _bound(result: EvaluationResult) -> float | None:
    """Return the attack success that the guarantee allows, or None if it allows any."""
    bounds = [
        advantage.bound
        for advantage in result.attacks
        if advantage.bound is not None and advantage.attack == "membership"
    ]
    return bounds[0] if bounds and bounds[0] < 1 else None


def _at(result: EvaluationResult, rate: float) -> float:
    return max((true for false, true in result.curve if false <= rate), default=0.0)
