"""Structural zeros: cells that no row can be in, by the meaning of the attributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from sfumato.arguments import expect_all
from sfumato.domain import Domain
from sfumato.errors import QueryError
from sfumato.model.factor import Factor
from sfumato.model.graphical_model import GraphicalModel
from sfumato.model.junction_tree import refuse_larger

_MOST_CELLS = 1 << 24  # of one table of zeros, 16 MiB


@dataclass(frozen=True, eq=False)
class Zeros:
    """Cells that no row can be in, by the meaning of the attributes: ``impossible`` has one axis an attribute.

    Public knowledge, never read off the protected table.
    """

    attributes: tuple[str, ...]
    impossible: NDArray[np.bool_]


def load_zeros(path: str | Path, domain: Domain) -> tuple[Zeros, ...]:
    """Read structural zeros from a YAML file: a list of ``{attributes: [...], impossible: [[label, ...], ...]}``.

    An impossible combination names one label of each attribute, as ``sfumato domain show --cells`` lists them, or a
    list of labels, any of which makes the combination impossible.

    Raises:
        QueryError: the file is missing or does not say that, or a label is none of its attribute's.
        DomainError: an attribute that the domain does not have.
    """
    try:
        tables = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=yaml.BaseLoader)  # noqa: S506  (texts alone)
    except (OSError, yaml.YAMLError, ValueError, RecursionError):
        tables = None
    if not isinstance(tables, list) or not tables or not all(_is_table(table) for table in tables):
        raise QueryError(  # nothing of the file is quoted: it may be the protected table by mistake
            f"{path} does not read as structural zeros: a YAML list of {{attributes: [a, b], impossible: [[label, "
            "label], ...]}",
            culprit=path,
        )
    return tuple(_table(table["attributes"], table["impossible"], domain) for table in tables)


def describe_zeros(zeros: Sequence[Zeros]) -> list[Any]:
    """Structural zeros as JSON values, for the journal."""
    return [[list(zero.attributes), np.flatnonzero(zero.impossible).tolist()] for zero in zeros]


def refuse_impossible(zeros: Sequence[Zeros], domain: Domain, cap: int) -> None:
    """Refuse structural zeros that do not fit the domain, or that inference over ``cap`` cells cannot hold.

    Raises:
        DomainError: an attribute that the domain does not have, or one named twice in a table.
        QueryError: a table that is not boolean with one axis an attribute.
        SizeError: inference over the zeros alone takes more cells.
        InfeasibleError: no cell is left possible.
    """
    expect_all(zeros, Zeros, "structural zeros are a list of Zeros(attributes, impossible)")
    for zero in zeros:
        if not isinstance(zero.attributes, tuple):
            raise QueryError("the attributes of structural zeros are a tuple of names", culprit=zero.attributes)
        shape = domain.project(zero.attributes).shape
        cells = zero.impossible
        if not isinstance(cells, np.ndarray) or cells.dtype != np.bool_ or cells.shape != shape:
            raise QueryError(
                f"the impossible cells of {', '.join(zero.attributes)} must be an array of booleans of shape {shape}",
                culprit=zero.attributes,
            )
    names = {name for zero in zeros for name in zero.attributes}
    sizes = {attribute.name: attribute.size for attribute in domain if attribute.name in names}
    cliques = [zero.attributes for zero in zeros]
    refuse_larger(cliques, sizes, max(cap, sum(sizes.values())))
    _ = barred(GraphicalModel.uniform(sizes, cliques, 1.0), zeros).beliefs


def barred(model: GraphicalModel, zeros: Sequence[Zeros]) -> GraphicalModel:
    """The model in which the impossible cells have no probability."""
    for zero in zeros:
        model = model.times(Factor(zero.attributes, np.where(zero.impossible, -np.inf, 0.0)))
    return model


def _is_table(table: object) -> bool:
    return (
        isinstance(table, dict)
        and set(table) == {"attributes", "impossible"}
        and all(isinstance(part, list) and part for part in table.values())
        and all(isinstance(name, str) for name in table["attributes"])
        and all(isinstance(cell, list) and len(cell) == len(table["attributes"]) for cell in table["impossible"])
    )


def _table(names: list[str], combinations: list[list[Any]], domain: Domain) -> Zeros:
    projected = domain.project(names)
    refuse_larger([tuple(names)], dict(zip(names, projected.shape, strict=True)), _MOST_CELLS)
    labels = [{label: code for code, label in enumerate(attribute.labels())} for attribute in projected]
    impossible = np.zeros(projected.shape, dtype=np.bool_)
    for combination in combinations:
        codes = [
            [_code(found, label, name) for label in (part if isinstance(part, list) else [part])]
            for name, found, part in zip(names, labels, combination, strict=True)
        ]
        for cell in product(*codes):
            impossible[cell] = True
    return Zeros(tuple(names), impossible)


def _code(labels: dict[str, int], label: object, name: str) -> int:
    if not isinstance(label, str) or label not in labels:
        raise QueryError(f"{name} has no cell {label!r}; 'sfumato domain show DOMAIN --cells {name}' lists them")
    return labels[label]
