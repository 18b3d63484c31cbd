"""A generalization hierarchy: for each level, the cell of every leaf, and the loss of that cell.

In files it is CSV with levels as columns (the form of ARX), or a YAML or JSON document.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from sfumato.domain.attribute import EXTRA
from sfumato.errors import DomainError, InputError
from sfumato.strict_documents import read_json, read_yaml, write_yaml

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

TOP = "*"
TAKEN = frozenset(
    {
        *("all", "and", "any", "array", "avg", "between", "by", "case", "cast", "coalesce", "count", "cross"),
        *("current_date", "date", "distinct", "else", "end", "exists", "extract", "false", "first", "from", "full"),
        *("group", "having", "if", "in", "inner", "interval", "is", "join", "last", "left", "like", "limit"),
        *("lower", "map", "max", "median", "min", "not", "null", "on", "or", "order", "outer", "over"),
        *("percentile_cont", "quantile", "right", "row", "select", "stddev_pop", "sum", "table", "then", "true"),
        *("union", "upper", "using", "values", "var_pop", "when", "where", "window", "with"),
    }
)
"""What no level is called, as SQL means something else by it."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


@dataclass(frozen=True, eq=False)
class Level:
    """A level:  ``cells[leaf]`` is the cell of a leaf, ``labels[cell]`` its name, ``losses[cell]`` its loss in 0..1."""

    labels: tuple[str, ...]
    cells: Integers  # (leaves,)
    losses: Reals  # (cells,)

    @property
    def size(self) -> int:
        """The number of cells."""
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """Levels from the leaves (level 0, no loss) to one top cell that covers everything.

    Every cell of a level lies in one cell of the next.  The loss of a cell follows the Loss Metric (Iyengar 2002):
    (leaves covered - 1) / (leaves - 1), unless the builder declares it; 0 at the leaves, 1 at the top.

    >>> h = Hierarchy.from_rows("pet", [["cat", "mammal", "*"], ["dog", "mammal", "*"], ["newt", "newt", "*"]])
    >>> h.height, h.levels[1].labels, h.levels[1].losses.tolist()
    (2, ('mammal', 'newt'), [0.5, 0.0])
    """

    attribute: str
    levels: tuple[Level, ...]
    domain_size: int  # the number of leaves, including dropped ones
    declared_losses: tuple[float, ...] | None = None  # one per level, if a builder declares them
    names: tuple[str, ...] | None = None  # names of the levels between leaves and top, finest first

    def __post_init__(self) -> None:
        _check_names(self.attribute, self.names, self.height - 1)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Hierarchy) and self._described == other._described)

    def __hash__(self) -> int:
        return hash(self._described)

    @cached_property
    def _described(self) -> tuple[Any, ...]:
        rows = tuple(map(tuple, self.rows()))
        return self.attribute, rows, self.declared_losses, self.names, self.domain_size

    @classmethod
    def from_rows(
        cls, attribute: str, rows: Sequence[Sequence[str]], *, names: Sequence[str] | None = None
    ) -> Hierarchy:
        """Make a hierarchy from one row per leaf, with levels as columns, leaf first and top last (the form of ARX).

        Args:
            attribute: name of the attribute.
            rows: labels.
            names: names of the levels between leaves and top, finest first. Rows of exactly these levels get the top.

        Raises:
            DomainError: no rows, rows of different length, a leaf or label that is empty or repeated, levels that do
                not nest, more than one top, or another number of names than of levels.
        """
        if names is not None and rows and all(len(row) == len(names) + 1 for row in rows):
            rows = [[*row, TOP] for row in rows]
        _check_rows(attribute, rows)
        columns = list(zip(*rows, strict=True))
        levels = []
        for number, column in enumerate(columns):
            labels = tuple(dict.fromkeys(column))
            position = {label: cell for cell, label in enumerate(labels)}
            cells = np.array([position[label] for label in column], dtype=np.int64)
            levels.append(Level(labels, cells, _losses(cells, len(labels), number, len(columns) - 1)))
        for number, (lower, upper) in enumerate(pairwise(levels)):
            _check_nesting(attribute, number, lower, upper)
        return cls(attribute, tuple(levels), len(rows), names=None if names is None else tuple(names))

    @classmethod
    def read(cls, path: str | Path, *, attribute: str | None = None) -> Hierarchy:
        """Read a hierarchy; a CSV file is for ``attribute``, by default for the attribute with the file's name.

        A CSV file has one leaf per line, with commas or semicolons, with or without a header: ``level_0, ...``, or the
        attribute and the names of its levels.  Other files are YAML or JSON documents.

        Raises:
            DomainError: the file cannot be read, or is no hierarchy; the message names the fault.
        """
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise DomainError(f"cannot read the hierarchy {path}: {reason}", culprit=path) from None
        if path.suffix == ".csv":
            return _from_csv(text, attribute or path.stem)
        try:
            document = (read_json if path.suffix == ".json" else read_yaml)(text, name=str(path))
        except InputError as error:
            if error.__cause__ is None:
                raise DomainError(str(error), culprit=path) from None
            where = _where(error.__cause__, text)
            raise DomainError(f"{path} is neither YAML nor JSON{where}", culprit=path) from None
        return cls.parse(document)

    @classmethod
    def parse(cls, document: object) -> Hierarchy:
        """Make a hierarchy from a parsed document.

        The document has ``attribute`` and ``rows``.  Optional parts are ``losses``, one per level, and ``levels``, the
        names of the levels between leaves and top.

        Raises:
            DomainError: the document is no hierarchy.
        """
        if not isinstance(document, Mapping) or not {"attribute", "rows"} <= set(document):
            raise DomainError("a hierarchy document needs 'attribute' and 'rows'", culprit=document)
        name, rows, losses = document["attribute"], document["rows"], document.get("losses")
        if not isinstance(name, str) or not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
            raise DomainError("a hierarchy document has a text 'attribute' and 'rows' of labels", culprit=document)
        names = document.get("levels")
        if names is not None and not (isinstance(names, list) and all(isinstance(each, str) for each in names)):
            raise DomainError(f"the levels of {name!r} are a list of names", culprit=names)
        hierarchy = cls.from_rows(name, [[str(label) for label in row] for row in rows], names=names)
        if losses is None:
            return hierarchy
        if not isinstance(losses, list) or not all(isinstance(loss, int | float) for loss in losses):
            raise DomainError(f"the losses of {name!r} must be numbers, one a level", culprit=losses)
        return hierarchy.with_losses(losses)

    def describe(self) -> dict[str, Any]:
        """Return the document of the hierarchy as plain dictionaries and lists; ``parse`` reads it back."""
        document: dict[str, Any] = {"attribute": self.attribute, "rows": self.rows()}
        if self.declared_losses is not None:
            document["losses"] = list(self.declared_losses)
        if self.names is not None:
            document["levels"] = [str(name) for name in self.names]  # YAML does not write an enum as text
        return document

    def dump(self) -> str:
        """Return the YAML document of the hierarchy."""
        return write_yaml(self.describe())

    @property
    def leaves(self) -> tuple[str, ...]:
        """The labels of the leaves, in order."""
        return self.levels[0].labels

    @property
    def height(self) -> int:
        """The number of generalization steps: one less than the number of levels."""
        return len(self.levels) - 1

    @property
    def level_names(self) -> tuple[str, ...]:
        """The names of the levels between leaves and top, finest first.

        Default: level_1, level_2, ...
        """
        return self.names or tuple(f"level_{number}" for number in range(1, self.height))

    def rows(self) -> list[list[str]]:
        """Return one row per leaf, with levels as columns, in the form that ``from_rows`` reads."""
        columns = [[level.labels[cell] for cell in level.cells] for level in self.levels]
        return [list(row) for row in zip(*columns, strict=True)]

    def with_losses(self, losses: Sequence[float]) -> Hierarchy:
        """Return the same cells with a declared loss per level.

        Raises:
            DomainError: the losses do not rise from 0 to 1, or their number is not the number of levels.
        """
        rising = all(low <= high for low, high in pairwise(losses))
        if len(losses) != len(self.levels) or losses[0] != 0 or losses[-1] != 1 or not rising:
            raise DomainError(f"the losses of {self.attribute!r} must rise from 0 to 1, one a level", culprit=losses)
        levels = (
            replace(level, losses=np.full(level.size, loss, dtype=np.float64))
            for level, loss in zip(self.levels, losses, strict=True)
        )
        return replace(self, levels=tuple(levels), declared_losses=tuple(map(float, losses)))

    def align(self, labels: Sequence[str]) -> Hierarchy:
        """Return the hierarchy over exactly these leaves, in this order, so that codes of a domain become cells.

        Leaves outside the domain are dropped; losses do not change.  If the hierarchy has no ``(missing)`` or
        ``(other)``, these labels are categories of their own below the top.

        Raises:
            DomainError: a label is no leaf.
        """
        position = {leaf: index for index, leaf in enumerate(self.leaves)}
        absent = [label for label in labels if label not in position and label not in EXTRA]
        if absent:
            values = "value" if len(absent) == 1 else "values"
            raise DomainError(
                f"the hierarchy of {self.attribute!r} misses {len(absent)} declared {values}, the first is"
                f" {absent[0]!r}; give each a row",
                culprit=absent,
            )
        leaves = np.array([position.get(label, len(position) + number) for number, label in enumerate(labels)])
        extra = tuple(label for label in labels if label not in position)
        levels = tuple(
            _restrict(level, leaves, extra if number < self.height else ()) for number, level in enumerate(self.levels)
        )
        return replace(self, levels=(_by_leaf(levels[0]), *levels[1:]))


