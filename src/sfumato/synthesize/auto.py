"""Which synthesizer to take for a workload, decided by its noise before anything is spent.

Every figure is computed from the domain, the workload and the loss alone: choosing costs nothing and tells nothing
of the data.  Methods are compared by one figure, the noise on the answers to the whole workload.  A method without
that figure is taken only if noise drowns all methods that have it.

Noise drowns a table of fewer rows than noise alone makes up.  A dense table keeps the positive half of the noise on
every cell, so noise makes up about half a standard deviation of rows in each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.errors import InputError, QueryError, SizeError
from sfumato.model.factor import FloatArray
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Loss
from sfumato.synthesize import histogram as tables
from sfumato.synthesize import mwem as weights
from sfumato.synthesize import row_count
from sfumato.synthesize.aim import aim, annealed, expected_error, least_rows
from sfumato.synthesize.histogram import MOST_OPTIMISED, matrix, optimised
from sfumato.synthesize.marginal_selection import Limits, as_limits
from sfumato.synthesize.mst import mst
from sfumato.synthesize.row_count import BudgetShare, NoisyTotal, PublicTotal, RowTotal, SeparateTotal, assumed_rows
from sfumato.synthesize.structural_zeros import Zeros
from sfumato.synthesize.synthetic import Synthetic
from sfumato.vault.interface import VaultInterface, refuse_no_vault
from sfumato.vault.release import ReleasedRows
from sfumato.workload.counting_queries import MOST_MATRIX_CELLS, Marginals, Workload, refuse_no_workload

ROUNDS = 30
REPETITIONS = 20
COUNT_SHARE = BudgetShare(Fraction(1, 20))  # of MWEM's loss, where nothing else is said about the row count


@dataclass(frozen=True)
class Option:
    """A synthesizer, and the facts about its noise that need no data.

    Attributes:
        method: its name.
        error: root mean squared noise on an answer, over the whole workload, in rows; infinite if the method does not
            measure the whole workload.
        needed: rows of a table below which noise drowns the method.
        rows: the public number of rows of the table, or a thousand.
        reason: the basis of the figures.
        left_out: errors that the figure does not count; empty if it counts all.
        run: releases with it.
    """

    method: str
    error: float
    needed: float
    rows: int
    reason: str
    left_out: str
    run: Callable[[VaultInterface], Synthetic]

    @property
    def drowned(self) -> bool:
        """Whether noise drowns the method in a table of ``rows`` rows."""
        return self.needed > self.rows

    def __str__(self) -> str:
        if self.drowned:
            return f"{self.method}: noise drowns a table of fewer than {math.ceil(self.needed):,} rows ({self.reason})"
        if math.isinf(self.error):
            return f"{self.method}: cannot be compared without data ({self.left_out})"
        said = f"{self.method}: noise of about {self.error:.4g} rows in an answer ({self.reason})"
        return f"{said}; not counted: {self.left_out}" if self.left_out else said


class Synthesizer:
    """A method with its options as an estimator: ``Synthesizer(aim, loss=..., total=..., workload=...)``.

    ``fit`` releases, which is charged, and ``sample`` draws rows from what was released, which is not.
    """

    def __init__(self, method: Callable[..., Synthetic], **options: object) -> None:
        if not callable(method):
            raise InputError("a method is a function of synthesize, such as aim or mst", culprit=method)
        self.method = method
        self.options = options
        self._release: Synthetic | None = None

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={option!r}" for name, option in self.options.items())
        return f"Synthesizer({getattr(self.method, '__name__', self.method)}, {given})"

    @property
    def release(self) -> Synthetic:
        """What was released.

        Raises:
            InputError: nothing yet.
        """
        if self._release is None:
            raise InputError("nothing was released yet: fit the synthesizer to a vault first", culprit=self)
        return self._release

    def fit(self, vault: VaultInterface) -> Synthesizer:
        """Release with the method; where it raises, what was released before stays."""
        self._release = self.method(vault, **self.options)
        return self

    def sample(self, rows: int | None = None) -> ReleasedRows:
        """Rows of the released model, as many as the release has without a number; costs nothing."""
        return self.release.sample(rows)


def auto(
    vault: VaultInterface,
    *,
    loss: Loss,
    total: RowTotal,
    workload: Workload,
    limits: Limits | None = None,
    zeros: Sequence[Zeros] = (),
) -> Synthetic:
    """Release with the first method of :func:`options`; the provenance says why.

    If combinations are impossible (``zeros``), it chooses among the graphical methods, which keep them out.  These
    release all attributes, whichever the workload names; dense methods release those that it names.
    ``limits`` are those of the graphical methods.

    Raises:
        QueryError: impossible combinations for a workload that no graphical method takes.
        SizeError: no method can hold the workload's cells.
        BudgetError: the ledger refuses ``loss``; nothing was spent.
    """
    refuse_no_vault(vault)
    ranked = options(vault.domain, loss=loss, total=total, workload=workload, limits=limits, zeros=zeros)
    released = ranked[0].run(vault)
    told = [str(option) for option in ranked]
    told[0] += f"; taken because {_rule(ranked[0], total)}"
    return replace(released, provenance={**released.provenance, "chosen_among": told})


def options(
    domain: Domain,
    *,
    loss: Loss,
    total: RowTotal,
    workload: Workload,
    limits: Limits | None = None,
    zeros: Sequence[Zeros] = (),
) -> tuple[Option, ...]:
    """Return the methods that can hold the workload's cells, the one to take first; read no data.

    Methods that noise drowns in a table of the public number of rows (a thousand, if it is not public) come last, those
    that need fewer rows first.  Of the others those come first that measure the whole workload, by their noise.  Of
    equal figures the one that leaves nothing out comes first, and ``aim`` before the other graphical methods.

    Raises:
        QueryError: there is none that keeps impossible combinations out.
        SizeError: there is none.
    """
    row_count.refuse_wrong(domain, loss, total)
    refuse_no_workload(workload)
    graphical = _graphical(domain, loss, total, workload, limits=as_limits(limits), zeros=zeros)
    if zeros and not graphical:
        raise QueryError(
            "impossible combinations are for methods that model the whole table, and take a workload of marginals"
        )
    found = (
        graphical
        if zeros
        else (
            *_histogram(domain, loss, total, workload),
            *_marginals(domain, loss, total, workload),
            *_matrix(domain, loss, total, workload),
            *graphical,
            *_mwem(domain, loss, total, workload),
        )
    )
    if not found:
        size = domain.project(workload.attributes(domain)).size
        raise SizeError(
            f"{size} cells are too many for any dense method; name fewer attributes, or use mst or aim", culprit=size
        )
    return tuple(sorted(found, key=_place))


def _place(option: Option) -> tuple[bool, float, bool]:
    """Return what orders methods: those that noise drowns come last."""
    return option.drowned, option.needed if option.drowned else option.error, bool(option.left_out)


DELTA = "1e-9"
_WORTH_SAYING = 1.2  # times the noise


def without_delta(
    domain: Domain, *, loss: Loss, total: RowTotal, workload: Workload, method: str = "auto"
) -> tuple[str, ...]:
    """Return how much less noise a delta of 1e-9 would leave at the same epsilon, in sentences, before any charge.

    There is no sentence for a loss that has a delta, for few cells, and if the noise would not be much less.

    Args:
        domain: of the table; no rows are read.
        loss: what the release would cost.
        total: where the number of rows comes from.
        workload: what is asked of the method.
        method: one of :func:`options`; ``mst`` and ``annealed`` are judged by the noise of ``aim``.

    Raises:
        LossError, InputError, QueryError, SizeError: as :func:`options` says.
    """
    refuse_no_workload(workload)
    if domain.project(workload.attributes(domain)).size <= MOST_OPTIMISED:
        return ()
    named = "aim" if method in {"mst", "annealed"} else method

    def noise(stated: Loss) -> tuple[float]:
        found = options(domain, loss=stated, total=total, workload=workload)
        return (next((option.error for option in found if named in {"auto", option.method}), math.inf),)

    return compared(loss, noise)


def compared(loss: Loss, noise: Callable[[Loss], tuple[float, ...]]) -> tuple[str, ...]:
    """Return the sentence of :func:`without_delta` for the table whose noise a delta lowers most."""
    if not isinstance(loss, Epsilon):
        return ()
    with_delta = EpsilonDelta(loss.value, DELTA)
    pure, other = max(zip(noise(loss), noise(with_delta), strict=True), key=lambda pair: pair[0] / pair[1])
    if pure == math.inf or pure < _WORTH_SAYING * other:
        return ()
    figures = (float(loss.as_rho().value), pure, float(with_delta.as_rho().value), other)
    rho, noisy, least, calm = (f"{float(f'{figure:.3g}'):,}".removesuffix(".0") for figure in figures)
    said = f"{loss} without a delta (rho = {rho}) leaves noise of about {noisy} in a count; with a delta of {DELTA} "
    return (f"{said}(rho = {least}) the same epsilon leaves about {calm}",)


def _rule(taken: Option, total: RowTotal) -> str:
    """Return the reason for a method, in words."""
    known = "" if isinstance(total, PublicTotal) else ", as the number of rows is not public"
    table = f"in a table of {taken.rows:,} rows{known}"
    if taken.drowned:
        return f"noise drowns every method {table}; none needs fewer rows than this one"
    if math.isinf(taken.error):
        return (
            f"no method with a figure is left: noise drowns it {table}, or it cannot hold the cells, or it keeps no "
            "impossible combination out"
        )
    return f"its noise over the whole workload is the least of the methods that noise does not drown {table}"


def _histogram(domain: Domain, loss: Loss, total: RowTotal, workload: Workload) -> tuple[Option, ...]:
    names = workload.attributes(domain)
    size = domain.project(names).size
    if size > tables.MOST_CELLS:
        return ()
    variance = tables.cell_variance(domain, loss, total, [names])
    return (
        Option(
            "histogram",
            _summed_error(workload.widths(domain), size, variance, total),
            _made_up(size, variance),
            assumed_rows(total),
            f"noise on each of {size:,} cells, summed over the cells of a query",
            "",
            lambda vault: tables.histogram(vault, loss=loss, total=total, attributes=names),
        ),
    )


def _marginals(domain: Domain, loss: Loss, total: RowTotal, workload: Workload) -> tuple[Option, ...]:
    if not isinstance(workload, Marginals):
        return ()
    cliques = workload.over(domain)
    names = [name for clique in cliques for name in clique]
    sizes = [domain.project(clique).size for clique in cliques]
    if len(cliques) == 1 or len(set(names)) < len(names) or max(sizes) > tables.MOST_CELLS:
        return ()  # one marginal is a histogram; those that overlap are not joined as independent
    variance = tables.cell_variance(domain, loss, total, cliques)
    squares = [size * _summed_error(np.ones(size), size, variance, total) ** 2 for size in sizes]
    return (
        Option(
            "marginals",
            math.sqrt(sum(squares) / sum(sizes)),
            _made_up(max(sizes), variance),
            assumed_rows(total),
            f"the loss divided over {len(cliques)} tables, noise on each of their cells",
            "",
            lambda vault: tables.marginals(vault, loss=loss, total=total, cliques=cliques),
        ),
    )


def _matrix(domain: Domain, loss: Loss, total: RowTotal, workload: Workload) -> tuple[Option, ...]:
    names = workload.attributes(domain)
    size = domain.project(names).size
    if size > MOST_OPTIMISED or size * workload.length(domain) > MOST_MATRIX_CELLS:
        return ()
    chosen = optimised(domain, loss, total, workload)
    if chosen.strategy.name == "identity":
        return ()  # a histogram says the same more plainly
    return (
        Option(
            "matrix",
            chosen.error,
            _made_up(size, tables.cell_variance(domain, loss, total, [names])),  # no strategy knows single cells better
            assumed_rows(total),
            f"noise on {len(chosen.weighted.weights)} sums optimised for the workload ({chosen.strategy.name})",
            "",
            lambda vault: matrix(vault, loss=loss, total=total, workload=workload),
        ),
    )


def _mwem(domain: Domain, loss: Loss, total: RowTotal, workload: Workload) -> tuple[Option, ...]:
    size = domain.project(workload.attributes(domain)).size
    length = workload.length(domain)
    schedule = weights.Schedule(rounds=min(ROUNDS, length), repetitions=REPETITIONS)
    if size > weights.MOST_CELLS or size * max(ROUNDS, length) > MOST_MATRIX_CELLS:
        return ()
    separate: SeparateTotal = COUNT_SHARE if isinstance(total, NoisyTotal) else total
    variance = weights.query_variance(domain, loss, separate, schedule)
    # a least-squares fit keeps, of the noise of T measurements, what lies in the space that they span
    kept = min(1.0, max(size - 1, 1) / schedule.rounds)
    noise = math.sqrt(variance * kept)
    whole = schedule.rounds == length
    left_out = f"noise of about {noise:.4g} rows on {schedule.rounds} of {length} queries; its table answers the others"
    return (
        Option(
            "mwem",
            noise if whole else math.inf,
            math.sqrt(variance),
            assumed_rows(total),
            f"noise on {schedule.rounds} measured queries of {length}",
            "" if whole else left_out,
            lambda vault: weights.mwem(vault, loss=loss, total=separate, workload=workload, schedule=schedule),
        ),
    )


def _graphical(
    domain: Domain, loss: Loss, total: RowTotal, workload: Workload, *, limits: Limits, zeros: Sequence[Zeros]
) -> tuple[Option, ...]:
    if not isinstance(workload, Marginals) or not (zeros or _woven(workload, domain)):
        return ()
    noise = expected_error(domain, loss, total, workload)
    needed = least_rows(domain, loss, total)
    others = replace(limits, earlier=True, bounds=False)  # of which only aim can be told
    return (
        Option(
            "aim",
            math.inf if noise is None else noise,
            needed,
            assumed_rows(total),
            "noise on single columns, and on every marginal of the workload if it measures all of them",
            "it measures marginals of at most three attributes, and its model answers the others"
            if noise is None
            else "its model answers marginals that it seems to know better than noise would, or has no room for",
            lambda vault: aim(vault, loss=loss, total=total, workload=workload, limits=limits, zeros=zeros),
        ),
        Option(
            "mst",
            math.inf,
            needed,
            assumed_rows(total),
            "noise on single columns",
            "it measures one pair fewer than there are attributes, and its tree answers all others",
            lambda vault: mst(vault, loss=loss, total=total, limits=others, zeros=zeros),
        ),
        Option(
            "annealed",
            math.inf,
            needed,
            assumed_rows(total),
            "noise on single columns",
            "it measures one marginal after another until its loss is used up",
            lambda vault: annealed(vault, loss=loss, total=total, workload=workload, limits=others, zeros=zeros),
        ),
    )


def _woven(workload: Marginals, domain: Domain) -> bool:
    """Whether a workload is one for a model of the whole table: over all attributes, or of marginals that overlap.

    Overlapping marginals of a few attributes are no histogram of all of these: five pairs of one attribute name six,
    and the noise of their joint cells, summed over the cells of a pair, would drown it.
    """
    cliques = workload.over(domain)
    named = [name for clique in cliques for name in clique]
    return set(named) == set(domain.names) or len(set(named)) < len(named)


def _summed_error(widths: NDArray[np.int64] | FloatArray, size: int, variance: float, total: RowTotal) -> float:
    """Root mean squared error of sums over ``widths`` cells of ``size``; a known total takes out the common part."""
    known = widths / size if isinstance(total, PublicTotal) else 0.0
    return math.sqrt(float(np.mean(widths * (1.0 - known))) * variance)


def _made_up(cells: int, variance: float) -> float:
    """Return the rows that noise alone makes up in a table: half a deviation in each cell, the positive half of it."""
    return cells * math.sqrt(variance) / 2
