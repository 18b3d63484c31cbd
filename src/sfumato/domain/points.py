"""Points: single real numbers with a cell of their own, such as an income of 0, among cells that are intervals.

Numbers of a table are doubles.  So a point is the cell from the number up to the next double, and a list of edges says
it all: every engine finds the cell of a number by comparing it with edges.
"""

from __future__ import annotations

import math
import sys

from sfumato.errors import DomainError


def split_edges(name: str, edges: tuple[float, ...], points: tuple[float, ...]) -> tuple[float, ...]:
    """Return the edges with every point, and the next double after it.

    Edges that were split already stay as they are.  A point at the last edge adds an edge behind that.

    Args:
        name: of the attribute.
        edges: finite and increasing.
        points: the single numbers.

    Raises:
        DomainError: points that do not increase, or lie beyond the edges.

    >>> split_edges("income", (0.0, 1.0), (0.0,))
    (0.0, 5e-324, 1.0)
    """
    declared = declared_edges(edges, points)
    within = declared and all(declared[0] <= point <= declared[-1] for point in points)  # NaN is nowhere
    if not within or list(points) != sorted(set(points)):
        raise DomainError(
            f"the points of {name!r} must increase and lie between its first and its last edge", culprit=points
        )
    if len(declared) < 2 or points[-1] == sys.float_info.max:  # noqa: PLR2004
        raise DomainError(f"the edges of {name!r} leave no number beside its points", culprit=points)
    return tuple(sorted({*declared, *points, *map(_next, points)}))


def declared_edges(edges: tuple[float, ...], points: tuple[float, ...]) -> tuple[float, ...]:
    """Return the edges without the extra edges behind points.

    >>> declared_edges((0.0, 5e-324, 1.0), (0.0,))
    (0.0, 1.0)
    """
    behind = set(map(_next, points)) - set(points)
    return tuple(edge for edge in edges if edge not in behind)


def _next(number: float) -> float:
    return math.nextafter(number, math.inf)
