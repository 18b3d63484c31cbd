"""Servers for the tests of safety: with a fault built in, which the tests must catch, or one that stops in the middle.

Applications for uvicorn to make.
"""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from sfumato.errors import BudgetError
from sfumato.ledger import Event, Ledger, reservation
from sfumato.ledger.reservation import Reservation
from sfumato.ledger.store import Store
from sfumato_server import application, release_jobs
from sfumato_server.service import Service

HALT = "SFUMATO_TEST_HALT"  # names the step at which the first release halts, and a file that gets the worker's number
LEASE = timedelta(seconds=5)
_THINKING = 2.0  # seconds between looking and spending, in which all others look too


def without_lock() -> FastAPI:
    """Looks at the budget and then spends without looking again; the database still checks what is written."""
    reserve = Ledger.reserve

    def look_then_spend(self: Ledger, event: Event, **terms: Any) -> Reservation:
        if event.charge is not None and not self.limit.admits(self.remaining().spent, event.charge):
            raise BudgetError("refused")
        time.sleep(_THINKING)
        return reserve(self, event, **terms)

    Ledger.reserve = look_then_spend  # type: ignore[method-assign]
    reservation.refuse_unaffordable = lambda *_: None
    return application.application()


def without_lock_and_check() -> FastAPI:
    """The same, over a database that has forgotten its checks."""
    init = Store.__init__

    def forgetful(self: Store, url: str) -> None:
        init(self, url)

        begin = type(self._connections.database).begin_transaction

        def forget(connection: Any, *, writing: bool) -> None:
            if self.file:
                connection.execute("PRAGMA ignore_check_constraints = ON")
            begin(self._connections.database, connection, writing=writing)

        self._connections.database.begin_transaction = forget  # type: ignore[method-assign]

    Store.__init__ = forgetful  # type: ignore[method-assign]
    return without_lock()


def halting() -> FastAPI:
    """Halts its first background release for good before it is charged, or between the charge and the end."""
    step, file = os.environ[HALT].split(":", 1)
    function = {"before the charge": "synthesized", "after the charge": "as_parquet"}[step]
    going_on = getattr(release_jobs, function)

    def halt(*arguments: object, **named: object) -> object:
        if not Path(file).exists():
            Path(file).write_text(str(os.getpid()))
            time.sleep(3600)
        return going_on(*arguments, **named)

    setattr(release_jobs, function, halt)
    return application.create(Service(os.environ[application.LEDGER], lease=LEASE))


def drop_the_checks(url: str) -> None:
    """Take the checks away where they cannot be ignored."""
    store = Store(url)
    if store.file is None:
        with store.writing() as connection:
            connection.run("ALTER TABLE ledger_dataset DROP CONSTRAINT within_limit")
    store.close()
