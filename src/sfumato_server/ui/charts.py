"""What the page draws: estimates with their intervals, and what more or less epsilon would give."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from sfumato.domain import Domain
from sfumato.errors import SfumatoError
from sfumato.ledger import Account
from sfumato.privacy.loss import Epsilon, Loss, Rho
from sfumato.query import Answer
from sfumato.query.aggregates import Aggregate, ExpectedError
from sfumato.query.answer import NoisyValue

MOST_BARS = 100
_MOST_COLOURS = 8
_MOST_CHARTS = 4  # columns of an answer that are drawn
_MOST_ROWS = 50_000  # of an answer that travels in the page as a file
_WHOLE = 1 - 1e-9  # of the width of the bounds: their ends are rounded
_FACTORS = (Fraction(1, 4), Fraction(1, 2), Fraction(1), Fraction(2), Fraction(4))


def charts(found: Answer, domain: Domain) -> list[dict[str, Any]]:
    """Bars with their intervals as Vega-Lite specifications, one a column; none where there is one row, or too many.

    An estimate of too few rows has its interval and no bar, which would be as tall as those of many rows.
    """
    if not found.groups or not 1 < len(found.keys) <= MOST_BARS:
        return []
    told = telling(found, domain)
    return [_chart(found, column, [row[column] for row in told]) for column in range(len(found.columns))[:_MOST_CHARTS]]


def _chart(found: Answer, column: int, told: list[bool]) -> dict[str, Any]:
    """One column: bars by groups, side by side and in colours by one of them that has few cells, where there is one."""
    name, coloured = found.columns[column], _coloured(found)
    others = [place for place in range(len(found.groups)) if place != coloured]
    values = [
        {
            "group": ", ".join(key[place] for place in others),
            "estimate": row[column].estimate if tells else None,
            "low": row[column].low,
            "high": row[column].high,
        }
        | ({} if coloured is None else {"series": key[coloured]})
        for key, row, tells in zip(found.keys, found.values, told, strict=True)
    ]
    title = ", ".join(found.groups[place] for place in others)
    y = {"field": "group", "type": "nominal", "sort": None, "title": title, "axis": {"labelLimit": 240}}
    apart = {"labelSeparation": 8}  # pixels: labels of thousands run into one another
    bars: dict[str, Any] = {"x": {"field": "estimate", "type": "quantitative", "title": name, "axis": apart}}
    both: dict[str, Any] = {"y": y}
    if coloured is not None:
        legend = {"orient": "top", "columns": 3, "labelLimit": 160}
        series = {"field": "series", "type": "nominal", "sort": None}
        bars["color"] = series | {"title": found.groups[coloured], "legend": legend}
        both["yOffset"] = series
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": f"{name} by {', '.join(found.groups)}, with intervals; the table has the same numbers",
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        "height": {"step": 14 if coloured is not None else 26},
        "data": {"values": values},
        "encoding": both,
        "layer": [
            {"mark": "bar", "encoding": bars},
            {
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}},
            },
        ],
    }


def _coloured(found: Answer) -> int | None:
    """Of several groups the one with the fewest cells, if a legend can tell them apart by their colours."""
    if len(found.groups) == 1:
        return None
    sizes = [len({key[place] for key in found.keys}) for place in range(len(found.groups))]
    least = min(range(len(sizes)), key=sizes.__getitem__)
    return least if sizes[least] <= _MOST_COLOURS else None


def telling(found: Answer, domain: Domain) -> list[list[bool]]:
    """Of each estimate, by group and aggregate, whether its interval excludes anything that anyone may know."""
    return [
        [_tells(value, aggregate, domain) for value, aggregate in zip(row, found.query.aggregates, strict=True)]
        for row in found.values
    ]


def _tells(value: NoisyValue, aggregate: Aggregate, domain: Domain) -> bool:
    return value.high - value.low < aggregate.largest_interval(domain) * _WHOLE


def files(found: Answer) -> dict[str, str]:
    """The answer as files that the page carries itself, by their ending: fetching one asks nothing again."""
    from pyarrow import csv, parquet

    if len(found.keys) > _MOST_ROWS:
        return {}
    table, text, packed = found.to_arrow(), io.BytesIO(), io.BytesIO()
    csv.write_csv(table, text)
    parquet.write_table(table, packed)
    kinds = {"csv": ("text/csv", text), "parquet": ("application/vnd.apache.parquet", packed)}
    return {
        ending: f"data:{media};base64,{base64.b64encode(held.getvalue()).decode()}"
        for ending, (media, held) in kinds.items()
    }


@dataclass(frozen=True)
class Step:
    """What one loss would give.

    Attributes:
        loss: in words.
        half_width: of the widest interval among the answers.
        bar: its length, of the longest: 0 to 1.
        share: of what is left, 0 to 1; None where that is not known, and above 1 where it is too much.
        chosen: whether it is the loss that was asked about.
    """

    loss: str
    half_width: float
    bar: float
    share: float | None
    chosen: bool


def steps(loss: Loss, expected: Callable[[Loss], Iterable[ExpectedError]], own: Account) -> list[Step]:
    """What a quarter of a loss would give, and half of it, all, double and four times; none of epsilon with delta."""
    if not isinstance(loss, Epsilon | Rho):
        return []
    widths: dict[Fraction, float] = {}
    for factor in _FACTORS:
        try:
            widths[factor] = max((each.half_width for each in expected(loss * factor)), default=0.0)
        except SfumatoError:  # beyond what can be asked for
            continue
    most = max(widths.values(), default=0.0)
    return [
        Step(
            str(loss * factor),
            width,
            width / most if most else 0.0,
            share_of(loss * factor, own),
            factor == 1,
        )
        for factor, width in widths.items()
    ]


def share_of(loss: Loss, own: Account) -> float | None:
    """How much of what is left a loss would take; None where nothing limits it, or in another measure."""
    if own.limit is None or own.left is None or type(loss) is not type(own.limit) or not own.left:
        return None
    return float(loss.value / own.left) if isinstance(loss, Epsilon | Rho) else None
