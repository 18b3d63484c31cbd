"""Lab ``interactive``: counting who eats more than 55 carrots, again and again."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato import data
from sfumato.domain import Domain, Integer, Unit, Unknown
from sfumato.domain.predicate import Among
from sfumato.engine.open import open_table
from sfumato.errors import BudgetError, InputError, TableError
from sfumato.ledger import open_ledger
from sfumato.privacy.entropy import SimulatedEntropy
from sfumato.privacy.loss import Epsilon
from sfumato.privacy.noise import DiscreteLaplace
from sfumato.query import Session, ask, count, table
from sfumato.query.question import Query
from sfumato.vault.vault import Vault
from sfumato_labs import charts, interactive_noise, printed_interactive
from sfumato_labs.charts import ChartAxis, Panel
from sfumato_labs.interactive_noise import BUDGET
from sfumato_labs.lab import Lab, LabResult, NamedColumn, Options, Plot, Row, Table
from sfumato_labs.printed_interactive import SEEDS, SPLIT, answers, noisy_records, starts
from sfumato_labs.published_tables import read

TITLE = "Interactive publishing: twenty questions about carrots"
EPSILONS = (Fraction(10), Fraction(1, 10))
ASKED = (20, 50, 100, 1000, 10_000)
RUNS = 10
MOST_RECORDS = 1000  # of a table: the printed programs run from each of 10 000 seeds
_HARDLY = 0.01  # share of the seeds
_LIMIT = Epsilon(1000)  # of the simulation's own ledger

Floats = NDArray[np.float64]

# each on the table and on its neighbour
PUBLISHED_RECORDS: Mapping[float, tuple[int, int]] = {10: (90, 88), 0.1: (92, 89)}
PUBLISHED_AVERAGES: Mapping[tuple[str, float, int], tuple[float, float]] = {
    ("interactive", 10, 50): (90.406173, 89.229485),
    ("interactive", 10, 100): (90.282538, 89.775190),
    ("interactive", 10, 1000): (90.179056, 89.644218),
    ("interactive", 10, 10_000): (90.407239, 89.449023),
    ("interactive", 0.1, 50): (129.090164, 207.379822),
    ("interactive", 0.1, 100): (130.637660, 159.784195),
    ("interactive", 0.1, 1000): (156.520276, 172.554425),
    ("interactive", 0.1, 10_000): (168.248618, 161.965114),
    ("improved", 10, 20): (90.219531, 89.303122),
    ("improved", 10, 50): (91.477675, 92.796737),
    ("improved", 10, 100): (97.573308, 93.315034),
    ("improved", 10, 1000): (139.115738, 137.873842),
    ("improved", 10, 10_000): (360.142331, 363.358394),
    ("improved", 0.1, 20): (160.863114, 179.218571),
    ("improved", 0.1, 50): (286.193377, 383.090234),
    ("improved", 0.1, 100): (380.892396, 265.118141),
    ("improved", 0.1, 1000): (1986.020166, 2229.406086),
    ("improved", 0.1, 10_000): (22121.405222, 24465.252760),
}
PUBLISHED_BUCKETS: Mapping[tuple[str, float], tuple[float, ...]] = {
    ("medical", 10): (405.577487, 436.064704, 421.026895, 456.974492, 463.976042),
    ("neighbour", 10): (405.700195, 434.832390, 420.856021, 457.923189, 463.699772),
    ("medical", 0.1): (386.329299, 432.750870, 454.224493, 457.998244, 464.643677),
    ("neighbour", 0.1): (390.637195, 433.050928, 426.334131, 463.287818, 165.718378),
}


@dataclass(frozen=True)
class FilteringStudy:
    """The table that is asked about, by name beside its neighbour without one record above the threshold."""

    said: str
    domain: Domain
    threshold: int
    values: Mapping[str, tuple[int, ...]]

    @property
    def column(self) -> str:
        """What is counted."""
        return self.domain.names[0]

    def true_count(self, name: str) -> int:
        """Records above the threshold."""
        return sum(value > self.threshold for value in self.values[name])

    def rows(self, name: str) -> pa.Table:
        """The table."""
        return pa.table({self.column: pa.array(self.values[name], pa.int64())})

    def above(self, threshold: int) -> Query:
        """The question how many have more than that."""
        attribute = self.domain[self.column]
        least = attribute.minimum if isinstance(attribute, Integer) else 0
        return count(Among(self.column, frozenset(range(max(0, threshold + 1 - least), attribute.size))))

    def steps(self) -> list[int]:
        """As many thresholds as an honest session answers, evenly over the domain."""
        attribute = self.domain[self.column]
        least = attribute.minimum if isinstance(attribute, Integer) else 0
        return [least + (attribute.size - 1) * step // SPLIT for step in range(SPLIT)]


def run(options: Options) -> LabResult:
    """Printed programs, honest sessions, the averaging attack, the seed recovered, and the tables of noise."""
    random, runs = np.random.default_rng(options.seed), options.repeated(RUNS)
    study = _study(options)
    epsilons, asked = options.epsilon or EPSILONS, options.queries or ASKED
    danger = interactive_noise.danger_interval(random, runs)
    averages = interactive_noise.averaging(
        study.true_count(next(iter(study.values))), asked, random, runs, options.seed
    )
    printed = averages_as_printed(study, epsilons, asked, random)
    tables = {
        "printed_records": records(study, epsilons, random),
        "printed_buckets": buckets(),
        "printed_averages": printed,
        "seed_recovered": recovered(study, epsilons, random),
        "averaging": averages,
        "danger_interval": danger,
        "noise_quantiles": interactive_noise.noise_quantiles(random, runs),
        "honest": honest(study, options.seed),
        "medical": medical(options.seed),
        "flaws": flaws(),
    }
    return LabResult(
        lab="interactive",
        title=TITLE,
        summary=_summary(tables),
        tables=tables,
        plots=(
            interactive_noise.averages_plot(averages),
            interactive_noise.danger_plot(danger),
            _neighbours_plot(study),
        ),
        notes=(
            study.said,
            _PRINTED,
            rare(tables["printed_records"]),
            attack(tables["seed_recovered"]),
            interactive_noise.bias(averages),
            interactive_noise.DANGER,
            _HONEST,
        ),
    )


def _study(options: Options) -> FilteringStudy:
    threshold = printed_interactive.THRESHOLD if options.threshold is None else options.threshold
    if options.data is None:
        if options.columns is not None:
            raise InputError("--columns is that of the table of --data", culprit="columns")
        whole, fewer = (tuple(rows["carrots"].to_pylist()) for rows in (data.zoo(), data.zoo_neighbour()))
        _refuse_none_above("carrots", fewer, threshold)
        said = (
            f"Runs on the bundled table of {len(whole)} animals and their carrots, a stand-in for the source's of "
            "about as many, of which 32 are known, and on its neighbour without Dugong."
        )
        return FilteringStudy(said, data.domain("zoo"), threshold, {"zoo": whole, "zoo without Dugong": fewer})
    (column,) = options.columns or (NamedColumn("carrots", (0, 100)),)
    found = read(options.data, [column.name])
    numbers, ((low, high),) = found.whole_numbers([column])
    if high - low < SPLIT:
        raise InputError(
            f"{column.name!r} has {high - low + 1} values from {low} to {high}; {SPLIT} different questions and one "
            f"more need at least {SPLIT + 1}",
            culprit=column.name,
        )
    drawn = np.random.default_rng(options.seed).permutation(len(numbers))[:MOST_RECORDS]
    values: list[int] = numbers[np.sort(drawn), 0].tolist()
    if len(values) < 2:  # noqa: PLR2004
        raise TableError(f"one value of {column.name!r} has no neighbour that anything is left of", culprit=column.name)
    _refuse_none_above(column.name, values, threshold)
    left_out = next(place for place, value in enumerate(values) if value > threshold)
    domain = Domain((Integer(name=column.name, minimum=low, maximum=high, unknown=Unknown.CLAMP),), Unit.row())
    fewer = tuple(value for place, value in enumerate(values) if place != left_out)
    of = f"{len(values)}" if len(values) == len(numbers) else f"{len(values)} drawn at random from {len(numbers)}"
    said = f"Runs on {found.title}, {column.name} of {of}, and on the same without one above {threshold}."
    return FilteringStudy(said, domain, threshold, {"table": tuple(values), "neighbour": fewer})


def _refuse_none_above(name: str, values: Sequence[int], threshold: int) -> None:
    if not any(value > threshold for value in values):
        raise InputError(f"no value of {name!r} is above the threshold; name another", culprit=threshold)


# as printed


def records(study: FilteringStudy, epsilons: Sequence[Fraction], random: np.random.Generator) -> Table:
    """The first program, once from a random seed and on average over all seeds."""
    every = starts(np.arange(SEEDS))
    rows: list[Row] = []
    for epsilon in epsilons:
        for place, (name, values) in enumerate(study.values.items()):
            counts, _ = noisy_records(values, 1 / float(epsilon), every, threshold=study.threshold)
            published = PUBLISHED_RECORDS.get(float(epsilon))
            rows.append(
                {
                    "epsilon": float(epsilon),
                    "table": name,
                    "true_count": study.true_count(name),
                    "published": None if published is None else published[place],
                    "share_of_seeds": None if published is None else float(np.mean(counts == published[place])),
                    "one_run": int(random.choice(counts)),
                    "mean": float(counts.mean()),
                    "sd": float(counts.std()),
                }
            )
    return tuple(rows)


def buckets() -> Table:
    """The second program from the seeds that its own print gives away: to the last digit, but for two misprints."""
    rows: list[Row] = []
    for (name, epsilon), published in PUBLISHED_BUCKETS.items():
        true = _patients(name)
        (start,) = bucket_seeds(published, true, epsilon)
        printed = printed_interactive.noisy_buckets(true, epsilon, start)
        labels = data.domain("medical")["age"].labels()
        rows += [
            {
                "epsilon": epsilon,
                "table": name,
                "seed": start,
                "age": label,
                "true_count": count,
                "published": figure,
                "as_printed": again,
                "equal": figure == again,
            }
            for label, count, figure, again in zip(labels, true, published, printed, strict=True)
        ]
    return tuple(rows)


def bucket_seeds(published: Sequence[float], true: Sequence[int], epsilon: float) -> tuple[int, ...]:
    """The states of the generator that give most of these figures exactly."""
    every = starts(np.arange(SEEDS))
    made = np.round(np.array(true) + printed_interactive.noise(every, len(true), 1 / epsilon), 6)
    hits = (np.abs(made - np.array(published)) < 1e-6).sum(axis=1)  # noqa: PLR2004  (six decimals)
    return tuple(int(state) for state in every[hits > len(true) // 2])


def averages_as_printed(
    study: FilteringStudy, epsilons: Sequence[Fraction], asked: Sequence[int], random: np.random.Generator
) -> Table:
    """The averages of n answers of the third and of the improved program, every answer from a seed of its own."""
    every = starts(np.arange(SEEDS))
    rows: list[Row] = []
    for program in ("interactive", "improved"):
        for epsilon in epsilons:
            for number in asked:
                scale = (SPLIT if program == "interactive" else number) / float(epsilon)
                for place, (name, values) in enumerate(study.values.items()):
                    found = answers(values, scale, every, threshold=study.threshold)
                    finite = found[np.isfinite(found)]
                    published = PUBLISHED_AVERAGES.get((program, float(epsilon), number))
                    rows.append(
                        {
                            "program": program,
                            "epsilon": float(epsilon),
                            "queries": number,
                            "table": name,
                            "true_count": study.true_count(name),
                            "published": None if published is None else published[place],
                            "as_printed": float(finite[random.integers(finite.size, size=number)].mean()),
                            "expected": float(finite.mean()),
                            "sd_of_average": float(finite.std() / math.sqrt(number)),
                        }
                    )
    return tuple(rows)


def recovered(study: FilteringStudy, epsilons: Sequence[Fraction], random: np.random.Generator) -> Table:
    """One answer with six decimals, the seeds that it leaves, and the noise of the first record that they give away."""
    rows: list[Row] = []
    for epsilon in epsilons:
        scale = SPLIT / float(epsilon)
        for name, values in study.values.items():
            start = int(starts(random.integers(SEEDS, size=1))[0])
            (answer,) = answers(values, scale, np.array([start]), threshold=study.threshold)
            left = printed_interactive.seeds_left(float(answer), scale, draws=len(values), most=len(values))
            found = next(iter(left), None)
            noise = None if found is None else printed_interactive.noise(np.array([found]), len(values), scale)[0]
            rows.append(
                {
                    "epsilon": float(epsilon),
                    "table": name,
                    "answer": float(answer),
                    "seeds_before": SEEDS,
                    "seeds_left": len(left),
                    "seed": start,
                    "seed_found": start in left,
                    "noisy_count_found": None if found is None else left[found],
                    "noise_of_first_record": None if noise is None else float(noise[0]),
                    "noise_of_last_record": None if noise is None else float(noise[-1]),
                }
            )
    return tuple(rows)


def flaws() -> Table:
    """What is wrong with each printed program."""
    return tuple(
        {"program": program, "flaw": flaw} for program, listed in printed_interactive.FLAWS.items() for flaw in listed
    )


# honest


def honest(study: FilteringStudy, seed: int) -> Table:
    """Twenty different questions at epsilon / 20 on the table and on its neighbour; one more, and one again."""
    columns = []
    steps = study.steps()
    for name, values in study.values.items():
        with _vault(study.rows(name), study.domain, seed + len(values)) as vault:
            session = Session(vault, budget=BUDGET, queries=SPLIT)
            said: list[float | str] = [session.ask(study.above(step)).value.estimate for step in steps]
            said.append(session.ask(study.above(steps[-1])).value.estimate)
            try:
                said.append(session.ask(study.above(steps[-1] + 1)).value.estimate)
            except BudgetError:
                said.append("refused")
            columns.append(said)
    questions = [f"more than {step}" for step in steps]
    questions += [f"more than {steps[-1]}, again", f"more than {steps[-1] + 1}, a 21st"]
    left, right = (name.replace(" ", "_").lower() for name in study.values)
    return tuple(
        {"question": question, left: str(first), right: str(second)}
        for question, first, second in zip(questions, *columns, strict=True)
    )


def medical(seed: int) -> Table:
    """The histogram of the medical table and of its neighbour: counts, and discrete Laplace noise."""
    rows: list[Row] = []
    domain = data.domain("medical")
    for name, patients in (("medical", data.medical()), ("neighbour", data.medical_neighbour())):
        with _vault(patients, domain, seed + len(patients)) as vault:
            answer = ask(vault, table("age"), loss=BUDGET)
        rows += [
            {"table": name, "age": label, "count": true, "honest": value[0].estimate}
            for label, true, value in zip(domain["age"].labels(), _patients(name), answer.values, strict=True)
        ]
    return tuple(rows)


def _patients(name: str) -> list[int]:
    ages: list[str] = (data.medical() if name == "medical" else data.medical_neighbour())["age"].to_pylist()
    return [ages.count(label) for label in data.domain("medical")["age"].labels()]


@contextmanager
def _vault(rows: pa.Table, domain: Domain, seed: int) -> Iterator[Vault]:
    """The real thing with a ledger of its own; only the noise is seeded, so that the lab can be repeated."""
    encoded = open_table(rows).encode(domain)
    with (
        tempfile.TemporaryDirectory() as folder,
        open_ledger(f"sqlite:///{Path(folder) / 'lab.ledger'}", dataset="lab", limit=_LIMIT, create=True) as ledger,
    ):
        yield Vault(encoded, ledger, entropy=SimulatedEntropy(seed))


# what it says


_PRINTED = (
    "The printed programs run with their own generator and sampler. Every answer of the averages starts from a seed of "
    "its own; expected is the exact mean over all 10 000 seeds, sd_of_average that of n answers. The printed histogram "
    "comes out to the last digit from the seeds that it gives away itself; 420.856021 and 165.718378 are misprints of "
    "420.956021 and 465.718378."
)
_HONEST = (
    f"honest: discrete Laplace noise at epsilon {float(BUDGET.value):g}/{SPLIT} for each of {SPLIT} different "
    "questions. The same question again returns the same number and is not counted; one more is refused. Any one "
    "answer is about equally likely with and without one record: the odds differ by half a percent at most."
)


def rare(rows: Table) -> str:
    """Which printed counts of the first program hardly come out of this table, and why."""
    known = [row for row in rows if row["published"] is not None]
    hardly = [row for row in known if float(row["share_of_seeds"] or 0) < _HARDLY]
    said = ", ".join(
        f"{row['published']} at epsilon {row['epsilon']:g} on {row['table']} ({float(row['share_of_seeds'] or 0):.2%})"
        for row in hardly
    )
    return f"printed_records: {len(known) - len(hardly)} of {len(known)} printed counts come out of many seeds." + (
        f" Hardly any seed gives {said}: with so little noise only a record at the threshold itself is miscounted, and "
        "the stand-in has one such record, which the program counts too often and never too rarely."
        if hardly
        else ""
    )


def attack(rows: Table) -> str:
    """What the table of recovered seeds says."""
    alone = sum(row["seeds_left"] == 1 for row in rows)
    right = sum(bool(row["seed_found"]) for row in rows)
    return (
        f"seed_recovered: of {len(rows)} answers with six decimals {right} keep the right seed among those that fit, "
        f"and {alone} leave no other of the {SEEDS}: whoever tries them all knows the noise of every record."
    )


def _summary(tables: Mapping[str, Table]) -> Table:
    equal = [bool(row["equal"]) for row in tables["printed_buckets"]]
    lines: list[Row] = [
        {
            "experiment": "histogram of patients, four prints of five buckets",
            "published": f"{len(equal)} figures",
            "as_printed": f"{sum(equal)} equal to the last digit, {len(equal) - sum(equal)} misprints",
            "honest": "discrete Laplace noise, no seed",
            "lesson": "a generator of 10 000 seeds gives away its noise",
        }
    ]
    lines += [
        {
            "experiment": f"noise on every record, epsilon {row['epsilon']:g}, {row['table']}",
            "published": f"{row['published']}",
            "as_printed": f"{row['mean']:.4g} (sd {row['sd']:.2g})",
            "honest": f"{row['true_count']} and noise of the query's own sensitivity",
            "lesson": "noise for a sensitivity of 1 does not hide a record that ranges over 100",
        }
        for row in tables["printed_records"]
        if row["published"] is not None
    ]
    lines += [
        {
            "experiment": f"{row['program']}, {row['queries']} answers, epsilon = {row['epsilon']:g}, {row['table']}",
            "published": f"{row['published']:.6g}",
            "as_printed": f"{row['as_printed']:.6g} (sd {row['sd_of_average']:.2g})",
            "honest": "the first answer again, or a refusal",
            "lesson": "averaging defeats noise that nobody charges for",
        }
        for row in tables["printed_averages"]
        if row["published"] is not None and row["queries"] == max(ASKED)
    ]
    return tuple(lines)


def _neighbours_plot(study: FilteringStudy) -> Plot:
    """The distributions of one honest answer with and without one record."""
    noise = DiscreteLaplace.for_loss(BUDGET / SPLIT, 1)
    reach = noise.quantile("0.95")
    counts = {name: study.true_count(name) for name in study.values}
    low, high = min(counts.values()) - reach, max(counts.values()) + reach
    places = range(low, high + 1, max(1, reach // 150))
    values: list[Row] = [
        {"answer": answer, "probability": noise.pmf(answer - true), "table": name}
        for name, true in counts.items()
        for answer in places
    ]
    chart = charts.lines(
        values,
        ChartAxis(column="answer", title="answer", zero=False),
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
