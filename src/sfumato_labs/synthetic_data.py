"""Lab ``synthetic-data``: the textbook chapter on UCI Adult, as printed and with honest mechanisms, for both
editions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato import data
from sfumato.domain import Categorical, Domain, Integer, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import InputError, TableError
from sfumato.privacy.loss import Epsilon
from sfumato.synthesize import BudgetShare, NoisyTotal, histogram, marginals, ranges
from sfumato.synthesize.synthetic import Synthetic
from sfumato.vault.simulated import SimulatedVault
from sfumato.workload.counting_queries import counting
from sfumato_labs import synthetic_figures
from sfumato_labs.lab import Lab, LabResult, NamedColumn, Options, Row, Table
from sfumato_labs.printed_chapter import FLAWS, PUBLISHED, PUBLISHED_PROBABILITY, Chapter, normalised
from sfumato_labs.published_tables import Published, adult, read, refuse_own, whole_span

TITLE = "Synthetic data from noisy histograms: the textbook chapter on UCI Adult"
FEW_ROWS = 10_000
COUNT = BudgetShare(Fraction(1, 10))
RUNS = 10
QUERIES = ((21, 33), (30, 31), (30, 71))  # first age, and the first age beyond
WIDE, NARROW, YOUNG = (20, 65), (20, 30), 25
_FROM, _WIDTHS = 30, (1, 2, 5, 10, 20, 30, 41, 60)
_BAND = 10  # years
_HEAD = 5
_MOST_CELLS = 1 << 18
_OWN = ("table", "share", "rows", "real", "probabilities", "10 000 rows", "one-way", "two-way")  # columns of tables

Counts = NDArray[np.int64]
Floats = NDArray[np.float64]
Statistic = Callable[[Counts], float]


@dataclass(frozen=True, eq=False)
class ChapterStudy:
    """The true counts of age by occupation, the chapter's programs over them, and a vault over them, at one epsilon."""

    domain: Domain
    counts: Counts
    chapter: Chapter
    vault: SimulatedVault
    random: np.random.Generator
    epsilon: Fraction
    published: bool  # True if the chapter's figures apply to this table

    @property
    def loss(self) -> Epsilon:
        """The loss of an honest release."""
        return Epsilon(self.epsilon)

    @property
    def names(self) -> tuple[str, str]:
        """The names of the numeric and of the categorical column."""
        first, second = self.domain.names
        return first, second

    def draw(self, release: Synthetic, rows: int | None = None) -> Counts:
        """Return counts of a sample of a release, in the shape of its attributes."""
        codes = release.model.sample(self.random, rows)
        shape = release.model.domain.shape
        cells = np.ravel_multi_index(tuple(codes.T), shape)
        return np.bincount(cells, minlength=int(np.prod(shape))).reshape(shape)

    def histogram(self, total: BudgetShare | NoisyTotal) -> Synthetic:
        """Return the honest table of ages."""
        return histogram(self.vault, loss=self.loss, total=total, attributes=[self.names[0]])

    def one_way(self) -> Synthetic:
        """Return both columns, released separately."""
        cliques = [[name] for name in self.names]
        return marginals(self.vault, loss=self.loss, total=COUNT, cliques=cliques)

    def two_way(self) -> Synthetic:
        """Return both columns, released together."""
        return marginals(self.vault, loss=self.loss, total=COUNT, cliques=[list(self.names)])

    def direct(self, low: int, beyond: int) -> float:
        """Return one honest answer."""
        cells = self.within(low, min(beyond, self._least() + self.counts.shape[0]))
        question = counting(ranges(self.names[0], [(cells.start, cells.stop - 1)]), self.domain)
        (measured,) = self.vault.mechanisms(self.loss).measure([question], self.loss)
        return float(measured.values[0])

    def within(self, low: int, beyond: int) -> slice:
        """Return the slice of the counts of numbers from ``low`` to below ``beyond``."""
        least = self._least()
        return slice(max(low - least, 0), max(beyond - least, 0))

    def mean(self, ages: Counts) -> float:
        """Return the mean number, given counts by number."""
        return float(ages @ (np.arange(ages.size) + self._least()) / max(ages.sum(), 1))

    def _least(self) -> int:
        attribute = next(iter(self.domain))
        return attribute.minimum if isinstance(attribute, Integer) else 0