def _restrict(level: Level, leaves: Integers, extra: tuple[str, ...]) -> Level:
    """Return the level over these leaves; an unknown leaf is a new cell, or the only cell if no cell may be new."""
    known = leaves < len(level.cells)
    cells = np.zeros(len(leaves), dtype=np.int64)
    cells[known] = level.cells[leaves[known]]
    if extra:
        cells[~known] = level.size + np.arange(np.count_nonzero(~known))
    used, dense = np.unique(cells, return_inverse=True)
    labels = (*level.labels, *extra)
    losses = np.append(level.losses, np.zeros(len(extra)))
    return Level(tuple(labels[cell] for cell in used), dense.astype(np.int64), losses[used])


def _by_leaf(level: Level) -> Level:
    """Return level 0 with leaves numbered by the domain, not by the hierarchy: the cell of a leaf is the leaf."""
    labels = tuple(level.labels[cell] for cell in level.cells)
    return Level(labels, np.arange(len(labels), dtype=np.int64), level.losses[level.cells])


def _losses(cells: Integers, size: int, number: int, height: int) -> Reals:
    if number == 0:
        return np.zeros(size)
    if number == height:
        return np.ones(size)
    covered = np.bincount(cells, minlength=size)
    result: Reals = (covered - 1) / max(len(cells) - 1, 1)
    return result


