"""The form of raw values in a table: undeclared and missing values, spellings of a value, and formats of dates."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from itertools import product
from typing import Final, TypeAlias

from sfumato.errors import DomainError

Code: TypeAlias = str | int | float

EXCEL = "excel"
"""The format of dates that are numbers of days, as spreadsheets store them."""
EXCEL_DAYS = (61, 73109)
"""The first and the last serial that is read: 1900-03-01 and 2100-02-28.  Excel's earlier days are wrong by one."""
EXCEL_START = datetime(1899, 12, 30)  # noqa: DTZ001 - what clocks show has no zone
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
          "November", "December")  # fmt: skip
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_FIRST_OF_1900S = 69  # two-digit years from here on are in the 20th century, as in POSIX


class Unknown(StrEnum):
    """The treatment of a value outside the declared cells, and of a missing value if the attribute is not nullable."""

    CATEGORY = "category"  # counts in a cell of its own, the last
    DROP = "drop"  # drops the whole row, for all attributes
    CLAMP = "clamp"  # numbers and dates only: moves the value to the nearest bound; a missing value drops the row


def sorted_codes(name: str, codes: Iterable[Code], declared: Collection[Code] = ()) -> tuple[Code, ...]:
    """Return codes for missing values without repetitions, numbers first.

    Raises:
        DomainError: a code is neither text nor a finite number, or is a declared value.

    >>> sorted_codes("age", ["?", 999, -9.0, 999])
    (-9, 999, '?')
    """
    if isinstance(codes, str):
        raise DomainError(f"the codes for missing values of {name!r} are a list, such as [999, '?']", culprit=codes)
    unique: dict[Code, None] = {}
    for code in codes:
        if isinstance(code, bool) or not isinstance(code, str | int | float):
            raise DomainError(f"a code for missing values of {name!r} is a number or text in quotes", culprit=code)
        if isinstance(code, float) and not math.isfinite(code):
            raise DomainError(f"write the code {code} for missing values of {name!r} in quotes", culprit=code)
        unique[int(code) if isinstance(code, float) and code.is_integer() else code] = None
    if twice := set(map(str, unique)) & set(map(str, declared)):
        raise DomainError(
            f"{name!r} declares {min(twice)!r} as a value and as missing; an attribute's own list, such as missing: "
            "[], takes the place of the list of the table",
            culprit=name,
        )
    numbers, texts = ([code for code in unique if isinstance(code, str) is text] for text in (False, True))
    return (*sorted(numbers), *sorted(texts))


def sorted_spellings(
    name: str, spellings: Iterable[tuple[str, str]], declared: Collection[object]
) -> tuple[tuple[str, str], ...]:
    """Return pairs of a text and the declared value that it means, in the order of the texts.

    Raises:
        DomainError: a value is not declared as text, or a text is a declared value itself or means two values.
    """
    pairs = sorted(set(spellings))
    for text, value in pairs:
        if value not in declared or not isinstance(value, str):
            raise DomainError(f"{name!r} has spellings of {value!r}, which is none of its values", culprit=value)
        if text in declared:
            raise DomainError(f"{name!r} declares {text!r} as a value and as a spelling", culprit=text)
    if len({text for text, _ in pairs}) < len(pairs):
        raise DomainError(f"{name!r} has a spelling of two values", culprit=name)
    return tuple(pairs)


def is_missing(text: str | None, codes: Collection[Code], *, numeric: bool) -> bool:
    """Return whether a text means a missing value.

    Args:
        text: the text of a cell.
        codes: the codes of the attribute.
        numeric: true if the attribute has numbers, so that 999.0 is the code 999.

    >>> is_missing("999.0", [999], numeric=True), is_missing("n/a", ["n/a"], numeric=True)
    (True, True)
    """
    if text is None or (not text.strip(" \t") and "" in codes) or text in codes:
        return True
    numbers = [code for code in codes if not isinstance(code, str)]
    if not numeric:
        return text in map(str, numbers)
    try:
        return bool(numbers) and float(text) in numbers
    except ValueError:
        return False


