"""Names of people and datasets: what is a name, and which spellings are one name."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from sfumato.errors import InputError

_LONGEST = 200


def spelled(name: str, known: Iterable[str]) -> str:
    r"""A name as somebody spelled it first who is the same, or else without blanks and in Unicode's compatible form.

    People are told apart by their names: compatible forms, case and blanks around make no difference.

    >>> spelled(" Ann ", ["bob", "ANN"]), spelled("Zoe\u0308 ", [])
    ('ANN', 'Zo\xeb')
    """
    plain, names = unicodedata.normalize("NFKC", name).strip(), tuple(known)
    return name if name in names else next((each for each in names if _folded(each) == _folded(plain)), plain)


def _folded(name: str) -> str:
    """Equal for names that are one; folding the case of a compatible form may leave one that has another."""
    plain = unicodedata.normalize("NFKC", name).strip()
    return unicodedata.normalize("NFKC", plain.casefold()).casefold()


def plain_name(name: str) -> str:
    r"""A dataset's name in Unicode's compatible form, as which no other dataset may have it.

    >>> plain_name("\N{LATIN SMALL LIGATURE FI}sh")
    'fish'
    """
    return unicodedata.normalize("NFKC", name)


def refuse_holder(name: str) -> None:
    """Refuse what is no name of anybody.

    Raises:
        InputError: it is not 1 to 200 printable characters, not all of them blanks.
    """
    if not name.strip() or len(name) > _LONGEST or not name.isprintable():
        raise InputError(f"a key is named by 1 to {_LONGEST} printable characters", culprit=name)


def refuse_name(name: str) -> None:
    """Refuse what is no name of a dataset.

    Raises:
        InputError: it is not letters, digits and _, or too long.
    """
    if not name.isidentifier() or len(name) > _LONGEST:
        raise InputError("a dataset is named like a variable: letters, digits and _", culprit=name)