def _check_rows(attribute: str, rows: Sequence[Sequence[str]]) -> None:
    if not rows or not rows[0]:
        raise DomainError(f"the hierarchy of {attribute!r} is empty", culprit=attribute)
    for index, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise DomainError(
                f"row {index + 1} of the hierarchy of {attribute!r} has {len(row)} levels where the first has"
                f" {len(rows[0])}",
                culprit=row,
            )
        if not all(label.strip() for label in row):
            raise DomainError(f"row {index + 1} of the hierarchy of {attribute!r} has an empty label", culprit=row)
    leaves = [row[0] for row in rows]
    if len(set(leaves)) != len(leaves):
        twice = next(leaf for leaf in leaves if leaves.count(leaf) > 1)
        raise DomainError(f"the hierarchy of {attribute!r} gives the value {twice!r} twice", culprit=twice)
    tops = sorted({row[-1] for row in rows})
    if len(tops) > 1:
        raise DomainError(
            f"the hierarchy of {attribute!r} has {len(tops)} tops ({tops[0]!r}, {tops[1]!r}, ...); its last level must"
            " be one cell",
            culprit=tops,
        )


def _check_names(attribute: str, names: tuple[str, ...] | None, levels: int) -> None:
    if names is None:
        return
    if len(names) != levels:
        raise DomainError(
            f"the hierarchy of {attribute!r} has {levels} levels between values and top, and names {len(names)}",
            culprit=names,
        )
    if len({name.casefold() for name in names}) < len(names):
        raise DomainError(f"two levels of {attribute!r} have one name", culprit=names)
    for name in names:
        if not _NAME.fullmatch(name) or name.casefold() in TAKEN:
            raise DomainError(
                f"a level of {attribute!r} is named by letters, digits and _, like a function of SQL that is none, not"
                f" {name!r}",
                culprit=name,
            )


