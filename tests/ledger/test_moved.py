"""A ledger that was moved, deleted, replaced or restored during use never takes a charge that would be lost."""

from __future__ import annotations

import gc
import secrets
import shutil
import sqlite3
import weakref
from contextlib import closing, contextmanager
from fractions import Fraction
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url
from tests.ledger.asking import answered, ask, behind_its_back, spent_epsilon, unfreeze

from sfumato.errors import BudgetError, InputError, LedgerError, MissingLedgerError, MovedLedgerError
from sfumato.ledger import open_ledger, store
from sfumato.ledger.entry import entry_hash
from sfumato.ledger.store import KEPT, Store, connections, unmerged_wal
from sfumato.ledger.verification import back_up, restore
from sfumato.privacy.loss import Charge, Epsilon


@pytest.fixture
def file(tmp_path):
    return tmp_path / "people.ledger"


@pytest.fixture
def people(file):
    with open_ledger(f"sqlite:///{file}", dataset="people", limit=Epsilon(1), create=True) as opened:
        ask(opened)
        yield opened


def moved(file: Path) -> None:
    file.rename(file.with_name("elsewhere.ledger"))


def deleted(file: Path) -> None:
    for each in file.parent.glob(f"{file.name}*"):
        each.unlink()


def replaced(file: Path) -> None:
    copy = file.with_name("copy")
    shutil.copy(file, copy)
    copy.replace(file)


@pytest.mark.parametrize("gone", [moved, deleted, replaced])
def test_a_file_that_is_gone_is_neither_charged_nor_read_nor_made_anew(people, file, gone):
    gone(file)
    there = file.exists()
    for call in (lambda: ask(people, 1), people.remaining, people.verify, lambda: people.set_cap("ann", Epsilon(1))):
        with pytest.raises(MovedLedgerError, match="moved, deleted or replaced"):
            call()
    assert file.exists() == there
    if not there:
        with pytest.raises(MissingLedgerError, match="--create"):
            open_ledger(f"sqlite:///{file}", dataset="people", limit=Epsilon(1))
        assert not file.exists()


def test_a_file_that_goes_while_a_commit_is_under_way_is_not_charged(people, file, monkeypatch):
    writing = Store.writing

    @contextmanager
    def leaving(store):
        with writing(store) as driver:
            moved(file)
            yield driver

    with monkeypatch.context() as patched:
        patched.setattr(Store, "writing", leaving)
        with pytest.raises(MovedLedgerError):
            ask(people, 1)
    file.with_name("elsewhere.ledger").rename(file)
    assert len(list(people.journal())) == 1
    people.verify()


def test_a_file_that_is_put_back_serves_again(people, file):
    moved(file)
    with pytest.raises(MovedLedgerError):
        ask(people, 1)
    file.with_name("elsewhere.ledger").rename(file)
    assert ask(people, 1).charged
    people.verify()


def test_a_new_file_in_the_old_place_is_opened_by_who_opens_it_now(people, file):
    deleted(file)
    with open_ledger(f"sqlite:///{file}", dataset="people", limit=Epsilon(2), create=True) as fresh:
        assert ask(fresh, 1).charged
        with pytest.raises(MovedLedgerError):
            ask(people, 1)
        assert spent_epsilon(fresh) == Epsilon("0.1").value


def test_a_file_of_two_names_is_not_opened_under_either(people, file):
    other = file.with_name("other.ledger")
    other.hardlink_to(file)
    for name in (file, other):
        with pytest.raises(LedgerError, match="a file of two names"):
            open_ledger(f"sqlite:///{name}", dataset="people", limit=None)
    other.unlink()
    open_ledger(f"sqlite:///{file}", dataset="people", limit=None).close()


