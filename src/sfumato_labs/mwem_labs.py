"""Labs ``mwem-1d`` and ``mwem-2d``: MWEM over one or two dimensions of the child mental health table.

Honest procedures are the product's own: a simulated vault over the published counts, real mechanisms, seeded entropy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato import data
from sfumato.domain import Domain, Integer, Unknown
from sfumato.engine.arrays import ArrayTable
from sfumato.errors import InputError
from sfumato.privacy.loss import Charge, Epsilon, Loss
from sfumato.synthesize import NoisyTotal, PublicTotal, Schedule, histogram, ranges
from sfumato.synthesize.auto import options as ranked
from sfumato.synthesize.methods.mwem import iterate
from sfumato.synthesize.synthetic import Synthetic
from sfumato.vault.interface import Mechanisms, Payload, ReleasedPayload, ReleaseRequest, VaultInterface
from sfumato.vault.simulated import SimulatedVault
from sfumato.workload.counting_queries import Workload, counting
from sfumato_labs import mwem_figures, printed_mwem
from sfumato_labs.lab import Lab, LabResult, NamedColumn, Options, Row, Table
from sfumato_labs.printed_mwem import (
    CUT_SHORT,
    FLAWS,
    HALVED,
    INSERTION,
    PUBLISHED,
    Printed,
    boxes,
    cut_short,
    in_order,
    rectangles_of,
)
from sfumato_labs.published_tables import read, refuse_own

EPSILONS = tuple(Fraction(text) for text in ("0.1", "1", "5", "10"))
MEASURES = ("max_error", "min_error", "mean_squared_error", "mean_error")
RELEASES = 20  # releases per run of fast methods, because large errors at large epsilon are rare
REPEATED = f"In each run, histogram and auto release {RELEASES} tables, whose errors are averaged."
TWENTY = "printed, 20 repetitions"
RUNS = 10
_PUBLIC = "private; the row count is public"
_NAMES = ("age", "satisfaction")
_QUERIES = 400
_MOST_CELLS, _MOST_NUMBERS = 4096, 20_000_000  # the second limit is for the product of cells, rounds and runs
_BUNDLED = "the bundled counts of child mental health, as published"

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One of the published experiments.

    Attributes:
        name: of the lab.
        note: names the data.
        domain: the attributes whose cells are published.
        counts: true counts, shape ``(cells,)``.
        workload: draws the queries of a run.
        printed: the printed programs by the name of their row; the first is the published one.
        flaws: of the printed program.
        published: True if the published figures apply to these counts and this schedule.
    """

    name: str
    note: str
    domain: Domain
    counts: NDArray[np.int64]
    workload: Callable[[np.random.Generator], Workload]
    printed: Mapping[str, Printed]
    flaws: tuple[str, ...]
    published: bool

    @property
    def program(self) -> Printed:
        """The published program."""
        return next(iter(self.printed.values()))

    @property
    def schedule(self) -> Schedule:
        """The schedule of honest MWEM, of the same length."""
        return Schedule(rounds=self.program.rounds, repetitions=self.program.repetitions)


@dataclass(frozen=True)
class Outcome:
    """Errors, repeated queries, and the synthetic counts of the last run by method and epsilon."""

    errors: Table
    again: Table
    tables: Mapping[tuple[str, Fraction], Floats]


