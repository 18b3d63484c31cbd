"""A recoding as a value that can be saved and applied again: which cell each code becomes, which classes are kept.

A recoding holds what the released table shows anyway (cells and which of their combinations occur), and
nothing about single rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sfumato.anonymize.clustering.space import Partition
from sfumato.anonymize.microdata import Microdata
from sfumato.anonymize.tuple_keys import Integers, Reals
from sfumato.engine.port import Recode
from sfumato.errors import InputError
from sfumato.strict_json import read_json

VERSION = 1


@dataclass(frozen=True, eq=False)
class FullDomainRecoding:
    """Every code of an attribute becomes one cell, whatever the others are.

    ``leaves[a]`` are the labels of the codes, ``cells[a]`` the cell of each code, ``labels[a]`` and ``losses[a]``
    the names and losses of cells; ``kept`` the classes that are published, as cells, shape ``(classes, quasi)``.
    """

    quasi: tuple[str, ...]
    criteria: tuple[str, ...]
    leaves: tuple[tuple[str, ...], ...]
    cells: tuple[Integers, ...]
    labels: tuple[tuple[str, ...], ...]
    losses: tuple[Reals, ...]
    kept: Integers

    def describe(self) -> dict[str, Any]:
        """The document that ``parse_recoding`` reads."""
        return {
            "sfumato_recoding": VERSION,
            "kind": "full-domain",
            "criteria": list(self.criteria),
            "attributes": [
                {
                    "name": name,
                    "leaves": list(self.leaves[place]),
                    "cells": self.cells[place].tolist(),
                    "labels": list(self.labels[place]),
                    "losses": self.losses[place].tolist(),
                }
                for place, name in enumerate(self.quasi)
            ],
            "kept": self.kept.tolist(),
        }


@dataclass(frozen=True, eq=False)
class LocalRecoding:
    """Classes are boxes of ranks, and may overlap.

    ``leaves[a]`` are the labels of the codes, ``ranks[a]`` their ranks, -1 for those that are left out; ``low`` and
    ``high`` the boxes, each of shape ``(classes, quasi)``; ``names[class]`` what its rows are published with,
    ``losses`` the losses of its cells, same shape.
    """

    quasi: tuple[str, ...]
    criteria: tuple[str, ...]
    leaves: tuple[tuple[str, ...], ...]
    ranks: tuple[Integers, ...]
    low: Integers
    high: Integers
    names: tuple[tuple[str, ...], ...]
    losses: Reals

    def describe(self) -> dict[str, Any]:
        """The document that ``parse_recoding`` reads."""
        return {
            "sfumato_recoding": VERSION,
            "kind": "local",
            "criteria": list(self.criteria),
            "attributes": [
                {"name": name, "leaves": list(leaves), "ranks": ranks.tolist()}
                for name, leaves, ranks in zip(self.quasi, self.leaves, self.ranks, strict=True)
            ],
            "low": self.low.tolist(),
            "high": self.high.tolist(),
            "names": [list(names) for names in self.names],
            "losses": self.losses.tolist(),
        }


Recoding = FullDomainRecoding | LocalRecoding


def dumps(recoding: Recoding) -> str:
    """The JSON text of a recoding."""
    return json.dumps(recoding.describe(), ensure_ascii=False, separators=(",", ":")) + "\n"


def load_recoding(path: str | Path) -> Recoding:
    """Read a saved recoding.

    Raises:
        InputError: the file cannot be read or is no recoding.
    """
    try:
        document = read_json(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, InputError):
        raise InputError(f"cannot read {path} as the JSON file of a recoding", culprit=path) from None
    return parse_recoding(document)


def parse_recoding(document: object) -> Recoding:
    """The recoding of a document.

    Raises:
        InputError: the document is no recoding, or one of another version.
    """
    if not isinstance(document, Mapping) or document.get("sfumato_recoding") != VERSION:
        raise InputError(f"this is no recoding of version {VERSION}", culprit=document)
    try:
        recoding = _READERS[document["kind"]](document)
        _check(bool(recoding.quasi) and bool(recoding.criteria))
        return recoding  # noqa: TRY300 - what is checked is refused in the same words
    except (KeyError, TypeError, ValueError, IndexError, OverflowError):
        raise InputError("the recoding is damaged: save it again", culprit=document) from None


def _full_domain(document: Mapping[str, Any]) -> FullDomainRecoding:
    attributes = document["attributes"]
    recoding = FullDomainRecoding(
        quasi=_texts(attribute["name"] for attribute in attributes),
        criteria=_texts(document["criteria"]),
        leaves=tuple(_texts(attribute["leaves"]) for attribute in attributes),
        cells=tuple(np.array(attribute["cells"], dtype=np.int64) for attribute in attributes),
        labels=tuple(_texts(attribute["labels"]) for attribute in attributes),
        losses=tuple(np.array(attribute["losses"], dtype=np.float64) for attribute in attributes),
        kept=np.array(document["kept"], dtype=np.int64).reshape(-1, len(attributes)),
    )
    for place, kept in enumerate(recoding.kept.T):
        cells, labels = recoding.cells[place], recoding.labels[place]
        _check(len(cells) == len(recoding.leaves[place]) and len(labels) == len(recoding.losses[place]))
        _check(_below(cells, len(labels)) and _below(kept, len(labels)))
    return recoding


def _local(document: Mapping[str, Any]) -> LocalRecoding:
    attributes = document["attributes"]
    recoding = LocalRecoding(
        quasi=_texts(attribute["name"] for attribute in attributes),
        criteria=_texts(document["criteria"]),
        leaves=tuple(_texts(attribute["leaves"]) for attribute in attributes),
        ranks=tuple(np.array(attribute["ranks"], dtype=np.int64) for attribute in attributes),
        low=np.array(document["low"], dtype=np.int64).reshape(-1, len(attributes)),
        high=np.array(document["high"], dtype=np.int64).reshape(-1, len(attributes)),
        names=tuple(_texts(names) for names in document["names"]),
        losses=np.array(document["losses"], dtype=np.float64).reshape(-1, len(attributes)),
    )
    shape = (len(recoding.names), len(attributes))
    _check(recoding.low.shape == recoding.high.shape == recoding.losses.shape == shape)
    _check(all(len(names) == len(attributes) for names in recoding.names))
    _check(all(len(ranks) == len(leaves) for ranks, leaves in zip(recoding.ranks, recoding.leaves, strict=True)))
    return recoding


_READERS: Mapping[str, Callable[[Mapping[str, Any]], Recoding]] = {"full-domain": _full_domain, "local": _local}


def _texts(values: Any) -> tuple[str, ...]:  # noqa: ANN401  (parsed JSON)
    found = tuple(values)
    _check(all(isinstance(value, str) for value in found))
    return found


def _below(values: Integers, limit: int) -> bool:
    return bool(np.all((values >= 0) & (values < limit)))


def _check(right: bool) -> None:  # noqa: FBT001
    if not right:
        raise ValueError


def codes_as_saved(recoding: Recoding, labels: Sequence[Sequence[str]]) -> tuple[Integers, ...]:
    """For each attribute, the recoding's code of each code of a table whose codes have these labels.

    Raises:
        InputError: a label that the recoding does not know.
    """
    result = []
    for name, saved, here in zip(recoding.quasi, recoding.leaves, labels, strict=True):
        position = {leaf: code for code, leaf in enumerate(saved)}
        strangers = [label for label in here if label not in position]
        if strangers:
            raise InputError(
                f"the recoding does not know the value {strangers[0]!r} that the domain declares for {name!r}",
                culprit=strangers,
            )
        result.append(np.array([position[label] for label in here], dtype=np.int64))
    return tuple(result)


def of_full_domain(recoding: FullDomainRecoding, labels: Sequence[Sequence[str]]) -> Recode:
    """Level maps and kept classes, over a table whose codes have these labels."""
    saved = codes_as_saved(recoding, labels)
    return Recode(
        attributes=recoding.quasi,
        levels=tuple(cells[codes].astype(np.uint32) for cells, codes in zip(recoding.cells, saved, strict=True)),
        classes=recoding.kept.astype(np.uint32),
        labels=_table(
            recoding.quasi,
            [[names[cell] for cell in column] for names, column in zip(recoding.labels, recoding.kept.T, strict=True)],
        ),
    )


def of_partition(data: Microdata, partition: Partition, names: Sequence[Sequence[str]], sizes: Sequence[int]) -> Recode:
    """Every tuple as it is, with the classes that its rows are dealt to and how many go to each.

    Args:
        data: the table.
        partition: its rows, divided.
        names: what each class is published with, one label an attribute.
        sizes: number of codes of each attribute.
    """
    columns = list(zip(*names, strict=True))
    whole = bool(np.all(np.bincount(partition.tuples, minlength=len(data.counts)) <= 1))
    return Recode(
        attributes=data.quasi,
        levels=tuple(np.arange(size, dtype=np.uint32) for size in sizes),
        classes=data.codes[partition.tuples].astype(np.uint32),
        labels=_table(data.quasi, [[column[number] for number in partition.classes] for column in columns]),
        rows=None if whole else partition.rows,
    )


def for_new_rows(recoding: LocalRecoding, data: Microdata, labels: Sequence[Sequence[str]]) -> tuple[Recode, Integers]:
    """Each tuple of another table goes to the smallest class whose box holds it; others to none.

    Returns the rewriting, and the class that each of its listed tuples goes to.
    """
    saved = codes_as_saved(recoding, labels)
    points = np.stack(
        [ranks[codes[column]] for ranks, codes, column in zip(recoding.ranks, saved, data.codes.T, strict=True)], axis=1
    )
    volume = np.prod(1.0 + recoding.high - recoding.low, axis=1)
    order = np.argsort(volume, kind="stable")
    chosen = np.full(len(points), -1)
    for number in order:
        inside = ((points >= recoding.low[number]) & (points <= recoding.high[number])).all(axis=1)
        chosen[inside & (chosen < 0)] = number
    held = np.flatnonzero(chosen >= 0)
    recode = Recode(
        attributes=data.quasi,
        levels=tuple(np.arange(len(here), dtype=np.uint32) for here in labels),
        classes=data.codes[held].astype(np.uint32),
        labels=_table(
            data.quasi,
            [[recoding.names[number][attribute] for number in chosen[held]] for attribute in range(len(data.quasi))],
        ),
    )
    return recode, chosen[held]


def _table(quasi: Sequence[str], columns: Sequence[Sequence[str]]) -> pa.Table:
    return pa.table({name: pa.array(column, pa.string()) for name, column in zip(quasi, columns, strict=True)})
