"""What the pictures of an evaluation share: layers, sizes, one colour a family, and which releases they show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sfumato.evaluate.evaluation_result import EvaluationResult
from sfumato.evaluate.frontier import BASELINES
from sfumato.report.page import Row

PALETTE = ("#7f7f7f", "#2f86c6", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#6a51a3")
"""Distinct without red against green, and readable on white and on near-black."""
SHOWN = 4  # releases in pictures that show one release a panel


def over(values: Sequence[Row]) -> Any:  # noqa: ANN401  (charts of Altair have no useful type)
    """A layer over rows of values."""
    import altair as alt

    return alt.Chart(alt.InlineData(values=list(values)))


def sized(*layers: Any, height: int = 0, step: int = 0) -> dict[str, Any]:  # noqa: ANN401
    """Layers over one another, as wide as the page, of a height in pixels or of so many pixels a row."""
    import altair as alt

    drawn = layers[0] if len(layers) == 1 else alt.layer(*layers)
    found: dict[str, Any] = drawn.properties(width="container", height=alt.Step(step) if step else height).to_dict()
    return found


def family_colour(verdicts: Sequence[EvaluationResult]) -> Any:  # noqa: ANN401
    """One colour a family, the same in every picture of the page."""
    import altair as alt

    families = list(dict.fromkeys(verdict.family for verdict in verdicts))
    scale = alt.Scale(domain=families, range=list(PALETTE[: len(families)]))
    return alt.Color("family:N", title=None, scale=scale, legend=alt.Legend(orient="top", columns=3))


def selected(verdicts: Sequence[EvaluationResult]) -> tuple[EvaluationResult, ...]:
    """Of each family the most useful release, at most four: for pictures with a panel a release."""
    best: dict[str, EvaluationResult] = {}
    for verdict in verdicts:
        if verdict.family == BASELINES:
            continue
        kept = best.get(verdict.family)
        if kept is None or verdict.marginals[1] > kept.marginals[1]:
            best[verdict.family] = verdict
    if len(best) == 1:
        return tuple(verdict for verdict in verdicts if verdict.family != BASELINES)[:SHOWN]
    return tuple(best.values())[:SHOWN] or tuple(verdicts)[:1]


def released(verdicts: Sequence[EvaluationResult]) -> tuple[EvaluationResult, ...]:
    """All but the baselines; the baselines where there is nothing else."""
    return tuple(verdict for verdict in verdicts if verdict.family != BASELINES) or tuple(verdicts)


def baseline(verdicts: Sequence[EvaluationResult], name: str) -> EvaluationResult | None:
    """The baseline of that name, where it was judged."""
    return next((verdict for verdict in verdicts if verdict.family == BASELINES and verdict.name == name), None)
