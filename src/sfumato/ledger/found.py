"""What the database holds of the things that a group of writers asks about, fetched in a few statements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sfumato.ledger import statements as sql
from sfumato.ledger.account import Account
from sfumato.ledger.amounts import charge_from, loss_from
from sfumato.ledger.driver import Driver
from sfumato.ledger.entry import Kind
from sfumato.privacy.accountant import NOTHING


@dataclass(frozen=True)
class Wanted:
    """What a piece of work will look at: keys of releases, analysts, retry keys by analyst."""

    keys: frozenset[str] = frozenset()
    analysts: frozenset[str] = frozenset()
    retries: frozenset[tuple[str, str]] = frozenset()


def together(parts: Iterable[Wanted]) -> Wanted:
    """What several pieces of work will look at."""
    each = list(parts)
    return Wanted(
        keys=frozenset().union(*(part.keys for part in each)),
        analysts=frozenset().union(*(part.analysts for part in each)),
        retries=frozenset().union(*(part.retries for part in each)),
    )


@dataclass(frozen=True)
class Stored:
    """A release in the journal that was not closed as failed.

    Attributes:
        number: of its entry.
        hash: of its entry.
        answer: None while it is pending.
        retried: whether it was computed again after a process that computed it had died.
    """

    number: int
    hash: str
    answer: bytes | None
    retried: bool


@dataclass(frozen=True)
class Found:
    """What was there, with an entry for each thing that was wanted: looking for another one is an error.

    Attributes:
        analysts: accounts by name, locked; a new one is empty and has no cap.
        known: the analysts who have an account already.
        releases: the latest by key; None: there is none, or it failed.
        shown: keys of these releases that an analyst has paid for, with the analyst.
        retries: key of the release that a retry key stands for, by analyst and retry key, or None.
    """

    analysts: dict[str, Account]
    known: frozenset[str]
    releases: dict[str, Stored | None]
    shown: set[tuple[str, str]]
    retries: dict[tuple[str, str], str | None]


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


def _entries(driver: Driver, dataset: str, wanted: Wanted) -> tuple[dict[str, Stored], set[tuple[str, str]]]:
    if not wanted.keys:
        return {}, set()
    width = sql.width_for(wanted.keys, wanted.analysts)
    values = {
        "of_dataset": dataset,
        "of_kind": Kind.REPEAT.value,
        **sql.filled("key", wanted.keys, width),
        **sql.filled("analyst", wanted.analysts, width),
    }
    releases: dict[str, Stored] = {}
    shown: set[tuple[str, str]] = set()
    for key, kind, number, hash_, analyst, body in driver.rows(sql.find_entries(width), values):
        match kind:
            case Kind.RELEASE:
                releases[key] = Stored(number, hash_, body, retried=False)
            case Kind.RETRY:
                releases[key] = replace(releases[key], retried=True)
            case Kind.FAILED:
                del releases[key]
                shown = {(other, who) for other, who in shown if other != key}
        if analyst is not None and kind in (Kind.RELEASE, Kind.REPEAT):
            shown.add((key, analyst))
    return releases, shown


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
