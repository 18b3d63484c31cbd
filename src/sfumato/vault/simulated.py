"""A vault without a ledger over rows in memory, for tests and simulations of methods.

Its mechanisms are the real ones; only the entropy is seeded, and in place of a journal there is a list of
charges.  Never for a release: whoever knows the seed knows the noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from sfumato.domain import Domain
from sfumato.engine.arrays import ArrayTable
from sfumato.privacy.entropy import SimulatedEntropy
from sfumato.privacy.loss import NOTHING, Charge, Loss
from sfumato.vault.exact_tables import ExactAnswers
from sfumato.vault.interface import Mechanisms, Payload, Request, Settled, decode, encode
from sfumato.vault.mechanisms import PrivacyFilter, TableMechanisms
from sfumato.vault.questions import StoredMarginal
from sfumato.vault.release import cost, guarantee_text


class SimulatedVault:
    """``release`` as the vault has it, over ``encoded`` rows, with noise from ``seed``.

    ``stored`` are marginals that were released before.  ``spent`` is what the methods really drew, to hold against what
    they reserved.
    """

    def __init__(self, encoded: ArrayTable, *, seed: int, stored: Sequence[StoredMarginal] = ()) -> None:
        self._exactly = ExactAnswers(encoded)
        self._stored = tuple(stored)
        self._entropy = SimulatedEntropy(seed)
        self.reserved: list[Charge] = []
        self.spent = NOTHING

    @property
    def domain(self) -> Domain:
        """The public description of the table, with its unit."""
        return self._exactly.encoded.domain

    def refuse_keys(self, columns: tuple[str, ...]) -> None:
        """Refuse columns whose values cannot be found."""
        self._exactly.encoded.refuse_keys(columns)

    @property
    def limit(self) -> None:
        """There is none: nothing is ever released."""
        return

    def mechanisms(self, loss: Loss | Charge) -> TableMechanisms:
        """Mechanisms that may spend ``loss``."""
        charge = loss.charge
        self.reserved.append(charge)
        return self._within(PrivacyFilter(charge))

    def _within(self, within: PrivacyFilter) -> TableMechanisms:
        return TableMechanisms(self._exactly, within=within, entropy=self._entropy, stored=lambda: self._stored)

    def release(
        self,
        request: Request,
        loss: Loss | Charge,
        run: Callable[[Mechanisms], Payload],
        *,
        charge: Charge | None = None,
        retry_key: str | None = None,  # noqa: ARG002  (nothing is stored, so nothing is repeated)
    ) -> Settled:
        """Run a method with fresh mechanisms; every call is a new release."""
        within = PrivacyFilter(charge or loss.charge)
        self.reserved.append(within.reserved)
        payload = run(self._within(within))
        self.spent += within.spent
        answer = encode(payload)
        return Settled(
            payload=decode(answer),
            digest=hashlib.sha256(answer).hexdigest(),
            guarantee=guarantee_text(loss, self.domain.unit),
            cost=cost(within.reserved),
            provenance={"family": request.family, "method": request.method, "parameters": dict(request.parameters)},
        )
