"""Whom the attacks are tried on: equally many members and controls, one half to fit and one half to test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sfumato.errors import TableError
from sfumato.evaluate.attacks.advantage import FEWEST
from sfumato.evaluate.rows import Codes, Rows


@dataclass(frozen=True, eq=False)
class Targets:
    """Codes of the people attacked, each of shape ``(people, attributes)``."""

    members: Codes
    controls: Codes

    @property
    def stacked(self) -> Codes:
        """Members, then controls."""
        return np.concatenate([self.members, self.controls])

    def __len__(self) -> int:
        return len(self.members)


def draw_targets(
    members: Rows, controls: Rows, *, count: int, generator: np.random.Generator
) -> tuple[Targets, Targets]:
    """``count`` members and as many controls (fewer where there are fewer), as a fitting and a testing half.

    Raises:
        TableError: too few rows for an interval.
    """
    each = min(count, len(members), len(controls))
    if each < 2 * FEWEST:
        raise TableError(f"too few rows for an interval: attacks need {2 * FEWEST} of each kind", culprit=each)
    chosen = [table.sample(each, generator).codes for table in (members, controls)]
    half = each // 2
    return Targets(chosen[0][:half], chosen[1][:half]), Targets(chosen[0][half : 2 * half], chosen[1][half : 2 * half])
