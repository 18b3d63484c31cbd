"""Intervals for queries to a synthetic release, from the noisy tables in it instead of its model.

A model may be wrong wherever nothing was measured, and its fit does not show by how much.  For that reason, intervals
by resampling through the fit, or from several copies of the rows, hold far too seldom.  A noisy table is the exact
table plus fresh, independent noise of known size.  So a sum over it is unbiased and has a known variance, whether or
not the model is right.  Using it adds no privacy loss, because it is post-processing of a charged release.

A query is answered from the tables that have all its attributes and on whose groups of codes it is constant, each
weighted by its inverse variance.  Tables over groups count only if they were measured after the groups were fixed,
because groups depend on the noise of the first tables.  A query about a single attribute is answered from the first
table of that attribute alone, over its single codes.  Every interval is for one query that was chosen before anyone
looked at the release.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Any as Json
from typing import Protocol, TypeAlias

import numpy as np

from sfumato.domain import Domain, Role
from sfumato.domain.domain import numeric
from sfumato.domain.predicate import All, Predicate, describe_condition, named
from sfumato.errors import LossError, QueryError, SizeError
from sfumato.model.factor import FloatArray
from sfumato.model.noisy_table import NoisyDistance, NoisyTable, integer_counts
from sfumato.privacy.loss import Number, exact
from sfumato.query.aggregates import Confidence
from sfumato.query.aggregates.contract import NoisyValue
from sfumato.query.ask import CONFIDENCE
from sfumato.query.direct_estimate import ProjectedCounts, Term, estimate, term_weights
from sfumato.query.question import Query, count, refuse_no_query
from sfumato.vault.contribution import contribution

_MOST_CELLS = 1 << 24  # joint codes of the attributes of a query
_PAIR = 2
_PART = 0.01  # default half-width of a price, as a part of the largest possible answer


class FittedModel(Protocol):
    """The model of a synthetic release."""

    @property
    def domain(self) -> Domain:
        """The covered attributes."""

    @property
    def total(self) -> int:
        """The number of rows of a sample."""

    def cells(self, attributes: tuple[str, ...]) -> FloatArray:
        """Return expected counts of a marginal, flat in C order."""


class KeptRelease(Protocol):
    """A synthetic release with the noisy tables that it was made from."""

    @property
    def model(self) -> FittedModel:
        """The model from which its rows are drawn."""

    @property
    def tables(self) -> tuple[NoisyTable, ...]:
        """The measured tables."""

    @property
    def distances(self) -> tuple[NoisyDistance, ...]:
        """The measured distances between the table and the model, by pair of attributes, if any."""


@dataclass(frozen=True)
class Share:
    """The share of the rows meeting ``where`` among the rows meeting ``among``: conditions, or their texts."""

    where: Predicate | str
    among: Predicate | str | None = None


ReleaseQuestion: TypeAlias = Query | Share | str


@dataclass(frozen=True)
class ReleaseInterval:
    """The answer of a release to one query.

    Attributes:
        asked: the query in words.
        model: the model's answer, with numbers at the middles of their cells, or at the typical value of an open cell;
            its error is unknown.
        table: estimate and interval of the protected table's own answer; None if the release cannot give one.
        population: the same for the population that the rows are a random sample of; None if the privacy unit is not a
            row, because rows of one unit are no independent draws.
        widened: the widening of both intervals because values are known by groups or bins only.
        tables: the attributes of each noisy table that was used.
        confidence: the probability that an interval contains the answer.
        notes: the table that the answer is about; the reason for a missing interval, and its price.
        bound: the largest difference between the answers of the table and the model, at the same confidence.  It is
            given if there is no interval and distances of pairs were measured.
    """

    asked: str
    model: float | None
    table: NoisyValue | None
    population: NoisyValue | None
    widened: float
    tables: tuple[tuple[str, ...], ...]
    confidence: Fraction
    notes: tuple[str, ...]
    bound: DistanceBound | None = None

    def to_json(self) -> dict[str, Json]:
        """Return plain JSON values."""
        fields = {"remarks" if name == "notes" else name: value for name, value in asdict(self).items()}
        return fields | {"confidence": float(self.confidence), "tables": [list(names) for names in self.tables]}

    def __str__(self) -> str:
        sure = f"{float(self.confidence):.4g}"
        by_model = f"the model says {'nothing' if self.model is None else format(self.model, '.6g')}"
        if self.table is None:
            return f"{self.asked}: no interval; {by_model}"
        whom = "" if self.population is None else f"; of the population, with the same confidence: {self.population}"
        return f"{self.asked}: {self.table}, of the table, with confidence {sure}{whom}; {by_model}"


def interval(
    release: KeptRelease,
    asked: ReleaseQuestion,
    *,
    minus: ReleaseQuestion | None = None,
    half_width: Number | None = None,
    confidence: Number = CONFIDENCE,
) -> ReleaseInterval:
    """Return a synthetic release's answer to one query, with an interval if its noisy tables allow one.

    There is no privacy loss: everything is computed from the release.  Choose the query before you look at the release.
    Of many intervals, or of the best-looking one, more than the stated share are wrong.

    Args:
        release: a synthetic release.
        asked: one count, sum or mean, without groups, as a query or SELECT, or a :class:`Share`.
        minus: another such query, for the difference of the two answers.
        half_width: the half-width for the price of a direct answer, if there is no interval.  Default: a hundredth of
            the largest possible answer.
        confidence: the confidence of the intervals, strictly between 0 and 1.

    Raises:
        QueryError, DomainError: another kind of query, or one that does not fit the domain of the release.
        SizeError: the attributes of the query have too many cells together.
        LossError: a confidence outside (0, 1), or a half-width that is not positive.
    """
    level = Confidence.from_number(confidence)
    priced_width = None if half_width is None else _checked_width(half_width)
    domain = release.model.domain
    terms = [_term(asked, 1, domain), *([] if minus is None else [_term(minus, -1, domain)])]
    names = _attributes(terms, domain)
    estimated, used = estimate(release.tables, names, terms, domain, level)
    words = " minus ".join(term.words for term in terms)
    notes = tuple(dict.fromkeys(note for term in terms for note in term.notes))
    bound = None
    if isinstance(estimated, str):
        bound = _bound(release, names, terms, level)
        notes = (*notes, estimated, *_of_weights(terms, domain), *([] if bound is None else [str(bound)]))
        notes = (*notes, *_price(terms, domain, release.model, priced_width, level))
        table = population = None
        widened = 0.0
    else:
        unit, widened = domain.unit.column, estimated.widened
        table, population = estimated.of_table(), estimated.of_population() if unit is None else None
        if unit is not None:
            notes = (*notes, f"none of a population: rows of one {unit} are no independent draws")
        if widened:
            notes = (*notes, f"values are known by groups or bins only, which widened the interval by {widened:.4g}")
    by_model = _by_model(release.model, names, terms)
    measured = tuple(each.attributes for each in used)
    return ReleaseInterval(words, by_model, table, population, widened, measured, level.probability, notes, bound)


def _checked_width(half_width: Number) -> float:
    width = float(exact(half_width, name="half-width"))
    if not width > 0:
        raise LossError(f"a half-width to price is greater than zero, not {half_width}", culprit=half_width)
    return width


def _attributes(terms: Sequence[Term], domain: Domain) -> tuple[str, ...]:
    """Return the attributes of all terms in the domain's order.

    Raises:
        SizeError: they have too many cells together.
    """
    named_in_terms = frozenset().union(*(term.attributes for term in terms))
    names = tuple(name for name in domain.names if name in named_in_terms)
    if names and (size := domain.project(names).size) > _MOST_CELLS:
        raise SizeError(f"a question about {', '.join(names)} looks at {size:,} cells; ask for fewer attributes")
    return names


def _term(question: ReleaseQuestion, sign: int, domain: Domain) -> Term:
    """Return a query as one term.

    Raises:
        QueryError, DomainError: another kind of query, or one that does not fit the domain.
    """
    if isinstance(question, Share):
        among = count(question.among).condition(domain)
        where = count(question.where).condition(domain)
        both = where if among is None else among if where is None else All((among, where))
        words = f"share where {'all' if where is None else describe_condition(where, domain)}"
        words += "" if among is None else f" among {describe_condition(among, domain)}"
        return Term(sign, both, None, True, among, words, count().population_notes(domain))
    query = _query(question, domain).check(domain)
    grouped = query.by or query.data_dependent_groups or query.ordering.clauses or query.columns
    if len(query.aggregates) != 1 or grouped or query.truncation is not None:
        raise QueryError("an interval is for one number: ask for one count, sum or mean, without groups", culprit=query)
    (aggregate,) = query.aggregates
    where, words, notes = query.condition(domain), query.describe(domain), query.population_notes(domain)
    read = aggregate.on_released_tables(domain)
    if read is None:
        raise QueryError(
            f"there are intervals for counts, sums, means and shares, not for {aggregate}", culprit=aggregate
        )
    valued = where if read.valued is None else _both(where, read.valued)
    return Term(sign, valued, read.of, read.ratio, valued if read.ratio else None, words, notes)


def _query(question: object, domain: Domain) -> Query:
    if isinstance(question, str):
        from sfumato.query.statements.select_statement import parse

        return parse(question, domain)
    refuse_no_query(question)
    assert isinstance(question, Query)
    return question


def _both(where: Predicate | None, also: Predicate) -> Predicate:
    return also if where is None else All((where, also))


def _by_model(model: FittedModel, names: tuple[str, ...], terms: Sequence[Term]) -> float | None:
    """Return the model's own answer; None if it cannot be computed."""
    domain = model.domain
    try:
        cells = model.cells(names).reshape([domain[name].size for name in names]) if names else np.array(model.total)
    except (SizeError, QueryError):
        return None
    view = ProjectedCounts(cells.astype(np.float64), tuple(np.arange(domain[name].size) for name in names))
    value = 0.0
    for term in terms:
        weights = term_weights(view, term, names, domain)
        assert weights is not None  # every code is its own group
        below = 1.0 if weights.below is None else float((weights.below * view.counts).sum())
        if not below > 0:
            return None
        value += term.sign * float((weights.above * view.counts).sum()) / below
    return value


