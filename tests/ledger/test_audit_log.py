"""The audit log: one chain of hashes, written with what it records, that no other hands change unnoticed."""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from contextlib import closing
from multiprocessing.connection import Connection

import pytest
from tests.ledger.asking import behind_its_back, unfreeze
from tests.processes import processes

from sfumato.errors import BrokenLedgerError, LedgerError
from sfumato.ledger import Kind, open_ledger
from sfumato.ledger.audit_log import Actor, every_action, newest_actions, verified_actions
from sfumato.ledger.store import Store
from sfumato.ledger.verification import AUDIT_LOG, back_up, restore
from sfumato.privacy.loss import Epsilon

STEWARD = Actor("stew", "key 12ab")


def listed(url):
    with closing(Store(url)) as store:
        store.prepare(create=False)
        return list(every_action(store))


@pytest.fixture
def capped(ledger, url):
    """A ledger with four actions."""
    for number in range(1, 5):
        ledger.set_cap("ann", Epsilon(f"0.{number}"), by=STEWARD)
    ledger.close()
    return url


def recomputed(line):
    """The hash of an action by what the manual says, and by no code of the package."""
    said = json.loads(line)
    kept = said.pop("hash")
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return kept == hashlib.sha256(text.encode()).hexdigest(), said["previous"], kept


def test_an_action_says_who_changed_what_when_from_what_to_what(capped):
    first, *_, last = listed(capped)
    assert (last.actor, last.through, last.kind, last.subject) == ("stew", "key 12ab", "cap", "people")
    assert first.state_before == {"analyst": "ann", "cap": None}
    assert last.state_before == {"analyst": "ann", "cap": "epsilon = 0.3"}
    assert last.state_after == {"analyst": "ann", "cap": "epsilon = 0.4"}
    assert [each.number for each in listed(capped)] == [1, 2, 3, 4]
    assert first.time < last.time
    with closing(Store(capped)) as store, store.reading() as driver:
        assert [each.number for each in newest_actions(driver, before=4, most=2)] == [3, 2]


def test_the_chain_can_be_recomputed_from_the_lines(capped):
    previous = None
    for action in listed(capped):
        whole, bound, kept = recomputed(action.to_json())
        assert whole
        assert previous in (None, bound)
        previous = kept
    assert verified_actions(capped).hash == previous


def test_a_program_on_the_machine_acts_as_the_systems_user(ledger, url, monkeypatch):
    monkeypatch.setenv("LOGNAME", "somebody-else")
    monkeypatch.delenv("SUDO_USER", raising=False)
    ledger.set_cap("ann", None)
    monkeypatch.setenv("SUDO_USER", "root-less")
    ledger.set_cap("ann", None)
    first, second = listed(url)
    assert (first.through, second.through) == ("machine", "machine, sudo by root-less")
    assert first.actor == second.actor
    assert first.actor not in {"", "somebody-else"}


@pytest.mark.parametrize(
    ("statement", "where"),
    [
        ("UPDATE service_action SET actor = 'eve' WHERE number = 2", "at action 2"),
        ("UPDATE service_action SET through = 'x' WHERE number = 1", "at action 1"),
        ("UPDATE service_action SET time = '2020-01-01' WHERE number = 2", "at action 2"),
        ("UPDATE service_action SET kind = 'key' WHERE number = 2", "at action 2"),
        ("UPDATE service_action SET subject = 'other' WHERE number = 2", "at action 2"),
        ("UPDATE service_action SET state_before = state_after WHERE number = 2", "at action 2"),
        ("UPDATE service_action SET state_after = '{}' WHERE number = 4", "at action 4"),
        ("UPDATE service_action SET state_after = 'no json' WHERE number = 4", "at action 4"),
        ("UPDATE service_action SET number = 9 WHERE number = 4", "at action 4"),
        ("DELETE FROM service_action WHERE number = 1", "at action 1"),
        ("DELETE FROM service_action WHERE number = 3", "at action 3"),
        ("DELETE FROM service_action WHERE number = 4", "after action 3"),
        ("DELETE FROM service_action", "after action 0"),
        ("DELETE FROM service_action_head", "after action 4"),
        ("UPDATE service_action_head SET number = 3", "after action 4"),
        (
            "INSERT INTO service_action VALUES (5, 't', 'eve', 'x', 'cap', 'people', '{}', '{}', 'p', 'h')",
            "at action 5",
        ),
    ],
)
def test_edits_by_others_are_found(capped, statement, where):
    assert verified_actions(capped).number == 4
    unfreeze(capped)
    behind_its_back(capped, statement)
    with pytest.raises(BrokenLedgerError, match=f"audit log of stewards' actions is broken {where}"):
        verified_actions(capped)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE service_action SET actor = 'eve'",
        "DELETE FROM service_action",
        "DELETE FROM service_action_head",
        "UPDATE service_action_head SET number = number - 1",
        "UPDATE service_action_head SET hash = 'x'",
    ],
)
def test_the_database_itself_keeps_the_log_append_only(capped, statement):
    with pytest.raises(LedgerError):
        behind_its_back(capped, statement)
    assert verified_actions(capped).number == 4