def _check_nesting(attribute: str, number: int, lower: Level, upper: Level) -> None:
    parent = np.empty(lower.size, dtype=np.int64)
    parent[lower.cells] = upper.cells
    strays = np.flatnonzero(parent[lower.cells] != upper.cells)
    if strays.size:
        label = lower.labels[int(lower.cells[strays[0]])]
        raise DomainError(
            f"the hierarchy of {attribute!r} does not nest: {label!r} of level {number} lies in two cells of"
            f" level {number + 1}",
            culprit=label,
        )


SUFFIXES = (".csv", ".yaml", ".yml", ".json")


def read_folder(folder: str | Path) -> dict[str, Hierarchy]:
    """Return all hierarchies of a folder, by attribute.

    Raises:
        DomainError: the folder cannot be read, a file is no hierarchy, or two are for one attribute.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DomainError(f"cannot read the hierarchies in {folder}: not a folder", culprit=folder)
    hierarchies: dict[str, Hierarchy] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix in SUFFIXES:
            hierarchy = Hierarchy.read(path)
            if hierarchy.attribute in hierarchies:
                raise DomainError(f"{folder} holds two hierarchies of {hierarchy.attribute!r}", culprit=path)
            hierarchies[hierarchy.attribute] = hierarchy
    return hierarchies


def _where(error: BaseException, text: str) -> str:
    """Return the unreadable line with its most frequent fault; empty if the reader names no line."""
    line = error.lineno if isinstance(error, json.JSONDecodeError) else None
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        line = error.problem_mark.line + 1
    lines = text.splitlines()
    if line is None or line > len(lines):
        return ""
    star = isinstance(error, yaml.YAMLError) and re.search(r"(^|[\s\[,-])\*", lines[line - 1])
    return f": line {line} cannot be read" + ("; the label * needs quotes, '*'" if star else "")


def _from_csv(text: str, attribute: str) -> Hierarchy:
    first = text.partition("\n")[0]
    delimiter = ";" if first.count(";") > first.count(",") else ","
    try:
        rows = [row for row in csv.reader(StringIO(text), delimiter=delimiter) if row]
    except csv.Error as error:
        raise DomainError(f"the hierarchy of {attribute!r} is no CSV: {error}", culprit=attribute) from None
    names = None
    if rows and rows[0] == [f"level_{number}" for number in range(len(rows[0]))]:
        rows = rows[1:]
    elif len(rows) > 1 and rows[0][0] == attribute:
        named, *rows = rows
        names = named[1:-1] if len({row[-1] for row in rows}) == 1 else named[1:]
    return Hierarchy.from_rows(attribute, rows, names=names)