def _of_weights(terms: Sequence[Term], domain: Domain) -> tuple[str, ...]:
    """Explain why measured totals of a weight bound nothing, if a term sums one of them."""
    weight = domain.in_role(Role.WEIGHT)
    if not any(term.of == weight and not term.ratio for term in terms if term.of is not None):
        return ()
    others = ", ".join(name for name in domain.names if name != weight and any(name in t.attributes for t in terms))
    named = f", as --marginals {weight},{others.replace(', ', ',')} measures it" if others else ""
    reason = (
        f"totals of the weight {weight} that batched measures leave out what lies above a limit, however much that is, "
        f"so that they bound no total: one is read off a table of counts that holds {weight}{named}"
    )
    return (reason,)


def _bound(
    release: KeptRelease, names: tuple[str, ...], terms: Sequence[Term], confidence: Confidence
) -> DistanceBound | None:
    if len(names) != _PAIR or not release.distances:
        return None
    domain = release.model.domain
    cells = release.model.cells(names).reshape(domain.project(names).shape)
    return _distance_bound(release.distances, release.tables, cells, terms=terms, domain=domain, confidence=confidence)


def _price(
    terms: Sequence[Term], domain: Domain, model: FittedModel, half_width: float | None, confidence: Confidence
) -> tuple[str, ...]:
    """Return sentences about the loss of a direct answer.

    Discrete Gaussian noise of standard deviation half-width / z costs rho = z^2 D^2 / (2 half-width^2), where D is the
    largest change of the answer by the rows of one unit.
    """
    (term,) = terms[:1]
    if len(terms) > 1:
        return ()
    attribute = None if term.of is None else numeric(domain, term.of)
    if attribute is None:
        width = most = 1.0
    else:
        width, most = float(attribute.maximum - attribute.minimum), max(abs(attribute.minimum), abs(attribute.maximum))
    below = _by_model(model, *_counting(term, domain)) if term.ratio else 1.0
    if not below:
        return ()
    largest = width if term.ratio else float(most) * model.total
    half = _PART * largest if half_width is None else half_width
    if not half > 0:
        return ()
    moved = contribution(domain).rows * (width / below if term.ratio else float(most))
    deviations = NormalDist().inv_cdf(float(1 + confidence.probability) / 2)
    about = "about " if term.ratio else ""
    rho = deviations**2 * moved**2 / (2 * half**2)
    return (f"a direct answer of half-width {half:.4g} costs {about}rho = {rho:.3g}",)


