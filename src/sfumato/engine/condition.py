"""Filters over codes, as SQL and on arrays.  Codes are never NULL, so a condition is true or false for every row."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any as Anything
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from sfumato.domain import Domain
from sfumato.domain.predicate import All, Among, Any, Not, Predicate
from sfumato.errors import QueryError


def condition(predicate: Predicate | None, domain: Domain) -> str:
    """SQL over columns ``c0, c1, …``.

    Raises:
        QueryError: a code outside its attribute.
        DomainError: an attribute outside the domain.
    """
    match predicate:
        case None:
            return "1 = 1"
        case Among(attribute=name, codes=codes):
            place = domain.index(name)
            if any(code < 0 or code >= domain.attributes[place].size for code in codes):
                raise QueryError(f"a condition names a cell that {name!r} does not have", culprit=predicate)
            listed = ", ".join(str(code) for code in sorted(codes))
            return f"c{place} IN ({listed})" if codes else "1 = 0"
        case All(parts=parts):
            return _joined(" AND ", parts, domain) if parts else "1 = 1"
        case Any(parts=parts):
            return _joined(" OR ", parts, domain) if parts else "1 = 0"
        case Not(part=part):
            return f"NOT ({condition(part, domain)})"


def _joined(word: str, parts: tuple[Predicate, ...], domain: Domain) -> str:
    return "(" + word.join(condition(part, domain) for part in parts) + ")"


def holds(
    predicate: Predicate, domain: Domain, codes: Callable[[str], NDArray[np.integer[Anything]]]
) -> NDArray[np.bool_]:
    """Where a condition is true.

    Args:
        predicate: what is asked.
        domain: the domain of the codes.
        codes: the codes of an attribute; arrays of different attributes are broadcast against each other.

    Returns:
        Of the shape to which the arrays that it looks at are broadcast: none where the condition looks at no code.
    """
    match predicate:
        case Among(attribute=name, codes=among):
            table = np.zeros(domain[name].size, dtype=np.bool_)
            table[list(among)] = True
            return table.take(codes(name))
        case All(parts=parts):
            return reduce(np.logical_and, (holds(part, domain, codes) for part in parts), np.array(True))
        case Any(parts=parts):
            return reduce(np.logical_or, (holds(part, domain, codes) for part in parts), np.array(False))
        case Not(part=part):
            return np.logical_not(holds(part, domain, codes))
        case _:
            assert_never(predicate)