def outcome_of(experiment: Experiment, options: Options) -> Outcome:
    """Repeat every procedure at every epsilon, with the same queries for all of them in a run."""
    random = np.random.default_rng(options.seed)
    runs, epsilons = options.repeated(LABS[experiment.name].runs), options.epsilon or EPSILONS
    _refuse_large(experiment, runs * len(epsilons))
    codes = np.indices(experiment.domain.shape).reshape(len(experiment.domain), -1).T
    vault = SimulatedVault(ArrayTable(experiment.domain, codes, weights=experiment.counts), seed=options.seed)
    workloads = [experiment.workload(random) for _ in range(runs)]
    tables: dict[tuple[str, Fraction], list[Floats]] = {}
    again: list[Row] = []
    for name, program in experiment.printed.items():
        options.progress(name)
        ended = _printed(experiment, program, workloads, epsilons, random)
        for epsilon, (answers, drawn) in ended.items():
            tables[name, epsilon] = answers
            again.append({"program": name, "epsilon": float(epsilon), "drawn_again": drawn, "rounds": program.rounds})
    for epsilon in epsilons:
        options.progress(f"honest procedures, epsilon {float(epsilon):g}")
        for method, answers in _honest(experiment, vault, workloads, epsilon).items():
            tables[method, epsilon] = answers
    errors = _published_rows(experiment.name, epsilons) if experiment.published else []
    for method in (*experiment.printed, "mwem", "mwem_average", "histogram", "auto"):
        for epsilon in epsilons:
            found_errors = _errors(experiment, workloads, tables[method, epsilon])
            means = tuple(float(value) for value in found_errors.mean(axis=0))
            spread = float(found_errors[:, -1].std(ddof=1)) if runs > 1 else None
            errors.append(_row(method, epsilon, means, runs, spread))
    return Outcome(tuple(errors), tuple(again), {key: answers[-1][-1] for key, answers in tables.items()})


def _refuse_large(experiment: Experiment, runs: int) -> None:
    """Refuse too many numbers: all runs of a printed program advance together, and every cell is in the figures."""
    cells = experiment.domain.size
    if cells > _MOST_CELLS or cells * experiment.program.rounds * runs > _MOST_NUMBERS:
        raise InputError(
            f"{cells} cells in {experiment.program.rounds} rounds of {runs} runs are too many for this lab: declare "
            "narrower bounds with --columns, or take fewer --runs, --rounds or --epsilon",
            culprit=cells,
        )


def _published_rows(name: str, epsilons: tuple[Fraction, ...]) -> list[Row]:
    return [
        _row(method, epsilon, figures, 100)
        for method, published in PUBLISHED[name].items()
        for epsilon, figures in zip(EPSILONS, published, strict=True)
        if epsilon in epsilons
    ]


def losses(experiment: Experiment, epsilons: tuple[Fraction, ...]) -> Table:
    """Return every procedure's stated loss, its loss with honest selection, and its actual loss."""
    rows: list[Row] = []
    for exact in epsilons:
        epsilon, half = float(exact), float(exact) / 2
        program = experiment.program
        selection, measurement = program.selection_loss(epsilon), program.measurement_loss(epsilon)
        explanation = "not private: the loss of its noise, were its domain and row count public"
        rows.append(
            _loss(
                "printed",
                epsilon,
                explanation,
                nominal=half + measurement,
                selection=selection,
                measurement=measurement,
            )
        )
        rows += [
            _loss(method, epsilon, _PUBLIC, nominal=epsilon, selection=half, measurement=half)
            for method in ("mwem", "mwem_average")
        ]
        rows.append(
            _loss(
                "histogram",
                epsilon,
                "private; the row count comes from the cells",
                nominal=epsilon,
                selection=0.0,
                measurement=epsilon,
            )
        )
        rows.append(_loss("auto", epsilon, _PUBLIC, nominal=epsilon, selection=0.0, measurement=epsilon))
    return tuple(rows)


class _Simulation:
    """The mechanisms of a vault without its storage: results are not stored."""

    def __init__(self, vault: SimulatedVault) -> None:
        self._vault = vault

    @property
    def domain(self) -> Domain:
        return self._vault.domain

    @property
    def limit(self) -> None:
        return None

    @property
    def view(self) -> None:
        return None

    def refuse_keys(self, columns: tuple[str, ...]) -> None:
        self._vault.refuse_keys(columns)

    def release(
        self,
        request: ReleaseRequest,
        loss: Loss | Charge,
        run: Callable[[Mechanisms], Payload],
        *,
        charge: Charge | None = None,
        retry_key: str | None = None,  # noqa: ARG002  (nothing is repeated)
    ) -> ReleasedPayload:
        payload = dict(run(self._vault.mechanisms(charge or loss)))
        return ReleasedPayload(payload, guarantee="", cost="", provenance={"method": request.method}, digest="0")


