"""The evaluation page: ten pictures in one HTML file that works offline."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources

from sfumato.app.report.pictures import Picture, Row, baseline
from sfumato.app.report.risk_pictures import (
    attack_picture,
    claim_picture,
    class_picture,
    curve_picture,
    frontier_picture,
)
from sfumato.app.report.utility_pictures import (
    association_picture,
    column_picture,
    learning_picture,
    pair_picture,
    query_picture,
)
from sfumato.domain import Domain
from sfumato.evaluate.audit.audit import Finding
from sfumato.evaluate.frontier import CEILING, FLOOR, without_exact_shares
from sfumato.evaluate.utility.scores import rescaled
from sfumato.evaluate.verdict import Verdict

_ROWS = 2000  # of a table behind a picture; longer ones end with a remark
_CLOSED = "</"


def evaluation_page(
    title: str,
    verdicts: Sequence[Verdict],
    domain: Domain,
    *,
    findings: Sequence[Finding] = (),
    journal: Sequence[Row] = (),
    internal: bool = False,
) -> str:
    """One self-contained HTML document.

    Args:
        title: of the page.
        verdicts: the releases judged, baselines included.
        domain: labels the cells.
        findings: audits of mechanisms, for the picture of claims.
        journal: entries of the ledger with what was spent so far.
        internal: also show exact shares of the protected table, and say so across the top.
    """
    if not internal:
        verdicts = [without_exact_shares(verdict) for verdict in verdicts]
    pictures = (
        frontier_picture(verdicts),
        attack_picture(verdicts),
        claim_picture(verdicts, findings),
        curve_picture(verdicts),
        class_picture(verdicts),
        column_picture(verdicts, domain, internal=internal),
        pair_picture(verdicts),
        association_picture(verdicts),
        query_picture(verdicts),
        learning_picture(verdicts, journal),
    )
    return _render(
        title,
        pictures,
        {"utility": _utility(verdicts), "risk": _risk(verdicts), "samples": _samples(verdicts)},
        internal=internal,
    )


def _utility(verdicts: Sequence[Verdict]) -> tuple[Row, ...]:
    floor, ceiling = baseline(verdicts, FLOOR), baseline(verdicts, CEILING)
    rows: list[Row] = []
    for verdict in verdicts:
        scale = None
        if floor is not None and ceiling is not None:
            scale = rescaled(verdict.marginals[1], floor=floor.marginals[1], ceiling=ceiling.marginals[1])
        rows.append(
            {
                "release": verdict.name,
                "guarantee": verdict.claim,
                "U1": verdict.marginals[0],
                "U2": verdict.marginals[1],
                "U3": verdict.marginals[2],
                "U2 from floor (0) to other people (1)": scale,
                "query error": verdict.query_error,
                "learner": None if verdict.learning is None else verdict.learning[2],
                "told apart": verdict.propensity,
            }
        )
    return tuple(rows)


def _risk(verdicts: Sequence[Verdict]) -> tuple[Row, ...]:
    return tuple(
        {
            "release": verdict.name,
            "guarantee": verdict.claim,
            "worst attack": verdict.headline.attack,
            "advantage": verdict.headline.value,
            "95 % interval": f"{verdict.headline.interval.low:+.3f} to {verdict.headline.interval.high:+.3f}",
            "bound": verdict.headline.bound,
        }
        for verdict in verdicts
    )


def _samples(verdicts: Sequence[Verdict]) -> tuple[Row, ...]:
    """Where a sample was looked at, and what that leaves uncertain; attacks have intervals instead."""
    rows: list[Row] = []
    for verdict in verdicts:
        row: dict[str, str | int | float | None] = {"release": verdict.name}
        rows.append(row | verdict.sampled)
    for verdict in verdicts:
        errors: dict[str, str | int | float | None] = {"release": verdict.name}
        rows.append(errors | {f"standard error of {what}": error for what, error in verdict.standard_errors.items()})
    return tuple(rows)


def _render(
    title: str, pictures: tuple[Picture, ...], overview: Mapping[str, tuple[Row, ...]], *, internal: bool
) -> str:
    from jinja2 import Environment
    from markupsafe import Markup

    text = resources.files("sfumato.app.report").joinpath("evaluation.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["figure"] = figure
    charts = {
        f"{picture.name}-{number}": panel.specification
        for picture in pictures
        for number, panel in enumerate(picture.panels)
    }
    data = json.dumps(charts, separators=(",", ":"), allow_nan=False).replace(_CLOSED, "<\\/")
    return environment.from_string(text).render(
        title=title,
        pictures=pictures,
        overview=overview,
        internal=internal,
        limit=_ROWS,
        charts=Markup(data),  # noqa: S704  (JSON, and no tag can be closed in it)
        bundle=Markup(_bundle()),  # noqa: S704  (the renderer)
    )


def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script, about 0.9 MB, that no tag inside can close."""
    import vl_convert

    exported = "window.vegaEmbed = vegaEmbed;"
    return vl_convert.javascript_bundle(exported).replace("</script", "<\\/script")


def figure(value: object) -> str:
    """An entry of a table as text: four significant digits, a dash for what is not known.

    >>> figure(0.123456), figure(None), figure(12), figure(float("nan"))
    ('0.1235', '-', '12', '-')
    """
    match value:
        case None:
            return "-"
        case float() if value != value:  # noqa: PLR0124  (NaN differs from itself)
            return "-"
        case float():
            return f"{value:.4g}"
        case _:
            return str(value)
