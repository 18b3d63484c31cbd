"""Lab ``synthetic-data``: the textbook chapter on UCI Adult, as printed and done honestly at epsilon 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sfumato import data
from sfumato.domain import Categorical, Domain, Integer, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.privacy.loss import Epsilon
from sfumato.synthesize import Charged, Summed, histogram, marginals, ranges
from sfumato.synthesize.synthetic import Synthetic
from sfumato.synthesize.workload import counting
from sfumato.vault.fake import FakeVault
from sfumato_labs.lab import Lab, LabResult, Options, Plot, Row, Table
from sfumato_labs.printed_chapter import FLAWS, Chapter

Counts = NDArray[np.int64]

_BAND = 10  # years


def _ages_plot(real: Counts, one_way: Counts, two_way: Counts) -> Plot:
    """Number of rows by age: real, sampled from the age histogram, and from the two-way table."""
    import altair as alt

    series = {
        "real": real.sum(axis=1),
        "one-way marginal": one_way,
        "two-way marginal": two_way.sum(axis=1),
    }
    rows = [
        {"age": age, "table": name, "rows": int(count)}
        for name, counts in series.items()
        for age, count in enumerate(counts)
    ]
    chart = (
        alt.Chart(alt.InlineData(values=rows), width=640, height=280)
        .mark_line()
        .encode(
            x=alt.X("age:Q"),
            y=alt.Y("rows:Q"),
            color=alt.Color("table:N", sort=list(series), title=None),
        )
    )
    return Plot("ages", "Rows by age at epsilon 1: the two-way marginal follows the real ages less smoothly.", chart)


def _widths_plot(width: list[int], histogram: list[float], direct: list[float]) -> Plot:
    """Percent error of ranges by their width."""
    import altair as alt

    rows = [
        {"width": years, "method": method, "percent_error": error}
        for method, errors in (("histogram", histogram), ("direct", direct))
        for years, error in zip(width, errors, strict=True)
        if error  # a logarithm has no zero
    ]
    chart = (
        alt.Chart(alt.InlineData(values=rows), width=640, height=280)
        .mark_line(point=True)
        .encode(
            x=alt.X("width:Q", scale=alt.Scale(type="log"), title="years in the range, from 30"),
            y=alt.Y("percent_error:Q", scale=alt.Scale(type="log"), title="percent error"),
            color=alt.Color("method:N", title=None),
        )
    )
    caption = "Percent error by width of a range: noise of a histogram adds up, a direct answer only gets better."
    return Plot("widths", caption, chart)


def _heat_maps(domain: Domain, real: Counts, one_way: Counts, two_way: Counts) -> Plot:
    """Age bands by occupation: real, one-way, two-way."""
    import altair as alt

    labels = domain["occupation"].labels()
    rows = [
        {"age": f"{_BAND * band:02d}", "occupation": label, "table": name, "rows": int(count)}
        for name, counts in (("real", real), ("one-way", one_way), ("two-way", two_way))
        for band, per_band in enumerate(np.add.reduceat(counts, np.arange(0, len(counts), _BAND), axis=0))
        for label, count in zip(labels, per_band, strict=True)
    ]
    chart = (
        alt.Chart(alt.InlineData(values=rows), width=200, height=280)
        .mark_rect()
        .encode(
            x=alt.X("age:O", title="age from", axis=alt.Axis(labelAngle=0)),
            y=alt.Y("occupation:N", title=None),
            color=alt.Color("rows:Q", scale=alt.Scale(scheme="viridis")),
            column=alt.Column("table:N", sort=["real", "one-way", "two-way"], title=None),
        )
    )
    caption = "Age by occupation: one-way marginals spread every occupation over the same ages, a two-way one does not."
    return Plot("heat_maps", caption, chart)


TITLE = "Synthetic data from noisy histograms: the textbook chapter on UCI Adult"
AGES = 100
FEW_ROWS = 10_000
LOSS = Epsilon(1)
COUNT = Charged(Fraction(1, 10))
BOSS = "Exec-managerial"
QUERIES = ((21, 33), (30, 31), (30, 71))  # first age, and the first age beyond

Statistic = Callable[[Counts], float]

# percent errors that the chapter prints, on its own copy of the table
PUBLISHED: Mapping[tuple[str, str], float] = {
    ("21 <= age < 33", "printed histogram"): 0.0836,
    ("30 <= age < 31", "printed histogram"): 0.0159,
    ("30 <= age < 31", "printed direct"): 0.0732,
    ("30 <= age < 71", "printed histogram"): 0.0610,
    ("30 <= age < 71", "printed direct"): 0.00295,
    ("mean age", "printed, 10 000 rows"): 0.965,
    ("20 <= age < 65", "printed, 10 000 rows"): 69.5,
    ("20 <= age < 65", "printed, charged rows"): 0.471,
    ("20 <= age < 30", "printed two-way"): 2.43,
}


@dataclass(frozen=True, eq=False)
class Study:
    """The true counts of age by occupation, the chapter's programs over them, and a vault over them."""

    domain: Domain
    counts: Counts
    chapter: Chapter
    vault: FakeVault
    random: np.random.Generator

    def draw(self, release: Synthetic, rows: int | None = None) -> Counts:
        """Counts of a sample of a release, in the shape of its attributes."""
        codes = release.model.sample(self.random, rows)
        shape = release.model.domain.shape
        cells = np.ravel_multi_index(tuple(codes.T), shape)
        return np.bincount(cells, minlength=int(np.prod(shape))).reshape(shape)


