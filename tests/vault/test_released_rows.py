"""Released files are written whole or not at all, and never over one that nobody gave up."""

from __future__ import annotations

import stat
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest
from pyarrow import feather, parquet

from sfumato.errors import InputError, SfumatoError
from sfumato.vault.release import ReleasedRows, refuse_occupied_path, save_text, writable, write_atomically

ROWS = ReleasedRows(pa.table({"age": [3, None], "sex": ["f", "m"]}))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("rows.parquet", parquet.read_table),
        ("rows.CSV", pa.csv.read_csv),
        ("rows.arrow", feather.read_table),
    ],
)
def test_rows_come_back_as_they_were(name, read, tmp_path) -> None:
    ROWS.write(tmp_path / name)
    assert read(tmp_path / name).equals(ROWS.table)
    assert names(tmp_path) == [name]


def test_named_writers_insist_on_their_ending(tmp_path) -> None:
    ROWS.to_parquet(tmp_path / "a.parquet")
    ROWS.to_csv(tmp_path / "a.csv")
    for write, name in ((ROWS.to_parquet, "b.csv"), (ROWS.to_csv, "b.parquet"), (ROWS.write, "b.xlsx")):
        with pytest.raises(InputError, match="end"):
            write(tmp_path / name)
    assert names(tmp_path) == ["a.csv", "a.parquet"]


def test_a_file_is_replaced_only_when_asked(tmp_path) -> None:
    path = tmp_path / "text"
    save_text(path, "first", overwrite=False)
    with pytest.raises(InputError, match="exists"):
        save_text(path, "second", overwrite=False)
    assert path.read_text() == "first"
    save_text(path, "second", overwrite=True)
    assert path.read_text() == "second"


def test_a_place_that_cannot_hold_a_file_is_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        refuse_occupied_path(tmp_path / "nowhere" / "a.csv", overwrite=True)
    with pytest.raises(InputError, match="folder"):
        refuse_occupied_path(tmp_path, overwrite=True)
    with pytest.raises(InputError, match="names a folder and no file"):
        refuse_occupied_path("", overwrite=True)
    with pytest.raises(InputError, match="too long"):
        refuse_occupied_path(Path("a" * 200, *["b" * 200] * 30, "c"), overwrite=True)


def test_names_are_refused_that_leave_no_room_for_what_is_written_beside_them(tmp_path) -> None:
    with pytest.raises(InputError, match="at most 220 bytes"):
        refuse_occupied_path(tmp_path / ("é" * 111), overwrite=True)
    write_atomically(tmp_path / ("é" * 110), lambda partial: partial.write_text("kept"))
    assert names(tmp_path) == ["é" * 110]
    with pytest.raises(InputError, match="end it in"):
        writable(tmp_path / "a.xlsx", overwrite=True)


@pytest.mark.parametrize("error", [RuntimeError("halfway"), OSError(28, "No space left on device")])
def test_a_failure_leaves_what_was_there(error, tmp_path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("before")

    def fail(partial) -> None:
        partial.write_text("half")
        raise error

    with pytest.raises((RuntimeError, SfumatoError), match=r"halfway|No space left"):
        write_atomically(path, fail)
    assert path.read_text() == "before"
    assert names(tmp_path) == ["a.csv"]


def test_a_new_file_has_the_permissions_of_the_process(tmp_path) -> None:
    (tmp_path / "plain").touch()
    save_text(tmp_path / "ours", "", overwrite=False)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "ours")]
    assert modes[0] == modes[1]