def run(options: Options) -> LabResult:
    """Return every number of the chapter over many runs, next to an honest release of the same kind."""
    table, domain, counts = _table(options)
    runs, epsilons = options.repeated(RUNS), options.epsilon or (Fraction(1),)
    published = table.is_adult and options.columns is None
    studies = [_study(domain, counts, epsilon, options.seed, published=published) for epsilon in epsilons]
    ranges = options.range or QUERIES
    wide, narrow = (options.range[0], options.range[0]) if options.range else (WIDE, NARROW)
    _refuse_outside(domain, (*ranges, wide, narrow))
    tables: dict[str, tuple[Row, ...]] = {"range_queries": (), "sampling": (), "marginals": (), "losses": ()}
    for study in studies:
        options.progress(f"epsilon {float(study.epsilon):g}")
        tables["range_queries"] += _range_queries(study, ranges, runs)
        tables["sampling"] += _sampling(study, wide, runs)
        tables["marginals"] += _marginals(study, narrow, runs)
        tables["losses"] += _losses(study)
    first = studies[0]
    probability = _probability(first, runs)
    widths, ages, bands = _error_by_width(first, runs), _ages(first), _bands(first)
    return LabResult(
        lab="synthetic-data",
        title=table.headed(TITLE),
        summary=table.marked(_summary((*tables["range_queries"], *tables["sampling"], *tables["marginals"]))),
        tables={
            **tables,
            "probability": probability,
            "sample_rows": _sample_rows(first),
            "cross_table_head": _cross_table(first),
            "error_by_width": widths,
            "ages": ages,
            "bands": bands,
        },
        plots=(
            synthetic_figures.ages(ages, first.names[0]),
            synthetic_figures.widths(widths),
            synthetic_figures.heat_maps(bands, *first.names),
        ),
        notes=(table.note, *_notes(runs, epsilons, published=first.published), synthetic_figures.lesson(widths)),
    )


def _notes(runs: int, epsilons: Sequence[Fraction], *, published: bool) -> tuple[str, ...]:
    listed = ", ".join(f"{float(epsilon):g}" for epsilon in epsilons)
    errors = f"Every figure is over {runs} runs at epsilon {listed}. Percent errors are of the size of the true answer."
    if published:
        errors += (
            " The published columns are what the two editions of the chapter print at epsilon 1, each from one run on "
            "its own copy of the table; the second divides the error of the mean by the synthetic mean, 38.8055."
        )
    flaws = "As printed, the chapter is not differentially private at the epsilon it names: " + "; ".join(FLAWS) + "."
    return errors, flaws


def _table(options: Options) -> tuple[Published, Domain, Counts]:
    """Return the table, the two columns, and its counts over them."""
    chosen = options.columns or (NamedColumn("age", (0, 99)), NamedColumn("occupation"))
    if len(chosen) != 2:  # noqa: PLR2004
        raise InputError("--columns are two: one of whole numbers, and one of categories", culprit=chosen)
    as_published = options.columns is None
    table = (
        adult(options.data)
        if as_published or options.data is None
        else read(options.data, [column.name for column in chosen])
    )
    if missing := [column.name for column in chosen if column.name not in table.columns]:
        raise TableError(f"the table has no column {missing[0]!r}", culprit=missing[0])
    numbers, categories = chosen
    if not len(table.counts):
        raise TableError(f"no row of {table.title} has values in both columns", culprit=table.title)
    try:
        ages = np.array([int(value) for value in table.columns[numbers.name]], dtype=np.int64)
    except (ValueError, OverflowError):
        raise TableError(f"the column {numbers.name!r} does not hold whole numbers", culprit=numbers.name) from None
    low, high = whole_span(numbers, ages)
    age = Integer(name=numbers.name, minimum=low, maximum=high, unknown=Unknown.CLAMP)
    named = data.domain("adult")["occupation"] if as_published else None
    held = tuple(sorted(set(table.columns[categories.name])))
    refuse_own([column.name for column in chosen], _OWN)
    refuse_own(held, ("table", numbers.name))
    kind = (
        named
        if isinstance(named, Categorical)
        else Categorical(name=categories.name, values=held, unknown=Unknown.CATEGORY)
    )
    domain = Domain((age, kind))
    if domain.size > _MOST_CELLS:
        raise InputError(
            f"{domain.size} cells of {numbers.name!r} by {categories.name!r} are too many for this lab; name a column "
            f"of fewer categories, or narrower bounds, {numbers.name}=LOW:HIGH",
            culprit=categories.name,
        )
    place = {value: code for code, value in enumerate(kind.values)}
    codes = np.array([place.get(value, len(place)) for value in table.columns[categories.name]])
    cells = np.ravel_multi_index((np.clip(ages, low, high) - low, codes), domain.shape)
    counts = np.bincount(cells, weights=table.counts, minlength=domain.size).astype(np.int64).reshape(domain.shape)
    return table, domain, counts


