"""A recoding that can be saved and applied to other rows: the cell of each code, and the published classes.

A recoding contains only what the released table shows: cells, and the combinations that occur. It has nothing about
single rows.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from sfumato.anonymize.clustering.space import Partition
from sfumato.anonymize.microdata import Microdata
from sfumato.domain.hierarchy.levels import Integers, Reals
from sfumato.engine.port import Recode
from sfumato.errors import InputError
from sfumato.strict_documents import read_json

VERSION = 1
_ROUNDING = 1e-9  # tolerance for sums of losses in floating point


@dataclass(frozen=True, eq=False)
class Recoding(ABC):
    """A recoding: quasi-identifiers, criteria as text, and ``leaves[a]``, the labels of the codes."""

    quasi: tuple[str, ...]
    criteria: tuple[str, ...]
    leaves: tuple[tuple[str, ...], ...]

    kind: ClassVar[str]

    @classmethod
    @abstractmethod
    def from_document(cls, document: Mapping[str, Any], common: Common) -> Recoding:
        """Read a recoding from the document of ``describe``.

        Raises:
            ValueError, KeyError, TypeError, IndexError, OverflowError: the document is damaged.
        """

    @abstractmethod
    def rewriting(self, data: Microdata, labels: Sequence[Sequence[str]]) -> tuple[Recode, Reals]:
        """Return the rewrite of a table's rows for the engine, and the losses of each listed class.

        Args:
            data: the counted table.
            labels: labels of the codes of its quasi-identifiers.

        Raises:
            InputError: the recoding lacks a label.
        """

    @abstractmethod
    def _attribute(self, place: int) -> dict[str, Any]: ...

    @abstractmethod
    def _classes(self) -> dict[str, Any]: ...

    def describe(self) -> dict[str, Any]:
        """Return the document that ``parse_recoding`` reads."""
        attributes = [
            {"name": name, "leaves": list(self.leaves[place]), **self._attribute(place)}
            for place, name in enumerate(self.quasi)
        ]
        start = {"sfumato_recoding": VERSION, "kind": self.kind, "criteria": list(self.criteria)}
        return {**start, "attributes": attributes, **self._classes()}

    def dumps(self) -> str:
        """Return the JSON text of the document."""
        return json.dumps(self.describe(), ensure_ascii=False, separators=(",", ":")) + "\n"

    def codes_as_saved(self, labels: Sequence[Sequence[str]]) -> tuple[Integers, ...]:
        """Return, for each attribute, the recoding's code of each label of a table.

        Raises:
            InputError: the recoding lacks a label.
        """
        result = []
        for name, saved, here in zip(self.quasi, self.leaves, labels, strict=True):
            position = {leaf: code for code, leaf in enumerate(saved)}
            strangers = [label for label in here if label not in position]
            if strangers:
                raise InputError(
                    f"the recoding does not know the value {strangers[0]!r} that the domain declares for {name!r}",
                    culprit=strangers,
                )
            result.append(np.array([position[label] for label in here], dtype=np.int64))
        return tuple(result)


@dataclass(frozen=True, eq=False)
class FullDomainRecoding(Recoding):
    """A recoding that maps every code of an attribute to one cell, independently of other attributes.

    ``cells[a]`` is the cell of each code; ``labels[a]`` and ``losses[a]`` are the names and losses of cells.
    ``published`` has the published classes as cells, shape ``(classes, quasi)``.
    """

    cells: tuple[Integers, ...]
    labels: tuple[tuple[str, ...], ...]
    losses: tuple[Reals, ...]
    published: Integers

    kind: ClassVar[str] = "full-domain"

    @classmethod
    def from_document(cls, document: Mapping[str, Any], common: Common) -> FullDomainRecoding:
        """Read a recoding from the document of ``describe``."""
        attributes = document["attributes"]
        recoding = cls(
            *common,
            cells=tuple(np.array(attribute["cells"], dtype=np.int64) for attribute in attributes),
            labels=tuple(_texts(attribute["labels"]) for attribute in attributes),
            losses=tuple(_losses(attribute["losses"]) for attribute in attributes),
            published=np.array(document["kept"], dtype=np.int64).reshape(-1, len(attributes)),
        )
        for place, published in enumerate(recoding.published.T):
            cells, labels = recoding.cells[place], recoding.labels[place]
            _check(len(cells) == len(recoding.leaves[place]) and len(labels) == len(recoding.losses[place]))
            _check(_below(cells, len(labels)) and _below(published, len(labels)))
        return recoding

    def rewriting(self, data: Microdata, labels: Sequence[Sequence[str]]) -> tuple[Recode, Reals]:  # noqa: ARG002
        """Return the level maps and published classes, independently of the table."""
        losses = [cells[published] for cells, published in zip(self.losses, self.published.T, strict=True)]
        return self.recode(labels), np.stack(losses, axis=1)

    def recode(self, labels: Sequence[Sequence[str]]) -> Recode:
        """Return the level maps and published classes for a table whose codes have the given labels.

        Raises:
            InputError: the recoding lacks a label.
        """
        saved = self.codes_as_saved(labels)
        columns = [
            [names[cell] for cell in published] for names, published in zip(self.labels, self.published.T, strict=True)
        ]
        return Recode(
            attributes=self.quasi,
            levels=tuple(cells[codes].astype(np.uint32) for cells, codes in zip(self.cells, saved, strict=True)),
            classes=self.published.astype(np.uint32),
            labels=_table(self.quasi, columns),
        )

    def _attribute(self, place: int) -> dict[str, Any]:
        cells, losses = self.cells[place].tolist(), self.losses[place].tolist()
        return {"cells": cells, "labels": list(self.labels[place]), "losses": losses}

    def _classes(self) -> dict[str, Any]:
        return {"kept": self.published.tolist()}


@dataclass(frozen=True, eq=False)
class LocalRecoding(Recoding):
    """A recoding whose classes are boxes of ranks, and may overlap.

    ``ranks[a]`` are the ranks of the codes, -1 for codes that are suppressed. ``low`` and ``high`` are the boxes, each
    of shape ``(classes, quasi)``. ``names[class]`` are the published labels of its rows, and ``losses`` the losses of
    its cells, in the same shape.
    """

    ranks: tuple[Integers, ...]
    low: Integers
    high: Integers
    names: tuple[tuple[str, ...], ...]
    losses: Reals

    kind: ClassVar[str] = "local"

    @classmethod
    def from_document(cls, document: Mapping[str, Any], common: Common) -> LocalRecoding:
        """Read a recoding from the document of ``describe``."""
        attributes = document["attributes"]
        recoding = cls(
            *common,
            ranks=tuple(np.array(attribute["ranks"], dtype=np.int64) for attribute in attributes),
            low=np.array(document["low"], dtype=np.int64).reshape(-1, len(attributes)),
            high=np.array(document["high"], dtype=np.int64).reshape(-1, len(attributes)),
            names=tuple(_texts(names) for names in document["names"]),
            losses=_losses(document["losses"]).reshape(-1, len(attributes)),
        )
        shape = (len(recoding.names), len(attributes))
        _check(recoding.low.shape == recoding.high.shape == recoding.losses.shape == shape)
        _check(bool(np.all(recoding.low <= recoding.high)))
        _check(all(len(names) == len(attributes) for names in recoding.names))
        _check(all(len(ranks) == len(leaves) for ranks, leaves in zip(recoding.ranks, recoding.leaves, strict=True)))
        return recoding

    def rewriting(self, data: Microdata, labels: Sequence[Sequence[str]]) -> tuple[Recode, Reals]:
        """Assign each tuple to the smallest class whose box contains it, or to none."""
        saved = self.codes_as_saved(labels)
        columns = zip(self.ranks, saved, data.codes.T, strict=True)
        points = np.stack([ranks[codes[column]] for ranks, codes, column in columns], axis=1)
        volume = np.prod(1.0 + self.high - self.low, axis=1)
        chosen = np.full(len(points), -1)
        for number in np.argsort(volume, kind="stable"):
            inside = ((points >= self.low[number]) & (points <= self.high[number])).all(axis=1)
            chosen[inside & (chosen < 0)] = number
        held = np.flatnonzero(chosen >= 0)
        names = [[self.names[number][place] for number in chosen[held]] for place in range(len(self.quasi))]
        recode = Recode(
            attributes=self.quasi,
            levels=tuple(np.arange(len(here), dtype=np.uint32) for here in labels),
            classes=data.codes[held].astype(np.uint32),
            labels=_table(self.quasi, names),
        )
        return recode, self.losses[chosen[held]]

    def _attribute(self, place: int) -> dict[str, Any]:
        return {"ranks": self.ranks[place].tolist()}

    def _classes(self) -> dict[str, Any]:
        boxes = {"low": self.low.tolist(), "high": self.high.tolist()}
        return {**boxes, "names": [list(names) for names in self.names], "losses": self.losses.tolist()}


Common = tuple[tuple[str, ...], tuple[str, ...], tuple[tuple[str, ...], ...]]  # quasi, criteria, leaves
KINDS: Mapping[str, type[Recoding]] = {kind.kind: kind for kind in (FullDomainRecoding, LocalRecoding)}


def load_recoding(path: str | Path) -> Recoding:
    """Read a saved recoding.

    Raises:
        InputError: the file cannot be read or contains no recoding.
    """
    try:
        document = read_json(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, InputError):
        raise InputError(f"cannot read {path} as the JSON file of a recoding", culprit=path) from None
    return parse_recoding(document)


def parse_recoding(document: object) -> Recoding:
    """Read a recoding from a parsed document.

    Raises:
        InputError: the document is no recoding, or has another version.
    """
    if not isinstance(document, Mapping) or document.get("sfumato_recoding") != VERSION:
        raise InputError(f"this is no recoding of version {VERSION}", culprit=document)
    try:
        attributes = document["attributes"]
        quasi, criteria = _texts(attribute["name"] for attribute in attributes), _texts(document["criteria"])
        _check(bool(quasi) and bool(criteria))
        leaves = tuple(_texts(attribute["leaves"]) for attribute in attributes)
        return KINDS[document["kind"]].from_document(document, (quasi, criteria, leaves))
    except (KeyError, TypeError, ValueError, IndexError, OverflowError):
        raise InputError("the recoding is damaged: save it again", culprit=document) from None


def of_partition(data: Microdata, partition: Partition, names: Sequence[Sequence[str]], sizes: Sequence[int]) -> Recode:
    """Return the rewrite that publishes every tuple with the labels of its classes.

    Args:
        data: the table.
        partition: the classes of its rows.
        names: the published labels of each class, one per attribute.
        sizes: number of codes of each attribute.
    """
    columns = list(zip(*names, strict=True))
    undealt = bool(np.all(np.bincount(partition.tuples, minlength=len(data.counts)) <= 1))
    return Recode(
        attributes=data.quasi,
        levels=tuple(np.arange(size, dtype=np.uint32) for size in sizes),
        classes=data.codes[partition.tuples].astype(np.uint32),
        labels=_table(data.quasi, [[column[number] for number in partition.classes] for column in columns]),
        rows=None if undealt else partition.rows,
    )


def _texts(values: Any) -> tuple[str, ...]:  # noqa: ANN401  (parsed JSON)
    _check(not isinstance(values, str))
    texts = tuple(values)
    _check(all(isinstance(value, str) for value in texts))
    return texts


def _losses(values: Any) -> Reals:  # noqa: ANN401  (parsed JSON)
    """Read the losses of cells, each between 0 and 1."""
    losses = np.array(values, dtype=np.float64)
    _check(bool(np.all((losses >= 0) & (losses <= 1 + _ROUNDING))))
    return losses


def _below(values: Integers, limit: int) -> bool:
    return bool(np.all((values >= 0) & (values < limit)))


def _check(right: bool) -> None:  # noqa: FBT001
    if not right:
        raise ValueError


def _table(quasi: Sequence[str], columns: Sequence[Sequence[str]]) -> pa.Table:
    return pa.table({name: pa.array(column, pa.string()) for name, column in zip(quasi, columns, strict=True)})
