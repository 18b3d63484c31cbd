"""What the database holds of the things that a group of writers asks about, fetched in a few statements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sfumato.ledger import statements as sql
from sfumato.ledger.account import Account
from sfumato.ledger.amounts import charge_from, loss_from
from sfumato.ledger.driver import Driver
from sfumato.ledger.entry import Kind
from sfumato.privacy.accountant import NOTHING


@dataclass(frozen=True)
class Wanted:
    """What a piece of work will look at: keys of releases, analysts, retry keys by analyst, numbers of entries."""

    keys: frozenset[str] = frozenset()
    analysts: frozenset[str] = frozenset()
    retries: frozenset[tuple[str, str]] = frozenset()
    numbers: frozenset[int] = frozenset()


def together(parts: Iterable[Wanted]) -> Wanted:
    """What several pieces of work will look at."""
    each = list(parts)
    return Wanted(
        keys=frozenset().union(*(part.keys for part in each)),
        analysts=frozenset().union(*(part.analysts for part in each)),
        retries=frozenset().union(*(part.retries for part in each)),
        numbers=frozenset().union(*(part.numbers for part in each)),
    )


@dataclass(frozen=True)
class Found:
    """What was there, with an entry for each thing that was wanted: looking for another one is an error.

    Attributes:
        analysts: accounts by name, locked; a new one is empty and has no cap.
        known: the analysts who have an account already.
        releases: number and stored answer by key, the answer None while it is pending; None: no such release.
        shown: keys of releases that an analyst has paid for, with the analyst.
        retries: key of the release that a retry key stands for, by analyst and retry key, or None.
        answers: stored answers by number, or None.
    """

    analysts: dict[str, Account]
    known: frozenset[str]
    releases: dict[str, tuple[int, bytes | None] | None]
    shown: set[tuple[str, str]]
    retries: dict[tuple[str, str], str | None]
    answers: dict[int, bytes | None]


def fetch(driver: Driver, dataset: str, wanted: Wanted) -> Found:
    """Fetch what is wanted; the dataset's row is locked already."""
    analysts = _analysts(driver, dataset, wanted.analysts)
    releases, shown = _entries(driver, dataset, wanted)
    return Found(
        analysts=dict.fromkeys(wanted.analysts, Account(None, NOTHING)) | analysts,
        known=frozenset(analysts),
        releases=dict.fromkeys(wanted.keys) | releases,
        shown=shown,
        retries=dict.fromkeys(wanted.retries) | _retries(driver, dataset, wanted.retries),
        answers=dict.fromkeys(wanted.numbers) | _answers(driver, dataset, wanted.numbers),
    )


def _analysts(driver: Driver, dataset: str, names: frozenset[str]) -> dict[str, Account]:
    if not names:
        return {}
    width = sql.width_for(names)
    values = {"of_dataset": dataset, **sql.filled("analyst", names, width)}
    return {
        name: Account(None if cap is None else loss_from(cap), charge_from(*spent))
        for name, cap, *spent in driver.rows(sql.lock_analysts(width), values)
    }


def _entries(
    driver: Driver, dataset: str, wanted: Wanted
) -> tuple[dict[str, tuple[int, bytes | None]], set[tuple[str, str]]]:
    if not wanted.keys:
        return {}, set()
    width = sql.width_for(wanted.keys, wanted.analysts)
    values = {
        "of_dataset": dataset,
        "of_kind": Kind.RELEASE.value,
        **sql.filled("key", wanted.keys, width),
        **sql.filled("analyst", wanted.analysts, width),
    }
    rows = driver.rows(sql.find_entries(width), values)
    releases = {key: (number, body) for key, kind, number, _, body in rows if kind == Kind.RELEASE.value}
    return releases, {(key, analyst) for key, _, _, analyst, _ in rows if analyst is not None}


def _retries(driver: Driver, dataset: str, retries: frozenset[tuple[str, str]]) -> dict[tuple[str, str], str]:
    if not retries:
        return {}
    width = sql.width_for(retries)
    analysts, retry_keys = ({pair[place] for pair in retries} for place in (0, 1))
    values = {
        "of_dataset": dataset,
        **sql.filled("analyst", analysts, width),
        **sql.filled("retry_key", retry_keys, width),
    }
    return {(analyst, retry_key): key for analyst, retry_key, key in driver.rows(sql.find_retries(width), values)}


def _answers(driver: Driver, dataset: str, numbers: frozenset[int]) -> dict[int, bytes]:
    if not numbers:
        return {}
    width = sql.width_for(numbers)
    values = {"of_dataset": dataset, **sql.filled("number", numbers, width)}
    return {number: body for number, body in driver.rows(sql.find_answers(width), values)}  # noqa: C416  (typed)