def _refuse_outside(domain: Domain, ranges: Sequence[tuple[int, int]]) -> None:
    numbers = next(iter(domain))
    assert isinstance(numbers, Integer)
    for low, beyond in ranges:
        if beyond <= numbers.minimum or low > numbers.maximum:
            raise InputError(
                f"the range {low}:{beyond} holds no value of {numbers.name!r}, which has {numbers.minimum} to "
                f"{numbers.maximum}; name other ranges with --range",
                culprit=(low, beyond),
            )


def _study(domain: Domain, counts: Counts, epsilon: Fraction, seed: int, *, published: bool) -> ChapterStudy:
    codes = np.indices(domain.shape).reshape(len(domain), -1).T
    random = np.random.default_rng(seed)
    vault = SimulatedVault(ArrayTable(domain, codes, weights=counts.ravel()), seed=seed)
    return ChapterStudy(
        domain, counts, Chapter(counts, random, float(epsilon)), vault, random, epsilon, published and epsilon == 1
    )


def _range_queries(study: ChapterStudy, ranges: Sequence[tuple[int, int]], runs: int) -> Table:
    name = study.names[0]
    histograms = {
        "printed histogram": [study.chapter.histogram() for _ in range(runs)],
        "honest histogram": [study.histogram(NoisyTotal()).model.cells((name,)) for _ in range(runs)],
    }
    rows: list[Row] = []
    for low, beyond in ranges:
        query, cells = f"{low} <= {name} < {beyond}", study.within(low, beyond)
        true = int(study.counts[cells].sum())
        for method, tables in histograms.items():
            rows.append(_row(study, query, method, true, [float(table[cells].sum()) for table in tables]))
        direct = {
            "printed direct": [study.chapter.direct(true) for _ in range(runs)],
            "honest direct": [study.direct(low, beyond) for _ in range(runs)],
        }
        rows += [_row(study, query, method, true, answers) for method, answers in direct.items()]
    return tuple(rows)


def _sampling(study: ChapterStudy, wide: tuple[int, int], runs: int) -> Table:
    chapter, cells = study.chapter, study.within(*wide)
    samples: dict[str, Callable[[], Counts]] = {
        "printed, 10 000 rows": lambda: chapter.sample(chapter.histogram(), FEW_ROWS),
        "honest, 10 000 rows": lambda: study.draw(study.histogram(COUNT), FEW_ROWS),
        "printed, charged rows": lambda: chapter.sample(chapter.histogram(), chapter.charged_rows()),
        "honest, charged rows": lambda: study.draw(study.histogram(COUNT)),
    }
    statistics: dict[str, Statistic] = {
        f"mean {study.names[0]}": study.mean,
        f"{wide[0]} <= {study.names[0]} < {wide[1]}": lambda ages: float(ages[cells].sum()),
    }
    return _compare(study, study.counts.sum(axis=1), samples, statistics, runs)


def _marginals(study: ChapterStudy, narrow: tuple[int, int], runs: int) -> Table:
    name, category = study.names
    labels = study.domain[category].labels()
    chosen = labels.index("Exec-managerial") if "Exec-managerial" in labels else int(study.counts.sum(axis=0).argmax())
    cells, young = study.within(*narrow), study.within(0, YOUNG)
    samples: dict[str, Callable[[], Counts]] = {
        "printed one-way": study.chapter.one_way_sample,
        "honest one-way": lambda: study.draw(study.one_way()),
        "printed two-way": study.chapter.two_way_sample,
        "honest two-way": lambda: study.draw(study.two_way()),
    }
    statistics: dict[str, Statistic] = {
        f"mean {name}": lambda pairs: study.mean(pairs.sum(axis=1)),
        f"{narrow[0]} <= {name} < {narrow[1]}": lambda pairs: float(pairs[cells].sum()),
        f"{name} < {YOUNG} and {labels[chosen]}": lambda pairs: float(pairs[young, chosen].sum()),
        f"mean {name} of {labels[chosen]}": lambda pairs: study.mean(pairs[:, chosen]),
    }
    return _compare(study, study.counts, samples, statistics, runs)