def _letters(words: Iterable[str]) -> str:
    """Return the pattern of words in any case.

    >>> _letters(["May", "am"])
    '([Mm][Aa][Yy]|[Aa][Mm])'
    """
    each = ("".join(f"[{letter.upper()}{letter.lower()}]" for letter in word) for word in words)
    return f"({'|'.join(each)})"


@dataclass(frozen=True)
class DatePart:
    """A part of a date as text: its pattern for each width, the longest last."""

    patterns: dict[int, str]
    digits: bool

    @property
    def pattern(self) -> str:
        """The pattern of all widths."""
        return f"({'|'.join(reversed(self.patterns.values()))})"


def _words(words: Collection[str]) -> DatePart:
    widths = sorted({len(word) for word in words})
    return DatePart({width: _letters([word for word in words if len(word) == width]) for width in widths}, digits=False)


DIRECTIVES: Final = {
    "Y": DatePart({4: "[0-9]{4}"}, digits=True),
    "y": DatePart({2: "[0-9]{2}"}, digits=True),
    "m": DatePart({1: "[1-9]", 2: "(0[1-9]|1[0-2])"}, digits=True),
    "d": DatePart({1: "[1-9]", 2: "(0[1-9]|[12][0-9]|3[01])"}, digits=True),
    "H": DatePart({1: "[0-9]", 2: "([01][0-9]|2[0-3])"}, digits=True),
    "I": DatePart({1: "[1-9]", 2: "(0[1-9]|1[0-2])"}, digits=True),
    "M": DatePart({2: "[0-5][0-9]"}, digits=True),
    "S": DatePart({2: "[0-5][0-9]"}, digits=True),
    "f": DatePart({width: f"[0-9]{{{width}}}" for width in range(1, 10)}, digits=True),
    "b": _words([month[:3] for month in MONTHS]),
    "B": _words(MONTHS),
    "a": _words([day[:3] for day in _WEEKDAYS]),
    "A": _words(_WEEKDAYS),
    "p": _words(["AM", "PM"]),
    "z": DatePart({1: "(Z|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)"}, digits=False),
}
"""The directives of a format of dates, which mean what they mean to Python's ``strptime``."""


