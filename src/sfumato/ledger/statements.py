"""The statements of a write transaction, built once: building one costs more than running it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from sqlalchemy import BindParameter, Select, bindparam, insert, or_, select, update

from sfumato.ledger import schema

_dataset, _analyst, _entry = schema.dataset.c, schema.analyst.c, schema.entry.c
_answer, _retry = schema.answer.c, schema.retry.c
# parameter names that no column has: an UPDATE takes those of columns for new values
_OF_DATASET: BindParameter[str] = bindparam("of_dataset")
_OF_ANALYST: BindParameter[str] = bindparam("of_analyst")

LOCK_DATASET = (
    select(
        _dataset.secret,
        _dataset.limit_loss,
        _dataset.unit,
        _dataset.epsilon,
        _dataset.rho,
        _dataset.delta,
        _dataset.entries,
        _dataset.head,
    )
    .where(_dataset.name == _OF_DATASET)
    .with_for_update()
)
UPDATE_DATASET = (
    update(schema.dataset)
    .where(_dataset.name == _OF_DATASET)
    .values(
        {
            name: bindparam(name)
            for name in ("epsilon", "rho", "delta", "spent_units", "spent_delta_units", "entries", "head", "unit")
        }
    )
)
INSERT_ANALYST = insert(schema.analyst)
UPDATE_ANALYST = (
    update(schema.analyst)
    .where(_analyst.dataset == _OF_DATASET, _analyst.name == _OF_ANALYST)
    .values({column.name: bindparam(column.name) for column in _analyst if not column.primary_key})
)
INSERT_ENTRY = insert(schema.entry)
INSERT_RETRY = insert(schema.retry)
INSERT_ANSWER = insert(schema.answer)

# What follows looks for several things at once.  A statement is built for 1, 2, 4, 8, ... of them, and the last one
# is named again to fill the places that are left.


@lru_cache(maxsize=64)
def lock_analysts(width: int) -> Select[Any]:
    """Accounts of analysts, locked in the order of their names."""
    return (
        select(_analyst.name, _analyst.cap_loss, _analyst.epsilon, _analyst.rho, _analyst.delta)
        .where(_analyst.dataset == _OF_DATASET, _analyst.name.in_(_places("analyst", width)))
        .order_by(_analyst.name)
        .with_for_update()
    )


@lru_cache(maxsize=64)
def find_entries(width: int) -> Select[Any]:
    """Releases of some keys, their answers, what became of them, and which of some analysts each was shown to."""
    answered = schema.entry.outerjoin(
        schema.answer, (_answer.dataset == _entry.dataset) & (_answer.number == _entry.number)
    )
    return (
        select(_entry.key, _entry.kind, _entry.number, _entry.hash, _entry.analyst, _answer.body)
        .select_from(answered)
        .where(
            _entry.dataset == _OF_DATASET,
            _entry.key.in_(_places("key", width)),
            or_(_entry.kind != bindparam("of_kind"), _entry.analyst.in_(_places("analyst", width))),
        )
        .order_by(_entry.number)
    )


@lru_cache(maxsize=64)
def find_retries(width: int) -> Select[Any]:
    """What retry keys stand for, by analyst."""
    return select(_retry.analyst, _retry.retry_key, _retry.key).where(
        _retry.dataset == _OF_DATASET,
        _retry.analyst.in_(_places("analyst", width)),
        _retry.retry_key.in_(_places("retry_key", width)),
    )


def width_for(*things: Collection[object]) -> int:
    """The width of a statement that has places for all of each.

    >>> width_for("a", "abc"), width_for("a"), width_for("")
    (4, 1, 1)
    """
    return 1 << max(max(map(len, things)) - 1, 0).bit_length()


def filled(name: str, things: Collection[Any], width: int) -> Mapping[str, Any]:
    """Values for the places; for no things, an empty text, which is no name of anything.

    >>> filled("key", ["a", "b", "c"], 4)
    {'key_0': 'a', 'key_1': 'b', 'key_2': 'c', 'key_3': 'c'}
    """
    ordered = sorted(things) or [""]
    return {f"{name}_{place}": ordered[min(place, len(ordered) - 1)] for place in range(width)}


def _places(name: str, width: int) -> list[BindParameter[Any]]:
    return [bindparam(f"{name}_{place}") for place in range(width)]
