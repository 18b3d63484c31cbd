"""Permanent answers are stored once and for ever, under concurrent requests."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sfumato.errors import InputError
from sfumato.local import Client, Frequency
from sfumato.local.protocol.device import FileMemo
from sfumato.local.specs.frequency import Method

WRITER = """
import secrets, sys
from sfumato.local.protocol.device import FileMemo

memo = FileMemo(sys.argv[1])
sys.stdin.readline()  # all start together
for key in range(int(sys.argv[2])):
    print(key, memo.keep(str(key), secrets.token_bytes(8)).hex())
"""


def test_processes_that_share_a_memo_agree_on_every_answer_and_lose_none(tmp_path: Path) -> None:
    processes, keys = 6, 40
    path = tmp_path / "memo.json"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(keys)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for _ in range(processes)
    ]
    for process in running:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    said = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0] * processes
    assert set(said) == {said[0]}  # all got the same answer to every key
    kept = json.loads(path.read_text())
    assert kept == dict(line.split() for line in said[0].splitlines())
    assert len(kept) == keys
    assert sorted(file.name for file in tmp_path.iterdir()) == ["memo.json", "memo.json.lock"]


def test_threads_that_share_a_memo_agree(tmp_path: Path) -> None:
    memo = FileMemo(tmp_path / "memo.json")
    with ThreadPoolExecutor(8) as pool:
        kept = set(pool.map(lambda number: memo.keep("one", bytes([number])), range(40)))
    assert len(kept) == 1
    assert memo.get("one") in kept


def test_a_link_to_a_memo_is_the_same_memo(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    real, link = tmp_path / "there" / "memo.json", tmp_path / "link.json"
    FileMemo(real).keep("a", b"1")
    link.symlink_to(real)
    assert FileMemo(link).keep("a", b"2") == b"1"
    FileMemo(link).keep("b", b"3")
    assert link.is_symlink()
    assert FileMemo(real).get("b") == b"3"


def test_a_process_that_dies_while_it_writes_loses_nothing(tmp_path: Path) -> None:
    memo = FileMemo(tmp_path / "memo.json")
    memo.keep("a", b"1")
    program = (
        "import os, sys, sfumato.local.protocol.device as c; "
        "os.fsync = lambda number: os._exit(9); "  # killed with the draft half on disk, and the lock held
        "c.FileMemo(sys.argv[1]).keep('b', b'2')"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "memo.json")], check=False, env=environment)
    assert done.returncode == 9
    assert memo.get("a") == b"1"
    assert memo.get("b") is None
    assert memo.keep("b", b"3") == b"3"


def test_everything_on_disk_is_private_and_synchronised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synchronised = []
    fsync = os.fsync

    def watch(number: int) -> None:
        synchronised.append(stat.S_ISDIR(os.fstat(number).st_mode))
        fsync(number)

    monkeypatch.setattr(os, "fsync", watch)
    FileMemo(tmp_path / "memo.json").keep("a", b"1")
    assert synchronised == [False, True]  # the draft before it takes the name, the folder after
    for file in tmp_path.iterdir():
        assert file.stat().st_mode & 0o077 == 0


def test_a_memo_that_cannot_be_read_or_written_is_refused(tmp_path: Path) -> None:
    spec = Frequency.design(4, epsilon=2, method=Method.RAPPOR, instantaneous_epsilon=1)
    with pytest.raises(InputError, match="cannot keep"):
        Client(spec, memo=FileMemo(tmp_path / "no folder" / "memo.json")).randomize(1)
    for text in ('{"a": "00", "a": "01"}', '{"a": "no hex"}', "[", "[]", '{"a": 5}'):
        (tmp_path / "memo.json").write_text(text)
        for use in (lambda m: m.get("a"), lambda m: m.keep("a", b"1")):
            with pytest.raises(InputError, match="damaged"):
                use(FileMemo(tmp_path / "memo.json"))
        assert (tmp_path / "memo.json").read_text() == text


@pytest.mark.parametrize("method", [Method.RAPPOR, Method.LOLOHA])
def test_an_answer_that_the_spec_cannot_have_given_is_refused(method: Method) -> None:
    class Foreign:
        kept = b""

        def get(self, key: str) -> bytes | None:  # noqa: ARG002
            return self.kept

        def keep(self, key: str, fresh: bytes) -> bytes:  # noqa: ARG002
            return self.kept

    spec, memo = Frequency.design(4, epsilon=2, method=method, instantaneous_epsilon=1), Foreign()
    client = Client(spec, memo=memo)
    for kept in (b"", b"\xff", b"\x00\x00\x00"):
        memo.kept = kept
        with pytest.raises(InputError, match="memo is damaged"):
            client.randomize(1)