def _counting(term: Term, domain: Domain) -> tuple[tuple[str, ...], list[Term]]:
    """Return the denominator of a ratio as a query of its own."""
    attributes = named(term.among)
    names = tuple(name for name in domain.names if name in attributes)
    return names, [Term(1, term.among, None, False, None, "", ())]


_OF_DISTANCE = Fraction(4, 5)  # the distance's share of the error probability of a bound


@dataclass(frozen=True)
class DistanceBound:
    """A bound on the table's answer, which lies between ``low`` and ``high``.

    At most ``misplaced`` rows of the table lie in other cells than the model's.  ``pair`` names the attributes of the
    cells.
    """

    low: float
    high: float
    pair: tuple[str, str]
    misplaced: float

    def __str__(self) -> str:
        return (
            f"at most {100 * self.misplaced:.3g} % of the rows are in other cells of {' x '.join(self.pair)} than the "
            f"model has, so the table's answer lies between {self.low:.6g} and {self.high:.6g}"
        )


def _distance_bound(
    distances: Sequence[NoisyDistance],
    tables: Sequence[NoisyTable],
    cells: FloatArray,
    *,
    terms: Sequence[Term],
    domain: Domain,
    confidence: Confidence,
) -> DistanceBound | None:
    """Bound a signed sum of terms over a pair by the distance between the table and the model: valid, and wide.

    Let U be the upper end of the L1 distance between the table's and the model's counts of the pair, and T the upper
    end of the difference of their numbers of rows.  An answer that adds between a <= 0 and b >= 0 per row differs by at
    most (b - a)(U + T)/2.  Additional rows of the table add at most b each, missing rows at least a, and each of these
    numbers of rows is at most (U + T)/2.  The mean of values between v and w over D rows of the model differs by at
    most (w - v)(U + T)/(2 D), because the sum of (value - mean of the table) over these rows is zero in the table.

    Args:
        distances: the distances between the table and the model by pair.
        tables: the measured tables, which give the number of rows.
        cells: the model's counts over the attributes of the terms, in the domain's order: shape of their codes.
        terms: the terms to add.
        domain: the domain of the release.
        confidence: the confidence of the bound.

    Returns:
        None if the distance of the pair was not measured, or no row is counted.
    """
    pair = frozenset().union(*(term.attributes for term in terms))
    distance = next((each for each in distances if set(each.attributes) == pair), None)
    rows = estimate(tables, (), [_ALL_ROWS], domain, _with_share_of_risk(confidence, 1 - _OF_DISTANCE))[0]
    if distance is None or isinstance(rows, str):
        return None
    if distance.reference is not None:
        reference, distortion = distance.reference.astype(np.float64), 0.0
    elif distance.rows_distance:
        reference, distortion = cells, distance.rows_distance
    else:
        reference, distortion = integer_counts(cells, round(float(cells.sum()))).astype(np.float64), 0.0
    total, number = round(float(reference.sum())), rows.of_table()
    margin = _with_share_of_risk(confidence, 2 * _OF_DISTANCE).half_width(distance.noise) + distortion
    further_rows = max(abs(number.low - total), abs(number.high - total))
    misplaced = (max(0.0, distance.value + margin) + further_rows) / 2
    value = half = 0.0
    for term in terms:
        bounded = _bounded_term(term, reference, misplaced, distance.attributes, domain)
        if bounded is None:
            return None
        value, half = value + term.sign * bounded[0], half + bounded[1]
    share = min(1.0, misplaced / max(1.0, number.low))
    return DistanceBound(value - half, value + half, distance.attributes, share)