def run(options: Options) -> LabResult:
    """Every number of the chapter, over many runs, beside what an honest release of the same kind does."""
    study = _study(data.adult(options.data), options.seed)
    return LabResult(
        lab="synthetic-data",
        title=TITLE,
        tables={
            "range_queries": _range_queries(study, options.runs),
            "sampling": _sampling(study, options.runs),
            "marginals": _marginals(study, options.runs),
            "losses": _losses(),
        },
        plots=(
            _ages_plot(study.counts, study.draw(_age_release(study, COUNT)), study.draw(_two_way(study))),
            _widths_plot(*_error_by_width(study, options.runs)),
            _heat_maps(study.domain, study.counts, study.draw(_one_way(study)), study.draw(_two_way(study))),
        ),
        notes=_notes(options.runs),
    )


def _notes(runs: int) -> tuple[str, ...]:
    errors = (
        f"Every figure is over {runs} runs at epsilon 1. Percent errors are of the size of the true answer. The "
        "published column is what the chapter prints from one run on its own copy of the table."
    )
    flaws = "As printed, the chapter is not differentially private at the epsilon it names: " + "; ".join(FLAWS) + "."
    lesson = (
        "A histogram answers any range at no further cost, but its noise adds up over wide ranges, where a direct "
        "answer keeps the noise of one. A sample of the wrong size answers counts wrongly; the honest number of rows "
        "is bought with a tenth of the loss. One-way marginals lose the link between columns, a two-way marginal keeps "
        "it with more noise in every count."
    )
    return errors, flaws, lesson


def _study(table: pa.Table, seed: int) -> Study:
    occupation = data.domain("adult")["occupation"]
    assert isinstance(occupation, Categorical)
    age = Integer(name="age", minimum=0, maximum=AGES - 1, unknown=Unknown.CLAMP)
    domain = Domain((age, occupation))
    ages = np.clip(table["age"].to_numpy(), 0, AGES - 1)
    code_of = {value: code for code, value in enumerate(occupation.values)}
    occupations = np.array([code_of.get(value, len(code_of)) for value in table["occupation"].to_pylist()])
    cells = np.ravel_multi_index((ages, occupations), domain.shape)
    counts = np.bincount(cells, minlength=domain.size).reshape(domain.shape)
    codes = np.indices(domain.shape).reshape(len(domain), -1).T
    random = np.random.default_rng(seed)
    vault = FakeVault(ArrayTable(domain, codes, weights=counts.ravel()), seed=seed)
    return Study(domain, counts, Chapter(counts, random), vault, random)


def _age_release(study: Study, total: Charged | Summed) -> Synthetic:
    return histogram(study.vault, loss=LOSS, total=total, attributes=["age"])


def _one_way(study: Study) -> Synthetic:
    return marginals(study.vault, loss=LOSS, total=COUNT, cliques=[["age"], ["occupation"]])


def _two_way(study: Study) -> Synthetic:
    return marginals(study.vault, loss=LOSS, total=COUNT, cliques=[["age", "occupation"]])


def _honest_direct(study: Study, low: int, beyond: int) -> float:
    question = counting(ranges("age", [(low, beyond - 1)]), study.domain)
    (measured,) = study.vault.doors(LOSS).measure([question], LOSS)
    return float(measured.values[0])


def _range_queries(study: Study, runs: int) -> Table:
    histograms = {
        "printed histogram": [study.chapter.histogram() for _ in range(runs)],
        "honest histogram": [_age_release(study, Summed()).model.cells(("age",)) for _ in range(runs)],
    }
    rows: list[Row] = []
    for low, beyond in QUERIES:
        query = f"{low} <= age < {beyond}"
        true = int(study.counts[low:beyond].sum())
        for method, tables in histograms.items():
            rows.append(_row(query, method, true, [float(table[low:beyond].sum()) for table in tables]))
        direct = {
            "printed direct": [study.chapter.direct(true) for _ in range(runs)],
            "honest direct": [_honest_direct(study, low, beyond) for _ in range(runs)],
        }
        rows += [_row(query, method, true, answers) for method, answers in direct.items()]
    return tuple(rows)


