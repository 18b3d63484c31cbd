"""Rows of real people, and releases as an outsider sees them: sources of estimated marginals.

A cell of a released row is a set of compatible leaves.  Answered workloads and locally perturbed reports are releases
without rows of people.  The guarantee of a release is its claim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sfumato.arguments import expect, parse_integer
from sfumato.domain import Domain
from sfumato.engine.exact import reveal
from sfumato.errors import InputError, SizeError, TableError
from sfumato.local.estimators import simplex
from sfumato.privacy.loss import Epsilon, EpsilonDelta, Loss, Rho

_LARGEST_CLASS = 10**18  # largest class size that can be claimed
_DIGITS = 19
_LONGEST_TEXT = 60

if TYPE_CHECKING:
    from sfumato.engine.port import Encoded


@dataclass(frozen=True)
class Claim:
    """The guarantee of a release: a differential privacy loss, a smallest class size, both, or neither.

    Raises:
        InputError: the loss has the wrong type, or the class size is below one.
    """

    loss: Loss | None = None
    class_size: int | None = None

    def __post_init__(self) -> None:
        expect(self.loss, Loss | None, "a claim has a loss: Epsilon(...), EpsilonDelta(..., ...), Rho(...) or None")
        if self.class_size is None:
            return
        size = parse_integer(self.class_size, "a class size is a whole number")
        if not 1 <= size <= _LARGEST_CLASS:
            raise InputError(f"a class holds at least one row, and at most {_LARGEST_CLASS:.0e}", culprit=size)

    def __str__(self) -> str:
        words = [] if self.loss is None else [str(self.loss)]
        if self.class_size is not None:
            words.append(f"k = {self.class_size}")
        return ", ".join(words) or "no guarantee"


def parse_claim(text: str) -> Claim:
    """Parse a claim: ``epsilon=1``, ``epsilon=1,delta=1e-9``, ``rho=0.5``, ``k=5`` or ``none``.

    Raises:
        InputError: the text is none of these.

    >>> str(parse_claim("epsilon=0.5,delta=1e-9")), str(parse_claim("k=5")), str(parse_claim("none"))
    ('epsilon = 0.5, delta = 1e-09', 'k = 5', 'no guarantee')
    """
    if text.strip() == "none":
        return Claim()
    given = [part.strip().partition("=")[::2] for part in text.split(",")]
    parts = dict(given) if len(dict(given)) == len(given) else {}
    match parts:
        case {"epsilon": epsilon, "delta": delta} if len(parts) == 2:  # noqa: PLR2004
            return Claim(EpsilonDelta(epsilon, delta))
        case {"epsilon": epsilon} if len(parts) == 1:
            return Claim(Epsilon(epsilon))
        case {"rho": rho} if len(parts) == 1:
            return Claim(Rho(rho))
        case {"k": k} if len(parts) == 1 and k.isdecimal() and len(k) <= _DIGITS:
            return Claim(class_size=int(k))
        case _:
            raise InputError(
                f"{text[:_LONGEST_TEXT]!r} is no guarantee; say epsilon=1, epsilon=1,delta=1e-9, rho=0.5, k=5 or none",
                culprit=text,
            )


CodeMatrix = NDArray[np.intp]

_LARGEST = 1 << 62  # largest key before keys are renumbered


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of real people: ``codes`` has shape ``(rows, attributes)``, in the order of the domain.

    Raises:
        TableError: the shape does not fit the domain, or a code is out of range or not an integer.
    """

    domain: Domain
    codes: CodeMatrix = field(repr=False)

    def __post_init__(self) -> None:
        codes = np.asarray(self.codes)
        if codes.ndim != 2 or codes.shape[1] != len(self.domain):  # noqa: PLR2004
            raise TableError(f"codes need one column for each of the {len(self.domain)} attributes", culprit=self)
        if codes.size and codes.dtype.kind not in "iu":
            raise TableError("codes are whole numbers", culprit=self)
        if codes.size and (codes.min() < 0 or (codes.max(axis=0) >= np.array(self.domain.shape)).any()):
            raise TableError("a code is outside its attribute's cells", culprit=self)
        object.__setattr__(self, "codes", np.asfortranarray(codes, dtype=np.intp))

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, chosen: NDArray[np.intp]) -> Rows:
        """Return the rows at positions ``chosen``, in that order."""
        return Rows(self.domain, self.codes[chosen])

    def sample(self, count: int, generator: np.random.Generator) -> Rows:
        """Draw ``count`` rows (all, if there are fewer), without replacement, in random order."""
        return self.take(generator.permutation(len(self))[:count])