def _compare(
    study: ChapterStudy,
    counts: Counts,
    samples: Mapping[str, Callable[[], Counts]],
    statistics: Mapping[str, Statistic],
    runs: int,
) -> Table:
    """Compare every statistic of samples of every method with the true one."""
    rows: list[Row] = []
    for method, sample in samples.items():
        drawn = [sample() for _ in range(runs)]
        rows += [
            _row(study, name, method, statistic(counts), [statistic(table) for table in drawn])
            for name, statistic in statistics.items()
        ]
    return tuple(sorted(rows, key=lambda row: list(statistics).index(str(row["statistic"]))))


def _row(study: ChapterStudy, statistic: str, method: str, true: float, answers: list[float]) -> Row:
    errors = np.abs(np.array(answers) - true) / max(abs(true), 1e-9) * 100
    first, second = PUBLISHED.get((statistic, method), (None, None)) if study.published else (None, None)
    return {
        "statistic": statistic,
        "method": method,
        "epsilon": float(study.epsilon),
        "true": true,
        "answer": float(np.mean(answers)),
        "percent_error": float(errors.mean()),
        "median_percent_error": float(np.median(errors)),
        "first_edition_percent": first,
        "second_edition_percent": second,
        "runs": len(answers),
    }


def _probability(study: ChapterStudy, runs: int) -> Table:
    """Return the probability of the alphabetically first nonempty cell, which the chapter prints."""
    labels = study.domain[study.names[1]].labels()
    number = int(np.flatnonzero(study.counts.any(axis=1))[0])
    held = [place for place in np.flatnonzero(study.counts[number]).tolist() if labels[place][:1].isalpha()]
    category = min(held or np.flatnonzero(study.counts[number]).tolist(), key=lambda place: labels[place])
    cell = f"({next(iter(study.domain)).labels()[number]}, {labels[category]})"
    printed = [float(normalised(study.chapter.two_way())[number, category]) for _ in range(runs)]
    honest = [float(normalised(_cells(study.two_way()))[number, category]) for _ in range(runs)]
    published = PUBLISHED_PROBABILITY if cell == "(17, Adm-clerical)" and study.published else None
    return (
        {
            "cell": cell,
            "real": float(study.counts[number, category] / study.counts.sum()),
            "printed": float(np.mean(printed)),
            "printed_sd": float(np.std(printed)),
            "honest": float(np.mean(honest)),
            "second_edition": published,
        },
    )


def _cells(release: Synthetic) -> Floats:
    domain = release.model.domain
    cells: Floats = np.asarray(release.model.cells(domain.names), dtype=np.float64).reshape(domain.shape)
    return cells


def _sample_rows(study: ChapterStudy) -> Table:
    """Return five rows from the printed program and from an honest release."""
    numbers, labels = (study.domain[name].labels() for name in study.names)
    drawn = {"printed": study.chapter.two_way_sample(), "honest": study.draw(study.two_way())}
    rows: list[Row] = []
    for table, counts in drawn.items():
        if not counts.any():  # few rows, all lost in noise
            continue
        cells = study.random.choice(counts.size, _HEAD, p=counts.ravel() / counts.sum())
        for cell in cells:
            number, category = divmod(int(cell), counts.shape[1])
            rows.append({"table": table, study.names[0]: numbers[number], study.names[1]: labels[category]})
    return tuple(rows)


def _cross_table(study: ChapterStudy) -> Table:
    """Return the first nonempty lines of the cross table: real, and as both programs release them."""
    numbers, labels = (study.domain[name].labels() for name in study.names)
    tables = {"real": study.counts, "printed": study.chapter.two_way(), "honest": _cells(study.two_way())}
    head = np.flatnonzero(study.counts.any(axis=1))[:_HEAD].tolist()
    return tuple(
        {
            "table": name,
            study.names[0]: numbers[number],
            **{label: round(float(counts[number, place]), 1) for place, label in enumerate(labels)},
        }
        for name, counts in tables.items()
        for number in head
    )


def _error_by_width(study: ChapterStudy, runs: int) -> Table:
    """Return mean percent error of ranges that start at 30, or at the least number that occurs, by width."""
    name = study.names[0]
    size = study.counts.shape[0]
    usual = study.within(_FROM, _FROM + 1)
    fits = usual.start + _WIDTHS[-1] <= size and study.counts[usual].any()
    least = int(np.flatnonzero(study.counts.any(axis=1))[0])
    start = _FROM if fits else int(next(iter(study.domain)).labels()[least])
    tables = np.array([study.histogram(NoisyTotal()).model.cells((name,)) for _ in range(runs)])
    rows: list[Row] = []
    for width in _WIDTHS:
        cells = study.within(start, start + width)
        if cells.stop > size or not (true := int(study.counts[cells].sum())):
            continue
        answers = np.array([study.direct(start, start + width) for _ in range(runs)])
        rows.append(
            {
                "width": width,
                "from": start,
                "histogram_percent": float(np.abs(tables[:, cells].sum(axis=1) - true).mean() / true * 100),
                "direct_percent": float(np.abs(answers - true).mean() / true * 100),
            }
        )
    return tuple(rows)


