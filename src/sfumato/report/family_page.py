"""The page of a release of linked tables: children a parent, siblings, transitions, and what baselines reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from sfumato.evaluate.linked.family_evaluation import RELEASE, EdgeResult, FamilyResult
from sfumato.report.page import PALETTE, Chart, Page, Plot, Row, ShownTable, over, sized

_BARS = 40  # sizes that are drawn; larger ones come together in the last
_DIGITS = 3
_INTERNAL = "Internal: this page contains exact numbers of the protected tables. It must not leave the steward's hands."
_MEANINGS = {
    "size": "children a parent",
    "parent1": "a column of parents",
    "parent2": "two columns of parents",
    "parent3": "three columns of parents",
    "child1": "a column of children",
    "child2": "two columns of children",
    "child3": "three columns of children",
    "cross2": "a parent's column with a child's",
    "cross3": "three columns of parent and child",
    "sibling": "a column of each of two siblings",
    "sibling_same": "the same column of two siblings",
    "transition": "a column of a child and of the next",
    "trigram": "a column of three in a row",
}


def family_page(title: str, found: FamilyResult, *, internal: bool = False) -> Page:
    """The page of a result.

    Args:
        title: of the page.
        found: the release judged.
        internal: also show exact sizes and numbers of rows, and say so across the top.
    """
    plots: list[Plot] = []
    overview: dict[str, ShownTable] = {}
    for edge in found.edges:
        overview[f"{edge.parents} with {edge.children}: share in a wrong cell, on average"] = _scores(edge)
        plots += [_score_picture(edge), _size_picture(edge, internal=internal)]
        plots += _pair_pictures(edge)
    if found.attacks:
        overview["What can be stolen of a family"] = _attacks(found)
    overview["Rows of the release that break what the schema says"] = _rows(found.released)
    details = {"Rows of the protected tables": _rows(found.real)} if internal else {}
    return Page(
        title=title,
        warning=_INTERNAL if internal else "",
        terms={"Guarantee": "none is stated" if found.claim is None else str(found.claim)},
        notes=(
            (
                "The scores on this page were computed from the protected tables, without noise: no guarantee covers "
                "them. A score is a mean of total variations, 0 where release and table agree. 'The same units drawn "
                "again' is what chance alone does; 'children dealt at random' are both tables without any error and "
                "without the tie between them: a release that is no better keeps no families."
            ),
        ),
        overview=overview,
        details=details,
        plots=tuple(plots),
        digits=_DIGITS,
    )


def _scores(edge: EdgeResult) -> ShownTable:
    rows: list[Row] = []
    for measure, meaning in _MEANINGS.items():
        row: dict[str, str | int | float | bool | None] = {"of": meaning}
        row |= {name: asdict(each.scores)[measure] for name, each in edge.compared.items()}
        rows.append(row)
    return tuple(rows)


def _attacks(found: FamilyResult) -> ShownTable:
    return tuple(
        {
            "attack": each.attack,
            "attacker knows": each.knowledge,
            "on members": each.members.value,
            "on others": each.controls.value,
            "advantage": each.value,
            "95 % interval": f"{each.interval.low:+.3f} to {each.interval.high:+.3f}",
            "bound": each.bound,
        }
        for each in found.attacks
    )


def _rows(read: Mapping[str, object]) -> ShownTable:
    from sfumato.evaluate.linked.family_tables import RowsRead

    rows: list[Row] = []
    for name, each in read.items():
        assert isinstance(each, RowsRead)
        rows.append(
            {
                "table": name,
                "rows": each.rows,
                "judged": each.kept,
                "cell not declared": each.undeclared,
                "key repeated": each.repeated,
                "without a parent": each.ownerless,
                "beyond the most of a parent": each.beyond,
            }
        )
    return tuple(rows)


def _score_picture(edge: EdgeResult) -> Plot:
    import altair as alt

    values: list[Row] = [
        {"of": meaning, "families": name, "share": asdict(each.scores)[measure]}
        for measure, meaning in _MEANINGS.items()
        for name, each in edge.compared.items()
        if asdict(each.scores)[measure] is not None
    ]
    names = list(edge.compared)
    marks = (
        over(values)
        .mark_point(filled=True, size=70, opacity=0.9)
        .encode(
            x=alt.X("share:Q", title="share in a wrong cell"),
            y=alt.Y("of:N", sort=list(_MEANINGS.values()), title=None, axis=alt.Axis(labelLimit=220)),
            color=alt.Color(
                "families:N",
                title=None,
                sort=names,
                scale=alt.Scale(domain=names, range=["#2f86c6", "#7f7f7f", "#d55e00", "#b8860b"]),
                legend=alt.Legend(orient="top", columns=2),
            ),
            tooltip=[alt.Tooltip("of:N"), alt.Tooltip("families:N"), alt.Tooltip("share:Q", format=".4f")],
        )
    )
    worse = [
        meaning
        for measure, meaning in _MEANINGS.items()
        if measure in ("cross2", "cross3", "sibling", "transition", "trigram")
        and (own := asdict(edge.compared[RELEASE].scores)[measure]) is not None
        and own >= asdict(edge.compared["children dealt at random"].scores)[measure]
    ]
    said = (
        f"No better than children dealt at random: {', '.join(worse)}."
        if worse
        else ("Whatever ties parents and children is better kept than by children dealt at random.")
    )
    return Plot(
        f"scores-{edge.children}",
        title=f"{edge.parents} with {edge.children}: what is kept",
        caption=f"Left is better; grey is as good as chance allows. {said}",
        alternative=f"Points of the scores of the release and of three baselines, for {edge.children}.",
        charts=(Chart("", sized(marks, step=22)),),
        table=tuple(values),
    )


def _size_picture(edge: EdgeResult, *, internal: bool) -> Plot:
    import altair as alt

    sources = {"release": edge.sizes} | ({"exact": edge.real_sizes} if internal else {})
    values: list[Row] = []
    for source, shares in sources.items():
        drawn = [*shares[:_BARS], sum(shares[_BARS:])] if len(shares) > _BARS else list(shares)
        values += [
            {
                "children": f"{_BARS} or more" if size == _BARS else str(size),
                "order": size,
                "source": source,
                "share": each,
            }
            for size, each in enumerate(drawn)
        ]
    base = over(values)
    shown = {
        "x": alt.X("children:N", sort=alt.SortField("order"), title=f"{edge.children} of one of {edge.parents}"),
        "y": alt.Y("share:Q", title=None, axis=alt.Axis(format="%")),
        "tooltip": [alt.Tooltip("children:N"), alt.Tooltip("source:N"), alt.Tooltip("share:Q", format=".2%")],
    }
    layers = [base.transform_filter("datum.source == 'release'").mark_bar(color=PALETTE[1]).encode(**shown)]
    if internal:
        exact = base.transform_filter("datum.source == 'exact'").mark_tick(color=PALETTE[2], thickness=2)
        layers.append(exact.encode(**shown))
    off = edge.compared[RELEASE].scores.size
    return Plot(
        f"sizes-{edge.children}",
        title=f"How many {edge.children}",
        caption=f"{'Ticks are exact. ' if internal else ''}{off:.2%} of {edge.parents} would need another number.",
        alternative=f"Bars of the share of {edge.parents} by their number of {edge.children}.",
        charts=(Chart("", sized(*layers, height=180)),),
        table=tuple(values),
    )


def _pair_pictures(edge: EdgeResult) -> list[Plot]:
    """Heat maps of siblings and of transitions, where there are any."""
    import altair as alt

    compared = edge.compared[RELEASE]
    found = []
    for name, title, distances, sides in (
        ("siblings", "Two of one parent", compared.siblings, ("one", "other")),
        ("transitions", "One and the next", compared.transitions, ("earlier", "next")),
    ):
        if not distances:
            continue
        values: list[Row] = [
            {sides[0]: names[0], sides[1]: names[1], "off by": off} for names, off in distances.items()
        ]
        worst = max(distances, key=lambda names: distances[names])
        order = list(dict.fromkeys(each for names in distances for each in names))
        drawn = (
            over(values)
            .mark_rect()
            .encode(
                x=alt.X(f"{sides[1]}:N", sort=order, axis=alt.Axis(labelAngle=-60, labelLimit=90)),
                y=alt.Y(f"{sides[0]}:N", sort=order, axis=alt.Axis(labelLimit=90)),
                color=alt.Color(
                    "off by:Q",
                    title="share in a wrong cell",
                    scale=alt.Scale(scheme="orangered", domain=[0, 0.5], clamp=True),
                    legend=alt.Legend(orient="top", gradientLength=160),
                ),
                tooltip=[
                    alt.Tooltip(f"{sides[0]}:N"),
                    alt.Tooltip(f"{sides[1]}:N"),
                    alt.Tooltip("off by:Q", format=".3f"),
                ],
            )
        )
        found.append(
            Plot(
                f"{name}-{edge.children}",
                title=f"{title}: {edge.children}",
                caption=f"Dark pairs cannot be used together. The worst is {worst[0]} with {worst[1]}: "
                f"{distances[worst]:.1%} are in a wrong cell.",
                alternative=f"Heat map of the total variation of pairs of columns of two {edge.children}.",
                charts=(Chart("", sized(drawn, step=24)),),
                table=tuple(values),
            )
        )
    return found
