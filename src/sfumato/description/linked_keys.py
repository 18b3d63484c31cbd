"""References between tables: columns whose values are keys of another table, by their names and by their values.

Equal numbers prove little if keys count from 1, because ages and row numbers are such numbers too.  So a reference
needs a matching name, or values that hardly any other column has.  In both cases its values must be among the keys.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from sfumato.engine.port import ColumnKind, Profile, ProtectedTable
from sfumato.engine.profile import named_like_people

KEY_WORDS = ("id", "key", "no", "nr", "nbr", "number", "nummer", "num", "kennung", "schluessel", "ref", "code")
GENERIC = KEY_WORDS[:-1]  # names of keys that do not name their table
_PREFIXES = frozenset(("dim", "fact", "fct", "tbl", "table", "t", "stg", "raw"))
_WAREHOUSE_KEY = re.compile("_(sk|fk|pk)$", re.IGNORECASE)
_NO_KEYS = frozenset(("paid", "valid", "covid", "grid", "acid", "said", "solid", "fluid", "hybrid", "rapid", "void"))
_LEAST_DISTINCT = 3
_LEAST_LETTERS = 3  # letters of texts that are keys without a matching name
_FROM_ONE = 100  # keys that start below it may count from 0 or 1
_SPARSE = 3  # numbers in the range per key
_COVERED = 0.3  # smallest share of the keys in a column with the name of a key but of no table


class NameMatch(IntEnum):
    """The strength of the evidence in a column's name that it has keys of a table."""

    NONE = 0
    KEY = 1
    SHORT = 2
    TABLE = 3
    EXACT = 4


_LEAST_SHARE = {
    NameMatch.EXACT: 0.5, NameMatch.TABLE: 0.8, NameMatch.SHORT: 0.95, NameMatch.KEY: 0.98, NameMatch.NONE: 0.98
}  # fmt: skip


def stem(name: str) -> str:
    """Return the letters and digits of a name; umlauts become two letters.

    >>> stem("Schüler_Nr")
    'schuelernr'
    """
    lower = name.casefold()
    for letter, letters in (("ä", "ae"), ("ö", "oe"), ("ü", "ue")):
        lower = lower.replace(letter, letters)
    plain = unicodedata.normalize("NFKD", lower).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]", "", plain)


def singular(table: str) -> str:
    """Return a table's name as its keys use it: ``visit`` for ``visits``, ``customer`` for ``dim_customers``."""
    return _one(_parts(table)[-1])


def _one(name: str) -> str:
    for ending, one in (("ies", "y"), ("sses", "ss"), ("s", "")):
        if name.endswith(ending) and len(name) > len(ending) + 1:
            return name.removesuffix(ending) + one
    return name


def own_key(column: str, table: str) -> bool:
    """Return whether a column has the usual name for the key of its table."""
    names = {f"{_one(each)}{word}" for each in _parts(table) for word in KEY_WORDS}
    return stem(column) in names or column.lower() == "id"


def sounds_like_key(column: str, table: str) -> bool:
    """Return whether the name of a column is typical of keys."""
    words = [word for word in re.split(r"[\W_]+|(?<=[a-z])(?=[A-Z])", column) if word]
    if not words:
        return False
    plain = stem(column)
    return (
        stem(words[-1]) in KEY_WORDS
        or plain.endswith(("nummer", "kennung", "schluessel"))
        or named_like_people(column) > 0
        or plain == singular(table)
        or (_base(plain) != plain and _short(_base(plain), table))
    )


def name_match(column: str, table: str, key: str) -> NameMatch:
    """Return the strength of the evidence in a column's name that it has keys of a table.

    >>> [name_match(each, "patients", "patient_id").name for each in ("patient_id", "patient", "pid", "room_id", "age")]
    ['EXACT', 'TABLE', 'SHORT', 'KEY', 'NONE']
    """
    plain, of_key = stem(_WAREHOUSE_KEY.sub("_key", column)), stem(key)
    if (plain == of_key and of_key not in GENERIC) or plain == f"{singular(table)}{of_key}":
        return NameMatch.EXACT
    base = _base(plain)
    bases = {*_parts(table), *([_base(of_key)] if of_key not in GENERIC else [])}
    if len(base) > 2 and any(_related(base, other) for other in bases):  # noqa: PLR2004 - shorter ones are short names
        return NameMatch.TABLE
    if any(_short(base, other) for other in bases) and (base != plain or len(base) == 2):  # noqa: PLR2004 - as hh
        return NameMatch.SHORT
    return NameMatch.KEY if base != plain or named_like_people(column) else NameMatch.NONE


