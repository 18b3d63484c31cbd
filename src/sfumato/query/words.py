"""A query in words, for whoever reads the journal: public names and declared values only."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from sfumato.domain import Attribute, Categorical, Domain, Integer
from sfumato.domain.attribute import null_code
from sfumato.domain.predicate import All, Among, Any, Not, Predicate
from sfumato.query.normal import normal
from sfumato.query.question import Query

_LONGEST = 300
_LISTED = 12  # cells, or stretches of cells, that a condition names


def in_words(query: Query, domain: Domain) -> str:
    """What is counted, by what, and where; at most 300 characters.

    >>> from sfumato.domain import Unknown
    >>> from sfumato.query.question import count
    >>> ages = Domain((Integer(name="age", minimum=0, maximum=99, unknown=Unknown.CLAMP),))
    >>> in_words(count(Among("age", frozenset(range(18, 66)))), ages)
    'count(*) where age in 18 to 65'
    """
    asked = ", ".join(map(str, query.aggregates))
    groups = [*query.by, *(f"{name} as found in the data" for name in query.discovered)]
    by = f" by {', '.join(groups)}" if groups else ""
    where = normal(query.where, domain)
    asked += "" if query.truncation is None else " and rows dropped by the bound"
    text = asked + by + ("" if where is None else f" where {_condition(where, domain)}")
    shown = "".join(letter if letter.isprintable() else "?" for letter in text[: _LONGEST + 1])
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 4]} ..."


def _condition(where: Predicate, domain: Domain) -> str:
    match where:
        case Among(attribute=name, codes=codes):
            return _among(domain[name], codes)
        case Any(parts=()):
            return "nothing holds"
        case All(parts=parts) | Any(parts=parts):
            joined = [_condition(part, domain) for part in parts[:_LISTED]]
            word = " and " if isinstance(where, All) else " or "
            more = f"{word}{len(parts) - _LISTED} more conditions" if parts[_LISTED:] else ""
            return f"({word.join(joined)}{more})"
        case Not(part=part):
            return f"not {_condition(part, domain)}"


def _among(attribute: Attribute, codes: AbstractSet[int]) -> str:
    """The cells, or those that are left out, whichever are fewer to name."""
    named, left = (list(_stretches(attribute, wanted)) for wanted in (codes, set(range(attribute.size)) - set(codes)))
    word, shown = ("in", named) if len(named) <= len(left) else ("not in", left)
    more = f" and {len(shown) - _LISTED} more" if shown[_LISTED:] else ""
    return f"{attribute.name} {word} {', '.join(shown[:_LISTED])}{more}"


def _stretches(attribute: Attribute, codes: AbstractSet[int]) -> Iterator[str]:
    """Declared cells of numbers that follow each other as one, every other cell by itself."""
    declared = sorted(code for code in codes if code < attribute.declared)
    if isinstance(attribute, Categorical):
        yield from (str(attribute.values[code]) for code in declared)
    else:
        first = [code for code in declared if code - 1 not in codes]
        last = [code for code in declared if code + 1 not in codes or code + 1 == attribute.declared]
        for start, end in zip(first, last, strict=True):
            low, high = attribute.bounds(start)[0], attribute.bounds(end)[1]
            between = "to" if isinstance(attribute, Integer) else "to below"
            yield str(low) if low == high else f"{low} {between} {high}"
    missing = null_code(attribute)
    yield from ("missing" if code == missing else "other" for code in sorted(codes) if code >= attribute.declared)
