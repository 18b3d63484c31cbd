"""The two MWEM experiments: the same procedures over one or two dimensions.

Honest procedures are the product's own, through the doors of a vault over the published counts, with
real mechanisms on seeded entropy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.engine.arrays import ArrayTable
from sfumato.labs import printed_mwem
from sfumato.labs.lab import Options, Row, Table
from sfumato.labs.printed_mwem import Printed
from sfumato.privacy.accountant import Charge
from sfumato.privacy.loss import Epsilon, Loss
from sfumato.synthesize import Public, Schedule, Summed, histogram
from sfumato.synthesize.auto import options
from sfumato.synthesize.mwem import iterate
from sfumato.synthesize.synthetic import Synthetic
from sfumato.synthesize.workload import Workload, counting
from sfumato.vault.doors import Doors
from sfumato.vault.fake import FakeVault
from sfumato.vault.keeper import Keeper
from sfumato.vault.payload import Payload
from sfumato.vault.vault import Request, Settled

EPSILONS = ("0.1", "1", "5", "10")
MEASURES = ("max_error", "min_error", "mean_squared_error", "mean_error")
RELEASES = 20  # of the methods that take no time, in every run: their errors at large epsilon are rare events
REPEATED = f"In each run, histogram and auto release {RELEASES} tables, whose errors are averaged."
_PUBLIC = "private; the row count is public"
SHOWN = "1"  # the epsilon whose synthetic tables are plotted

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One of the published set-ups.

    Attributes:
        domain: the attributes whose cells are published.
        counts: true counts, shape ``(cells,)``.
        workload: draws the queries of a run.
        schedule: of honest MWEM.
        printed: constants of the printed program.
        published: mean absolute error of the published reference by epsilon.
    """

    domain: Domain
    counts: NDArray[np.int64]
    workload: Callable[[np.random.Generator], Workload]
    schedule: Schedule
    printed: Printed
    published: Mapping[str, float]


@dataclass(frozen=True)
class Outcome:
    """The table of errors, and the synthetic counts of the last run at the shown epsilon by method."""

    errors: Table
    tables: Mapping[str, Floats]


def run(experiment: Experiment, asked: Options) -> Outcome:
    """Repeat every procedure at every epsilon, with the same queries for all of them in a run."""
    random = np.random.default_rng(asked.seed)
    codes = np.indices(experiment.domain.shape).reshape(len(experiment.domain), -1).T
    vault = FakeVault(ArrayTable(experiment.domain, codes, weights=experiment.counts), seed=asked.seed)
    workloads = [experiment.workload(random) for _ in range(asked.runs)]
    tables = {
        (method, epsilon): found
        for epsilon in EPSILONS
        for method, found in _honest(experiment, vault, workloads, epsilon).items()
    }
    tables |= _printed(experiment, workloads, random)
    errors: list[Row] = [
        _row("reference", epsilon, (None, None, None, figure), None) for epsilon, figure in experiment.published.items()
    ]
    for method in ("printed", "mwem", "mwem_average", "histogram", "auto"):
        for epsilon in EPSILONS:
            found = _errors(experiment, workloads, tables[method, epsilon])
            errors.append(_row(method, epsilon, tuple(float(value) for value in found), asked.runs))
    shown = {method: found[-1][-1] for (method, epsilon), found in tables.items() if epsilon == SHOWN}
    return Outcome(tuple(errors), shown)


def losses(printed: Printed, more: tuple[str, ...]) -> Table:
    """What every procedure says that it spends, what it would spend were its selection sound, and what it spends."""
    rows: list[Row] = []
    for text in EPSILONS:
        epsilon = float(text)
        selection, measurement = printed.selection_loss(epsilon), printed.measurement_loss(epsilon)
        remark = "not private: the loss of its noise, were its domain and row count public" + "".join(
            f"; {flaw}" for flaw in more
        )
        rows.append(_loss("printed", epsilon, epsilon / 2 + measurement, selection, measurement, remark))
        half = epsilon / 2
        rows += [_loss(method, epsilon, epsilon, half, half, _PUBLIC) for method in ("mwem", "mwem_average")]
        rows.append(_loss("histogram", epsilon, epsilon, 0.0, epsilon, "private; the row count comes from the cells"))
        rows.append(_loss("auto", epsilon, epsilon, 0.0, epsilon, _PUBLIC))
    return tuple(rows)


