"""A version of the data is declared once, is in the journal, and is distinguished from other content by its digest."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from functools import partial
from unittest.mock import Mock

import pytest
from tests.ledger.asking import (
    ROW,
    TENTH,
    ask,
    behind_its_back,
    question,
    release,
    reservation,
    reserve,
    spent_epsilon,
    unfreeze,
)
from tests.ledger.racing_processes import chance, declare_and_die, declare_and_release, declare_once
from tests.processes import processes

from sfumato.domain import Unit
from sfumato.engine.table_files import Content
from sfumato.errors import BudgetError, InputError, LedgerError, UnitError, VersionError
from sfumato.ledger import Kind, Ledger, Question, open_ledger
from sfumato.privacy.loss import Epsilon

RACING = 6


def test_the_first_content_is_version_1(ledger):
    assert ledger.data_version() is None
    found = ledger.declare_version("content", by="ann", new=False)
    assert (found.number, found.declared_by) == (1, "ann")
    assert ledger.data_version() == found
    (entry,) = ledger.journal()
    assert (entry.kind, entry.charge, entry.analyst) == (Kind.VERSION, None, None)
    assert entry.asked == "version 1 of the data, declared by ann"
    assert "content" not in entry.question.to_json
    ledger.verify()


def test_the_same_content_is_the_same_version_and_writes_nothing(ledger):
    first = ledger.declare_version("content", by="ann", new=False)
    head = ledger.verify()
    assert ledger.declare_version("content", by="bob", new=False) == first
    assert ledger.verify() == head


def test_a_new_version_begins_whatever_its_content(ledger):
    """Otherwise a reader of the number would learn whether any row changed."""
    for content in ("a", "a", "b", "a"):
        ledger.declare_version(content, by="ann", new=True)
    assert [version.number for version in ledger.data_versions()] == [1, 2, 3, 4]
    ledger.verify()


def test_other_content_is_refused_unless_it_is_declared(ledger):
    first = ledger.declare_version("content", by="ann", new=False)
    head = ledger.verify()
    with pytest.raises(VersionError, match=r"differ from version 1 .* --new-version .*new_version=True"):
        ledger.declare_version("other", by="ann", new=False)
    assert (ledger.verify(), ledger.data_version()) == (head, first)
    second = ledger.declare_version("other", by="bob", new=True)
    assert (second.number, second.declared_by) == (2, "bob")
    assert ledger.data_versions() == [first, second]
    ledger.verify(head=head)


def test_returning_to_an_older_content_is_a_new_version(ledger):
    numbers = [ledger.declare_version(content, by="ann", new=True).number for content in ("a", "b", "a")]
    assert numbers == [1, 2, 3]


@pytest.mark.parametrize("content", ["a", "b"])
def test_the_journal_does_not_tell_whether_the_content_changed(ledger, content):
    """Otherwise a reader of the journal would learn whether any person's rows changed."""
    for each in ("a", content, "a"):
        ledger.declare_version(Named(each, f"bytes of {each}"), by="ann", new=True)
    versions = ledger.data_versions()
    said = [digest for version in versions for digest in (version.digest, version.files)]
    assert len(set(said)) == 2 * len(versions)
    assert ledger.number_of(Named("a"), new=False) == len(versions)
    ledger.verify()


def test_two_ledgers_call_one_content_by_different_digests(url):
    digests = []
    for dataset in ("one", "other"):
        with open_ledger(url, dataset=dataset, limit=Epsilon(1), create=True) as ledger:
            digests.append(ledger.declare_version("content", by="ann", new=False).digest)
    assert digests[0] != digests[1]


def test_a_version_needs_a_name(ledger):
    with pytest.raises(InputError, match="printable"):
        ledger.declare_version("content", by="", new=False)


def test_charges_and_versions_are_in_one_journal(ledger):
    ask(ledger)
    ledger.declare_version("a", by="ann", new=False)
    ledger.declare_version("b", by="ann", new=True)
    ledger.set_cap("bob", Epsilon("0.5"))
    assert [entry.kind for entry in ledger.journal()] == [Kind.RELEASE, Kind.VERSION, Kind.VERSION, Kind.CAP]
    ledger.verify()
    assert ledger.check().number == 4


