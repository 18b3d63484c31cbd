"""Predicates in a normal form, so that conditions that mean the same by their shape are one question.

Negations are pushed down to sets of cells, nested conjunctions and disjunctions are flattened, sets of the
same attribute are merged, and parts stand once and in a fixed order.  It is no minimal form: two predicates
with one meaning may still differ, and are then paid for twice, never confused.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import assert_never

from sfumato.domain import Domain
from sfumato.domain.predicate import All, Among, Any, Not, Predicate

_NOBODY = Any(())


@lru_cache(maxsize=1024)  # a condition is put into words and asked
def normal(predicate: Predicate | None, domain: Domain) -> Predicate | None:
    """The normal form; None where the predicate holds for every row by its shape.

    >>> from sfumato.domain import Integer, Unknown
    >>> domain = Domain((Integer(name="age", minimum=0, maximum=3, unknown=Unknown.CLAMP),))
    >>> normal(All((Not(Among("age", frozenset({0}))), Among("age", frozenset({0, 1})))), domain)
    Among(attribute='age', codes=frozenset({1}))
    """
    return None if predicate is None else _simplify(predicate, domain, negated=False)


def _simplify(predicate: Predicate, domain: Domain, *, negated: bool) -> Predicate | None:
    match predicate:
        case Among(attribute=name, codes=codes):
            every = frozenset(range(domain[name].size))
            kept = every - codes if negated else codes & every
            return None if kept == every else Among(name, kept) if kept else _NOBODY
        case Not(part=part):
            return _simplify(part, domain, negated=not negated)
        case All(parts=parts) | Any(parts=parts):
            simplified = [_simplify(part, domain, negated=negated) for part in parts]
            conjunction = isinstance(predicate, All) != negated
            return _conjunction(simplified, domain) if conjunction else _disjunction(simplified, domain)
        case _:
            assert_never(predicate)


def _conjunction(parts: Sequence[Predicate | None], domain: Domain) -> Predicate | None:
    kept: list[Predicate] = []
    for part in parts:
        if part is not None:
            kept += part.parts if isinstance(part, All) else [part]
    cells: dict[str, frozenset[int]] = {}
    for part in kept:
        if isinstance(part, Among):
            cells[part.attribute] = cells.get(part.attribute, part.codes) & part.codes
    merged: list[Predicate] = [Among(name, codes) for name, codes in cells.items()]
    merged += [part for part in kept if not isinstance(part, Among)]
    if _NOBODY in merged or any(isinstance(part, Among) and not part.codes for part in merged):
        return _NOBODY
    return _joined(All, merged, domain)


def _disjunction(parts: Sequence[Predicate | None], domain: Domain) -> Predicate | None:
    if any(part is None for part in parts):
        return None
    kept: list[Predicate] = []
    for part in parts:
        assert part is not None
        kept += part.parts if isinstance(part, Any) else [part]
    cells: dict[str, frozenset[int]] = {}
    for part in kept:
        if isinstance(part, Among):
            cells[part.attribute] = cells.get(part.attribute, part.codes) | part.codes
    if any(len(codes) == domain[name].size for name, codes in cells.items()):
        return None
    merged: list[Predicate] = [Among(name, codes) for name, codes in cells.items()]
    merged += [part for part in kept if not isinstance(part, Among)]
    return _joined(Any, merged, domain) if merged else _NOBODY


def _joined(kind: type[All | Any], parts: list[Predicate], domain: Domain) -> Predicate | None:
    distinct = sorted(set(parts), key=lambda part: _order(part, domain))
    if not distinct:
        return None
    return distinct[0] if len(distinct) == 1 else kind(tuple(distinct))


def _order(part: Predicate, domain: Domain) -> str:
    match part:
        case Among(attribute=name, codes=codes):
            return f"0 {domain.index(name):06d} {sorted(codes)}"
        case All(parts=parts) | Any(parts=parts):
            inside = " ".join(_order(each, domain) for each in parts)
            return f"{1 if isinstance(part, All) else 2} ({inside})"
        case Not():
            return f"3 {_order(part.part, domain)}"
