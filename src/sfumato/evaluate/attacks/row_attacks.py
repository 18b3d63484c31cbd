"""Attacks that read released rows: membership, linkage, inference, and downcoding of minimal recodings.

Membership, linkage and inference use the same similarities, computed in one pass.  The similarity of a target to a row
is a sum over columns.  A column adds 1 if the row's cell is the target's cell, and 1/|set| if a generalized cell
contains it. (The distance is the number of columns minus the similarity.) Each attack has as many members as controls.
One half fits its threshold and the other half tests it.

Downcoding undoes local recodings that are as fine as possible (Cohen 2022).

Such a recoding writes the smallest interval or set that covers the rows of a class.  So both ends of an interval occur
in the class.  If a set has no more values than the class has rows, every value of it occurs.  An attacker who knows the
method writes these values back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Categorical, Domain
from sfumato.errors import TableError
from sfumato.evaluate.intervals import FEWEST_TESTED, Proportion
from sfumato.evaluate.released import CodeMatrix, Released, Rows, Weights

Closeness: TypeAlias = Weights | NDArray[np.unsignedinteger]
"""Similarities of targets to rows: small integers of a narrow type if no cell is generalized."""

_CHUNK = 1 << 19  # similarities computed at once if the release has few rows
_TARGETS_PER_PASS = 8  # targets compared in one pass over the rows if the release has many rows
_BLOCK = 1 << 19  # similarities summed over the columns at once: they fit the processor's cache


@dataclass(frozen=True, eq=False)
class Similarity:
    """A release that is prepared for comparison with targets: one narrow array of codes per column.

    ``cells[j]`` is None if the cells of column j are its leaves.  Otherwise it has their weights, shape ``(distinct
    cells, leaves)``, in multiples of 2^-16.
    """

    domain: Domain
    codes: tuple[NDArray[np.unsignedinteger], ...]  # (rows,) each
    cells: tuple[Weights | None, ...]

    @staticmethod
    def to(release: Released) -> Similarity:
        """Prepare the rows of ``release`` for comparison with targets."""
        largest = np.maximum(release.codes.max(axis=0), np.array(release.domain.shape) - 1)  # targets fit, too
        codes = [
            column.astype(np.min_scalar_type(int(most))) for column, most in zip(release.codes.T, largest, strict=True)
        ]
        cells = [None if plain else release.rounded(column) for column, plain in enumerate(release.plain)]
        return Similarity(release.domain, tuple(codes), tuple(cells))

    @property
    def rows(self) -> int:
        """The number of released rows."""
        return len(self.codes[0])

    def chunks(self, people: int) -> Iterator[slice]:
        """Return slices of targets that are compared together."""
        step = max(_TARGETS_PER_PASS, _CHUNK // self.rows)
        return (slice(start, min(start + step, people)) for start in range(0, people, step))

    def compare(self, targets: CodeMatrix, columns: Sequence[int]) -> Closeness:
        """Return similarities over ``columns``: shape ``(targets, rows)``, exact multiples of 2^-16.

        They are small integers of a narrow type if the cells of all these columns are leaves.
        """
        plain = [column for column in columns if self.cells[column] is None]
        agree = np.zeros((len(targets), self.rows), dtype=np.min_scalar_type(len(self.codes)))  # holds sums
        step = max(1, _BLOCK // max(1, len(targets)))
        for start in range(0, self.rows, step):
            block = agree[:, start : start + step]
            for column in plain:  # adding a comparison of one narrow type is several times faster than adding booleans
                block += self._same(targets, column, slice(start, start + step))
        if len(plain) == len(columns):
            return agree
        close = agree.astype(np.float32)
        for column in columns:
            cells = self.cells[column]
            if cells is not None:
                close += np.take(cells.T[targets[:, column]], self.codes[column], axis=1)
        return close

    def _same(self, targets: CodeMatrix, column: int, rows: slice) -> NDArray[np.uint8]:
        """Return 1 for each row whose cell equals the target's, else 0.  The column's narrow type holds both codes."""
        codes = self.codes[column][rows]
        same: NDArray[np.bool_] = np.equal(codes, targets[:, [column]].astype(codes.dtype))
        return same.view(np.uint8)

    def votes(self, close: Closeness, near: Nearby, targets: CodeMatrix, column: int) -> NDArray[np.float64]:
        """Return the weight of each leaf of a column among the rows nearest on all other columns, ``(targets,
        leaves)``.

        Args:
            close: similarities over all columns, shape ``(targets, rows)``.
            near: rows per target, from ``nearby``.
            targets: the codes of the targets.
            column: position of the column that is left out of the similarity.
        """
        cells, codes = self.cells[column], self.codes[column]
        counts = np.empty((len(targets), self.domain.shape[column] if cells is None else len(cells)))
        for number, (rows, leaf) in enumerate(zip(near, targets[:, column], strict=True)):
            held = codes[rows]
            own = (held == leaf).view(np.uint8) if cells is None else cells[held, leaf]
            others = close[number, rows] - own
            counts[number] = np.bincount(held[others == others.max()], minlength=counts.shape[1])
        return counts if cells is None else np.asarray(counts @ cells.astype(np.float64))


Nearby: TypeAlias = list[NDArray[np.intp]]


def nearby(close: Closeness) -> Nearby:
    """Return the rows whose similarity is within one of each target's largest.

    Only these rows can be nearest after one column is left out.
    """
    return [np.flatnonzero(own >= own.max() - min(1, own.max())) for own in close]


@dataclass(frozen=True, eq=False)
class Targets:
    """Codes of the people attacked, each of shape ``(people, attributes)``."""

    members: CodeMatrix
    controls: CodeMatrix

    @property
    def stacked(self) -> CodeMatrix:
        """The codes of members, then of controls."""
        return np.concatenate([self.members, self.controls])

    def __len__(self) -> int:
        return len(self.members)


def draw_targets(
    members: Rows, controls: Rows, *, count: int, generator: np.random.Generator
) -> tuple[Targets, Targets]:
    """Draw equal numbers of members and controls, at most ``count`` each, and split them into fitting and testing
    halves.

    Raises:
        TableError: too few rows for an interval.
    """
    each = min(count, len(members), len(controls))
    if each < 2 * FEWEST_TESTED:
        raise TableError(f"too few rows for an interval: attacks need {2 * FEWEST_TESTED} of each kind", culprit=each)
    chosen = [table.sample(each, generator).codes for table in (members, controls)]
    half = each // 2
    return Targets(chosen[0][:half], chosen[1][:half]), Targets(chosen[0][half : 2 * half], chosen[1][half : 2 * half])


TargetScores = NDArray[np.float64]

MEMBERSHIP_KNOWLEDGE = "the whole row of the target"
_BANDWIDTH = 3.0  # one more equal column multiplies a row's part in the density by e^3


@dataclass(frozen=True, eq=False)
class Roc:
    """True and false positive rates over all thresholds, on the testing half."""

    false_positive: TargetScores
    true_positive: TargetScores


def membership_scores(close: Closeness) -> tuple[TargetScores, TargetScores]:
    """Return two scores per target: similarity to its nearest released row, and the density of rows around it.

    ``close`` are similarities over all columns, shape ``(targets, rows)``.
    """
    nearest = close.max(axis=1).astype(np.float64)
    if close.dtype.kind == "u":
        density = [_density(own, int(most)) for own, most in zip(close, nearest, strict=True)]
        return nearest, np.log(density) + _BANDWIDTH * nearest
    weight = np.subtract(close, nearest[:, None], dtype=np.float32)
    np.multiply(weight, _BANDWIDTH, out=weight)
    np.exp(weight, out=weight)
    return nearest, np.log(weight.sum(axis=1, dtype=np.float64)) + _BANDWIDTH * nearest


def _density(close: NDArray[np.unsignedinteger], nearest: int) -> float:
    """Return the density of rows around one target, weighted by their distance beyond the nearest row.

    Rows with equal similarity are counted together.
    """
    density, left = 0.0, len(close)
    for level in range(nearest, -1, -1):
        count = int(np.count_nonzero(close == level))
        density += count * math.exp(_BANDWIDTH * (level - nearest))
        left -= count
        if not left:
            break
    return density


def guess_members(
    fit: tuple[TargetScores, ...], test: tuple[TargetScores, ...]
) -> tuple[NDArray[np.bool_], TargetScores]:
    """Return guesses on the testing half by the score and threshold that did best on the fitting half.

    Scores list the members first, then as many controls.  The second result is the chosen score.
    """
    best, chosen, threshold = -1.0, 0, np.inf
    for number, scores in enumerate(fit):
        gain, at = _best_threshold(scores)
        if gain > best:
            best, chosen, threshold = gain, number, at
    return test[chosen] >= threshold, test[chosen]


def roc(scores: TargetScores) -> Roc:
    """Return the ROC curve of scores that list the members first, then as many controls."""
    half = len(scores) // 2
    thresholds = np.unique(scores)[::-1]
    members, controls = np.sort(scores[:half]), np.sort(scores[half:])
    above = [1 - np.searchsorted(kind, thresholds, side="left") / half for kind in (controls, members)]
    return Roc(np.concatenate([[0.0], above[0]]), np.concatenate([[0.0], above[1]]))


def _best_threshold(scores: TargetScores) -> tuple[float, float]:
    curve = roc(scores)
    gains = curve.true_positive - curve.false_positive
    place = int(np.argmax(gains))
    thresholds = np.concatenate([[np.inf], np.unique(scores)[::-1]])
    return float(gains[place]), float(thresholds[place])


LINKAGE_KNOWLEDGE = "two disjoint halves of the target's columns, from two sources that do not share an identifier"


def _link_chances(first: Closeness, second: Closeness) -> NDArray[np.float64]:
    """Return the probability that each target is linked: shape ``(targets,)``.

    Two sources each pick a random row among the rows nearest on their columns.  The target is linked if both picked the
    same row.  ``first`` and ``second`` are similarities over the two halves of the columns, shape ``(targets, rows)``.
    """
    nearest = [close == close.max(axis=1, keepdims=True) for close in (first, second)]
    same = _counts(nearest[0] & nearest[1])
    ways = [_counts(rows) for rows in nearest]
    return np.asarray(same / (ways[0] * ways[1]), dtype=np.float64)


def _counts(chosen: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Count the rows chosen for each target in a loop.  This avoids NumPy's wide copy of booleans."""
    return np.array([np.count_nonzero(rows) for rows in chosen], dtype=np.intp)


