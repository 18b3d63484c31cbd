"""Approval by a second steward, used up by the charge; datasets that are retired, renamed, or alike in name."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from tests.server.hospital import SCHEMA, write_hospital
from tests.server.serving import DOMAIN, ROWS, Server, answer_of, write_people

from sfumato.app.api.questions import AskRequest
from sfumato.app.api.releases import AnonymizeRequest, SynthesisFields
from sfumato.app.http_client import ServerError
from sfumato.errors import InputError
from sfumato.privacy.loss import Epsilon
from sfumato_server import release_jobs, rules
from sfumato_server.datasets import read_question
from sfumato_server.problems import (
    ApprovalNeededError,
    RefusalError,
    RetiredError,
    TakenNameError,
    UnknownDatasetError,
    problem,
)
from sfumato_server.registry import Key, Scope
from sfumato_server.rules import DatasetTerms
from sfumato_server.service import Service
from sfumato_server.sources import Snapshots


@pytest.fixture
def table(tmp_path):
    return write_people(tmp_path / "people.parquet")


@pytest.fixture
def url(request, tmp_path):
    """Return SQLite's address, or PostgreSQL's for tests that ask for it."""
    if getattr(request, "param", "sqlite") == "postgres":
        return request.getfixturevalue("postgres")
    return f"sqlite:///{tmp_path / 'test.ledger'}"


@pytest.fixture
def service(url, table):
    """Serve a dataset of ten epsilon; questions above one half need an approval."""
    with closing(Service(url, create=True)) as opened:
        opened.register("people", source=str(table), domain=DOMAIN, limit="10", more={})
        opened.grants.set_terms("people", DatasetTerms(approval_above="0.5"))
        yield opened


def key(service, name, scope=Scope.STEWARD):
    return service.registry.issue(name, scope, timedelta(days=30))[0]


def ask(service, name="ana", epsilon="1", sql="SELECT COUNT(*) FROM t", dataset="people"):
    loaded = service.loaded(dataset)
    service.check_query_budget(dataset, key(service, name, Scope.ANALYST), Epsilon(epsilon))
    form = AskRequest(sql=sql, loss={"epsilon": epsilon})
    return answer_of(form, service.vault(dataset, name), form.read(loaded.domain, ()))


def spent(service, dataset="people"):
    return service.loaded(dataset).ledger.remaining().spent.epsilon


def refused(service, **how):
    before = spent(service)
    with pytest.raises(ApprovalNeededError, match="second steward"):
        ask(service, **how)
    assert spent(service) == before


def only(service):
    (found,) = service.approvals.pending()
    return found


def test_a_question_below_the_threshold_needs_no_approval(service):
    ask(service, epsilon="0.5")
    assert spent(service) == Epsilon("0.5").value
    assert service.approvals.pending() == []


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_an_approval_is_of_one_release_and_is_used_up_by_its_charge(service):
    refused(service)
    refused(service)  # asking again does not ask twice
    wanted = only(service)
    assert (wanted.asked_by, wanted.dataset, wanted.approved_by) == ("ana", "people", None)
    assert "count" in wanted.question.lower()
    assert "epsilon = 1" in wanted.cost
    assert service.approvals.approve(wanted.id, key(service, "stew"))
    assert only(service).approved_by == "stew"
    for other in ({"epsilon": "1.5"}, {"sql": "SELECT COUNT(*) FROM t WHERE age > 5"}, {"name": "bob"}):
        refused(service, **other)
    first = ask(service)
    assert spent(service) == 1
    assert ask(service).values == first.values  # its answer is free, and needs no approval
    assert wanted.id not in {each.id for each in service.approvals.pending()}
    assert not service.approvals.close(wanted.id)
    refused(service, name="ana", epsilon="2")


def test_who_gets_a_stored_answer_needs_no_approval(service):
    refused(service)
    service.approvals.approve(only(service).id, key(service, "stew"))
    first = ask(service)
    assert ask(service, name="bob").values == first.values
    assert spent(service) == 1


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_nobody_approves_what_they_asked_for(service):
    with pytest.raises(ApprovalNeededError):
        ask(service, name="Stew")
    wanted = only(service)
    for name in ("Stew", "stew ", "STEW"):
        assert not service.approvals.approve(wanted.id, key(service, name))
    assert service.approvals.approve(wanted.id, key(service, "other"))
    assert not service.approvals.approve(wanted.id, key(service, "third"))  # once
    assert not service.approvals.approve("none", key(service, "other"))
    assert not service.approvals.approve("a' OR 1=1 --", key(service, "other"))


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_an_approval_ends_with_the_key_of_its_steward(service):
    steward = key(service, "stew")
    refused(service)
    service.approvals.approve(only(service).id, steward)
    service.registry.revoke(steward.id)
    assert service.approvals.pending() == []
    refused(service)
    assert only(service).approved_by is None


@pytest.mark.parametrize("column", ["expires", "asked"])
def test_requests_and_approvals_end_after_a_week(service, column):
    refused(service)
    if column == "expires":
        service.approvals.approve(only(service).id, key(service, "stew"))
    ago = (datetime.now(UTC) - timedelta(days=8)).isoformat()
    with service._store.writing() as driver:  # noqa: SLF001
        driver.run(f"UPDATE service_approval SET {column} = :ago", {"ago": ago})  # noqa: S608
    assert service.approvals.pending() == []
    refused(service)


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
@pytest.mark.parametrize("scope", [Scope.STEWARD, Scope.INVITATION])
def test_what_a_session_without_a_key_approves_ends_with_the_session(service, scope):
    now = datetime.now(UTC)
    vouched = Key("identity", "stew", scope, now, now + timedelta(hours=1), revoked=False)
    identity = "identity" if scope is Scope.STEWARD else None  # or by a link that the server printed
    refused(service)
    for end in (service.sessions.end, lambda _: service.sessions.end_all()):
        secret = service.sessions.start(vouched, identity=identity)
        holder = service.sessions.holder(secret)
        assert holder.scope is Scope.STEWARD
        assert service.approvals.approve(only(service).id, holder)
        assert only(service).expires == holder.expires.isoformat()
        end(secret)
        assert service.approvals.pending() == []
        service.sessions.start(vouched, identity=identity)  # a later one approved nothing
        refused(service)
        assert only(service).approved_by is None
    service.approvals.approve(
        only(service).id, service.sessions.holder(service.sessions.start(vouched, identity=identity))
    )
    ask(service)


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_an_approval_ends_with_its_session_though_the_same_person_has_another_open(service):
    now = datetime.now(UTC)
    vouched = Key("identity", "stew", Scope.STEWARD, now, now + timedelta(hours=1), revoked=False)
    other, own = (service.sessions.start(vouched, identity="identity") for _ in range(2))
    refused(service)
    assert service.approvals.approve(only(service).id, service.sessions.holder(own))
    assert only(service).approved_by == "stew"
    service.sessions.end(own)
    assert service.sessions.holder(other).valid
    refused(service)
    assert only(service).approved_by is None
    assert service.approvals.approve(only(service).id, service.sessions.holder(other))
    ask(service)


def test_a_later_version_of_the_table_is_not_admitted_by_an_older_approval(service, table):
    refused(service)
    approved = only(service)
    service.approvals.approve(approved.id, key(service, "stew"))
    write_people(table, seed=3)
    service.tables.reread(service.loaded("people"))
    refused(service)
    assert {each.id for each in service.approvals.pending()} > {approved.id}


def test_a_release_that_failed_needs_another_approval(service, monkeypatch):
    refused(service)
    service.approvals.approve(only(service).id, key(service, "stew"))
    from sfumato.vault import vault

    with monkeypatch.context() as broken:
        broken.setattr(vault, "encode", lambda _: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            ask(service)
    assert spent(service) == 1
    refused(service)


def test_a_table_without_differential_privacy_needs_an_approval(service):
    wanted = AnonymizeRequest(method="mondrian", quasi=["sex"], k=5).read()
    with pytest.raises(ApprovalNeededError):
        wanted.release(service.vault("people", "stew"))
    waiting = only(service)
    assert "no DP guarantee" in waiting.cost
    assert not service.approvals.approve(waiting.id, key(service, "stew"))
    assert service.approvals.approve(waiting.id, key(service, "other"))
    assert wanted.release(service.vault("people", "stew")).facts["rows"] == ROWS
    assert service.approvals.pending() == []
    service.grants.set_terms("people", DatasetTerms())
    AnonymizeRequest(method="mondrian", quasi=["sex"], k=6).read().release(service.vault("people", "stew"))


def test_a_refused_request_is_gone_and_an_approval_is_taken_back(service):
    refused(service)
    wanted = only(service)
    assert service.approvals.close(wanted.id)
    refused(service)
    service.approvals.approve(only(service).id, key(service, "stew"))
    assert service.approvals.close(only(service).id)
    refused(service)


def test_only_so_many_requests_of_a_name_wait(service, monkeypatch):
    monkeypatch.setattr(rules, "_MAX_PENDING", 3)
    for number in range(3):
        refused(service, sql=f"SELECT COUNT(*) FROM t WHERE age > {number}")  # noqa: S608
    with pytest.raises(ApprovalNeededError, match="wait for one already"):
        ask(service, sql="SELECT COUNT(*) FROM t WHERE age > 50")
    assert len(service.approvals.pending()) == 3
    refused(service, name="bob")
    assert len(service.approvals.pending("bob")) == 1


def test_a_budget_that_does_not_admit_a_release_asks_for_no_approval(service):
    service.loaded("people").ledger.set_cap("ana", Epsilon("0.7"))
    from sfumato.errors import BudgetError

    with pytest.raises(BudgetError, match="your cap"):
        ask(service)
    assert service.approvals.pending() == []


def test_a_retired_dataset_releases_nothing_more_to_anyone(service, monkeypatch):
    monkeypatch.setattr(
        Snapshots, "remove_unneeded", lambda _: None
    )  # which would end what is under way in another way
    held = service.vault("people", "stew")  # by a worker that does not know yet
    form = AskRequest(sql="SELECT COUNT(*) FROM t", loss={"epsilon": "0.1"})
    query = form.read(service.loaded("people").domain, ())
    ask(service, epsilon="0.2")
    service.retire("people", retired=True)
    with pytest.raises(RetiredError):
        answer_of(form, held, query)
    with pytest.raises(RetiredError):
        ask(service, epsilon="0.1")
    with pytest.raises(RetiredError):
        ask(service, epsilon="0.2")  # which was answered
    with pytest.raises(RetiredError):
        service.check_access("people", key(service, "ana", Scope.ANALYST))
    assert service.accessible_datasets(key(service, "ana", Scope.ANALYST)) == []
    assert [each.dataset.retired for each in service.accessible_datasets(key(service, "stew"))] == [True]
    assert spent(service) == Epsilon("0.2").value
    service.retire("people", retired=False)
    ask(service, epsilon="0.1")


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_a_renamed_dataset_keeps_its_budget_terms_and_answers(service):
    ask(service, epsilon="0.5")
    service.grants.shut_out("people", "eve")
    assert service.rename("people", "persons").dataset.called == "persons"
    with pytest.raises(UnknownDatasetError):
        service.loaded("people")
    assert spent(service, "persons") == Epsilon("0.5").value
    ask(service, epsilon="0.5", dataset="persons")  # stored
    assert spent(service, "persons") == Epsilon("0.5").value
    with pytest.raises(RefusalError, match="grant"):
        service.check_access("persons", key(service, "eve", Scope.ANALYST))
    with pytest.raises(ApprovalNeededError):
        ask(service, dataset="persons")
    assert len(service.tables._cached) == 1  # noqa: SLF001  (none under the former name)
    service.loaded("persons").ledger.verify()


def test_a_renamed_dataset_is_asked_by_its_new_name(service, tmp_path):
    """This holds for one table and for several."""
    hospital = write_hospital(tmp_path / "hospital")
    service.register("hospital", source=str(hospital), domain=SCHEMA, limit="10", more={})
    stew = key(service, "stew")
    for name, table in (("people", "t"), ("hospital", "patients")):
        form = AskRequest(sql=f"SELECT COUNT(*) FROM {table}", loss={"epsilon": "0.5"})  # noqa: S608
        service.rename(name, f"{name}_now")
        loaded = service.check_access(f"{name}_now", stew)
        assert len(read_question(loaded, form).answer(form, loaded, stew, service, None).values) == 1
        assert spent(service, f"{name}_now") == Epsilon("0.5").value


def test_no_other_dataset_gets_a_name_that_one_had(service, table, tmp_path):
    service.rename("people", "persons")
    other = write_people(tmp_path / "other.parquet", seed=9)
    for name in ("people", "persons"):
        with pytest.raises((InputError, RefusalError)):
            service.register(name, source=str(other), domain=DOMAIN, limit="1", more={})
    service.register("others", source=str(other), domain=DOMAIN, limit="1", more={})
    for name in ("people", "persons", "not a name", ""):
        with pytest.raises(InputError):
            service.rename("others", name)
    assert service.rename("persons", "people").dataset.called == "people"
    assert [each.called for each in service.registry.datasets()] == ["others", "people"]


def test_who_registers_a_renamed_table_is_told_the_name_by_which_it_is_asked(service, table):
    service.rename("people", "persons")
    with pytest.raises(RefusalError, match=r"it is 'persons' already.*ask under that name"):
        service.register("again", source=str(table), domain=DOMAIN, limit="1", more={})


def test_who_registers_a_retired_table_is_told_that_it_is_retired(service, table):
    service.retire("people", retired=True)
    with pytest.raises(RefusalError, match=r"'people' \(retired\) already.*out of retirement") as told:
        service.register("again", source=str(table), domain=DOMAIN, limit="1", more={})
    assert "ask under" not in str(told.value)


def test_a_name_that_is_taken_conflicts_before_a_table_is_read(service):
    service.rename("people", "persons")
    for name in ("people", "persons", "perso\uff4es"):
        with pytest.raises(TakenNameError) as refused:
            service.register(name, source="/nosuch.csv", domain=DOMAIN, limit="1", more={})
        found = problem(refused.value)
        assert (found["type"], found["status"], found["charged"]) == ("/problems/dataset-exists", 409, False)


def test_compatible_forms_of_a_name_are_one(service, tmp_path):
    other = write_people(tmp_path / "other.parquet", seed=9)
    service.register("\ufb01sh", source=str(other), domain=DOMAIN, limit="1", more={})
    assert service.loaded("\ufb01sh").dataset.name == service.loaded("fish").dataset.name == "fish"
    third = write_people(tmp_path / "third.parquet", seed=10)
    for name in ("fish", "\ufb01sh", "\uff46ish"):
        with pytest.raises((InputError, RefusalError)):
            service.register(name, source=str(third), domain=DOMAIN, limit="1", more={})
    with pytest.raises(InputError):
        service.rename("people", "\ufb01sh")


def test_a_name_kept_by_an_earlier_version_is_taken_in_every_form(service, tmp_path):
    other = write_people(tmp_path / "other.parquet", seed=9)
    service.register("fish", source=str(other), domain=DOMAIN, limit="1", more={})
    with closing(sqlite3.connect(tmp_path / "test.ledger")) as kept, kept:
        kept.execute("UPDATE service_name SET name = '\ufb01sh' WHERE name = 'fish'")
    with pytest.raises(InputError, match="there is or was a dataset"):
        service.rename("people", "fish")


def test_a_worker_follows_a_new_name_and_a_retirement(service, monkeypatch):
    monkeypatch.setattr("sfumato_server.service._NAME_CACHE_SECONDS", 0.0)
    with closing(Service(service.url)) as other:
        assert other.loaded("people").dataset.called == "people"
        service.rename("people", "persons")
        with pytest.raises(UnknownDatasetError):
            other.loaded("people")
        assert other.loaded("persons").ledger.dataset == "people"
        service.retire("persons", retired=True)
        assert other.loaded("persons").dataset.retired


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
def test_a_default_cap_is_set_once_and_not_over_one_that_a_steward_set(service):
    ledger = service.loaded("people").ledger
    ledger.set_cap("ana", Epsilon("0.1"))
    ledger.set_first_cap("ana", Epsilon(3))
    ledger.set_first_cap("bob", Epsilon(3))
    ledger.set_first_cap("bob", Epsilon(4))
    assert {name: account.limit for name, account in ledger.caps().items()} == {
        "ana": Epsilon("0.1"),
        "bob": Epsilon(3),
    }


def test_stewards_approve_over_http_and_on_the_page(tmp_path, table):
    server = Server(f"sqlite:///{tmp_path}/s.ledger", workers=1).start()
    try:
        with server.client("stew", Scope.STEWARD) as steward, server.client("ana") as analyst:
            steward.register("people", source=str(table), domain=DOMAIN, limit="10")
            steward.set_terms("people", approval_above="0.5")
            for epsilon in ("1", "2"):
                with pytest.raises(ServerError) as needed:
                    analyst.ask("people", "SELECT COUNT(*) FROM people", epsilon=epsilon)
                assert (needed.value.kind, needed.value.problem["charged"]) == ("approval-needed", False)
            first, second = analyst.approvals()
            with pytest.raises(ServerError) as refused:
                analyst.approve(first["id"])
            assert refused.value.kind == "wrong-scope"
            with server.client("bob") as other:
                assert other.approvals() == []
            steward.approve(first["id"])
            with pytest.raises(ServerError, match="it was approved or closed"):
                steward.approve(first["id"])
            analyst.ask("people", "SELECT COUNT(*) FROM people", epsilon="1")
            job = {"method": "histogram", "attributes": ["sex"], "epsilon": "3"}
            failed = analyst.release("people", **job)
            until(lambda: analyst.progress(failed)["state"] == "failed")
            assert "needs an approval" in analyst.progress(failed)["note"]
            cookies, html = server.session("stew", Scope.STEWARD), {"Accept": "text/html"}
            with httpx.Client(
                base_url=server.address, cookies=cookies, headers=html, timeout=60, trust_env=False
            ) as browser:
                waiting = {each["cost"]: each["id"] for each in steward.approvals()}
                assert all(number in browser.get("/steward").text for number in waiting.values())
                assert browser.post(f"/steward/approvals/{second['id']}", data={"refuse": "true"}).status_code == 303
                (last,) = (each["id"] for each in steward.approvals())
                assert browser.post(f"/steward/approvals/{last}").status_code == 303
            done = analyst.release("people", **job)
            until(lambda: analyst.progress(done)["state"] == "done")
            steward.rename("people", "persons")
            assert steward.retire("persons")["retired"] is True
            with pytest.raises(ServerError) as retired:
                steward.ask("persons", "SELECT COUNT(*) FROM people", epsilon="0.1")
            assert retired.value.kind == "dataset-retired"
    finally:
        server.stop()


def until(happened):
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_release_that_waited_is_held_to_the_terms_of_when_it_is_made(service, monkeypatch):
    """The terms, the grant and the name change while it waits for its turn."""
    ana = key(service, "ana", Scope.ANALYST)
    form = SynthesisFields(method="histogram", attributes=["sex"], loss={"epsilon": "0.4"})
    for change in (
        lambda: service.grants.set_terms("people", DatasetTerms(most="0.1")),
        lambda: service.grants.shut_out("people", "ana"),
        lambda: service.retire("people", retired=True),
    ):
        with release_jobs.RELEASE_SLOT:
            job = release_jobs.release("people", form, ana, service)["job"]
            change()
        until(lambda job=job: service.registry.jobs.job(job).state == "failed")
        service.grants.set_terms("people", DatasetTerms())
        service.grants.let_in("people", "ana")
    assert spent(service) == 0
    service.retire("people", retired=False)
    service.tables.reread(service.loaded("people"))
    with release_jobs.RELEASE_SLOT:
        job = release_jobs.release("people", form, ana, service)["job"]
        service.rename("people", "persons")
    until(lambda: service.registry.jobs.job(job).state == "done")


def test_a_question_over_linked_tables_waits_with_all_that_its_view_is(tmp_path):
    statement = "SELECT COUNT(*) FROM patients WHERE patient_id {} (SELECT patient_id FROM visits WHERE cost > 500)"
    server = Server(f"sqlite:///{tmp_path / 'linked.ledger'}", workers=1).start()
    try:
        with server.client("stew", Scope.STEWARD) as steward:
            source = str(write_hospital(tmp_path / "hospital"))
            steward.register("hospital", source=source, domain=SCHEMA, limit="9")
            steward.set_terms("hospital", approval_above="0.5")
            with server.client("ana") as client:
                for how in ("IN", "NOT IN"):
                    with pytest.raises(ServerError, match="second steward"):
                        client.ask("hospital", statement.format(how), epsilon="1")
            shown = {each["question"] for each in steward.approvals()}
    finally:
        server.stop()
    assert len(shown) == len(("IN", "NOT IN"))
    assert all("patient_id of visits WHERE cost in" in each for each in shown)
