"""A view in words: the words contain every difference between two views, and only printable text."""

from __future__ import annotations

import pytest
from tests.hospital import schema

from sfumato.domain.view_words import describe_view
from sfumato.query.statements.table_statement import parse_tables

HOSPITAL = schema()
JOINED = "SELECT COUNT(*) FROM visits JOIN patients USING (patient_id)"
IN = "SELECT COUNT(*) FROM patients WHERE patient_id {} (SELECT patient_id FROM visits WHERE cost >= {})"
EACH = "SELECT COUNT(*) FROM (SELECT patient_id, {} AS x FROM visits {} GROUP BY patient_id) AS p"


def words(statement: str) -> str:
    return describe_view(parse_tables(statement, HOSPITAL).view)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("SELECT COUNT(*) FROM visits", "visits"),
        ("SELECT COUNT(*) FROM visits AS v", "visits AS v"),
        (JOINED, "visits JOIN patients ON same patient_id"),
        (JOINED.replace("JOIN", "LEFT JOIN"), "visits LEFT JOIN patients ON same patient_id"),
        (IN.format("IN", 500), "patients WHERE patient_id IN (patient_id of visits WHERE cost in 500 to "),
        (IN.format("NOT IN", 500), "patients WHERE patient_id NOT IN (patient_id of visits WHERE cost in 500 to "),
        (EACH.format("COUNT(*)", "WHERE cost >= 500"), "x = COUNT(*) up to 6 of (visits WHERE cost in 500 to "),
        (EACH.format("MAX(cost)", ""), "x = greatest cost of visits BY patient_id"),
        (
            EACH.format("LEAST(GREATEST(SUM(cost), 0), 90)", ""),
            "x = SUM(cost) within 0 and 90 of visits BY patient_id",
        ),
        (
            "SELECT SUM(x) FROM (SELECT patient_id, MIN(cost) AS x FROM visits GROUP BY patient_id) AS p",
            "x = least cost",
        ),
        (JOINED.replace("COUNT(*)", "SUM(cost * 2 - 3)"), "WITH cost * 2 - 3 = ((cost * 2) - 3)"),
        (
            JOINED.replace("COUNT(*)", "SUM(CASE WHEN sex = 'F' THEN cost ELSE 1 END)"),
            "CASE WHEN sex in F THEN cost ELSE 1 END",
        ),
    ],
)
def test_a_view_is_said_whole(statement: str, said: str) -> None:
    assert said in words(statement)


def test_two_views_are_two_in_words() -> None:
    asked = [IN.format(how, cost) for how in ("IN", "NOT IN") for cost in (0, 500)]
    asked += [JOINED, "SELECT COUNT(*) FROM visits", "SELECT COUNT(*) FROM patients"]
    asked += [EACH.format(what, "") for what in ("COUNT(*)", "MAX(cost)", "MIN(cost)")]
    assert len({words(each) for each in asked}) == len(asked)


def test_a_long_view_says_that_it_is_longer() -> None:
    kept = " AND ".join(["patient_id IN (SELECT patient_id FROM visits WHERE cost >= 500)"] * 40)
    last = "patient_id {} (SELECT patient_id FROM visits)"
    told = [words(f"SELECT COUNT(*) FROM patients WHERE {kept} AND {last.format(how)}") for how in ("IN", "NOT IN")]  # noqa: S608
    assert all(len(each) <= 1500 and each.endswith("longer than can be shown)") for each in told)
    assert told[0] != told[1]  # by the hash of the view
