"""Opening a ledger, and beginning one: what never changes about it afterwards is its limit, its secret and its unit."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sfumato.arguments import expect
from sfumato.domain import Unit
from sfumato.errors import InputError, LedgerError, LimitError, MissingLedgerError, OtherDatasetsError
from sfumato.ledger import journal
from sfumato.ledger.account import (
    Account,
    limit_units,
    loss_from,
    loss_text,
    refuse_beyond_limit,
    refuse_unaffordable,
    refuse_unit,
    unit_from,
    unit_text,
)
from sfumato.ledger.database import Driver
from sfumato.ledger.entry import Event, StoredAnswer, genesis, system_user
from sfumato.ledger.ledger import UNDECLARED, Ledger, NamedContent, refuse_name
from sfumato.ledger.reservation import Admission, Reservation
from sfumato.ledger.store import Store
from sfumato.ledger.transaction import now, spent_columns
from sfumato.privacy.loss import NOTHING, Charge, Loss

_LISTED = 10  # datasets that a message names


def open_ledger(
    url: str, *, dataset: str, limit: Loss | None, unit: Unit | None = None, create: bool = False
) -> Ledger:
    """Open the ledger of a dataset, and make it where there is none if that is asked for.

    Args:
        url: ``sqlite:///FILE`` or ``postgresql://...``.
        dataset: its name in the ledger.
        limit: the most that may ever be spent, which also fixes the measure; None: that of the existing ledger.
        unit: whom losses will be stated for, kept with the limit; None: that of the first release.
        create: whether to make a ledger with this limit where there is none.  A program that runs again and again
            had better not say so: where a ledger was lost, it would begin another budget.

    Raises:
        MissingLedgerError: there is no such ledger, and none is to be made.
        OtherDatasetsError: the ledger keeps other datasets only, and none is to be added.
        LimitError: the stored limit is another one.
        UnitError: the ledger adds up losses of another unit.
        LedgerError: the database cannot be used.
        InputError: the address, the name or the limit is no good.
    """
    refuse_name(dataset, "a dataset")
    if limit is not None:
        expect(limit, Loss, "a limit is an Epsilon, Rho or EpsilonDelta")
    store = Store(url)
    try:
        stored = _stored_limit(store, dataset, limit, unit, create=create and limit is not None)
        return Ledger(store, dataset=dataset, limit=stored)
    except BaseException:
        store.close()
        raise


def held(url: str, dataset: str) -> bool:
    """Whether there is a ledger of the dataset."""
    try:
        open_ledger(url, dataset=dataset, limit=None).close()
    except (MissingLedgerError, OtherDatasetsError):
        return False
    return True


def _stored_limit(store: Store, dataset: str, limit: Loss | None, unit: Unit | None, *, create: bool) -> Loss:
    store.prepare(create=create)
    with store.reading() as driver:
        account = journal.dataset_account(driver, dataset)
    if account is None and create and limit is not None:
        with store.founding() as driver:
            insert_dataset(driver, dataset, limit, unit)
            account = journal.dataset_account(driver, dataset)
        store.checkpoint()  # so that a copy of the file alone is a ledger at least
    if account is None or account.limit is None:
        raise _not_held(store, dataset)
    with store.reading() as driver:
        kept = journal.dataset_unit(driver, dataset)
    refuse_other_terms(dataset, account.limit, None if kept is None else unit_text(kept), limit=limit, unit=unit)
    return account.limit


def _not_held(store: Store, dataset: str) -> LedgerError:
    with store.reading() as driver:
        held = journal.datasets(driver)
    if not held:
        return MissingLedgerError(
            f"the ledger {store.place} holds no dataset yet; begin one by 'sfumato ledger create' or with --create "
            "where something is released (create=True in Python), and a limit",
            culprit=dataset,
        )
    listed = ", ".join(map(repr, held[:_LISTED])) + (f" and {len(held) - _LISTED} more" if held[_LISTED:] else "")
    return OtherDatasetsError(
        f"the ledger {store.place} holds no dataset {dataset!r}, only {listed}; "
        "name one of these, or begin another budget where something is released: --create with --limit, or "
        "create=True in Python with a limit",
        culprit=dataset,
    )


def insert_dataset(driver: Driver, name: str, limit: Loss, unit: Unit | None) -> None:
    """Enter a new dataset; one that is there already is left as it is."""
    if driver.rows("SELECT 1 FROM ledger_dataset WHERE name = :name", {"name": name}):
        return
    opened, text = now(), loss_text(limit)
    units, delta_units = limit_units(limit)
    row = {
        "name": name,
        "opened": opened,
        "secret": secrets.token_hex(32),
        "limit_loss": text,
        "limit_units": units,
        "limit_delta_units": delta_units,
        **spent_columns(limit, NOTHING),
        "entries": 0,
        "head": genesis(name, text, opened, unit),
        "unit": None if unit is None else unit_text(unit),
        "version": 0,
        "version_digest": None,
    }
    driver.insert("ledger_dataset", [row])


def create_or_check(driver: Driver, name: str, limit: Loss, unit: Unit | None) -> Loss:
    """Enter a dataset, or find that it has this limit and unit; returns the limit.

    Raises:
        LimitError: it has another limit.
        UnitError: it adds up losses of another unit.
    """
    insert_dataset(driver, name, limit, unit)
    ((kept, kept_unit),) = driver.rows("SELECT limit_loss, unit FROM ledger_dataset WHERE name = :name", {"name": name})
    refuse_other_terms(name, loss_from(kept), kept_unit, limit=limit, unit=unit)
    return limit


def refuse_other_terms(name: str, kept: Loss, kept_unit: str | None, *, limit: Loss | None, unit: Unit | None) -> None:
    """Refuse another limit or unit than those of the transaction.

    Raises:
        LimitError, UnitError: which it is.
    """
    if limit is not None and limit != kept:
        raise LimitError(
            f"the ledger of {name!r} has the limit {kept}, not {limit}; a limit never changes", culprit=limit
        )
    refuse_unit(None if kept_unit is None else unit_from(kept_unit), unit)


@dataclass(frozen=True)
class DeferredLedger:
    """The ledger of ``dataset`` at ``url``, opened, and made where there is none, by the first release through it.

    A request that turns out to be wrong before it reaches the ledger then leaves no file behind.

    ``limit`` must be the stored one, as for :func:`open_ledger`.  Without it, an existing ledger is taken as it
    is, and a new one gets ``limit_if_new``.  None is made unless ``create`` says so, and then there must be none:
    whoever goes on saying so would begin a fresh budget on the day on which the ledger is lost.  A ledger that keeps
    other datasets only is not new either: a name that was mistyped would be a fresh budget for the same table.
    """

    url: str
    dataset: str
    limit: Loss | None
    limit_if_new: Loss | None
    create: bool = False
    content: NamedContent | None = None
    version: str = UNDECLARED
    new_version: bool = False

    def of_content(self, content: NamedContent, *, new: bool) -> DeferredLedger:
        """Return the same ledger for tables of some content, whose version the first release declares.

        ``version`` of what is returned is the last version, or the next one.

        Args:
            content: as for :meth:`Ledger.declare_version`.
            new: as there.

        Raises:
            VersionError: the content differs from that of the last version, and ``new`` is not set.
        """
        number = 1
        if held(self.url, self.dataset):
            with open_ledger(self.url, dataset=self.dataset, limit=self.limit) as ledger:
                number = ledger.number_of(content, new=new)
        return replace(self, content=content, version=str(number), new_version=new)

    def open(self, first: Event | None = None) -> Ledger:
        """Open the ledger, or make it for a first release, and declare the version of the tables.

        No version begins for a release that is refused.
        """
        ledger = self._opened(None if first is None else first.unit)
        try:
            if self.content is not None:  # once: later releases are of the version that the first one declared
                by, new = system_user(), self.new_version
                ledger.declare_version(self.content, by=by, new=new, most=int(self.version), first=first)
        except BaseException:
            ledger.close()
            raise
        return ledger

    def _opened(self, unit: Unit | None) -> Ledger:
        try:
            return open_ledger(self.url, dataset=self.dataset, limit=self.limit, unit=unit, create=self.create)
        except MissingLedgerError:
            if self.limit_if_new is None or not self.create:
                raise
        return open_ledger(self.url, dataset=self.dataset, limit=self.limit_if_new, unit=unit, create=True)

    def refuse_missing(self, charge: Charge | None = None) -> Loss | None:
        """Refuse early what the release would refuse: no ledger, a second ledger, or too large a charge.

        Args:
            charge: of the release, which even the whole limit has to admit; None: it is not known yet.

        Returns:
            The limit of the ledger, or of the one that the release makes.

        Raises:
            LedgerError: there is none, or no limit to make one with; or the one that is there cannot be opened.
            InputError: one is to be made, and is there already.
            BudgetError: the charge is larger than the limit.
            LossError: the limit does not have the measure of the charge.
        """
        if not self.create:
            with open_ledger(self.url, dataset=self.dataset, limit=self.limit) as ledger:
                if charge is not None:
                    refuse_beyond_limit(ledger.remaining(), charge)
                return ledger.limit
        if held(self.url, self.dataset):
            raise InputError(
                f"there is a ledger of {self.dataset!r} already; leave out --create, which begins a new one",
                culprit=self.url,
            )
        if self.limit is None and self.limit_if_new is None:
            raise InputError(
                "to begin a ledger, name with --limit the most that may ever be released", culprit=self.url
            )
        self._refuse_beyond(charge)
        return self.limit or self.limit_if_new

    def remaining(self, analyst: str | None = None) -> Account:
        """See :meth:`Ledger.remaining`; a ledger that is still to be made has nothing to tell.

        Raises:
            LedgerError: there is none, or it cannot be opened.
        """
        with open_ledger(self.url, dataset=self.dataset, limit=self.limit) as ledger:
            return ledger.remaining(analyst)

    def answers(self, methods: Collection[tuple[str, str]], version: str, *, analyst: str | None) -> list[StoredAnswer]:
        """See :meth:`Ledger.answers`; of a ledger that is still to be made there are none."""
        if not held(self.url, self.dataset):
            return []
        with open_ledger(self.url, dataset=self.dataset, limit=self.limit) as ledger:
            return ledger.answers(methods, version, analyst=analyst)

    def recorded_owners(self, *, after: int = 0) -> tuple[int, list[dict[str, str]]]:
        """See :meth:`Ledger.recorded_owners`; of a ledger that is still to be made there is nothing."""
        if not held(self.url, self.dataset):
            return 0, []
        with open_ledger(self.url, dataset=self.dataset, limit=self.limit) as ledger:
            return ledger.recorded_owners(after=after)

    def _refuse_beyond(self, charge: Charge | None) -> None:
        """Refuse what a new ledger could never take, before it is made with a limit that stays."""
        if charge is not None and self.limit is not None:
            refuse_unaffordable(Account(self.limit, NOTHING), charge, "a new ledger")

    @contextmanager
    def reserve(
        self,
        event: Event,
        *,
        noise_drawn: Callable[[], bool] = lambda: True,
        retry_key: str | None = None,
        admission: Admission | None = None,
    ) -> Iterator[Reservation]:
        """See :meth:`Ledger.reserve`."""
        self._refuse_beyond(event.charge)
        with (
            self.open(event) as ledger,
            ledger.reserve(event, noise_drawn=noise_drawn, retry_key=retry_key, admission=admission) as reservation,
        ):
            yield reservation
