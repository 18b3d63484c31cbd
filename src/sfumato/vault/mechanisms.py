"""The mechanisms of a release: spend of the reserved charge, count, add noise, in this order and nowhere else.

Exact answers come from tables that are cached between releases: one pass over the rows answers many questions.

A table without a filter, over a few attributes, answers every question about them.  The table of a question follows
from the declared domain and the question alone.  The cached tables follow from earlier questions alone.  So the cache
reveals nothing about the rows.  The tables belong to one encoded table, which never changes: changed rows are encoded
again under a new version.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from sfumato.domain import Domain, Integer
from sfumato.domain.predicate import All, Among, Predicate, holds_at_cells, named
from sfumato.engine.exact import reveal
from sfumato.engine.port import Counts, Encoded
from sfumato.errors import BudgetError, LossError, QueryError, SfumatoError
from sfumato.ledger import StoredAnswer
from sfumato.privacy.entropy import Entropy
from sfumato.privacy.loss import NOTHING, Charge, Epsilon, EpsilonDelta, Loss
from sfumato.privacy.noise import Noise
from sfumato.privacy.noise_kinds import NOISE_OF
from sfumato.privacy.selection import Exponential
from sfumato.privacy.threshold import StabilityThreshold
from sfumato.vault.interface import decode, loss_from_json
from sfumato.vault.measurables import (
    Counting,
    ExactTable,
    IntegerArray,
    Marginal,
    Measurable,
    Measurement,
    StoredMarginal,
    cells,
    check_size,
    public_integers,
    shape_of,
)
from sfumato.vault.scores import AbsoluteErrors, Scores
from sfumato.vault.value_measurables import Bins

if TYPE_CHECKING:
    import pyarrow as pa

    from sfumato.domain.view import BoundedView


CUBE_CELLS = 1 << 18  # counters of one table: a pass over the rows is faster than the sum of more
_CACHE_BYTES = 1 << 27  # per encoded table: adaptive methods ask about the same marginals often
_ENTRY_BYTES = 500  # without the counters and the question
MANY_ROWS = 1000  # if the number of rows is secret, noise larger than this gets a warning


class PrivacyFilter:
    """A bound on the spending of a release by the charge that it reserved, in exact numbers.

    A pure epsilon of the reservation binds, and the rho that follows from it (epsilon^2 / 2) needs no check.  A
    reservation of less rho holds the method to both.  Without a pure epsilon, rho binds.  Delta binds always.

    Attributes:
        reserved: the charge that the release reserved.
        spent: the sum of all charges.
    """

    def __init__(self, reserved: Charge) -> None:
        self.reserved = reserved
        self.spent = NOTHING
        self._rho_binds = reserved.epsilon is None or reserved.rho < reserved.epsilon**2 / 2
        self._lock = threading.Lock()  # so that two threads of a method cannot both spend the rest

    def spend(self, charge: Charge) -> None:
        """Spend ``charge``, before the data is touched.

        Raises:
            BudgetError: it would exceed the reserved charge; nothing is spent.
        """
        with self._lock:
            self._spend(charge)

    def _spend(self, charge: Charge) -> None:
        most, after = self.reserved, self.spent + charge
        fits = after.delta <= most.delta
        if most.epsilon is not None:
            fits = fits and after.epsilon is not None and after.epsilon <= most.epsilon
        if self._rho_binds:
            fits = fits and after.rho <= most.rho
        if not fits:
            raise BudgetError("the method asked for more than it reserved; its losses must sum to the release's loss")
        self.spent = after


class TableMechanisms:
    """The mechanisms of :class:`sfumato.vault.interface.Mechanisms` on one encoded table, within one privacy filter.

    Neighboring tables differ in one unit (added or removed).  Exact counts live in local variables of these methods and
    of :meth:`sfumato.vault.scores.Scores.choose` only.
    """

    def __init__(
        self,
        exactly: ExactTables,
        *,
        within: PrivacyFilter,
        entropy: Entropy,
        stored: Callable[[], tuple[StoredMarginal, ...]] = tuple,
    ) -> None:
        self._exactly = exactly
        self._filter = within
        self._entropy = entropy
        self._stored = stored

    @property
    def domain(self) -> Domain:
        """The public description of the table, with its unit."""
        return self._exactly.encoded.domain

    def stored_marginals(self) -> tuple[StoredMarginal, ...]:
        """See :meth:`sfumato.vault.interface.Mechanisms.stored_marginals`."""
        return self._stored()

    def measure(
        self, questions: Sequence[Measurable], loss: Loss, *, shares: Sequence[Fraction] | None = None
    ) -> tuple[Measurement, ...]:
        """See :meth:`sfumato.vault.interface.Mechanisms.measure`."""
        added = noises(self.domain, questions, loss, shares)
        self._filter.spend(loss.charge)
        exact = self._exactly.answers(questions)
        return tuple(
            Measurement(question, noise.add(answer, self._entropy), noise)
            for question, answer, noise in zip(questions, exact, added, strict=True)
        )

    def generator(self) -> np.random.Generator:
        """See :meth:`sfumato.vault.interface.Mechanisms.generator`."""
        return np.random.default_rng(int.from_bytes(self._entropy.words(2).tobytes(), "little"))

    def select(self, scores: Scores, loss: Loss) -> int:
        """See :meth:`sfumato.vault.interface.Mechanisms.select`."""
        mechanism = selection(self.domain, scores, loss)
        self._filter.spend(mechanism.charge)
        return scores.choose(self._exactly, mechanism, self._entropy)

    def prepare(self, queries: Counting) -> PreparedQueries:
        """See :meth:`sfumato.vault.interface.Mechanisms.prepare`."""
        return PreparedQueries(queries, self._exactly, within=self._filter, entropy=self._entropy)

    def threshold(self, columns: tuple[str, ...], loss: EpsilonDelta) -> pa.Table:
        """See :meth:`sfumato.vault.interface.Mechanisms.threshold`."""
        import pyarrow as pa

        mechanism = StabilityThreshold(loss, keys_per_unit=self.domain.unit.rows)
        self._filter.spend(mechanism.charge)
        keys = reveal(self._exactly.encoded.keys(columns))
        is_released, units = mechanism.apply(keys["units"].to_numpy(), self._entropy)
        released = keys.filter(pa.array(is_released)).drop_columns(["units"]).append_column("units", pa.array(units))
        return released.sort_by([(column, "ascending") for column in columns])


class PreparedQueries:
    """The :class:`sfumato.vault.interface.Prepared` queries of one release, checked and counted once.

    It spends within the release's privacy filter and draws from the release's entropy, so it ends with the release.
    Later it draws nothing, and neither does a forked child.
    """

    def __init__(self, queries: Counting, exactly: ExactTables, *, within: PrivacyFilter, entropy: Entropy) -> None:
        domain = exactly.encoded.domain
        self._score_sensitivity = AbsoluteErrors(queries, np.zeros(len(queries.matrix), dtype=np.int64)).sensitivity(
            domain
        )
        self._queries = queries
        self._exactly = exactly
        self._filter = within
        self._entropy = entropy
        self._answers: Counts | None = None
        self._terms: tuple[Loss, Exponential, Noise] | None = None

    def __repr__(self) -> str:
        return "<prepared queries, sealed>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("prepared queries cannot be pickled or copied out of the vault")

    def select(self, answers: IntegerArray, loss: Loss, *, among: IntegerArray) -> int:
        """See :meth:`sfumato.vault.interface.Prepared.select`."""
        public_integers(answers, len(self._queries.matrix))
        self._refuse_others(among)
        _, mechanism, _ = self._at(loss)
        self._filter.spend(mechanism.charge)
        errors = np.abs(self._exact() - answers).take(among)
        return int(among[mechanism.choose(errors, self._entropy)])

    def measure(self, query: int, loss: Loss) -> Measurement:
        """See :meth:`sfumato.vault.interface.Prepared.measure`."""
        if not isinstance(query, int) or not 0 <= query < len(self._queries.matrix):
            raise QueryError("a query that was prepared is named by its place, a whole number from 0", culprit=query)
        _, _, noise = self._at(loss)
        self._filter.spend(loss.charge)
        one = slice(query, query + 1)
        question = Counting(self._queries.attributes, self._queries.matrix[one])
        return Measurement(question, noise.add(self._exact()[one], self._entropy), noise)

    def _exact(self) -> Counts:
        """Return the exact answers, counted after the first loss was spent."""
        if self._answers is None:
            (self._answers,) = self._exactly.answers([self._queries])
        return self._answers

    def _at(self, loss: Loss) -> tuple[Loss, Exponential, Noise]:
        """Return a loss with the mechanism and the noise at it; a loop uses the same loss repeatedly."""
        terms = self._terms
        if terms is None or terms[0] is not loss:
            one = Counting(self._queries.attributes, self._queries.matrix[:1])
            (noise,) = noises(self._exactly.encoded.domain, [one], loss, None)
            terms = self._terms = (loss, _selection(loss, self._score_sensitivity), noise)
        return terms

    def _refuse_others(self, places: IntegerArray) -> None:
        are_places = places.ndim == 1 and places.dtype == np.int64 and places.size > 0
        if not are_places or places.view(np.uint64).max() >= len(self._queries.matrix):  # negative indices become huge
            raise QueryError("queries that were prepared are named by their places, whole numbers from 0")


def noises(
    domain: Domain, questions: Sequence[Measurable], loss: Loss, shares: Sequence[Fraction] | None
) -> tuple[Noise, ...]:
    """Return the noise of each question, scaled to its sensitivity and share, for at most ``loss`` together.

    Raises:
        DomainError, QueryError: no question, or one that does not fit the domain.
        SizeError: one that could not be counted.
        LossError: no loss; or the shares are not positive, not one per question, or above one together.
    """
    if not isinstance(loss, Loss):
        raise LossError("state a loss: Epsilon, Rho or EpsilonDelta", culprit=loss)
    if not questions:
        raise QueryError("there is no question; ask at least one")
    if shares is None:
        shares = (Fraction(1, len(questions)),) * len(questions)
    elif len(shares) != len(questions) or min(shares) <= 0 or sum(shares) > 1:
        raise LossError("shares must be positive, one a question, and sum to at most one", culprit=shares)
    check_size(domain, questions)
    return tuple(
        _noise(loss, share, *question.sensitivity(domain)) for question, share in zip(questions, shares, strict=True)
    )


def selection(domain: Domain, scores: Scores, loss: Loss) -> Exponential:
    """Return the mechanism of a selection at a loss.

    Raises:
        DomainError, QueryError, SizeError: the scores cannot be computed.
    """
    return _selection(loss, scores.sensitivity(domain))


def selection_charge(mechanism: Exponential, loss: Loss) -> Charge:
    """Return the charge of one selection at a loss: for an epsilon, a quarter of the rho that it implies in general."""
    return mechanism.charge if isinstance(loss, Epsilon) else loss.charge


def _noise(loss: Loss, share: Fraction, l1: int, l2_squared: int) -> Noise:
    try:
        divisible = loss.divisible
        kind = NOISE_OF[type(divisible)]
        return kind.for_loss(divisible * share, l1 if kind.sensitivity_norm == "l1" else l2_squared)
    except LossError as error:
        raise LossError(
            f"{loss} is too small: the noise would be too wide to draw; state a larger loss", culprit=loss
        ) from error


def _selection(loss: Loss, sensitivity: int | Fraction) -> Exponential:
    return Exponential.for_loss(loss.divisible, sensitivity=sensitivity, monotone=False)


def _source(question: Measurable, finest: Mapping[Bins, Bins]) -> ExactTable:
    return finest[question.table()] if finest and isinstance(question, Bins) else question.table()


def _finest(questions: Sequence[Measurable]) -> dict[Bins, Bins]:
    """Map each question about bins to the one with the most edges that refines it."""
    distinct = sorted(
        {question.table() for question in questions if isinstance(question, Bins)}, key=lambda bins: -len(bins.edges)
    )
    return {bins: next(other for other in distinct if other.refines(bins)) for bins in distinct}


class ExactTables:
    """The exact tables and answers of one encoded table.  Only the mechanisms of the vault hold one."""

    def __init__(self, encoded: Encoded) -> None:
        self.encoded = encoded
        self._domain = encoded.domain
        self._cache: dict[ExactTable, Counts] = {}  # oldest first
        self._by_attribute: dict[str, dict[ExactTable, None]] = {}  # the cached questions that have an attribute
        self._bytes = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return "<exact tables, sealed>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("exact tables cannot be pickled or copied out of the vault")

    def answers(self, questions: Sequence[Measurable]) -> list[Counts]:
        """Return exact answers, in order."""
        finest = _finest(questions)
        tables = self.tables({_source(question, finest) for question in questions})
        return [self._answer(question, finest, tables) for question in questions]

    def uncached_bins(self, question: Bins) -> Counts:
        """Return exact bins without caching them, because their edges follow from exact answers."""
        return reveal(question.count(self.encoded))

    def _answer(self, question: Measurable, finest: Mapping[Bins, Bins], tables: Mapping[ExactTable, Counts]) -> Counts:
        source = _source(question, finest)
        if finest and isinstance(question, Bins) and isinstance(source, Bins):
            return question.finish(self._domain, source.coarser(tables[source], question))
        return question.finish(self._domain, tables[source])

    @property
    def held_bytes(self) -> int:
        """The bytes of the cached tables and of their questions."""
        return self._bytes

    def contains(self, question: ExactTable) -> bool:
        """Return whether the table of a question is cached."""
        return question in self._cache

    def tables(self, questions: Iterable[ExactTable]) -> dict[ExactTable, Counts]:
        """Return exact tables, flat in C order; count the missing marginals of each filter in one pass."""
        results: dict[ExactTable, Counts] = {}
        missing: dict[ExactTable, list[ExactTable]] = {}
        for question in questions:
            source = cube_question(self._domain, question)
            table = self._held(source)
            if table is None:
                missing.setdefault(source, []).append(question)
            else:
                results[question] = table_from_cube(self._domain, question, source, table)
        for source, table in self._count(list(missing)):
            self._store(source, table)
            results |= {
                question: table_from_cube(self._domain, question, source, table) for question in missing[source]
            }
        return results

    def _count(self, sources: list[ExactTable]) -> Iterator[tuple[ExactTable, Counts]]:
        marginals = [source for source in sources if isinstance(source, Marginal) and source.adds_up]
        for where in {source.where for source in marginals}:
            same_condition = [source for source in marginals if source.where == where]
            sealed = self.encoded.marginals([source.attributes for source in same_condition], where)
            yield from ((source, reveal(exact)) for source, exact in zip(same_condition, sealed, strict=True))
        for source in sources:
            if not (isinstance(source, Marginal) and source.adds_up):
                yield source, reveal(source.count(self.encoded))

    def _held(self, source: ExactTable) -> Counts | None:
        """Return the cached table of a question, or its sum from a cached table over more attributes."""
        cached = self._cache.get(source)
        if cached is not None or source.where is not None or not source.adds_up:
            return cached
        axes, family = set(source.axes), source.moved_to(())
        sharing = [list(self._by_attribute.get(name, ())) for name in source.axes]
        for other in min(sharing, key=len, default=list(self._cache)):
            sums = other.where is None and other.adds_up and axes <= set(other.axes) and other.moved_to(()) == family
            table = self._cache.get(other) if sums else None
            if table is not None:
                cube = table.reshape(*shape_of(self._domain, other.axes), -1)
                summed = _sliced(cube, other.axes, source, self._domain)
                self._store(source, summed)
                return summed
        return None

    def _store(self, source: ExactTable, table: Counts) -> None:
        """Cache a table instead of the oldest, unless it depends on more than the encoded rows."""
        with self._lock:
            size = _weight(source, table)
            if source in self._cache or size > _CACHE_BYTES or not source.encoded_rows:
                return
            self._cache[source] = table
            self._bytes += size
            for name in source.axes:
                self._by_attribute.setdefault(name, {})[source] = None
            while self._bytes > _CACHE_BYTES:
                oldest = next(iter(self._cache))
                self._bytes -= _weight(oldest, self._cache.pop(oldest))
                for name in oldest.axes:
                    self._by_attribute[name].pop(oldest, None)


def _weight(source: ExactTable, table: Counts) -> int:
    return table.nbytes + _ENTRY_BYTES + source.held_bytes


def cube_question(domain: Domain, question: ExactTable) -> ExactTable:
    """Return the table without a filter that holds the answer, or the question's own if that is too large.

    The table is over the attributes of the groups and of the filter.  Integers that are their own codes are counted,
    so that their counts, sums and quantiles share one table.
    """
    if not question.adds_up:
        return question
    axes = _in_domain_order(domain, {*question.axes, *named(question.where)})
    if question.decided_by is not None:
        attribute = domain[question.decided_by]
        finest = _in_domain_order(domain, {*axes, question.decided_by})
        codes = isinstance(attribute, Integer) and attribute.edges is None
        if codes and cells(domain, finest) * question.width <= CUBE_CELLS:
            return Marginal(finest)
    return question.moved_to(axes) if cells(domain, axes) * question.width <= CUBE_CELLS else question.table()


def table_from_cube(domain: Domain, question: ExactTable, source: ExactTable, table: Counts) -> Counts:
    """Return the table of a question from the table of :func:`cube_question`, flat in C order."""
    if source == question.table():
        return table
    axes = source.axes
    cube = table.reshape(*shape_of(domain, axes), -1)
    if isinstance(source, Marginal) and question.decided_by is not None:
        sizes = (-1 if name == question.decided_by else 1 for name in axes)
        cube = cube * question.terms(domain).reshape(*sizes, question.width)
    return _sliced(cube, axes, question, domain)


def _sliced(cube: Counts, axes: tuple[str, ...], question: ExactTable, domain: Domain) -> Counts:
    """Sum the cells that meet the filter by the groups of the question; ``cube`` is (axes ..., numbers)."""
    by = question.axes
    if question.where is not None:
        box = _box(question.where, axes, by)
        cube = cube * holds_at_cells(question.where, axes, domain)[..., None] if box is None else cube[box]
    remaining = [name for name in axes if name in by]
    summed = cube.sum(axis=tuple(place for place, name in enumerate(axes) if name not in by))
    counts: Counts = summed.transpose(*(remaining.index(name) for name in by), len(remaining)).reshape(-1)
    return counts


def _box(where: Predicate, axes: tuple[str, ...], by: Sequence[str]) -> tuple[slice, ...] | None:
    """Return the cells of a condition with one range per summed attribute; None for other conditions."""
    ranges = {}
    for part in where.parts if isinstance(where, All) else (where,):
        if not isinstance(part, Among) or not part.codes or part.attribute in by or part.attribute in ranges:
            return None
        if len(part.codes.bounds) > 2:  # noqa: PLR2004  (the ends of one range)
            return None
        ranges[part.attribute] = slice(part.codes.first, part.codes.last + 1)
    return tuple(ranges.get(name, slice(None)) for name in axes)


def _in_domain_order(domain: Domain, names: set[str]) -> tuple[str, ...]:
    return tuple(sorted(names, key=domain.index))


STORED = (("query", "tally"), ("vault", "measure"))
"""The families and methods whose payloads are noisy tables.  The key of a table is its question's number, from 0."""


