"""Findings about the notation of values in a column: codes for missing values, and dates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sfumato.domain import Attribute, Categorical, Unknown
from sfumato.domain.calendar import Grain
from sfumato.domain.raw_values import Code, sorted_codes, swapped
from sfumato.engine.port import ColumnKind, Profile

_MOST_NAMED = 12  # columns in a line
_TO_WRITE = {
    "date": "a date: write its first and its last day as everybody knows them, and the longest cells that answer your "
    "questions (by: day, week, month, quarter or year)",
    "timestamp": "a time stamp: write its first and its last day as everybody knows them, its time zone, and the "
    "longest cells that answer your questions (by: hour, day, ...)",
}


def date_body(profile: Profile, texts: Sequence[Code]) -> dict[str, Any] | None:
    """Return a column of dates without its days, in the form of a domain document; None for another column.

    Args:
        profile: the profile of the column.
        texts: the codes for missing values of the table.
    """
    dates = profile.dates
    formats: dict[str, Any] = {}
    if dates is not None and dates.formats:
        formats = {"format": dates.formats[0] if len(dates.formats) == 1 else list(dates.formats)}
    nullable = profile.missing > 0 or (bool(formats) and dates is not None and dates.others > 0)
    codes = list(sorted_codes(profile.column.name, (*profile.codes, *texts)))
    missing = {"nullable": nullable, "unknown": Unknown.CATEGORY.value, "missing": codes}
    open_days = {"first": None, "last": None}
    match profile.column.kind if dates is None else dates.kind:
        case ColumnKind.DATE:
            return {"type": "date", **open_days, "by": Grain.MONTH.value, **formats, **missing}
        case ColumnKind.TIMESTAMP:
            return {"type": "timestamp", **open_days, "by": Grain.DAY.value, "zone": "UTC", **formats, **missing}
        case _:
            return None


def date_hint(profile: Profile) -> str:
    """Return the hint for a column of dates: the days to declare, and the format of its values."""
    dates = profile.dates
    kind = profile.column.kind if dates is None else dates.kind
    notes = [_TO_WRITE["date" if kind is ColumnKind.DATE else "timestamp"]]
    if dates is None:
        return notes[0]
    if len(dates.formats) > 1:
        notes.append(f"its dates are written in {len(dates.formats)} formats, which are tried in this order")
    notes += [
        f"no day in it is above 12, so {written} may as well be {swapped(written)}: check which one it is"
        for written in dates.ambiguous
    ]
    if dates.others:
        what = (
            "fit no format, and are missing"
            if dates.formats
            else ("are no dates of ISO 8601, such as 2023-12-31, and are counted as unknown")
        )
        notes.append(f"{dates.others:,} of its values {what}")
    return "; ".join(notes)


def codes_hint(profile: Profile) -> str | None:
    """Return the hint about the numbers that the draft treats as missing values; None if there are none."""
    numbers = [str(code) for code in profile.codes if not isinstance(code, str)]
    if not numbers:
        return None
    listed = " and ".join(numbers)
    if len(numbers) == 1:
        words = f"{listed} is far outside the rest and shared by many rows, so the draft takes it for a missing value"
        return f"{words}: if it is a true value, remove it from missing"
    words = f"{listed} are far outside the rest and shared by many rows, so the draft takes them for missing values"
    return f"{words}: if they are true values, remove them from missing"


def number_codes_note(attributes: Iterable[Attribute]) -> str:
    r"""Return a line about the numbers that a description takes for missing values; empty if there are none.

    >>> from sfumato.domain import Integer
    >>> number_codes_note([Integer(name="age", minimum=0, maximum=99, unknown=Unknown.CATEGORY, missing=(999, "?"))])
    'These numbers count as missing: age = 999. Remove true values from missing, and accept again.\n'
    """
    numbers = {each.name: [str(code) for code in each.missing if not isinstance(code, str)] for each in attributes}
    named = [f"{name} = {' or '.join(codes)}" for name, codes in numbers.items() if codes]
    more = f", and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    listed = f"{', '.join(named[:_MOST_NAMED])}{more}"
    return f"These numbers count as missing: {listed}. Remove true values from missing, and accept again.\n" * bool(
        named
    )


def with_codes(attribute: Attribute, profile: Profile, texts: Sequence[Code]) -> Attribute:
    """Return a drafted attribute with the codes of its column and of the table, without codes that are its values."""
    values = set(map(str, attribute.values)) if isinstance(attribute, Categorical) else set()
    codes = (code for code in (*profile.codes, *texts) if str(code) not in values)
    return replace(attribute, missing=tuple(codes))


def codes_of_table(profiles: Sequence[Profile]) -> tuple[Code, ...]:
    """Return the texts that mean missing values in any column."""
    return tuple(dict.fromkeys(code for profile in profiles for code in profile.codes if isinstance(code, str)))


def codes_note(texts: Sequence[Code]) -> str:
    """Return a sentence about the texts that the draft treats as missing values."""
    words = ("a blank text" if text == "" else repr(text) for text in texts)
    return f"The draft takes these texts for missing values, and says so under 'missing': {', '.join(words)}."


def one_spelling(values: Sequence[object]) -> tuple[tuple[str | bool, ...], tuple[tuple[str, str], ...]]:
    """Merge values that differ by case or blanks only; return the values, and other texts with their values.

    Among several spellings, the value is one without extra blanks, in the case that most values have.

    >>> one_spelling(["NO", "no", "yes", "yes "])
    (('no', 'yes'), (('NO', 'no'), ('yes ', 'yes')))
    """
    texts = [str(value) for value in values if not isinstance(value, bool)]
    groups: dict[str, list[str]] = {}
    for text in texts:
        groups.setdefault(" ".join(text.split()).casefold(), []).append(text)
    styles = Counter(map(_style, texts))
    chosen = {
        key: min(group, key=lambda text: (text != " ".join(text.split()), -styles[_style(text)], text))
        for key, group in groups.items()
    }
    spellings = ((text, chosen[key]) for key, group in groups.items() for text in group if text != chosen[key])
    booleans = (value for value in values if isinstance(value, bool))
    return (*booleans, *chosen.values()), tuple(spellings)


def _style(text: str) -> str:
    return "lower" if text.islower() else "upper" if text.isupper() else "title" if text.istitle() else "other"


def spellings_hint(attribute: Attribute) -> str | None:
    """Return the hint about spellings that the draft treats as one value; None if there are none."""
    if not isinstance(attribute, Categorical) or not attribute.spellings:
        return None
    groups = Counter(value for _, value in attribute.spellings)
    words = ", ".join(
        " and ".join(repr(text) for text, of in attribute.spellings if of == value) + f" as {value!r}"
        for value in groups
    )
    return f"some values differ by case or blanks only, so the draft reads {words}: if they differ, list them in values"