INFERENCE_KNOWLEDGE = "every column of the target but {secret}"


def infer(
    similarity: Similarity,
    close: Closeness,
    near: Nearby,
    people: CodeMatrix,
    secret: int,
    *,
    generator: np.random.Generator,
) -> NDArray[np.bool_]:
    """Return whether the secret of each target was guessed: shape ``(targets,)``.

    The guess is the value with the largest weight among the rows nearest on all other columns.

    Args:
        similarity: the release.
        close: similarities over all columns, shape ``(targets, rows)``.
        near: rows per target, from ``nearby``.
        people: the targets.
        secret: position of the column that the attacker does not know.
        generator: breaks ties.
    """
    votes = similarity.votes(close, near, people, secret)  # (targets, values)
    ties = votes == votes.max(axis=1, keepdims=True)
    guess = np.argmax(ties * (1 - generator.random(votes.shape)), axis=1)
    return np.asarray(guess == people[:, secret])


_SCOUTS = 80  # people of each kind used to choose the secret column


@dataclass(frozen=True, eq=False)
class Fitted:
    """The fitting half: membership scores, and the column with the largest inference advantage."""

    scores: tuple[NDArray[np.float64], NDArray[np.float64]]
    secret: int


@dataclass(frozen=True, eq=False)
class Tested:
    """The testing half, members then controls: membership scores, linked targets, correctly inferred targets."""

    scores: tuple[NDArray[np.float64], NDArray[np.float64]]
    linked: NDArray[np.bool_]
    inferred: NDArray[np.bool_]