def stored_marginals(
    domain: Domain, answers: Sequence[StoredAnswer], view: BoundedView | None = None
) -> tuple[StoredMarginal, ...]:
    """Return the marginals without a condition among stored answers about the rows of a table, or of a view.

    A stored answer is public to the analysts who received it.  Computing with it is post-processing, without a charge
    to the dataset.  A view may have the domain of its table and other rows, so its answers are not the table's.
    Unreadable answers are omitted.
    """
    marginals: list[StoredMarginal] = []
    rows = (domain.hash, None if view is None else view.hash)
    for answer in answers:
        if rows == (answer.question.parameters.get("domain"), answer.question.parameters.get("view")):
            try:
                marginals += _marginals(domain, answer)
            except (SfumatoError, KeyError, TypeError, ValueError):  # written by another version
                continue
    return tuple(marginals)


def _marginals(domain: Domain, answer: StoredAnswer) -> list[StoredMarginal]:
    parameters: Mapping[str, Any] = answer.question.parameters
    loss, questions = loss_from_json(parameters["loss"]), parameters["questions"]
    shares = [Fraction(1, len(questions))] * len(questions) if parameters["shares"] is None else parameters["shares"]
    payload = decode(answer.body)
    marginals = []
    for place, (question, share) in enumerate(zip(questions, map(Fraction, shares), strict=True)):
        names = tuple(question.get("attributes", ()))
        if question != Marginal(names).canonical():
            continue
        (noise,) = noises(domain, [Marginal(names)], loss, [share])
        values = payload[str(place)].reshape(domain.project(names).shape if names else ())
        rho = (loss.divisible * share).as_rho().value
        marginals.append(StoredMarginal(names, values, noise, rho, answer.number))
    return marginals
