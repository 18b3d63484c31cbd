"""A vault without a ledger over rows in memory, for tests and simulations of methods.

The doors are the real ones, with real mechanisms; only the entropy is seeded and the journal a list.
Never for a release: whoever knows the seed knows the noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from sfumato.domain import Domain
from sfumato.engine.arrays import ArrayTable
from sfumato.privacy.accountant import NOTHING, Charge, charge_for
from sfumato.privacy.entropy import SimulatedEntropy
from sfumato.privacy.loss import Loss
from sfumato.vault.doors import Doors
from sfumato.vault.payload import Payload, decode, encode
from sfumato.vault.promise import cost, promise
from sfumato.vault.purse import Purse
from sfumato.vault.session import Session
from sfumato.vault.tallies import Tallies
from sfumato.vault.vault import Request, Settled


class FakeVault:
    """``release`` as the vault has it, over ``encoded`` rows, with noise from ``seed``.

    ``spent`` is what the methods really drew, to hold against what they reserved.
    """

    def __init__(self, encoded: ArrayTable, *, seed: int) -> None:
        self._tallies = Tallies(encoded)
        self._entropy = SimulatedEntropy(seed)
        self.reserved: list[Charge] = []
        self.spent = NOTHING

    @property
    def domain(self) -> Domain:
        """The public description of the table, with its unit."""
        return self._tallies.encoded.domain

    def refuse_keys(self, columns: tuple[str, ...]) -> None:
        """Refuse columns whose values cannot be found."""
        self._tallies.encoded.refuse_keys(columns)

    @property
    def limit(self) -> None:
        """There is none: nothing is ever released."""
        return

    def doors(self, loss: Loss | Charge) -> Session:
        """Doors that may spend ``loss``."""
        charge = loss if isinstance(loss, Charge) else charge_for(loss)
        self.reserved.append(charge)
        return Session(self._tallies, purse=Purse(charge), entropy=self._entropy)

    def release(
        self,
        request: Request,
        loss: Loss | Charge,
        run: Callable[[Doors], Payload],
        *,
        charge: Charge | None = None,
        retry_key: str | None = None,  # noqa: ARG002  (nothing is stored, so nothing is repeated)
    ) -> Settled:
        """Run a method on fresh doors; every call is a new release."""
        purse = Purse(charge or (loss if isinstance(loss, Charge) else charge_for(loss)))
        self.reserved.append(purse.reserved)
        payload = run(Session(self._tallies, purse=purse, entropy=self._entropy))
        self.spent += purse.spent
        answer = encode(payload)
        return Settled(
            payload=decode(answer),
            digest=hashlib.sha256(answer).hexdigest(),
            guarantee=promise(loss, self.domain.unit),
            cost=cost(purse.reserved),
            provenance={"family": request.family, "method": request.method, "parameters": dict(request.parameters)},
        )