def _bounded_term(
    term: Term, reference: FloatArray, misplaced: float, pair: tuple[str, str], domain: Domain
) -> tuple[float, float] | None:
    """Return a term of the reference and the largest error of the table's term; None if it has no denominator."""
    view = ProjectedCounts(reference, tuple(np.arange(size) for size in reference.shape))
    weights = term_weights(view, term, pair, domain)
    assert weights is not None  # every code is its own group
    if weights.below is None:
        width = max(0.0, float(weights.above.max())) - min(0.0, float(weights.above.min()))
        half = width * misplaced + float((weights.off * reference).sum()) + float(weights.off.max()) * misplaced
        return float((weights.above * reference).sum()), half
    below = float((weights.below * reference).sum())
    if not below > 0:
        return None
    inside = weights.above[weights.below > 0]
    half = float(inside.max() - inside.min()) * misplaced / below + float(weights.off.max())
    return float((weights.above * reference).sum()) / below, half


_ALL_ROWS = Term(1, None, None, False, None, "", ())


def _with_share_of_risk(confidence: Confidence, part: Fraction) -> Confidence:
    """Return the confidence whose error probability is ``part`` of the error probability of another confidence."""
    return Confidence(max(Fraction(1, 1000), 1 - (1 - confidence.probability) * part))
