"""Whose the rows of tables are, as a journal says: a release for which they are somebody else's is refused.

Losses for one unit add up only where a unit is the same rows in all of them; a table that one description calls public
and another protects is two neighbour relations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sfumato.errors import UnitError
from sfumato.ledger import journal
from sfumato.ledger.dbapi import Driver


class ToldOwners:
    """What the entries of one journal say, each of which is read once."""

    def __init__(self) -> None:
        self._last = 0
        self._told: set[tuple[str, str]] = set()

    def read(self, driver: Driver, dataset: str) -> list[dict[str, str]]:
        """What is said of each table, with what was entered since; the dataset's row is locked."""
        last, told = journal.told_owners(driver, dataset, after=self._last)
        self._told |= {said for owners in told for said in owners.items()}
        self._last = last
        return [{name: owner} for name, owner in sorted(self._told)]


def refuse_other_owners(own: Mapping[str, str], told: Iterable[Mapping[str, str]]) -> None:
    """Refuse where it was told of a table that its rows are somebody else's than they are now.

    Raises:
        UnitError: so it is.
    """
    now = {name.casefold(): owner for name, owner in own.items()}
    for owners in told:
        for name, owner in owners.items():
            here = now.get(name.casefold(), owner)
            if here != owner:
                raise UnitError(
                    f"this ledger holds releases for which the rows of {name} are {owner}, and in this schema they "
                    f"are {here}: their losses do not add up; describe the table as before, or use another ledger",
                    culprit=name,
                )
