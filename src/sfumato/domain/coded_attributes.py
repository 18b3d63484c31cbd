"""Attributes of the rows that are derived of whole units: codes of others, cells in order, and classes of numbers."""

from __future__ import annotations

from dataclasses import replace

from sfumato.domain.attribute import Attribute, Categorical, Integer, Unknown

_EXACT = 8  # rows of a unit up to which each number of them has a weight of its own; beyond, a quarter more share one


def coded(attribute: Attribute, name: str, *, none: bool) -> Attribute:
    """An attribute with the cells of another, by their codes, and at the end a cell for "there is none".

    >>> from sfumato.domain import Real
    >>> coded(Real(name="dose", edges=(0.0, 1.0, 5.0), unknown=Unknown.CLAMP), "first.dose", none=True).labels()
    ('0', '1', '(missing)')
    """
    more = attribute.size - attribute.declared + none
    if isinstance(attribute, Categorical) or more > 2:  # noqa: PLR2004  (missing and other)
        labels = tuple(f"{code} {label}" for code, label in enumerate(attribute.labels()))
        return Categorical(name=name, values=(*labels, *(("none",) if none else ())), unknown=Unknown.DROP)
    return cells(name, attribute.declared, more)


def cells(name: str, declared: int, more: int) -> Attribute:
    """So many cells in order, and up to two more; with three the order goes, as nothing has so many."""
    if more > 2:  # noqa: PLR2004  (missing and other)
        return Categorical(name=name, values=tuple(map(str, range(declared + more))), unknown=Unknown.DROP)
    kept = Integer(name=name, minimum=0, maximum=declared - 1, unknown=Unknown.CLAMP)
    return replace(kept, nullable=more > 0, unknown=Unknown.CATEGORY if more > 1 else Unknown.CLAMP)


def weight_classes(most: int) -> tuple[int, ...]:
    """Numbers of rows of which each stands for itself and those between it and the one before: the greatest is the one
    that a weight is made of, so that rows of fewer weigh less together.

    >>> weight_classes(14)
    (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14)
    """
    found = [*range(1, min(most, _EXACT) + 1)]
    while found[-1] < most:
        found.append(min(found[-1] + found[-1] // 4, most))
    return tuple(found)
