"""What a page shows of an answer beside its numbers: a chart, and which estimates tell nothing."""

from __future__ import annotations

from typing import Any

from sfumato.domain import Domain
from sfumato.query import Answer
from sfumato.query.answer import Value
from sfumato.query.question import Aggregate, Count, Distinct, Total, Variance, numeric

_MOST_BARS = 100
_WHOLE = 1 - 1e-9  # of the width of the bounds: their ends are rounded


def chart(found: Answer, domain: Domain) -> dict[str, Any] | None:
    """Bars with their intervals, as a Vega-Lite specification; none where there is one number, or too many.

    An estimate of too few rows has its interval and no bar, which would be as tall as those of many rows.
    """
    if not found.groups or not 1 < len(found.keys) <= _MOST_BARS:
        return None
    name = found.columns[0]
    values = [
        {"group": ", ".join(key), "estimate": row[0].estimate if told[0] else None}
        | {"low": row[0].low, "high": row[0].high}
        for key, row, told in zip(found.keys, found.values, telling(found, domain), strict=True)
    ]
    x = {
        "field": "group",
        "type": "nominal",
        "sort": None,
        "title": ", ".join(found.groups),
        "axis": {"labelAngle": -40, "labelOverlap": "parity"},
    }
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": f"{name} by {', '.join(found.groups)}, with intervals; the table has the same numbers",
        "width": "container",
        "height": 260,
        "data": {"values": values},
        "layer": [
            {"mark": "bar", "encoding": {"x": x, "y": {"field": "estimate", "type": "quantitative", "title": name}}},
            {
                "mark": {"type": "rule", "strokeWidth": 2, "color": "#222"},
                "encoding": {"x": x, "y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}},
            },
        ],
    }


def telling(found: Answer, domain: Domain) -> list[list[bool]]:
    """Of each estimate, by group and aggregate, whether its interval excludes anything that anyone may know."""
    return [
        [_tells(value, aggregate, domain) for value, aggregate in zip(row, found.query.aggregates, strict=True)]
        for row in found.values
    ]


def _tells(value: Value, aggregate: Aggregate, domain: Domain) -> bool:
    if isinstance(aggregate, Count | Distinct | Total):
        return True
    attribute = numeric(domain, aggregate.of)
    width = float(attribute.maximum - attribute.minimum)
    if isinstance(aggregate, Variance):  # of values half at either end
        width = width / 2 if aggregate.root else width**2 / 4
    return not value.high - value.low >= width * _WHOLE