def test_a_hash_that_was_kept_finds_an_older_log(ledger, url):
    ledger.set_cap("ann", Epsilon("0.1"))
    first = verified_actions(url)
    ledger.set_cap("ann", Epsilon("0.2"))
    second = verified_actions(url, earlier_head=first.hash)
    assert second.number == 2
    assert verified_actions(url, earlier_head=second.hash) == second
    with pytest.raises(LedgerError, match="does not contain the kept hash"):
        verified_actions(url, earlier_head="0" * 64)


def test_a_cap_and_its_action_are_written_together_or_not_at_all(ledger, url):
    ledger.set_cap("ann", Epsilon("0.1"))
    unfreeze(url)
    behind_its_back(url, "DELETE FROM service_action_head")  # so that no action can be written
    with pytest.raises(BrokenLedgerError):
        ledger.set_cap("ann", Epsilon("0.2"))
    assert str(ledger.caps()["ann"].limit) == "epsilon = 0.1"
    assert [entry.kind for entry in ledger.journal()] == [Kind.CAP]


def test_a_backup_has_the_last_hash_of_the_log_and_a_restore_looks_for_it(tmp_path):
    url, copy = f"sqlite:///{tmp_path}/s.ledger", tmp_path / "copy"
    with open_ledger(url, dataset="people", limit=Epsilon(1), create=True) as ledger:
        ledger.set_cap("ann", Epsilon("0.1"))
        kept = back_up(url, copy)
        assert kept == {"people": ledger.verify(), AUDIT_LOG: verified_actions(url).hash}
        ledger.set_cap("ann", Epsilon("0.2"))
    later = verified_actions(url).hash
    with pytest.raises(LedgerError, match="contains the hash"):
        restore(copy, f"sqlite:///{tmp_path}/new.ledger", earlier_heads=[later])
    assert restore(copy, f"sqlite:///{tmp_path}/new.ledger", earlier_heads=list(kept.values())) == kept


def cap_forever(url: str, name: str, done: Connection) -> None:
    """Set caps that grow, until the process is killed."""
    with open_ledger(url, dataset="people", limit=None) as ledger:
        for number in itertools.count(1):
            ledger.set_cap(name, Epsilon(f"0.{number:06}"), by=Actor(name, "key"))
            done.send(number)


def test_kill_9_leaves_no_cap_without_its_action_and_no_action_without_its_cap(ledger, url):
    names, said = ("ann", "bob"), {}
    for round_ in range(4):
        children = {}
        for name in names:
            pipe, sender = processes().Pipe(duplex=False)
            child = processes().Process(target=cap_forever, args=(url, name, sender))
            child.start()
            sender.close()
            children[name] = (child, pipe)
        for name, (child, pipe) in children.items():
            assert pipe.poll(120)
            time.sleep(0.01 * round_)
            child.kill()
            child.join()
            said[name] = 0
            try:
                while True:
                    said[name] = pipe.recv()
            except (EOFError, OSError):
                pipe.close()
        found = listed(url)
        assert verified_actions(url).number == len(found)
        for name in names:
            last = [each.state_after["cap"] for each in found if each.actor == name][-1]
            assert last == str(ledger.caps()[name].limit)
            assert float(last.split(" = ")[1]) >= said[name] / 10**6 - 1e-12
        capped = sum(entry.kind is Kind.CAP for entry in ledger.journal())
        assert capped == len(found)
