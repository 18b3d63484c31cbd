"""A statement asked in one step."""

from __future__ import annotations

from collections.abc import Sequence

from sfumato.privacy.loss import Loss
from sfumato.query.answer import Answer
from sfumato.query.ask import Keeper, ask
from sfumato.query.sql import parse
from sfumato.vault.keeper import refuse_no_vault


def sql(vault: Keeper, text: str, *, loss: Loss, discoverable: Sequence[str] = ()) -> Answer:
    """Answer a SELECT of the subset (see :mod:`sfumato.query.sql`) under one loss, with intervals at 95 %.

    Raises:
        QueryError: the statement is no text, or outside the subset; the message says where and why, and nothing was
            spent.
        LossError: the loss is none; nothing was spent.
        BudgetError: the ledger refuses the charge; nothing was spent.
    """
    refuse_no_vault(vault)
    return ask(vault, parse(text, vault.domain, discoverable=discoverable), loss=loss)
