"""The page of a synthetic release: its statement, and what the released rows look like."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from sfumato.report.page import Page, Plot, Row, Table

if TYPE_CHECKING:
    from sfumato.domain import Attribute, Domain
    from sfumato.synthesize.synthetic import Synthetic

_MOST_PICTURES = 12
_MOST_BARS = 60


def release_page(title: str, release: Synthetic) -> Page:
    """A page of what is public anyway: statement, expected errors, one-way marginals of the synthetic table."""
    provenance = release.provenance
    shown = [attribute for attribute in release.model.domain if attribute.size <= _MOST_BARS][:_MOST_PICTURES]
    counts = _counts(release, shown)
    return Page(
        title=title,
        terms={
            "Guarantee": release.guarantee,
            "Cost": release.cost,
            "Method": str(provenance.get("method")),
            "Journal entry": str(provenance.get("journal_entry")),
            "Rows": f"{len(release.rows):,}",
        },
        notes=(
            "Everything on this page is released: it may be shown to anyone, and looking at it costs nothing.",
            *(str(reason) for reason in provenance.get("chosen_among", ())),
        ),
        plots=tuple(_bars(attribute, counts[attribute.name]) for attribute in shown),
        tables={
            "expected_error": tuple({"of": name, "rows": error} for name, error in release.expected_error.items()),
            **counts,
        },
    )


def _counts(release: Synthetic, shown: list[Attribute]) -> dict[str, Table]:
    from sfumato.model.simulation import generator

    codes = release.model.sample(generator())
    domain: Domain = release.model.domain
    tables: dict[str, Table] = {}
    for attribute in shown:
        found = Counter(codes[:, domain.index(attribute.name)].tolist())
        rows: list[Row] = [
            {attribute.name: label, "rows": found[code]} for code, label in enumerate(attribute.labels())
        ]
        tables[attribute.name] = tuple(rows)
    return tables


def _bars(attribute: Attribute, counts: Table) -> Plot:
    import altair as alt

    values: list[dict[str, Any]] = [{"value": row[attribute.name], "rows": row["rows"]} for row in counts]
    chart = (
        alt.Chart(alt.InlineData(values=values), width=520, height=220)
        .mark_bar()
        .encode(
            x=alt.X("value:N", sort=None, title=attribute.name, axis=alt.Axis(labelAngle=-40)),
            y=alt.Y("rows:Q", title="synthetic rows"),
        )
    )
    return Plot(attribute.name, f"Synthetic rows by {attribute.name}.", chart)