def _losses(study: ChapterStudy) -> Table:
    epsilon, share = float(study.epsilon), float(COUNT.share)
    procedures = (
        ("printed histogram", 1, "not private: floating-point noise"),
        ("printed direct", 1, "not private: floating-point noise; each further answer costs as much again"),
        ("printed, charged rows", 2, "not private: floating-point noise; one for the table, one for the row count"),
        ("printed one-way", 3, "not private: floating-point noise; one for each table, one for the row count"),
        ("printed two-way", 2, "not private: floating-point noise, and cells read from the data"),
        ("honest histogram", 1, "private; the row count is the sum of the noisy cells"),
        ("honest direct", 1, "private; each further answer costs as much again"),
        ("honest, charged rows", 1, f"private; the row count takes {share:g} of it"),
        ("honest one-way", 1, f"private; divided over two tables, the row count takes {share:g} of it"),
        ("honest two-way", 1, f"private; the row count takes {share:g} of it"),
    )
    return tuple(
        {
            "procedure": name,
            "stated_epsilon": epsilon,
            "nominal_epsilon": times * epsilon,
            "private": name.startswith("honest"),
            "remark": explanation,
        }
        for name, times, explanation in procedures
    )


def _summary(rows: Table) -> Table:
    honest = {(row["statistic"], row["method"], row["epsilon"]): row for row in rows}
    published = any(row["first_edition_percent"] is not None for row in rows)
    lines: list[Row] = []
    for row in rows:
        if not str(row["method"]).startswith("printed") or (published and row["first_edition_percent"] is None):
            continue
        other = honest[row["statistic"], str(row["method"]).replace("printed", "honest"), row["epsilon"]]
        lines.append(
            {
                "experiment": f"{row['statistic']}, {str(row['method']).replace('printed', '').strip(', ')}, % off",
                "published": f"{row['first_edition_percent']:.3g}, {row['second_edition_percent']:.3g}"
                if published
                else "-",
                "as_printed": f"{row['percent_error']:.3g}",
                "honest": f"{other['percent_error']:.3g}",
                "lesson": synthetic_figures.method_lesson(str(row["statistic"]), str(row["method"])),
            }
        )
    return tuple(lines)


def _ages(study: ChapterStudy) -> Table:
    """Return shares of the rows by age as printed: real, normalized probabilities, a sample, and from the two-way
    table.
    """
    real, noisy = study.counts.sum(axis=1), study.chapter.histogram()
    shares = {
        "real": real / max(real.sum(), 1),
        "probabilities": normalised(noisy),
        "10 000 rows": study.chapter.sample(noisy, FEW_ROWS) / FEW_ROWS,
        "two-way": normalised(study.chapter.two_way().sum(axis=1)),
    }
    labels = next(iter(study.domain)).labels()
    return tuple(
        {study.names[0]: int(label), **{table: float(share[place]) for table, share in shares.items()}}
        for place, label in enumerate(labels)
    )


def _bands(study: ChapterStudy) -> Table:
    """Return rows by bands of ten numbers and by category: real, and from honest one-way and two-way releases."""
    name, category = study.names
    labels = study.domain[category].labels()
    numbers = next(iter(study.domain)).labels()
    starts = np.arange(0, len(numbers), _BAND)
    tables = {"real": study.counts, "one-way": study.draw(study.one_way()), "two-way": study.draw(study.two_way())}
    banded = {table: np.add.reduceat(counts, starts, axis=0) for table, counts in tables.items()}
    return tuple(
        {
            f"{name}_from": int(numbers[start]),
            category: label,
            **{table: int(counts[band, place]) for table, counts in banded.items()},
        }
        for band, start in enumerate(starts.tolist())
        for place, label in enumerate(labels)
    )


LABS = {
    "synthetic-data": Lab(
        name="synthetic-data",
        title=TITLE,
        procedure=run,
        takes=frozenset({"data", "epsilon", "range", "columns"}),
        runs=RUNS,
    )
}