def _parts(table: str) -> list[str]:
    """Return the name of a table, with and without the prefix of a warehouse."""
    words = [stem(word) for word in re.split(r"[\W_]+", table) if word]
    names = [word for word in words if word not in _PREFIXES]
    return list(dict.fromkeys([stem(table), "".join(names)])) if names else [stem(table)]


def _base(plain: str) -> str:
    """Return a stem without a final word such as id or key."""
    for word in () if plain in _NO_KEYS else sorted(KEY_WORDS, key=len, reverse=True):
        if plain.endswith(word) and len(plain) > len(word):
            return plain.removesuffix(word)
    return plain


def _related(one: str, other: str) -> bool:
    """Return whether two nouns are equal, up to an ending of at most three letters."""
    short, long = sorted((one, other), key=len)
    if len(short) < _LEAST_LETTERS:
        return False
    return (long.startswith(short) and len(long) - len(short) <= 3) or _singulars(one) & _singulars(other) != set()  # noqa: PLR2004


def _singulars(name: str) -> set[str]:
    return {_one(name), *(name.removesuffix(ending) for ending in ("n", "en", "e", "es") if len(name) > 4)}  # noqa: PLR2004


def _short(base: str, table: str) -> bool:
    """Return whether a word is a short form of a name: its letters in order, the first one first."""
    full = stem(table)
    if not base or len(base) > 5 or len(base) >= len(full) or base[0] != full[0]:  # noqa: PLR2004 - as cust of customer
        return False
    letters = iter(full)
    return all(letter in letters for letter in base)


@dataclass(frozen=True)
class Reference:
    """A column with keys of another table, and the share of its values among these keys."""

    column: str
    to: str
    name: NameMatch
    share: float


@dataclass
class ReferenceSearch:
    """A search for values of columns among the keys of other tables, which reads each pair once."""

    tables: Mapping[str, ProtectedTable]
    _texts: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    _shares: dict[tuple[str, ...], float] = field(default_factory=dict)

    def share(self, table: str, column: Profile, to: str, key: Profile) -> float:
        """Return the share of some distinct values of a column that are keys of another table."""
        pair = (table, column.column.name, to, key.column.name)
        if pair not in self._shares:
            texts = self._texts.get(pair[:2])
            if texts is None:
                codes = set(map(str, column.codes))
                read = self.tables[table].distinct_texts(column.column.name)
                texts = self._texts[pair[:2]] = tuple(text for text in read if text.strip() and text not in codes)
            known = self.tables[to].distinct_texts(key.column.name, texts) if texts else ()
            self._shares[pair] = len(known) / len(texts) if texts else 0.0
        return self._shares[pair]

    def reference(self, table: str, column: Profile, to: str, key: Profile) -> Reference | None:
        """Return the reference from a column to the key of a table; None if names and values show none."""
        match = name_match(column.column.name, to, key.column.name)
        if key.column.kind is not column.column.kind or not column.distinct or not _allows(match, column, key):
            return None
        share = self.share(table, column, to, key)
        return Reference(column.column.name, to, match, share) if share >= _LEAST_SHARE[match] else None


def may_be_key(profile: Profile) -> bool:
    """Return whether every row has a different value in a column, so that it may be a key."""
    return (
        profile.column.kind in (ColumnKind.TEXT, ColumnKind.INTEGER)
        and profile.dates is None
        and not profile.missing
        and profile.held == profile.distinct >= 1
    )


def _allows(match: NameMatch, column: Profile, key: Profile) -> bool:
    """Return whether the values of a column may be keys, given the evidence of its name."""
    if match >= NameMatch.SHORT:
        return True
    if min(column.distinct, key.distinct) < _LEAST_DISTINCT or column.distinct > key.distinct:
        return False
    if key.column.kind is ColumnKind.TEXT:
        texts = key.values or key.sample
        return bool(texts) and sum(len(str(text)) for text in texts) >= _LEAST_LETTERS * len(texts)
    low, high = key.minimum, key.maximum
    least, most = column.minimum, column.maximum
    if not all(isinstance(each, int) for each in (low, high, least, most)) or not low <= least <= most <= high:  # type: ignore[operator]
        return False
    if low < _FROM_ONE:  # type: ignore[operator]
        return False
    if high - low >= _SPARSE * key.distinct and column.distinct > 2 * _LEAST_DISTINCT:  # type: ignore[operator]
        return True
    return match is NameMatch.KEY and column.distinct >= _COVERED * key.distinct


def best_references(references: Sequence[Reference]) -> list[Reference]:
    """Return the best reference of each column."""
    best: dict[str, Reference] = {}
    for each in references:
        other = best.get(each.column)
        if other is None or (each.name, each.share) > (other.name, other.share):
            best[each.column] = each
    return list(best.values())
