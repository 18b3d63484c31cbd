"""Lab ``interactive``: repeated counts of records with at least 55 carrots."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import pyarrow as pa

from sfumato import data
from sfumato.domain import Domain
from sfumato.engine.open import open_table
from sfumato.errors import BudgetError
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.query import Session, answer_batch, ask, table
from sfumato.vault.simulated import SimulatedVault
from sfumato_labs import charts, interactive_noise
from sfumato_labs.charts import ChartAxis, Panel
from sfumato_labs.filtering_study import FilteringStudy, read_study
from sfumato_labs.interactive_noise import BUDGET
from sfumato_labs.interactive_prints import (
    age_band_counts,
    answers_by_question,
    averages_as_printed,
    buckets,
    clocks_recovered,
    flaws,
    records,
    recovered,
)
from sfumato_labs.lab import Lab, LabResult, Options, Plot, Row, Table
from sfumato_labs.printed_interactive import SEEDS, SPLIT

TITLE = "Interactive publishing: twenty questions about carrots"
EPSILONS = (Fraction(10), Fraction(1, 10))
QUERY_COUNTS = (20, 50, 100, 1000, 10_000)
RUNS = 10
_LAST_DIGIT = 2e-6  # of an average that is printed with six decimals


def run(options: Options) -> LabResult:
    """Run printed programs, honest sessions, the averaging attack, seed recovery, and the tables of noise."""
    random, runs = np.random.default_rng(options.seed), options.repeated(RUNS)
    study = read_study(options)
    epsilons, query_counts = options.epsilon or EPSILONS, options.queries or QUERY_COUNTS
    danger = interactive_noise.danger_interval(random, runs, published=study.published)
    averages = interactive_noise.averaging(
        study.true_count(next(iter(study.values))), query_counts, random, runs, options.seed
    )
    tables = {
        "printed_records": records(study, epsilons, random),
        "printed_averages": averages_as_printed(study, epsilons, query_counts, random),
        "seed_recovered": recovered(study, epsilons, random),
        "averaging": averages,
        "danger_interval": danger,
        "noise_quantiles": interactive_noise.noise_quantiles(random, runs, published=study.published),
        "honest": honest(study, options.seed),
        "honest_batch": honest_batch(study, options.seed),
        "flaws": flaws(),
    }
    if study.published:
        tables |= {
            "clocks_recovered": clocks_recovered(),
            "printed_answers": answers_by_question(study),
            "printed_buckets": buckets(),
            "medical": medical(options.seed),
        }
    return LabResult(
        lab="interactive",
        title=TITLE.replace("carrots", study.column),
        summary=_summary(tables),
        tables=tables,
        plots=(
            interactive_noise.averages_plot(averages),
            interactive_noise.danger_plot(danger),
            _neighbours_plot(study),
        ),
        notes=(
            study.note,
            *((as_printed(tables), _MISPRINTS) if study.published else ()),
            attack(tables["seed_recovered"]),
            interactive_noise.bias(averages),
            interactive_noise.DANGER + (interactive_noise.SIMULATED if study.published else ""),
            _HONEST,
            batch_note(tables["honest_batch"]),
        ),
    )


# honest mechanisms


def honest(study: FilteringStudy, seed: int) -> Table:
    """Answer twenty queries at epsilon / 20 on the table and its neighbor, then a further one, and a repeated one."""
    columns = []
    steps = study.steps()
    for name, values in study.values.items():
        session = Session(_vault(study.rows(name), study.domain, seed + len(values)), budget=BUDGET, queries=SPLIT)
        column: list[float | str] = [session.ask(study.at_least(step)).value.estimate for step in steps]
        column.append(session.ask(study.at_least(steps[-1])).value.estimate)
        try:
            column.append(session.ask(study.at_least(steps[-1] + 1)).value.estimate)
        except BudgetError:
            column.append("refused")
        columns.append(column)
    questions = [f"at least {step}" for step in steps]
    questions += [f"at least {steps[-1]}, again", f"at least {steps[-1] + 1}, a 21st"]
    left, right = (name.replace(" ", "_").lower() for name in study.values)
    return tuple(
        {"question": question, left: str(first), right: str(second)}
        for question, first, second in zip(questions, *columns, strict=True)
    )


def honest_batch(study: FilteringStudy, seed: int) -> Table:
    """Answer the same queries on the table and on its neighbor as one batch each, for the same budget."""
    batches = []
    for name, values in study.values.items():
        vault = _vault(study.rows(name), study.domain, seed + len(values))
        batches.append(answer_batch(vault, study.batch(), loss=BUDGET))
    left, right = (name.replace(" ", "_").lower() for name in study.values)
    return tuple(
        {"question": f"at least {step}", left: first, right: second, "standard_error": error}
        for step, first, second, error in zip(
            study.steps(),
            *(batch.answers.tolist() for batch in batches),
            batches[0].standard_errors.tolist(),
            strict=True,
        )
    )


def medical(seed: int) -> Table:
    """Return the histogram of the medical table and of its neighbor: counts, and discrete Laplace noise."""
    rows: list[Row] = []
    domain = data.domain("medical")
    for name, patients in (("medical", data.medical()), ("neighbour", data.medical_neighbour())):
        answer = ask(_vault(patients, domain, seed + len(patients)), table("age"), loss=BUDGET)
        rows += [
            {"table": name, "age": label, "count": true, "honest": value[0].estimate}
            for label, true, value in zip(domain["age"].labels(), age_band_counts(name), answer.values, strict=True)
        ]
    return tuple(rows)


def _vault(rows: pa.Table, domain: Domain, seed: int) -> SimulatedVault:
    """Return a vault with the real mechanisms and seeded noise, so that the lab is reproducible."""
    return SimulatedVault(open_table(rows).encode(domain), seed=seed, repeats=True)


# sentences


_MISPRINTS = (
    "Misprints of one digit each: 420.856021 and 165.718378 of the histogram stand for 420.956021 and 465.718378, "
    ".900034 and 7.535890 of the printed noises for .900634 and 7.535990."
)
_HONEST = (
    f"honest: discrete Laplace noise at epsilon {float(BUDGET.value):g}/{SPLIT} for each of {SPLIT} different "
    "questions. The same question again returns the same number and is not counted; one more is refused. Any one "
    "answer is about equally likely with and without one record: the odds differ by half a percent at most."
)


def as_printed(tables: Mapping[str, Table]) -> str:
    """Return sentences on how many printed averages and counts are reproduced, and what the clock alone reveals."""
    averages = [row for row in tables["printed_averages"] if row["published"] is not None]
    counts = [row for row in tables["printed_records"] if row["published"] is not None]
    equal = sum(_equal(row) for row in averages)
    clocks = tables["clocks_recovered"]
    alone = sum(row["seconds_left"] == 1 for row in clocks)
    return (
        f"The printed programs run from the seeds of the printed runs. {equal} of {len(averages)} printed averages and "
        f"{sum(row['published'] == row['as_printed'] for row in counts)} of {len(counts)} printed counts come out to "
        "the last digit. The programs take their seeds from the C library, which they seed with the clock in seconds. "
        f"clocks_recovered: of {clocks[0]['seconds_tried']} seconds tried on each of {len(clocks)} printed runs, "
        f"{alone} runs leave one second. Whoever knows the second knows every noise, and needs no table for it: an "
        "average less its noise is a sum of counts. printed_answers lists the noise in every answer."
    )


def _equal(row: Row) -> bool:
    return abs(float(row["published"] or 0) - float(row["as_printed"] or 0)) < _LAST_DIGIT


def batch_note(rows: Table) -> str:
    """Return a sentence on the cost of the same queries as one batch."""
    errors = [float(row["standard_error"] or 0) for row in rows]
    alone = math.sqrt(DiscreteLaplace.for_loss(BUDGET / SPLIT, 1).variance)
    return (
        f"honest_batch: the same {SPLIT} questions as one batch at epsilon {float(BUDGET.value):g}. The standard "
        f"deviation of an answer is {min(errors):.0f} to {max(errors):.0f}, where an answer of the session has "
        f"{alone:.0f}. Questions that are named beforehand can share their noise."
    )


def attack(rows: Table) -> str:
    """Return a sentence on the table of recovered seeds."""
    alone = sum(row["seeds_left"] == 1 for row in rows)
    right = sum(bool(row["seed_found"]) for row in rows)
    return (
        f"seed_recovered: of {len(rows)} answers with six decimals {right} keep the right seed among those that fit, "
        f"and {alone} leave no other of the {SEEDS}: whoever tries them all knows the noise of every record."
    )


def _summary(tables: Mapping[str, Table]) -> Table:
    lines: list[Row] = []
    if equal := [bool(row["equal"]) for row in tables.get("printed_buckets", ())]:
        lines.append(
            {
                "experiment": "histogram of patients, four prints of five buckets",
                "published": f"{len(equal)} figures",
                "as_printed": f"{sum(equal)} equal to the last digit, {len(equal) - sum(equal)} misprints",
                "honest": "discrete Laplace noise, no seed",
                "lesson": "a generator of 10 000 seeds gives away its noise",
            }
        )
    lines += [
        {
            "experiment": f"noise on every record, epsilon {row['epsilon']:g}, {row['table']}",
            "published": _or_dash(row["published"]),
            "as_printed": f"{row['as_printed']} (over all seeds {row['mean']:.4g}, sd {row['sd']:.2g})",
            "honest": f"{row['true_count']} and noise of the query's own sensitivity",
            "lesson": "noise for a sensitivity of 1 does not hide a record that ranges over 100",
        }
        for row in tables["printed_records"]
    ]
    most = max(int(row["queries"] or 0) for row in tables["printed_averages"])
    lines += [
        {
            "experiment": f"{row['program']}, {row['queries']} answers, epsilon = {row['epsilon']:g}, {row['table']}",
            "published": _or_dash(row["published"]),
            "as_printed": f"{row['as_printed']:.10g} (sd {row['sd_of_average']:.2g})",
            "honest": "the first answer again, or a refusal",
            "lesson": "averaging defeats noise that nobody charges for",
        }
        for row in tables["printed_averages"]
        if row["queries"] == most
    ]
    return tuple(lines)


def _or_dash(published: object) -> str:
    return "-" if published is None else f"{published}"


def _neighbours_plot(study: FilteringStudy) -> Plot:
    """Return the distributions of one honest answer with and without one record."""
    noise = DiscreteLaplace.for_loss(BUDGET / SPLIT, 1)
    half_width = noise.quantile("0.95")
    counts = {name: study.true_count(name) for name in study.values}
    low, high = min(counts.values()) - half_width, max(counts.values()) + half_width
    places = range(low, high + 1, max(1, half_width // 150))
    values: list[Row] = [
        {"answer": answer, "probability": noise.pmf(answer - true), "table": name}
        for name, true in counts.items()
        for answer in places
    ]
    chart = charts.lines(
        values,
        ChartAxis(column="answer", title="answer, rows counted", zero=False),
        ChartAxis(column="probability", title="probability"),
        series="table",
        panel=Panel(),
    )
    apart = max(
        abs(math.log(noise.pmf(answer - first) / noise.pmf(answer - second)))
        for answer in places
        for first, second in [tuple(counts.values())]
    )
    caption = (
        f"One answer at {BUDGET / SPLIT}: its odds differ by at most {math.expm1(apart):.2%} between the two tables."
    )
    return Plot("neighbours", caption, chart)


LABS = {
    "interactive": Lab(
        name="interactive",
        title=TITLE,
        procedure=run,
        takes=frozenset({"data", "columns", "epsilon", "queries", "threshold"}),
        runs=RUNS,
    )
}
