"""Notices are sent once per state, and again when it changes, by one worker, whatever else fails."""

from __future__ import annotations

import json
import logging
import shutil
import threading
from contextlib import closing, contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest
from tests.app.test_cli import sfumato
from tests.ledger.asking import ROW, question, reserve
from tests.server.network import Proxy, authority
from tests.server.serving import DOMAIN, answer_of, write_people

from sfumato.app.api.questions import AskRequest
from sfumato.app.api.releases import AnonymizeRequest
from sfumato.app.outbound import outbound
from sfumato.privacy.loss import Epsilon
from sfumato_server import application, monitoring, release_jobs, stewards
from sfumato_server.monitoring import StewardAlerts
from sfumato_server.problems import ApprovalNeededError
from sfumato_server.registry import Scope
from sfumato_server.rules import DatasetTerms
from sfumato_server.service import Service


@pytest.fixture
def table(tmp_path):
    return write_people(tmp_path / "people.parquet")


@pytest.fixture
def service(tmp_path, table, monkeypatch):
    monkeypatch.setattr(monitoring, "_LOW_BUDGET_PAUSE", timedelta(0))
    with closing(Service(f"sqlite:///{tmp_path}/s.ledger", create=True)) as opened:
        opened.register("people", source=str(table), domain=DOMAIN, limit="10", more={})
        yield opened


@contextmanager
def receiving(status=204, tls=None):
    """Record the requests to a webhook."""
    got: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http{'' if tls is None else 's'}://127.0.0.1:{server.server_port}/hook", got
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def spend(service, epsilon, number, analyst=None):
    ledger = service.loaded("people").ledger
    reserve(ledger, question(number, version=1), Epsilon(epsilon).charge, statement="x", unit=ROW, analyst=analyst)


def test_a_low_budget_is_told_once_and_again_when_it_changed(service):
    with receiving() as (hook, got):
        told = StewardAlerts(service, webhook=hook)
        assert told.send_new() == 0
        spend(service, "9", 1)
        assert told.send_new() == 0  # a tenth is left
        spend(service, "0.1", 2)
        assert (told.send_new(), told.send_new(), told.send_new()) == (1, 0, 0)
        spend(service, "0.1", 3)
        assert (told.send_new(), told.send_new()) == (1, 0)
        assert [(each["event"], each["dataset"]) for each in got] == [("budget-low", "people")] * 2
        assert "0.9 " in got[0]["left"]


def test_one_that_changes_with_each_question_is_told_once_an_hour(service, monkeypatch):
    monkeypatch.setattr(monitoring, "_LOW_BUDGET_PAUSE", timedelta(hours=1))
    told = StewardAlerts(service, webhook=None)
    spend(service, "9.5", 1)
    assert told.send_new() == 1
    spend(service, "0.1", 2)
    assert told.send_new() == 0
    with service.store.writing() as driver:
        driver.run("UPDATE service_notice SET told = '2020-01-01T00:00:00+00:00'")
    assert told.send_new() == 1


def test_a_cap_that_is_low_is_told_with_its_analyst(service):
    service.loaded("people").ledger.set_cap("ana", Epsilon(1))
    spend(service, "0.95", 1, "ana")
    with receiving() as (hook, got):
        assert StewardAlerts(service, webhook=hook).send_new() == 1
        service.loaded("people").ledger.set_cap("ana", Epsilon(5))
        assert StewardAlerts(service, webhook=hook).send_new() == 0
    assert [(each["event"], each["analyst"]) for each in got] == [("budget-low", "ana")]


def test_a_written_table_is_told_once_for_each_reading(service, table):
    told = StewardAlerts(service, webhook=None)
    assert told.send_new() == 0
    write_people(table, seed=3)
    assert (told.send_new(), told.send_new()) == (1, 0)
    service.tables.reread(service.loaded("people"))
    assert told.send_new() == 0
    table.write_bytes(table.read_bytes())
    assert (told.send_new(), told.send_new()) == (1, 0)


def test_a_table_that_was_written_while_no_server_ran_is_told(service, table):
    assert StewardAlerts(service, webhook=None).send_new() == 0
    write_people(table, seed=3)
    with closing(Service(service.url)) as restarted, closing(Service(service.url)) as other:
        told = StewardAlerts(restarted, webhook=None)
        assert (told.send_new(), told.send_new(), StewardAlerts(other, webhook=None).send_new()) == (1, 0, 0)
        restarted.tables.reread(restarted.loaded("people"))
        assert (told.send_new(), StewardAlerts(other, webhook=None).send_new()) == (0, 0)


