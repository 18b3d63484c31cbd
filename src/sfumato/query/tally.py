"""What a query buys: the few noisy tables from which all of its aggregates are computed.

Aggregates that need the same table share it, and two queries that need the same tables are one release.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

from sfumato.domain import Domain, Integer, Real
from sfumato.domain.attribute import null_code
from sfumato.domain.predicate import All, Among, Predicate
from sfumato.errors import QueryError
from sfumato.query.normal import normal
from sfumato.query.question import Aggregate, Count, Distinct, Extreme, Mean, Quantile, Query, Total, Variance, numeric
from sfumato.query.tree import Ladder, ladder
from sfumato.query.words import in_words
from sfumato.vault import canonical
from sfumato.vault.questions import Bins, Dropped, Marginal, Measurable, Moments, Sum, Units

_MOST_STEPS = 10**8  # between zero and the farther bound: what rounding adds is far below any noise
_MOST_SQUARED_STEPS = 23_000  # between the bounds: the square of one row must fit 29 bits, as the engines ask
_FINEST = -8  # no unit below 10^-8, which the engines do not take


@dataclass(frozen=True)
class Tally:
    """One noisy table: a question, or several levels of one, that share a part of the loss equally."""

    questions: tuple[Measurable, ...]

    @property
    def key(self) -> str:
        """The canonical form."""
        return json.dumps([canonical.question(question) for question in self.questions], sort_keys=True)


@dataclass(frozen=True)
class Plan:
    """The tallies of a query, in canonical order, and which of them each aggregate is read off.

    ``shares`` has the part of the loss of every question, tally by tally.  ``words`` are the query's, for readers.
    ``truncation`` is the place of the tally of dropped rows, and of units with any, where they are asked for.
    """

    tallies: tuple[Tally, ...]
    source: tuple[int, ...]
    words: str = field(default="", compare=False)
    truncation: int | None = None

    @cached_property
    def questions(self) -> tuple[Measurable, ...]:
        """All questions, tally by tally."""
        return tuple(question for tally in self.tallies for question in tally.questions)

    @cached_property
    def shares(self) -> tuple[Fraction, ...]:
        """Each tally gets an equal part of the loss, and divides it equally over its questions."""
        part = Fraction(1, len(self.tallies))
        return tuple(part / len(tally.questions) for tally in self.tallies for _ in tally.questions)

    @cached_property
    def parameters(self) -> Mapping[str, Any]:
        """What shapes the answer, in canonical form, as the journal has it."""
        return {
            "questions": [canonical.question(question) for question in self.questions],
            "shares": [str(share) for share in self.shares],
        }

    def first(self, tally: int) -> int:
        """Place of the tally's first question."""
        return sum(len(before.questions) for before in self.tallies[:tally])


@lru_cache(maxsize=1024)  # a question is usually previewed and then asked, at one loss and another
def plan(query: Query, domain: Domain) -> Plan:
    """The tallies that a query needs.

    Raises:
        QueryError, DomainError: the query does not fit the domain.
    """
    query.check(domain)
    where = normal(query.where, domain)
    words = in_words(query, domain)
    needed = [_tally(aggregate, query.by, where, domain) for aggregate in query.aggregates]
    if query.truncation is not None:
        needed.append(Tally((Dropped(query.truncation, where), Dropped(1, where))))
    if len(needed) == 1:
        return Plan(tuple(needed), (0,), words)
    distinct = sorted({tally.key: tally for tally in needed}.items())
    places = {key: place for place, (key, _) in enumerate(distinct)}
    source = tuple(places[tally.key] for tally in needed)
    tallies = tuple(tally for _, tally in distinct)
    if query.truncation is None:
        return Plan(tallies, source, words)
    return Plan(tallies, source[:-1], words, truncation=source[-1])


def sum_unit(domain: Domain, name: str) -> Fraction:
    """The fixed point of sums and means of an attribute: 1 for integers, otherwise a power of ten."""
    attribute = numeric(domain, name)
    return _unit(attribute, max(abs(attribute.minimum), abs(attribute.maximum)), _MOST_STEPS)


def square_unit(domain: Domain, name: str) -> Fraction:
    """The fixed point of variances, coarser because squares add up."""
    attribute = numeric(domain, name)
    return _unit(attribute, attribute.maximum - attribute.minimum, _MOST_SQUARED_STEPS)


def _unit(attribute: Integer | Real, width: float, most: int) -> Fraction:
    """The smallest power of ten that divides ``width`` into at most so many steps; 1 for integers where it does."""
    if isinstance(attribute, Integer) and width <= most:
        return Fraction(1)
    if not math.isfinite(width):
        raise QueryError(f"the bounds of {attribute.name!r} are too far apart for doubles; declare tighter ones")
    return Fraction(10) ** math.ceil(math.log10(max(width / most, 10.0**_FINEST)))


def leaves(domain: Domain, name: str) -> Ladder:
    """The bins of an attribute's quantiles, from the finest to the coarsest."""
    return ladder(numeric(domain, name))


def _tally(aggregate: Aggregate, by: tuple[str, ...], where: Predicate | None, domain: Domain) -> Tally:
    match aggregate:
        case Count(of=of):
            return Tally((Marginal(by, where if of is None else _known(of, where, domain)),))
        case Distinct():
            return Tally((Units(by, where),))
        case Total(of=of):
            return Tally((Sum(of, by, sum_unit(domain, of), where),))
        case Mean(of=of):
            return Tally((Moments(of, by, sum_unit(domain, of), 1, where),))
        case Variance(of=of):
            return Tally((Moments(of, by, square_unit(domain, of), 2, where),))
        case Quantile(of=of) | Extreme(of=of):
            return Tally(tuple(Bins(of, edges, by, where) for edges in leaves(domain, of).edges))


def _known(name: str, where: Predicate | None, domain: Domain) -> Predicate | None:
    """Rows with a value; numbers out of bounds and other values are values."""
    attribute = domain[name]
    code = null_code(attribute)
    if code is None:
        return where
    there = Among(name, frozenset(range(attribute.size)) - {code})
    return normal(there if where is None else All((where, there)), domain)