def keys(codes: CodeMatrix, shape: tuple[int, ...]) -> NDArray[np.intp]:
    """Number the distinct rows from 0 without gaps: shape ``(rows,)``.  Equal rows have equal numbers.

    Args:
        codes: shape ``(rows, columns)``, non-negative.
        shape: a number above all codes of each column.

    >>> keys(np.array([[0, 2], [1, 0], [0, 2]]), (2, 3)).tolist()
    [0, 1, 0]
    """
    numbers, cells = np.zeros(len(codes), dtype=np.intp), 1
    for column, size in enumerate(shape):
        if cells * size >= _LARGEST:
            values, numbers = np.unique(numbers, return_inverse=True)
            cells = len(values)
        numbers = numbers * size + codes[:, column]
        cells *= size
    return np.unique(numbers, return_inverse=True)[1].astype(np.intp)


def open_rows(path: str | Path, domain: Domain) -> Rows:
    """Read a table in any format of the engine, encoded and bounded by ``domain``.

    Raises:
        TableError: the table cannot be read or does not fit the domain.
    """
    from sfumato.engine.open import open_table

    return encoded_rows(open_table(path, csv=domain.csv).encode(domain))


def encoded_rows(encoded: Encoded) -> Rows:
    """Return the rows of an encoded and bounded table or view.

    Raises:
        TableError: there are no rows.
    """
    domain = encoded.domain
    batches = reveal(encoded.batches(domain.names))
    parts = [np.column_stack([column.to_numpy() for column in batch.columns]) for batch in batches]
    if not parts:
        raise TableError("the table has no rows that fit the domain", culprit=domain)
    return Rows(domain, np.concatenate(parts))


Shares = NDArray[np.float64]
Weights = NDArray[np.float32]

_DENSE_CELLS = 1 << 22  # largest number of cells of a dense contingency table (32 MiB)
_CHUNK_CELLS = 1 << 24
_STEP = 1 << 16  # weights are multiples of 2^-16, so that float32 sums over 255 attributes are exact and ties are exact


def refuse_large_pairs(domain: Domain) -> None:
    """Refuse a domain with a pair of columns that is too large to be compared, before any file is read.

    Raises:
        SizeError: a pair has too many cells.
    """
    widest = sorted(domain, key=lambda attribute: -attribute.size)[:2]
    cells, names = math.prod(each.size for each in widest), " x ".join(each.name for each in widest)
    if len(widest) > 1 and cells > _DENSE_CELLS:
        raise SizeError(
            f"all pairs of columns are compared, and {names} has {cells:,} cells, more than {_DENSE_CELLS:,}; declare "
            "edges in a copy of the description, accept it, and give it by --domain",
            culprit=names,
        )


@runtime_checkable
class MarginalSource(Protocol):
    """A source of estimated distributions over the cells of a few attributes."""

    @property
    def domain(self) -> Domain:
        """The public description of the table."""

    def marginal(self, attributes: tuple[str, ...]) -> Shares:
        """Return estimated shares of all cells, shape of the projected domain, summing to one."""


