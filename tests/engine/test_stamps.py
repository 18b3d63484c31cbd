"""Stamps detect that files changed, and that two names refer to one table."""

from __future__ import annotations

import os

import pytest

from sfumato.engine.open import same_place
from sfumato.engine.table_files import stamps


def test_stamps_tell_every_way_in_which_files_change(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    one = folder / "a.parquet"
    one.write_text("1")
    for source in (str(one), str(folder), f"{folder}/*.parquet"):
        seen = [stamps(source)]
        assert stamps(source) == seen[0] != ()
        one.write_text("22")
        seen.append(stamps(source))
        os.utime(one, ns=(1, 1))  # a time that was put back does not hide a change
        seen.append(stamps(source))
        replacement = tmp_path / "new"
        replacement.write_text("22")
        replacement.replace(one)
        seen.append(stamps(source))
        one.unlink()
        seen.append(stamps(source))
        assert seen[-1] == ()
        assert len(set(seen)) == len(seen)
        one.write_text("1")
    (folder / "b.parquet").write_text("2")
    assert len(stamps(str(folder))) == 2


@pytest.mark.parametrize("source", ["postgresql://h/d?table=t", "spark:t", "nothing.csv", "x" * 2000, "\0"])
def test_what_is_no_file_here_has_no_stamps(source):
    assert stamps(source) == ()


def test_one_table_under_two_names(tmp_path):
    table, other = tmp_path / "t.csv", tmp_path / "o.csv"
    table.write_text("a\n1\n")
    other.write_text("a\n1\n")
    (tmp_path / "link.csv").symlink_to(table)
    os.link(table, tmp_path / "hard.csv")
    for name in ("t.csv", "link.csv", "hard.csv", "../" + tmp_path.name + "/t.csv"):
        assert same_place(str(table), str(tmp_path / name))
        assert same_place(f"spark:{table}", str(tmp_path / name))
    assert not same_place(str(table), str(other))
    address = "postgresql://{}@h/d?table={}"
    assert same_place(address.format("ann:x", "people"), address.format("bob:y", "people"))
    assert not same_place(address.format("ann", "people"), address.format("ann", "others"))
    assert not same_place(str(table), address.format("ann", "people"))


@pytest.mark.parametrize(
    "spelled",
    [
        "postgres://bob:x@h/d?table=people",
        "postgresql://H.:5432/d?table=people",
        "postgresql://h/d?table=public.people&sslmode=require",
        "postgresql://h/%64?table=%70eople",
        "postgresql://elsewhere/d?host=h&port=5432&table=people",
    ],
)
def test_one_address_however_it_is_spelled(spelled):
    """If the table changed meanwhile, its content proves nothing; only the address does."""
    for one, other in ((spelled, "postgresql://ann@h/d?table=people"), ("postgresql://ann@h/d?table=people", spelled)):
        assert same_place(one, other)
    for other in ("h/d?table=other.people", "h/other?table=people", "h:5433/d?table=people", "i/d?table=people"):
        assert not same_place(spelled, f"postgresql://{other}")
    assert not same_place(spelled, "mysql://h/d?table=people")


def test_a_schema_of_mariadb_is_a_database():
    assert same_place("mysql://h/d?table=people", "mariadb://h:3306/other?table=d.people")
    assert not same_place("mysql://h/d?table=people", "mariadb://h/other?table=people")
    assert same_place("mysql://127.0.0.1/d?table=people", "mariadb://localhost/d?table=people")


@pytest.mark.parametrize("odd", ["postgresql://h:port/d?table=people", "postgresql://h/d?service=s&table=people"])
def test_an_address_that_hides_where_it_leads_is_known_by_its_text_alone(odd):
    assert same_place(odd, odd)
    assert not same_place(odd, "postgresql://h/d?table=people&application_name=x".replace("people", "others"))
