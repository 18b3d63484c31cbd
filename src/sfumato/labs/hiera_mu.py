"""Lab ``hiera-mu``: reusing reports in stricter levels, mu = 1 to 5, never helps."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from sfumato.labs.columns import scaled
from sfumato.labs.lab import Lab, LabResult, Options, Plot, Row, Table
from sfumato.local.hiera import DIVISIONS, Hiera, aggregate, variance
from sfumato.local.simulation import simulate

TITLE = "HierA: does it help to reuse reports?"
EPSILONS = tuple(Fraction(text) for text in ("0.25", "0.5", "1", "1.5", "2", "2.5"))
USES = (1, 2, 3, 4, 5)


def graded(epsilon: Fraction) -> Hiera:
    """The published setting: five levels with budgets 5e, 4e, 3e, 2e, e."""
    return Hiera.design(-1, 1, divisions=DIVISIONS, budgets=tuple(epsilon * level for level in (5, 4, 3, 2, 1)))


def run(options: Options) -> LabResult:
    """Mean absolute errors over the runs beside exact standard deviations."""
    ages = scaled(options.data, {"age": None})[:, 0]
    errors = _errors(ages, options)
    return LabResult(
        lab="hiera-mu",
        title=TITLE,
        tables={"errors": errors, "guarantees": guarantees()},
        plots=(_plot(errors),),
        notes=(
            f"Ages of {ages.size} people scaled to [-1, 1]; averages over {options.runs} runs.",
            "exact_sd is computed, not simulated; a normal error has a mean absolute value of 0.798 of it.",
            "Every use of a report in a stricter level adds noise and no person, so mu = 1 is best at every epsilon.",
            "The guarantee of a report is real_epsilon, by enumeration of its integer table, not one of the budgets.",
        ),
    )


def guarantees() -> Table:
    """The exact epsilon of every setting, of the level alone, and of everything."""
    rows: list[Row] = []
    for epsilon in EPSILONS:
        spec = graded(epsilon)
        rows.append(
            {
                "epsilon": float(epsilon),
                "largest_budget": float(spec.budgets[0]),
                "level_epsilon": round(float(spec.level_epsilon), 3),
                "real_epsilon": round(float(spec.epsilon), 3),
            }
        )
    return tuple(rows)


def _errors(ages: np.ndarray[tuple[int], np.dtype[np.float64]], options: Options) -> Table:
    generator = np.random.default_rng(options.seed)
    truth = float(ages.mean())
    rows: list[Row] = []
    for epsilon in EPSILONS:
        spec = graded(epsilon)
        missed = np.zeros(len(USES))
        for _ in range(options.runs):
            reports = simulate(spec, ages, seed=int(generator.integers(1 << 62)))
            tally = spec.randomizer.tally(reports.data)
            for place, mu in enumerate(USES):
                estimate = aggregate(tally, spec.budgets, mu=mu, clamp=False, generator=generator)
                missed[place] += abs(estimate - truth) / options.runs
        for place, mu in enumerate(USES):
            spread = math.sqrt(variance(ages, spec, mu=mu))
            rows.append({"mu": mu, "epsilon": float(epsilon), "mae": float(missed[place]), "exact_sd": spread})
    return tuple(rows)


def _plot(errors: Table) -> Plot:
    import altair as alt

    chart = (
        alt.Chart(alt.InlineData(values=[dict(row) for row in errors]), width=520, height=300)
        .mark_line(point=True)
        .encode(
            x=alt.X("mu:O", title="uses of a report, mu", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("exact_sd:Q", title="exact standard deviation", scale=alt.Scale(type="log")),
            color=alt.Color("epsilon:O", title="e"),
        )
    )
    return Plot("uses", "Exact standard deviation by mu: it rises with every further use.", chart)


LAB = Lab("hiera-mu", TITLE, run, reads_data=True)
