"""What a release promises and costs: in words, and as the JSON values of its request."""

from __future__ import annotations

from collections.abc import Mapping

from sfumato.domain import Unit
from sfumato.ledger import Entry, Kind, Receipt
from sfumato.privacy.loss import Charge, Loss, decimals, plain


def guarantee_text(loss: Loss | Charge, unit: Unit) -> str:
    """The guarantee of a release of the given loss, with its neighbour relation.

    >>> guarantee_text(Epsilon("0.5"), Unit.row())
    'differential privacy with epsilon = 0.5 for adding or removing one row'
    """
    return f"{loss.promise} for {unit}"


def cost(charge: Charge | None) -> str:
    """What an entry added to the journal."""
    if charge is None:
        return "nothing that an accountant can count: no DP guarantee"
    parts = [
        f"rho {decimals(charge.rho, up=True)}"
        if charge.epsilon is None
        else f"epsilon {decimals(charge.epsilon, up=True)}"
    ]
    if charge.delta:
        parts.append(f"delta {decimals(charge.delta, up=True)}")
    return ", ".join(parts)


def charged_text(receipt: Receipt, charge: Charge | None) -> str:
    """What an answer cost the dataset, and whoever asked where that is something else."""
    if charge is None or receipt.charged:
        return cost(charge)
    if receipt.charged_analyst:
        return f"nothing of the dataset; your account: {cost(charge)}"
    return "nothing: asked and answered before"


def entry_cost(entry: Entry) -> str:
    """What an entry of the journal cost the dataset, so that the entries add up to what was spent of its limit."""
    match entry.kind:
        case Kind.RELEASE:
            return cost(entry.charge)
        case Kind.REPEAT if entry.charge is not None:
            return f"nothing; the analyst's account: {cost(entry.charge)}"
        case Kind.REPEAT:
            return "nothing"
        case Kind.CAP | Kind.RETRY | Kind.FAILED:
            return "no cost"


def loss_json(asked: Loss | Charge) -> Mapping[str, str | None]:
    """A loss, or an exact charge, as JSON values."""
    return {name: None if amount is None else plain(amount) for name, amount in asked.amounts.items()}
