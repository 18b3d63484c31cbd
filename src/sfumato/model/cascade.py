"""Many marginals of one table, and their transpose: many small tables summed into one.

Both walk the same chains of subsets.  A marginal is reached from the full table by dropping the largest
attribute that is not wanted, then the next; chains share their beginnings, so a table of a million cells
is read a few times however many of its marginals are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from sfumato.model.factor import Factor, Table


def project_all(factor: Factor, targets: Sequence[Sequence[str]]) -> list[Table]:
    """The marginals of a factor over each target, axes in the target's order.

    >>> import numpy as np
    >>> joint = Factor(("a", "b"), np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    >>> [table.tolist() for table in project_all(joint, [("a",), ("b",), ()])]
    [[6.0, 15.0], [5.0, 7.0, 9.0], 21.0]
    """
    sizes = dict(zip(factor.attributes, factor.values.shape, strict=True))
    known: dict[frozenset[str], Factor] = {frozenset(factor.attributes): factor}
    for target in targets:
        wanted = frozenset(target)
        current = factor
        for name in _dropped(sizes, wanted):
            rest = tuple(other for other in current.attributes if other != name)
            key = frozenset(rest)
            if key not in known:
                known[key] = Factor(rest, current.values.sum(axis=current.attributes.index(name)))
            current = known[key]
        known[wanted] = current
    return [known[frozenset(target)].project(target).values for target in targets]


def sum_all(factors: Iterable[Factor], sizes: Mapping[str, int]) -> Table:
    """The sum of factors over subsets of the attributes of ``sizes``, one axis an attribute of it."""
    names = tuple(sizes)
    pending: dict[frozenset[str], Table] = {}
    for factor in factors:
        _add(pending, tuple(name for name in names if name in factor.attributes), factor)
    for count in range(len(names)):
        for key in [key for key in pending if len(key) == count]:
            held = tuple(name for name in names if name in key)
            grown = key | {_dropped(sizes, key)[-1]}
            _add(pending, tuple(name for name in names if name in grown), Factor(held, pending.pop(key)), sizes)
    return pending.get(frozenset(names), np.zeros(tuple(sizes.values())))


def _add(
    pending: dict[frozenset[str], Table],
    attributes: tuple[str, ...],
    factor: Factor,
    sizes: Mapping[str, int] | None = None,
) -> None:
    """Add a factor to the pending table over ``attributes``; ``sizes`` where those are more than its own."""
    key = frozenset(attributes)
    values = factor.expand(attributes)
    if key in pending:
        pending[key] += values
    elif sizes is None:
        pending[key] = np.array(values)
    else:
        pending[key] = np.broadcast_to(values, [sizes[name] for name in attributes]).copy()


def _dropped(sizes: Mapping[str, int], wanted: frozenset[str]) -> list[str]:
    return sorted((name for name in sizes if name not in wanted), key=lambda name: (-sizes[name], name))