def test_no_look_opens_a_table(service, table, monkeypatch):
    """The work must not depend on whether the source changed, as analysts may measure how busy a server is."""
    for opened in ("open_source", "open_copies"):
        monkeypatch.setattr(f"sfumato_server.tables.{opened}", pytest.fail)
    write_people(table, seed=3)
    with closing(Service(service.url)) as restarted:
        assert StewardAlerts(restarted, webhook=None).send_new() == 1


def test_a_paused_dataset_is_told_once(service):
    shutil.rmtree(next(each for each in service.snapshots.folder.iterdir() if each.is_dir()))
    with receiving() as (hook, got):
        told = StewardAlerts(service, webhook=hook)
        assert (told.send_new(), told.send_new()) == (1, 0)
    assert [(each["event"], each["dataset"]) for each in got] == [("dataset-paused", "people")]
    service.tables.reread(service.loaded("people"))
    assert told.send_new() == 0


def age(service, key, days):
    """Have a key that was just issued be of some days ago, without a change of its end."""
    then = (key.issued - timedelta(days=days)).isoformat()
    with service.store.writing() as driver:
        driver.run("UPDATE service_key SET issued = :then WHERE id = :id", {"then": then, "id": key.id})


def test_a_key_that_ends_soon_is_told_once(service):
    service.registry.issue("ana", Scope.ANALYST, timedelta(days=30))
    ending, _ = service.registry.issue("bob", Scope.ANALYST, timedelta(days=3))
    gone, _ = service.registry.issue("cleo", Scope.ANALYST, timedelta(days=3))
    for key in (ending, gone):
        age(service, key, 27)
    service.registry.revoke(gone.id)
    with receiving() as (hook, got):
        told = StewardAlerts(service, webhook=hook)
        assert (told.send_new(), told.send_new()) == (1, 0)
    assert [(each["event"], each["holder"], each["key"]) for each in got] == [("key-expiring", "bob", ending.id)]


def test_a_key_for_a_few_days_is_not_told_before_its_last_quarter(service):
    key, _ = service.registry.issue("bob", Scope.ANALYST, timedelta(days=3))
    told = StewardAlerts(service, webhook=None)
    assert told.send_new() == 0
    age(service, key, 8)
    assert told.send_new() == 0
    age(service, key, 10)
    assert (told.send_new(), told.send_new()) == (1, 0)


def test_a_release_that_waits_for_an_approval_is_told_once_without_its_question(service, caplog):
    caplog.set_level(logging.INFO, "sfumato.http")
    service.grants.set_terms("people", DatasetTerms(approval_above="0.5"))
    form = AskRequest(sql="SELECT COUNT(*) FROM t WHERE age > 17", loss={"epsilon": "1"})
    with receiving() as (hook, got):
        told = StewardAlerts(service, webhook=hook)
        assert told.send_new() == 0
        for name in ("ana", "bob"):
            with pytest.raises(ApprovalNeededError):
                answer_of(form, service.vault("people", name), form.read(service.loaded("people").domain, ()))
        service.rename("people", "folk")
        assert (told.send_new(), told.send_new()) == (2, 0)
        facts = [(each["event"], each["dataset"], each["analyst"]) for each in got]
        assert facts == [("approval-waiting", "folk", "ana"), ("approval-waiting", "folk", "bob")]
        assert {each["approval"] for each in got} == {each.id for each in service.approvals.pending()}
        assert "epsilon = 1" in got[0]["cost"]
        assert "17" not in str([{**each, "approval": "", "time": ""} for each in got])
    steward = service.registry.issue("stew", Scope.STEWARD, timedelta(days=30))[0]
    with receiving() as (hook, got):
        with service.store.writing() as driver:
            driver.run("DELETE FROM service_notice")
        assert service.approvals.approve(service.approvals.pending()[0].id, steward)
        assert StewardAlerts(service, webhook=hook).send_new() == 1  # one is approved, and waits for nobody
        assert got[0]["analyst"] == "bob"


def test_only_stewards_see_figures_of_a_table_that_waits_for_an_approval(service, caplog):
    caplog.set_level(logging.INFO, "sfumato.http")
    service.grants.set_terms("people", DatasetTerms(approval_above="0.5"))
    form = AnonymizeRequest.model_validate({"method": "optimal", "quasi": ["age"], "k": 5, "suppression": "0.5"})
    with pytest.raises(ApprovalNeededError) as refusal:
        release_jobs.anonymized(service.vault("people", "ana"), form.read())
    with receiving() as (hook, got):
        assert StewardAlerts(service, webhook=hook).send_new() == 1
    assert got[0]["cost"].startswith("no DP guarantee: 5-anonymity over the quasi-identifiers age")
    for text in (str(got), caplog.text, str(refusal.value)):
        assert not any(word in text for word in ("Loss Metric", "rows are suppressed"))
    by_role = {}
    for name, scope in (("stew", Scope.STEWARD), ("bob", Scope.ANALYST)):
        issued = service.registry.issue(name, scope, timedelta(days=30))[0]
        by_role[name] = str(stewards.approvals(issued, service))
    assert "the Loss Metric is" in by_role["stew"]
    assert by_role["bob"] == str({"approvals": []})


