"""Keys are rotated, found by name, state and end, and know when they were used last."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from tests.app.test_cli import sfumato

from sfumato.ledger.store import Store
from sfumato_server import registry
from sfumato_server.registry import Registry, Scope
from sfumato_server.stewards import search_keys


@pytest.fixture
def keys(tmp_path):
    with closing(Store(f"sqlite:///{tmp_path}/s.ledger")) as store:
        store.prepare(create=True)
        yield Registry(store)


def test_a_rotated_key_is_as_the_other_was_which_ends(keys):
    former, secret = keys.issue("ana", Scope.ANALYST, timedelta(days=30))
    key, new = keys.rotate(former.id, overlap=timedelta(0))
    assert (key.name, key.scope) == ("ana", Scope.ANALYST)
    assert key.expires - key.issued == timedelta(days=30)
    assert not keys.key(secret).valid
    assert keys.key(new).valid
    assert keys.rotate(former.id, overlap=timedelta(0)) is None


def test_both_work_for_the_overlap_and_no_longer_than_the_former_would(keys):
    former, secret = keys.issue("ana", Scope.ANALYST, timedelta(days=30))
    keys.rotate(former.id, overlap=timedelta(hours=2))
    left = keys.key(secret).expires - datetime.now(UTC)
    assert timedelta(hours=1) < left <= timedelta(hours=2)
    short, secret = keys.issue("bob", Scope.ANALYST, timedelta(hours=1))
    keys.rotate(short.id, overlap=timedelta(hours=20))
    assert keys.key(secret).expires == short.expires


@pytest.mark.parametrize("key_id", ["", "nothing", "a b", "' OR 1=1 --"])
def test_what_is_no_valid_key_is_not_rotated(keys, key_id):
    link = keys.key(keys.issue_link(timedelta(hours=1)))
    revoked, _ = keys.issue("ana", Scope.ANALYST, timedelta(days=1))
    keys.revoke(revoked.id)
    for each in (key_id, link.id, revoked.id):
        assert keys.rotate(each, overlap=timedelta(0)) is None
    assert len(keys.all_keys()) == 1


def test_keys_are_found_by_name_state_and_end(keys):
    ana, _ = keys.issue("Ana", Scope.ANALYST, timedelta(days=3))
    anna, _ = keys.issue("Hanna", Scope.ANALYST, timedelta(days=300))
    bob, _ = keys.issue("bob", Scope.STEWARD, timedelta(days=2))
    keys.revoke(bob.id)

    def found(name="", state="all", within=None):
        return {key.id for key in search_keys(keys, name, state, within)}

    assert found() == {ana.id, anna.id, bob.id}
    assert found("AN") == {ana.id, anna.id}
    assert found(state="valid") == {ana.id, anna.id}
    assert found(state="ended") == {bob.id}
    assert found(within=7) == {ana.id}


def test_the_last_use_is_written_once_in_a_while(keys, monkeypatch):
    issued, secret = keys.issue("ana", Scope.ANALYST, timedelta(days=1))
    assert keys.key(secret).used is None
    keys.record_use(issued)
    first = keys.key(secret)
    assert datetime.now(UTC) - first.used < timedelta(minutes=5)
    keys.record_use(first)
    assert keys.key(secret).used == first.used
    monkeypatch.setattr(registry, "_USE_INTERVAL", timedelta(0))
    keys.record_use(first)
    assert keys.key(secret).used > first.used


def test_a_steward_rotates_and_filters_over_http(server, steward, analyst):
    address = {"base_url": server.address, "trust_env": False, "timeout": 60}
    with httpx.Client(**address, headers={"Authorization": f"Bearer {server.key('rota', Scope.STEWARD)}"}) as client:
        issued = client.post("/v1/keys", json={"name": "turner", "scope": "analyst", "days": 9}).json()
        with httpx.Client(**address, headers={"Authorization": f"Bearer {issued['secret']}"}) as turner:
            assert turner.get("/v1/datasets").is_success
            assert turner.post(f"/v1/keys/{issued['id']}/rotation", json={}).status_code == 403
        reply = client.post(f"/v1/keys/{issued['id']}/rotation", json={"overlap_hours": 0})
        assert reply.status_code == 201
        found = client.get("/v1/keys", params={"name": "TURN", "state": "ended"}).json()["keys"]
        assert [each["id"] for each in found] == [issued["id"]]
        assert found[0]["used"] is not None
        assert client.post("/v1/keys/none/rotation", json={}).status_code == 404
        with httpx.Client(**address, headers={"Authorization": f"Bearer {reply.json()['secret']}"}) as turner:
            assert turner.get("/v1/datasets").is_success


def test_keys_are_rotated_and_filtered_on_the_command_line(tmp_path, keys):
    key, secret = keys.issue("ana", Scope.ANALYST, timedelta(days=30))
    where = ("--ledger", "s.ledger")
    new = sfumato("key", "rotate", key.id, "--overlap", "0", *where, cwd=tmp_path).stdout.strip()
    assert keys.key(new).valid
    assert not keys.key(secret).valid
    listed = json.loads(sfumato("key", "list", "--state", "valid", *where, "--json", cwd=tmp_path).stdout)
    assert [each["id"] for each in listed] == [keys.key(new).id]
    assert "has ended" in sfumato("key", "rotate", key.id, *where, cwd=tmp_path, code=2).stderr
