"""A budget that does not admit a release: stewards are told who spent it, analysts only what is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from sfumato.errors import BudgetError
from sfumato.ledger import Ledger
from sfumato.ledger.account import in_words
from sfumato.ledger.registry import Key, Scope
from sfumato.ledger.waiting import WAITING


class OverspentError(BudgetError):
    """A refusal for a steward; ``spent_by`` has what each analyst spent, in words."""

    def __init__(self, message: str, spent_by: Mapping[str, str]) -> None:
        super().__init__(message)
        self.spent_by = dict(spent_by)


def spent_by(ledger: Ledger) -> dict[str, str]:
    """What each analyst has spent, in words, by name.

    An analyst pays for what others asked first as well, so that the amounts may sum to more than the dataset's.
    """
    return {name: in_words(ledger.limit, account.spent) for name, account in ledger.caps().items()}


@contextmanager
def explained(ledger: Ledger, key: Key) -> Iterator[None]:
    """Tell a steward who spent the budget, where it does not admit what is done inside.

    Raises:
        OverspentError: it does not, and the key is a steward's.
        BudgetError: it does not, and the key is an analyst's.
    """
    try:
        yield
    except BudgetError as error:
        if key.scope is not Scope.STEWARD:
            raise
        found = WAITING.get().aside(partial(spent_by, ledger))
        shares = "; ".join(f"{name}: {spent}" for name, spent in found.items()) or "nobody by name"
        raise OverspentError(f"{error}; spent so far by analyst: {shares}", found) from error
