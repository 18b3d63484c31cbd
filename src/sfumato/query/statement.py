"""A statement asked in one step."""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.privacy.loss import Loss, Number
from sfumato.query.answer import Answer
from sfumato.query.ask import CONFIDENCE, Keeper, ask
from sfumato.query.sql import parse
from sfumato.vault.keeper import refuse_no_vault


def sql(
    vault: Keeper,
    text: str,
    *,
    loss: Loss,
    discoverable: Sequence[str] = (),
    confidence: Number = CONFIDENCE,
    retry_key: str | None = None,
) -> Answer:
    """Answer a SELECT of the subset (see :mod:`sfumato.query.sql`) under one loss, as :func:`ask` does.

    Args:
        vault: the protected table.
        text: the statement.
        loss: what the release costs in all, for the unit of the vault's domain (add/remove).
        discoverable: columns outside the domain by whose values may be grouped; takes a loss with a delta.
        confidence: of the intervals, strictly between 0 and 1.
        retry_key: the same for all attempts at one request.

    Raises:
        QueryError: the statement is no text, or outside the subset; the message says where and why, and nothing was
            spent.
        LossError: the loss is none, or the confidence outside (0, 1); nothing was spent.
        BudgetError: the ledger refuses the charge; nothing was spent.
    """
    refuse_no_vault(vault)
    parsed = parse(text, vault.domain, discoverable=discoverable)
    return ask(vault, parsed, loss=loss, confidence=confidence, retry_key=retry_key)
