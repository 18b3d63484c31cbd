"""What a caller asks of an anonymisation, in the words of the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sfumato.anonymize.criteria import Criterion
from sfumato.anonymize.hierarchy_file import describe
from sfumato.anonymize.quasi import Quasi
from sfumato.anonymize.spelling import spell
from sfumato.domain import Unit
from sfumato.vault.vault import Request


@dataclass(frozen=True, eq=False)
class Asked:
    """What a caller asks for, in the words of the journal."""

    method: str
    quasi: tuple[Quasi, ...]
    criteria: tuple[Criterion, ...]
    suppression: str
    options: Mapping[str, Any]

    def request(self, keep: Sequence[str]) -> Request:
        """The journal's question, for rows that are published with the columns of ``keep``."""
        described = [
            {
                "name": each.name,
                "weight": each.weight,
                "missing": each.missing.value,
                "hierarchy": None if each.hierarchy is None else describe(each.hierarchy),
            }
            for each in self.quasi
        ]
        return Request(
            "anonymize",
            self.method,
            {
                "quasi": described,
                "criteria": [spell(criterion) for criterion in self.criteria],
                "suppression": self.suppression,
                "keep": sorted(keep),
                **self.options,
            },
            f"rows by {', '.join(each.name for each in self.quasi)}: {' and '.join(map(str, self.criteria))}",
            raw=tuple(sorted(keep)) or None,
        )

    def statement(self, unit: Unit) -> str:
        """What is promised instead of differential privacy."""
        names = ", ".join(each.name for each in self.quasi)
        attackers = "; ".join(dict.fromkeys(criterion.attacker for criterion in self.criteria))
        people = "" if unit.column is None else f", where one {unit.column} may have up to {unit.rows} rows"
        # only full-domain searches are held to a limit; how many rows are suppressed is said with the rows
        limited = self.method in ("optimal", "samarati")
        limit = f"; at most a share {self.suppression} of the rows is suppressed" if limited else ""
        return (
            f"{' and '.join(map(str, self.criteria))} over the quasi-identifiers {names}, counted in rows{people};"
            f" attacker: {attackers}{limit}"
        )