def test_a_dataset_that_was_founded_anew_is_not_charged(url, ledger):
    ask(ledger)
    unfreeze(url)
    for table in ("answer", "retry", "entry", "analyst", "dataset"):
        behind_its_back(url, f"DELETE FROM ledger_{table}")  # noqa: S608
    with open_ledger(url, dataset="people", limit=Epsilon(1), create=True) as other:
        with pytest.raises(MovedLedgerError, match="founded anew"):
            ask(ledger, 1)
        assert list(other.journal()) == []
        for number in (5, 6):  # a journal that has grown beyond what was seen of the old one is as little its own
            ask(other, number)
        with pytest.raises(MovedLedgerError, match="founded anew"):
            ask(ledger, 1)
        assert len(list(other.journal())) == 2


def test_a_dataset_founded_anew_is_not_charged_by_who_has_seen_no_entry_of_it(url, ledger):
    with pytest.raises(BudgetError):
        ask(ledger, charge=Charge(Fraction(2), Fraction(2), Fraction(0)))
    unfreeze(url)
    for table in ("answer", "retry", "entry", "analyst", "dataset"):
        behind_its_back(url, f"DELETE FROM ledger_{table}")  # noqa: S608
    with open_ledger(url, dataset="people", limit=Epsilon(1), create=True) as other:
        ask(other, 5)
        with pytest.raises(MovedLedgerError, match="founded anew"):
            ask(ledger, 1)
        assert len(list(other.journal())) == 1


def test_an_entry_is_bound_to_the_one_before_it(ledger):
    """The last hash covers all entries: rewriting one changes every later hash."""
    for number in range(2):
        ask(ledger, number)
    first, second = ledger.journal()
    assert second.previous == first.hash
    assert entry_hash(second.previous, second.number, second.time, second.event) == second.hash
    assert entry_hash(first.previous, second.number, second.time, second.event) != second.hash


def test_a_journal_that_was_set_back_is_not_charged(url, ledger):
    first = ask(ledger)
    head = ledger.verify()
    ask(ledger, 1)
    unfreeze(url)
    behind_its_back(
        url,
        "DELETE FROM ledger_entry WHERE number = 2",
        f"UPDATE ledger_dataset SET entries = 1, head = '{head}'",  # noqa: S608
        "UPDATE ledger_dataset SET epsilon = '1/10', rho = '1/200', spent_units = 100000000000",
    )
    assert ledger.verify() == head
    with pytest.raises(MovedLedgerError, match="no longer holds what was released"):
        ask(ledger, 2)
    with open_ledger(url, dataset="people", limit=None) as again:
        assert (first.number, answered(again).answer) == (1, b"x")
        for number in (7, 8):  # it grows beyond what was seen of it, on another branch
            ask(again, number)
        with pytest.raises(MovedLedgerError, match="no longer holds what was released"):
            ask(ledger, 2)
        ask(again, 9)  # a reader who saw no other branch continues


def test_a_hash_that_was_kept_finds_an_older_copy(people, file):
    old = file.with_name("old.ledger")
    heads = back_up(f"sqlite:///{file}", old)
    ask(people, 1)
    head = people.verify(head=heads["people"])
    assert head != heads["people"]
    assert people.verify(head=head) == head
    with open_ledger(f"sqlite:///{old}", dataset="people", limit=None) as copy:
        assert copy.verify() == copy.verify(head=heads["people"]) == heads["people"]
        with pytest.raises(LedgerError, match="does not contain the kept hash"):
            copy.verify(head=head)


def test_the_hash_of_an_empty_journal_is_kept_as_well(url):
    with open_ledger(url, dataset="people", limit=Epsilon(1), create=True) as ledger:
        empty = ledger.verify()
        ask(ledger)
        assert ledger.verify(head=empty) != empty
        with pytest.raises(LedgerError, match="kept"):
            ledger.verify(head="0" * 64)


def crashed(people, file: Path, monkeypatch) -> Path:
    """The files as a process leaves them that is killed: what was released last is in the log alone."""
    folder = file.with_name("crashed")
    folder.mkdir()
    monkeypatch.setattr("sfumato.ledger.store.CHECKPOINT_AFTER", float("inf"))
    ask(people, 1)
    for each in file.parent.glob(f"{file.name}*"):
        shutil.copy(each, folder)
    return folder / file.name


