"""Hierarchies in a domain, inline, in separate files or drafted, and the levels that queries may use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from sfumato.domain import Domain, dump, load, parse
from sfumato.domain.hierarchy import Hierarchy
from sfumato.errors import DomainError, SfumatoError

PLAIN = """
sfumato: 1
unit: row
attributes:
  diag: {type: categorical, values: [I10, I21, J01, K35], unknown: category, nullable: true}
  age: {type: integer, minimum: 0, maximum: 29, unknown: clamp}
"""
ROWS = "[[I10, I1, IX], [I21, I2, IX], [J01, J0, X], [K35, K3, XI]]"
SPELLED = f"{PLAIN}hierarchies:\n  diag: {{levels: [block, chapter], rows: {ROWS}}}\n  age: {{draft: true}}\n"


def domain_of(text: str) -> Domain:
    return parse(yaml.safe_load(text))


def test_a_level_groups_the_codes_of_its_attribute() -> None:
    domain = domain_of(SPELLED)
    chapter = domain.grouping(" Chapter( diag ) ")
    assert (chapter.name, chapter.attribute) == ("chapter(diag)", "diag")
    assert [chapter.labels[cell] for cell in chapter.groups or ()] == ["IX", "IX", "X", "XI", "(missing)", "(other)"]
    assert domain.grouping("diag").groups is None
    assert domain.grouping("diag").labels == domain["diag"].labels()
    assert domain.grouping("level_1(age)").labels == ("0..4", "5..9", "10..14", "15..19", "20..24", "25..29")


def test_missing_and_other_values_lie_where_the_hierarchy_puts_them() -> None:
    domain = domain_of(SPELLED.replace("[K35, K3, XI]", "[K35, K3, XI], [(other), none, XI]"))
    chapter = domain.grouping("chapter(diag)")
    assert [chapter.labels[cell] for cell in chapter.groups or ()] == ["IX", "IX", "X", "XI", "(missing)", "XI"]


def test_what_is_written_is_read_back_and_hashed() -> None:
    domain = domain_of(SPELLED)
    for again in (parse(yaml.safe_load(dump(domain))), parse(json.loads(json.dumps(domain.describe())))):
        assert again == domain
        assert again.hash == domain.hash
        assert hash(again) == hash(domain)
    assert domain_of(PLAIN).hash != domain.hash
    assert domain != domain_of(SPELLED.replace("XI]", "XII]"))
    assert "hierarchies" not in domain_of(PLAIN).describe()
    assert [each.attribute for each in domain.project(["age"]).hierarchies] == ["age"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("icd.csv", "diag,block,chapter\nI10,I1,IX\nI21,I2,IX\nJ01,J0,X\nK35,K3,XI\n"),
        ("icd.csv", "diag;block;chapter;all\nI10;I1;IX;*\nI21;I2;IX;*\nJ01;J0;X;*\nK35;K3;XI;*\n"),
        ("icd.yaml", f"attribute: diag\nlevels: [block, chapter]\nrows: {ROWS}\n"),
    ],
)
def test_one_description_serves_a_domain_and_anonymisation(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    (tmp_path / "people.yaml").write_text(f"{PLAIN}hierarchies: {{diag: {{file: {name}}}}}\n")
    domain = load(tmp_path / "people.yaml")
    assert domain.hierarchies == (Hierarchy.read(tmp_path / name, attribute="diag"),)
    assert domain.grouping("chapter(diag)") == domain_of(SPELLED).grouping("chapter(diag)")
    with pytest.raises(DomainError, match="is in a file; here a domain contains"):
        parse(yaml.safe_load((tmp_path / "people.yaml").read_text()))


def test_levels_of_a_file_without_names_are_named_in_the_domain(tmp_path: Path) -> None:
    (tmp_path / "diag.csv").write_text("I10,I1,IX,*\nI21,I2,IX,*\nJ01,J0,X,*\nK35,K3,XI,*\n")
    for levels, name in (("", "level_2(diag)"), (", levels: [block, chapter]", "chapter(diag)")):
        (tmp_path / "people.yaml").write_text(f"{PLAIN}hierarchies: {{diag: {{file: diag.csv{levels}}}}}\n")
        assert load(tmp_path / "people.yaml").grouping(name).labels[:3] == ("IX", "X", "XI")


@pytest.mark.parametrize(
    ("hierarchies", "says"),
    [
        ("{height: {draft: true}}", "hierarchy of 'height', and no such attribute"),
        ("{diag: {draft: false}}", "hierarchies.diag"),
        ("{diag: {rows: []}}", "hierarchies.diag"),
        ("{diag: {levels: [block], rows: [[I10, I1, IX, '*']]}}", "2 levels between values and top, and names 1"),
        ("{diag: {levels: [count], rows: [[I10, IX]]}}", "like a function of SQL that is none, not 'count'"),
        ("{diag: {levels: [a b], rows: [[I10, IX]]}}", "not 'a b'"),
        ("{diag: {levels: [a, A], rows: [[I10, I1, IX]]}}", "two levels of 'diag' have one name"),
        ("{diag: {levels: [chapter], rows: [[I10, IX]]}}", "misses 3 declared values"),
        ("{diag: {levels: [block, chapter], rows: [[I10, I1, IX], [I21, I1, X]]}}", "does not nest"),
        ("{diag: {file: absent.csv}}", "is in a file"),
    ],
)
def test_hierarchies_that_do_not_fit_are_refused(hierarchies: str, says: str) -> None:
    with pytest.raises(DomainError, match=says):
        domain_of(f"{PLAIN}hierarchies: {hierarchies}\n")


def test_labels_that_look_like_numbers_stay_as_they_are_written(tmp_path: Path) -> None:
    rows = "[[I10, 010, 1_0], [I21, 0x1F, 1_0], [J01, 1:30, 007], [K35, 2024-01, 007]]"
    (tmp_path / "people.yaml").write_text(f"{PLAIN}hierarchies: {{diag: {{levels: [block, chapter], rows: {rows}}}}}\n")
    domain = load(tmp_path / "people.yaml")
    assert domain.grouping("block(diag)").labels[:4] == ("010", "0x1F", "1:30", "2024-01")
    assert domain.grouping("chapter(diag)").labels[:2] == ("1_0", "007")


def test_an_absent_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "people.yaml").write_text(f"{PLAIN}hierarchies: {{diag: {{file: absent.csv}}}}\n")
    with pytest.raises(DomainError, match="cannot read the hierarchy"):
        load(tmp_path / "people.yaml")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("height", "no attribute 'height'"),
        ("chapter(height)", "no attribute 'height'"),
        ("verse(diag)", "no level 'verse' of 'diag'; it has block, chapter"),
        ("chapter(diag", "no attribute"),
    ],
)
def test_what_cannot_be_grouped_by_is_refused(name: str, says: str) -> None:
    with pytest.raises(DomainError, match=says):
        domain_of(SPELLED).grouping(name)
    with pytest.raises(SfumatoError, match="no level 'chapter' of 'diag', which has no hierarchy"):
        domain_of(PLAIN).grouping("chapter(diag)")
