"""What a released cell may stand for: the declared cells compatible with its text.

Understood are a declared value or cell label, runs of them (``first..last``), a raw number, ``*``, sets
(``{a, b}``), intervals (``[3, 7)``, ``3..7``, ``3-7``, ``>= 3``, ``< 7``) and the labels of a hierarchy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from sfumato.domain import Attribute, Categorical, Integer, Real, Unknown
from sfumato.domain.attribute import null_code, unknown_code

Leaves = frozenset[int]

_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_BRACKETED = re.compile(rf"([\[(\]])\s*({_NUMBER}|-?inf|)\s*[,;]\s*({_NUMBER}|\+?inf|)\s*([\])\[])")
_RANGE = re.compile(rf"({_NUMBER})\s*(?:\.\.|-|\N{{EN DASH}}|to)\s*({_NUMBER})")
_HALF_LINE = re.compile(rf"(<=|>=|<|>|\N{{LESS-THAN OR EQUAL TO}}|\N{{GREATER-THAN OR EQUAL TO}})\s*({_NUMBER})")
_PLAIN = re.compile(_NUMBER)


def compatible(attribute: Attribute, text: str | None, labels: Mapping[str, Leaves]) -> Leaves | None:
    """Codes that a cell of a release may stand for, or None where the text means nothing here.

    Args:
        attribute: the column's attribute.
        text: the cell as written; None or an empty text is a missing value.
        labels: leaves under each label of the attribute's hierarchy; empty without one.

    >>> age = Integer(name="age", minimum=0, maximum=9, unknown=Unknown.CLAMP)
    >>> sorted(compatible(age, "[3, 6)", {})), compatible(age, "x", {})
    ([3, 4, 5], None)
    """
    if text is None or not text.strip():
        missing = null_code(attribute)
        other = unknown_code(attribute) if missing is None else missing
        return None if other is None else frozenset([other])
    text = text.strip()
    own = attribute.labels()
    if text in own:
        return frozenset([own.index(text)])
    if text in labels:
        return labels[text]
    if text == "*":  # some value: cells for missing and unknown ones are no values, and would take their share of it
        return frozenset(range(attribute.declared))
    if (run := _run(own, text)) is not None:
        return run
    if text[0] == "{" and text[-1] == "}":
        return _union(attribute, text[1:-1], labels)
    leaves = None if isinstance(attribute, Categorical) else _numeric(attribute, text)
    if leaves is None and (other := unknown_code(attribute)) is not None:
        return frozenset([other])
    return leaves or None


def _run(own: tuple[str, ...], text: str) -> Leaves | None:
    """Cells from one label to another, as our own recodings write them: ``first..last``."""
    at = text.find("..")
    while at >= 0:
        first, last = text[:at], text[at + 2 :]
        if first in own and last in own and own.index(first) < own.index(last):
            return frozenset(range(own.index(first), own.index(last) + 1))
        at = text.find("..", at + 1)
    return None


def _union(attribute: Attribute, inside: str, labels: Mapping[str, Leaves]) -> Leaves | None:
    if inside.lstrip().startswith("{"):  # sets of sets are none
        return None
    members = [compatible(attribute, part, labels) for part in inside.split(",")]
    found = [member for member in members if member is not None]
    return frozenset().union(*found) if found and len(found) == len(members) else None


def _numeric(attribute: Integer | Real, text: str) -> Leaves | None:
    if _PLAIN.fullmatch(text):
        return _point(attribute, float(text))
    if match := _BRACKETED.fullmatch(text):
        opening, low, high, closing = match.groups()
        return _between(
            attribute,
            float(low) if low else -math.inf,
            float(high) if high else math.inf,
            closed=(opening == "[", closing == "]"),
        )
    if match := _RANGE.fullmatch(text):
        return _between(attribute, float(match[1]), float(match[2]), closed=(True, True))
    if match := _HALF_LINE.fullmatch(text):
        sign, bound = match[1], float(match[2])
        inclusive = sign not in {"<", ">"}
        if sign in {"<", "<=", "\N{LESS-THAN OR EQUAL TO}"}:
            return _between(attribute, -math.inf, bound, closed=(True, inclusive))
        return _between(attribute, bound, math.inf, closed=(inclusive, True))
    return None


def _point(attribute: Integer | Real, value: float) -> Leaves | None:
    if attribute.unknown is Unknown.CLAMP:
        value = min(max(value, attribute.minimum), attribute.maximum)
    return _between(attribute, value, value, closed=(True, True)) or None


def _between(attribute: Integer | Real, low: float, high: float, *, closed: tuple[bool, bool]) -> Leaves:
    """Declared cells that share a point with the interval."""
    if low == math.inf or high == -math.inf:  # a number beyond all floats is in no cell
        return frozenset()
    found = []
    for code in range(attribute.declared):
        first, last = attribute.bounds(code)
        if isinstance(attribute, Integer):
            smallest = math.ceil(low) if math.isfinite(low) else first
            largest = math.floor(high) if math.isfinite(high) else last
            smallest += not closed[0] and smallest == low
            largest -= not closed[1] and largest == high
            hit = max(first, smallest) <= min(last, largest)
        else:
            ends_closed = code == attribute.declared - 1
            below = high > first or (closed[1] and high == first)
            above = low < last or (ends_closed and closed[0] and low == last)
            hit = below and above and low <= high
        if hit:
            found.append(code)
    return frozenset(found)