def fit_row_attacks(similarity: Similarity, targets: Targets, *, generator: np.random.Generator) -> Fitted:
    """Return scores for the choice of a threshold, and the secret with the largest advantage on a part of the
    targets.
    """
    people = targets.stacked
    scores = np.empty((2, len(people)))
    columns = range(people.shape[1])
    for part in similarity.chunks(len(people)):
        scores[:, part] = membership_scores(similarity.compare(people[part], columns))
    scouts = np.concatenate([targets.members[:_SCOUTS], targets.controls[:_SCOUTS]])
    right = np.empty((len(columns), len(scouts)), dtype=np.bool_)
    for part in similarity.chunks(len(scouts)):
        close = similarity.compare(scouts[part], columns)
        near = nearby(close)
        for column in columns:
            right[column, part] = infer(similarity, close, near, scouts[part], column, generator=generator)
    half = len(scouts) // 2
    gains = right[:, :half].mean(axis=1) - right[:, half:].mean(axis=1)
    return Fitted((scores[0], scores[1]), int(np.argmax(gains)))


def test_row_attacks(
    similarity: Similarity, targets: Targets, secret: int, *, generator: np.random.Generator
) -> Tested:
    """Run the three attacks on the testing half.  Columns are assigned to the two sources at random."""
    people = targets.stacked
    order = generator.permutation(people.shape[1])
    middle = (len(order) + 1) // 2
    scores, chances = np.empty((2, len(people))), np.empty(len(people))
    inferred = np.empty(len(people), dtype=np.bool_)
    for part in similarity.chunks(len(people)):
        first, second = (similarity.compare(people[part], half.tolist()) for half in (order[:middle], order[middle:]))
        chances[part] = _link_chances(first, second)
        close = first + second
        scores[:, part] = membership_scores(close)
        inferred[part] = infer(similarity, close, nearby(close), people[part], secret, generator=generator)
    return Tested((scores[0], scores[1]), generator.random(len(people)) < chances, inferred)


