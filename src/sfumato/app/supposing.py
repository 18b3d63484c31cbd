"""What an expected error supposes and is stated in, as sentences beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sfumato.query.accuracy import Expected


def notes(expected: Sequence[Expected], more: str) -> list[str]:
    """What errors mean, where they are not simply in the units of the answer.

    Args:
        expected: the errors.
        more: what to do, or what follows, where one row in each group was supposed for want of a number.
    """
    found = [
        f"{each.name}: in rows of rank, not in units of the answer." for each in expected if each.measure == "rank"
    ]
    found += [f"{each.name}: supposing one row in each group; {more}." for each in expected if each.measure == "row"]
    return found + [
        f"{each.name}: supposing {each.rows:,} rows in each group." for each in expected if each.rows is not None
    ]
