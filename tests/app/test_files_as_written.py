"""Tables as other programs write them, from the first command to the last: an index without a name, and every form."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.app.test_cli import sfumato

ROWS = [(row, ("K\u00f6ln", "\u00c5bo")[row % 2], 20 + row * 7 % 50, row * 37 % 101 / 4) for row in range(1, 201)]


def written(separator: str, *, end: str = "\n", decimal: str = ".", header: str = '"",city,age,pay') -> str:
    lines = (f'"{row}",{city},{age},{pay}'.replace(",", separator) for row, city, age, pay in ROWS)
    lines = (line.replace(".", decimal) for line in lines)
    return end.join((header.replace(",", separator), *lines, ""))


FORMS = {
    "r.csv": (written(","), "utf-8"),
    "pandas.csv": (written(",", header=",city,age,pay").replace('"', ""), "utf-8"),
    "mark.csv": (written(",", end="\r\n"), "utf-8-sig"),
    "german.csv": (written(";", end="\r\n", decimal=","), "cp1252"),
    "excel.csv": (written("\t", end="\r\n", decimal=","), "utf-16"),
    "no-mark.csv": (written(";"), "utf-16-le"),
    "big-endian.csv": (written(","), "utf-16-be"),
    "tabs.tsv": (written("\t"), "utf-8"),
    "broken.csv": (written(",").replace("K\u00f6ln", '"K\u00f6ln,\nRhein"'), "utf-8"),
    "twice.csv": (written(",", header=",city,age,Age"), "utf-8"),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_table_is_described_and_released_as_it_is(tmp_path: Path, name: str) -> None:
    text, encoding = FORMS[name]
    (tmp_path / name).write_bytes(text.encode(encoding))
    drafted = sfumato("domain", "draft", name, "--out", "t.yaml", cwd=tmp_path)
    assert "looks like an identifier: row (it numbers the rows, and has no name in the table)" in drafted.stderr
    assert ("Look at Age_2" in drafted.stderr) == (name == "twice.csv")
    sfumato("domain", "accept", "t.yaml", "--by", "Ann Lee", "--confirm", "bounds,bins", cwd=tmp_path)
    checked = sfumato("domain", "check", "t.yaml", "--table", name, cwd=tmp_path).stdout
    assert "3 attributes" in checked
    domain = ("--domain", "t.yaml")
    count = "SELECT city, COUNT(*) FROM t GROUP BY city"
    answer = sfumato("query", name, count, *domain, "--epsilon", "1", "--create", "--limit", "9", cwd=tmp_path)
    assert "K\u00f6ln" in answer.stdout
    made = ("--method", "independent", "--out", "made.csv")
    sfumato("synthesize", name, *domain, "--epsilon", "1", *made, cwd=tmp_path)
    header = (tmp_path / "made.csv").read_text().partition("\n")[0]
    assert header == ('"city","age","Age_2"' if name == "twice.csv" else '"city","age","pay"')
    sfumato("anonymize", name, *domain, "--quasi", "city", "--k", "5", "--out", "k.parquet", cwd=tmp_path)


def test_acceptance_names_numbers_that_the_draft_took_for_missing(tmp_path: Path) -> None:
    rows = "\n".join(f"{20 + n % 50},{n % 40 * 100 if n % 4 else 99999}" for n in range(400))
    (tmp_path / "people.csv").write_text(f"age,gain\n{rows}\n")
    sfumato("domain", "draft", "people.csv", "--out", "people.yaml", cwd=tmp_path)
    accept = ("domain", "accept", "people.yaml", "--by", "Ann Lee", "--confirm", "bounds,bins")
    named = "These numbers count as missing: gain = 99999. Remove true values from missing, and accept again."
    assert named in sfumato(*accept, cwd=tmp_path).stdout
    assert named in sfumato(*accept, "--table", "people.csv", cwd=tmp_path).stdout


def test_a_draft_with_a_wrong_delimiter_says_to_check_it(tmp_path: Path) -> None:
    rows = "".join(f"{number},x,{number * 7 % 1000}\n" for number in range(3000))
    (tmp_path / "t.csv").write_text(f"age,kind,income\n{rows}")
    refused = sfumato("domain", "draft", "t.csv", "--delimiter", ";", "--out", "t.yaml", cwd=tmp_path, code=2)
    assert "The table has one column, with neither few enough values nor a range. Check the delimiter" in refused.stderr
