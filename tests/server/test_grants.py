"""Access to a dataset, the cap of new analysts, the largest loss of one question, and names that are equal."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import timedelta

import httpx
import pytest
from tests.server.serving import serving, write_people

from sfumato.app.http_client import ServerError
from sfumato.ledger.store import Store
from sfumato_server.registry import Registry, Scope, registered_name

COUNT = "SELECT COUNT(*) FROM people"


@pytest.fixture
def server(tmp_path):
    with serving(f"sqlite:///{tmp_path}/s.ledger", write_people(tmp_path / "people.parquet")) as started:
        yield started


@pytest.fixture
def steward(server):
    with server.client("stew", Scope.STEWARD) as client:
        yield client


def refusal(call, *arguments, **terms):
    with pytest.raises(ServerError) as refused:
        call(*arguments, **terms)
    assert refused.value.problem["charged"] is False
    return refused.value.kind


def soon(happened):
    """Wait until both workers have forgotten what they looked up before."""
    end = time.monotonic() + 60
    while not all(happened() for _ in range(6)):
        assert time.monotonic() < end
        time.sleep(0.3)


def test_a_dataset_is_granted_by_name(server, steward):
    ana, bob = (server.client(name) for name in ("ana", "bob"))
    steward.set_terms("people", granted_only=True)
    steward.let_in("people", " ANA ")
    assert steward.terms("people")["granted"] == ["ana"]  # as her key spells it
    soon(lambda: refused_to(bob) and not refused_to(ana))
    assert [each["name"] for each in ana.datasets()] == ["people"]
    assert bob.datasets() == []
    for call in (bob.dataset, bob.budget, bob.journal):
        assert refusal(call, "people") == "not-granted"
    assert refusal(bob.accuracy, "people", COUNT, epsilon="0.1") == "not-granted"
    assert refusal(bob.release, "people", method="histogram", attributes=["sex"], epsilon="0.1") == "not-granted"
    assert refusal(bob.ask, "people", COUNT, epsilon="0.1") == "not-granted"
    with server.ledger("people") as ledger:
        assert ledger.remaining().spent.epsilon == 0
    cookies, html = server.session("bob", Scope.ANALYST), {"Accept": "text/html"}
    with httpx.Client(base_url=server.address, cookies=cookies, headers=html, timeout=60, trust_env=False) as browser:
        for method, path in [("GET", ""), ("POST", "/ask"), ("POST", "/preview"), ("GET", "/releases")]:
            form = {"how": "sql", "sql": COUNT, "epsilon": "0.1"} if method == "POST" else None
            assert browser.request(method, f"/datasets/people{path}", data=form).status_code == 403, path
    ana.ask("people", COUNT, epsilon="0.1")
    steward.ask("people", COUNT, epsilon="0.2")  # a steward needs no grant
    steward.shut_out("people", "ana")
    soon(lambda: refused_to(ana))


def refused_to(client):
    try:
        client.dataset("people")
    except ServerError as error:
        return error.kind == "not-granted"
    return False


def test_a_cap_of_zero_shuts_out_and_another_lets_in(server, steward):
    ana = server.client("ana")
    steward.cap("people", "ana", epsilon="0")
    soon(lambda: refused_to(ana))
    assert steward.terms("people")["shut_out"] == ["ana"]
    steward.cap("people", "ana", epsilon="1")
    soon(lambda: not refused_to(ana))
    ana.ask("people", COUNT, epsilon="0.5")


def test_new_analysts_get_the_default_cap_and_others_keep_theirs(server, steward):
    ana, bob, cleo = (server.client(name) for name in ("ana", "bob", "cleo"))
    ana.ask("people", COUNT, epsilon="0.1")
    steward.cap("people", "bob", epsilon="2")
    steward.set_terms("people", default_cap="0.3")
    time.sleep(2.5)  # until both workers follow
    assert cleo.budget("people")["yours"] == "epsilon = 0.3 from the first question on"
    cleo.ask("people", COUNT, epsilon="0.2")
    assert cleo.budget("people")["yours"] == "epsilon = 0.1 left of epsilon = 0.3"
    assert refusal(cleo.ask, "people", "SELECT SUM(age) FROM people", epsilon="0.2") == "budget-exceeded"
    ana.ask("people", "SELECT SUM(age) FROM people", epsilon="0.4")
    bob.ask("people", "SELECT SUM(age) FROM people", epsilon="0.4")
    assert steward.budget("people")["analysts"]["cleo"] == "epsilon = 0.1 left of epsilon = 0.3"


def test_one_question_costs_at_most_what_the_terms_say(server, steward):
    ana = server.client("ana")
    steward.set_terms("people", most="0.5")
    time.sleep(2.5)
    assert refusal(ana.ask, "people", COUNT, epsilon="0.6") == "question-too-dear"
    assert refusal(ana.release, "people", method="histogram", attributes=["sex"], epsilon="0.6") == "question-too-dear"
    ana.ask("people", COUNT, epsilon="0.5")
    with server.ledger("people") as ledger:
        assert ledger.remaining().spent.epsilon == ledger.limit.value / 20


def test_limits_in_another_measure_are_refused_and_change_nothing(steward):
    for terms in ({"default_cap": "rho=0.1"}, {"most": "1,1e-9"}, {"most": "much"}, {"approval_above": "rho=1"}):
        assert refusal(steward.set_terms, "people", **terms) == "loss-refused"
    with pytest.raises(ServerError, match="state other limits in the same measure, by epsilon"):
        steward.set_terms("people", most="1,1e-9")
    assert steward.terms("people") == {
        "granted_only": False,
        "default_cap": None,
        "most": None,
        "approval_above": None,
        "granted": [],
        "shut_out": [],
    }


def test_only_stewards_set_terms(server):
    ana = server.client("ana")
    assert refusal(ana.set_terms, "people", granted_only=False) == "wrong-scope"
    assert refusal(ana.let_in, "people", "ana") == "wrong-scope"


def test_names_that_differ_in_case_blanks_or_compatible_forms_are_one(server, steward, tmp_path):
    with closing(Store(f"sqlite:///{tmp_path}/keys.ledger")) as store:
        store.prepare(create=True)
        registry = Registry(store)
        issued = [
            registry.issue(name, Scope.ANALYST, timedelta(days=1))[0].name
            for name in ("Zoë", " zoë ", "ZOË", "Zoe\u0308", "Zoe", "\uff3aoe", "straße", "STRASSE")
        ]
    assert issued == ["Zoë", "Zoë", "Zoë", "Zoë", "Zoe", "Zoe", "straße", "straße"]
    first, second = server.client("Ana"), server.client("ANA")
    steward.cap("people", "ana", epsilon="0.3")
    first.ask("people", COUNT, epsilon="0.2")
    assert refusal(second.ask, "people", "SELECT SUM(age) FROM people", epsilon="0.2") == "budget-exceeded"


def test_of_two_that_were_told_apart_before_each_keeps_the_name():
    assert [registered_name(name, ["Ann", "ann"]) for name in ("Ann", "ann", "ANN")] == ["Ann", "ann", "Ann"]