def test_a_log_beside_a_ledger_is_seen_and_a_backup_takes_it_in(people, file, monkeypatch):
    left = crashed(people, file, monkeypatch)
    url = f"sqlite:///{left}"
    assert unmerged_wal(url) == left.with_name("people.ledger-wal")
    head = people.verify()
    bare = left.with_name("bare.ledger")
    shutil.copy(left, bare)
    with open_ledger(f"sqlite:///{bare}", dataset="people", limit=None) as forgetful:
        assert forgetful.verify() != head, "a copy of the file alone has forgotten a release"
    copy = left.with_name("copy.ledger")
    assert back_up(url, copy) == {"people": head}
    assert unmerged_wal(f"sqlite:///{copy}") is None
    with open_ledger(url, dataset="people", limit=None) as recovered:
        assert recovered.verify() == head
    assert unmerged_wal(url) is None


def test_closing_leaves_nothing_in_the_log_and_time_moves_it_to_the_file(people, file, monkeypatch):
    monkeypatch.setattr("sfumato.ledger.store.CHECKPOINT_AFTER", -1)
    ask(people, 1)
    head = people.verify()
    bare = file.with_name("bare.ledger")
    shutil.copy(file, bare)
    with open_ledger(f"sqlite:///{bare}", dataset="people", limit=None) as copy:
        assert copy.verify() == head
    people.close()
    assert unmerged_wal(f"sqlite:///{file}") is None


def test_a_ledger_that_is_dropped_without_closing_leaves_no_open_file(file):
    ledger = open_ledger(f"sqlite:///{file}", dataset="people", limit=Epsilon(1), create=True)
    ask(ledger)
    names = {str(file), f"{file}-wal", f"{file}-shm"}
    assert names <= open_files()
    del ledger
    gc.collect()
    assert not names & open_files()


def test_the_locks_of_a_ledger_do_not_keep_its_connections(url):
    ledger = open_ledger(url, dataset="people", limit=Epsilon(1), create=True)
    ask(ledger)
    dropped = weakref.ref(ledger._store)  # noqa: SLF001
    del ledger
    gc.collect()
    assert dropped() is None


def test_connections_that_are_given_back_while_another_store_takes_them_are_shared(people, file, monkeypatch):
    """A store that nobody holds is collected at any moment, also while connections are looked up."""
    look = store.identity

    def collected(path):
        monkeypatch.setattr(store, "identity", look)
        people.close()
        return look(path)

    monkeypatch.setattr(store, "identity", collected)
    with closing(Store(f"sqlite:///{file}")) as taken, closing(Store(f"sqlite:///{file}")) as other:
        assert taken._connections is other._connections  # noqa: SLF001


def open_files() -> set[str]:
    """The files that this process has open."""
    links = Path("/proc/self/fd").iterdir()
    return {str(link.readlink()) for link in links if link.is_symlink()}


def test_a_copy_is_restored_where_nothing_lies_and_holds_what_was_kept(people, file):
    copy = file.with_name("copy.ledger")
    heads = back_up(f"sqlite:///{file}", copy)
    ask(people, 1)
    later = people.verify()
    people.close()
    url = f"sqlite:///{file}"
    with pytest.raises(InputError, match="exists; move it away"):
        restore(copy, url, earlier_heads=[])
    deleted(file)
    with pytest.raises(LedgerError, match=r"no journal .* contains the hash"):
        restore(copy, url, earlier_heads=[later])
    assert not file.exists()
    assert restore(copy, url, earlier_heads=[heads["people"]]) == heads
    with open_ledger(url, dataset="people", limit=None) as again:
        assert ask(again, 1).charged
        assert not ask(again).charged
        again.verify(head=heads["people"])
    assert not list(file.parent.glob(".*"))