def _honest(
    experiment: Experiment, vault: SimulatedVault, workloads: list[Workload], epsilon: Fraction
) -> dict[str, list[Floats]]:
    """Return synthetic counts by method, for each run: shape ``(releases, cells)``."""
    loss = Epsilon(epsilon)
    total = PublicTotal(int(experiment.counts.sum()))
    simulation = _Simulation(vault)

    def released(method: Callable[[VaultInterface], Synthetic]) -> Floats:
        return np.array([method(simulation).model.cells(experiment.domain.names) for _ in range(RELEASES)])

    answers: dict[str, list[Floats]] = {"mwem": [], "mwem_average": [], "histogram": [], "auto": []}
    for workload in workloads:
        queries = counting(workload, experiment.domain)
        iterates = iterate(vault.mechanisms(loss), loss, total=total, queries=queries, schedule=experiment.schedule)
        answers["mwem"].append(iterates.last[None])
        answers["mwem_average"].append(iterates.average[None])
        answers["histogram"].append(released(lambda simulated: histogram(simulated, loss=loss, total=NoisyTotal())))
        best = ranked(experiment.domain, loss=loss, total=total, workload=workload)[0]
        answers["auto"].append(released(best.run))
    return answers


def _printed(
    experiment: Experiment,
    program: Printed,
    workloads: list[Workload],
    epsilons: tuple[Fraction, ...],
    random: np.random.Generator,
) -> dict[Fraction, tuple[list[Floats], float]]:
    """Run a printed program at every epsilon, all runs at once. Return tables of the runs, and repeated queries per
    run.
    """
    matrices = np.array([workload.matrix(experiment.domain) for workload in workloads], dtype=np.float64)
    queries = np.tile(matrices, (len(epsilons), 1, 1))
    nominal = np.repeat([float(epsilon) for epsilon in epsilons], len(workloads))
    ended = printed_mwem.run(program, experiment.counts.astype(np.float64), queries, nominal, random)
    parts = [list(part[:, None]) for part in np.split(ended.weights, len(epsilons))]  # one release per run
    again = [float(part.mean()) for part in np.split(ended.again, len(epsilons))]
    return dict(zip(epsilons, zip(parts, again, strict=True), strict=True))


def _errors(experiment: Experiment, workloads: list[Workload], tables: list[Floats]) -> Floats:
    """Return the largest, smallest, mean squared and mean absolute error over the queries per run: shape ``(runs,
    4)``.
    """
    results = []
    for workload, table in zip(workloads, tables, strict=True):
        matrix = workload.matrix(experiment.domain).T.astype(np.float64)
        error = np.abs((table - experiment.counts) @ matrix)  # (releases, queries)
        figures = (error.max(axis=1), error.min(axis=1), np.square(error).mean(axis=1), error.mean(axis=1))
        results.append([figure.mean() for figure in figures])
    return np.array(results)


def _row(
    method: str, epsilon: Fraction, figures: tuple[float | None, ...], runs: int | None, spread: float | None = None
) -> Row:
    """Return a row of figures; ``spread`` is the standard deviation of the mean error between runs."""
    means = dict(zip(MEASURES, figures, strict=True))
    return {"method": method, "epsilon": float(epsilon), **means, "mean_error_sd": spread, "runs": runs}


def _loss(
    procedure: str, epsilon: float, explanation: str, *, nominal: float, selection: float, measurement: float
) -> Row:
    return {
        "procedure": procedure,
        "stated_epsilon": epsilon,
        "nominal_epsilon": nominal,
        "selection_epsilon": selection,
        "measurement_epsilon": measurement,
        "real_epsilon": selection + measurement,
        "private": procedure != "printed",
        "remark": explanation,
    }


def _result(experiment: Experiment, title: str, options: Options) -> LabResult:
    outcome = outcome_of(experiment, options)
    table = mwem_figures.counts_by_cell(experiment.domain, experiment.counts, outcome.tables)
    names = experiment.domain.names
    maps = (mwem_figures.heat_maps(table, *names),) if len(names) > 1 else ()
    return LabResult(
        lab=experiment.name,
        title=title if experiment.published else _other_title(experiment),
        summary=_summary(outcome.errors),
        tables={
            "errors": outcome.errors,
            "drawn_again": outcome.again,
            "losses": losses(experiment, options.epsilon or EPSILONS),
            "counts": table,
        },
        plots=(
            *maps,
            mwem_figures.bars(table, names[0]),
            mwem_figures.curves(table, names[0]),
            mwem_figures.differences(table, names[0]),
            mwem_figures.errors(outcome.errors),
        ),
        notes=_notes(experiment, outcome, options.repeated(LABS[experiment.name].runs)),
    )


