"""The attacks that apply to a release, with the bounds that its guarantee implies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import expect
from sfumato.evaluate.attacks.answer_attacks import TRACING_KNOWLEDGE, tracing_scores
from sfumato.evaluate.attacks.row_attacks import (
    INFERENCE_KNOWLEDGE,
    LINKAGE_KNOWLEDGE,
    MEMBERSHIP_KNOWLEDGE,
    Roc,
    Similarity,
    draw_targets,
    fit_row_attacks,
    guess_members,
    roc,
    test_row_attacks,
)
from sfumato.evaluate.intervals import Advantage, advantage, worst
from sfumato.evaluate.population_split import refuse_wrong_people, refuse_wrong_release
from sfumato.evaluate.released import Claim, MarginalSource, Perturbed, Released, Rows
from sfumato.model.row_sampling import generator, seeded

_PEOPLE = 1000  # targets of each kind; half of them fit, half test


@dataclass(frozen=True, eq=False)
class Attacks:
    """Results of the attacks that apply to a release, and the curve of the membership attack."""

    results: tuple[Advantage, ...]
    curve: Roc

    @property
    def headline(self) -> Advantage:
        """The largest advantage, with an interval corrected for choosing it."""
        return worst(self.results)


def attack(release: MarginalSource, members: Rows, controls: Rows, *, claim: Claim, seed: int) -> Attacks:
    """Run all attacks that apply to a release: on its rows or reports if it has any, otherwise on its marginals.

    Raises:
        InputError: an argument is no release, no rows, no claim or no seed.
        TableError: too few rows for an interval.
    """
    expect(members, Rows, "members and controls are Rows, such as those of a PopulationSplit")
    for people in (members, controls):
        refuse_wrong_people(people, members.domain)
    refuse_wrong_release(release, members.domain)
    expect(claim, Claim, "the guarantee of a release is a Claim")
    seeded(seed)
    match release:
        case Released():
            return attack_rows(release, members, controls, claim=claim, seed=seed)
        case Perturbed(reports=reports):
            return attack_rows(reports, members, controls, claim=claim, seed=seed)
        case _:
            return attack_marginals(release, members, controls, claim=claim, seed=seed)


def attack_rows(
    release: Released, members: Rows, controls: Rows, *, claim: Claim, people: int = _PEOPLE, seed: int
) -> Attacks:
    """Attack released rows by membership, linkage, attribute inference and singling out.

    Args:
        release: the rows an outsider sees.
        members: the people it was made from.
        controls: people of the same population, none of them a member.
        claim: the guarantee of the release, for the bounds.
        people: members attacked, and as many controls.
        seed: chooses targets and drives the attackers' random guesses.

    Raises:
        TableError: too few rows for an interval.
    """
    luck = generator(seed)
    fitting, testing = draw_targets(members, controls, count=people, generator=luck)
    similarity = Similarity.to(release)
    half = len(testing)
    fitted = fit_row_attacks(similarity, fitting, generator=luck)
    tested = test_row_attacks(similarity, testing, fitted.secret, generator=luck)
    guesses, scores = guess_members(fitted.scores, tested.scores)
    alone = _singled_out(release, members, controls, count=half, generator=luck)
    knowledge = INFERENCE_KNOWLEDGE.format(secret=release.domain.names[fitted.secret])
    results = (
        advantage("membership", MEMBERSHIP_KNOWLEDGE, guesses[:half], guesses[half:]),
        advantage("linkage", LINKAGE_KNOWLEDGE, tested.linked[:half], tested.linked[half:]),
        advantage("attribute inference", knowledge, tested.inferred[:half], tested.inferred[half:]),
        advantage("singling out", SINGLING_OUT_KNOWLEDGE, *alone),
    )
    return Attacks(tuple(_bounded(result, claim) for result in results), roc(scores))


def attack_marginals(release: MarginalSource, members: Rows, controls: Rows, *, claim: Claim, seed: int) -> Attacks:
    """Trace members in published marginals.

    Linkage, inference and singling out need rows, so they are not run.  One half of the controls is the attacker's
    reference; targets come from the other half.  It takes the arguments of ``attack_rows`` and raises the same errors.
    """
    luck = generator(seed)
    shuffled = controls.sample(len(controls), luck)
    middle = len(shuffled) // 2
    reference = Rows(shuffled.domain, shuffled.codes[:middle])
    rest = Rows(shuffled.domain, shuffled.codes[middle:])
    fit, test = draw_targets(members, rest, count=_PEOPLE, generator=luck)
    traced = [tracing_scores(release, reference, half.stacked) for half in (fit, test)]
    guesses, scores = guess_members((traced[0],), (traced[1],))
    result = advantage("membership", TRACING_KNOWLEDGE, guesses[: len(test)], guesses[len(test) :])
    return Attacks((_bounded(result, claim),), roc(scores))


def _bounded(result: Advantage, claim: Claim) -> Advantage:
    """Return the attack with the bound that the guarantee implies.

    Singling out is about conditions, not about one person's presence, so neither bound applies to it.
    """
    bounds = []
    if claim.loss is not None and result.attack != "singling out":
        bounds.append(claim.loss.advantage_bound())
    if claim.class_size is not None and result.attack == "linkage":
        bounds.append(1 / claim.class_size)
    return replace(result, bound=min(bounds)) if bounds else result


SINGLING_OUT_KNOWLEDGE = "nothing besides the release"
_WIDTHS = (3, 5, 8, 12)  # columns in a condition; other conditions decide which number is best
_TRIALS = 100  # conditions tried per width
_SUBSETS = 20  # sets of columns tried per width
_GUESSES = 8  # rows drawn per unique row that is needed, before all rows are searched
_LOW_BITS = 16
_CACHED_BYTES = 1 << 27  # bytes of cached bit sets

Conditions = tuple[NDArray[np.intp], NDArray[np.bool_]]  # released rows, and the (conditions, columns) used


def _singled_out(
    release: Released, members: Rows, controls: Rows, *, count: int, generator: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which of ``count`` conditions isolate one person among members, and which among as many controls.

    A condition copies the cells of one released row in some columns.  No other released row may have the same cells
    there.  Other conditions decide the number of columns.
    """
    people = min(len(members), len(controls))
    tables = [
        RowsInCells.from_tables(release, table if len(table) == people else table.sample(people, generator))
        for table in (members, controls)
    ]
    hashed = _hashed(release, generator)
    widths = sorted({min(width, len(release.domain)) for width in _WIDTHS})
    gains = []
    for width in widths:
        trial = _conditions(hashed, count=_TRIALS, width=width, generator=generator)
        member, control = (_isolates(trial, table) for table in tables)
        gains.append(int(member.sum()) - int(control.sum()))
    final = _conditions(hashed, count=count, width=widths[int(np.argmax(gains))], generator=generator)
    outcomes = [_isolates(final, table) for table in tables]
    short = count - len(outcomes[0])  # conditions that the attacker could not find isolate no person
    return np.pad(outcomes[0], (0, short)), np.pad(outcomes[1], (0, short))