@dataclass(frozen=True)
class Downcoding:
    """Right leaves in generalized cells: derived from minimality, and guessed within the cell."""

    minimality: Proportion
    guessing: Proportion


def downcode(release: Released, truth: Rows, *, quasi: tuple[str, ...], generator: np.random.Generator) -> Downcoding:
    """Write a leaf into every generalized cell of the quasi-identifiers, and count the right ones.

    Classes are the released rows that agree on ``quasi``.  Within a class, the multiset of written leaves is compared
    with the true one, so the order of rows does not matter.

    Args:
        release: rows by local recoding, row n made from row n of ``truth``.
        truth: the original rows.
        quasi: the quasi-identifiers.
        generator: guesses the leaves that minimality does not determine.

    Raises:
        TableError: the two tables have different numbers of rows.
    """
    if len(release) != len(truth):
        raise TableError("downcoding compares a recoded table with its original, row by row", culprit=None)
    columns = [release.domain.index(name) for name in quasi]
    _, classes = np.unique(release.codes[:, columns], axis=0, return_inverse=True)
    order = np.argsort(classes.ravel(), kind="stable")
    starts = np.flatnonzero(np.diff(classes.ravel()[order], prepend=-1))
    read = guessed = cells = 0
    for members in np.split(order, starts[1:]):
        for column in columns:
            leaves = np.flatnonzero(release.cells[column][release.codes[members[0], column]])
            if len(leaves) > 1:
                real = truth.codes[members, column]
                has_order = not isinstance(release.domain.attributes[column], Categorical)
                certain = _certain(leaves, len(members), has_order=has_order)
                filled = np.concatenate([certain, generator.choice(leaves, size=len(members) - len(certain))])
                read += _overlap(filled, real)
                guessed += _overlap(generator.choice(leaves, size=len(members)), real)
                cells += len(members)
    return Downcoding(Proportion(read, cells), Proportion(guessed, cells))


def _certain(leaves: NDArray[np.intp], members: int, *, has_order: bool) -> NDArray[np.intp]:
    """Return the leaves that a minimal cell proves to occur in the class."""
    if has_order:
        return leaves[[0, -1]][:members]
    return leaves if len(leaves) <= members else leaves[:0]


def _overlap(one: NDArray[np.intp], two: NDArray[np.intp]) -> int:
    size = int(max(one.max(), two.max())) + 1
    return int(np.minimum(np.bincount(one, minlength=size), np.bincount(two, minlength=size)).sum())