class _Simulation:
    """The doors of a vault without the rest of it: what a method finds is not stored."""

    def __init__(self, vault: FakeVault) -> None:
        self._vault = vault

    @property
    def domain(self) -> Domain:
        return self._vault.domain

    def release(
        self,
        request: Request,
        loss: Loss | Charge,
        run: Callable[[Doors], Payload],
        *,
        retry_key: str | None = None,  # noqa: ARG002  (nothing is repeated)
    ) -> Settled:
        payload = dict(run(self._vault.doors(loss)))
        return Settled(payload, guarantee="", cost="", provenance={"method": request.method}, digest="0")


def _honest(
    experiment: Experiment, vault: FakeVault, workloads: list[Workload], epsilon: str
) -> dict[str, list[Floats]]:
    """Synthetic counts by method, for each run: shape ``(releases, cells)``."""
    loss = Epsilon(epsilon)
    total = Public(int(experiment.counts.sum()))
    simulation = _Simulation(vault)

    def released(method: Callable[[Keeper], Synthetic]) -> Floats:
        return np.array([method(simulation).model.cells(experiment.domain.names) for _ in range(RELEASES)])

    found: dict[str, list[Floats]] = {"mwem": [], "mwem_average": [], "histogram": [], "auto": []}
    for workload in workloads:
        queries = counting(workload, experiment.domain)
        iterates = iterate(vault.doors(loss), loss, total, queries, experiment.schedule)
        found["mwem"].append(iterates.last[None])
        found["mwem_average"].append(iterates.average[None])
        found["histogram"].append(released(lambda keeper: histogram(keeper, loss=loss, total=Summed())))
        best = options(experiment.domain, loss=loss, total=total, workload=workload)[0]
        found["auto"].append(released(best.run))
    return found


def _printed(
    experiment: Experiment, workloads: list[Workload], random: np.random.Generator
) -> dict[tuple[str, str], list[Floats]]:
    """The printed program at every epsilon, all runs at once."""
    matrices = np.array([workload.matrix(experiment.domain) for workload in workloads], dtype=np.float64)
    queries = np.tile(matrices, (len(EPSILONS), 1, 1))
    epsilons = np.repeat([float(epsilon) for epsilon in EPSILONS], len(workloads))
    weights = printed_mwem.run(experiment.printed, experiment.counts.astype(np.float64), queries, epsilons, random)
    parts = [list(part[:, None]) for part in np.split(weights, len(EPSILONS))]  # one release a run
    return {("printed", epsilon): found for epsilon, found in zip(EPSILONS, parts, strict=True)}


def _errors(experiment: Experiment, workloads: list[Workload], tables: list[Floats]) -> Floats:
    """Largest, smallest, mean squared and mean absolute error over the queries, averaged over the runs."""
    found = []
    for workload, table in zip(workloads, tables, strict=True):
        matrix = workload.matrix(experiment.domain).T.astype(np.float64)
        error = np.abs((table - experiment.counts) @ matrix)  # (releases, queries)
        figures = (error.max(axis=1), error.min(axis=1), np.square(error).mean(axis=1), error.mean(axis=1))
        found.append([figure.mean() for figure in figures])
    means: Floats = np.array(found).mean(axis=0)
    return means


def _row(method: str, epsilon: str, figures: tuple[float | None, ...], runs: int | None) -> Row:
    return {"method": method, "epsilon": float(epsilon), **dict(zip(MEASURES, figures, strict=True)), "runs": runs}


def _loss(procedure: str, epsilon: float, nominal: float, selection: float, measurement: float, remark: str) -> Row:
    return {
        "procedure": procedure,
        "stated_epsilon": epsilon,
        "nominal_epsilon": nominal,
        "selection_epsilon": selection,
        "measurement_epsilon": measurement,
        "real_epsilon": selection + measurement,
        "private": procedure != "printed",
        "remark": remark,
    }
