"""Fifty-six messy tables and codebooks, each with the right description written by hand.

A column is ``id``, ``name``, ``text``, ``person`` (the unit), ``cat``, ``int``, ``real``, ``date`` or ``none``,
which is left out without a finding.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sfumato.description.domain_fit import Draft, draft_domain
from sfumato.description.sensitive_columns import FindingKind
from sfumato.domain import Categorical, Integer, Real
from sfumato.engine.csv_file import how_written
from sfumato.engine.open import open_table

Column = Callable[[np.random.Generator, int], list[str]]
FIRST, LAST, WORDS = map(
    str.split,
    (
        "Emma Liam Olivia Noah Ava Sofia Lukas Mia Ben Anna Paul Lena Jonas Maria Peter Julia Max Sarah Tim Laura",
        "Miller Schmidt Weber Lopez Rossi Novak Jensen Dubois Kowalski Haas Moreau Brandt Fischer Conti Silva",
        "came late with pain in the left arm after work and was sent home again because nothing broke",
    ),
)


def one_of(*values: str) -> Column:
    return lambda random, rows: [str(each) for each in random.choice(values, rows)]


def numbers(low: int, high: int) -> Column:
    return lambda random, rows: [str(each) for each in random.integers(low, high + 1, rows)]


def unique(low: int, high: int, form: str = "{}") -> Column:
    return lambda random, rows: [form.format(each) for each in random.choice(high - low, rows, replace=False) + low]


def counted(start: int = 1, form: str = "{}") -> Column:
    return lambda _, rows: [form.format(start + place) for place in range(rows)]


def normal(mean: float, spread: float, digits: int = 1) -> Column:
    return lambda random, rows: [f"{each:.{digits}f}" for each in random.normal(mean, spread, rows)]


def skewed(mean: float) -> Column:
    return lambda random, rows: [str(int(each)) for each in random.lognormal(mean, 1, rows)]


def first(random: np.random.Generator, rows: int) -> list[str]:
    return [str(each) for each in random.choice(FIRST, rows)]


def last(random: np.random.Generator, rows: int) -> list[str]:
    return [str(each) for each in random.choice(LAST, rows)]


def full(random: np.random.Generator, rows: int) -> list[str]:
    return [f"{one} {other}" for one, other in zip(first(random, rows), last(random, rows), strict=True)]


def surname_first(random: np.random.Generator, rows: int) -> list[str]:
    return [f"{other}, {one}" for one, other in zip(first(random, rows), last(random, rows), strict=True)]


def email(random: np.random.Generator, rows: int) -> list[str]:
    return [f"{name.lower()}{place}@mail.example" for place, name in enumerate(first(random, rows))]


def phone(random: np.random.Generator, rows: int) -> list[str]:
    return [f"+49 30 {each}" for each in random.integers(1_000_000, 9_999_999, rows)]


def uuid(random: np.random.Generator, rows: int) -> list[str]:
    return ["{:08x}-{:04x}-4abc-8abc-{:012x}".format(*random.integers(0, 65_536, 3)) for _ in range(rows)]


def note(random: np.random.Generator, rows: int) -> list[str]:
    return [" ".join(random.choice(WORDS, random.integers(5, 12))) for _ in range(rows)]


def day(random: np.random.Generator, rows: int) -> list[str]:
    return [str(np.datetime64("2021-01-01") + int(each)) for each in random.integers(0, 700, rows)]


def german_day(random: np.random.Generator, rows: int) -> list[str]:
    return [f"{text[8:]}.{text[5:7]}.{text[:4]}" for text in day(random, rows)]


def people(each: int) -> Column:
    return lambda random, rows: [str(1000 + one) for one in random.integers(0, max(rows // each, 12), rows)]


def holes(column: Column, mark: str = "NA", share: float = 0.1) -> Column:
    def holed(random: np.random.Generator, rows: int) -> list[str]:
        return [mark if random.random() < share else value for value in column(random, rows)]

    return holed


def account(random: np.random.Generator, rows: int) -> list[str]:
    return ["DE{:02d} {:04d} {:04d} {:04d} {:04d} 00".format(*random.integers(0, 99, 5)) for _ in range(rows)]


def clock(random: np.random.Generator, rows: int) -> list[str]:
    return [f"{each // 60:02d}:{each % 60:02d}" for each in random.choice(1440, rows, replace=False)]


def compact_day(random: np.random.Generator, rows: int) -> list[str]:
    return [text.replace("-", "") for text in day(random, rows)]


def pressure(random: np.random.Generator, rows: int) -> list[str]:
    return [
        f"{high}/{low}"
        for high, low in zip(random.integers(90, 190, rows), random.integers(50, 110, rows), strict=True)
    ]


HASHES = [f"{place:032x}".replace("0", "d") for place in range(40, 60)]
UMLAUTS = (
    "Jörg Müller", "Zoë Åkesson", "Günther Weiß", "Łukasz Nowak", "José Ñíguez", "Søren Kjær", "Çağla Öztürk",
    "Anaïs Lefèvre", "Jürgen Groß", "Renée Dvořák", "Björn Köhler",
)  # fmt: skip
SEX, YES = one_of("F", "M"), one_of("yes", "no")
SCALE, AGE, CODE = numbers(1, 5), numbers(18, 90), one_of("I10", "J45", "E11", "C18", "N39", "K35")
ICD = one_of(*(f"{letter}{number:02d}" for letter in "ABCDEFGHIJ" for number in range(6)))

TABLES: dict[str, tuple[int, dict[str, tuple[Column, str]]]] = {
    "index of R": (63, {"": (counted(), "id"), "sex": (SEX, "cat"), "age": (AGE, "int")}),
    "index of pandas": (80, {"": (counted(0), "id"), "bmi": (normal(27, 4), "real")}),
    "first names of few": (63, {"first_name": (first, "name"), "age": (AGE, "int"), "smoker": (YES, "cat")}),
    "last names": (400, {"surname": (last, "name"), "sex": (SEX, "cat")}),
    "full names": (300, {"name": (full, "name"), "grade": (SCALE, "int")}),
    "names under another header": (300, {"teacher": (full, "name"), "grade": (SCALE, "int")}),
    "surname first": (200, {"Name": (surname_first, "name"), "class": (numbers(1, 3), "int")}),
    "e-mail": (250, {"contact": (email, "id"), "plan": (one_of("free", "basic", "pro"), "cat")}),
    "telephone": (250, {"tel": (phone, "id"), "sex": (SEX, "cat")}),
    "uuid": (250, {"session": (uuid, "id"), "clicks": (numbers(0, 40), "int")}),
    "free text": (150, {"remark": (note, "text"), "ward": (one_of("A", "B"), "cat")}),
    "long free text": (900, {"complaint": (note, "text"), "triage": (SCALE, "int")}),
    "social security": (500, {"ssn": (unique(10**8, 9 * 10**8), "id"), "pay": (skewed(10), "int")}),
    "digits without a name": (500, {"ref": (unique(10**6, 9 * 10**6), "id"), "pay": (skewed(9), "int")}),
    "codes with zeros": (300, {"kennung": (unique(1, 90_000, "{:06d}"), "id"), "sex": (SEX, "cat")}),
    "codes with letters": (300, {"sample": (counted(1, "S-{:05d}"), "id"), "ph": (normal(7, 1), "real")}),
    "row number in the middle": (90, {"sex": (SEX, "cat"), "nr": (counted(), "id"), "age": (AGE, "int")}),
    "ids from 501": (90, {"case": (counted(501), "id"), "age": (AGE, "int")}),
    "encounters": (
        800,
        {"patient_id": (people(3), "person"), "encounter_id": (counted(7000), "id"), "icd": (CODE, "cat")},
    ),
    "visits": (600, {"person": (people(2), "person"), "age": (AGE, "int")}),
    "code book of answers": (120, {f"q{place}": (SCALE, "int") for place in range(12)}),
    "yes and no": (90, {f"has_{place}": (YES, "cat") for place in range(8)}),
    "diagnoses": (400, {"diagnosis": (ICD, "cat"), "sex": (SEX, "cat")}),
    "many codes in few rows": (110, {"icd_code": (ICD, "cat"), "age": (AGE, "int")}),
    "education in numbers": (900, {"education_num": (numbers(1, 16), "int"), "race": (one_of("a", "b", "c"), "cat")}),
    "rooms": (300, {"room_no": (numbers(1, 20), "int"), "beds": (numbers(1, 4), "int")}),
    "income": (500, {"income": (skewed(10), "int"), "hours": (numbers(0, 80), "int")}),
    "population of countries": (150, {"country": (counted(1, "Land {}"), "id"), "population": (skewed(14), "int")}),
    "measurements": (200, {"weight": (normal(75, 12, 2), "real"), "height": (normal(170, 9), "real")}),
    "years in a row": (60, {"year": (counted(1950), "int"), "flow": (normal(900, 90), "real")}),
    "dates": (300, {"admitted": (day, "date"), "sex": (SEX, "cat")}),
    "German dates": (300, {"Aufnahme": (german_day, "date"), "sex": (SEX, "cat")}),
    "codes for missing values": (400, {"bmi": (holes(normal(27, 4)), "real"), "sex": (holes(SEX), "cat")}),
    "question marks": (400, {"age": (holes(AGE, "?"), "int"), "job": (holes(one_of("a", "b", "c"), "?"), "cat")}),
    "nines": (600, {"age": (holes(AGE, "999"), "int"), "sex": (SEX, "cat")}),
    "blanks": (400, {"age": (holes(AGE, ""), "int"), "sex": (holes(SEX, ""), "cat")}),
    "cars": (
        32,
        {"": (counted(1, "Model {}"), "id"), "cyl": (one_of("4", "6", "8"), "int"), "mpg": (normal(20, 5), "real")},
    ),
    "products": (
        900,
        {"product_name": (one_of("Tea", "Coffee", "Milk", "Salt"), "cat"), "price": (normal(9, 2, 2), "real")},
    ),
    "cities": (700, {"city": (one_of("Charlotte", "Austin", "Berlin", "Rome", "Oslo"), "cat"), "age": (AGE, "int")}),
    "months": (240, {"month": (numbers(1, 12), "int"), "rain": (normal(60, 20), "real")}),
    "schools": (500, {"school_id": (numbers(1, 12), "int"), "score": (normal(50, 9), "real")}),
    "accounts": (300, {"konto": (account, "id"), "kind": (one_of("giro", "spar"), "cat")}),
    "hashes": (400, {"who": (one_of(*HASHES), "id"), "clicks": (numbers(0, 40), "int")}),
    "names with umlauts": (
        300,
        {"Ansprechpartner": (one_of(*UMLAUTS), "name"), "Ort": (one_of("Köln", "Halle"), "cat")},
    ),
    "countries": (400, {"country": (one_of("DE", "FR", "NA", "US"), "cat"), "iso3": (one_of("DEU", "NAM"), "cat")}),
    "postal codes": (400, {"plz": (one_of("01067", "04109", "10115"), "cat"), "ward": (numbers(1, 4), "int")}),
    "percent": (
        400,
        {"sex": (SEX, "cat"), "share": (unique(1, 900, "{}%"), "none"), "cost": (unique(100, 9000, "{} €"), "none")},
    ),
    "dollars": (400, {"price": (unique(1000, 9000, "${:,}"), "none"), "flag": (one_of("0", "1"), "int")}),
    "times of the day": (400, {"arrival": (clock, "none"), "shift": (one_of("early", "late"), "cat")}),
    "coordinates": (400, {"lat": (normal(50, 2, 6), "real"), "lon": (normal(10, 3, 6), "real")}),
    "days of eight digits": (400, {"visit": (compact_day, "date"), "answer": (one_of("Yes", "yes", "NO"), "cat")}),
    "weights": (400, {"w": (normal(1, 0.1, 6), "real"), "born": (numbers(1930, 2005), "int")}),
    "blood pressure": (400, {"rr": (pressure, "none"), "pulse": (numbers(45, 140), "int")}),
    "composite ids": (
        400,
        {"akte": (counted(1, "BE-2023-{:04d}"), "id"), "band": (one_of("0-17", "18-64", "65+"), "cat")},
    ),
    "detection limits": (
        400,
        {"lead": (holes(numbers(5, 400), "<5"), "int"), "grade": (one_of("A+", "A", "B-"), "cat")},
    ),
    "everything": (
        400,
        {
            "id": (counted(1), "id"),
            "nome": (full, "name"),
            "mail": (email, "id"),
            "age": (AGE, "int"),
            "sex": (SEX, "cat"),
            "bmi": (normal(27, 4), "real"),
            "seen": (day, "date"),
            "text": (note, "text"),
        },
    ),
}
_KINDS = {FindingKind.IDENTIFIERS: "id", FindingKind.NAMES: "name", FindingKind.FREE_TEXT: "text"}


def drafted(name: str, folder: Path) -> tuple[Draft, dict[str, str]]:
    """The draft of a table, and its right description by the names that the draft has for columns."""
    rows, columns = TABLES[name]
    random = np.random.default_rng(sum(name.encode()))
    text = io.StringIO()
    values = [column(random, rows) for column, _ in columns.values()]
    lines = [
        [f'"{head}"' for head in columns],
        *([f'"{each}"' if each else "" for each in row] for row in zip(*values, strict=True)),
    ]
    text.writelines(",".join(line) + "\n" for line in lines)
    path = folder / "table.csv"
    path.write_text(text.getvalue())
    written = how_written(str(path), {})
    draft = draft_domain(open_table(path, csv=written.format), written.format)
    return draft, {head or "row": right for head, (_, right) in columns.items()}


def kinds(draft: Draft) -> dict[str, str]:
    """Return the draft's kind of each column."""
    types = {Categorical: "cat", Integer: "int", Real: "real"}
    found = {attribute.name: types[type(attribute)] for attribute in draft.domain}
    found |= dict.fromkeys(draft.dates, "date") | dict.fromkeys(draft.left_out, "none")
    for finding in draft.findings:
        if finding.left_out:
            found |= dict.fromkeys(finding.columns, _KINDS[finding.kind])
    unit = draft.domain.unit.column
    return found | ({} if unit is None else {unit: "person"})


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict[str, str], dict[str, str]]]:
    folder = tmp_path_factory.mktemp("messy")
    drafts = {name: drafted(name, folder) for name in TABLES}
    return {name: (kinds(draft), right) for name, (draft, right) in drafts.items()}


def test_columns_get_their_types(described: dict[str, tuple[dict[str, str], dict[str, str]]]) -> None:
    wrong = [
        (name, column, found.get(column), expected)
        for name, (found, right) in described.items()
        for column, expected in right.items()
        if found.get(column) != expected
    ]
    columns = sum(len(right) for _, right in described.values())
    assert len(TABLES) >= 55
    assert len(wrong) <= 0.05 * columns, wrong
    assert not [each for each in wrong if each[3] in ("id", "name", "text")], wrong  # none of them is missed
    assert not [each for each in wrong if each[2] in ("id", "name", "text")], wrong  # and no code book is one
