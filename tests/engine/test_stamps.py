"""Telling that files changed, and that two names stand for one table."""

from __future__ import annotations

import os

import pytest

from sfumato.engine.table_files import same_place, stamps


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