@dataclass(frozen=True, eq=False)
class Released:
    """Released rows.  ``codes`` (rows, attributes) index ``cells``; ``cells[j]`` has shape
    ``(distinct cells, leaves)`` and holds ``1/|set|`` at every leaf compatible with the cell.
    """

    domain: Domain
    codes: CodeMatrix
    cells: tuple[Weights, ...]

    def __post_init__(self) -> None:
        if self.codes.ndim != 2 or self.codes.shape[1] != len(self.domain) or len(self.cells) != len(self.domain):  # noqa: PLR2004
            raise TableError("released rows need one column for each attribute of the domain", culprit=self.domain)
        if not len(self.codes):
            raise TableError("the release has no rows", culprit=self.domain)
        object.__setattr__(self, "codes", np.asfortranarray(self.codes, dtype=np.intp))

    @staticmethod
    def raw(rows: Rows) -> Released:
        """Return the rows as a release without any protection: every cell is one leaf."""
        return Released(rows.domain, rows.codes, tuple(np.eye(size, dtype=np.float32) for size in rows.domain.shape))

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property  # uncached, the evaluation of a release of 8,000 rows takes 1.19 times the CPU
    def plain(self) -> tuple[bool, ...]:
        """One flag per attribute: true if its cells are its leaves, so that codes are codes of the domain."""
        return tuple(cells.shape[0] == cells.shape[1] and bool((np.diagonal(cells) == 1).all()) for cells in self.cells)

    def rounded(self, column: int) -> Weights:
        """Return the weights of a column's cells in multiples of 2^-16."""
        return np.asarray(np.round(self.cells[column] * _STEP) / _STEP, dtype=np.float32)

    def weights(self) -> Weights:
        """Return one row per released row, one column per leaf: shape ``(rows, sum of domain.shape)``."""
        blocks = [self.rounded(column)[self.codes[:, column]] for column in range(len(self.domain))]
        return np.concatenate(blocks, axis=1, dtype=np.float32)

    def share(self, attributes: tuple[str, ...], allowed: tuple[NDArray[np.bool_], ...]) -> float:
        """Return the share of rows that meet a condition on every attribute, equal to the sum over ``marginal``.

        Args:
            attributes: names.
            allowed: the leaves that meet the condition, per attribute, shape ``(leaves,)``.
        """
        met, chances = np.ones(len(self), dtype=np.bool_), None
        for name, leaves in zip(attributes, allowed, strict=True):
            column = self.domain.index(name)
            place = self.codes[:, column]
            if self.plain[column]:
                met &= leaves[place]
            else:
                own = np.asarray(self.cells[column] @ leaves, dtype=np.float64)[place]
                chances = own if chances is None else chances * own
        if chances is None:
            return int(np.count_nonzero(met)) / len(self)
        return float((chances * met).mean())

    def marginal(self, attributes: tuple[str, ...]) -> Shares:
        """Return shares of the cells of a marginal; a generalized cell spreads its mass evenly over its leaves.

        Raises:
            SizeError: the marginal is too large for memory.
        """
        columns = [self.domain.index(name) for name in attributes]
        leaves = [self.domain.shape[column] for column in columns]
        if math.prod(leaves) > _DENSE_CELLS:
            raise SizeError(
                f"the marginal of {', '.join(attributes)} has {math.prod(leaves)} cells; declare wider bins",
                culprit=attributes,
            )
        distinct = [len(self.cells[column]) for column in columns]
        if math.prod(distinct) > _DENSE_CELLS:
            return self.marginal_by_rows(columns).reshape(leaves)
        key = self.codes[:, columns[0]] if columns else np.zeros(len(self), dtype=np.intp)
        for column, count in zip(columns[1:], distinct[1:], strict=True):
            key = key * count
            key += self.codes[:, column]
        table = np.bincount(key, minlength=math.prod(distinct)).reshape(distinct) / len(self)
        for axis, column in enumerate(columns):
            if not self.plain[column]:
                spread = np.tensordot(table, self.cells[column], axes=(axis, 0))
                table = np.moveaxis(spread, -1, axis)
        return np.asarray(table, dtype=np.float64)

    def draw(self, generator: np.random.Generator) -> Rows:
        """Draw one leaf for every cell, uniformly over its compatible leaves: rows for a learner."""
        drawn = np.empty_like(self.codes)
        for column, cells in enumerate(self.cells):
            place = self.codes[:, column]
            if self.plain[column]:
                drawn[:, column] = place
                continue
            cumulative = np.cumsum(cells, axis=1, dtype=np.float64)
            cumulative[:, -1] = 1.0
            luck = generator.random(len(self))
            drawn[:, column] = (cumulative[place] <= luck[:, None]).sum(axis=1)
        return Rows(self.domain, drawn)

    def marginal_by_rows(self, columns: list[int]) -> Shares:
        """Sum the outer products of the rows in chunks, because one table of the distinct cells would be too large."""
        *first, last = (self.cells[column] for column in columns)
        width = math.prod(cells.shape[1] for cells in first)
        total = np.zeros((width, last.shape[1]))
        step = max(1, _CHUNK_CELLS // max(width, 1))
        for start in range(0, len(self), step):
            chunk = self.codes[start : start + step]
            outer = np.ones((len(chunk), 1))
            for column, cells in zip(columns[:-1], first, strict=True):
                outer = (outer[:, :, None] * cells[chunk[:, column]][:, None, :]).reshape(len(chunk), -1)
            total += outer.T @ last[chunk[:, columns[-1]]]
        return np.asarray(total / len(self), dtype=np.float64)


def spread(sets: NDArray[np.bool_]) -> Weights:
    """Return weights of cells given as sets of leaves: shape ``(cells, leaves)``, every row summing to one."""
    return np.asarray(sets / sets.sum(axis=1, keepdims=True), dtype=np.float32)


_CELLS = 1 << 25  # cells in the cache (256 MiB); further marginals are computed on each use


@dataclass(eq=False)
class CachedMarginals:
    """A source that caches its small marginals and its answers to conditions."""

    source: MarginalSource
    _answers: dict[tuple[tuple[str, ...], bytes], float] = field(default_factory=dict, repr=False)
    _marginals: dict[tuple[str, ...], Shares] = field(default_factory=dict, repr=False)
    _cells: int = 0

    @property
    def domain(self) -> Domain:
        """The public description of the table."""
        return self.source.domain

    def marginal(self, attributes: tuple[str, ...]) -> Shares:
        """Return the marginal of the source, computed once if it has two attributes, or fewer cells than rows."""
        if attributes in self._marginals:
            return self._marginals[attributes]
        table = self.source.marginal(attributes)
        small = len(attributes) <= 2 or self._quicker(table)  # noqa: PLR2004
        if small and self._cells + table.size <= _CELLS:
            table.setflags(write=False)
            self._marginals[attributes] = table
            self._cells += table.size
        return table

    def share(self, attributes: tuple[str, ...], allowed: tuple[NDArray[np.bool_], ...]) -> float:
        """Return the share of people who meet a condition on every attribute, like ``Released.share``, from the
        cache.
        """
        key = (attributes, b"|".join(leaves.tobytes() for leaves in allowed))
        if key not in self._answers:
            source, table = self.source, self._marginals.get(attributes)
            if table is not None and self._quicker(table):
                self._answers[key] = within(table, allowed)
            elif isinstance(source, Released):
                self._answers[key] = source.share(attributes, allowed)
            else:
                self._answers[key] = within(source.marginal(attributes), allowed)
        return self._answers[key]

    def _quicker(self, table: Shares) -> bool:
        """Return whether the marginal is faster to read than the rows."""
        return isinstance(self.source, Released) and table.size <= len(self.source)


def within(table: Shares, allowed: tuple[NDArray[np.bool_], ...]) -> float:
    """Return the share of a marginal that meets a condition on each of its attributes."""
    for leaves in allowed:  # contracts the leading axis
        table = np.tensordot(leaves.astype(np.float64), table, axes=(0, 0))
    return float(table)


@dataclass(frozen=True, eq=False)
class AnsweredWorkload:
    """Noisy counts of some marginals, and nothing else.

    A marginal is projected from an answer that contains its attributes.  Otherwise it is the product of the largest
    answered parts, with a uniform distribution for attributes without any answer.
    """

    domain: Domain
    answers: Mapping[tuple[str, ...], NDArray[np.float64]]

    def marginal(self, attributes: tuple[str, ...]) -> Shares:
        """Return shares estimated from the answers alone, projected to the simplex."""
        left, pieces = set(attributes), []
        while left:
            best = max(self.answers, key=lambda clique: len(left & set(clique)), default=())
            known = tuple(name for name in attributes if name in left and name in best)
            if not known:
                break
            pieces.append((known, self._projected(known)))
            left -= set(known)
        pieces += [((name,), np.full(self.domain[name].size, 1 / self.domain[name].size)) for name in sorted(left)]
        order = [name for names, _ in pieces for name in names]
        table = pieces[0][1]
        for _, piece in pieces[1:]:
            table = np.multiply.outer(table, piece)
        return np.transpose(table, [order.index(name) for name in attributes])

    def _projected(self, names: tuple[str, ...]) -> Shares:
        """Average all answers that contain ``names``, weighted by the inverse of the number of noisy cells summed."""
        total = np.zeros([self.domain[name].size for name in names])
        for clique, answer in self.answers.items():
            if set(names) <= set(clique):
                gone = tuple(axis for axis, name in enumerate(clique) if name not in names)
                shape = [self.domain[name].size for name in clique]
                axes = [name for name in clique if name in names]
                summed = np.asarray(answer, dtype=np.float64).reshape(shape).sum(axis=gone)
                weight = 1 / math.prod(shape[axis] for axis in gone)
                total += weight * np.transpose(summed, [axes.index(name) for name in names])
        return onto_simplex(total.ravel()).reshape(total.shape)


@dataclass(frozen=True, eq=False)
class Perturbed:
    """One report per person and attribute, each passed through a known channel.

    ``channels[j]`` has shape ``(leaves, leaves)``: entry (v, y) is the probability of reporting y for v.
    """

    reports: Released
    channels: tuple[NDArray[np.float64], ...]

    def __post_init__(self) -> None:
        shapes = [channel.shape for channel in self.channels]
        if shapes != [(size, size) for size in self.reports.domain.shape]:
            raise TableError("every attribute needs a square channel over its cells", culprit=self.reports.domain)

    @property
    def domain(self) -> Domain:
        """The public description of the table."""
        return self.reports.domain

    def marginal(self, attributes: tuple[str, ...]) -> Shares:
        """Return shares of reports after inverting each channel, projected to the simplex."""
        table = self.reports.marginal(attributes)
        for axis, name in enumerate(attributes):
            channel = self.channels[self.domain.index(name)]
            solved = np.linalg.solve(channel.T, np.moveaxis(table, axis, 0).reshape(len(channel), -1))
            moved = solved.reshape(len(channel), *np.delete(table.shape, axis))
            table = np.asarray(np.moveaxis(moved, 0, axis), dtype=np.float64)
        return onto_simplex(table.ravel()).reshape(table.shape)


def onto_simplex(values: NDArray[np.float64]) -> Shares:
    """Scale values to sum one and project them to the nearest shares (Duchi, Shalev-Shwartz, Singer, Chandra 2008).

    >>> onto_simplex(np.array([3.0, 2.0, -1.0])).tolist()
    [0.625, 0.375, 0.0]
    >>> onto_simplex(np.array([-1.0, -1.0])).tolist()
    [0.5, 0.5]
    """
    total = float(values.sum())
    scaled = values / total if total > 0 else np.full(values.shape, 1 / math.prod(values.shape))
    return simplex(scaled)
