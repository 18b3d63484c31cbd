"""Releases of the bundled tables under epsilon 1, and their errors.

Both tables are published.  So a page can compare a release with the exact table, which no owner can do in public.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.data import census, census_release, child_mental_health, domain
from sfumato.domain import Domain
from sfumato.engine.open import open_table
from sfumato.errors import percent
from sfumato.evaluate.population_split import independent
from sfumato.evaluate.released import Released, Rows, open_rows
from sfumato.evaluate.utility.scorecard import marginal_score
from sfumato.ledger import Account, open_ledger
from sfumato.ledger.database import file_address
from sfumato.model.row_sampling import generator
from sfumato.privacy.loss import Epsilon, EpsilonDelta, plain
from sfumato.report.bar_pages import bar_section
from sfumato.report.demo_page import DemoRelease, PeopleByColumn, render_demo
from sfumato.report.drawing import Bar, percent_up
from sfumato.report.page import Page, Row, Section, ShownTable
from sfumato.report.page import write as write_page
from sfumato.synthesize import NoisyTotal, all_marginals, auto, batched
from sfumato.synthesize.synthetic import Synthetic
from sfumato.vault.release import ReleasedRows, save_text
from sfumato.vault.vault import Vault
from sfumato.vault.vault_opening import declared

CHILDREN_LOSS = Epsilon(1)
OTHER_LOSSES = (Epsilon("0.01"), Epsilon("0.1"), Epsilon(3), Epsilon(10))
"""The losses of the other releases on the slider of the page."""
PublishedCounts: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class Demonstration:
    """A release of a bundled table, its errors against the published table, and the function that writes its page.

    The function takes a folder and the JSON values that are stored next to the page.
    """

    release: Synthetic
    errors: ShownTable
    account: Account
    write: Callable[[Path, Mapping[str, Any]], Path]


def demonstrate_children(folder: Path) -> Demonstration:
    """Release the child mental health table under epsilon 1 and four other losses, with the ledger in ``folder``.

    The releases at the other losses have a dataset of their own in the ledger, for the slider of the page.  A second
    run in the same folder returns the stored releases and spends nothing.

    Raises:
        LedgerError: the ledger in the folder cannot be used.
    """
    (release,), account = _children(folder, "child mental health", (CHILDREN_LOSS,))
    others, _ = _children(folder, "child mental health at other losses", OTHER_LOSSES)
    described, table = domain("child_mental_health"), child_mental_health()
    truth = np.bincount(
        np.ravel_multi_index([table[name].to_numpy() for name in described.names], described.shape),
        minlength=described.size,
    )
    errors, with_truth = _compare(release, truth), _counts(release, truth, _sampled(release))

    def write(out: Path, data: Mapping[str, Any]) -> Path:
        by_loss = [*zip(OTHER_LOSSES, others, strict=True), (CHILDREN_LOSS, release)]
        made = [_demo_release(loss, each, truth) for loss, each in sorted(by_loss, key=lambda each: each[0].value)]
        details: dict[str, ShownTable] = {
            "Error against privacy": tuple(
                {"epsilon": each.epsilon, "worst_error": each.worst, "right_guesses": percent_up(each.right_guesses)}
                for each in made
            ),
            "Errors at epsilon 1, by number of columns": errors,
            "All 56 numbers at epsilon 1": with_truth,
            "Methods that were considered": tuple({"method": each} for each in release.provenance["chosen_among"]),
            "Guarantee and budget": (
                {"term": "guarantee", "text": release.guarantee},
                {"term": "cost", "text": release.cost},
                {"term": "ledger", "text": str(account)},
            ),
        }
        shown_first = next(place for place, each in enumerate(made, start=1) if each.epsilon == "1")
        people = f"{int(truth.sum()):,} children"
        html = render_demo(people, _marginals(described, truth), made, first=shown_first, details=details)
        save_text(out / "tables.json", json.dumps(data, indent=1, allow_nan=False) + "\n", overwrite=True)
        save_text(out / "index.html", html, overwrite=True)
        return out / "index.html"

    return Demonstration(release, errors, account, write)


def _children(folder: Path, dataset: str, losses: Sequence[Epsilon]) -> tuple[tuple[Synthetic, ...], Account]:
    """Return a release at each loss, and the budget with what remains of it."""
    limit = Epsilon(sum((each.value for each in losses), Fraction(0)))
    described = domain("child_mental_health")
    with open_ledger(file_address(folder / "demo.ledger"), dataset=dataset, limit=limit, create=True) as ledger:
        encoded, content = open_table(child_mental_health()).encode_with_content(described)
        vault = Vault(encoded, ledger, declared(ledger, content, new=False))
        pairs = all_marginals(2)
        made = tuple(auto(vault, loss=loss, total=NoisyTotal(), workload=pairs) for loss in losses)
        return made, ledger.remaining()


def _sampled(release: Synthetic) -> PublishedCounts:
    """Return the rows of a release by cell."""
    described = release.model.domain
    return np.bincount(np.ravel_multi_index(release.codes().T, described.shape), minlength=described.size)


def _demo_release(loss: Epsilon, release: Synthetic, truth: PublishedCounts) -> DemoRelease:
    counts = _sampled(release)
    return DemoRelease(
        epsilon=plain(loss.value),
        right_guesses=loss.right_guesses(),
        numbers=len(truth),
        worst=int(np.abs(counts - truth).max()),
        marginals=_marginals(release.model.domain, counts),
    )


def _marginals(described: Domain, counts: PublishedCounts) -> PeopleByColumn:
    table = counts.reshape(described.shape)
    axes = range(len(described))
    return PeopleByColumn(
        {
            attribute.name: {
                label: int(number)
                for label, number in zip(
                    attribute.labels(), table.sum(axis=tuple(each for each in axes if each != axis)), strict=True
                )
            }
            for axis, attribute in enumerate(described)
        }
    )


def _compare(release: Synthetic, truth: PublishedCounts) -> ShownTable:
    """Return the errors of the marginals of one column, of two columns, and so on."""
    described, synthetic = release.model.domain, _sampled(release)
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
    return tuple(errors)


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
        release = batched(vault, loss=CENSUS_LOSS, total=NoisyTotal(), workload=all_marginals(max(_WAYS)))
        account = ledger.remaining()
    release.rows.to_parquet(synthetic_path, overwrite=True)
    people = census().num_rows
    errors = _distances(open_rows(real_path, described), open_rows(synthetic_path, described))

    def write(out: Path, data: Mapping[str, Any]) -> Path:
        return write_page(_census_page(release, people, errors, str(account)), out, data)

    return Demonstration(release, errors, account, write)


def _census_page(release: Synthetic, people: int, errors: ShownTable, account: str) -> Page:
    """Return the page of the synthetic census."""
    source = census_release()
    return Page(
        title="A census, released under epsilon 1 and delta 1e-9",
        lead=(
            "The synthetic table protects every row of the census by differential privacy. It keeps most of how "
            "the columns go together."
        ),
        facts=(
            (f"{people:,}", f"people with {len(release.model.domain)} columns"),
            (f"epsilon {plain(CENSUS_LOSS.epsilon)}", f"and delta {plain(CENSUS_LOSS.delta)} protect every row"),
            (
                _percent(errors, "distance"),
                "of the people are in the wrong cell of a pair, on average",
            ),
            (
                _percent(errors, "of_independent_columns"),
                "would be there if the columns were independent",
            ),
        ),
        terms={"Guarantee": release.guarantee, "Cost": release.cost, "Ledger": account},
        sections=(_distance_bars(errors),),
        details={
            "How the census can be shown": (
                {
                    "source": source["source"],
                    "guarantee of the census itself": source["guarantee"],
                },
            ),
        },
        digits=3,
    )


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


def _percent(errors: ShownTable, column: str) -> str:
    """Return the distance of all pairs of columns in percent."""
    return percent(float(errors[1][column] or 0))


def _distance_bars(errors: ShownTable) -> Section:
    """Return the distances of both tables from the census, in percent of the people."""
    names = {"1-way": "1 column", "2-way": "2 columns", "3-way": "3 columns"}
    bars = tuple(
        Bar(f"{names[str(row['marginals'])]}, {table}", round(100 * float(row[column] or 0), 1), group=group)
        for row in errors
        for table, column, group in (("synthetic", "distance", None), ("independent", "of_independent_columns", 0))
    )
    return bar_section(
        "How far the synthetic table is from the census",
        {"Percent of people in the wrong cell, on average over all tables of 1, 2 or 3 columns": bars},
    )