def _sampling(study: Study, runs: int) -> Table:
    chapter = study.chapter
    samples: dict[str, Callable[[], Counts]] = {
        "printed, 10 000 rows": lambda: chapter.sample(chapter.histogram(), FEW_ROWS),
        "honest, 10 000 rows": lambda: study.draw(_age_release(study, COUNT), FEW_ROWS),
        "printed, charged rows": lambda: chapter.sample(chapter.histogram(), chapter.charged_rows()),
        "honest, charged rows": lambda: study.draw(_age_release(study, COUNT)),
    }
    statistics: dict[str, Statistic] = {"mean age": _mean_age, "20 <= age < 65": lambda ages: float(ages[20:65].sum())}
    return _compare(study.counts.sum(axis=1), samples, statistics, runs)


def _marginals(study: Study, runs: int) -> Table:
    boss = study.domain["occupation"].labels().index(BOSS)
    samples: dict[str, Callable[[], Counts]] = {
        "printed one-way": study.chapter.one_way_sample,
        "honest one-way": lambda: study.draw(_one_way(study)),
        "printed two-way": study.chapter.two_way_sample,
        "honest two-way": lambda: study.draw(_two_way(study)),
    }
    statistics: dict[str, Statistic] = {
        "mean age": lambda pairs: _mean_age(pairs.sum(axis=1)),
        "20 <= age < 30": lambda pairs: float(pairs[20:30].sum()),
        f"age < 25 and {BOSS}": lambda pairs: float(pairs[:25, boss].sum()),
        f"mean age of {BOSS}": lambda pairs: _mean_age(pairs[:, boss]),
    }
    return _compare(study.counts, samples, statistics, runs)


def _compare(
    counts: Counts, samples: Mapping[str, Callable[[], Counts]], statistics: Mapping[str, Statistic], runs: int
) -> Table:
    """Every statistic of samples of every method against the true one."""
    rows: list[Row] = []
    for method, sample in samples.items():
        drawn = [sample() for _ in range(runs)]
        rows += [
            _row(name, method, statistic(counts), [statistic(table) for table in drawn])
            for name, statistic in statistics.items()
        ]
    return tuple(sorted(rows, key=lambda row: list(statistics).index(str(row["statistic"]))))


def _row(statistic: str, method: str, true: float, answers: list[float]) -> Row:
    errors = np.abs(np.array(answers) - true) / true * 100
    return {
        "statistic": statistic,
        "method": method,
        "true": true,
        "answer": float(np.mean(answers)),
        "percent_error": float(errors.mean()),
        "median_percent_error": float(np.median(errors)),
        "published_percent_error": PUBLISHED.get((statistic, method)),
        "runs": len(answers),
    }


def _mean_age(ages: Counts) -> float:
    return float(ages @ np.arange(ages.size) / max(ages.sum(), 1))


def _error_by_width(study: Study, runs: int) -> tuple[list[int], list[float], list[float]]:
    """Mean percent error of ranges that start at 30, by width: of a histogram and of direct answers."""
    tables = np.array([_age_release(study, Summed()).model.cells(("age",)) for _ in range(runs)])
    widths = [1, 2, 5, 10, 20, 30, 41, 60]
    summed, direct = [], []
    for width in widths:
        true = int(study.counts[30 : 30 + width].sum())
        summed.append(float(np.abs(tables[:, 30 : 30 + width].sum(axis=1) - true).mean() / true * 100))
        answers = np.array([_honest_direct(study, 30, 30 + width) for _ in range(runs)])
        direct.append(float(np.abs(answers - true).mean() / true * 100))
    return widths, summed, direct


def _losses() -> Table:
    whole, share = float(LOSS.value), float(COUNT.share)
    procedures = (
        ("printed histogram", 1.0, "not private: floating-point noise"),
        ("printed direct", 1.0, "not private: floating-point noise; each further answer costs as much again"),
        ("printed, charged rows", 2.0, "not private: floating-point noise; one for the table, one for the row count"),
        ("printed one-way", 3.0, "not private: floating-point noise; one for each table, one for the row count"),
        ("printed two-way", 2.0, "not private: floating-point noise, and cells read from the data"),
        ("honest histogram", whole, "private; the row count is the sum of the noisy cells"),
        ("honest direct", whole, "private; each further answer costs as much again"),
        ("honest, charged rows", whole, f"private; the row count takes {share:g} of it"),
        ("honest one-way", whole, f"private; divided over two tables, the row count takes {share:g} of it"),
        ("honest two-way", whole, f"private; the row count takes {share:g} of it"),
    )
    return tuple(
        {
            "procedure": name,
            "stated_epsilon": 1.0,
            "nominal_epsilon": nominal,
            "private": name.startswith("honest"),
            "remark": remark,
        }
        for name, nominal, remark in procedures
    )


LABS = {"synthetic-data": Lab("synthetic-data", TITLE, run, reads_data=True)}
