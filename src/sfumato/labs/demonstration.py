"""The main job end to end on published data: a private table of a million children, and how wrong it is.

The table is published, so the page may hold the release against the truth, as an owner never could in public.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.data import child_mental_health, domain
from sfumato.engine.open import open_table
from sfumato.ledger import open_ledger
from sfumato.privacy.loss import Epsilon
from sfumato.report.page import Page, Plot, Row, Table
from sfumato.synthesize import Summed, all_marginals, auto
from sfumato.synthesize.synthetic import Synthetic
from sfumato.vault.vault import Vault

LOSS = Epsilon(1)
Counts: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Demonstration:
    """A release of the bundled table, its errors against the published truth, and its page."""

    release: Synthetic
    errors: Table
    account: str
    page: Page


def demonstrate(folder: Path) -> Demonstration:
    """Release the child mental health table under epsilon 1, with the ledger in ``folder``.

    A second time in the same folder, the stored release is returned and nothing is spent.

    Raises:
        LedgerError: the ledger in the folder cannot be used.
    """
    described = domain("child_mental_health")
    table = child_mental_health()
    with open_ledger(f"sqlite:///{folder / 'demo.ledger'}", dataset="child mental health", limit=LOSS) as ledger:
        vault = Vault(open_table(table).encode(described), ledger)
        release = auto(vault, loss=LOSS, total=Summed(), workload=all_marginals(2))
        account = str(ledger.remaining())
    counts = np.bincount(
        np.ravel_multi_index([table[name].to_numpy() for name in described.names], described.shape),
        minlength=described.size,
    )
    return _compare(release, counts, account)


def _compare(release: Synthetic, truth: Counts, account: str) -> Demonstration:
    described = release.model.domain
    codes = release.model.sample(np.random.default_rng())
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
    page = Page(
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


def _counts(release: Synthetic, truth: Counts, synthetic: Counts) -> Table:
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


def _bars(counts: Table) -> Plot:
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


def _heat_maps(counts: Table) -> Plot:
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


def _tall(counts: Table) -> Any:  # noqa: ANN401  (Altair's data, imported lazily)
    import altair as alt

    rows = [
        {"age": row["age"], "satisfaction": row["satisfaction"], "table": table, "people": row[table]}
        for row in counts
        for table in ("real", "synthetic")
    ]
    return alt.InlineData(values=rows)