def _other_title(experiment: Experiment) -> str:
    ways, names = {1: "one dimension: ranges", 2: "two dimensions: rectangles"}, experiment.domain.names
    return f"MWEM in {ways[len(names)]} of {' and '.join(names)} over {experiment.counts.sum()} rows"


def _notes(experiment: Experiment, outcome: Outcome, runs: int) -> tuple[str, ...]:
    errors = (
        f"Errors are absolute differences of answers, in people, over the queries; averages over {runs} runs"
        f"{', of the published rows over 100' if experiment.published else ''}. {REPEATED}"
    )
    again = ", ".join(
        f"{row['drawn_again']:.0f} at epsilon {row['epsilon']:g}"
        for row in outcome.again
        if row["program"] == "printed"
    )
    redrawn = f"The printed program draws a query that it measured before so often in a run: {again}."
    flaws = "The printed procedure is not differentially private as it stands: " + "; ".join(experiment.flaws) + "."
    average = (
        "mwem_average is the average of the iterates before the last, which stops at T - 1, where the paper's is over "
        "all i <= T."
    )
    return f"Runs on {experiment.note}.", errors, redrawn, flaws, average, lesson(outcome.errors)


def lesson(errors: Table) -> str:
    """Return sentences that compare the printed program, honest MWEM and noise on the cells."""
    sentences = []
    for epsilon in dict.fromkeys(row["epsilon"] for row in errors):
        mean = {row["method"]: float(row["mean_error"] or 0) for row in errors if row["epsilon"] == epsilon}
        sentences.append(
            f"at epsilon {epsilon:g} printed {mean['printed']:.3g}, honest MWEM {mean['mwem']:.3g}, noise on the cells "
            f"{mean['auto']:.3g}"
        )
    return f"Mean errors: {'; '.join(sentences)}."


def _summary(errors: Table) -> Table:
    lines: list[Row] = []
    for epsilon in dict.fromkeys(row["epsilon"] for row in errors):
        mean = {row["method"]: row["mean_error"] for row in errors if row["epsilon"] == epsilon}
        own, reference = mean.get("published own"), mean.get("published reference")
        (printed,) = (row for row in errors if (row["method"], row["epsilon"]) == ("printed", epsilon))
        spread = printed["mean_error_sd"]
        between = "" if spread is None else f" (sd {spread:.2g} between {printed['runs']} runs)"
        lines.append(
            {
                "experiment": f"mean error at epsilon {epsilon:g}",
                "published": "-" if own is None else f"{own:.4g} (own), {reference:.4g} (reference)",
                "as_printed": f"{mean['printed']:.4g}{between}"
                + (f"; {mean[TWENTY]:.4g} with 20 repetitions" if TWENTY in mean else ""),
                "honest": f"{mean['mwem']:.4g} (MWEM), {mean['auto']:.4g} (auto)",
                "lesson": f"{_better(float(mean['auto'] or 0), float(mean['mwem'] or 0))}; "
                "the printed form of MWEM is not private",
            }
        )
    return tuple(lines)


def _better(cells: float, mwem: float) -> str:
    """Return a clause that names the honest procedure with the smaller error."""
    if cells < mwem:
        return "noise on the cells themselves beats MWEM"
    return "MWEM beats noise on the cells themselves" if mwem < cells else "MWEM errs as much as noise on the cells"


TITLE_1D = "MWEM in one dimension: sixty ranges of age over a million children"
TITLE_2D = "MWEM in two dimensions: rectangles of age and satisfaction over a million children"
RUNS_1D = 100  # as in the source


def run_1d(options: Options) -> LabResult:
    """Compare published, printed and honest procedures."""
    note, domain, table = _table(options, 1)
    program = Printed(rounds=options.rounds or 30, repetitions=options.repetitions or 20, halved=False, replay=in_order)
    experiment = Experiment(
        name="mwem-1d",
        note=note,
        domain=domain,
        counts=table,
        workload=_ranges(options, domain),
        printed={"printed": program},
        flaws=(*FLAWS, INSERTION),
        published=_as_published(options),
    )
    return _result(experiment, TITLE_1D, options)