def test_threads_that_declare_at_once_agree(ledger):
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(ledger.declare_version("a", by="ann", new=False)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each.number for each in found] == [1] * 8
    assert len(list(ledger.journal())) == 1


@pytest.mark.parametrize(
    ("forged", "says"),
    [
        ("UPDATE ledger_dataset SET version_digest = 'aa'", "is not the last one of its journal"),
        ("UPDATE ledger_dataset SET version = 3", "is not the last one of its journal"),
        ("UPDATE ledger_entry SET question = REPLACE(question, 'ann', 'bob') WHERE number = 1", "broken at entry 1"),
        ("UPDATE ledger_entry SET kind = 'cap' WHERE number = 2", "broken at entry 2"),
        ("DELETE FROM ledger_entry WHERE number = 2", "entries are missing"),
    ],
)
def test_a_version_edited_in_the_database_is_found(url, ledger, forged, says):
    ledger.declare_version("a", by="ann", new=False)
    ledger.declare_version("b", by="ann", new=True)
    ledger.verify()
    unfreeze(url)
    behind_its_back(url, forged)
    with pytest.raises(LedgerError, match=says):
        ledger.verify()


def test_a_version_that_does_not_follow_the_last_one_is_found(url, ledger, monkeypatch):
    monkeypatch.setattr("sfumato.ledger.dataset_terms.Question", skipping)
    ledger.declare_version("a", by="ann", new=False)
    with pytest.raises(LedgerError, match="its version"):
        ledger.verify()
    with pytest.raises(LedgerError, match="its version"):
        ledger.check()


def skipping(family, method, parameters, version):
    return Question(family, method, {**parameters, "number": parameters["number"] + 1}, version)


def test_the_number_of_the_last_version_never_goes_back(url, ledger):
    ledger.declare_version("a", by="ann", new=False)
    with pytest.raises(LedgerError):
        behind_its_back(url, "UPDATE ledger_dataset SET version = 0")


def test_of_processes_that_declare_first_contents_at_once_one_wins(url, ledger):
    context = processes()
    barrier, receiving, children = context.Barrier(RACING), [], []
    for number in range(RACING):
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=declare_once, args=(url, f"content {number % 2}", barrier, sender))
        child.start()
        sender.close()
        children.append(child)
        receiving.append(receiver)
    told = [receiver.recv() for receiver in receiving]
    for child in children:
        child.join()
    won = {content for content, number in told if number == 1}
    assert len(won) == 1
    assert {number for content, number in told if content not in won} == {"VersionError"}
    assert [version.number for version in ledger.data_versions()] == [1]
    ledger.verify()


def test_a_question_about_another_version_is_refused_before_it_is_charged(ledger):
    ask(ledger)
    ledger.declare_version("a", by="ann", new=False)
    head = ledger.verify()
    for version in (0, 2):
        with pytest.raises(VersionError, match=r"version 1 of the data was declared.*nothing was charged"):
            reserve(ledger, question(1, version), TENTH, statement="pure", unit=ROW)
    assert ledger.verify() == head
    assert reserve(ledger, question(0, 1), TENTH, statement="pure", unit=ROW).charged


def test_a_repeat_is_free_within_a_version_and_charged_in_the_next_one(ledger):
    for version, content in enumerate(("a", "b", "a"), start=1):
        ledger.declare_version(content, by="ann", new=True)
        for turn in range(3):
            made = partial(str(version).encode)
            answered = release(ledger, question(0, version), TENTH, made, statement="pure", unit=ROW)
            assert (answered.answer, answered.charged) == (str(version).encode(), turn == 0)
    assert spent_epsilon(ledger) == 3 * TENTH.epsilon


