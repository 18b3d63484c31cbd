"""Where a condition cuts a computed number: cells that begin there, and the comparison that they decide.

A number that a statement computes has bounds and one cell, as nobody declared others.  A statement is public, and so
are the numbers that it compares with: they may begin cells.  What a schema declares keeps the cells of the schema.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

from sfumato.domain import Integer, Real
from sfumato.domain.unit_views import WithFacts
from sfumato.domain.view import Computed, Join, OverSource, PerUnit, View


def has_declared_cells(view: View, name: str) -> bool:
    """Whether the cells of an attribute are those that a schema declares, and not one for all that can be computed."""
    match view:
        case Join():
            return any(has_declared_cells(part, name) for part in (view.left, view.right) if name in part.names)
        case PerUnit():
            return name in view.by and has_declared_cells(view.source, name)
        case Computed() if name == view.name:
            return False
        case WithFacts() if name in view.facts.names:
            return False
        case OverSource():
            return has_declared_cells(view.source, name)
    return True


@cache
def mirrored() -> Mapping[Any, Any]:
    """Comparisons, and what they are with their sides swapped."""
    from sqlglot import exp

    swapped = {exp.GT: exp.LT, exp.GTE: exp.LTE, exp.EQ: exp.EQ, exp.NEQ: exp.NEQ}
    return swapped | {other: kind for kind, other in swapped.items()}


def is_number(node: Any) -> bool:  # noqa: ANN401  (sqlglot's own)
    """Whether a node is a number that is written down."""
    from sqlglot import exp

    inner = node.this if isinstance(node, exp.Neg) else node
    return isinstance(inner, exp.Literal) and not inner.is_string


def cut_at(kind: Any, at: Fraction, attribute: Integer | Real, name: str) -> tuple[Any, str, Integer | Real | None]:  # noqa: ANN401
    """A comparison that cells decide, the number that it compares with, and the attribute with these cells.

    Real numbers are doubles: above 1000 are those from the next double on.  Which of them equal a number no cell tells,
    as cells have an extent.

    Args:
        kind: of comparison, the number standing at its right.
        at: the number.
        attribute: with one cell.
        name: of what is compared.

    Returns:
        None in place of the attribute where all of its numbers are on one side, or no cell decides.
    """
    if isinstance(attribute, Integer):
        return _whole(kind, at, attribute, name)
    from sqlglot import exp

    low, high = attribute.edges
    if kind in (exp.EQ, exp.NEQ) or abs(at) > sys.float_info.max:
        return kind, str(at), None
    start = float(at)
    if kind in (exp.GT, exp.LTE):
        start, kind = math.nextafter(start, math.inf), {exp.GT: exp.GTE, exp.LTE: exp.LT}[kind]
    if not low < start <= high:
        return kind, repr(start), None
    end = high if start < high else math.nextafter(high, math.inf)
    return kind, repr(start), replace(attribute, name=f"{name} from {start!r}", edges=(low, start, end))


def _whole(kind: Any, at: Fraction, attribute: Integer, name: str) -> tuple[Any, str, Integer | None]:  # noqa: ANN401
    from sqlglot import exp

    after, first = math.floor(at) + 1, math.ceil(at)
    starts = {first, after} if kind in (exp.EQ, exp.NEQ) else {after} if kind in (exp.GT, exp.LTE) else {first}
    within = sorted(each for each in starts if attribute.minimum < each <= attribute.maximum)
    shown = str(at.numerator) if at.denominator == 1 else repr(float(at))
    if not within:
        return kind, shown, None
    called = f"{name} from {' and '.join(map(str, within))}"
    return kind, shown, replace(attribute, name=called, edges=(attribute.minimum, *within))
