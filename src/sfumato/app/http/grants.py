"""Who may ask a dataset, what a new analyst may spend of it, and the most that one question may cost.

None of it is a limit of what is released: whoever is let in under two names may spend two caps, and no more than the
dataset's limit.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sfumato.app.http.problems import RefusalError
from sfumato.app.requests.fields import limit_of
from sfumato.ledger import Ledger
from sfumato.ledger.audit_log import ActionKind, Actor, Change, record
from sfumato.ledger.dbapi import Driver
from sfumato.ledger.store import Store
from sfumato.privacy.loss import NOTHING, Loss

_REMEMBERED = 2.0  # seconds for which a worker trusts what it has looked up


@dataclass(frozen=True)
class DatasetTerms:
    """On which terms a dataset is asked; limits are spelled as limits of ledgers are.

    Attributes:
        granted_only: whether only analysts may ask to whom it was granted; everybody with a key otherwise.
        default_cap: what an analyst may spend who has no account yet; None: no cap of their own.
        most: what one question or release may cost; None: what is left.
        approval_above: what one may cost that no second steward approved; None: anything.
    """

    granted_only: bool = False
    default_cap: str | None = None
    most: str | None = None
    approval_above: str | None = None


class Grants:
    """The terms of all datasets of a server, and to whom they are granted, over a store that is prepared."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, tuple[float, DatasetTerms, Mapping[str, bool]]] = {}

    def terms(self, dataset: str) -> DatasetTerms:
        """The terms of a dataset."""
        return self._look(dataset)[0]

    def set_terms(self, dataset: str, terms: DatasetTerms, *, by: Actor | None = None) -> None:
        """Change the terms of a dataset; other workers follow within two seconds."""
        row = {"dataset": dataset, "granted_only": int(terms.granted_only)}
        with self._store.founding() as driver:
            before = _terms(driver, dataset)
            driver.run("DELETE FROM service_terms WHERE dataset = :dataset", {"dataset": dataset})
            limits = {"default_cap": terms.default_cap, "most": terms.most, "approval_above": terms.approval_above}
            driver.insert("service_terms", [{**row, **limits}])
            record(driver, Change(ActionKind.TERMS, dataset, asdict(before), asdict(terms)), by)
        self._known.pop(dataset, None)

    def let_in(self, dataset: str, analyst: str, *, by: Actor | None = None) -> None:
        """Grant a dataset to an analyst."""
        self._write(dataset, analyst, shut_out=False, by=by)

    def shut_out(self, dataset: str, analyst: str, *, by: Actor | None = None) -> None:
        """Let an analyst ask a dataset no more, whoever else may."""
        self._write(dataset, analyst, shut_out=True, by=by)

    def let_back(self, dataset: str, analyst: str, *, by: Actor | None = None) -> None:
        """Let in an analyst who was shut out; others stay as they are."""
        change = (
            "UPDATE service_grant SET shut_out = 0 WHERE dataset = :dataset AND analyst = :analyst AND shut_out = 1"
        )
        with self._store.founding() as driver:  # this worker may not know of it yet
            if driver.run(change, {"dataset": dataset, "analyst": analyst}):
                record(driver, _change(dataset, analyst, False, True), by)
        self._known.pop(dataset, None)

    def named(self, dataset: str) -> Mapping[str, bool]:
        """Whether each analyst who is named for a dataset is let in (True) or shut out."""
        return self._look(dataset)[1]

    def admits(self, dataset: str, analyst: str) -> bool:
        """Whether an analyst may ask a dataset."""
        terms, named = self._look(dataset)
        return named.get(analyst, not terms.granted_only)

    def refuse(self, ledger: Ledger, analyst: str, loss: Loss | None = None) -> None:
        """Refuse an analyst, or what one question is to cost; a new analyst gets the cap of new ones.

        Raises:
            RefusalError: the dataset is not open to the analyst, or the loss is above the most of one question.
        """
        if not self.admits(ledger.dataset, analyst):
            raise RefusalError(
                "not-granted", "The dataset is not open to you", 403, "ask a steward to grant it to your name"
            )
        terms = self.terms(ledger.dataset)
        most = limit_of(terms.most)
        if loss is not None and most is not None and not most.admits(NOTHING, loss.charge):
            raise RefusalError(
                "question-too-dear",
                "One question may not cost that much",
                403,
                f"a question or release of this dataset costs at most {most}; ask at a smaller loss",
            )
        if loss is not None and terms.default_cap is not None and analyst not in ledger.caps():
            cap = limit_of(terms.default_cap)
            assert cap is not None  # as there is a text
            ledger.set_first_cap(analyst, cap)

    def _write(self, dataset: str, analyst: str, *, shut_out: bool, by: Actor | None) -> None:
        where = {"dataset": dataset, "analyst": analyst}
        with self._store.founding() as driver:
            before = _named(driver, dataset).get(analyst)
            driver.run("DELETE FROM service_grant WHERE dataset = :dataset AND analyst = :analyst", where)
            driver.insert("service_grant", [{**where, "shut_out": int(shut_out)}])
            record(driver, _change(dataset, analyst, before, not shut_out), by)
        self._known.pop(dataset, None)

    def _look(self, dataset: str) -> tuple[DatasetTerms, Mapping[str, bool]]:
        now = time.monotonic()
        seen, terms, named = self._known.get(dataset, (0.0, DatasetTerms(), {}))
        if dataset not in self._known or now - seen > _REMEMBERED:
            with self._store.reading() as driver:
                terms, named = _terms(driver, dataset), _named(driver, dataset)
            self._known[dataset] = (now, terms, named)
        return terms, named


def _change(dataset: str, analyst: str, before: bool | None, after: bool) -> Change:  # noqa: FBT001
    """Return what becomes of an analyst whom a dataset names: let in (True), shut out, or not named (None)."""
    former, new = ({"analyst": analyst, "let_in": each} for each in (before, after))
    return Change(ActionKind.GRANT, dataset, former, new)


def _terms(driver: Driver, dataset: str) -> DatasetTerms:
    row = driver.record("SELECT * FROM service_terms WHERE dataset = :dataset", {"dataset": dataset})
    if row is None:
        return DatasetTerms()
    return DatasetTerms(bool(row["granted_only"]), row["default_cap"], row["most"], row["approval_above"])


def _named(driver: Driver, dataset: str) -> dict[str, bool]:
    rows: list[tuple[Any, ...]] = driver.rows(
        "SELECT analyst, shut_out FROM service_grant WHERE dataset = :dataset ORDER BY analyst", {"dataset": dataset}
    )
    return {analyst: not shut_out for analyst, shut_out in rows}
