"""Lab ``interactive``: counting who eats more than 55 carrots, again and again."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato import data
from sfumato.domain.predicate import Among
from sfumato.engine.open import open_table
from sfumato.errors import BudgetError
from sfumato.ledger import open_ledger
from sfumato.privacy.entropy import SimulatedEntropy
from sfumato.privacy.laplace import DiscreteLaplace
from sfumato.privacy.loss import Epsilon
from sfumato.query import Session, ask, count, table
from sfumato.query.question import Query
from sfumato.vault.vault import Vault
from sfumato_labs import printed_interactive
from sfumato_labs.lab import Lab, LabResult, Options, Plot, Row, Table

EPSILONS = ("1", "0.1", "0.01")
PERCENTS = ("90", "95", "99", "99.9")
ANSWERS = (100, 1000, 10_000, 100_000)
PUBLISHED_QUANTILES = {"90": 2.30, "95": 3.00, "99": 4.61, "99.9": 6.91}  # at epsilon 1
PUBLISHED_DANGER = {
    ("1", 100): 100.0,
    ("0.1", 100): 25.59,
    ("0.1", 1000): 73.75,
    ("0.1", 10_000): 99.99,
    ("0.01", 100): 2.72,
    ("0.01", 1000): 9.12,
    ("0.01", 10_000): 27.85,
    ("0.01", 100_000): 73.70,
}
_DRAWS = 5000  # simulated averages in every run
_POINTS = 1 << 16

Floats = NDArray[np.float64]


def noise_quantiles(random: np.random.Generator, runs: int) -> Table:
    """What the size of one noise does not exceed: Laplace, discrete Laplace as released, and simulated Laplace."""
    rows: list[Row] = []
    for text in EPSILONS:
        epsilon = float(text)
        sizes = np.sort(random.exponential(1 / epsilon, runs * _DRAWS))
        noise = DiscreteLaplace.for_loss(Epsilon(text), 1)
        for percent in PERCENTS:
            share = float(percent) / 100
            rows.append(
                {
                    "epsilon": epsilon,
                    "percent": float(percent),
                    "laplace": -math.log1p(-share) / epsilon,
                    "discrete_laplace": noise.quantile(_share(percent)),
                    "monte_carlo": float(np.quantile(sizes, share)),
                    "published": PUBLISHED_QUANTILES[percent] if text == "1" else None,
                }
            )
    return tuple(rows)


def danger_interval(random: np.random.Generator, runs: int) -> Table:
    """P(average of that many answers lies within one half of the count), each answer with noise of scale 1/epsilon."""
    rows: list[Row] = []
    for text in EPSILONS:
        scale = 1 / float(text)
        for queries in ANSWERS:
            # a Laplace variable is the difference of two exponential ones, so a sum of them is one of two gammas
            sums = random.gamma(queries, size=(2, runs * _DRAWS))
            means = scale * (sums[0] - sums[1]) / queries
            rows.append(
                {
                    "epsilon": float(text),
                    "queries": queries,
                    "exact_percent": 100 * within(0.5, queries, scale),
                    "monte_carlo_percent": 100 * float(np.mean(np.abs(means) < 0.5)),  # noqa: PLR2004
                    "published_percent": PUBLISHED_DANGER.get((text, queries)),
                }
            )
    return tuple(rows)


def within(distance: float, queries: int, scale: float) -> float:
    """P(|mean of ``queries`` Laplace variables| < ``distance``), by inversion of the characteristic function.

    The sum has the characteristic function (1 + scale^2 t^2)^-queries, so the probability is
    (2 / pi) times the integral of sin(c t) / t times it over t > 0, with c = distance * queries.

    >>> round(within(0.5, 100, 10.0), 4)
    0.2773
    """
    if queries == 1:
        return -math.expm1(-distance / scale)
    reach = distance * queries
    end = math.sqrt(math.expm1(45 / queries)) / scale  # the function is below exp(-45) beyond
    points = max(_POINTS, int(8 * reach * end))  # several to each wave of the sine
    t = (np.arange(points) + 0.5) * (end / points)
    values = np.sin(reach * t) / t * np.exp(-queries * np.log1p((scale * t) ** 2))
    return min(1.0, float(values.sum()) * (end / points) * 2 / math.pi)


def _share(percent: str) -> str:
    """The percentage as an exact share."""
    return f"{percent}e-2"


def _averages_plot(rows: Table) -> Plot:
    """Distance of the average from the truth by number of answers."""
    import altair as alt

    chart = (
        alt.Chart(alt.InlineData(values=[dict(row) for row in rows]), width=560, height=300)
        .mark_line(point=True)
        .encode(
            x=alt.X("queries:Q", scale=alt.Scale(type="log"), title="answers averaged"),
            y=alt.Y("mean_distance:Q", scale=alt.Scale(type="log"), title="distance of the average from the count"),
            color=alt.Color("regime:N", title=None),
            strokeDash=alt.StrokeDash("regime:N", title=None),
        )
    )
    caption = "The average of answers with fixed noise falls into the true count; under a budget it does not."
    return Plot("averages", caption, chart)


def _danger_plot(rows: Table) -> Plot:
    """Probability that the average gives the count away."""
    import altair as alt

    chart = (
        alt.Chart(alt.InlineData(values=[dict(row) for row in rows]), width=560, height=280)
        .mark_line(point=True)
        .encode(
            x=alt.X("queries:Q", scale=alt.Scale(type="log"), title="answers averaged"),
            y=alt.Y("exact_percent:Q", title="within one half of the count, %"),
            color=alt.Color("epsilon:N"),
            strokeDash=alt.StrokeDash("epsilon:N"),
        )
    )
    return Plot("danger", "Without a budget a few thousand answers at epsilon 0.1 give the count away.", chart)


def _neighbours_plot(count: int, loss: Epsilon) -> Plot:
    """The distributions of one honest answer with and without Dugong."""
    import altair as alt

    noise = DiscreteLaplace.for_loss(loss, 1)
    reach = noise.quantile("0.95")
    values = [
        {"answer": answer, "probability": noise.pmf(answer - true), "table": name}
        for name, true in (("with Dugong", count), ("without Dugong", count - 1))
        for answer in range(count - reach, count + reach + 1, max(1, reach // 150))
    ]
    chart = (
        alt.Chart(alt.InlineData(values=values), width=560, height=240)
        .mark_line()
        .encode(
            x=alt.X("answer:Q"),
            y=alt.Y("probability:Q"),
            color=alt.Color("table:N", title=None),
            strokeDash=alt.StrokeDash("table:N", title=None),
        )
    )
    return Plot("neighbours", f"One answer at {loss}: hardly more likely with Dugong than without.", chart)


TITLE = "Interactive publishing: twenty questions about carrots"
BUDGET = Epsilon("0.1")
QUERIES = 20
ASKED = (20, 50, 100, 1000, 10_000)
_LIMIT = Epsilon(1000)  # of the simulation's own ledger


def run(options: Options) -> LabResult:
    """Printed programs, honest sessions, the averaging attack, and the tables of noise."""
    random = np.random.default_rng(options.seed)
    averages = averaging(random, options)
    danger = danger_interval(random, options.runs)
    return LabResult(
        lab="interactive",
        title=TITLE,
        tables={
            "noise_quantiles": noise_quantiles(random, options.runs),
            "danger_interval": danger,
            "averaging": averages,
            "printed": printed(options),
            "honest": honest(options),
            "medical": medical(options),
            "flaws": flaws(),
        },
        plots=(
            _averages_plot(averages),
            _danger_plot(danger),
            _neighbours_plot(_true_count(data.zoo()), BUDGET / QUERIES),
        ),
        notes=_NOTES,
    )


def averaging(random: np.random.Generator, options: Options) -> Table:
    """Mean of many answers to one question, by what each answer is charged."""
    entropy, truth = SimulatedEntropy(options.seed), _true_count(data.zoo())
    rows: list[Row] = []
    for asked in ASKED:
        fixed = DiscreteLaplace.for_loss(BUDGET / QUERIES, 1)
        divided = DiscreteLaplace.for_loss(BUDGET / asked, 1)
        found = {
            "fixed noise, never refused": [fixed.draw(asked, entropy).mean() for _ in range(options.runs)],
            "budget divided by the number asked": [divided.draw(asked, entropy).mean() for _ in range(options.runs)],
            "stored answers": [fixed.draw(1, entropy).mean() for _ in range(options.runs)],
            "printed sampler, budget divided": [
                printed_interactive.means(asked, asked / float(BUDGET.value), random) for _ in range(options.runs)
            ],
        }
        rows += [
            {
                "queries": asked,
                "regime": regime,
                "mean_answer": truth + float(np.mean(errors)),
                "mean_distance": float(np.mean(np.abs(errors))),
                "true_count": truth,
            }
            for regime, errors in found.items()
        ]
    return tuple(rows)


def printed(options: Options) -> Table:
    """One run of the printed programs on the table and on its neighbour, and what an attacker reads off an answer."""
    epsilon, seed = float(BUDGET.value), options.seed % printed_interactive.SEEDS
    rows: list[Row] = []
    for name, animals in (("zoo", data.zoo()), ("zoo without Dugong", data.zoo_neighbour())):
        carrots: list[int] = animals["carrots"].to_pylist()
        truth = _true_count(animals)
        by_record, _ = printed_interactive.noisy_records(carrots, epsilon, seed)
        answer = round(truth + printed_interactive.noise(printed_interactive.Generator(seed), 1 / epsilon), 6)
        left = printed_interactive.recover(answer, 1 / epsilon)
        rows.append(
            {
                "table": name,
                "true_count": truth,
                "noise_on_every_record": by_record,
                "interactive": printed_interactive.interactive(carrots, epsilon, QUERIES, seed),
                "one_answer": answer,
                "true_count_found": truth in left,
                "counts_left_possible": len(left),
            }
        )
    return tuple(rows)


def honest(options: Options) -> Table:
    """Twenty different questions at epsilon / 20 on the table and on its neighbour; one more, and one again."""
    columns = []
    for animals in (data.zoo(), data.zoo_neighbour()):
        with _vault(animals, "zoo", options.seed + len(animals)) as vault:
            session = Session(vault, budget=BUDGET, queries=QUERIES)
            answers: list[float | str] = [session.ask(_above(5 * step)).value.estimate for step in range(QUERIES)]
            answers.append(session.ask(_above(printed_interactive.THRESHOLD)).value.estimate)
            try:
                answers.append(session.ask(_above(97)).value.estimate)
            except BudgetError:
                answers.append("refused")
            columns.append(answers)
    questions = [f"more than {5 * step}" for step in range(QUERIES)]
    questions += [f"more than {printed_interactive.THRESHOLD}, again", "more than 97, a 21st"]
    return tuple(
        {"question": question, "zoo": str(left), "zoo_without_dugong": str(right)}
        for question, left, right in zip(questions, *columns, strict=True)
    )


def medical(options: Options) -> Table:
    """The histogram of the medical table and of its neighbour: counts, the printed program, discrete Laplace."""
    rows: list[Row] = []
    tables = {"medical": data.medical(), "neighbour": data.medical_neighbour()}
    for name, patients in tables.items():
        labels = data.domain("medical")["age"].labels()
        ages: list[str] = patients["age"].to_pylist()
        counts = [ages.count(label) for label in labels]
        biased = printed_interactive.noisy_buckets(counts, float(BUDGET.value), options.seed % 10_000)
        with _vault(patients, "medical", options.seed + len(patients)) as vault:
            answer = ask(vault, table("age"), loss=BUDGET)
        rows += [
            {"table": name, "age": label, "count": true, "printed": wrong, "honest": value[0].estimate}
            for label, true, wrong, value in zip(labels, counts, biased, answer.values, strict=True)
        ]
    return tuple(rows)


def flaws() -> Table:
    """What is wrong with each printed program."""
    return tuple(
        {"program": program, "flaw": flaw} for program, listed in printed_interactive.FLAWS.items() for flaw in listed
    )


@contextmanager
def _vault(animals: pa.Table, domain: str, seed: int) -> Iterator[Vault]:
    """The real thing with a ledger of its own; only the noise is seeded, so that the lab can be repeated."""
    encoded = open_table(animals).encode(data.domain(domain))
    with (
        tempfile.TemporaryDirectory() as folder,
        open_ledger(f"sqlite:///{Path(folder) / 'lab.ledger'}", dataset=domain, limit=_LIMIT, create=True) as ledger,
    ):
        yield Vault(encoded, ledger, entropy=SimulatedEntropy(seed))


def _above(carrots: int) -> Query:
    attribute = data.domain("zoo")["carrots"]
    return count(Among("carrots", frozenset(range(carrots + 1, attribute.size))))


def _true_count(animals: pa.Table) -> int:
    return sum(carrots > printed_interactive.THRESHOLD for carrots in animals["carrots"].to_pylist())


_DANGER = (
    "danger_interval: each answer has noise of scale 1/epsilon and epsilon is not split, as in the published figures. "
    "Once the average of the answers lies within one half of the count, rounding gives the count away. "
    "Exact figures come from the distribution; published ones are averages of a simulation."
)
_AVERAGING = (
    "averaging: with the same noise for every answer the mean falls into the true count. With the budget divided by "
    f"their number n (epsilon {float(BUDGET.value):g} in all) it does not: the noise of each has the scale n/epsilon, "
    "so the mean has a standard deviation of sqrt(2 n)/epsilon, which grows with n. Stored answers repeat one number. "
    "The printed sampler's mean drifts away with its scale: that is bias and no protection, because anyone can "
    "subtract scale/4 + 1/4."
)
_HONEST = (
    f"honest: discrete Laplace noise at epsilon {float(BUDGET.value):g}/{QUERIES} for each of {QUERIES} different "
    "questions. The same question again returns the same number and is not counted; one more is refused. Any one "
    "answer is about equally likely with and without Dugong: the odds differ by half a percent at most."
)
_REBUILT = "The printed programs are rebuilt from their description, as are the constants of their generator."
_NOTES = (_DANGER, _AVERAGING, _HONEST, _REBUILT)

LABS = {"interactive": Lab("interactive", TITLE, run)}