@dataclass(frozen=True)
class DateFormat:
    """A format of dates, such as ``%d.%m.%Y``, or ``excel``.

    Days, months and hours have one digit or two, unless another number follows or precedes them directly.

    >>> DateFormat("%d.%m.%Y").read("1.2.2000"), DateFormat("%B %d, %Y").read("May 31, 2000")
    (datetime.datetime(2000, 2, 1, 0, 0), datetime.datetime(2000, 5, 31, 0, 0))
    >>> DateFormat("%m/%d/%y").read("02/30/99") is None, DateFormat("excel").read("36526.5")
    (True, datetime.datetime(2000, 1, 1, 12, 0))
    """

    text: str

    def __post_init__(self) -> None:
        if self.is_serial:
            return
        named = [name for name, field in self.parts if field is not None]
        hours = {"H", "I"} & set(named)
        reasons = {
            "it names a part twice": len(set(named)) < len(named),
            "it needs %Y or %y": len({"Y", "y"} & set(named)) != 1,
            "it names the month twice": len({"m", "b", "B"} & set(named)) > 1,
            "%I and %p need each other, without %H": ("I" in named) != ("p" in named) or len(hours) > 1,
            "minutes need hours": "M" in named and not hours,
            "seconds need minutes": bool({"S", "f"} & set(named)) and "M" not in named,
            "%z stands last, behind a time": "z" in named and (self.parts[-1][0] != "z" or not hours),
            "it swaps month and day of a date of ISO 8601": self.text.startswith("%Y-%d-%m"),
            "a day needs its month": "d" in named and not {"m", "b", "B"} & set(named),
        }
        if wrong := [reason for reason, is_wrong in reasons.items() if is_wrong]:
            raise DomainError(f"{self.text!r} is no format of dates: {wrong[0]}", culprit=self.text)

    @property
    def is_serial(self) -> bool:
        """True if dates are numbers of days."""
        return self.text == EXCEL

    @cached_property
    def parts(self) -> tuple[tuple[str, DatePart | None], ...]:
        """The directives with their fields, and the text between them.

        Raises:
            DomainError: a directive is unknown.
        """
        parts: list[tuple[str, DatePart | None]] = []
        for directive, literal in re.findall("%(.|$)|([^%]+)", self.text):
            if literal:
                parts.append((literal, None))
            elif directive in DIRECTIVES:
                parts.append((directive, DIRECTIVES[directive]))
            else:
                known = ", ".join(f"%{name}" for name in DIRECTIVES)
                raise DomainError(
                    f"{self.text!r} is no format of dates: %{directive} is unknown; {known} are known, and the word "
                    f"{EXCEL}",
                    culprit=self.text,
                )
        digits = [field is not None and field.digits for _, field in parts]
        for place, (name, field) in enumerate(parts):
            neighbors = digits[place - 1 : place] + digits[place + 1 : place + 2]
            if field is not None and len(field.patterns) > 1 and field.digits and any(neighbors):
                longest = max(field.patterns)
                parts[place] = (name, DatePart({longest: field.patterns[longest]}, digits=True))
        return tuple(parts)

    @cached_property
    def pattern(self) -> str:
        """The pattern of such dates, which does not check the day of a month."""
        return "".join(literal(text) if field is None else field.pattern for text, field in self.parts)

    @property
    def has_time(self) -> bool:
        """True if the format has a time of the day."""
        return any(field is not None and name in "HI" for name, field in self.parts)

    @cached_property
    def _groups(self) -> re.Pattern[str]:
        named = (literal(text) if field is None else f"(?P<{text}>{field.pattern})" for text, field in self.parts)
        return re.compile("".join(named))

    def read(self, text: str) -> datetime | None:
        """Return the clock time that a text states, without its UTC offset; None if it states none."""
        if self.is_serial:
            return _read_serial(text)
        match = self._groups.fullmatch(text)
        if match is None:
            return None
        values = match.groupdict()
        year = int(values.get("Y") or values["y"])
        if "y" in values:
            year += 1900 if year >= _FIRST_OF_1900S else 2000
        word = (values.get("b") or values.get("B") or "").title()[:3]
        month = [each[:3] for each in MONTHS].index(word) + 1 if word else int(values.get("m") or 1)
        hour = int(values.get("H") or values.get("I") or 0)
        if "p" in values:
            hour = hour % 12 + (12 if values["p"].upper() == "PM" else 0)
        try:
            return datetime(year, month, int(values.get("d") or 1), hour, int(values.get("M") or 0))  # noqa: DTZ001
        except ValueError:
            return None


def refuse_formats(name: str, formats: Sequence[str], *, zoned: bool) -> None:
    """Refuse invalid formats of dates, and a UTC offset in the format of an attribute without a zone.

    Raises:
        DomainError: a format is wrong.
    """
    for text in formats:
        named = {part for part, field in DateFormat(text).parts if field is not None}
        if "z" in named and not zoned:
            raise DomainError(
                f"the format {text!r} of {name!r} has a UTC offset, so its day depends on a zone; declare the column "
                "as a timestamp with a zone",
                culprit=text,
            )


def _read_serial(text: str) -> datetime | None:
    try:
        serial = float(text)
    except ValueError:
        return None
    if not EXCEL_DAYS[0] <= serial < EXCEL_DAYS[1] + 1:
        return None
    return EXCEL_START + timedelta(days=math.floor(serial), minutes=math.floor(serial % 1 * 1440 + 1e-6))


def literal(text: str) -> str:
    """Return the pattern of exactly this text, the same for all engines.

    >>> literal("a.b")
    'a[.]b'
    """
    return "".join(f"[{mark}]" if mark in ".?*+()|{}$/" else f"\\{mark}" if mark in "[]\\^" else mark for mark in text)


# --- formats of a column, for a draft ---------------------------------------------------------------------------------

