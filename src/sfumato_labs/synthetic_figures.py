"""The chapter's pictures, from the tables of the lab: ages as bars, errors by width of a range, and heat maps."""

from __future__ import annotations

from collections.abc import Sequence

from sfumato_labs import charts
from sfumato_labs.charts import ChartAxis, Panel
from sfumato_labs.lab import Plot, Row, Table


def lesson(widths: Table) -> str:
    """Return sentences on the effect of wide ranges on a histogram and on a direct answer."""
    narrow, wide = widths[0], widths[-1]
    return (
        f"A range of {wide['width']} values is {wide['histogram_percent']:.2g} % off as a sum of a histogram's cells "
        f"and {wide['direct_percent']:.2g} % as one answer; a range of {narrow['width']} is "
        f"{narrow['histogram_percent']:.2g} % and {narrow['direct_percent']:.2g} % off."
    )


def ages(rows: Table, name: str) -> Plot:
    """Plot shares of rows by age as bars, one panel per table."""
    tables = [table for table in rows[0] if table != name]
    most = max(_number(row, table) for row in rows for table in tables)
    panels = [
        charts.bars(
            [{name: row[name], "share": row[table], "table": table} for row in rows],
            ChartAxis(column=name, title=name, zero=False),
            ChartAxis(column="share", title="share of rows", limits=(0.0, most)),
            series="table",
            title=table,
            width=330,
        )
        for table in tables
    ]
    apart = {table: sum(abs(_number(row, table) - _number(row, "real")) for row in rows) / 2 for table in tables}
    shares_text = ", ".join(f"{share:.2%} of {table}" for table, share in apart.items() if table != "real")
    caption = f"Shares of rows by {name} as printed. In the wrong place are {shares_text}."
    return Plot("ages", caption, charts.side_by_side(panels, columns=2))


def widths(rows: Table) -> Plot:
    """Plot the percent error of a range by its width, as a sum of cells and as one answer."""
    series = {"histogram": "histogram_percent", "direct": "direct_percent"}
    chart = charts.lines(
        charts.tall(rows, series, key="method", value="percent"),
        ChartAxis(column="width", title=f"values in the range, from {rows[0]['from']}", log=True),
        ChartAxis(column="percent", title="error, % of the true count", log=True),
        series="method",
        panel=Panel(),
    )
    return Plot("widths", f"Percent error by width of a range. {lesson(rows)}", chart)


def heat_maps(rows: Table, name: str, category: str) -> Plot:
    """Plot bands of the numbers by category, one panel per table."""
    first = f"{name}_from"
    tables = [table for table in rows[0] if table not in {first, category}]
    most = max(_number(row, table) for row in rows for table in tables)
    panels = [
        charts.heat_map(
            [{first: row[first], category: row[category], "rows": row[table]} for row in rows],
            ChartAxis(column=first, title=f"{name} from", labels=True),
            ChartAxis(column=category, title=category, labels=True),
            value="rows",
            title=table,
            limits=(0.0, most),
        )
        for table in tables
    ]
    apart = {table: _apart(rows, table) for table in tables}
    caption = (
        f"{name} by {category} as honest releases keep them: {apart['one-way']:.1%} of the rows of the one-way release "
        f"are in a wrong cell, {apart['two-way']:.1%} of the two-way one."
    )
    return Plot("heat_maps", caption, charts.side_by_side(panels, columns=3))


def _apart(rows: Sequence[Row], table: str) -> float:
    """Return the share of a table's rows that would have to move to match the shares of the real one."""
    own, real = (max(sum(_number(row, each) for row in rows), 1.0) for each in (table, "real"))
    return sum(abs(_number(row, table) / own - _number(row, "real") / real) for row in rows) / 2


def _number(row: Row, column: str) -> float:
    return float(row[column] or 0)


def method_lesson(statistic: str, method: str) -> str:
    """Return the lesson for a line of the index."""
    if method.endswith("direct"):
        return "one answer has one noise however wide its range, and every further one costs as much again"
    if method.endswith("histogram"):
        return "a histogram answers every range for one epsilon; the noise of its cells adds up"
    if method.endswith("10 000 rows"):
        about_rows = "a mean can be read off a sample of any size, and errs by the drawing more than by the noise"
        return about_rows if statistic.startswith("mean") else "a sample of another size answers counts wrongly"
    if method.endswith("charged rows"):
        return "the number of rows has its price: printed it is a second epsilon, here a tenth of one"
    return "cells that are read from the data are not charged; declared ones are"