def run_2d(options: Options) -> LabResult:
    """Compare published, printed and honest procedures."""
    note, domain, table = _table(options, 2)
    program = Printed(
        rounds=options.rounds or 200, repetitions=options.repetitions or 20, halved=True, replay=cut_short
    )
    queries = options.single("queries", _QUERIES)
    _refuse_many(queries, program.rounds, domain)
    experiment = Experiment(
        name="mwem-2d",
        note=note,
        domain=domain,
        counts=table,
        workload=lambda random: rectangles_of(domain, queries, random),
        printed={"printed": program, TWENTY: replace(program, replay=in_order)},
        flaws=(*FLAWS, HALVED, CUT_SHORT),
        published=_as_published(options),
    )
    return _result(experiment, TITLE_2D, options)


def _as_published(options: Options) -> bool:
    """Return whether data, queries and schedule are as in the source."""
    varied = (options.data, options.queries, options.rounds, options.repetitions)
    return all(each is None for each in varied)


def _table(options: Options, ways: int) -> tuple[str, Domain, NDArray[np.int64]]:
    """Return the lab's data: the published counts, or integer columns of the table of ``--data``."""
    if options.data is None:
        if options.columns is not None:
            raise InputError("--columns names columns of the table of --data; add --data", culprit="columns")
        known = data.child_mental_health_counts()
        domain = data.domain("child_mental_health")
        counts = known.sum(axis=1) if ways == 1 else known
        return _BUNDLED, domain.project(_NAMES[:ways]), counts.ravel()
    columns = options.columns or tuple(NamedColumn(name) for name in _NAMES[:ways])
    own = ("epsilon", "real", "minus", "people", "table", *mwem_figures.SYNTHETIC)
    refuse_own([column.name for column in columns], own)
    if len(columns) != ways:
        raise InputError(f"the lab needs {ways} of --columns, not {len(columns)}", culprit=columns)
    table = read(options.data, [column.name for column in columns])
    values, spans = table.whole_numbers(columns)
    domain = Domain(
        tuple(
            Integer(name=column.name, minimum=low, maximum=high, unknown=Unknown.DROP)
            for column, (low, high) in zip(columns, spans, strict=True)
        )
    )
    low = np.array([span[0] for span in spans])
    cells = np.ravel_multi_index(tuple((values - low).T), domain.shape)
    names = ", ".join(domain.names)
    return f"{table.title}, {names}", domain, np.bincount(cells, minlength=domain.size)


def _ranges(options: Options, domain: Domain) -> Callable[[np.random.Generator], Workload]:
    """Return the published ranges, or the requested number of distinct ones, drawn like the rectangles."""
    (name,) = domain.names
    rounds = options.rounds or 30
    if options.data is None and options.queries is None:
        published = data.child_mental_health_queries()
        _refuse_many(len(published), rounds, domain, least=len(published))
        return lambda _: ranges(name, published)
    queries = options.single("queries", 60)
    _refuse_many(queries, rounds, domain)

    def drawn(random: np.random.Generator) -> Workload:
        ends = boxes(domain.shape, queries, random)[:, 0]  # as codes
        return ranges(name, [(int(low), int(high)) for low, high in ends])

    return drawn


def _refuse_many(queries: int, rounds: int, domain: Domain, least: int = 0) -> None:
    every = max(int(np.prod([size * (size + 1) // 2 for size in domain.shape])), least)
    if not rounds <= queries <= every:
        raise InputError(
            f"--queries must be between the {rounds} rounds and the {every} that there are, not {queries}",
            culprit=queries,
        )


_TAKES = frozenset({"data", "columns", "epsilon", "queries", "rounds", "repetitions"})
LABS = {
    "mwem-1d": Lab(name="mwem-1d", title=TITLE_1D, procedure=run_1d, takes=_TAKES, runs=RUNS_1D),
    "mwem-2d": Lab(name="mwem-2d", title=TITLE_2D, procedure=run_2d, takes=_TAKES, runs=RUNS),
}