def test_what_is_no_whole_ledger_is_neither_copied_nor_restored(people, file, tmp_path):
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as made:
        made.execute("CREATE TABLE people (name TEXT)")
    with pytest.raises(LedgerError, match="not a ledger"):
        back_up(f"sqlite:///{other}", tmp_path / "copy")
    with pytest.raises(LedgerError, match="not a ledger"):
        restore(other, f"sqlite:///{tmp_path}/new.ledger", earlier_heads=[])
    with pytest.raises(InputError, match="there is no copy"):
        restore(tmp_path / "no", f"sqlite:///{tmp_path}/new.ledger", earlier_heads=[])
    with pytest.raises(InputError, match="exists"):
        back_up(f"sqlite:///{file}", other)
    unfreeze(f"sqlite:///{file}")
    behind_its_back(f"sqlite:///{file}", "UPDATE ledger_entry SET statement = 'better'")
    with pytest.raises(LedgerError, match="broken at entry 1"):
        back_up(f"sqlite:///{file}", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert not (tmp_path / "new.ledger").exists()


def test_postgresql_copies_by_its_own_means(postgres, tmp_path):
    with pytest.raises(InputError, match="by pg_dump; run 'sfumato ledger heads'"):
        back_up(postgres, tmp_path / "copy")
    with pytest.raises(InputError, match="PostgreSQL"):
        restore(Path(__file__), postgres, earlier_heads=[])


@pytest.mark.parametrize(
    "address",
    [
        "sqlite:///file:x?mode=memory&uri=true",
        "sqlite:///file:x?mode=memory&cache=shared&uri=true",
        "sqlite:///file::memory:?uri=true",
        "sqlite:///file:?uri=true",
        "sqlite:///file:x?vfs=memdb&uri=true",
        "sqlite:///x.ledger?mode=memory&uri=true",
        "sqlite:///x.ledger?immutable=1&uri=true",
    ],
)
def test_a_ledger_in_memory_is_refused(address, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"sqlite:///FILE"):
        open_ledger(address, dataset="people", limit=Epsilon(1), create=True)
    assert list(tmp_path.iterdir()) == []


def test_all_stores_of_an_address_share_a_few_connections(url):
    with open_ledger(url, dataset="people", limit=Epsilon(1), create=True) as first:
        ledgers = [open_ledger(url, dataset=f"people{number}", limit=Epsilon(1), create=True) for number in range(20)]
        for number, each in enumerate(ledgers):
            ask(each, number)
        with closing(Store(url)) as one, closing(Store(url)) as other:
            shared = [connections(store.address, store.file) for store in (one, other)]
            assert shared[0] is shared[1]
            assert shared[0].users == len(ledgers) + 1 + 2 + 2, "ledgers, stores and this test itself"
            assert 1 <= len(shared[0].idle) <= KEPT
            for each in shared:
                each.give_back()
        for each in ledgers:
            each.close()
            each.close()
        assert ask(first).charged, "closing the others leaves it open"


def test_who_has_no_connection_left_is_not_alive(postgres):
    address = make_url(postgres)
    user, word = f"few_{secrets.token_hex(6)}", secrets.token_hex(16)
    behind_its_back(
        postgres,
        f"CREATE ROLE {user} LOGIN CONNECTION LIMIT 1 PASSWORD '{word}'",
        f"GRANT ALL ON SCHEMA {address.query['options'].rpartition('=')[2]} TO {user}",
    )
    try:
        few = address.set(username=user, password=word).render_as_string(hide_password=False)
        with closing(Store(few)) as store:
            store.alive()
            with store.reading() as connection:
                connection.rows("SELECT 1")
                with pytest.raises(LedgerError, match="check that the server runs and has connections left"):
                    store.alive()
    finally:
        behind_its_back(postgres, f"DROP OWNED BY {user}", f"DROP ROLE {user}")
