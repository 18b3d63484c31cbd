"""The published pictures of MWEM for every epsilon (bars, curves, heat maps, differences), and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato_labs import charts
from sfumato_labs.charts import ChartAxis, Panel
from sfumato_labs.lab import Plot, Row, Table

SYNTHETIC = ("printed", "mwem", "auto")


def counts_by_cell(
    domain: Domain, real: NDArray[np.int64], tables: Mapping[tuple[str, Fraction], NDArray[np.float64]]
) -> Table:
    """Return the table behind the pictures: real and synthetic counts of each cell at each epsilon in the last run."""
    rows: list[Row] = []
    for epsilon in dict.fromkeys(epsilon for _, epsilon in tables):
        for cell, codes in enumerate(np.ndindex(domain.shape)):
            labels = {attribute.name: attribute.labels()[code] for attribute, code in zip(domain, codes, strict=True)}
            synthetic = {name: float(tables[name, epsilon][cell]) for name in SYNTHETIC}
            rows.append({"epsilon": float(epsilon), **labels, "real": int(real[cell]), **synthetic})
    return tuple(rows)


def bars(counts: Table, first: str) -> Plot:
    """Plot real and synthetic counts along the first attribute, side by side, one panel per epsilon."""
    panels = [
        charts.bars(
            charts.tall(rows, {name: name for name in ("real", *SYNTHETIC)}, key="table", value="people"),
            ChartAxis(column=first, title=first, labels=True),
            ChartAxis(column="people", title="people"),
            series="table",
            title=f"epsilon {epsilon:g}",
            width=420,
        )
        for epsilon, rows in _along(counts, first).items()
    ]
    caption = f"People by {first}, real and synthetic. {_worst(counts, first, 'printed')}"
    return Plot("bars", caption, charts.side_by_side(panels, columns=2))


def curves(counts: Table, first: str) -> Plot:
    """Plot the real, the printed and the honest curve along the first attribute, one panel per epsilon."""
    panels = [
        charts.lines(
            charts.tall(rows, {name: name for name in ("real", "printed", "auto")}, key="table", value="people"),
            ChartAxis(column=first, title=first, labels=True),
            ChartAxis(column="people", title="people"),
            series="table",
            panel=Panel(title=f"epsilon {epsilon:g}", size=(420, 220)),
        )
        for epsilon, rows in _along(counts, first).items()
    ]
    caption = f"The same as curves. {_worst(counts, first, 'auto')}"
    return Plot("lines", caption, charts.side_by_side(panels, columns=2))


def differences(counts: Table, first: str) -> Plot:
    """Plot synthetic minus real counts along the first attribute, one panel per epsilon."""
    panels = []
    for epsilon, rows in _along(counts, first).items():
        minus = [
            {first: row[first], "table": name, "people": _people(row, name) - _people(row, "real")}
            for name in SYNTHETIC
            for row in rows
        ]
        panels.append(
            charts.lines(
                minus,
                ChartAxis(column=first, title=first, labels=True),
                ChartAxis(column="people", title="synthetic minus real, people"),
                series="table",
                panel=Panel(title=f"epsilon {epsilon:g}", size=(420, 220)),
            )
        )
    worst = max(_along(counts, first).items(), key=lambda item: _furthest(item[1], "printed"))
    caption = (
        f"Synthetic minus real count by {first}: the printed program is off by up to "
        f"{_furthest(worst[1], 'printed'):.0f} people at epsilon {worst[0]:g}, noise on the cells by up to "
        f"{_furthest(worst[1], 'auto'):.0f}."
    )
    return Plot("differences", caption, charts.side_by_side(panels, columns=2))


def heat_maps(counts: Table, first: str, second: str) -> Plot:
    """Plot real and printed cells, and their difference, one row per epsilon."""
    most = max(max(_people(row, "real"), _people(row, "printed")) for row in counts)
    limit = max(abs(_people(row, "printed") - _people(row, "real")) for row in counts) or 1.0
    panels = []
    for epsilon in dict.fromkeys(row["epsilon"] for row in counts):
        rows = [row for row in counts if row["epsilon"] == epsilon]
        for name in ("real", "printed", "auto"):
            cells = [{**row, "people": row[name]} for row in rows]
            panels.append(_cells(cells, first, second, title=f"{name}, epsilon {epsilon:g}", limits=(0.0, most)))
        cells = [{**row, "people": _people(row, "printed") - _people(row, "real")} for row in rows]
        title = f"printed minus real, epsilon {epsilon:g}"
        panels.append(_cells(cells, first, second, title=title, limits=(-limit, limit)))
    caption = (
        f"People by {first} and {second}, a row for each epsilon: real, printed, noise on the cells (auto), and what "
        f"the printed program has too many or too few of, at most {limit:.0f}."
    )
    return Plot("heat_maps", caption, charts.side_by_side(panels, columns=4, share_color=False))


def errors(rows: Table) -> Plot:
    """Plot the mean absolute error of every method by epsilon, both on logarithmic axes."""
    chart = charts.lines(
        rows,
        ChartAxis(column="epsilon", title="epsilon", log=True),
        ChartAxis(column="mean_error", title="mean absolute error, people", log=True),
        series="method",
        panel=Panel(size=(560, 340)),
    )
    names = []
    for epsilon in dict.fromkeys(row["epsilon"] for row in rows):
        rows_of_epsilon = [row for row in rows if row["epsilon"] == epsilon and row["mean_error"] is not None]
        best = min(rows_of_epsilon, key=lambda row: float(row["mean_error"] or 0))
        names.append(f"{best['method']} at {epsilon:g}")
    exact = any(row["mean_error"] == 0 for row in rows)
    beyond = " An error of 0 has no place on the logarithmic axis." if exact else ""
    return Plot("errors", f"Mean absolute error by epsilon. The least has {', '.join(names)}.{beyond}", chart)


def _cells(rows: Sequence[Row], first: str, second: str, *, title: str, limits: tuple[float, float]) -> charts.Chart:
    across, down = (
        ChartAxis(column=second, title=second, labels=True),
        ChartAxis(column=first, title=first, labels=True),
    )
    return charts.heat_map(rows, across, down, value="people", title=title, limits=limits)


def _along(counts: Table, first: str) -> dict[float, list[Row]]:
    """Return the counts by epsilon, summed over the other attributes."""
    merged: dict[float, dict[object, dict[str, str | float]]] = {}
    for row in counts:
        place = merged.setdefault(float(row["epsilon"] or 0), {}).setdefault(row[first], {first: str(row[first])})
        for name in ("real", *SYNTHETIC):
            place[name] = float(place.get(name, 0)) + _people(row, name)
    return {epsilon: list(rows.values()) for epsilon, rows in merged.items()}


def _people(row: Row, name: str) -> float:
    return float(row[name] or 0)


def _furthest(rows: Sequence[Row], name: str) -> float:
    return max(abs(_people(row, name) - _people(row, "real")) for row in rows)


def _worst(counts: Table, first: str, name: str) -> str:
    shares = {
        epsilon: 100
        * max(abs(_people(row, name) - _people(row, "real")) / max(_people(row, "real"), 1) for row in rows)
        for epsilon, rows in _along(counts, first).items()
    }
    text = ", ".join(f"{share:.2g} % at epsilon {epsilon:g}" for epsilon, share in shares.items())
    return f"The table '{name}' is off by at most {text} of a real count."