def test_what_fails_of_one_dataset_ends_nothing_of_the_others(service, tmp_path, monkeypatch, caplog):
    other = write_people(tmp_path / "other.parquet", seed=5)
    service.register("aaa", source=str(other), domain=DOMAIN, limit="1", more={})
    spend(service, "9.5", 1)
    loaded = service.loaded

    def failing(name):
        if name == "aaa":
            raise ZeroDivisionError("Dugong")
        return loaded(name)

    monkeypatch.setattr(service, "loaded", failing)
    with caplog.at_level(logging.INFO):
        assert StewardAlerts(service, webhook=None).send_new() == 1
    assert "look failed" in caplog.text
    assert "Dugong" not in caplog.text


@pytest.mark.parametrize("status", [500, None])
def test_what_the_webhook_did_not_take_is_told_again(service, status, caplog):
    spend(service, "9.5", 1)
    with receiving(status or 204) as (hook, _), caplog.at_level(logging.INFO):
        address = hook if status else "http://127.0.0.1:9/hook"
        assert StewardAlerts(service, webhook=address).send_new() == 0
    ours = [record.getMessage() for record in caplog.records if record.name == "sfumato.http"]
    assert any("webhook failed" in line for line in ours)
    assert not any("/hook" in line for line in ours)  # an address may hold a secret
    with receiving() as (hook, got):
        assert StewardAlerts(service, webhook=hook).send_new() == 1
    assert len(got) == 1


def test_one_of_several_workers_tells(service):
    spend(service, "9.5", 1)
    with closing(Service(service.url)) as other, receiving() as (hook, got):
        threads = [
            threading.Thread(target=StewardAlerts(each, webhook=hook).send_new) for each in (service, other, service)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(got) == 1


def test_a_retired_dataset_is_told_of_no_more(service):
    spend(service, "9.5", 1)
    service.retire("people", retired=True)
    assert StewardAlerts(service, webhook=None).send_new() == 0


def test_a_webhook_of_its_own_authority_is_reached_through_a_proxy(service, tmp_path, caplog):
    caplog.set_level(logging.INFO, "sfumato.http")
    trusted = authority(tmp_path)
    spend(service, "9.5", 1)
    with receiving(tls=trusted.context) as (hook, got), Proxy().running() as proxy:
        assert StewardAlerts(service, webhook=hook).send_new() == 0
        failed = [json.loads(each.getMessage()) for each in caplog.records if "webhook failed" in each.getMessage()]
        assert "the certificate is not trusted: unable to get local issuer" in failed[0]["reason"]
        reached = outbound(trusted.ca_file, proxy.address)
        assert StewardAlerts(service, webhook=hook, client_options=reached).send_new() == 1
        assert (len(got), proxy.asked) == (1, [hook.split("/")[2]])


def test_a_worker_sends_notices_as_the_options_of_the_command_say(tmp_path, monkeypatch):
    trusted, made = authority(tmp_path), {}
    monkeypatch.setattr(application, "log_to_standard_error", lambda: None)
    monkeypatch.setattr(application, "create", lambda *_, alerts: made.update(alerts=alerts))
    monkeypatch.setattr(application, "gc", SimpleNamespace(collect=int, freeze=int, set_threshold=int))
    monkeypatch.setattr(application, "run", lambda *_, **__: application.application())
    for name in (application.LEDGER, application.ARRIVAL, "SFUMATO_SETTINGS"):  # which the command sets
        monkeypatch.setenv(name, "")
    with receiving(tls=trusted.context) as (hook, got), Proxy().running() as proxy:
        how = ("--webhook", hook, "--webhook-ca-file", trusted.ca_file.name, "--webhook-proxy", proxy.address)
        sfumato("serve", "--create", "--no-sample", "--no-link", "--port", "0", *how, cwd=tmp_path)
        ending = made["alerts"]._service  # noqa: SLF001
        key = ending.registry.issue("ana", Scope.ANALYST, timedelta(days=2))[0]
        with ending.store.writing() as driver:
            ago = (key.issued - timedelta(days=30)).isoformat()
            driver.run("UPDATE service_key SET issued = :ago", {"ago": ago})
        assert made["alerts"].send_new() == 1
        ending.close()
        assert (got[0]["event"], proxy.asked) == ("key-expiring", [hook.split("/")[2]])


def test_a_webhook_that_others_can_read_is_refused(tmp_path):
    done = sfumato("serve", "--create", "--webhook", "http://example.org/hook", cwd=tmp_path, code=2)
    assert "https" in done.stderr
    assert list(tmp_path.iterdir()) == []
