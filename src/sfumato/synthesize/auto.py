"""Choose a synthesizer for a workload by its noise, before anything is charged.

Every figure depends only on the domain, the workload and the loss, so the choice costs no privacy.  Methods are
compared by the noise on the answers to the whole workload.  A method without that figure is taken only if noise hides
the table in all methods that have it.

Noise hides a table that has fewer rows than noise alone adds.  A dense table keeps the positive half of the noise on
every cell, so that noise adds about half a standard deviation of rows in each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Unpack

from sfumato.domain import Domain
from sfumato.errors import InputError, QueryError, SizeError, pluralize
from sfumato.ledger.entry import RENAMED
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Loss
from sfumato.synthesize.budget_allocation import NoisyTotal, PublicTotal, RowTotal, refuse_wrong_total
from sfumato.synthesize.marginal_selection import SizeLimits, size_limits
from sfumato.synthesize.methods import SYNTHESIZERS
from sfumato.synthesize.methods.histogram import MOST_OPTIMISED
from sfumato.synthesize.structural_zeros import Zeros
from sfumato.synthesize.synthesis_method import Option, PlannedRelease, RankedMethod, SynthesisMethod, Task
from sfumato.synthesize.synthetic import Synthetic
from sfumato.vault.interface import StatedLoss, VaultInterface, refuse_no_vault, stated_loss, states_loss
from sfumato.vault.release import ReleasedRows
from sfumato.workload.counting_queries import Marginals, Workload, all_marginals, refuse_no_workload
from sfumato.workload.named_marginals import most_cuts, named_marginals


class Synthesizer:
    """A method with its options as an estimator: ``Synthesizer(batched, loss=..., total=..., workload=...)``.

    ``fit`` makes a release, which is charged.  ``sample`` draws rows from the released model at no cost.
    """

    def __init__(self, method: Callable[..., Synthetic], **options: object) -> None:
        if not callable(method):
            raise InputError("a method is a function of synthesize, such as batched or mst", culprit=method)
        self.method = method
        self.options = options
        self._release: Synthetic | None = None

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={option!r}" for name, option in self.options.items())
        return f"Synthesizer({getattr(self.method, '__name__', self.method)}, {given})"

    @property
    def release(self) -> Synthetic:
        """Return the release of the last fit.

        Raises:
            InputError: nothing was fitted yet.
        """
        if self._release is None:
            raise InputError("nothing was released yet: fit the synthesizer to a vault first", culprit=self)
        return self._release

    def fit(self, vault: VaultInterface) -> Synthesizer:
        """Release with the method; if it raises, the last release stays."""
        self._release = self.method(vault, **self.options)
        return self

    def sample(self, rows: int | None = None) -> ReleasedRows:
        """Sample rows of the released model at no cost; default: as many rows as the release has."""
        return self.release.sample(rows)


@states_loss
def auto(
    vault: VaultInterface,
    *,
    total: RowTotal | None = None,
    workload: Workload | None = None,
    limits: SizeLimits | None = None,
    zeros: Sequence[Zeros] = (),
    **stated: Unpack[StatedLoss],
) -> Synthetic:
    """Release with the first method of :func:`options`; the provenance says why.

    With structural ``zeros`` it chooses among the graphical methods, which exclude these combinations.  Graphical
    methods release all attributes; dense methods release the attributes of the workload.  ``limits`` apply to graphical
    methods only.  By default the number of rows is noisy, and the workload is all pairs of columns.

    Raises:
        QueryError: there are impossible combinations, but no graphical method takes the workload.
        SizeError: no method can hold the workload's cells.
        BudgetError: the ledger refuses ``loss``; nothing was spent.
    """
    loss = stated_loss(stated)
    refuse_no_vault(vault)
    workload = all_marginals(min(2, len(vault.domain))) if workload is None else workload
    total = NoisyTotal() if total is None else total
    task = Task(loss=loss, total=total, workload=workload, limits=size_limits(limits), zeros=zeros)
    return AUTO.release(vault, task)


@states_loss
def options(
    domain: Domain,
    *,
    total: RowTotal,
    workload: Workload,
    limits: SizeLimits | None = None,
    zeros: Sequence[Zeros] = (),
    **stated: Unpack[StatedLoss],
) -> tuple[RankedMethod, ...]:
    """Return the methods that can hold the workload's cells, best first; read no data.

    A method comes last if noise hides a table of the public number of rows (a thousand, if it is not public).  Among
    these, methods that need fewer rows come first.  The other methods are sorted by their noise on the whole workload.
    Ties go to a method without omitted errors, then to the first in ``SYNTHESIZERS``.

    Raises:
        QueryError: no method excludes impossible combinations for this workload.
        SizeError: no method can hold the workload's cells.
    """
    loss = stated_loss(stated)
    refuse_wrong_total(domain, loss, total)
    task = Task(loss=loss, total=total, workload=workload, limits=size_limits(limits), zeros=zeros)
    return _ranked(domain, task)


def _ranked(domain: Domain, task: Task) -> tuple[RankedMethod, ...]:
    refuse_no_workload(task.workload)
    weighted = isinstance(task.workload, Marginals) and bool(task.workload.weights)
    able = [method for method in SYNTHESIZERS if method.weighs or not weighted]
    candidates = [candidate for method in able if (candidate := method.estimate(domain, task)) is not None]
    if isinstance(task.workload, Marginals) and all(candidate.hidden_by_noise for candidate in candidates):
        most_cuts(
            domain, named_marginals(task.workload, domain), cells=task.limits.cells, marginal=task.limits.marginal
        )
    if not candidates and task.zeros:
        raise QueryError(
            "impossible combinations are for methods that model the whole table, and take a workload of marginals"
        )
    if not candidates:
        size = domain.project(task.workload.attributes(domain)).size
        raise SizeError(
            f"{size} cells are too many for any dense method; name fewer attributes, or use mst or batched",
            culprit=size,
        )
    return tuple(sorted(candidates, key=_place))


def _plan(domain: Domain, task: Task) -> PlannedRelease:
    """Plan the release of the first method, with the reason for it."""
    ranked = _ranked(domain, task)
    reasons = [str(candidate) for candidate in ranked]
    reasons[0] += f"; taken because {_rule(ranked[0], task.total)}"
    planned = ranked[0].synthesizer.plan(domain, ranked[0].task)
    return replace(planned, provenance={"chosen_among": reasons})


def _place(candidate: RankedMethod) -> tuple[bool, float, bool]:
    """Return the sort key of a method; methods hidden by noise come last."""
    return (
        candidate.hidden_by_noise,
        candidate.rows_needed if candidate.hidden_by_noise else candidate.error,
        bool(candidate.left_out),
    )


AUTO = SynthesisMethod(
    name="auto",
    summary="what the method of least noise measures, chosen without the data",
    options=frozenset({Option.MARGINALS, Option.WAY, Option.ZEROS, Option.NO_REUSE}),
    plan=_plan,
    estimate=lambda domain, task: _ranked(domain, task)[0],
    weighs=True,
)
METHODS = (AUTO, *SYNTHESIZERS)
"""All methods that a caller can name."""


def method_named(name: str) -> SynthesisMethod:
    """Return the method with the given name.

    Raises:
        InputError: there is no such method.
    """
    for method in METHODS:
        if method.name == name:
            return method
    if name in RENAMED:
        raise InputError(f"the method {name!r} is called {RENAMED[name]!r}; name it so", culprit=name)
    names = ", ".join(method.name for method in METHODS)
    raise InputError(f"there is no method {name!r}; choose {names}", culprit=name)


def refuse_options(method: SynthesisMethod, given: Collection[Option]) -> None:
    """Refuse options that a method ignores, and missing options that it needs.

    Raises:
        InputError: an option is ignored or missing; the message has its name on the command line.
    """
    if ignored := [option for option in Option if option in given and option not in method.options]:
        takers = ", ".join(each.name for each in METHODS if ignored[0] in each.options)
        refused = " and no ".join(f"--{option}" for option in ignored)
        raise InputError(f"--method {method.name} takes no {refused}; --{ignored[0]} is for {takers}")
    for option, explanation in method.needs.items():
        if option not in given:
            raise InputError(explanation, culprit=method.name)


DELTA = "1e-9"
_WORTH_SAYING = 1.2  # ratio of noises from which the sentence is given


@states_loss
def without_delta(
    domain: Domain, *, total: RowTotal, workload: Workload, method: str = "auto", **stated: Unpack[StatedLoss]
) -> tuple[str, ...]:
    """Return how much less noise a delta of 1e-9 would leave at the same epsilon, in sentences, before any charge.

    There is no sentence for a loss that has a delta, for few cells, or if the noise would not be much less.

    Args:
        domain: the domain of the table; no rows are read.
        total: where the number of rows comes from.
        workload: the queries of the release.
        method: the name of a method; ``mst`` and ``aim`` are judged by the noise of ``batched``.
        **stated: the loss of the release: ``loss``, or ``epsilon`` with or without ``delta``.

    Raises:
        LossError, InputError, QueryError, SizeError: :func:`options` refuses the release.
    """
    loss = stated_loss(stated)
    refuse_no_workload(workload)
    if domain.project(workload.attributes(domain)).size <= MOST_OPTIMISED:
        return ()
    named = method_named(method).noise_of or method

    def noise(stated: Loss) -> tuple[float]:
        candidates = options(domain, loss=stated, total=total, workload=workload)
        return (next((option.error for option in candidates if named in {"auto", option.method}), math.inf),)

    return compared(loss, noise)


def compared(loss: Loss, noise: Callable[[Loss], tuple[float, ...]]) -> tuple[str, ...]:
    """Return the sentence of :func:`without_delta` for the table with the largest gain from a delta."""
    if not isinstance(loss, Epsilon):
        return ()
    with_delta = EpsilonDelta(loss.value, DELTA)
    pure, other = max(zip(noise(loss), noise(with_delta), strict=True), key=lambda pair: pair[0] / pair[1])
    if pure == math.inf or pure < _WORTH_SAYING * other:
        return ()
    figures = (float(loss.as_rho().value), pure, float(with_delta.as_rho().value), other)
    rho, noisy, least, calm = (f"{float(f'{figure:.3g}'):,}".removesuffix(".0") for figure in figures)
    comparison = (
        f"{loss} without a delta (rho = {rho}) leaves noise of about {noisy} in a count; with a delta of {DELTA} "
    )
    return (f"{comparison}(rho = {least}) the same epsilon leaves about {calm}",)


def _rule(taken: RankedMethod, total: RowTotal) -> str:
    """Return in words why a method was taken."""
    known = "" if isinstance(total, PublicTotal) else " (the number of rows is not public)"
    table = f"a table of {pluralize(taken.rows, 'row')}{known}"
    if taken.hidden_by_noise:
        return f"noise hides {table} in every method; this method needs the fewest rows"
    if math.isinf(taken.error):
        return (
            f"no method with a figure remains: noise hides {table}, or it cannot hold the cells, or it cannot exclude "
            "impossible combinations"
        )
    return f"its noise over the whole workload is the least of all methods in which noise does not hide {table}"
