"""Names of people and datasets: valid names, and spellings that mean the same name."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from sfumato.errors import InputError

_LONGEST = 200


def spelled(name: str, known: Iterable[str]) -> str:
    r"""Return the known spelling of a name, or else the name without outer blanks and in Unicode's compatible form.

    Two spellings mean one person if they differ only in compatible forms, case or outer blanks.

    >>> spelled(" Ann ", ["bob", "ANN"]), spelled("Zoe\u0308 ", [])
    ('ANN', 'Zo\xeb')
    """
    plain, names = unicodedata.normalize("NFKC", name).strip(), tuple(known)
    return name if name in names else next((each for each in names if _folded(each) == _folded(plain)), plain)


def _folded(name: str) -> str:
    """Return a form that is equal for all spellings of a name; case folding may leave characters to normalize."""
    plain = unicodedata.normalize("NFKC", name).strip()
    return unicodedata.normalize("NFKC", plain.casefold()).casefold()


def plain_name(name: str) -> str:
    r"""Return a dataset's name in Unicode's compatible form, which is unique among datasets.

    >>> plain_name("\N{LATIN SMALL LIGATURE FI}sh")
    'fish'
    """
    return unicodedata.normalize("NFKC", name)


def refuse_holder(name: str) -> None:
    """Refuse a text that cannot name a person.

    Raises:
        InputError: it is not 1 to 200 printable characters, not all of them blanks.
    """
    if not name.strip() or len(name) > _LONGEST or not name.isprintable():
        raise InputError(f"a key is named by 1 to {_LONGEST} printable characters", culprit=name)


def refuse_name(name: str) -> None:
    """Refuse a text that cannot name a dataset.

    Raises:
        InputError: it is not letters, digits and _, or too long.
    """
    if not name.isidentifier() or len(name) > _LONGEST:
        raise InputError("a dataset is named like a variable: letters, digits and _", culprit=name)
