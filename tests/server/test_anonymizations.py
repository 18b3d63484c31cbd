"""Anonymized tables over HTTP: stewards ask, a worker searches, the journal states that there is no DP guarantee."""

from __future__ import annotations

import csv
import io
import time
from collections import Counter

import httpx
import pytest

from sfumato.app.http_client import ServerError
from sfumato.errors import InputError
from sfumato_server.registry import Scope

TOWNS = {"attribute": "sex", "rows": [["F", "*"], ["M", "*"], ["(missing)", "*"]]}


def finished(client, job):
    deadline = time.monotonic() + 120
    while (state := client.progress(job))["state"] not in ("done", "failed"):
        assert 0 <= state["progress"] < 1
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return state


@pytest.mark.parametrize("method", ["optimal", "mondrian", "k-member"])
def test_an_anonymised_table_is_made_in_the_background(steward, method):
    before = steward.budget("people")["left"]
    state = finished(steward, steward.anonymize("people", method=method, quasi=["sex", "income"], k=40, keep=["age"]))
    assert state["state"] == "done", state
    assert state["statement"]["guarantee"].startswith("no DP guarantee")
    rows = list(csv.DictReader(io.StringIO(steward.rows(state["job"]))))
    assert min(Counter((row["sex"], row["income"]) for row in rows).values()) >= 40
    assert len(rows) == state["statement"]["facts"]["rows"] - state["statement"]["facts"]["suppressed"]
    entry = steward.journal("people")[-1]
    assert (entry["family"], entry["analyst"]) == ("anonymize", "stew")
    assert "no DP guarantee" in entry["cost"]
    assert steward.budget("people")["left"] == before


def test_a_nearly_unique_column_is_kept_on_the_steward_s_word_alone(steward):
    asked = {"method": "mondrian", "quasi": ["age"], "k": 5}
    state = finished(steward, steward.anonymize("people", **asked, keep=["income"]))
    assert state["state"] == "failed"
    assert "'income' is not published as it is: it is nearly unique" in state["note"]
    assert "for the owner alone: 1,000 distinct values" in state["note"]
    assert "publish it knowingly with 'keep_anyway' income" in state["note"], "a field of the request, and no option"
    state = finished(steward, steward.anonymize("people", **asked, keep=["sex"], keep_anyway=["income"]))
    assert state["state"] == "done", state
    assert "by the owner's decision (--keep-anyway): income" in state["statement"]["guarantee"]
    assert "(--keep-anyway): income" in steward.journal("people")[-1]["statement"]


def test_a_hierarchy_and_further_criteria_are_taken(steward):
    job = steward.anonymize(
        "people",
        method="optimal",
        quasi=["sex", "income"],
        k=5,
        hierarchies=[TOWNS],
        criteria=["distinct-diversity:l=3,sensitive=age"],
        suppression="0.1",
    )
    assert finished(steward, job)["state"] == "done"


def test_an_analyst_cannot_ask_for_a_release_without_guarantee(analyst):
    with pytest.raises(ServerError) as caught:
        analyst.anonymize("people", method="optimal", quasi=["sex"], k=5)
    assert caught.value.kind == "wrong-scope"


@pytest.mark.parametrize(
    "wrong",
    [
        {"quasi": ["nothing"]},
        {"method": "k-member", "suppression": "0.1"},
        {"method": "samarati", "seconds": 1.0},
        {"suppression": "2"},
        {"suppression": "0.1", "suppress_rows": 1},
        {"criteria": ["nonsense"]},
        {"hierarchies": [{"attribute": "sex"}]},
        {"hierarchies": [TOWNS, TOWNS]},
        {"hierarchies": [{**TOWNS, "attribute": "age"}]},
    ],
)
def test_what_cannot_be_anonymised_is_refused_before_a_job_is_made(steward, wrong):
    with pytest.raises(ServerError) as caught:
        steward.anonymize("people", **({"method": "optimal", "quasi": ["sex"], "k": 5} | wrong))
    assert caught.value.problem["status"] == 422
    assert caught.value.problem["charged"] is False


@pytest.mark.parametrize(
    "wrong", [{"quasi": []}, {"k": 0}, {"method": "magic"}, {"suppress_rows": -1}, {"cut": "anywhere"}, {"more": 1}]
)
def test_what_has_not_the_right_form_is_refused_here_and_there(server, steward, wrong):
    body = {"method": "optimal", "quasi": ["sex"], "k": 5} | wrong
    with pytest.raises(InputError, match=f"^{next(iter(wrong))}: "):
        steward.anonymize("people", **body)
    headers = {"Authorization": f"Bearer {server.key('raw', Scope.STEWARD)}"}
    address = f"{server.address}/v1/datasets/people/anonymizations"
    found = httpx.post(address, json=body, headers=headers, timeout=60, trust_env=False).json()
    assert (found["type"], found["charged"]) == ("/problems/invalid-request", False)
    assert found["errors"][0]["place"] == f"body.{next(iter(wrong))}"


def test_mondrian_cuts_where_a_request_says(steward):
    entries = []
    for cut in ("strict", "relaxed"):
        asked = {"method": "mondrian", "quasi": ["sex", "income"], "k": 40, "cut": cut}
        assert finished(steward, steward.anonymize("people", **asked))["state"] == "done"
        entries.append(steward.journal("people")[-1]["parameters"])
    assert [entry["cut"] for entry in entries] == ["strict", "relaxed"]


def test_a_search_that_finds_nothing_says_so(steward):
    state = finished(steward, steward.anonymize("people", method="optimal", quasi=["sex"], k=10**6))
    assert state["state"] == "failed"
    assert "No result meets the requirements" in state["note"]
