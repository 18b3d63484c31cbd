"""What a method takes for a vault, and what it says to whoever hands it something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from sfumato.domain import Domain
from sfumato.errors import InputError
from sfumato.privacy.accountant import Charge
from sfumato.privacy.loss import Loss
from sfumato.vault.doors import Doors
from sfumato.vault.payload import Payload
from sfumato.vault.vault import Request, Settled


@runtime_checkable
class Keeper(Protocol):
    """What a method needs of a vault: the domain, and doors under one reserved loss."""

    @property
    def domain(self) -> Domain:
        """The public description of the table."""
        ...

    def release(
        self,
        request: Request,
        loss: Loss | Charge,
        run: Callable[[Doors], Payload],
        *,
        charge: Charge | None = None,
        retry_key: str | None = None,
    ) -> Settled:
        """See :meth:`sfumato.vault.vault.Vault.release`."""
        ...


def refuse_no_vault(vault: object) -> None:
    """Refuse what is no vault, such as the path of a table.

    Raises:
        InputError: as said.
    """
    if not isinstance(vault, Keeper):
        raise InputError(
            f"a method takes the vault that sf.open(table, domain=...) returns, not {type(vault).__name__}",
            culprit=vault,
        )
