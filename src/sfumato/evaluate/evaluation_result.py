"""The result of an evaluation of one release, as plain values that can be stored and drawn.

A result is computed from the protected table without noise.  Keep it as secret as the table.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np

from sfumato.arguments import expect
from sfumato.domain import Domain, Real
from sfumato.evaluate.attacks.row_attacks import Roc
from sfumato.evaluate.attacks.suite import Attacks, attack
from sfumato.evaluate.audit.loss_bounds import PureOrApproximate, lower_bounds
from sfumato.evaluate.intervals import Advantage, ConfidenceInterval, Proportion
from sfumato.evaluate.population_split import PopulationSplit, Progress, no_progress
from sfumato.evaluate.released import Claim, MarginalSource, Released, keys
from sfumato.evaluate.utility.scorecard import QueryErrors, Scorecard, scorecard

SELECTIVITIES = (0.0, 0.001, 0.01, 0.1, 1.0)
"""Edges of the groups of queries, as shares of the table."""
_CURVE = 200  # points stored of the ROC curve
_CONFIDENCE = 0.05
Errors: TypeAlias = tuple[float | None, float | None, float | None, int]
"""Lower decile, median and upper decile of the errors of queries (None without queries), and their number."""


@dataclass(frozen=True)
class ClaimedRelease:
    """The name of a release, its family of methods, and its claim."""

    name: str
    family: str
    claim: Claim

    def __post_init__(self) -> None:
        for text in (self.name, self.family):
            expect(text, str, "a release has a name and a family as text")
        expect(self.claim, Claim, "the guarantee of a release is a Claim")


@dataclass(frozen=True)
class EvaluationResult:
    """The scores and attacks of one release.  Matrices are nested tuples in the order of ``attributes``; shares are of
    all rows.
    """

    name: str
    family: str
    claim: str
    claimed_epsilon: float | None
    attributes: tuple[str, ...]
    marginals: tuple[float, float, float]
    query_errors: tuple[Errors, ...]  # one per group of selectivities
    query_error: float
    query_relative_error: float
    association_gap: tuple[float, str, str]
    correlation_gap: tuple[float, str, str] | None  # of two numeric columns; None if there are fewer
    point_gap: tuple[float, str, str] | None  # largest difference of the share of a declared point, column and point
    association_difference: tuple[tuple[float, ...], ...]
    pair_distance: tuple[tuple[float, ...], ...]
    learning: tuple[str, str, float] | None  # target, measure, score
    standard_errors: Mapping[str, float]  # for figures that are estimated from a sample
    samples: Mapping[str, tuple[int, int]]  # sampled and total numbers per figure
    propensity: float | None
    attacks: tuple[Advantage, ...]
    headline: Advantage | None  # None without a holdout
    curve: tuple[tuple[float, float], ...]  # false and true positive rates
    proven_epsilon: float
    columns: Mapping[str, tuple[float, ...]]  # released shares of each column
    real_columns: Mapping[str, tuple[float, ...]]  # exact shares: for internal reports only
    class_sizes: tuple[float, ...] | None  # shares of released rows in classes of 1, 2-4, 5-9, 10-49, 50 and more

    @property
    def sampled(self) -> dict[str, str]:
        """The words "all" or "a sample" for each figure, because exact numbers of people are not public."""
        return {what: "all" if taken == total else "a sample" for what, (taken, total) in self.samples.items()}

    @property
    def worst_pair(self) -> tuple[float, str, str]:
        """The largest total variation of a pair of attributes, with the pair.  A single attribute is paired with
        itself.
        """
        pairs = list(combinations(range(len(self.attributes)), 2)) or [(0, 0)]
        first, second = max(pairs, key=lambda pair: self.pair_distance[pair[0]][pair[1]])
        return self.pair_distance[first][second], self.attributes[first], self.attributes[second]

    @property
    def worst_pair_text(self) -> str | None:
        """The worst pair as text; None for a single attribute, or if no pair is off."""
        distance, first, second = self.worst_pair
        return f"{first} x {second}" if distance and first != second else None

    @property
    def most_pairs(self) -> float:
        """The total variation that 95 % of the pairs of attributes stay below or reach."""
        pairs = list(combinations(range(len(self.attributes)), 2)) or [(0, 0)]
        distances = sorted(self.pair_distance[first][second] for first, second in pairs)
        return distances[math.ceil(0.95 * len(distances)) - 1]

    def to_json(self) -> dict[str, Any]:
        """Return plain values that ``from_json`` reads back."""
        return asdict(self)

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> EvaluationResult:
        """Return the result that ``to_json`` wrote."""
        fields = {key: _tuples(part) for key, part in value.items()}
        for key in ("columns", "real_columns", "samples"):
            fields[key] = {name: _tuples(part) for name, part in value[key].items()}
        fields["standard_errors"] = dict(value["standard_errors"])
        fields["attacks"] = tuple(_advantage(part) for part in value["attacks"])
        fields["headline"] = None if value["headline"] is None else _advantage(value["headline"])
        return EvaluationResult(**fields)


def judge(
    release: MarginalSource,
    split: PopulationSplit,
    *,
    entry: ClaimedRelease,
    target: str,
    seed: int,
    watch: Progress = no_progress,
) -> EvaluationResult:
    """Score and attack one release.

    Args:
        release: rows, answers, or reports.
        split: the people it was made from, and other people.
        entry: its name and its claim.
        target: the attribute that learners predict.
        seed: chooses queries, targets and learners; use the same seed for releases that are compared.
        watch: receives the name of each step before it starts.

    Raises:
        InputError: an argument is no release, no split, no entry or no attribute name.
    """
    expect(entry, ClaimedRelease, "an evaluated release is named by a ClaimedRelease(name, family, claim)")
    scored = scorecard(release, split, target=target, seed=seed, watch=watch)
    attacked = None
    if split.has_holdout:
        watch("attacks")
        attacked = attack(release, split.members, split.controls, claim=entry.claim, seed=seed)
    return _result(release, split, entry, scored, attacked)


def _result(
    release: MarginalSource, split: PopulationSplit, entry: ClaimedRelease, scored: Scorecard, attacked: Attacks | None
) -> EvaluationResult:
    names = split.domain.names
    columns, real_columns = ({each: _shares(source, each) for each in names} for source in (release, split.truth))
    learned = scored.learning
    one, two, three = scored.marginals
    return EvaluationResult(
        name=entry.name,
        family=entry.family,
        claim=str(entry.claim),
        claimed_epsilon=_epsilon(entry.claim),
        attributes=names,
        marginals=(one.value, two.value, three.value),
        query_errors=_grouped(scored.queries),
        query_error=scored.queries.mean_absolute,
        query_relative_error=scored.queries.mean_relative,
        association_gap=scored.association_gap,
        correlation_gap=scored.correlation_gap,
        point_gap=_point_gap(split.domain, columns, real_columns),
        association_difference=_tuples(scored.association_difference.tolist()),
        pair_distance=_tuples(scored.pair_distance.tolist()),
        learning=None if learned is None else (learned.target, learned.measure, learned.score),
        standard_errors=_standard_errors(scored),
        samples=_samples(scored, attacked, release, split),
        propensity=None if scored.propensity is None else scored.propensity.value,
        attacks=() if attacked is None else attacked.results,
        headline=None if attacked is None else attacked.headline,
        curve=() if attacked is None else _thinned(attacked.curve),
        proven_epsilon=0.0 if attacked is None else _proven(attacked),
        columns=columns,
        real_columns=real_columns,
        class_sizes=_class_sizes(release) if isinstance(release, Released) else None,
    )


def _standard_errors(scored: Scorecard) -> dict[str, float]:
    """Return the standard errors of the figures that come from a sample; attacks have intervals instead."""
    errors = {"query error": scored.queries.standard_error}
    if scored.marginals[2].taken < scored.marginals[2].all:
        errors["U3"] = scored.marginals[2].error
    if scored.learning is not None:
        errors["learner"] = scored.learning.error
    if scored.propensity is not None:
        errors["told apart"] = scored.propensity.error
    return errors


def _samples(
    scored: Scorecard, attacked: Attacks | None, release: MarginalSource, split: PopulationSplit
) -> dict[str, tuple[int, int]]:
    """Return how much was sampled and how much there is, per figure.  The two are equal for exact figures."""
    three = scored.marginals[2]
    samples = {"three-way marginals": (three.taken, three.all)}
    if scored.learning is not None and isinstance(release, Released):
        samples["rows learned from"] = (scored.learning.trained, len(release))
        samples["people tested on"] = (scored.learning.tested, len(split.controls))
    if scored.propensity is not None:
        samples["rows told apart"] = (scored.propensity.taken, scored.propensity.all)
    if attacked is None:
        return samples | {"rows of the table": (len(split.members), len(split.members))}
    tested = attacked.results[0].members.trials
    samples["members tested by attacks"] = (tested, len(split.members))
    samples["controls tested by attacks"] = (tested, len(split.controls))
    return samples


def _epsilon(claim: Claim) -> float | None:
    """Return the claimed epsilon, or None.  A rho has no single epsilon."""
    stated = None if claim.loss is None else claim.loss.amounts.get("epsilon")
    return None if stated is None else float(stated)


def _proven(attacked: Attacks) -> float:
    """Return a lower bound on epsilon (delta = 0) from the membership guesses.  Other people fitted their threshold."""
    result = next(each for each in attacked.results if each.attack == "membership")
    counts = np.array([result.members.successes]), np.array([result.controls.successes])
    bounds = lower_bounds(PureOrApproximate(math.inf, delta=0.0), *counts, result.members.trials, error=_CONFIDENCE)
    return max(0.0, float(bounds[0]))


def _grouped(errors: QueryErrors) -> tuple[Errors, ...]:
    """Return lower decile, median, upper decile of the errors, and their number, for each group of selectivities."""
    truth, error = np.array(errors.truth), np.array(errors.errors)
    groups = np.clip(np.searchsorted(SELECTIVITIES, truth, side="right") - 1, 0, len(SELECTIVITIES) - 2)
    groups_of_errors: list[Errors] = []
    for group in range(len(SELECTIVITIES) - 1):
        inside = error[groups == group]
        if not len(inside):
            groups_of_errors.append((None, None, None, 0))
            continue
        low, middle, high = np.quantile(inside, (0.1, 0.5, 0.9)).tolist()
        groups_of_errors.append((low, middle, high, len(inside)))
    return tuple(groups_of_errors)


def _thinned(curve: Roc) -> tuple[tuple[float, float], ...]:
    places = np.unique(np.linspace(0, len(curve.false_positive) - 1, _CURVE).astype(np.intp))
    return tuple(zip(curve.false_positive[places].tolist(), curve.true_positive[places].tolist(), strict=True))


def _shares(source: MarginalSource, name: str) -> tuple[float, ...]:
    return tuple(source.marginal((name,)).tolist())


def _point_gap(
    domain: Domain, released: Mapping[str, Sequence[float]], real: Mapping[str, Sequence[float]]
) -> tuple[float, str, str] | None:
    """Return the largest difference of the share of a point, with its column and the point; None without points."""
    gaps = [
        (abs(released[attribute.name][code] - real[attribute.name][code]), attribute.name, attribute.label(code))
        for attribute in domain
        if isinstance(attribute, Real)
        for code in range(attribute.declared)
        if attribute.is_point(code)
    ]
    return max(gaps, default=None)


def _class_sizes(release: Released) -> tuple[float, ...]:
    """Return the shares of released rows by the number of identical rows."""
    counts = np.bincount(keys(release.codes, tuple(len(cells) for cells in release.cells)))
    groups = np.bincount(np.searchsorted((2, 5, 10, 50), counts, side="right"), weights=counts, minlength=5)
    return tuple((groups / len(release)).tolist())


def _tuples(value: Any) -> Any:  # noqa: ANN401  (JSON has no types)
    return tuple(_tuples(part) for part in value) if isinstance(value, list | tuple) else value


def _advantage(value: Mapping[str, Any]) -> Advantage:
    return Advantage(
        attack=value["attack"],
        knowledge=value["knowledge"],
        members=Proportion(**value["members"]),
        controls=Proportion(**value["controls"]),
        interval=ConfidenceInterval(**value["interval"]),
        bound=value["bound"],
    )