_DAYS = (
    "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d", "%d %m %Y",
    "%d.%m.%y", "%m/%d/%y", "%d/%m/%y", "%d-%m-%y", "%m-%d-%y", "%b %d %Y", "%b %d, %Y", "%B %d %Y", "%B %d, %Y",
    "%d %b %Y", "%d %B %Y", "%d-%b-%Y", "%d-%B-%Y", "%d-%b-%y", "%d/%b/%Y", "%d%b%Y", "%a %b %d %Y",
    "%A, %B %d, %Y", "%b-%d-%Y", "%b %Y", "%B %Y", "%b-%Y", "%m/%Y", "%Y/%m", "%Y-%m",
)  # fmt: skip
_TIMES = ("", " %H:%M", " %H:%M:%S", "T%H:%M:%S", " %I:%M %p", " %I:%M:%S %p", " %H:%M:%S%z", " %H:%M:%S.%f",
          "T%H:%M:%S%z", ", %H:%M")  # fmt: skip
_FORMATS = [DateFormat(day + time) for day, time in product(_DAYS, _TIMES)]
_LIKELY = re.compile(r".*\d.*[./ -].*\d.*|[A-Za-z]{3,9}[ -]\d{4}|\d{1,2}[A-Za-z]{3}\d{4}")
_PROBES = 50  # texts at each end that determine the formats to try
_MOST_FORMATS = 6
_LEAST_SHARE = 0.005  # share of the texts; fewer texts in a format are typing errors
_NAMES = re.compile(r"(^|[^a-z])(date|dob|birthday|birthdate|datum|day)([^a-z]|$)")


@dataclass(frozen=True)
class GuessedFormats:
    """The formats of dates in some texts, the most frequent first, and a flag for times of the day."""

    formats: tuple[str, ...]
    has_time: bool


def named_like_dates(name: str) -> bool:
    """Return whether the name of a column suggests dates.

    >>> named_like_dates("visitDate"), named_like_dates("updated")
    (True, False)
    """
    words = re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return _NAMES.search(words) is not None


def guess_formats(texts: Sequence[str], share: float, iso: str) -> GuessedFormats | None:
    """Return formats that read most of the given distinct texts; None if the texts are no dates.

    Args:
        texts: distinct values of a column.
        share: the smallest share of the texts that must be dates.
        iso: the pattern of dates that need no format.

    >>> guess_formats(["1/2/2000", "1/31/2000", "Jan 1 2000"], 0.9, "")
    GuessedFormats(formats=('%m/%d/%Y', '%b %d %Y'), has_time=False)
    """
    unread = [text for text in texts if re.fullmatch(iso, text) is None]
    if not texts or sum(_LIKELY.fullmatch(text) is None for text in unread) > (1 - share) * len(texts):
        return None
    formats: list[str] = []
    has_time = False
    candidates = [each for each in _FORMATS if any(each.read(text) for text in unread[:_PROBES] + unread[-_PROBES:])]
    while unread and candidates and len(formats) < _MOST_FORMATS:
        best = max(candidates, key=lambda each: sum(each.read(text) is not None for text in unread))
        moments = [moment for text in unread if (moment := best.read(text)) is not None]
        if len(moments) < max(1, _LEAST_SHARE * len(texts)):
            break
        formats.append(best.text)
        has_time = has_time or any(moment.hour or moment.minute for moment in moments)
        unread = [text for text in unread if best.read(text) is None]
    return GuessedFormats(tuple(formats), has_time) if len(unread) <= (1 - share) * len(texts) else None


def swapped(text: str) -> str | None:
    """Return a format with day and month swapped; None if a month has a name or there is no day.

    >>> swapped("%d.%m.%Y"), swapped("%b %d, %Y"), swapped("%Y/%m/%d")
    ('%m.%d.%Y', None, None)
    """
    if text.startswith("%Y") or "%d" not in text or "%m" not in text:
        return None
    return text.replace("%d", "%0").replace("%m", "%d").replace("%0", "%m")