def test_a_death_between_a_version_and_its_first_charge_charges_nothing(url, ledger):
    ledger.declare_version("a", by="ann", new=False)
    child = processes().Process(target=declare_and_die, args=(url, "b"))
    child.start()
    child.join()
    assert child.exitcode == -9
    ledger.verify()
    assert (ledger.data_version().number, spent_epsilon(ledger)) == (2, 0)
    assert ledger.declare_version("b", by="ann", new=False).number == 2
    assert reserve(ledger, question(0, 2), TENTH, statement="pure", unit=ROW).charged


def test_releases_are_of_the_last_version_while_processes_declare_and_die(url, ledger):
    context, delivered = processes(), []
    for _ in range(2):
        children = []
        for _ in range(2):
            receiver, sender = context.Pipe(duplex=False)
            child = context.Process(target=declare_and_release, args=(url, sender))
            child.start()
            sender.close()
            children.append((child, receiver))
        for child, receiver in children:
            assert receiver.poll(120)
            time.sleep(chance.uniform(0, 0.3))
            child.kill()
            child.join()
            with suppress(EOFError, OSError):
                while True:
                    delivered.append(receiver.recv())
            receiver.close()
    ledger.verify()
    last, of_versions, entries = "0", {}, list(ledger.journal())
    for entry in entries:
        match entry.kind:
            case Kind.VERSION:
                last = str(entry.question.parameters["number"])
            case Kind.RELEASE:
                assert entry.question.dataset_version == last
                of_versions[entry.question.dataset_version, entry.question.parameters["number"]] = entry.number
    assert delivered
    for version, number, answer in delivered:
        stored = ledger.answers([("query", "count")], str(version), analyst=None)
        held = {each.question.parameters["number"]: each.body for each in stored}
        assert held[number] == answer
        assert (str(version), number) in of_versions


@pytest.fixture
def place(tmp_path):
    return f"sqlite:///{tmp_path / 'late.ledger'}"


class Named:
    """A content, of files or not."""

    def __init__(self, name, files=""):
        self.name = name
        self.files = files


class Unread:
    """A content whose rows must not be read."""

    def __init__(self, files):
        self.files = files

    @property
    def name(self):
        pytest.fail("the rows were read")


def test_files_with_the_bytes_of_the_last_version_are_not_read_again(ledger):
    first = ledger.declare_version(Named("a", "bytes"), by="ann", new=False)
    assert "bytes" not in str(first)
    head = ledger.verify()
    assert ledger.declare_version(Unread("bytes"), by="ann", new=False) == first
    assert ledger.number_of(Unread("bytes"), new=False) == 1
    assert ledger.declare_version(Named("a", "other bytes"), by="ann", new=False) == first
    assert ledger.declare_version(Named("a"), by="ann", new=False) == first
    assert ledger.verify() == head, "the same rows in other files are the same version"


@pytest.mark.parametrize("files", ["bytes", "other bytes"])
def test_declaring_the_next_version_reads_all_rows_whatever_changed(ledger, files):
    """Otherwise the time would reveal whether any person's rows changed."""
    ledger.declare_version(Named("a", "bytes"), by="ann", new=False)
    reading = Mock(return_value="a")
    ledger.declare_version(Content(reading, files=files), by="ann", new=True)
    reading.assert_called_once_with()


def test_the_bytes_of_an_earlier_version_are_not_those_of_the_last_one(ledger):
    for content in (Named("a", "bytes"), Named("b", "more"), Named("a", "bytes")):
        ledger.declare_version(content, by="ann", new=True)
    assert [version.number for version in ledger.data_versions()] == [1, 2, 3]
    with pytest.raises(VersionError):
        ledger.declare_version(Named("b", "more"), by="ann", new=False)


def deferred(place, *, create=False):
    return Ledger(place, dataset="people", limit=Epsilon(1), create=create)


def test_a_deferred_ledger_declares_with_its_first_release(place, tmp_path):
    late = deferred(place, create=True).declare_later(Named("a"), new=False)
    assert (late.version, list(tmp_path.iterdir())) == ("1", [])
    with reservation(late, question(0, 1), TENTH, statement="pure", unit=ROW) as reserved:
        reserved.store(b"first")
    with open_ledger(place, dataset="people", limit=None) as opened:
        assert [entry.kind for entry in opened.journal()] == [Kind.VERSION, Kind.RELEASE]


