"""A vault without a ledger, for tests and simulations of methods.

Its mechanisms are the real ones, but its noise follows from a seed, and a person who knows the seed can undo the noise.
Therefore it has no ledger, and the guarantee of everything that it returns begins with
:data:`sfumato.privacy.entropy.SIMULATED`.  A real vault takes no seed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence

from sfumato.domain import Domain
from sfumato.engine.port import Encoded
from sfumato.privacy.entropy import SIMULATED, SimulatedEntropy
from sfumato.privacy.loss import NOTHING, Charge, Loss
from sfumato.vault.interface import Mechanisms, Payload, ReleasedPayload, ReleaseRequest, decode, encode
from sfumato.vault.measurables import StoredMarginal
from sfumato.vault.mechanisms import ExactTables, PrivacyFilter, TableMechanisms
from sfumato.vault.release import guarantee_text, loss_json


class SimulatedVault:
    """The ``release`` of the vault over ``encoded`` rows, with noise from ``seed``.

    Args:
        encoded: the rows.
        seed: the seed of all noise.
        stored: marginals from earlier releases.
        repeats: true to give an equal request the same answer, as a ledger does.  Default: every call is a new release.

    Attributes:
        reserved: the reserved charge of each release, in order.
        spent: the losses that the methods spent, to compare with the reserved charges.
    """

    def __init__(
        self, encoded: Encoded, *, seed: int, stored: Sequence[StoredMarginal] = (), repeats: bool = False
    ) -> None:
        self._exactly = ExactTables(encoded)
        self._stored = tuple(stored)
        self._entropy = SimulatedEntropy(seed)
        self._answers: dict[str, bytes] | None = {} if repeats else None
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
    def view(self) -> None:
        """None, because the rows come from one table."""
        return

    @property
    def limit(self) -> None:
        """None, because nothing is ever released."""
        return

    def mechanisms(self, loss: Loss | Charge) -> TableMechanisms:
        """Return mechanisms that may spend ``loss``."""
        charge = loss.charge
        self.reserved.append(charge)
        return self._within(PrivacyFilter(charge))

    def _within(self, within: PrivacyFilter) -> TableMechanisms:
        return TableMechanisms(self._exactly, within=within, entropy=self._entropy, stored=lambda: self._stored)

    def release(
        self,
        request: ReleaseRequest,
        loss: Loss | Charge,
        run: Callable[[Mechanisms], Payload],
        *,
        charge: Charge | None = None,
        retry_key: str | None = None,  # noqa: ARG002  (nothing is stored, so nothing is repeated)
    ) -> ReleasedPayload:
        """Run a method with fresh mechanisms, or repeat the answer to an equal request if the vault ``repeats``."""
        key = "" if self._answers is None else _request_key(request, loss)
        answer = None if self._answers is None else self._answers.get(key)
        if answer is None:
            within = PrivacyFilter(charge or loss.charge)
            self.reserved.append(within.reserved)
            answer = encode(run(self._within(within)))
            self.spent += within.spent
            if self._answers is not None:
                self._answers[key] = answer
        return ReleasedPayload(
            payload=decode(answer),
            digest=hashlib.sha256(answer).hexdigest(),
            guarantee=f"{SIMULATED}: {guarantee_text(loss, self.domain.unit)}, if the noise had no seed",
            cost="nothing: simulated",
            provenance={"family": request.family, "method": request.method, "parameters": dict(request.parameters)},
        )


def _request_key(request: ReleaseRequest, loss: Loss | Charge) -> str:
    """Return a name of a request at a loss."""
    return json.dumps([request.family, request.method, request.parameters, loss_json(loss)], sort_keys=True)