def _hashed(release: Released, generator: np.random.Generator) -> list[NDArray[np.uint64]]:
    """Return one number per row and column.  Sums over columns are equal for equal rows only, almost surely."""
    factors = generator.integers(1, 1 << 62, size=len(release.domain), dtype=np.uint64)
    return [column.astype(np.uint64) * factor for column, factor in zip(release.codes.T, factors, strict=True)]


def _conditions(
    hashed: list[NDArray[np.uint64]], *, count: int, width: int, generator: np.random.Generator
) -> Conditions:
    """Return conditions on ``width`` columns, each copied from a row that is unique in these columns."""
    rows, used = [], []
    share = -(-count // _SUBSETS)
    for _ in range(_SUBSETS):
        columns = generator.permutation(len(hashed))[:width]
        sums = hashed[columns[0]].copy()
        for column in columns[1:]:
            sums += hashed[column]
        single = lone_rows(sums, share, generator)
        rows.append(single)
        used.append(np.tile(np.isin(np.arange(len(hashed)), columns), (len(single), 1)))
    order = generator.permutation(sum(len(part) for part in rows))[:count]
    return np.concatenate(rows)[order], np.concatenate(used)[order]


def lone_rows(values: NDArray[np.uint64], count: int, generator: np.random.Generator) -> NDArray[np.intp]:
    """Draw ``count`` rows with a unique value, without replacement, or all of them if there are fewer.

    A sample of rows is checked first.  If it has too few unique rows, all rows are searched.  Which way is taken
    depends only on the number of unique rows, so each of them is equally likely.
    """
    guesses = _GUESSES * count
    if guesses < len(values):
        drawn = generator.choice(len(values), guesses, replace=False)
        lone = drawn[_occurrences(values, values[drawn]) == 1]
        if len(lone) >= count:
            return np.asarray(lone[:count])
    return np.asarray(generator.permutation(_alone(values))[:count])


def _occurrences(values: NDArray[np.uint64], hashes: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return how often each of a few values occurs among all values."""
    maybe = np.zeros(1 << _LOW_BITS, dtype=np.bool_)
    maybe[hashes.astype(np.uint16)] = True
    near = values[maybe[values.astype(np.uint16)]]  # nearly all other values differ in their lowest bits
    distinct, which = np.unique(hashes, return_inverse=True)
    place = np.searchsorted(distinct, near)
    place[place == len(distinct)] = 0
    return np.bincount(place[distinct[place] == near], minlength=len(distinct))[which]


def _alone(values: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return the rows whose value is unique.  Values are hashed into bins; only bins with several values are sorted."""
    bits = max(1, len(values) - 1).bit_length()
    bins = (values >> np.uint64(64 - bits)).astype(np.intp)
    one = np.zeros(1 << bits, dtype=np.uint64)
    one[bins] = values
    mixed = np.zeros(1 << bits, dtype=np.bool_)
    mixed[bins[one[bins] != values]] = True
    sure = np.flatnonzero((np.bincount(bins, minlength=1 << bits) == 1)[bins])
    rest = np.flatnonzero(mixed[bins])
    if not len(rest):
        return sure
    order = rest[np.argsort(values[rest])]
    held = values[order]
    differs = np.concatenate(([True], held[1:] != held[:-1], [True]))
    return np.concatenate([sure, order[differs[:-1] & differs[1:]]])


@dataclass(frozen=True, eq=False)
class RowsInCells:
    """The rows of a table that match the cells of a release: one bit per row, computed on first use."""

    release: Released
    columns: tuple[NDArray[np.unsignedinteger], ...]  # codes of the table, (rows,) each, in narrow types
    packed_rows: dict[tuple[int, int], NDArray[np.uint64]] = field(default_factory=dict, repr=False)

    @staticmethod
    def from_tables(release: Released, table: Rows) -> RowsInCells:
        """Prepare the rows of ``table`` for matching with cells of ``release``."""
        narrow = (np.min_scalar_type(size - 1) for size in table.domain.shape)
        columns = tuple(column.astype(kind) for column, kind in zip(table.codes.T, narrow, strict=True))
        return RowsInCells(release, columns)

    def bits(self, column: int, cell: int) -> NDArray[np.uint64]:
        """Return one bit per row, set if the row matches this cell of the column: ``(rows / 64,)``, rounded up."""
        rows = self.packed_rows.get((column, cell))
        if rows is None:
            inside = self._inside(self.columns[column], np.flatnonzero(self.release.cells[column][cell] > 0))
            packed = np.zeros(-(-len(inside) // 64) * 8, dtype=np.uint8)
            packed[: -(-len(inside) // 8)] = np.packbits(inside)
            rows = packed.view(np.uint64)
            if (len(self.packed_rows) + 1) * rows.nbytes > _CACHED_BYTES:
                self.packed_rows.clear()
            self.packed_rows[column, cell] = rows
        return rows

    @staticmethod
    def _inside(codes: NDArray[np.unsignedinteger], leaves: NDArray[np.intp]) -> NDArray[np.bool_]:
        low, high = int(leaves[0]), int(leaves[-1])
        if low == high:
            return np.asarray(codes == low)
        if high - low + 1 == len(leaves):
            return np.asarray((codes >= low) & (codes <= high))
        allowed = np.zeros(max(high, int(codes.max())) + 1, dtype=np.bool_)
        allowed[leaves] = True
        return np.asarray(allowed[codes])


def _isolates(conditions: Conditions, table: RowsInCells) -> NDArray[np.bool_]:
    return np.asarray(matches(conditions, table) == 1)


def matches(conditions: Conditions, table: RowsInCells) -> NDArray[np.intp]:
    """Return how many rows of a table meet each condition."""
    matching = np.zeros(len(conditions[0]), dtype=np.intp)
    for number, (row, used) in enumerate(zip(*conditions, strict=True)):
        cells = table.release.codes[row].tolist()
        first, *others = np.flatnonzero(used).tolist()
        inside = table.bits(first, cells[first])
        for column in others:
            inside = inside & table.bits(column, cells[column])
        matching[number] = int(np.bitwise_count(inside).sum())
    return matching