def test_a_deferred_ledger_refuses_other_content_and_writes_nothing(place):
    with open_ledger(place, dataset="people", limit=Epsilon(1), create=True) as opened:
        opened.declare_version("a", by="ann", new=False)
        head = opened.verify()
        with pytest.raises(VersionError, match="differ from version 1"):
            deferred(place).declare_later(Named("b"), new=False)
        late = deferred(place).declare_later(Named("b"), new=True)
        assert (late.version, opened.verify()) == ("2", head), "only its first release declares it"
        with reservation(late, question(0, 2), TENTH, statement="pure", unit=ROW) as reserved:
            reserved.store(b"first")
        assert opened.data_version().number == 2


def test_a_deferred_ledger_declares_once_for_all_its_releases(place):
    with open_ledger(place, dataset="people", limit=Epsilon(1), create=True) as opened:
        opened.declare_version("a", by="ann", new=False)
    for content, new, version in (("a", True, 2), ("a", False, 2), ("b", True, 3)):
        late = deferred(place).declare_later(Named(content), new=new)
        assert late.version == str(version)
        for number in range(3):
            with reservation(late, question(number, version), TENTH, statement="pure", unit=ROW) as reserved:
                if reserved.answer is None:
                    reserved.store(b"a")
    with open_ledger(place, dataset="people", limit=None) as opened:
        kinds = [entry.kind for entry in opened.journal()]
    assert kinds == [Kind.VERSION, *[Kind.VERSION, *[Kind.RELEASE] * 3] * 2]


def test_a_release_that_is_refused_for_its_charge_begins_no_version(place):
    with open_ledger(place, dataset="people", limit=Epsilon(1), create=True) as opened:
        opened.declare_version("a", by="ann", new=False)
        for number in range(10):
            release(opened, question(number, 1), TENTH, lambda: b"a", statement="pure", unit=ROW)
        head = opened.verify()
        late = deferred(place).declare_later(Named("a"), new=True)
        with (
            pytest.raises(BudgetError, match="epsilon = 0 left"),
            reservation(late, question(0, 2), TENTH, statement="pure", unit=ROW),
        ):
            pytest.fail("nothing may be computed")
        assert opened.verify() == head


@pytest.mark.parametrize(
    ("error", "terms"),
    [
        (BudgetError, {"analyst": "ana", "unit": ROW}),
        (UnitError, {"unit": Unit("id", rows=1)}),
        (UnitError, {"unit": ROW, "details": {"owners": {"visits": "of whoever came"}}}),
    ],
    ids=["beyond a cap", "of another unit", "of other owners"],
)
def test_a_release_that_the_ledger_does_not_admit_begins_no_version(place, error, terms):
    with open_ledger(place, dataset="people", limit=Epsilon(1), create=True) as opened:
        opened.declare_version("a", by="ann", new=False)
        opened.set_cap("ana", Epsilon("0.05"))
        told = {"owners": {"visits": "of the patient"}}
        release(opened, question(0, 1), TENTH, lambda: b"a", statement="pure", unit=ROW, details=told)
        head = opened.verify()
        late = deferred(place).declare_later(Named("a"), new=True)
        with pytest.raises(error), reservation(late, question(0, 2), TENTH, statement="pure", **terms):
            pytest.fail("nothing may be computed")
        assert (opened.verify(), opened.data_version().number) == (head, 1)


def test_a_deferred_ledger_whose_version_was_passed_declares_no_other(place):
    with open_ledger(place, dataset="people", limit=Epsilon(1), create=True) as opened:
        opened.declare_version("a", by="ann", new=False)
        late = deferred(place).declare_later(Named("b"), new=True)
        opened.declare_version("c", by="bob", new=True)
        opened.declare_version("d", by="bob", new=True)
        head = opened.verify()
        with pytest.raises(VersionError), reservation(late, question(0, 2), TENTH, statement="pure", unit=ROW):
            pytest.fail("nothing may be computed")
        assert opened.verify() == head
