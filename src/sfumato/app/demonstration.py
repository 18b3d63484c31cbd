"""Releases of the bundled tables under epsilon 1, and their errors.

Both tables are published.  So a page can compare a release with the exact table, which no owner can do in public.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.data import census, census_release, child_mental_health, domain
from sfumato.engine.open import open_table
from sfumato.evaluate.population_split import independent
from sfumato.evaluate.released import Released, Rows, open_rows
from sfumato.evaluate.utility.scorecard import marginal_score
from sfumato.ledger import open_ledger
from sfumato.ledger.database import file_address
from sfumato.model.row_sampling import generator
from sfumato.privacy.loss import Epsilon, EpsilonDelta
from sfumato.report.page import Page, Plot, Row, ShownTable
from sfumato.synthesize import NoisyTotal, aim, all_marginals, auto
from sfumato.synthesize.synthetic import Synthetic
from sfumato.vault.release import ReleasedRows
from sfumato.vault.vault import Vault
from sfumato.vault.vault_opening import declared

CHILDREN_LOSS = Epsilon(1)
PublishedCounts: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Demonstration:
    """A release of a bundled table, its errors against the published table, and the function that draws its page."""

    release: Synthetic
    errors: ShownTable
    account: str
    page: Callable[[], Page]


def demonstrate_children(folder: Path) -> Demonstration:
    """Release the child mental health table under epsilon 1, with the ledger in ``folder``.

    A second run in the same folder returns the stored release and spends nothing.

    Raises:
        LedgerError: the ledger in the folder cannot be used.
    """
    described = domain("child_mental_health")
    table = child_mental_health()
    with open_ledger(
        file_address(folder / "demo.ledger"), dataset="child mental health", limit=CHILDREN_LOSS, create=True
    ) as ledger:
        encoded, content = open_table(table).encode_with_content(described)
        vault = Vault(encoded, ledger, declared(ledger, content, new=False))
        release = auto(vault, loss=CHILDREN_LOSS, total=NoisyTotal(), workload=all_marginals(2))
        account = str(ledger.remaining())
    counts = np.bincount(
        np.ravel_multi_index([table[name].to_numpy() for name in described.names], described.shape),
        minlength=described.size,
    )
    return _compare(release, counts, account)


def _compare(release: Synthetic, truth: PublishedCounts, account: str) -> Demonstration:
    described = release.model.domain
    codes = release.model.sample(generator())
    synthetic = np.bincount(np.ravel_multi_index(codes.T, described.shape), minlength=described.size)
    errors: list[Row] = []
    for ways in range(1, len(described) + 1):
        workload = all_marginals(ways)
        difference = np.abs(workload.answers(described, truth) - workload.answers(described, synthetic))
        errors.append(
            {
                "marginals": f"{ways}-way",
                "cells": int(difference.size),
                "mean_error": float(difference.mean()),
                "max_error": float(difference.max()),
                "percent_of_people": float(100 * difference.mean() / truth.sum()),
            }
        )
    with_truth = _counts(release, truth, synthetic)

    def page() -> Page:
        return Page(
            title="A million children, released under epsilon 1",
            terms={"Guarantee": release.guarantee, "Cost": release.cost, "Ledger": account},
            notes=(
                "The table of ages and levels of satisfaction is published, so the truth may stand beside the release.",
                *release.provenance["chosen_among"],
            ),
            plots=(_bars(with_truth), _heat_maps(with_truth)),
            tables={"errors": tuple(errors), "counts": with_truth},
        )

    return Demonstration(release, tuple(errors), account, page)


def _counts(release: Synthetic, truth: PublishedCounts, synthetic: PublishedCounts) -> ShownTable:
    described = release.model.domain
    labels = [attribute.labels() for attribute in described]
    return tuple(
        {
            **{name: labels[axis][code] for axis, (name, code) in enumerate(zip(described.names, codes, strict=True))},
            "real": int(truth[cell]),
            "synthetic": int(synthetic[cell]),
        }
        for cell, codes in enumerate(np.ndindex(described.shape))
    )


def _bars(counts: ShownTable) -> Plot:
    import altair as alt

    chart = (
        alt.Chart(_tall(counts), width=640, height=280)
        .mark_bar()
        .encode(
            x=alt.X("age:O", sort=None, axis=alt.Axis(labelAngle=0)),
            xOffset=alt.XOffset("table:N"),
            y=alt.Y("sum(people):Q", title="people"),
            color=alt.Color("table:N", title=None),
        )
    )
    return Plot("by_age", "Children by age, real and synthetic: the bars are hard to tell apart.", chart)


def _heat_maps(counts: ShownTable) -> Plot:
    import altair as alt

    chart = (
        alt.Chart(_tall(counts), width=150, height=300)
        .mark_rect()
        .encode(
            x=alt.X("satisfaction:O", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("age:O", sort=None),
            color=alt.Color("people:Q", scale=alt.Scale(scheme="viridis")),
            column=alt.Column("table:N", title=None),
        )
    )
    return Plot("by_cell", "Children by age and satisfaction: the synthetic table keeps how they go together.", chart)


def _tall(counts: ShownTable) -> Any:  # noqa: ANN401  (Altair's data, imported lazily)
    import altair as alt

    rows = [
        {"age": row["age"], "satisfaction": row["satisfaction"], "table": table, "people": row[table]}
        for row in counts
        for table in ("real", "synthetic")
    ]
    return alt.InlineData(values=rows)


CENSUS_LOSS: Final = EpsilonDelta("1", "1e-9")
_WAYS: Final = (1, 2, 3)


def demonstrate_census(folder: Path) -> Demonstration:
    """Release the bundled census under epsilon 1 and delta 1e-9.

    Its rows, the ledger and the release are written to ``folder``.

    A second run in the same folder returns the stored release and spends nothing.

    Raises:
        LedgerError: the ledger in the folder cannot be used.
        InputError: the folder cannot be written.
    """
    described = domain("census")
    real_path, synthetic_path = folder / "census.parquet", folder / "census-synthetic.parquet"
    ReleasedRows(census()).to_parquet(real_path, overwrite=True)
    with open_ledger(
        file_address(folder / "census.ledger"), dataset="census", limit=CENSUS_LOSS, create=True
    ) as ledger:
        encoded, content = open_table(real_path).encode_with_content(described)
        vault = Vault(encoded, ledger, declared(ledger, content, new=False))
        release = aim(vault, loss=CENSUS_LOSS, total=NoisyTotal(), workload=all_marginals(max(_WAYS)))
        account = str(ledger.remaining())
    release.rows.to_parquet(synthetic_path, overwrite=True)
    errors = _distances(open_rows(real_path, described), open_rows(synthetic_path, described))

    def page() -> Page:
        return Page(
            title="A census, released under epsilon 1 and delta 1e-9",
            terms={"Guarantee": release.guarantee, "Cost": release.cost, "Ledger": account},
            notes=(
                (
                    f"The census is a release itself, of {census_release()['source']}: "
                    f"{census_release()['guarantee']}.  So it may stand beside what is made from it."
                ),
                (
                    "The distance of two tables is the share of people who would have to move from one cell to "
                    "another, on average over all pairs or triples of columns."
                ),
            ),
            plots=(_distance_bars(errors),),
            tables={"errors": errors},
        )

    return Demonstration(release, errors, account, page)


def _distances(real: Rows, synthetic: Rows) -> ShownTable:
    floor = independent(real, generator(0))
    truth, made, shuffled = (Released.raw(rows) for rows in (real, synthetic, floor))
    return tuple(
        {
            "marginals": f"{ways}-way",
            "distance": 1 - marginal_score(truth, made, ways=ways),
            "of_independent_columns": 1 - marginal_score(truth, shuffled, ways=ways),
        }
        for ways in _WAYS
    )


def _distance_bars(errors: ShownTable) -> Plot:
    import altair as alt

    series = {"the release": "distance", "independent columns": "of_independent_columns"}
    data = alt.InlineData(
        values=[
            {"marginals": row["marginals"], "table": table, "distance": row[column]}
            for row in errors
            for table, column in series.items()
        ]
    )
    chart = (
        alt.Chart(data, width=320, height=240)
        .mark_bar()
        .encode(
            x=alt.X("marginals:O", axis=alt.Axis(labelAngle=0)),
            xOffset=alt.XOffset("table:N"),
            y=alt.Y("distance:Q", title="share of people in the wrong cell"),
            color=alt.Color("table:N", title=None),
        )
    )
    caption = "Distance from the census: the release keeps how columns go together, which shuffled columns lose."
    return Plot("distances", caption, chart)
