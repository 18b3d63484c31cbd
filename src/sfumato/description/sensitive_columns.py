"""Columns that identify people: row numbers, identifiers, names of people and free text.

A draft omits such columns.  The decision uses the values of a column first, and its name second.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from sfumato.engine.port import ColumnKind, Profile
from sfumato.engine.profile import named_like_people


class FindingKind(StrEnum):
    """The kinds of findings, the most harmful first."""

    IDENTIFIERS = "identifiers"
    NAMES = "names"
    FREE_TEXT = "free-text"
    UNIT = "unit"
    VALUES = "values"
    BOUNDS = "bounds"
    DAYS = "days"
    POINTS = "points"
    BINS = "bins"


_FEW_ROWS = 20  # rows that one person may have, also in a small table
_THINGS = frozenset(
    ("school", "hospital", "clinic", "ward", "class", "course", "product", "item", "article", "store", "shop", "region",
     "city", "country", "state", "county", "district", "company", "department", "team", "airport", "airline", "plane",
     "flight", "station", "site", "page", "code", "zip", "postal", "category", "drug", "batch", "room", "channel")
)  # fmt: skip
_INDEXES = frozenset(("row", "rows", "index", "rownames", "row_names", "row.names", "row_number", "rownum", "rowid"))
_NAMELESS = frozenset(("unnamed: 0", "__index_level_0__"))  # names that pandas gives to an index without a name
_UNIQUE = 0.9  # smallest share of distinct values in a column that identifies rows
_LABELS = 0.8  # the same for texts
_LEAST_ROWS = 10  # fewer rows do not distinguish an identifier from other values
_LEAST_NUMBERED = 20  # the same for whole numbers from 1, such as twelve months
_DIGITS = 5  # fewest digits of identifiers without a matching name
_SPREAD = 0.12  # largest difference between the ranks of identifiers and of evenly spread numbers
_YEARS = (1500, 2200)
_WORDS_OF_TEXT = 4.0  # average words in a sentence
_MOSTLY = 0.9
_NAMED = 0.4  # smallest share of common first names in a column of names of people

_CONTENT = (
    ("e-mail addresses", re.compile(r"[^@\s]+@[^@\s]+\.[A-Za-z]{2,}")),
    ("addresses of web pages", re.compile(r"(https?://|www\.)\S+")),
    ("universally unique ids", re.compile(r"\{?[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\}?")),
    ("hashes", re.compile(r"([0-9a-fA-F]{32}|[0-9a-fA-F]{40}|[0-9a-fA-F]{64})")),
    ("numbers of bank accounts", re.compile(r"[A-Z]{2}[0-9]{2}( ?[0-9A-Z]{4}){3,7}( ?[0-9A-Z]{1,3})?")),
    ("addresses of computers", re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){3}")),
    ("telephone numbers", re.compile(r"(?=(.*[0-9]){7})(\+|\(|[0-9]{3}[-/ .])[-0-9 ()/.x]{6,20}")),
)
_SIGN = r"(%|€|\$|£|¥|EUR|USD|GBP|CHF|kr|k)"
_MEASURES = (
    ("numbers with other texts among them: if these stand for a missing value, list them in missing", re.compile(
        "-?[0-9]*[.]?[0-9]+"
    )),
    ("numbers with a sign, a comma or brackets: write plain numbers into the table", re.compile(
        rf"(-?{_SIGN} ?-?[0-9][0-9.,' ]*|-?[0-9][0-9.,' ]*? ?{_SIGN}|\([0-9][0-9.,' ]*\)|-?[0-9][0-9.,']*)"
    )),
    ("times of the day: write the hour as a number", re.compile(
        "[0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?( ?[AaPp][Mm])?"
    )),
    ("two numbers in one: write each into a column of its own", re.compile(r"[0-9]{1,4} ?/ ?[0-9]{1,4}")),
)  # fmt: skip
_NAME_WORDS = frozenset(
    ("firstname", "lastname", "surname", "forename", "givenname", "familyname", "middlename", "fullname", "maidenname",
     "nickname", "vorname", "nachname", "familienname", "prenom", "apellido", "apellidos", "cognome", "achternaam",
     "voornaam", "patientname", "personname", "studentname", "customername", "clientname", "username", "employeename",
     "membername", "contactname", "teachername", "doctorname", "first", "last")
)  # fmt: skip
_MAYBE_NAMES = frozenset(("name", "names", "nom", "nombre", "naam", "person", "people"))
_NAME = re.compile(r"[^\W\d_][^\d_@/]{0,60}")
_SURNAME_FIRST = re.compile(r"[^\W\d_][\w' -]+, (Mrs?|Miss|Ms|Dr|Master|Rev|[^\W\d_])\b.*")
_TIMES = frozenset(("year", "yr", "years", "month", "day", "week", "date", "time", "age", "hour", "quarter", "decade"))
_COMMON_NAMES = """
aaron adam alan albert alex alexander alice amanda amy ana andrea andreas andrew angela anita ann anna anne anthony
antonio arthur barbara ben benjamin bernd betty bob brandon brenda brian bruce carl carla carlos carmen carol caroline
catherine charles chloe chris christian christina christine christopher clara claudia cynthia dan daniel david deborah
dennis diana diane dieter donald donna dorothy edward elena elizabeth ella emily emma eric erik eva evelyn felix fiona
frank franz fred gary george gerald gloria grace greta hanna hannah hans harold harry heather heinz helen helena helga
henry ian ines isabel isabella jack jacob jakob james jan jana jane janet jason jean jeff jeffrey jennifer jessica
jill jim joan joe john jonas jonathan jordan jorge jose joseph josh joshua joyce juan judith judy julia julian julie
karen karl kate katharina katherine kathleen kathryn keith kelly kenneth kevin kim klaus lars larry laura lea lena leo
leon leonie liam lina linda lisa louis louise lucas lucia lucy luis luisa lukas lydia manuel marco margaret maria
marie mario mark markus marta martha martin mary matthew max maximilian megan melissa mia michael michelle miguel mike
monika nancy natalie nicholas nicole nina noah nora oliver olivia otto owen pamela patricia patrick paul paula paulo
pedro peter petra philip pierre rachel ralph raymond rebecca richard robert roger ronald rosa rose roy ruth ryan
sabine sam samantha samuel sandra sara sarah scott sean sebastian sharon simon sofia sophia sophie stefan stephanie
stephen steven susan susanne teresa theresa thomas tim timothy tom tony ursula uwe victor victoria vincent virginia
walter werner wilhelm william wolfgang yusuf zoe ahmed ali amir fatima mohamed mohammed omar wei li ming yuki hiroshi
jurgen gunther gunter jorg bjorn soren uwe heike ulrike renate birgit anja katja silke dirk holger rainer frauke
lukasz agnieszka katarzyna piotr pawel jose rene renee francois anais elodie celine aurelie jerome cagla mehmet mustafa
ayse emre fatma lars sven kjell astrid ingrid goran zoran dragan milan jiri tomas pavel
raj priya ivan olga natalia dmitri anton
"""
_FIRST_NAMES = frozenset(_COMMON_NAMES.split())


@dataclass(frozen=True)
class People:
    """A column that seems to name people.

    Attributes:
        column: the name of the column.
        values: the number of its distinct values.
        rows: the number of rows with a value.
        most: the largest number of rows per value.
        at_99: a number of rows that 99 % of the values do not exceed.
    """

    column: str
    values: int
    rows: int
    most: int
    at_99: int

    def __str__(self) -> str:
        return (
            f"{self.column} has {self.values:,} values in {self.rows:,} rows, at most {self.most:,} rows each, and for "
            f"99 % of the values at most {self.at_99:,}"
        )


def people_of(profiles: Sequence[Profile]) -> People | None:
    """Return the column that seems most to name people with several rows each; None if there is none."""
    candidates = [
        profile
        for profile in profiles
        if profile.repeats and profile.repeats[-1][0] > 1 and not crowded(profile) and not _of_things(profile)
    ]
    if not candidates:
        return None
    best = max(candidates, key=lambda profile: (named_like_people(profile.column.name), profile.distinct))
    beyond, at_99 = best.distinct, 0
    for rows, values in best.repeats:
        if beyond > best.distinct / 100:
            at_99 = rows
        beyond -= values
    return People(best.column.name, best.distinct, best.held, best.repeats[-1][0], at_99)


def _of_things(profile: Profile) -> bool:
    """Return whether an id names things, such as schools: by its name, or because each value has many rows."""
    if named_like_people(profile.column.name) != 1:
        return False
    many = profile.held > _FEW_ROWS * profile.distinct
    return many or not _THINGS.isdisjoint(_words(profile.column.name))


def crowded(profile: Profile) -> bool:
    """Return whether a value has more rows than a person has, in an id whose name does not mention people."""
    crowd = max(_FEW_ROWS, profile.held / 10)
    return bool(profile.repeats) and profile.repeats[-1][0] > crowd and named_like_people(profile.column.name) == 1


def sensitive_kind(profile: Profile) -> tuple[FindingKind, str] | None:
    """Return a kind of finding and a reason if a column identifies people; None if it does not.

    Args:
        profile: the profile of the column.
    """
    if not profile.distinct or profile.dates is not None:
        return None
    if reason := _row_number(profile):
        return FindingKind.IDENTIFIERS, reason
    numbers = profile if profile.numbers is None else profile.numbers
    if numbers.column.kind is ColumnKind.INTEGER:
        reason = _integer_identifier(numbers)
        return None if reason is None else (FindingKind.IDENTIFIERS, reason)
    return _text(profile) if numbers.column.kind is ColumnKind.TEXT else None


def measured_text(profile: Profile) -> str | None:
    """Return the kind of measurements stored as text in a column, with the remedy; None for other texts."""
    texts = [str(value) for value in (profile.sample if profile.values is None else profile.values)]
    if profile.column.kind is not ColumnKind.TEXT or not texts:
        return None
    if _share(texts, re.compile("0[0-9]+|[0-9]+")) >= _MOSTLY:  # codes with leading zeros
        return None
    return next((words for words, pattern in _MEASURES if _share(texts, pattern) >= _MOSTLY), None)


def detail_of(kind: FindingKind, reason: str) -> str:
    """Return the reason if it adds information to the kind."""
    return reason if kind is FindingKind.IDENTIFIERS else ""


def _words(name: str) -> list[str]:
    return [word.casefold() for word in re.split(r"[\W_]+|(?<=[a-z])(?=[A-Z])", name) if word]


def _row_number(profile: Profile) -> str | None:
    """Return the reason if a column only numbers the rows; None if it does not.

    A column without a name does so if its values are all different.  Other columns do so if the values count the rows
    from 0 or 1, and the column has many rows or is named like an index.
    """
    name = profile.column.name.casefold()
    nameless = profile.column.header == "" or name in _NAMELESS
    if profile.missing or profile.distinct != profile.held:
        return None
    low, high = profile.minimum, profile.maximum
    counts = isinstance(low, int) and isinstance(high, int) and low in (0, 1) and high - low + 1 == profile.held
    if counts and (nameless or name in _INDEXES or (profile.held >= _LEAST_NUMBERED and not _of_time(profile))):
        return "it numbers the rows" + (", and has no name in the table" if nameless else "")
    if nameless and profile.column.kind in (ColumnKind.INTEGER, ColumnKind.TEXT):
        return "it has no name in the table, and a different value in every row, like an index"
    return None


def _of_time(profile: Profile) -> bool:
    return bool(_TIMES.intersection(_words(profile.column.name)))


def _integer_identifier(profile: Profile) -> str | None:
    """Return the reason if whole numbers identify rows; None if they are measurements or codes."""
    low, high = profile.minimum, profile.maximum
    if not isinstance(low, int) or not isinstance(high, int):
        return None
    if profile.held < _LEAST_ROWS or profile.distinct < _UNIQUE * profile.held or _of_time(profile):
        return None
    own = "nearly every row has a number of its own"
    if named_like_people(profile.column.name):
        return own
    unique = profile.distinct == profile.held
    years = _YEARS[0] <= low and high <= _YEARS[1]
    if unique and high - low + 1 == profile.held >= _LEAST_NUMBERED and not years:
        return "it numbers the rows"
    if len(str(low)) == len(str(high)) >= _DIGITS and low > 0 and _evenly_spread(profile, low, high):
        return own
    return None


def _evenly_spread(profile: Profile, low: int, high: int) -> bool:
    """Return whether numbers are spread over their range as evenly as identifiers are."""
    tiles = profile.tiles
    if high - low < profile.held or not tiles or len(set(tiles)) < len(tiles):
        return False
    gaps = [abs((tile - low) / (high - low) - place / len(tiles)) for place, tile in enumerate(tiles)]
    return max(gaps) < _SPREAD


def _text(profile: Profile) -> tuple[FindingKind, str] | None:
    texts = [str(value) for value in (profile.sample if profile.values is None else profile.values)]
    if profile.held < _LEAST_ROWS or not texts:
        return None
    unique = profile.distinct / profile.held
    for content, pattern in _CONTENT:
        if profile.distinct >= _LEAST_ROWS and _share(texts, pattern) >= _MOSTLY:
            return FindingKind.IDENTIFIERS, f"it has {content}"
    if _names_people(profile, texts, unique):
        return FindingKind.NAMES, "it seems to have names of people"
    words = sum(len(text.split()) for text in texts) / len(texts)
    if words >= _WORDS_OF_TEXT and profile.distinct > _LEAST_ROWS and (unique > 1 / 2 or profile.values is None):
        return FindingKind.FREE_TEXT, "it seems to have free text"
    if unique >= _LABELS and profile.distinct > _LEAST_ROWS and measured_text(profile) is None:
        return FindingKind.IDENTIFIERS, "nearly every row has a text of its own"
    return None


def _share(texts: Sequence[str], pattern: re.Pattern[str]) -> float:
    return sum(pattern.fullmatch(text.strip()) is not None for text in texts) / len(texts)


def _without_accents(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text.casefold().replace("ł", "l").replace("ø", "o"))
    return "".join(letter for letter in plain if not unicodedata.combining(letter))


def _names_people(profile: Profile, texts: Sequence[str], unique: float) -> bool:
    """Return whether texts are names of people: by common first names among them, or by the name of the column."""
    if profile.distinct <= 2 or _share(texts, _NAME) < _MOSTLY:  # noqa: PLR2004 - as yes and no are
        return False
    tokens = [re.split(r"[\W_]+", _without_accents(text)) for text in texts]
    if sum(len(words) for words in tokens) / len(texts) > 2 * _WORDS_OF_TEXT:
        return False
    named = sum(not _FIRST_NAMES.isdisjoint(words) for words in tokens) / len(texts)
    if profile.distinct >= _LEAST_ROWS and (named >= _NAMED or _share(texts, _SURNAME_FIRST) >= _MOSTLY):
        return True
    words = _words(profile.column.name)
    if "".join(words) in _NAME_WORDS or "".join(words[:2]) in _NAME_WORDS:
        return True
    return "".join(words) in _MAYBE_NAMES and unique > 1 / 5 and profile.distinct > _LEAST_ROWS
